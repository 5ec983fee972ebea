package logging_test

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// Lines for people begin with the time of day, and a text of others cannot end them.
func TestTerminal(t *testing.T) {
	tests := []struct {
		write func(*slog.Logger)
		want  string
	}{
		{func(l *slog.Logger) { l.Info("stopped") }, `stopped\n`},
		{func(l *slog.Logger) { l.Warn("refused", "err", errors.New("no\nnew\x1b line")) }, `WARN refused  err="no\\nnew\\x1b line"\n`},
		{func(l *slog.Logger) { l.With("upstream", "a").WithGroup("g").Error("failed", "msg", "b") }, `ERROR failed  upstream=a g.msg=b\n`},
		{func(l *slog.Logger) { l.Debug("hidden") }, ``},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		tt.write(logging.New(&out, logging.Terminal, slog.LevelInfo))
		want := `^\d\d:\d\d:\d\d ` + tt.want + `$`
		if tt.want == "" {
			want = `^$`
		}
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("%q does not match %s", out.String(), want)
		}
	}
}
