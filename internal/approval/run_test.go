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
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// approved returns an office with one approved task of ann's, who is not there.
func approved(t *testing.T, change func(*approval.Config)) (*office, task.Task) {
	t.Helper()
	o := open(t, change)
	held := o.hold(t, call("ann", "/a"))
	return o, o.approve(t, held.ID)
}

// EC-TASK-004, EC-TASK-006: what the upstream answers is kept as it is, and can
// be had again and again.
func TestAnswers(t *testing.T) {
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
					t.Error("delivery is told once")
				}
			})
		})
	}
}

// A call without an answer tells what is known of it.
func TestSenderFails(t *testing.T) {
	boom := errors.New("boom")
	tests := map[string]struct {
		outcome approval.Outcome
		err     error
		want    task.Failure
	}{
		"not sent": {
			err:  &approval.SendError{Stage: task.StageUpstreamUnreachable, Ran: task.RanNo, Err: boom},
			want: task.Failure{Stage: task.StageUpstreamUnreachable, Ran: task.RanNo, Retriable: true},
		},
		"sent, no answer": {
			err:  &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanYes, Err: boom},
			want: task.Failure{Stage: task.StageUpstreamInvalid, Ran: task.RanYes},
		},
		"unclear":             {err: boom, want: task.Failure{Stage: task.StageUpstreamUnreachable, Ran: task.RanUnknown}},
		"nothing":             {want: task.Failure{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown}},
		"an array":            {outcome: answer(`[]`), want: task.Failure{Stage: task.StageUpstreamInvalid, Ran: task.RanYes}},
		"half an object":      {outcome: answer(`{"content":[]`), want: task.Failure{Stage: task.StageUpstreamInvalid, Ran: task.RanYes}},
		"garbage":             {outcome: answer(`{"content":,}`), want: task.Failure{Stage: task.StageUpstreamInvalid, Ran: task.RanYes}},
		"two objects":         {outcome: answer(`{} {}`), want: task.Failure{Stage: task.StageUpstreamInvalid, Ran: task.RanYes}},
		"empty":               {outcome: answer(``), want: task.Failure{Stage: task.StageUpstreamInvalid, Ran: task.RanYes}},
		"broken on the way":   {outcome: approval.Outcome{Body: brokenReader{boom}}, want: task.Failure{Stage: task.StageUpstreamUnreachable, Ran: task.RanUnknown}},
		"too large to keep":   {outcome: answer(`{"a":"` + strings.Repeat("x", 300<<10) + `"}`), want: task.Failure{Stage: task.StageResultTooLarge, Ran: task.RanYes}},
		"larger than allowed": {outcome: answer(`{"a":"` + strings.Repeat("x", 150<<10) + `"}`), want: task.Failure{Stage: task.StageResultTooLarge, Ran: task.RanYes}},
		"broken after a lot":  {outcome: approval.Outcome{Body: io.MultiReader(strings.NewReader(strings.Repeat(" ", 100<<10)), brokenReader{boom})}, want: task.Failure{Stage: task.StageUpstreamUnreachable, Ran: task.RanUnknown}},
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
					t.Error("the reason repeats what others wrote")
				}
			})
		})
	}
}

// Once started, a call finishes though its client goes; its lease is renewed.
func TestRunOutlivesContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, func(c *approval.Config) { c.Execution, c.Lease = 5*time.Minute, 9*time.Second })
		stop := o.runHousekeeping(t)
		defer stop()
		ctx, leave := context.WithCancel(t.Context())
		if _, err := o.Contact(ctx, mine(held), o.ledger.slow(4*time.Minute)); err != nil {
			t.Fatal(err)
		}
		leave()
		pass(3 * time.Minute)
		mustState(t, o.now(t, held.ID), task.Executing)
		pass(2 * time.Minute)
		mustState(t, o.now(t, held.ID), task.Completed)
	})
}

// A call that takes too long is interrupted, its outcome unknown.
func TestRunTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		o.Contact(t.Context(), mine(held), o.ledger.slow(time.Hour))
		pass(61 * time.Second)
		after := o.now(t, held.ID)
		mustState(t, after, task.Failed)
		if after.Failure.Stage != task.StageUpstreamTimeout || after.Failure.Ran != task.RanUnknown {
			t.Errorf("failure = %+v", after.Failure)
		}
	})
}

// EC-TASK-009 by the design's reading: cancelling a call that runs is immediate,
// interrupts it, and stands.
func TestCancelExecuting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		interrupted, started := false, make(chan struct{})
		o.Contact(t.Context(), mine(held), plain(func(ctx context.Context, _ []byte) (approval.Outcome, error) {
			close(started)
			<-ctx.Done()
			interrupted = true
			return answer(`{}`), nil // it has answered all the same
		}))
		<-started
		synctest.Wait() // whoever watches over the run does so
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
			t.Errorf("the answer of a cancelled call was kept: %+v", after.Result)
		}
		if after.Failure.Ran != task.RanUnknown {
			t.Errorf("ran = %s; want unknown", after.Failure.Ran)
		}
	})
}

// A replica that dies while a call runs leaves its outcome unknown; nobody ever
// runs the call again.
func TestCrashWhileExecuting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		now := time.Now()
		claim := task.Claim{By: "a replica that died", LeaseUntil: now.Add(30 * time.Second)}
		if _, err := task.Advance(t.Context(), o.store, mine(held), claim, now); err != nil {
			t.Fatal(err)
		}
		w := o.wait(t.Context(), mine(held), o.ledger.send)
		pass(29 * time.Second)
		mustState(t, o.now(t, held.ID), task.Executing)
		pass(2 * time.Second)
		<-w.done
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Failed)
		want := &task.Failure{Stage: task.StageExecutorLost, Reason: w.task.Failure.Reason, Ran: task.RanUnknown}
		if diff := cmp.Diff(want, w.task.Failure); diff != "" {
			t.Error(diff)
		}
		got, attached, err := o.Hold(t.Context(), call("ann", "/a"))
		if err != nil || !attached || got.ID != held.ID {
			t.Errorf("Hold = %t, %v; want to be told of the unknown outcome first", attached, err)
		}
		o.Contact(t.Context(), mine(held), o.ledger.send)
		synctest.Wait()
		if runs := o.ledger.entries(); len(runs) != 0 {
			t.Errorf("ran %v", runs)
		}
	})
}

// Approving A never runs B.
func TestApproveRunsOnlyWhatWasApproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		a, b := o.hold(t, call("ann", "/a")), o.hold(t, call("ann", "/b"))
		o.approve(t, a.ID)
		for _, held := range []task.Task{b, a, b} {
			o.Contact(t.Context(), mine(held), o.ledger.send)
		}
		synctest.Wait()
		want := []string{string(message("delete_file", `{"path":"/a"}`))}
		if diff := cmp.Diff(want, o.ledger.entries()); diff != "" {
			t.Error(diff)
		}
		mustState(t, o.now(t, b.ID), task.InputRequired)
	})
}

func TestStart(t *testing.T) {
	t.Run("approval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			books := newLedger()
			o, held := approved(t, func(c *approval.Config) {
				c.Start, c.Send = approval.StartOnApproval, func(task.Task) approval.Sender { return books.send }
			})
			synctest.Wait()
			mustState(t, o.now(t, held.ID), task.Completed)
			if len(books.entries()) != 1 {
				t.Errorf("ran %v", books.entries())
			}
		})
	})
	t.Run("result", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o, held := approved(t, func(c *approval.Config) { c.Start = approval.StartOnResult })
			o.Contact(t.Context(), mine(held), o.ledger.send)
			synctest.Wait()
			mustState(t, o.now(t, held.ID), task.Approved)
			got, err := o.Wait(t.Context(), mine(held), o.ledger.send)
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
		t.Error("New accepted a desk without a store")
	}
}

// EC-TASK-003, EC-TASK-010: an id that is somebody else's leads nowhere.
func TestForeignOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		foreign := task.OwnedBy("mallory").Ref(held.ID)
		_, err := o.Get(t.Context(), foreign)
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = o.Contact(t.Context(), foreign, o.ledger.send)
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = o.Wait(t.Context(), foreign, o.ledger.send)
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = o.Cancel(t.Context(), foreign, approval.Withdrawal{By: "mallory"})
		mustBe(t, err, task.ErrOwnerMismatch)
		_, err = o.SetVariables(t.Context(), foreign, task.Variables{"client.x": []byte("1")})
		mustBe(t, err, task.ErrOwnerMismatch)
		_, _, err = o.result(t, foreign)
		mustBe(t, err, task.ErrOwnerMismatch)
		mustBe(t, o.Delivered(t.Context(), foreign), task.ErrOwnerMismatch)
		_, err = o.Get(t.Context(), task.OwnedBy("ann").Ref(task.NewID(time.Now())))
		mustBe(t, err, task.ErrNotFound)
		synctest.Wait()
		if runs := o.ledger.entries(); len(runs) != 0 {
			t.Errorf("ran %v", runs)
		}
		after := o.now(t, held.ID)
		if diff := cmp.Diff(held, after); diff != "" {
			t.Errorf("somebody else changed the task: %s", diff)
		}
	})
}

// EC-TASK-010, EC-TASK-011, F-005: an owner's tasks in pages.
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

// EC-TASK-005: there is no result before the end. EC-TASK-007, EC-TASK-008.
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
		t.Errorf("Result = %q, %+v, %v; want none, and that it did not run", text, got.Failure, err)
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
