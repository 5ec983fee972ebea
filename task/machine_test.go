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
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)

// The times of a task as newTask makes it.
const (
	ttl      = time.Hour
	deadline = 15 * time.Minute // of its approval
	lease    = 30 * time.Second
)

func draft(id task.ID, owner string) task.Draft {
	const arguments = `{"path":"/tmp/x"}`
	return task.Draft{
		ID: id, Owner: owner, Workflow: "ops", TTL: ttl, PollInterval: 10 * time.Second,
		Verdict: task.Verdict{Reason: "rule 3", Snapshot: "s1"},
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

func apply(t fataler, from task.Task, events ...task.Event) task.Task {
	t.Helper()
	for _, e := range events {
		after, err := from.Apply(e, epoch)
		if err != nil {
			t.Fatal(err)
		}
		from = after
	}
	return from
}

var (
	submit   = task.Submit{By: "gate", Deadline: epoch.Add(deadline)}
	approve  = task.Approve{By: "bob", Reason: "fine"}
	claim    = task.Claim{By: "gate-1", LeaseUntil: epoch.Add(lease)}
	complete = task.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultOK, Inline: []byte(`{}`), Size: 2}}
	fail     = task.Fail{By: "gate-1", Failure: task.Failure{Stage: task.StagePolicyDrift, Reason: "denied by rule 9"}}
)

// inState returns a task that has come to s in the usual way.
func inState(t fataler, s task.State) task.Task {
	t.Helper()
	path := map[task.State][]task.Event{
		task.Working:       nil,
		task.InputRequired: {submit},
		task.Approved:      {submit, approve},
		task.Executing:     {submit, approve, claim},
		task.Completed:     {submit, approve, claim, complete},
		task.Failed:        {submit, approve, claim, fail},
		task.Rejected:      {submit, task.Reject{By: "bob"}},
		task.Cancelled:     {submit, task.Cancel{By: "ann"}},
	}
	if s != task.Expired {
		return apply(t, newTask(t), path[s]...)
	}
	after, err := newTask(t).Apply(task.Expire{By: "gate"}, epoch.Add(ttl+1*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return after
}

// matrix writes what cell says of each state and event.
func matrix(t *testing.T, events []task.Event, cell func(task.Task, task.Event) string) string {
	t.Helper()
	var b strings.Builder
	row := func(head string, text func(task.Event) string) {
		line := fmt.Sprintf("%-15s", head)
		for _, e := range events {
			line += fmt.Sprintf("%-15s", text(e))
		}
		b.WriteString("\n" + strings.TrimRight(line, " "))
	}
	row("", func(e task.Event) string { return string(e.Action()) })
	for _, s := range task.States() {
		row(string(s), func(e task.Event) string { return cell(inState(t, s), e) })
	}
	return b.String() + "\n"
}

var changes = []task.Event{
	submit,
	task.Admit{By: "gate"},
	approve,
	task.Reject{By: "bob"},
	claim, complete, fail,
	task.Lapse{By: "gate"},
	task.Cancel{By: "ann"},
	task.Expire{By: "gate"},
}

var annotations = []task.Event{
	task.Contact{},
	task.SetVariables{Side: task.ClientSide, Values: task.Variables{"client.a": json.RawMessage("1")}},
	task.ExtendTTL{TTL: 2 * ttl, Max: 2 * ttl},
	task.RenewLease{By: "gate-1", Until: epoch.Add(ttl)},
	task.Progress{By: "gate-1", UpstreamTask: "u"},
	task.Describe{By: "gate-1", Message: "half"},
	task.Deliver{},
}

// The whole state machine: what each event makes of each state. It proves
// TEST-02, TYPE-03 and F-001.1 of GOV-001, as design section 5 has them.
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
	got := matrix(t, changes, func(before task.Task, e task.Event) string {
		at := epoch
		switch e.(type) {
		case task.Lapse:
			at = epoch.Add(lease + time.Second)
		case task.Expire:
			at = epoch.Add(ttl + time.Second)
		default:
		}
		after, err := before.Apply(e, at)
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
	got := matrix(t, annotations, func(before task.Task, e task.Event) string {
		after, err := before.Apply(e, epoch)
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

func TestLateEvents(t *testing.T) {
	got := matrix(t, changes, func(before task.Task, e task.Event) string {
		end := epoch.Add(ttl)
		if before.State == task.InputRequired {
			end = epoch.Add(deadline)
		}
		if _, err := before.Apply(task.Expire{By: "gate"}, end); err == nil {
			t.Errorf("%s: expired while there was time", before.State)
		}
		after, err := before.Apply(e, end.Add(time.Microsecond))
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
		t.Errorf("what may be late changed (-want +got):\n%s", diff)
	}
	for _, e := range annotations[:5] {
		if _, err := inState(t, task.Executing).Apply(e, epoch.Add(ttl+time.Second)); !errors.Is(err, task.ErrExpired) {
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
		HeldCall:  task.HeldCall{Workflow: "ops", Verdict: task.Verdict{Reason: "rule 3", Snapshot: "s1"}, ContactAt: epoch},
		CreatedAt: epoch, UpdatedAt: epoch, ExpiresAt: epoch.Add(ttl), PollInterval: 10 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("task (-want +got):\n%s", diff)
	}
	if got.TTL() != ttl || got.Remaining(epoch.Add(time.Minute)) != ttl-time.Minute || got.Remaining(epoch.Add(2*ttl)) != 0 {
		t.Errorf("time to live %v, remaining %v", got.TTL(), got.Remaining(epoch.Add(time.Minute)))
	}
}

func TestNewRefuses(t *testing.T) {
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

// TestTwoFutures checks that what happens to a task in one place does not show
// in what happened to the same task in another.
func TestTwoFutures(t *testing.T) {
	before := inState(t, task.Executing) // its trail has room for more
	var after []task.Task
	for _, e := range []task.Event{complete, task.Cancel{By: "ann"}, fail} {
		after = append(after, apply(t, before, e))
	}
	for i, want := range []task.State{task.Completed, task.Cancelled, task.Failed} {
		if got := after[i].Transitions[3].To; got != want {
			t.Errorf("the trail leads to %s; want %s", got, want)
		}
	}
}

// TestLapse checks the instant from which an executor counts as dead.
func TestLapse(t *testing.T) {
	running := inState(t, task.Executing)
	_, err := running.Apply(task.Lapse{By: "gate"}, epoch.Add(lease))
	mustBe(t, err, task.ErrNotReady)
	if e, ok := errors.AsType[*task.Error](err); !ok || e.RetryAfter != 0 {
		t.Errorf("err = %#v; want one microsecond too early", err)
	}
	if _, err := running.Apply(task.Lapse{By: "gate"}, epoch.Add(lease+time.Microsecond)); err != nil {
		t.Error(err)
	}
}

// TestTimeStandsStill checks that a clock that lags behind does no harm.
func TestTimeStandsStill(t *testing.T) {
	before := inState(t, task.InputRequired)
	after, err := before.Apply(approve, epoch.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if last := after.Transitions[1]; !last.At.Equal(epoch) || !after.UpdatedAt.Equal(epoch) {
		t.Errorf("approved at %v, before it was submitted at %v", last.At, epoch)
	}
}
