package review_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// redacting returns a service with a workflow that redacts paths, and the id of a call that it
// holds.
func redacting(t *testing.T, arguments string, paths ...string) (*approval.Service, task.ID) {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	service, err := approval.New(approval.Config{
		Store: store, Judge: func(policy.Call) policy.Verdict { return policy.Verdict{Action: policy.Deny} },
		Workflow: func(string) (approval.Workflow, bool) { return approval.Workflow{Redact: paths}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	held, _, err := service.Hold(t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files", Verdict: policy.Verdict{Action: policy.Approve, Workflow: "default"},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete","arguments":` + arguments + `}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return service, held.ID
}

// If there are too many secrets to hide separately, the values that contain them are hidden.
// Such a call can still be approved.
func TestManySecretsStayHidden(t *testing.T) {
	list := func(n int) string {
		return strings.TrimSuffix(strings.Repeat(`{"note":"shown","password":"hunter2"},`, n), ",")
	}
	members := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"m%d":{"password":"hunter2"}`, i))
		}
		return strings.Join(all, ",")
	}
	for name, c := range map[string]struct{ arguments, want string }{
		"few secrets":    {`{"a":"seen","b":[` + list(2) + `]}`, `{"a":"seen","b":[{"note":"shown","password":"[redacted]"},{"note":"shown","password":"[redacted]"}]}`},
		"limit":          {`{"a":"seen","b":[` + list(10_000) + `]}`, `{"a":"seen","b":[{"note":"shown","password":"[redacted]"},`},
		"over the limit": {`{"a":"seen","b":[` + list(10_001) + `]}`, `{"a":"seen","b":"[redacted]"}`},
		"one secret per argument, over the limit": {`{"a":"seen",` + members(10_001) + `}`, `{"a":"seen","m0":"[redacted]",`},
		"JSON text": {`{"a":"seen","b":["{\"password\":\"hunter2\"}"]}`, `{"a":"seen","b":["[redacted]"]}`},
		"object":    {`{"a":"seen","b":{"password":{"x":"hunter2"}}}`, `{"a":"seen","b":{"password":"[redacted]"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			service, id := redacting(t, c.arguments, "arguments.*.password")
			shown, err := service.Viewer().ShowAll(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if text := string(shown.Arguments); !strings.HasPrefix(text, c.want) || strings.Contains(text, "hunter2") {
				t.Errorf("shown: %.300s", text)
			}
			alice := approval.Approver{Name: "alice"}
			full, err := service.Viewer().Details(t.Context(), id, service.Objection(alice))
			if err != nil || strings.Contains(string(full.AllArguments), "hunter2") {
				t.Errorf("details: %.300s, %v", full.AllArguments, err)
			}
			for _, end := range full.RedactedArguments {
				if !strings.HasSuffix(string(full.AllArguments[:end]), `"[redacted]"`) {
					t.Fatalf("no redacted value ends at %d", end)
				}
			}
			if marks := strings.Count(string(full.AllArguments), `"[redacted]"`); marks != len(full.RedactedArguments) {
				t.Errorf("%d of %d redacted values are marked", len(full.RedactedArguments), marks)
			}
			if _, err := service.Decide(t.Context(), id, alice, approval.Ruling{Decision: approval.Approve, Shown: full.ShownDigest}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A countdown is a context that ends after a number of checks.
type countdown struct {
	context.Context

	left  int
	after int // how often it was checked afterwards
}

// Err implements [context.Context].
func (c *countdown) Err() error {
	if c.left--; c.left >= 0 {
		return nil
	}
	c.after++
	return context.Canceled
}

// Building a view ends soon after its context has ended.
func TestViewEndsWithContext(t *testing.T) {
	service, id := redacting(t, `{"a":[1`+strings.Repeat(",1", 100_000)+`]}`, "arguments.password")
	for name, view := range map[string]func(context.Context) error{
		"everything": func(ctx context.Context) error { _, err := service.Viewer().ShowAll(ctx, id); return err },
		"beginning":  func(ctx context.Context) error { _, err := service.Viewer().Show(ctx, id); return err },
		"question":   func(ctx context.Context) error { _, _, err := service.Viewer().ShowWithChange(ctx, id); return err },
		"page": func(ctx context.Context) error {
			_, err := service.Viewer().Details(ctx, id, service.Objection(approval.Approver{Name: "alice"}))
			return err
		},
	} {
		ctx := &countdown{Context: t.Context(), left: 1000}
		if err := view(ctx); !errors.Is(err, context.Canceled) || ctx.after > 20 {
			t.Errorf("%s: %v, and %d steps after the end", name, err, ctx.after)
		}
	}
}
