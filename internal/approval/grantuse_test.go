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
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// TestGrantPolicy: what policy and the workflow say now counts, also for a call that a
// grant has let in.
func TestGrantPolicy(t *testing.T) {
	strict := approval.Workflow{Approvers: []string{"alice"}, Quorum: 2, Grants: grantable}
	for name, test := range map[string]struct {
		change func(*office)
		in     task.State // of a call that is made after the change
	}{
		"policy denies":        {func(o *office) { o.rule(policy.Verdict{Action: policy.Deny}) }, ""},
		"policy wants another": {func(o *office) { o.rule(policy.Verdict{Action: policy.Approve, Workflow: "brief"}) }, ""},
		"more must approve":    {func(o *office) { o.setWorkflow("ops", strict) }, task.InputRequired},
		"others must approve": {func(o *office) {
			o.setWorkflow("ops", approval.Workflow{Approvers: []string{"bob"}, Grants: grantable})
		}, task.InputRequired},
		"no grants any more": {func(o *office) { o.setWorkflow("ops", approval.Workflow{}) }, task.InputRequired},
		"shorter grants": {func(o *office) {
			o.setWorkflow("ops", approval.Workflow{Grants: grantstore.Limits{Longest: time.Minute, Uses: 5}})
		}, task.InputRequired},
		"the workflow is not there": {func(o *office) { o.mu.Lock(); delete(o.workflows, "ops"); o.mu.Unlock() }, ""},
		"revoked": {func(o *office) {
			all, _ := o.Grants(context.Background(), false)
			_, _ = o.Revoke(context.Background(), all[0].ID, bob, "")
		}, task.InputRequired},
		"its time is over": {func(*office) { time.Sleep(time.Hour) }, task.InputRequired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, func(c *approval.Config) { c.MaxTTL, c.Retrieval = 24*time.Hour, 3*time.Hour })
				o.allowGrants("ops")
				o.grant(t, toolCall(`{"path":"/a"}`), terms(5, "path"))
				ran := len(o.ledger.entries())
				time.Sleep(2 * time.Minute)
				in := o.hold(t, toolCall(`{"path":"/b"}`)) // it waits for its owner
				mustState(t, in, task.Approved)
				test.change(o)
				after, err := o.Contact(t.Context(), mine(in), o.ledger.send)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				mustState(t, after, task.Failed)
				if test.in != "" {
					mustState(t, o.hold(t, toolCall(`{"path":"/c"}`)), test.in)
				}
				if runs := o.ledger.entries(); len(runs) != ran {
					t.Errorf("ran %q", runs)
				}
			})
		})
	}
}

// TestGrantToolDrift: a tool that changes after a grant has let the call in, and
// before it runs, does not run.
func TestGrantToolDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		o.grant(t, toolCall(`{"path":"/a"}`), terms(5, "path"))
		in := o.hold(t, toolCall(`{"path":"/b"}`))
		after, err := o.Contact(t.Context(), mine(in), definer{o.ledger.send, "v2-0012"})
		if err != nil || after.State != task.Failed || after.Failure.Stage != task.StageToolDrift {
			t.Errorf("it is %s, %+v, %v", after.State, after.Failure, err)
		}
	})
}

// TestGrantShowsTheNewDefinition: approvers who are asked because the tool has changed
// are asked about the tool as it is now.
func TestGrantShowsTheNewDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		o.grant(t, toolCall(`{"path":"/a"}`), terms(5))
		c := toolCall(`{"path":"/a"}`)
		c.Define = func(context.Context) approval.Tool {
			return approval.Tool{Digest: "v2-0012", Description: "deletes more"}
		}
		shown, err := o.Show(t.Context(), o.hold(t, c).ID)
		if err != nil || shown.ToolDigest != "v2-0012" || shown.Description != "deletes more" {
			t.Errorf("approvers see %s %q, %v", shown.ToolDigest, shown.Description, err)
		}
	})
}

// TestGrantLastUse: two gates on one store, many calls, and fewer uses.
func TestGrantLastUse(t *testing.T) {
	o := open(t, nil)
	other := branch(t, o.store, nil)
	o.allowGrants("ops")
	other.allowGrants("ops")
	o.grant(t, toolCall(`{"path":"/a"}`), terms(3, "path"))
	var approved atomic.Int32
	var all []func() error
	for i := range 8 {
		gate := []*office{o, other}[i%2]
		all = append(all, func() error {
			c := toolCall(fmt.Sprintf(`{"path":"/%d"}`, i))
			c.Send = gate.ledger.send
			asked, _, err := gate.Hold(t.Context(), c)
			if err == nil && asked.State != task.InputRequired {
				approved.Add(1)
				_, err = gate.Wait(t.Context(), mine(asked), gate.ledger.send)
			}
			return err
		})
	}
	if n := together(all...); n != len(all) {
		t.Errorf("%d of %d calls were held or run", n, len(all))
	}
	if n := approved.Load(); n != 3 {
		t.Errorf("%d calls used a grant with 3 uses", n)
	}
	if n := len(o.ledger.entries()) + len(other.ledger.entries()); n != 4 {
		t.Errorf("%d calls ran, want the first and 3 more", n)
	}
}

// A cutOff is a store that fails when a task is to be created.
type cutOff struct {
	task.GateStore
	err atomic.Value
}

func (c *cutOff) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	if err, ok := c.err.Load().(error); ok && !errors.Is(err, errNone) {
		return err
	}
	return c.GateStore.Create(ctx, t, l, notes...)
}

var errNone = errors.New("none")

// TestGrantCountedButNotMade: a use that was counted before the process ended, and
// whose call was never made, stays counted, and is shown as what it is. One whose
// call was refused is given back.
func TestGrantCountedButNotMade(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		used int
	}{
		"the store broke":  {&task.Error{Kind: task.KindUnavailable}, 1},
		"nobody can tell":  {errors.New("killed"), 1},
		"the disk is full": {&task.Error{Kind: task.KindCapacityExceeded, Err: errors.New("disk")}, 1},
		"too many":         {&task.Error{Kind: task.KindRateLimited}, 0},
		"too many of all":  {&task.Error{Kind: task.KindCapacityExceeded}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := &cutOff{}
				o := open(t, func(c *approval.Config) { broken.GateStore = c.Store; c.Store = broken })
				o.allowGrants("ops")
				g := o.grant(t, toolCall(`{"path":"/a"}`), terms(2, "path"))
				broken.err.Store(test.err)
				if _, _, err := o.Hold(t.Context(), toolCall(`{"path":"/b"}`)); err == nil {
					t.Fatal("the call was held")
				}
				now, err := o.Grant(t.Context(), g.ID)
				if err != nil || now.Used != test.used {
					t.Fatalf("it was used %d times, want %d: %v", now.Used, test.used, err)
				}
				if test.used > 0 && now.Uses[0].Became != casefile.UseNotMade {
					t.Errorf("the use is shown as %s", now.Uses[0].Became)
				}
			})
		})
	}
}

// TestGrantJoins: a call that joins an identical one needs no use.
func TestGrantJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall(`{"path":"/a"}`), terms(5))
		first := o.hold(t, toolCall(`{"path":"/a"}`))
		second, attached, err := o.Hold(t.Context(), toolCall(`{"path":"/a"}`))
		if err != nil || !attached || second.ID != first.ID {
			t.Errorf("the second call is %s, attached %t, %v", second.ID, attached, err)
		}
		if now, _ := o.Grant(t.Context(), g.ID); now.Used != 1 {
			t.Errorf("it was used %d times", now.Used)
		}
	})
}

// TestGrantForged: a task that claims a grant which does not know it does not run.
func TestGrantForged(t *testing.T) {
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
		after, err := o.Contact(t.Context(), mine(forged), o.ledger.send)
		if err != nil || after.State != task.Failed {
			t.Errorf("it is %s, %v", after.State, err)
		}
		if now, _ := o.Grant(t.Context(), g.ID); now.Used != 1 {
			t.Errorf("it was used %d times", now.Used)
		}
	})
}

// TestGrantRoom: an agent has a limited number of grants for a tool. An approver who
// gives one more is told that there is none.
func TestGrantRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		for i := range 21 {
			asked := o.hold(t, toolCall(fmt.Sprintf(`{"path":"/%d"}`, i)))
			_, err := o.ruleWith(t, asked.ID, alice, terms(1))
			full, ok := errors.AsType[*approval.NotGivenError](err)
			if i < 20 && err != nil || i == 20 && (!ok || full.Why != "the agent has 20 for this tool already") {
				t.Fatalf("grant %d: %v", i, err)
			}
			o.finish(t, asked)
		}
		if all, err := o.Grants(t.Context(), false); err != nil || len(all) != 20 {
			t.Errorf("there are %d grants, %v", len(all), err)
		}
	})
}

// TestGrantAfterACrash: a call that a grant let in before its gate died runs once, when
// its owner asks another gate, and takes no second use.
func TestGrantAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall(`{"path":"/a"}`), terms(5, "path"))
		in := o.hold(t, toolCall(`{"path":"/b"}`)) // and that gate is never heard of again
		other := branch(t, o.store, nil)
		other.allowGrants("ops")
		again, attached, err := other.Hold(t.Context(), toolCall(`{"path":"/b"}`))
		if err != nil || !attached || again.ID != in.ID {
			t.Fatalf("the same call is %s, attached %t, %v", again.ID, attached, err)
		}
		mustState(t, other.finish(t, again), task.Completed)
		if n := len(other.ledger.entries()); n != 1 {
			t.Errorf("it ran %d times", n)
		}
		if now, err := other.Grant(t.Context(), g.ID); err != nil || now.Used != 1 {
			t.Errorf("it was used %d times, %v", now.Used, err)
		}
	})
}

// TestGrantOfMixedGates: gates with other configurations agree on what a grant covers.
func TestGrantOfMixedGates(t *testing.T) {
	tenant := func(name string) approval.Call {
		c := toolCall(`{}`)
		c.Message = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_file","arguments":{},"_meta":{%s}}}`, name)
		return c
	}
	synctest.Test(t, func(t *testing.T) {
		home := open(t, func(c *approval.Config) { c.Mixed = true })
		home.allowGrants("ops")
		inbox := branch(t, home.store, func(c *approval.Config) { c.Mixed, c.RequestMeta = true, []string{"tenant"} })
		asked := home.hold(t, tenant(`"tenant":"b"`))
		if _, err := inbox.ruleWith(t, asked.ID, alice, terms(5)); err != nil {
			t.Fatal(err)
		}
		home.finish(t, asked)
		mustState(t, home.hold(t, tenant(``)), task.InputRequired)
		mustState(t, home.hold(t, tenant(`"tenant":"c"`)), task.InputRequired)
		mustState(t, home.hold(t, tenant(`"tenant":"b"`)), task.Approved)
	})
}
