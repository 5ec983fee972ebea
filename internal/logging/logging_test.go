package logging_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

type source logging.Request

// LogRequest implements [logging.RequestSource].
func (s source) LogRequest() logging.Request { return logging.Request(s) }

func during(ctx context.Context) context.Context {
	return context.WithValue(ctx, logging.RequestKey{}, source{CorrelationID: "r-2", Principal: "bob", ClientIP: "192.0.2.1"})
}

func aboutCall(ctx context.Context) context.Context {
	return logging.AboutCall(ctx, func() logging.Call {
		return logging.Call{CorrelationID: "r-1", Principal: "ann", TaskID: "tg_1", Tool: "delete"}
	})
}

func TestAttributes(t *testing.T) {
	tests := map[string]struct {
		ctx  func(context.Context) context.Context
		args []any
		want string
	}{
		"nothing":         {func(ctx context.Context) context.Context { return ctx }, nil, `"msg":"m"}`},
		"request":         {during, nil, `"msg":"m","correlation_id":"r-2","principal":"bob","client_ip":"192.0.2.1"}`},
		"call":            {aboutCall, nil, `"msg":"m","correlation_id":"r-1","task_id":"tg_1","tool":"delete","principal":"ann"}`},
		"keys are unique": {aboutCall, []any{"tool", "x"}, `"msg":"m","tool":"x","correlation_id":"r-1","task_id":"tg_1","principal":"ann"}`},
		"call during another request": {
			func(ctx context.Context) context.Context { return aboutCall(during(ctx)) }, nil,
			`"msg":"m","correlation_id":"r-1","request_correlation_id":"r-2","task_id":"tg_1","tool":"delete","principal":"ann","client_ip":"192.0.2.1"}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			logging.New(&out, "json", slog.LevelInfo).InfoContext(tt.ctx(t.Context()), "m", tt.args...)
			if !strings.HasSuffix(strings.TrimSpace(out.String()), tt.want) {
				t.Errorf("logged %s; want it to end with %s", &out, tt.want)
			}
		})
	}
}

func TestInvisibleTextIsEscaped(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		logging.New(&out, format, slog.LevelInfo).With("k\u200b", "\u202e").InfoContext(t.Context(), "m\u3164", "name", "gpj\u202e\u3164\x7f\U000e0041")
		for _, hidden := range []string{"\u202e", "\u200b", "\u3164", "\x7f", "\U000e0041"} {
			if strings.Contains(out.String(), hidden) {
				t.Errorf("a line as %s has %q: %q", format, hidden, &out)
			}
		}
		if !strings.Contains(out.String(), `gpj\u202e\u3164`) {
			t.Errorf("a line as %s does not escape invisible characters: %s", format, &out)
		}
	}
}
