package task_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
)

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
		{
			"the failure of another state", task.Executing,
			task.Fail{By: "gate", From: task.Approved, Failure: task.Failure{Stage: task.StagePolicyDrift}},
			task.ErrConcurrentModification,
		},
		{"a failure without a stage", task.Working, task.Fail{By: "gate"}, task.ErrInvalid},
		{"a failure with a result", task.Executing, task.Fail{By: "gate", Failure: task.Failure{Stage: task.StageUpstreamError}, Result: &small}, task.ErrInvalid},
		{"ran before it could", task.Approved, task.Fail{By: "gate", Failure: task.Failure{Stage: task.StageInspection, Ran: task.RanYes}}, task.ErrInvalid},
		{"maybe ran before it could", task.Approved, task.Fail{By: "gate", Failure: task.Failure{Stage: task.StageInspection, Ran: task.RanUnknown}}, task.ErrInvalid},
		{
			"another has an answer", task.Executing,
			task.Fail{
				By: "gate-2", Failure: task.Failure{Stage: task.StageUpstreamError},
				Result: &task.Result{Kind: task.ResultRPCError, Inline: []byte("{}"), Size: 2},
			},
			task.ErrNotExecutor,
		},
		{"the lease holds", task.Executing, task.Lapse{By: "gate"}, task.ErrNotReady},
		{"there is time left", task.Approved, task.Expire{By: "gate"}, task.ErrNotReady},
		{"negative poll interval", task.Working, task.Contact{PollInterval: -1}, task.ErrInvalid},
		{"a shorter life", task.Working, task.ExtendTTL{TTL: ttl - 1, Max: 2 * ttl}, task.ErrInvalidTTL},
		{"the same life", task.Working, task.ExtendTTL{TTL: 2 * ttl, Max: ttl}, task.ErrInvalidTTL},
		{"another renews", task.Executing, task.RenewLease{By: "gate-2", Until: epoch.Add(ttl)}, task.ErrNotExecutor},
		{"a shorter lease", task.Executing, task.RenewLease{By: "gate-1", Until: epoch.Add(lease)}, task.ErrInvalid},
		{"another notes", task.Executing, task.Progress{By: "gate-2"}, task.ErrNotExecutor},
		{"input requests are no JSON", task.Executing, task.Progress{By: "gate-1", InputRequests: json.RawMessage(`{`)}, task.ErrInvalid},
		{"input requests are no object", task.Executing, task.Progress{By: "gate-1", InputRequests: json.RawMessage(`[]`)}, task.ErrInvalid},
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
			"nor is what ran", task.Executing,
			task.Fail{By: "gate", Failure: task.Failure{Stage: task.StageUpstreamInvalid, Ran: task.RanYes, Retriable: true}},
			epoch,
			task.Failure{Stage: task.StageUpstreamInvalid, Ran: task.RanYes},
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
	got = step(got, task.Progress{By: "gate-1", UpstreamTask: "u1", InputRequests: json.RawMessage(`{ "q" : {} }`)})
	if got.Execution.UpstreamTask != "u1" || string(got.Execution.InputRequests) != `{"q":{}}` || !got.UpdatedAt.Equal(later) {
		t.Errorf("after a note: %+v", got.Execution)
	}
	if got = step(got, task.Progress{By: "gate-1", UpstreamTask: "u1"}); got.Execution.InputRequests != nil {
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

// An owner waits as long as its last beat says, polls for two poll intervals, and is
// gone then. What it says of its wait keeps its length when a clock is set back.
func TestPresence(t *testing.T) {
	waits, err := newTask(t).Apply(task.Contact{WaitsUntil: epoch.Add(5 * time.Second)}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]task.Presence{
		0: task.OwnerWaits, 5 * time.Second: task.OwnerPolls, 20 * time.Second: task.OwnerPolls, 21 * time.Second: task.OwnerGone,
	} {
		if got := waits.Presence(epoch.Add(after)); got != want {
			t.Errorf("after %v: %s; want %s", after, got, want)
		}
	}
	early := epoch.Add(-time.Hour)
	if got, err := waits.Apply(task.Contact{WaitsUntil: early.Add(7 * time.Second)}, early); err != nil || !got.WaitsUntil.Equal(epoch.Add(7*time.Second)) {
		t.Errorf("with a clock that was set back: until %v, %v", got.WaitsUntil, err)
	}
	if got, err := waits.Apply(task.Contact{}, epoch); err != nil || !got.WaitsUntil.Equal(waits.WaitsUntil) {
		t.Errorf("a contact that says nothing of a wait: until %v, %v", got.WaitsUntil, err)
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

// A standing approval approves a task with the approvals of those who gave it.
func TestAdmitByGrant(t *testing.T) {
	made := newTask(t)
	given := []task.Decision{{By: "bob", At: epoch.Add(-time.Hour), Gives: &task.GrantTerms{Uses: 1}, UnreadBytes: 3}, {By: "eve"}}
	after := apply(t, made, task.Admit{By: "gate", Reason: "grant", Grant: "gr_1", Approvals: given})
	a := after.Approval
	if after.State != task.Approved || a.Grant() != "gr_1" || a.Quorum != 2 || !a.DecidedAt().Equal(epoch) {
		t.Errorf("the task is %+v with %+v", after, a)
	}
	if d := a.Approvals[0]; d.Gives != nil || d.UnreadBytes != 0 || !d.At.Equal(epoch) {
		t.Errorf("the decision is %+v", d)
	}
	mustRefuse(t, made, task.Admit{By: "gate", Grant: "gr_1"}, task.ErrInvalid)
	mustRefuse(t, made, task.Admit{By: "gate", Approvals: given}, task.ErrInvalid)
}
