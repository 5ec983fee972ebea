package task_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
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
	task.SetVariables{Side: task.ClientSide, Values: task.Variables{"client.a": jsontext.Value("1")}},
	task.ExtendTTL{TTL: 2 * ttl, Max: 2 * ttl},
	task.RenewLease{By: "gate-1", Until: epoch.Add(ttl)},
	task.NoteUpstream{By: "gate-1", UpstreamTask: "u"},
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

// What can happen to a task without changing its state.
const notes = `
               contact        set variables  extend ttl     renew lease    note upstream  deliver
working        yes            yes            yes            -              -              -
input_required yes            yes            yes            -              -              -
approved       yes            yes            yes            -              -              -
executing      yes            yes            yes            yes            yes            -
completed      -              -              -              -              -              yes
failed         -              -              -              -              -              yes
rejected       -              -              -              -              -              yes
cancelled      -              -              -              -              -              yes
expired        -              -              -              -              -              yes
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

// What still happens after the deadline: expiry, and the end of a run that
// began in time. Everything else that would be legal is late.
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
		Call: draft("", "").Call, Digest: got.Digest, Workflow: "ops", Verdict: task.Verdict{Reason: "rule 3", Snapshot: "s1"},
		CreatedAt: epoch, UpdatedAt: epoch, ContactAt: epoch, ExpiresAt: epoch.Add(ttl), PollInterval: 10 * time.Second,
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

// TestRefusals covers what events check beyond state and time.
func TestRefusals(t *testing.T) {
	small := task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}
	tests := []struct {
		name  string
		state task.State
		event task.Event
		want  error
	}{
		{"nobody submits", task.Working, task.Submit{Deadline: epoch.Add(time.Hour)}, task.ErrInvalid},
		{"negative quorum", task.Working, task.Submit{By: "gate", Quorum: -1, Deadline: epoch.Add(time.Hour)}, task.ErrInvalid},
		{"no time to approve", task.Working, task.Submit{By: "gate", Deadline: epoch}, task.ErrInvalid},
		{"nobody approves", task.InputRequired, task.Approve{}, task.ErrInvalid},
		{"a reason that is no text", task.InputRequired, task.Approve{By: "bob", Reason: "\xff"}, task.ErrInvalid},
		{"the owner approves", task.InputRequired, task.Approve{By: "ann"}, task.ErrSelfApproval},
		{"nobody rejects", task.InputRequired, task.Reject{}, task.ErrInvalid},
		{"a lease of no length", task.Approved, task.Claim{By: "gate-1", LeaseUntil: epoch}, task.ErrInvalid},
		{"nobody claims", task.Approved, task.Claim{LeaseUntil: epoch.Add(time.Hour)}, task.ErrInvalid},
		{"another completes", task.Executing, task.Complete{By: "gate-2", Result: small}, task.ErrNotExecutor},
		{"an error completes", task.Executing, task.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultRPCError}}, task.ErrInvalid},
		{"a result without a kind", task.Executing, task.Complete{By: "gate-1"}, task.ErrInvalid},
		{"a result of the wrong size", task.Executing, task.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultOK, Size: 1}}, task.ErrInvalid},
		{
			"a result too large for its task", task.Executing,
			task.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultOK, Inline: make([]byte, task.ChunkSize+1), Size: task.ChunkSize + 1}},
			task.ErrInvalid,
		},
		{"a failure without a stage", task.Working, task.Fail{By: "gate"}, task.ErrInvalid},
		{"a failure with a result", task.Executing, task.Fail{By: "gate", Failure: task.Failure{Stage: task.StageUpstreamError}, Result: &small}, task.ErrInvalid},
		{"ran before it could", task.Approved, task.Fail{By: "gate", Failure: task.Failure{Stage: task.StageInspection, Ran: task.RanYes}}, task.ErrInvalid},
		{"maybe ran before it could", task.Approved, task.Fail{By: "gate", Failure: task.Failure{Stage: task.StageInspection, Ran: task.RanUnknown}}, task.ErrInvalid},
		{"the lease holds", task.Executing, task.Lapse{By: "gate"}, task.ErrNotReady},
		{"there is time left", task.Approved, task.Expire{By: "gate"}, task.ErrNotReady},
		{"negative poll interval", task.Working, task.Contact{PollInterval: -1}, task.ErrInvalid},
		{"a shorter life", task.Working, task.ExtendTTL{TTL: ttl - 1, Max: 2 * ttl}, task.ErrInvalidTTL},
		{"the same life", task.Working, task.ExtendTTL{TTL: 2 * ttl, Max: ttl}, task.ErrInvalidTTL},
		{"another renews", task.Executing, task.RenewLease{By: "gate-2", Until: epoch.Add(ttl)}, task.ErrNotExecutor},
		{"a shorter lease", task.Executing, task.RenewLease{By: "gate-1", Until: epoch.Add(lease)}, task.ErrInvalid},
		{"another notes", task.Executing, task.NoteUpstream{By: "gate-2"}, task.ErrNotExecutor},
		{"input requests are no JSON", task.Executing, task.NoteUpstream{By: "gate-1", InputRequests: jsontext.Value(`{`)}, task.ErrInvalid},
		{"input requests are no object", task.Executing, task.NoteUpstream{By: "gate-1", InputRequests: jsontext.Value(`[]`)}, task.ErrInvalid},
		{"delivery before the end", task.Executing, task.Deliver{}, task.ErrNotReady},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := inState(t, tt.state)
			after, err := before.Apply(tt.event, epoch)
			if !errors.Is(err, tt.want) {
				t.Errorf("err = %v; want %v", err, tt.want)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("a refused event changed the task (-before +after):\n%s", diff)
			}
		})
	}
}

func TestQuorum(t *testing.T) {
	asked := apply(t, newTask(t), task.Submit{By: "gate", Quorum: 2, Deadline: epoch.Add(2 * ttl)})
	if got := asked.Approval.Deadline; !got.Equal(asked.ExpiresAt) {
		t.Errorf("the approvers have until %v; the task lives until %v", got, asked.ExpiresAt)
	}

	one := apply(t, asked, approve)
	if one.State != task.InputRequired || !one.Approval.DecidedAt().IsZero() {
		t.Errorf("after one of two approvals: %s, decided at %v", one.State, one.Approval.DecidedAt())
	}
	if _, err := one.Apply(approve, epoch); !errors.Is(err, task.ErrAlreadyDecided) {
		t.Errorf("second approval by the same person: err = %v; want %v", err, task.ErrAlreadyDecided)
	}
	no := apply(t, one, task.Reject{By: "bob", Reason: "on second thought"})
	if no.State != task.Rejected || !no.Approval.DecidedAt().Equal(epoch) {
		t.Errorf("one reject after one approval: %s, decided at %v", no.State, no.Approval.DecidedAt())
	}

	two := apply(t, one, task.Approve{By: "eve"})
	want := &task.Approval{
		Quorum: 2, Deadline: epoch.Add(ttl),
		Approvals: []task.Decision{{By: "bob", At: epoch, Reason: "fine"}, {By: "eve", At: epoch}},
	}
	if diff := cmp.Diff(want, two.Approval); diff != "" {
		t.Errorf("approval (-want +got):\n%s", diff)
	}
	if two.State != task.Approved || !two.Approval.DecidedAt().Equal(epoch) {
		t.Errorf("after two of two approvals: %s, decided at %v", two.State, two.Approval.DecidedAt())
	}

	if nobody := newTask(t).Approval; !nobody.DecidedAt().IsZero() {
		t.Errorf("nobody was asked, but it was decided at %v", nobody.DecidedAt())
	}
	self := apply(t, newTask(t), task.Submit{By: "gate", SelfApproval: true, Deadline: epoch.Add(ttl)}, task.Approve{By: "ann"})
	if self.State != task.Approved {
		t.Errorf("after an approval by the owner, where allowed: %s", self.State)
	}
}

// TestTrail checks that every transition is recorded (F-001.3).
func TestTrail(t *testing.T) {
	got := apply(t, newTask(t), submit, approve, claim, fail).Transitions
	want := []task.Transition{
		{From: task.Working, To: task.InputRequired, At: epoch, By: "gate"},
		{From: task.InputRequired, To: task.Approved, At: epoch, By: "bob", Reason: "fine"},
		{From: task.Approved, To: task.Executing, At: epoch, By: "gate-1"},
		{From: task.Executing, To: task.Failed, At: epoch, By: "gate-1", Reason: "denied by rule 9"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trail (-want +got):\n%s", diff)
	}
}

// TestEnds checks what is told about a task that ended without a result.
func TestEnds(t *testing.T) {
	late := epoch.Add(ttl + time.Second)
	tests := []struct {
		name  string
		state task.State
		event task.Event
		at    time.Time
		want  task.Failure
	}{
		{"rejected", task.InputRequired, task.Reject{By: "bob", Reason: "no"}, epoch, task.Failure{Stage: task.StageApprovalRejected, Reason: "no", Ran: task.RanNo}},
		{"cancelled while pending", task.InputRequired, task.Cancel{By: "ann", Reason: "never mind"}, epoch, task.Failure{Stage: task.StageCancelled, Reason: "never mind", Ran: task.RanNo}},
		{"cancelled while running", task.Executing, task.Cancel{By: "ann"}, epoch, task.Failure{Stage: task.StageCancelled, Ran: task.RanUnknown}},
		{"nobody decided", task.InputRequired, task.Expire{By: "gate"}, late, task.Failure{Stage: task.StageApprovalTimeout, Reason: "its time is over", Ran: task.RanNo, Retriable: true}},
		{"nobody came", task.Approved, task.Expire{By: "gate"}, late, task.Failure{Stage: task.StageUncollected, Reason: "its time is over", Ran: task.RanNo, Retriable: true}},
		{"ran too long", task.Executing, task.Expire{By: "gate"}, late, task.Failure{Stage: task.StageExecutionTimeout, Reason: "its time is over", Ran: task.RanUnknown}},
		{"the executor died", task.Executing, task.Lapse{By: "gate"}, late, task.Failure{Stage: task.StageExecutorLost, Reason: "the executor's lease lapsed", Ran: task.RanUnknown}},
		{"policy drift", task.Approved, fail, epoch, task.Failure{Stage: task.StagePolicyDrift, Reason: "denied by rule 9", Ran: task.RanNo}},
		{
			"unknown is never retriable", task.Executing,
			task.Fail{By: "gate", Failure: task.Failure{Stage: task.StageShutdown, Retriable: true}},
			epoch,
			task.Failure{Stage: task.StageShutdown, Ran: task.RanUnknown},
		},
		{
			"the upstream was not reached", task.Executing,
			task.Fail{By: "gate", Failure: task.Failure{Stage: task.StageUpstreamUnreachable, Ran: task.RanNo, Retriable: true}},
			epoch,
			task.Failure{Stage: task.StageUpstreamUnreachable, Ran: task.RanNo, Retriable: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after, err := inState(t, tt.state).Apply(tt.event, tt.at)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, after.Failure); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

// TestClaimChecksTheCall checks that what runs is what was approved.
func TestClaimChecksTheCall(t *testing.T) {
	for name, change := range map[string]func(*task.Task){
		"arguments": func(x *task.Task) { x.Call.Arguments = `{"path":"/"}` },
		"name":      func(x *task.Task) { x.Call.Name = "drop_table" },
		"upstream":  func(x *task.Task) { x.Call.Upstream = "prod" },
		"no JSON":   func(x *task.Task) { x.Call.Arguments = `{` },
	} {
		approved := inState(t, task.Approved)
		change(&approved)
		if _, err := approved.Apply(claim, epoch); !errors.Is(err, task.ErrDigestMismatch) {
			t.Errorf("changed %s: err = %v; want %v", name, err, task.ErrDigestMismatch)
		}
	}
}

func TestAnnotate(t *testing.T) {
	later := epoch.Add(10 * time.Second)
	step := func(before task.Task, e task.Event) task.Task {
		t.Helper()
		after, err := before.Apply(e, later)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}

	got := step(inState(t, task.Executing), task.Contact{PollInterval: 5 * time.Second})
	if !got.ContactAt.Equal(later) || got.PollInterval != 5*time.Second || !got.UpdatedAt.Equal(epoch) {
		t.Errorf("after a contact: at %v, every %v, updated %v", got.ContactAt, got.PollInterval, got.UpdatedAt)
	}
	got = step(got, task.RenewLease{By: "gate-1", Until: epoch.Add(time.Minute)})
	if !got.Due().Equal(epoch.Add(time.Minute)) || !got.UpdatedAt.Equal(epoch) {
		t.Errorf("after renewing the lease: due %v, updated %v", got.Due(), got.UpdatedAt)
	}
	got = step(got, task.NoteUpstream{By: "gate-1", UpstreamTask: "u1", InputRequests: jsontext.Value(`{ "q" : {} }`)})
	if got.Execution.UpstreamTask != "u1" || string(got.Execution.InputRequests) != `{"q":{}}` || !got.UpdatedAt.Equal(later) {
		t.Errorf("after a note: %+v", got.Execution)
	}
	if got = step(got, task.NoteUpstream{By: "gate-1", UpstreamTask: "u1"}); got.Execution.InputRequests != nil {
		t.Errorf("input requests stayed: %s", got.Execution.InputRequests)
	}
	if got = step(got, task.ExtendTTL{TTL: 5 * ttl, Max: 3 * ttl}); got.TTL() != 3*ttl {
		t.Errorf("extended to %v; want %v", got.TTL(), 3*ttl)
	}
	if got = step(step(got, complete), task.Deliver{}); !got.DeliveredAt.Equal(later) {
		t.Errorf("delivered at %v; want %v", got.DeliveredAt, later)
	}
	if _, err := got.Apply(task.Deliver{}, later); !errors.Is(err, task.ErrAlreadyDelivered) {
		t.Errorf("second delivery: err = %v; want %v", err, task.ErrAlreadyDelivered)
	}
}

func TestInContact(t *testing.T) {
	made := newTask(t) // told to ask every 10 s
	for after, want := range map[time.Duration]bool{0: true, 20 * time.Second: true, 20*time.Second + 1: false} {
		if got := made.InContact(epoch.Add(after)); got != want {
			t.Errorf("in contact after %v: %v; want %v", after, got, want)
		}
	}
}

// TestDue checks when something is to be done with a task in each state.
func TestDue(t *testing.T) {
	want := map[task.State]time.Duration{
		task.Working: ttl, task.InputRequired: deadline, task.Approved: ttl, task.Executing: lease,
		task.Completed: ttl, task.Failed: ttl, task.Rejected: ttl, task.Cancelled: ttl, task.Expired: ttl + time.Second,
	}
	for _, s := range task.States() {
		if got := inState(t, s).Due().Sub(epoch); got != want[s] {
			t.Errorf("%s: due after %v; want %v", s, got, want[s])
		}
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
