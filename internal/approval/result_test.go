package approval_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// answeredWith holds, approves and runs a call with the given arguments and result, and returns
// the approver's view of it.
func (o *fixture) answeredWith(t *testing.T, arguments, result string) review.Approval {
	t.Helper()
	c := call("ann", "")
	c.Message = message("delete_file", arguments)
	held := o.hold(t, c)
	o.approve(t, held.ID)
	w := o.wait(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) { return answer(result), nil }))
	<-w.done
	for limit := time.Now().Add(time.Minute); ; { // a large answer is readable before it is complete
		a, err := o.views.Show(t.Context(), held.ID)
		if err != nil {
			t.Fatal(err)
		}
		if a.Result != nil {
			return a
		}
		if a.State.Terminal() || time.Now().After(limit) {
			t.Fatalf("a call in state %s has no result", a.State)
		}
		runtime.Gosched()
	}
}

// An approver sees the result of a call, redacted: the values that the workflow names in
// results, and redacted arguments wherever the tool repeats them.
func TestResultShown(t *testing.T) {
	for name, tt := range map[string]struct {
		redact            []string
		arguments, result string
		want              string
	}{
		"plain":             {nil, `{}`, `{"content":[{"type":"text","text":"done"}]}`, `{"content":[{"type":"text","text":"done"}]}`},
		"hidden characters": {nil, `{}`, `{"content":["a` + "\u202e" + `b"]}`, `{"content":["a\u202eb"]}`},
		"a path":            {[]string{"result.token"}, `{}`, `{"token":"t0k3n","n":1}`, `{"token":"[redacted]","n":1}`},
		"a path in a text":  {[]string{"result.content.text.token"}, `{}`, `{"content":[{"text":"{\"token\":1}"}]}`, `{"content":[{"text":"[redacted]"}]}`},
		"all of it":         {[]string{"result"}, `{}`, `{"token":"t0k3n"}`, `"[redacted]"`},
		"a repeated secret": {
			[]string{"arguments.password"},
			`{"password":"hun\"ter2"}`, `{"content":["signed in with hun\"ter2","{\"p\":\"hun\\\"ter2\"}"],"hun\"ter2":1}`,
			`{"content":["signed in with [redacted]","{\"p\":\"[redacted]\"}"],"[redacted]":1}`,
		},
		"a secret inside":     {[]string{"arguments.login"}, `{"login":{"user":"annabel","pin":123456}}`, `{"a":"annabel 123456"}`, `{"a":"[redacted] [redacted]"}`},
		"a path of arguments": {[]string{"arguments.token"}, `{}`, `{"token":"t0k3n"}`, `{"token":"t0k3n"}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, nil)
			o.setWorkflow("ops", approval.Workflow{Redact: tt.redact})
			a := o.answeredWith(t, tt.arguments, tt.result)
			if got := string(a.Result.Value); got != tt.want || a.Result.Truncated || a.Result.Size != int64(len(tt.result)) || a.Result.Kind != task.ResultOK {
				t.Errorf("%s, %+v; want %s", got, a.Result, tt.want)
			}
		})
	}
}

// The first part of a large result is shown as valid JSON, wherever it is cut off. No part of a
// secret remains at its end.
func TestLargeResultShown(t *testing.T) {
	o := open(t, nil)
	for shift := range 24 {
		text := strings.Repeat("x", 32<<10-60+shift) + `\"é\ud83d\ude00hunter2` + strings.Repeat("y", 200_000)
		result := `{"content":[{"type":"text","text":"` + text + `"}],"more":true}`
		a := o.answeredWith(t, fmt.Sprintf(`{"password":"hunter2","n":%d}`, shift), result)
		r := a.Result
		if !r.Truncated || r.Size != int64(len(result)) || !r.Value.IsValid() || len(r.Value) > 33<<10 || len(r.Value) < 31<<10 {
			t.Fatalf("shift %d: %d of %d bytes, truncated %t, valid %t", shift, len(r.Value), r.Size, r.Truncated, r.Value.IsValid())
		}
		if shown := string(r.Value); strings.Contains(shown, "hun") || !strings.HasPrefix(shown, `{"content":[{"type":"text","text":"xxx`) || !strings.HasSuffix(shown, `"}]}`) {
			t.Errorf("shift %d: it ends with %s", shift, shown[len(shown)-80:])
		}
	}
}

// The result of a call with an unknown workflow is hidden, like the call.
func TestResultOfUnknownWorkflow(t *testing.T) {
	o := open(t, nil)
	a := o.answeredWith(t, `{}`, `{"token":"t0k3n"}`)
	o.mu.Lock()
	delete(o.workflows, "ops")
	o.mu.Unlock()
	a, err := o.views.Show(t.Context(), a.ID)
	if err != nil || string(a.Result.Value) != `"[redacted]"` {
		t.Errorf("%s, %v", a.Result.Value, err)
	}
}
