package approval_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// journal returns the journal entries of a task, one line per step.
func (o *fixture) journal(t testing.TB, id task.ID) []string {
	t.Helper()
	history, err := o.views.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range history {
		actor := e.Actor
		if strings.HasPrefix(actor, "gate ") {
			actor = "gate"
		}
		line := fmt.Sprintf("%s by %s", e.Step, actor)
		if e.To != "" {
			line += fmt.Sprintf(", %s>%s", e.From, e.To)
		}
		for _, more := range []string{e.Outcome, e.Reason} {
			if more != "" {
				line += ", " + more
			}
		}
		if e.Ran != "" {
			line += ", ran " + string(e.Ran)
		}
		lines = append(lines, line)
	}
	return lines
}

// TestJournalHasEachStep ends calls in every possible way, and checks their journal entries.
func TestJournalHasEachStep(t *testing.T) {
	const heldBy, asked = "held by ann, >working", "asked by gate, working>input_required"
	const approved, rechecked = "decided by alice, input_required>approved, approve, fine", "rechecked by gate, allowed"
	const started = "started by gate, approved>executing"
	tests := map[string]struct {
		live func(t *testing.T, o *fixture, id task.Ref)
		want []string
	}{
		"approved, run and delivered": {func(t *testing.T, o *fixture, ref task.Ref) {
			o.approve(t, ref.ID)
			w := o.wait(t.Context(), ref, o.upstream.send)
			<-w.done
			if _, _, err := o.result(t, ref); err != nil {
				t.Error(err)
			}
			_, _, _ = o.result(t, ref) // a second delivery is not a step
		}, []string{heldBy, asked, approved, rechecked, started, "finished by gate, executing>completed, ok, ran yes", "delivered by ann, completed"}},
		"rejected": {func(t *testing.T, o *fixture, ref task.Ref) {
			if _, err := o.decide(t.Context(), ref.ID, bob, approval.Reject, "not today"); err != nil {
				t.Fatal(err)
			}
		}, []string{heldBy, asked, "decided by bob, input_required>rejected, reject, not today, ran no"}},
		"cancelled": {func(t *testing.T, o *fixture, ref task.Ref) {
			if _, err := o.Cancel(t.Context(), ref, approval.Withdrawal{By: "ann", Reason: "changed my mind"}); err != nil {
				t.Fatal(err)
			}
		}, []string{heldBy, asked, "cancelled by ann, input_required>cancelled, cancelled, changed my mind, ran no"}},
		"expired": {func(_ *testing.T, _ *fixture, _ task.Ref) {
			pass(time.Hour)
		}, []string{heldBy, asked, "expired by gate, input_required>expired, approval_timeout, its time is over, ran no"}},
		"approved but not run": {func(t *testing.T, o *fixture, ref task.Ref) {
			o.approve(t, ref.ID)
			pass(24 * time.Hour)
		}, []string{heldBy, asked, approved, "expired by gate, approved>expired, uncollected, its time is over, ran no"}},
		"denied before the run": {func(t *testing.T, o *fixture, ref task.Ref) {
			o.approve(t, ref.ID)
			o.rule(policy.Verdict{Action: policy.Deny, Reason: "rules[0]", Snapshot: "s2"})
			<-o.wait(t.Context(), ref, o.upstream.send).done
		}, []string{
			heldBy, asked, approved, "rechecked by gate, policy_drift, the policy now denies it",
			"not_run by gate, approved>failed, policy_drift, the policy now denies it, ran no",
		}},
		"failed upstream": {func(t *testing.T, o *fixture, ref task.Ref) {
			o.approve(t, ref.ID)
			<-o.wait(t.Context(), ref, plain(func(context.Context, []byte) (approval.Outcome, error) {
				return approval.Outcome{}, &approval.SendError{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanNo, Err: errors.New("secret")}
			})).done
		}, []string{heldBy, asked, approved, rechecked, started, "finished by gate, executing>failed, upstream_unreachable, the call could not be finished, ran no"}},
		"executor lost": {func(t *testing.T, o *fixture, ref task.Ref) {
			o.approve(t, ref.ID)
			now := time.Now()
			claim := lifecycle.Claim{By: "another", LeaseUntil: now.Add(time.Second)}
			if _, err := lifecycle.Advance(t.Context(), o.store, ref, claim, now); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
		}, []string{heldBy, asked, approved, "failed by gate, executing>failed, executor_lost, the executor's lease lapsed, ran unknown"}},
		"shut down": {func(t *testing.T, o *fixture, _ task.Ref) {
			if err := o.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}, []string{heldBy, asked, "failed by gate, input_required>failed, shutdown, the gate was shut down, ran no"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				stop := o.runHousekeeping(t)
				defer stop()
				held := o.hold(t, call("ann", "/a"))
				tt.live(t, o, mine(held))
				synctest.Wait()
				if diff := cmp.Diff(tt.want, o.journal(t, held.ID)); diff != "" {
					t.Errorf("journal (-want +got):\n%s", diff)
				}
				mustVerify(t, o)
			})
		})
	}
}

func mustVerify(t testing.TB, o *fixture) {
	t.Helper()
	r, err := audit.Verify(t.Context(), o.store, auditlog.Link{})
	if err != nil || !r.OK() || r.Entries == 0 {
		t.Errorf("verify: %+v, %v", r, err)
	}
}

// The journal has each decision of a quorum.
func TestJournalHasQuorumDecisions(t *testing.T) {
	o := open(t, nil)
	c := call("ann", "/a")
	c.Verdict.Workflow = "two"
	held := o.hold(t, c)
	o.approve(t, held.ID)
	if _, err := o.decide(t.Context(), held.ID, carol, approval.Approve, ""); err != nil {
		t.Fatal(err)
	}
	want := []string{"decided by alice, approve, fine", "decided by carol, input_required>approved, approve"}
	if diff := cmp.Diff(want, o.journal(t, held.ID)[2:]); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
}

// The journal has calls that need no approval.
func TestJournalHasCallsWithoutApproval(t *testing.T) {
	o := open(t, nil)
	c := call("ann", "/a")
	c.Verdict = policy.Verdict{Action: policy.Forward}
	held := o.hold(t, c)
	want := []string{"held by ann, >working", "decided by gate, working>approved, no_approval_needed, needs no approval"}
	if diff := cmp.Diff(want, o.journal(t, held.ID)); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
}

// TestJournalEntryFields checks the fields of every journal entry, and what no entry may contain.
func TestJournalEntryFields(t *testing.T) {
	o := open(t, nil)
	c := call("files session 5e55i0n-53cr37", `/a-53cr37`)
	c.Principal = policy.Principal{Anonymous: true}
	c.Tool.Digest = "d1"
	held := o.hold(t, c)
	o.approve(t, held.ID)
	o.rule(policy.Verdict{Action: policy.Approve, Workflow: "ops", Reason: "rules[7]", Snapshot: "s2"})
	w := o.wait(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) { return answer(`{"content":["53cr37"]}`), nil }))
	<-w.done
	history, err := o.views.History(t.Context(), held.ID)
	if err != nil || len(history) != 6 {
		t.Fatalf("%d steps, %v", len(history), err)
	}
	requester := history[0].Requester
	if !strings.HasPrefix(requester, "anonymous:") || len(requester) != len("anonymous:")+16 {
		t.Errorf("requester = %q", requester)
	}
	for i, e := range history {
		snapshot, verdict := "s1", "rules[1] delete_*"
		if step := approval.Step(e.Step); step == approval.Rechecked || step == approval.Started {
			snapshot, verdict = "s2", "rules[7]"
		}
		want := task.Note{
			At: e.At, Task: held.ID, Step: e.Step, Actor: e.Actor, From: e.From, To: e.To, Outcome: e.Outcome, Reason: e.Reason, Ran: e.Ran, Approver: e.Approver,
			Requester: requester, Upstream: "files", Method: "tools/call", Tool: "delete_file", ArgumentDigest: held.Digest,
			ToolDigest: "d1", PolicySnapshot: snapshot, Verdict: verdict, Workflow: "ops",
		}
		if diff := cmp.Diff(want, e.Note); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
		if e.At.IsZero() || (e.Approver == "alice") != (e.Step == "decided") {
			t.Errorf("step %d: at %v, approver %q", i, e.At, e.Approver)
		}
		line, err := audit.AppendLine(nil, e)
		if err != nil || strings.Contains(string(line), "53cr37") {
			t.Errorf("%v in %s", err, line)
		}
	}
	_, err = o.views.History(t.Context(), "tg_none")
	mustBe(t, err, task.ErrNotFound)
	_, err = o.views.History(t.Context(), "")
	mustBe(t, err, task.ErrNotFound)
}

// An unrecordable store fails to write journal entries.
type unrecordable struct {
	gatestore.Store

	mu  sync.Mutex
	err error
}

func (u *unrecordable) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
}

func (u *unrecordable) refuse(notes []task.Note) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(notes) > 0 {
		return u.err
	}
	return nil
}

func (u *unrecordable) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	if err := u.refuse(notes); err != nil {
		return err
	}
	return u.Store.Create(ctx, t, l, notes...)
}

func (u *unrecordable) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if err := u.refuse(notes); err != nil {
		return err
	}
	return u.Store.Swap(ctx, t, notes...)
}

// If a step cannot be recorded, no call is held, decided or run. The failures are counted.
func TestNothingHappensUnrecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk full")
		store := &unrecordable{Store: open(t, nil).store}
		recorded, failures := 0, 0
		o := branch(t, store, func(c *approval.Config) {
			c.Recorded = func(notes []task.Note, err error) {
				if recorded += len(notes); err != nil {
					recorded -= len(notes)
					failures++
				}
			}
		})
		held := o.hold(t, call("ann", "/a"))
		store.fail(broken)
		_, _, err := o.Hold(t.Context(), call("ann", "/b"))
		mustBe(t, err, broken)
		_, err = o.decide(t.Context(), held.ID, alice, approval.Approve, "")
		mustBe(t, err, broken)
		mustState(t, o.now(t, held.ID), task.InputRequired)
		store.fail(nil)
		o.approve(t, held.ID)
		store.fail(broken)
		_, err = o.Wait(t.Context(), mine(held), o.upstream.send)
		mustBe(t, err, broken)
		mustState(t, o.now(t, held.ID), task.Approved)
		if runs := o.upstream.entries(); len(runs) > 0 {
			t.Errorf("it ran: %v", runs)
		}
		if recorded != 3 || failures != 5 { // a creation and a claim are tried twice
			t.Errorf("%d recorded and %d failed; want 3 and 5", recorded, failures)
		}
	})
}

// The journal is trimmed after its retention, and its head is logged.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged lines
		o := open(t, func(c *approval.Config) {
			c.Retention = 48 * time.Hour
			c.Log = slog.New(slog.NewTextHandler(&logged, nil))
		})
		stop := o.runHousekeeping(t)
		defer stop()
		first := o.hold(t, call("ann", "/a"))
		pass(40 * time.Hour)
		second := o.hold(t, call("ann", "/b"))
		ends, err := o.views.AuditEnds(t.Context())
		if err != nil || ends.Anchor.Seq != 0 || ends.Head.Seq != 5 {
			t.Fatalf("ends = %v, %v", ends, err)
		}
		pass(2 * time.Hour)
		ends, err = o.views.AuditEnds(t.Context())
		if err != nil || !strings.Contains(logged.String(), `msg="audit head" head=`+ends.Head.String()) {
			t.Errorf("%v; head %v not in the log:\n%s", err, ends.Head, logged.String())
		}
		pass(8 * time.Hour)
		_, err = o.views.History(t.Context(), first.ID)
		mustBe(t, err, task.ErrNotFound)
		if got := len(o.journal(t, second.ID)); got != 3 {
			t.Errorf("%d steps are left", got)
		}
		mustVerify(t, o)
	})
}

// A lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
