package approval_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// EC-TASK-001, EC-TASK-002, F-002: a held call is durable when Hold returns, and waits for its
// approvers.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		start := time.Now()
		c := call("ann", "/a")
		c.Variables = task.Variables{"client.reason": json.RawMessage(`"tidying up"`)}
		got := o.hold(t, c)
		mustState(t, got, task.InputRequired)
		stored := o.now(t, got.ID)
		if diff := cmp.Diff(string(c.Message), stored.Call.Message); diff != "" {
			t.Error(diff)
		}
		if want := `{"path":"/a"}`; stored.Call.Arguments != want || stored.Call.Name != "delete_file" {
			t.Errorf("call = %+v; want delete_file with %s", stored.Call, want)
		}
		if want := 26 * time.Minute; got.TTL() != want { // 15 min approval, 1 min run, 10 min retrieval
			t.Errorf("ttl = %s; want %s", got.TTL(), want)
		}
		if want := start.Add(15 * time.Minute); !got.Approval.Deadline.Equal(want) {
			t.Errorf("deadline = %s; want %s", got.Approval.Deadline, want)
		}
		if got.PollInterval != 30*time.Second {
			t.Errorf("poll interval = %s; want 30s", got.PollInterval)
		}
		if len(stored.Transitions) != 1 || stored.Transitions[0].From != task.Working {
			t.Errorf("transitions = %+v; want one from working", stored.Transitions)
		}
		if o.count(approval.Held) != 1 {
			t.Error("the hold was not reported")
		}
	})
}

// The lifetime of a task leaves time for its approvers, and has a maximum.
func TestHoldTTL(t *testing.T) {
	o := open(t, func(c *approval.Config) { c.MaxTTL = 2 * time.Hour })
	for i, tt := range []struct{ asked, want time.Duration }{
		{time.Minute, 26 * time.Minute}, // too short for the approvers
		{time.Hour, time.Hour},
		{48 * time.Hour, 2 * time.Hour},
	} {
		c := call("ann", fmt.Sprint(i))
		c.TTL = tt.asked
		if got := o.hold(t, c); got.TTL() != tt.want {
			t.Errorf("asked for %s: got %s; want %s", tt.asked, got.TTL(), tt.want)
		}
	}
	if o.count(approval.TTLLimited) != 1 {
		t.Error("the limit was not reported")
	}
}

func TestHoldRefusesInvalidCall(t *testing.T) {
	o := open(t, nil)
	tests := map[string]struct {
		change func(*approval.Call)
		want   error
	}{
		"no owner":         {func(c *approval.Call) { c.Owner = "" }, task.ErrInvalid},
		"denied":           {func(c *approval.Call) { c.Verdict.Action = policy.Deny }, task.ErrInvalid},
		"no verdict":       {func(c *approval.Call) { c.Verdict = policy.Verdict{} }, task.ErrInvalid},
		"unknown workflow": {func(c *approval.Call) { c.Verdict.Workflow = "nobody" }, task.ErrInvalid},
		"not JSON":         {func(c *approval.Call) { c.Message = []byte("{") }, task.ErrInvalid},
		"an answer in a batch": {func(c *approval.Call) {
			c.Message = fmt.Appendf(nil, `[%s,{"jsonrpc":"2.0","id":2,"result":{}}]`, c.Message)
		}, task.ErrInvalid},
		"a batch of lists":    {func(c *approval.Call) { c.Message = []byte(`[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`) }, task.ErrInvalid},
		"duplicate arguments": {func(c *approval.Call) { c.Message = message("x", `{"a":1,"a":2}`) }, task.ErrInvalid},
		"not governed":        {func(c *approval.Call) { c.Message = []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) }, task.ErrInvalid},
		"the gate's variable": {func(c *approval.Call) { c.Variables = task.Variables{"server.x": json.RawMessage("1")} }, task.ErrVariableOwnership},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := call("ann", "/a")
			tt.change(&c)
			_, _, err := o.Hold(t.Context(), c)
			mustBe(t, err, tt.want)
		})
	}
	if page, _ := o.views.Pending(t.Context(), review.Filter{States: task.States()}); len(page.Approvals) != 0 {
		t.Errorf("%d tasks created", len(page.Approvals))
	}
}

// EC-TASK-014, EC-TASK-015, F-009: limits apply per owner and in total.
func TestHoldLimits(t *testing.T) {
	o := open(t, func(c *approval.Config) { c.Limits = task.Limits{PerOwner: 2, Total: 3} })
	first := o.hold(t, call("ann", "1"))
	o.hold(t, call("ann", "2"))
	_, _, err := o.Hold(t.Context(), call("ann", "3"))
	mustBe(t, err, task.ErrRateLimited)
	o.hold(t, call("ben", "1"))
	_, _, err = o.Hold(t.Context(), call("cid", "1"))
	mustBe(t, err, task.ErrCapacityExceeded)
	if _, attached, err := o.Hold(t.Context(), call("ann", "2")); !attached || err != nil {
		t.Errorf("an identical call at the limit: attached %t, %v; want it attached", attached, err)
	}
	if _, err := o.Cancel(t.Context(), mine(first), approval.Withdrawal{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	o.hold(t, call("ann", "3"))
	if o.count(approval.Refused) != 2 {
		t.Error("the refusals were not reported")
	}
}

// A call attaches to an identical one of the same owner, but not to one of another owner, with
// other arguments or for another upstream.
func TestHoldAttaches(t *testing.T) {
	o := open(t, nil)
	first := o.hold(t, call("ann", "/a"))
	same := call("ann", "/a")
	same.Message = []byte(`{"jsonrpc":"2.0","id":"other","method":"tools/call","params":{"arguments":{ "path" : "/a" },"name":"delete_file"}}`)
	got, attached, err := o.Hold(t.Context(), same)
	if err != nil || !attached || got.ID != first.ID {
		t.Fatalf("Hold = %s, %t, %v; want to attach to %s", got.ID, attached, err, first.ID)
	}
	other := call("ann", "/a")
	other.Upstream = "archive"
	for _, c := range []approval.Call{call("ben", "/a"), call("ann", "/b"), other} {
		if got := o.hold(t, c); got.ID == first.ID {
			t.Errorf("%s %s attached to another call", c.Owner, c.Message)
		}
	}
	alone := call("ann", "/a")
	alone.SharedOwner = true
	if got := o.hold(t, alone); got.ID == first.ID {
		t.Error("a call of a shared owner attached to another")
	}
}

// An identical call gets the undelivered result of an earlier one, once.
func TestHoldAttachesToUndelivered(t *testing.T) {
	outcomes := map[string]struct {
		end   func(*testing.T, *fixture, task.Task)
		joins bool
	}{
		"completed": {func(t *testing.T, o *fixture, held task.Task) {
			o.approve(t, held.ID)
			o.Contact(t.Context(), mine(held), o.upstream.send)
		}, true},
		"rejected": {func(t *testing.T, o *fixture, held task.Task) {
			o.decide(t.Context(), held.ID, alice, approval.Reject, "no")
		}, true},
		"outcome unknown": {func(t *testing.T, o *fixture, held task.Task) {
			o.approve(t, held.ID)
			o.Contact(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) {
				return approval.Outcome{}, context.Canceled
			}))
		}, true},
		"not sent": {func(t *testing.T, o *fixture, held task.Task) {
			o.approve(t, held.ID)
			o.Contact(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) {
				return approval.Outcome{}, &approval.SendError{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanNo, Err: context.Canceled}
			}))
		}, false},
		"cancelled": {func(t *testing.T, o *fixture, held task.Task) {
			o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann"})
		}, false},
		"expired": {func(*testing.T, *fixture, task.Task) { pass(16 * time.Minute) }, true},
	}
	for name, tt := range outcomes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				first := o.hold(t, call("ann", "/a"))
				tt.end(t, o, first)
				synctest.Wait()
				got, attached, err := o.Hold(t.Context(), call("ann", "/a"))
				if err != nil || attached != tt.joins || attached != (got.ID == first.ID) {
					t.Fatalf("Hold = %s, %t, %v; want attached %t", got.ID, attached, err, tt.joins)
				}
				if !tt.joins {
					mustState(t, got, task.InputRequired)
					return
				}
				if !got.State.Terminal() {
					t.Fatalf("state = %s; want a terminal one", got.State)
				}
				if _, _, err := o.result(t, mine(got)); err != nil {
					t.Fatal(err)
				}
				o.hold(t, call("ann", "/a")) // delivered: this is a new call
			})
		})
	}
}

// Identical calls that arrive at the same time on two replicas become one task, even if each
// finds no pending one at first.
func TestHoldAttachesConcurrently(t *testing.T) {
	const callers = 8
	store := &slowStore{Store: open(t, nil).store}
	services := []*fixture{branch(t, store, nil), branch(t, store, nil)}
	for round := range 50 {
		store.gather(callers)
		c := call("ann", fmt.Sprint(round))
		var all sync.WaitGroup
		ids := make([]task.ID, callers)
		for i := range ids {
			all.Go(func() {
				got, _, err := services[i%2].Hold(t.Context(), c)
				if err != nil {
					t.Error(err)
				}
				ids[i] = got.ID
			})
		}
		all.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("round %d: %v; want one task", round, ids)
			}
		}
		services[0].Cancel(t.Context(), task.AnyOwner().Ref(ids[0]), approval.Withdrawal{By: "test"})
	}
	if n := services[0].count(approval.Held) + services[1].count(approval.Held); n != 50 {
		t.Errorf("%d tasks created; want 50", n)
	}
}

// A slowStore blocks lists until the expected number of callers has listed.
type slowStore struct {
	gatestore.Store

	mu      sync.Mutex
	missing int
	all     chan struct{}
}

// gather sets the expected number of callers.
func (s *slowStore) gather(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing, s.all = n, make(chan struct{})
}

func (s *slowStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	page, err := s.Store.List(ctx, q)
	s.mu.Lock()
	all := s.all
	if s.missing--; s.missing == 0 {
		close(all)
	}
	s.mu.Unlock()
	<-all
	return page, err
}

// A call that needs no approval but becomes a task runs at once, with the sender of its client.
func TestCallWithoutApprovalRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.rule(policy.Verdict{Action: policy.Forward})
		c := call("ann", "/a")
		c.Verdict, c.Send = policy.Verdict{Action: policy.Forward}, o.upstream.send
		got := o.hold(t, c)
		if got.Approval != nil || got.State.Terminal() {
			t.Fatalf("task = %+v; want a running task without approval", got)
		}
		synctest.Wait()
		mustState(t, o.now(t, got.ID), task.Completed)
		if n := len(o.upstream.entries()); n != 1 {
			t.Errorf("ran %d times", n)
		}
		if _, err := o.decide(t.Context(), got.ID, alice, approval.Approve, ""); err == nil {
			t.Error("a call without approvers could be decided")
		}
	})
}

// A replica whose clock is behind finds the pending or undelivered call, although an older one
// seems newer.
func TestHoldAttachesDespiteClockSkew(t *testing.T) {
	ahead := open(t, nil)
	behind := branch(t, ahead.store, func(c *approval.Config) { c.Now = func() time.Time { return time.Now().Add(-time.Hour) } })
	first := ahead.hold(t, call("ann", "/a"))
	if _, err := ahead.Cancel(t.Context(), mine(first), approval.Withdrawal{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	second := behind.hold(t, call("ann", "/a"))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for _, state := range []task.State{task.InputRequired, task.Rejected} {
		got, attached, err := behind.Hold(ctx, call("ann", "/a"))
		if err != nil || !attached || got.ID != second.ID || got.State != state {
			t.Errorf("Hold = %s %s, attached %t, %v; want %s %s", got.State, got.ID, attached, err, state, second.ID)
		}
		if state == task.InputRequired {
			behind.decide(t.Context(), second.ID, alice, approval.Reject, "no")
		}
	}
}

// An immediate approval finds the sender of the client that made the call. The client need not
// poll before the call runs.
func TestDecisionFindsSenderOfNewCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		c := call("ann", "/a")
		c.Send = o.upstream.send
		held := o.hold(t, c)
		o.approve(t, held.ID)
		synctest.Wait()
		mustState(t, o.now(t, held.ID), task.Completed)
	})
}
