package approval_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// approved returns a fixture with one approved task by ann, who is absent.
func approved(t *testing.T, change func(*approval.Config)) (*fixture, task.Task) {
	t.Helper()
	o := open(t, change)
	held := o.hold(t, call("ann", "/a"))
	return o, o.approve(t, held.ID)
}

// EC-TASK-004, EC-TASK-006: the upstream's answer is stored unchanged, and can be read
// repeatedly.
func TestAnswerIsStoredUnchanged(t *testing.T) {
	large := `{"content":["` + strings.Repeat("x", 200<<10) + `"],"isError": true}`
	tests := map[string]struct {
		outcome approval.Outcome
		state   task.State
		kind    task.ResultKind
	}{
		"a result":              {answer(`{"content":[]}`), task.Completed, task.ResultOK},
		"a tool error":          {answer(` {"isError":true,"content":[]} `), task.Completed, task.ResultToolError},
		"an escaped tool error": {answer(`{"is\u0045rror" : true}`), task.Completed, task.ResultToolError},
		"not a tool error":      {answer(`{"a":{"isError":true},"b":["isError",true],"isError":false,"c":true}`), task.Completed, task.ResultOK},
		"a quoted tool error":   {answer(`{"a":"\"isError\":true","isError":"true"}`), task.Completed, task.ResultOK},
		"a large result":        {answer(large), task.Completed, task.ResultToolError},
		"an error":              {approval.Outcome{Body: strings.NewReader(`{"code":-32000,"message":"no"}`), Error: true}, task.Failed, task.ResultRPCError},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, held := approved(t, nil)
				var want strings.Builder
				send := plain(func(context.Context, []byte) (approval.Outcome, error) {
					return approval.Outcome{Body: io.TeeReader(tt.outcome.Body, &want), Error: tt.outcome.Error}, nil
				})
				got, err := o.Contact(t.Context(), mine(held), send)
				if err != nil {
					t.Fatal(err)
				}
				mustState(t, got, task.Executing)
				synctest.Wait()
				for range 2 {
					text, after, err := o.result(t, mine(held))
					if err != nil {
						t.Fatal(err)
					}
					mustState(t, after, tt.state)
					if after.Result.Kind != tt.kind {
						t.Errorf("kind = %s; want %s", after.Result.Kind, tt.kind)
					}
					if diff := cmp.Diff(strings.TrimSpace(want.String()), text); diff != "" {
						t.Error(diff)
					}
				}
				if o.count(approval.Delivered) != 1 {
					t.Error("want one report of the delivery")
				}
			})
		})
	}
}

// The failure of a call without an answer says what is known about the call.
func TestFailureSaysWhatIsKnown(t *testing.T) {
	boom := errors.New("boom")
	tests := map[string]struct {
		outcome approval.Outcome
		err     error
		want    task.Failure
	}{
		"not sent": {
			err:  &approval.SendError{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanNo, Err: boom},
			want: task.Failure{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanNo, Retriable: true},
		},
		"sent, no answer": {
			err:  &approval.SendError{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes, Err: boom},
			want: task.Failure{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes},
		},
		"unknown error":       {err: boom, want: task.Failure{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanUnknown}},
		"nothing":             {want: task.Failure{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanUnknown}},
		"an array":            {outcome: answer(`[]`), want: task.Failure{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes}},
		"half an object":      {outcome: answer(`{"content":[]`), want: task.Failure{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes}},
		"garbage":             {outcome: answer(`{"content":,}`), want: task.Failure{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes}},
		"two objects":         {outcome: answer(`{} {}`), want: task.Failure{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes}},
		"empty":               {outcome: answer(``), want: task.Failure{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes}},
		"broken off":          {outcome: approval.Outcome{Body: brokenReader{boom}}, want: task.Failure{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanUnknown}},
		"too large to store":  {outcome: answer(`{"a":"` + strings.Repeat("x", 300<<10) + `"}`), want: task.Failure{Stage: lifecycle.StageResultTooLarge, Ran: task.RanYes}},
		"larger than allowed": {outcome: answer(`{"a":"` + strings.Repeat("x", 150<<10) + `"}`), want: task.Failure{Stage: lifecycle.StageResultTooLarge, Ran: task.RanYes}},
		"broken off late":     {outcome: approval.Outcome{Body: io.MultiReader(strings.NewReader(strings.Repeat(" ", 100<<10)), brokenReader{boom})}, want: task.Failure{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanUnknown}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Options{MaxBytes: 200 << 10})
				defer store.Close()
				o := branch(t, store, func(c *approval.Config) {
					if name == "larger than allowed" {
						c.MaxResult = 100 << 10
					}
				})
				held := o.hold(t, call("ann", "/a"))
				o.approve(t, held.ID)
				o.Contact(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) { return tt.outcome, tt.err }))
				synctest.Wait()
				after := o.now(t, held.ID)
				mustState(t, after, task.Failed)
				tt.want.Reason = after.Failure.Reason
				if diff := cmp.Diff(&tt.want, after.Failure); diff != "" {
					t.Error(diff)
				}
				if strings.Contains(after.Failure.Reason, "boom") {
					t.Error("the reason repeats text of the upstream")
				}
			})
		})
	}
}

// A started call finishes although its client disconnects; its lease is renewed.
func TestRunOutlivesContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, func(c *approval.Config) { c.Execution, c.Lease = 5*time.Minute, 9*time.Second })
		stop := o.runHousekeeping(t)
		defer stop()
		ctx, leave := context.WithCancel(t.Context())
		if _, err := o.Contact(ctx, mine(held), o.upstream.slow(4*time.Minute)); err != nil {
			t.Fatal(err)
		}
		leave()
		pass(3 * time.Minute)
		mustState(t, o.now(t, held.ID), task.Executing)
		pass(2 * time.Minute)
		mustState(t, o.now(t, held.ID), task.Completed)
	})
}

// A call that takes too long is interrupted. Its outcome is unknown.
func TestRunTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		o.Contact(t.Context(), mine(held), o.upstream.slow(time.Hour))
		pass(61 * time.Second)
		after := o.now(t, held.ID)
		mustState(t, after, task.Failed)
		if after.Failure.Stage != lifecycle.StageUpstreamTimeout || after.Failure.Ran != task.RanUnknown {
			t.Errorf("failure = %+v", after.Failure)
		}
	})
}

// EC-TASK-009 as the design reads it: canceling a running call takes effect at once, interrupts
// the call, and is final.
func TestCancelExecuting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		interrupted, started := false, make(chan struct{})
		o.Contact(t.Context(), mine(held), plain(func(ctx context.Context, _ []byte) (approval.Outcome, error) {
			close(started)
			<-ctx.Done()
			interrupted = true
			return answer(`{}`), nil // it was answered anyway
		}))
		<-started
		synctest.Wait() // the guard of the run starts to watch
		mustState(t, o.now(t, held.ID), task.Executing)
		began := time.Now()
		after, err := o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, after, task.Cancelled)
		synctest.Wait()
		if took := time.Since(began); !interrupted || took != 0 {
			t.Errorf("interrupted: %t, after %v; want it at once", interrupted, took)
		}
		pass(time.Minute)
		after = o.now(t, held.ID)
		mustState(t, after, task.Cancelled)
		if after.Result != nil {
			t.Errorf("stored answer of a canceled call: %+v", after.Result)
		}
		if after.Failure.Ran != task.RanUnknown {
			t.Errorf("ran = %s; want unknown", after.Failure.Ran)
		}
	})
}

// If a replica dies while it runs a call, the outcome is unknown, and the call is never run
// again.
func TestCrashWhileExecuting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		now := time.Now()
		claim := lifecycle.Claim{By: "a replica that died", LeaseUntil: now.Add(30 * time.Second)}
		if _, err := lifecycle.Advance(t.Context(), o.store, mine(held), claim, now); err != nil {
			t.Fatal(err)
		}
		w := o.wait(t.Context(), mine(held), o.upstream.send)
		pass(29 * time.Second)
		mustState(t, o.now(t, held.ID), task.Executing)
		pass(2 * time.Second)
		<-w.done
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Failed)
		want := &task.Failure{Stage: lifecycle.StageExecutorLost, Reason: w.task.Failure.Reason, Ran: task.RanUnknown}
		if diff := cmp.Diff(want, w.task.Failure); diff != "" {
			t.Error(diff)
		}
		got, attached, err := o.Hold(t.Context(), call("ann", "/a"))
		if err != nil || !attached || got.ID != held.ID {
			t.Errorf("Hold = %t, %v; want the task with the unknown outcome", attached, err)
		}
		o.Contact(t.Context(), mine(held), o.upstream.send)
		synctest.Wait()
		if runs := o.upstream.entries(); len(runs) != 0 {
			t.Errorf("ran %v", runs)
		}
	})
}

// Approving one call never runs another.
func TestApprovalRunsOnlyThatCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		a, b := o.hold(t, call("ann", "/a")), o.hold(t, call("ann", "/b"))
		o.approve(t, a.ID)
		for _, held := range []task.Task{b, a, b} {
			o.Contact(t.Context(), mine(held), o.upstream.send)
		}
		synctest.Wait()
		want := []string{string(message("delete_file", `{"path":"/a"}`))}
		if diff := cmp.Diff(want, o.upstream.entries()); diff != "" {
			t.Error(diff)
		}
		mustState(t, o.now(t, b.ID), task.InputRequired)
	})
}

func TestStartSetting(t *testing.T) {
	t.Run("approval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			upstream := newFakeUpstream()
			o, held := approved(t, func(c *approval.Config) {
				c.Start, c.Send = approval.StartOnApproval, func(task.Task) approval.Sender { return upstream.send }
			})
			synctest.Wait()
			mustState(t, o.now(t, held.ID), task.Completed)
			if len(upstream.entries()) != 1 {
				t.Errorf("ran %v", upstream.entries())
			}
		})
	})
	t.Run("result", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o, held := approved(t, func(c *approval.Config) { c.Start = approval.StartOnResult })
			o.Contact(t.Context(), mine(held), o.upstream.send)
			synctest.Wait()
			mustState(t, o.now(t, held.ID), task.Approved)
			got, err := o.Wait(t.Context(), mine(held), o.upstream.send)
			if err != nil {
				t.Fatal(err)
			}
			mustState(t, got, task.Completed)
		})
	})
	for name, s := range map[string]approval.Settings{
		"approval without credentials": {Start: approval.StartOnApproval},
		"unknown":                      {Start: "whenever"},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, nil)
			c := approval.Config{Store: o.store, Judge: o.config.Judge, Workflow: o.config.Workflow, Settings: s}
			if _, err := approval.New(c); err == nil {
				t.Error("New accepted it")
			}
		})
	}
	if _, err := approval.New(approval.Config{}); err == nil {
		t.Error("New accepted a service without a store")
	}
}

// EC-TASK-003, EC-TASK-010: the task id of another owner gives no access.
func TestTaskIsClosedToOtherOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		foreign := task.OwnedBy("mallory").Ref(held.ID)
		_, err := o.Get(t.Context(), foreign)
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = o.Contact(t.Context(), foreign, o.upstream.send)
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = o.Wait(t.Context(), foreign, o.upstream.send)
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = o.Cancel(t.Context(), foreign, approval.Withdrawal{By: "mallory"})
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = o.SetVariables(t.Context(), foreign, task.Variables{"client.x": []byte("1")})
		mustBe(t, err, task.ErrOwnerMismatch)
		_, _, err = o.result(t, foreign)
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = o.Get(t.Context(), task.OwnedBy("ann").Ref(task.NewID(time.Now())))
		mustBe(t, err, task.ErrNotFound)
		synctest.Wait()
		if runs := o.upstream.entries(); len(runs) != 0 {
			t.Errorf("ran %v", runs)
		}
		after := o.now(t, held.ID)
		if diff := cmp.Diff(held, after); diff != "" {
			t.Errorf("another owner changed the task: %s", diff)
		}
	})
}

// EC-TASK-010, EC-TASK-011, F-005: List returns an owner's tasks in pages.
func TestList(t *testing.T) {
	o := open(t, nil)
	for _, file := range []string{"1", "2", "3"} {
		o.hold(t, call("ann", file))
	}
	o.hold(t, call("ben", "1"))
	var got []string
	cursor, pages := "", 0
	for {
		page, err := o.List(t.Context(), "ann", cursor, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page.Tasks {
			got = append(got, x.Owner+x.Call.Arguments)
		}
		if pages++; page.Next == "" {
			break
		}
		cursor = page.Next
	}
	if pages != 2 || len(got) != 3 || got[0] != `ann{"path":"3"}` {
		t.Errorf("%d pages with %v; want ann's three in two", pages, got)
	}
}

// EC-TASK-005: a task has no result before its end. EC-TASK-007, EC-TASK-008.
func TestResultAndCancel(t *testing.T) {
	o := open(t, nil)
	held := o.hold(t, call("ann", "/a"))
	_, _, err := o.result(t, mine(held))
	mustBe(t, err, task.ErrNotReady)
	got, err := o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann", Reason: "changed my mind"})
	if err != nil {
		t.Fatal(err)
	}
	mustState(t, got, task.Cancelled)
	_, err = o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann"})
	mustBe(t, err, task.ErrAlreadyTerminal)
	text, got, err := o.result(t, mine(held))
	if err != nil || text != "" || got.Failure.Ran != task.RanNo {
		t.Errorf("Result = %q, %+v, %v; want no result and a call that did not run", text, got.Failure, err)
	}
}

func TestSetVariables(t *testing.T) {
	o := open(t, nil)
	held := o.hold(t, call("ann", "/a"))
	got, err := o.SetVariables(t.Context(), mine(held), task.Variables{"client.note": []byte(`"x"`)})
	if err != nil || string(got.Variables["client.note"]) != `"x"` {
		t.Errorf("SetVariables = %v, %v", got.Variables, err)
	}
}
