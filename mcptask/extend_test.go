package mcptask_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A client extends the TTL of its own task with tasks/update, up to the maximum. It cannot
// shorten it.
func TestClientExtendsTTL(t *testing.T) {
	b := newBench(t)
	b.MaxTTL = 5 * time.Hour
	b.keep(newTask(t, submit)) // lives two hours
	const ack = `{"resultType":"complete"}`
	for _, tt := range []struct {
		ttl, answer string
		life        time.Duration
	}{
		{`10800000`, ack, 3 * time.Hour},
		{`1`, ack, 3 * time.Hour},
		{`null`, ack, 3 * time.Hour},
		{`36000000`, ack, 5 * time.Hour},
		{`36000000`, ack, 5 * time.Hour},
		{`0`, "-32602", 5 * time.Hour},
		{`"1h"`, "-32602", 5 * time.Hour},
		{`-1`, "-32602", 5 * time.Hour},
	} {
		got := b.ask(modern, mcpname.TasksUpdate, `{"taskId":"`+id+`","inputResponses":{},"ttlMs":`+tt.ttl+`,"_meta":{$tasks}}`)
		if !strings.HasPrefix(got, tt.answer) {
			t.Errorf("%s: answered %s; want %s", tt.ttl, got, tt.answer)
		}
		kept, err := b.Store.Get(t.Context(), task.AnyOwner().Ref(id))
		if err != nil || kept.TTL() != tt.life {
			t.Errorf("%s: the task lives %v, %v; want %v", tt.ttl, kept.TTL(), err, tt.life)
		}
	}
	if got := b.ask(modern, mcpname.TasksGet, byID); !strings.Contains(got, `"ttlMs":18000000`) {
		t.Errorf("the client sees %s", got)
	}
	_, err := b.Handle(t.Context(), mcptask.Request{
		Dialect: modern, Owner: "mallory", Method: mcpname.TasksUpdate,
		Params: json.RawMessage(declaring(t, `{"taskId":"`+id+`","inputResponses":{},"ttlMs":1}`)),
	})
	if !errors.Is(err, task.ErrOwnerMismatch) {
		t.Errorf("another owner: %v; want %v", err, task.ErrOwnerMismatch)
	}
	b.ask(modern, mcpname.TasksCancel, byID)
	if got := b.ask(modern, mcpname.TasksUpdate, `{"taskId":"`+id+`","inputResponses":{},"ttlMs":36000001,"_meta":{$tasks}}`); got != ack {
		t.Errorf("an ended task: %s", got)
	}
}

// The server extends the TTL of a task that it runs, and the work continues after the original
// TTL.
func TestServerExtendsTTLOfRunningTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Now = time.Now
		ref := b.start() // lives an hour
		settle := func() int {
			t.Helper()
			settled, err := lifecycle.Updater{Store: b.Store}.SettleOverdue(t.Context(), "sweeper", time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return len(settled)
		}
		done, err := b.Run(t.Context(), ref, func(ctx context.Context) ([]byte, error) {
			time.Sleep(59 * time.Minute)
			if after, err := b.Extend(ctx, ref, 3*time.Hour); err != nil || after.TTL() != 3*time.Hour {
				t.Errorf("Extend = %v, %v", after.TTL(), err)
			}
			if after, err := b.Extend(ctx, ref, time.Minute); err != nil || after.TTL() != 3*time.Hour {
				t.Errorf("Extend to a shorter TTL = %v, %v; want no change", after.TTL(), err)
			}
			time.Sleep(time.Hour)
			if n := settle(); n != 0 {
				t.Errorf("the task ended after its original TTL")
			}
			return json.RawMessage(`{"content":[]}`), ctx.Err()
		})
		if err != nil || done.State != task.Completed {
			t.Errorf("Run = %s, %v; want it completed", done.State, err)
		}
		if _, err := b.Extend(t.Context(), ref, 5*time.Hour); !errors.Is(err, task.ErrAlreadyTerminal) {
			t.Errorf("Extend after the end: %v; want %v", err, task.ErrAlreadyTerminal)
		}
	})
}
