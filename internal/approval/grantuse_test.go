package approval_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// The current policy and workflow count, also for a call that a grant has approved already.
func TestGrantNeedsCurrentPolicy(t *testing.T) {
	strict := approval.Workflow{Approvers: []string{"alice"}, Quorum: 2, Grants: grantable}
	for name, test := range map[string]struct {
		change func(*fixture)
		in     task.State // of a call that is made after the change
	}{
		"policy denies":                    {func(o *fixture) { o.rule(policy.Verdict{Action: policy.Deny}) }, ""},
		"policy requires another workflow": {func(o *fixture) { o.rule(policy.Verdict{Action: policy.Approve, Workflow: "brief"}) }, ""},
		"higher quorum":                    {func(o *fixture) { o.setWorkflow("ops", strict) }, task.InputRequired},
		"other approvers": {func(o *fixture) {
			o.setWorkflow("ops", approval.Workflow{Approvers: []string{"bob"}, Grants: grantable})
		}, task.InputRequired},
		"workflow without grants": {func(o *fixture) { o.setWorkflow("ops", approval.Workflow{}) }, task.InputRequired},
		"shorter grants": {func(o *fixture) {
			o.setWorkflow("ops", approval.Workflow{Grants: policy.Grants{Longest: time.Minute, Uses: 5}})
		}, task.InputRequired},
		"missing workflow": {func(o *fixture) { o.mu.Lock(); delete(o.workflows, "ops"); o.mu.Unlock() }, ""},
		"revoked": {func(o *fixture) {
			all, _ := o.views.Grants(context.Background(), false)
			_, _ = o.Revoke(context.Background(), all[0].ID, bob, "")
		}, task.InputRequired},
		"expired": {func(*fixture) { time.Sleep(time.Hour) }, task.InputRequired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, func(c *approval.Config) { c.MaxTTL, c.Retrieval = 24*time.Hour, 3*time.Hour })
				o.allowGrants("ops")
				o.grant(t, toolCall(`{"path":"/a"}`), terms(5, "path"))
				ran := len(o.upstream.entries())
				time.Sleep(2 * time.Minute)
				in := o.hold(t, toolCall(`{"path":"/b"}`)) // it waits for its owner
				mustState(t, in, task.Approved)
				test.change(o)
				after, err := o.Contact(t.Context(), mine(in), o.upstream.send)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				mustState(t, after, task.Failed)
				if test.in != "" {
					mustState(t, o.hold(t, toolCall(`{"path":"/c"}`)), test.in)
				}
				if runs := o.upstream.entries(); len(runs) != ran {
					t.Errorf("ran %q", runs)
				}
			})
		})
	}
}

// If a tool changes after a grant has approved a call and before the run, the call does not
// run.
func TestGrantToolDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		o.grant(t, toolCall(`{"path":"/a"}`), terms(5, "path"))
		in := o.hold(t, toolCall(`{"path":"/b"}`))
		after, err := o.Contact(t.Context(), mine(in), definer{o.upstream.send, "v2-0012"})
		if err != nil || after.State != task.Failed || after.Failure.Stage != lifecycle.StageToolDrift {
			t.Errorf("task %s, %+v, %v", after.State, after.Failure, err)
		}
	})
}

// Approvers of a call that is held because its tool has changed see the current definition.
func TestChangedToolIsShownAsDefinedNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		o.grant(t, toolCall(`{"path":"/a"}`), terms(5))
		c := toolCall(`{"path":"/a"}`)
		c.Define = func(context.Context) approval.Tool {
			return approval.Tool{Digest: "v2-0012", Description: "deletes more"}
		}
		shown, err := o.views.Show(t.Context(), o.hold(t, c).ID)
		if err != nil || shown.ToolDigest != "v2-0012" || shown.Description != "deletes more" {
			t.Errorf("shown definition %s %q, %v", shown.ToolDigest, shown.Description, err)
		}
	})
}

// Two gates on one store make many calls for a grant with few uses. No use is counted twice.
func TestGrantIsNotOverused(t *testing.T) {
	o := open(t, nil)
	other := branch(t, o.store, nil)
	o.allowGrants("ops")
	other.allowGrants("ops")
	o.grant(t, toolCall(`{"path":"/a"}`), terms(3, "path"))
	var approved atomic.Int32
	var all []func() error
	for i := range 8 {
		gate := []*fixture{o, other}[i%2]
		all = append(all, func() error {
			c := toolCall(fmt.Sprintf(`{"path":"/%d"}`, i))
			c.Send = gate.upstream.send
			asked, _, err := gate.Hold(t.Context(), c)
			if err == nil && asked.State != task.InputRequired {
				approved.Add(1)
				_, err = gate.Wait(t.Context(), mine(asked), gate.upstream.send)
			}
			return err
		})
	}
	if n := together(all...); n != len(all) {
		t.Errorf("%d of %d calls have tasks", n, len(all))
	}
	if n := approved.Load(); n != 3 {
		t.Errorf("%d calls used a grant with three uses", n)
	}
	if n := len(o.upstream.entries()) + len(other.upstream.entries()); n != 4 {
		t.Errorf("%d calls ran, want the first and 3 more", n)
	}
}

// A cutOff is a store that fails to create tasks.
type cutOff struct {
	gatestore.Store
	err atomic.Value
}

func (c *cutOff) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	if err, ok := c.err.Load().(error); ok && !errors.Is(err, errNone) {
		return err
	}
	return c.Store.Create(ctx, t, l, notes...)
}

var errNone = errors.New("none")

// A use stays counted if the process ended after counting it, although the call was never made.
// It is shown as such. The use of a refused call is returned.
func TestCountedUseOfMissingCallStaysCounted(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		used int
	}{
		"store unavailable": {&task.Error{Kind: task.ErrUnavailable}, 1},
		"outcome unknown":   {errors.New("killed"), 1},
		"disk full":         {&task.Error{Kind: task.ErrCapacityExceeded, Err: errors.New("disk")}, 1},
		"rate limit":        {&task.Error{Kind: task.ErrRateLimited}, 0},
		"capacity limit":    {&task.Error{Kind: task.ErrCapacityExceeded}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := &cutOff{}
				o := open(t, func(c *approval.Config) { broken.Store = c.Store; c.Store = broken })
				o.allowGrants("ops")
				g := o.grant(t, toolCall(`{"path":"/a"}`), terms(2, "path"))
				broken.err.Store(test.err)
				if _, _, err := o.Hold(t.Context(), toolCall(`{"path":"/b"}`)); err == nil {
					t.Fatal("the call was held")
				}
				now, err := o.views.Grant(t.Context(), g.ID)
				if err != nil || now.Used != test.used {
					t.Fatalf("%d uses, want %d: %v", now.Used, test.used, err)
				}
				if test.used > 0 && now.Uses[0].Outcome != review.UseNotMade {
					t.Errorf("shown outcome of the use: %s", now.Uses[0].Outcome)
				}
			})
		})
	}
}

// A call that attaches to an identical one needs no use.
func TestAttachedCallNeedsNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall(`{"path":"/a"}`), terms(5))
		first := o.hold(t, toolCall(`{"path":"/a"}`))
		second, attached, err := o.Hold(t.Context(), toolCall(`{"path":"/a"}`))
		if err != nil || !attached || second.ID != first.ID {
			t.Errorf("second call: %s, attached %t, %v", second.ID, attached, err)
		}
		if now, _ := o.views.Grant(t.Context(), g.ID); now.Used != 1 {
			t.Errorf("%d uses", now.Used)
		}
	})
}

// A task that names a grant which has not counted it does not run.
func TestForgedGrantUseDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall(`{"path":"/a"}`), terms(5, "path"))
		in := o.hold(t, toolCall(`{"path":"/b"}`))
		forged := o.now(t, in.ID)
		forged.ID, forged.Version = task.NewID(time.Now()), 1
		if err := o.store.Create(t.Context(), forged, task.Limits{}); err != nil {
			t.Fatal(err)
		}
		after, err := o.Contact(t.Context(), mine(forged), o.upstream.send)
		if err != nil || after.State != task.Failed {
			t.Errorf("task %s, %v", after.State, err)
		}
		if now, _ := o.views.Grant(t.Context(), g.ID); now.Used != 1 {
			t.Errorf("%d uses", now.Used)
		}
	})
}

// The number of grants that an agent has for one tool is limited. An approver who gives one
// more gets an error.
func TestGrantCountIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		for i := range 21 {
			asked := o.hold(t, toolCall(fmt.Sprintf(`{"path":"/%d"}`, i)))
			_, err := o.ruleWith(t, asked.ID, alice, terms(1))
			full, ok := errors.AsType[*approval.GrantFailedError](err)
			if i < 20 && err != nil || i == 20 && (!ok || full.Reason != "the agent has 20 for this tool already") {
				t.Fatalf("grant %d: %v", i, err)
			}
			o.finish(t, asked)
		}
		if all, err := o.views.Grants(t.Context(), false); err != nil || len(all) != 20 {
			t.Errorf("%d grants, %v", len(all), err)
		}
	})
}

// A call that a grant approved before its gate died runs once, when its owner asks another
// gate. It takes no second use.
func TestGrantedCallRunsOnceAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall(`{"path":"/a"}`), terms(5, "path"))
		in := o.hold(t, toolCall(`{"path":"/b"}`)) // this gate does nothing more
		other := branch(t, o.store, nil)
		other.allowGrants("ops")
		again, attached, err := other.Hold(t.Context(), toolCall(`{"path":"/b"}`))
		if err != nil || !attached || again.ID != in.ID {
			t.Fatalf("repeated call: %s, attached %t, %v", again.ID, attached, err)
		}
		mustState(t, other.finish(t, again), task.Completed)
		if n := len(other.upstream.entries()); n != 1 {
			t.Errorf("ran %d times", n)
		}
		if now, err := other.views.Grant(t.Context(), g.ID); err != nil || now.Used != 1 {
			t.Errorf("%d uses, %v", now.Used, err)
		}
	})
}

// If the upstream refuses the client of a call, its approval stays good for exactly the same
// call of the same owner until the deadline. It also does so if the repeated call is refused,
// and if the workflow allows no grants.
func TestRefusedCallIsApprovedUntilItsDeadline(t *testing.T) {
	refused := plain(func(context.Context, []byte) (approval.Outcome, error) {
		return approval.Outcome{}, &approval.SendError{
			Stage: lifecycle.StageSessionGone, Ran: task.RanNo, Err: errors.New("status 404"), Refusal: &approval.Refusal{Status: 404},
		}
	})
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		try := func(c approval.Call, send approval.Sender) task.Task {
			t.Helper()
			held := o.hold(t, c)
			if held.State != task.Approved {
				return held
			}
			if _, err := o.Contact(t.Context(), mine(held), send); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return o.now(t, held.ID)
		}
		for _, late := range []bool{false, true} {
			path := fmt.Sprint("/late-", late)
			first := o.hold(t, call("ann", path))
			o.approve(t, first.ID)
			if _, err := o.Contact(t.Context(), mine(first), refused); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			mustState(t, o.now(t, first.ID), task.Failed)
			time.Sleep(time.Second)
			mustState(t, try(call("ann", path), refused), task.Failed)
			mustState(t, try(call("ann", path+"-b"), refused), task.InputRequired)
			mustState(t, try(call("bob", path), refused), task.InputRequired)
			want := task.Completed
			if late {
				time.Sleep(time.Until(first.ExpiresAt))
				want = task.InputRequired
			} else {
				time.Sleep(time.Until(first.ExpiresAt) - time.Minute)
			}
			mustState(t, try(call("ann", path), o.upstream.send), want)
		}
	})
}

// A lateStore takes a second to create a task that is approved.
type lateStore struct{ gatestore.Store }

func (s lateStore) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	if t.State == task.Approved {
		time.Sleep(time.Second)
	}
	return s.Store.Create(ctx, t, l, notes...)
}

// The last use of a grant covers identical calls that arrive together.
func TestIdenticalCallsShareTheLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(c *approval.Config) { c.Store = lateStore{c.Store} })
		o.allowGrants("ops")
		o.grant(t, toolCall(`{"path":"/a"}`), terms(1))
		try := func() error {
			held, _, err := o.Hold(t.Context(), toolCall(`{"path":"/a"}`))
			if err == nil && held.State != task.Approved {
				t.Errorf("the call is %s", held.State)
			}
			return err
		}
		later := func() error {
			time.Sleep(time.Second / 2)
			return try()
		}
		if n := together(try, later, later); n != 3 {
			t.Errorf("%d of 3 calls have a task", n)
		}
	})
}
