package task_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)

// The times of tasks from newTask.
const (
	ttl      = time.Hour
	deadline = 15 * time.Minute // of the approval
	lease    = 30 * time.Second
)

func draft(id task.ID, owner string) task.Draft {
	const arguments = `{"path":"/tmp/x"}`
	return task.Draft{
		ID: id, Owner: owner, Workflow: "ops", TTL: ttl, PollInterval: 10 * time.Second,
		Verdict: gatetask.Verdict{Reason: "rule 3", Snapshot: "s1"},
		Call: task.Call{
			Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: arguments,
			Message: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_file","arguments":` + arguments + `}}`,
		},
	}
}

// A fataler is the part of testing.T and rapid.T that helpers need.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func newTask(t fataler) task.Task {
	t.Helper()
	made, err := task.New(draft("tg_1", "ann"), epoch)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func apply(t fataler, from task.Task, events ...lifecycle.Event) task.Task {
	t.Helper()
	for _, e := range events {
		after, err := lifecycle.Apply(from, e, epoch)
		if err != nil {
			t.Fatal(err)
		}
		from = after
	}
	return from
}

var (
	submit   = lifecycle.Submit{By: "gate", Deadline: epoch.Add(deadline)}
	approve  = lifecycle.Approve{By: "bob", Reason: "fine"}
	claim    = lifecycle.Claim{By: "gate-1", LeaseUntil: epoch.Add(lease)}
	complete = lifecycle.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultOK, Inline: []byte(`{}`), Size: 2}}
	fail     = lifecycle.Fail{By: "gate-1", Failure: task.Failure{Stage: lifecycle.StagePolicyDrift, Reason: "denied by rule 9"}}
)

// inState returns a task that has reached s in the usual way.
func inState(t fataler, s task.State) task.Task {
	t.Helper()
	path := map[task.State][]lifecycle.Event{
		task.Working:       nil,
		task.InputRequired: {submit},
		task.Approved:      {submit, approve},
		task.Executing:     {submit, approve, claim},
		task.Completed:     {submit, approve, claim, complete},
		task.Failed:        {submit, approve, claim, fail},
		task.Rejected:      {submit, lifecycle.Reject{By: "bob"}},
		task.Cancelled:     {submit, lifecycle.Cancel{By: "ann"}},
	}
	if s != task.Expired {
		return apply(t, newTask(t), path[s]...)
	}
	after, err := lifecycle.Apply(newTask(t), lifecycle.Expire{By: "gate"}, epoch.Add(ttl+1*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// matrix writes the text of cell for each state and event.
func matrix(t *testing.T, events []lifecycle.Event, cell func(task.Task, lifecycle.Event) string) string {
	t.Helper()
	var b strings.Builder
	row := func(head string, text func(lifecycle.Event) string) {
		line := fmt.Sprintf("%-15s", head)
		for _, e := range events {
			line += fmt.Sprintf("%-15s", text(e))
		}
		b.WriteString("\n" + strings.TrimRight(line, " "))
	}
	row("", func(e lifecycle.Event) string { return string(e.Action()) })
	for _, s := range task.States() {
		row(string(s), func(e lifecycle.Event) string { return cell(inState(t, s), e) })
	}
	return b.String() + "\n"
}

var changes = []lifecycle.Event{
	submit,
	lifecycle.Admit{By: "gate"},
	approve,
	lifecycle.Reject{By: "bob"},
	claim, complete, fail,
	lifecycle.Lapse{By: "gate"},
	lifecycle.Cancel{By: "ann"},
	lifecycle.Expire{By: "gate"},
}

var annotations = []lifecycle.Event{
	lifecycle.Contact{},
	lifecycle.SetVariables{Side: task.ClientSide, Values: task.Variables{"client.a": json.RawMessage("1")}},
	lifecycle.ExtendTTL{TTL: 2 * ttl, Max: 2 * ttl},
	lifecycle.RenewLease{By: "gate-1", Until: epoch.Add(ttl)},
	lifecycle.Progress{By: "gate-1", UpstreamTask: "u"},
	lifecycle.Describe{By: "gate-1", Message: "half"},
	lifecycle.Deliver{},
}

// The whole state machine: the next state for each state and event. It covers TEST-02, TYPE-03
// and F-001.1 of GOV-001, as section 5 of the design defines them.
const transitions = `
               submit         admit          approve        reject         claim          complete       fail           lapse          cancel         expire
working        input_required approved       -              -              -              -              failed         -              cancelled      expired
input_required -              -              approved       rejected       -              -              failed         -              cancelled      expired
approved       -              -              -              -              executing      -              failed         -              cancelled      expired
executing      -              -              -              -              -              completed      failed         failed         cancelled      expired
completed      -              -              -              -              -              -              -              -              -              -
failed         -              -              -              -              -              -              -              -              -              -
rejected       -              -              -              -              -              -              -              -              -              -
cancelled      -              -              -              -              -              -              -              -              -              -
expired        -              -              -              -              -              -              -              -              -              -
`

func TestTransitions(t *testing.T) {
	got := matrix(t, changes, func(before task.Task, e lifecycle.Event) string {
		at := epoch
		switch e.(type) {
		case lifecycle.Lapse:
			at = epoch.Add(lease + time.Second)
		case lifecycle.Expire:
			at = epoch.Add(ttl + time.Second)
		default:
		}
		after, err := lifecycle.Apply(before, e, at)
		if err == nil {
			return string(after.State)
		}
		want := task.ErrInvalidTransition // F-001.2
		if before.State.Terminal() {
			want = task.ErrAlreadyTerminal // F-001.4
		}
		if !errors.Is(err, want) {
			t.Errorf("%s while %s: err = %v; want %v", e.Action(), before.State, err, want)
		}
		return "-"
	})
	if diff := cmp.Diff(transitions, got); diff != "" {
		t.Errorf("the state machine changed (-want +got):\n%s", diff)
	}
}

// Events that do not change the state of a task.
const notes = `
               contact        set variables  extend ttl     renew lease    progress       describe       deliver
working        yes            yes            yes            -              -              -              -
input_required yes            yes            yes            -              -              -              -
approved       yes            yes            yes            -              -              -              -
executing      yes            yes            yes            yes            yes            yes            -
completed      -              -              -              -              -              -              yes
failed         -              -              -              -              -              -              yes
rejected       -              -              -              -              -              -              yes
cancelled      -              -              -              -              -              -              yes
expired        -              -              -              -              -              -              yes
`

func TestAnnotations(t *testing.T) {
	got := matrix(t, annotations, func(before task.Task, e lifecycle.Event) string {
		after, err := lifecycle.Apply(before, e, epoch)
		if err != nil {
			return "-"
		}
		if after.State != before.State || len(after.Transitions) != len(before.Transitions) {
			t.Errorf("%s while %s counts as a transition", e.Action(), before.State)
		}
		if after.Version != before.Version+1 {
			t.Errorf("%s while %s: version %d after %d", e.Action(), before.State, after.Version, before.Version)
		}
		return "yes"
	})
	if diff := cmp.Diff(notes, got); diff != "" {
		t.Errorf("the annotations changed (-want +got):\n%s", diff)
	}
}

// Only two events are still accepted after the deadline: expiry, and the end of
// a run that began in time. All other events that would be legal come too late.
const lateness = `
               submit         admit          approve        reject         claim          complete       fail           lapse          cancel         expire
working        late           late           -              -              -              -              late           -              late           expired
input_required -              -              late           late           -              -              late           -              late           expired
approved       -              -              -              -              late           -              late           -              late           expired
executing      -              -              -              -              -              completed      failed         failed         late           expired
completed      -              -              -              -              -              -              -              -              -              -
failed         -              -              -              -              -              -              -              -              -              -
rejected       -              -              -              -              -              -              -              -              -              -
cancelled      -              -              -              -              -              -              -              -              -              -
expired        -              -              -              -              -              -              -              -              -              -
`

func TestOnlySomeEventsMayBeLate(t *testing.T) {
	got := matrix(t, changes, func(before task.Task, e lifecycle.Event) string {
		end := epoch.Add(ttl)
		if before.State == task.InputRequired {
			end = epoch.Add(deadline)
		}
		if _, err := lifecycle.Apply(before, lifecycle.Expire{By: "gate"}, end); err == nil {
			t.Errorf("%s: expired before the deadline", before.State)
		}
		after, err := lifecycle.Apply(before, e, end.Add(time.Microsecond))
		switch {
		case err == nil:
			return string(after.State)
		case errors.Is(err, task.ErrExpired):
			return "late"
		default:
			return "-"
		}
	})
	if diff := cmp.Diff(lateness, got); diff != "" {
		t.Errorf("the events that may be late changed (-want +got):\n%s", diff)
	}
	for _, e := range annotations[:5] {
		if _, err := lifecycle.Apply(inState(t, task.Executing), e, epoch.Add(ttl+time.Second)); !errors.Is(err, task.ErrExpired) {
			t.Errorf("late %s: err = %v; want %v", e.Action(), err, task.ErrExpired)
		}
	}
}

func TestNew(t *testing.T) {
	local := time.FixedZone("somewhere", 3600)
	now := time.Date(2026, 1, 2, 4, 4, 5, 678_901_234, local)
	got, err := task.New(draft("tg_1", "ann"), now)
	if err != nil {
		t.Fatal(err)
	}
	want := task.Task{
		ID: "tg_1", Version: 1, State: task.Working, Owner: "ann",
		Call: draft("", "").Call, Digest: got.Digest,
		HeldCall:  gatetask.HeldCall{Workflow: "ops", Verdict: gatetask.Verdict{Reason: "rule 3", Snapshot: "s1"}, ContactAt: epoch},
		CreatedAt: epoch, UpdatedAt: epoch, ExpiresAt: epoch.Add(ttl), PollInterval: 10 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("task (-want +got):\n%s", diff)
	}
	if got.TTL() != ttl || got.Remaining(epoch.Add(time.Minute)) != ttl-time.Minute || got.Remaining(epoch.Add(2*ttl)) != 0 {
		t.Errorf("time to live %v, remaining %v", got.TTL(), got.Remaining(epoch.Add(time.Minute)))
	}
}

func TestNewRefusesInvalidDrafts(t *testing.T) {
	for name, spoil := range map[string]func(*task.Draft){
		"no id":                   func(d *task.Draft) { d.ID = "" },
		"no owner":                func(d *task.Draft) { d.Owner = "" },
		"no time":                 func(d *task.Draft) { d.TTL = 0 },
		"negative time":           func(d *task.Draft) { d.TTL = -time.Hour },
		"negative poll interval":  func(d *task.Draft) { d.PollInterval = -1 },
		"invalid UTF-8":           func(d *task.Draft) { d.Call.Message = "\xff" },
		"invalid UTF-8 in a name": func(d *task.Draft) { d.Owner = "\xc3" },
		"arguments are not JSON":  func(d *task.Draft) { d.Call.Arguments = "{" },
		"duplicate arguments":     func(d *task.Draft) { d.Call.Arguments = `{"a":1,"\u0061":2}` },
	} {
		t.Run(name, func(t *testing.T) {
			d := draft("tg_1", "ann")
			spoil(&d)
			if _, err := task.New(d, epoch); !errors.Is(err, task.ErrInvalid) {
				t.Errorf("err = %v; want %v", err, task.ErrInvalid)
			}
		})
	}
}

// TestApplyDoesNotChangeItsArgument applies two events to one task, and checks that the results
// do not share memory.
func TestApplyDoesNotChangeItsArgument(t *testing.T) {
	before := inState(t, task.Executing) // its trail has spare capacity
	var after []task.Task
	for _, e := range []lifecycle.Event{complete, lifecycle.Cancel{By: "ann"}, fail} {
		after = append(after, apply(t, before, e))
	}
	for i, want := range []task.State{task.Completed, task.Cancelled, task.Failed} {
		if got := after[i].Transitions[3].To; got != want {
			t.Errorf("the trail ends in %s; want %s", got, want)
		}
	}
}

// TestLapseWaitsForLease checks the time from which an executor counts as dead.
func TestLapseWaitsForLease(t *testing.T) {
	running := inState(t, task.Executing)
	_, err := lifecycle.Apply(running, lifecycle.Lapse{By: "gate"}, epoch.Add(lease))
	mustBe(t, err, task.ErrNotReady)
	if e, ok := errors.AsType[*task.Error](err); !ok || e.RetryAfter != 0 {
		t.Errorf("err = %#v; want a retry after one microsecond", err)
	}
	if _, err := lifecycle.Apply(running, lifecycle.Lapse{By: "gate"}, epoch.Add(lease+time.Microsecond)); err != nil {
		t.Error(err)
	}
}

// TestApplyWithClockSetBack checks that the times of a task never decrease when a clock is
// behind.
func TestApplyWithClockSetBack(t *testing.T) {
	before := inState(t, task.InputRequired)
	after, err := lifecycle.Apply(before, approve, epoch.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if last := after.Transitions[1]; !last.At.Equal(epoch) || !after.UpdatedAt.Equal(epoch) {
		t.Errorf("approved at %v, before it was submitted at %v", last.At, epoch)
	}
}

// A task that ends without a decision and without a run keeps the digest of its call, and loses
// its message. All other tasks keep both.
func TestUndecidedCallLosesItsMessage(t *testing.T) {
	asked := lifecycle.Submit{By: "gate", Quorum: 2, Deadline: newTask(t).ExpiresAt}
	ran := []lifecycle.Event{lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate", LeaseUntil: newTask(t).ExpiresAt}}
	for name, tt := range map[string]struct {
		events []lifecycle.Event
		kept   bool
	}{
		"withdrawn at once":     {[]lifecycle.Event{lifecycle.Cancel{By: "ann"}}, false},
		"withdrawn":             {[]lifecycle.Event{asked, lifecycle.Cancel{By: "ann"}}, false},
		"withdrawn, not run":    {[]lifecycle.Event{lifecycle.Admit{By: "gate"}, lifecycle.Cancel{By: "ann"}}, false},
		"shut down":             {[]lifecycle.Event{asked, lifecycle.Fail{By: "gate", Failure: task.Failure{Stage: lifecycle.StageShutdown}}}, false},
		"pending":               {[]lifecycle.Event{asked}, true},
		"approved by one":       {[]lifecycle.Event{asked, lifecycle.Approve{By: "bob"}, lifecycle.Cancel{By: "ann"}}, true},
		"rejected":              {[]lifecycle.Event{asked, lifecycle.Reject{By: "bob"}}, true},
		"withdrawn as it runs":  {append(ran[:2:2], lifecycle.Cancel{By: "ann"}), true},
		"completed":             {append(ran[:2:2], lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK}}), true},
		"failed as it runs":     {append(ran[:2:2], lifecycle.Fail{By: "gate", Failure: task.Failure{Stage: lifecycle.StageUpstreamError}}), true},
		"approved, not yet run": {ran[:1], true},
	} {
		before := newTask(t)
		after := apply(t, before, tt.events...)
		if kept := after.Call == before.Call; kept != tt.kept || after.Abridged() == tt.kept {
			t.Errorf("%s: message kept: %v; want %v", name, kept, tt.kept)
		}
		if after.Digest != before.Digest || after.Call.Name != before.Call.Name {
			t.Errorf("%s: the digest or the name changed", name)
		}
	}
	late := newTask(t)
	expired, err := lifecycle.Apply(late, lifecycle.Expire{By: "gate"}, late.ExpiresAt.Add(time.Second))
	if err != nil || !expired.Abridged() || expired.Call.Message != "" {
		t.Errorf("expired: %v; want no message", err)
	}
}

// A rejection with a correction is an approval too: it follows the rules about requesters and about
// the quorum.
func TestCorrectionIsAnApproval(t *testing.T) {
	correct := lifecycle.Reject{
		By: "bob", Correction: &gatetask.Correction{Grant: "gr_1", Arguments: []byte(`{"a":1}`)}, NewGrant: &gatetask.GrantTerms{Until: epoch.Add(ttl), Uses: 1},
	}
	own := submit
	own.SelfApproval = true
	two := submit
	two.Quorum = 2
	by := func(name string, own bool) lifecycle.Reject {
		e := correct
		e.By, e.As.Own = name, own
		return e
	}
	without := correct
	without.NewGrant = nil
	for name, tt := range map[string]struct {
		asked lifecycle.Submit
		e     lifecycle.Reject
		want  error
	}{
		"by an approver":                 {submit, correct, nil},
		"by the owner":                   {submit, by("ann", false), lifecycle.ErrSelfApproval},
		"by the owner in another name":   {submit, by("zoe", true), lifecycle.ErrSelfApproval},
		"by the owner who may approve":   {own, by("ann", true), nil},
		"where two approvals are needed": {two, correct, task.ErrInvalid},
		"without a grant":                {submit, without, task.ErrInvalid},
	} {
		held := apply(t, newTask(t), tt.asked)
		after, err := lifecycle.Apply(held, tt.e, epoch)
		if !errors.Is(err, tt.want) || tt.want == nil && (err != nil || after.State != task.Rejected || after.Approval.Rejection.Correction.Grant != "gr_1") {
			t.Errorf("%s: %s, %v", name, after.State, err)
		}
		if tt.want == nil && (after.Outline().Approval.Rejection.Correction.Arguments != nil || after.Approval.Rejection.Correction.Arguments == nil) {
			t.Errorf("%s: an outline has the arguments, or removes them from its task", name)
		}
	}
}
