package task_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// TestInvalidEventsAreRefused covers the checks of events besides state and time.
func TestInvalidEventsAreRefused(t *testing.T) {
	small := task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}
	tests := []struct {
		name  string
		state task.State
		event lifecycle.Event
		want  error
	}{
		{"submit without an actor", task.Working, lifecycle.Submit{Deadline: epoch.Add(time.Hour)}, task.ErrInvalid},
		{"negative quorum", task.Working, lifecycle.Submit{By: "gate", Quorum: -1, Deadline: epoch.Add(time.Hour)}, task.ErrInvalid},
		{"an approval deadline that has passed", task.Working, lifecycle.Submit{By: "gate", Deadline: epoch}, task.ErrInvalid},
		{"approve without an actor", task.InputRequired, lifecycle.Approve{}, task.ErrInvalid},
		{"a reason with invalid UTF-8", task.InputRequired, lifecycle.Approve{By: "bob", Reason: "\xff"}, task.ErrInvalid},
		{"the owner approves", task.InputRequired, lifecycle.Approve{By: "ann"}, lifecycle.ErrSelfApproval},
		{"reject without an actor", task.InputRequired, lifecycle.Reject{}, task.ErrInvalid},
		{"a lease of no length", task.Approved, lifecycle.Claim{By: "gate-1", LeaseUntil: epoch}, task.ErrInvalid},
		{"claim without an actor", task.Approved, lifecycle.Claim{LeaseUntil: epoch.Add(time.Hour)}, task.ErrInvalid},
		{"another executor completes", task.Executing, lifecycle.Complete{By: "gate-2", Result: small}, lifecycle.ErrNotExecutor},
		{"an error completes", task.Executing, lifecycle.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultRPCError}}, task.ErrInvalid},
		{"a result without a kind", task.Executing, lifecycle.Complete{By: "gate-1"}, task.ErrInvalid},
		{"a result of the wrong size", task.Executing, lifecycle.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultOK, Size: 1}}, task.ErrInvalid},
		{
			"a result too large for its task", task.Executing,
			lifecycle.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultOK, Inline: make([]byte, task.ChunkSize+1), Size: task.ChunkSize + 1}},
			task.ErrInvalid,
		},
		{
			"the failure of another state", task.Executing,
			lifecycle.Fail{By: "gate", From: task.Approved, Failure: task.Failure{Stage: lifecycle.StagePolicyDrift}},
			task.ErrConcurrentModification,
		},
		{"a failure without a stage", task.Working, lifecycle.Fail{By: "gate"}, task.ErrInvalid},
		{"a failure with a result", task.Executing, lifecycle.Fail{By: "gate", Failure: task.Failure{Stage: lifecycle.StageUpstreamError}, Result: &small}, task.ErrInvalid},
		{"ran before it could", task.Approved, lifecycle.Fail{By: "gate", Failure: task.Failure{Stage: lifecycle.StageInspection, Ran: task.RanYes}}, task.ErrInvalid},
		{"maybe ran before it could", task.Approved, lifecycle.Fail{By: "gate", Failure: task.Failure{Stage: lifecycle.StageInspection, Ran: task.RanUnknown}}, task.ErrInvalid},
		{
			"another has an answer", task.Executing,
			lifecycle.Fail{
				By: "gate-2", Failure: task.Failure{Stage: lifecycle.StageUpstreamError},
				Result: &task.Result{Kind: task.ResultRPCError, Inline: []byte("{}"), Size: 2},
			},
			lifecycle.ErrNotExecutor,
		},
		{"the lease holds", task.Executing, lifecycle.Lapse{By: "gate"}, task.ErrNotReady},
		{"the deadline has not passed", task.Approved, lifecycle.Expire{By: "gate"}, task.ErrNotReady},
		{"negative poll interval", task.Working, lifecycle.Contact{PollInterval: -1}, task.ErrInvalid},
		{"a shorter life", task.Working, lifecycle.ExtendTTL{TTL: ttl - 1, Max: 2 * ttl}, task.ErrInvalidTTL},
		{"the same life", task.Working, lifecycle.ExtendTTL{TTL: 2 * ttl, Max: ttl}, task.ErrInvalidTTL},
		{"another executor renews", task.Executing, lifecycle.RenewLease{By: "gate-2", Until: epoch.Add(ttl)}, lifecycle.ErrNotExecutor},
		{"a shorter lease", task.Executing, lifecycle.RenewLease{By: "gate-1", Until: epoch.Add(lease)}, task.ErrInvalid},
		{"another executor reports progress", task.Executing, lifecycle.Progress{By: "gate-2"}, lifecycle.ErrNotExecutor},
		{"input requests with invalid JSON", task.Executing, lifecycle.Progress{By: "gate-1", InputRequests: json.RawMessage(`{`)}, task.ErrInvalid},
		{"input requests that are an array", task.Executing, lifecycle.Progress{By: "gate-1", InputRequests: json.RawMessage(`[]`)}, task.ErrInvalid},
		{"delivery before the end", task.Executing, lifecycle.Deliver{}, task.ErrNotReady},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := inState(t, tt.state)
			after, err := lifecycle.Apply(before, tt.event, epoch)
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
	asked := apply(t, newTask(t), lifecycle.Submit{By: "gate", Quorum: 2, Deadline: epoch.Add(2 * ttl)})
	if got := asked.Approval.Deadline; !got.Equal(asked.ExpiresAt) {
		t.Errorf("the approval deadline is %v; the task expires at %v", got, asked.ExpiresAt)
	}

	one := apply(t, asked, approve)
	if one.State != task.InputRequired || !one.Approval.DecidedAt().IsZero() {
		t.Errorf("after one of two approvals: %s, decided at %v", one.State, one.Approval.DecidedAt())
	}
	if _, err := lifecycle.Apply(one, approve, epoch); !errors.Is(err, lifecycle.ErrAlreadyDecided) {
		t.Errorf("second approval by the same person: err = %v; want %v", err, lifecycle.ErrAlreadyDecided)
	}
	no := apply(t, one, lifecycle.Reject{By: "bob", Reason: "on second thought"})
	if no.State != task.Rejected || !no.Approval.DecidedAt().Equal(epoch) {
		t.Errorf("one reject after one approval: %s, decided at %v", no.State, no.Approval.DecidedAt())
	}

	two := apply(t, one, lifecycle.Approve{By: "eve"})
	want := &gatetask.Approval{
		Quorum: 2, Deadline: epoch.Add(ttl),
		Approvals: []gatetask.Decision{{By: "bob", At: epoch, Reason: "fine"}, {By: "eve", At: epoch}},
	}
	if diff := cmp.Diff(want, two.Approval); diff != "" {
		t.Errorf("approval (-want +got):\n%s", diff)
	}
	if two.State != task.Approved || !two.Approval.DecidedAt().Equal(epoch) {
		t.Errorf("after two of two approvals: %s, decided at %v", two.State, two.Approval.DecidedAt())
	}

	if unasked := newTask(t).Approval; !unasked.DecidedAt().IsZero() {
		t.Errorf("no approval was requested, but it was decided at %v", unasked.DecidedAt())
	}
	self := apply(t, newTask(t), lifecycle.Submit{By: "gate", SelfApproval: true, Deadline: epoch.Add(ttl)}, lifecycle.Approve{By: "ann"})
	if self.State != task.Approved {
		t.Errorf("after an approval by the owner, where allowed: %s", self.State)
	}
}

// TestTransitionsAreRecorded checks that every transition is recorded (F-001.3).
func TestTransitionsAreRecorded(t *testing.T) {
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

// A task that ended without a result has a failure with its stage and reason.
func TestEndWithoutResultHasFailure(t *testing.T) {
	late := epoch.Add(ttl + time.Second)
	tests := []struct {
		name  string
		state task.State
		event lifecycle.Event
		at    time.Time
		want  task.Failure
	}{
		{"rejected", task.InputRequired, lifecycle.Reject{By: "bob", Reason: "no"}, epoch, task.Failure{Stage: lifecycle.StageApprovalRejected, Reason: "no", Ran: task.RanNo}},
		{"cancelled while pending", task.InputRequired, lifecycle.Cancel{By: "ann", Reason: "never mind"}, epoch, task.Failure{Stage: lifecycle.StageCancelled, Reason: "never mind", Ran: task.RanNo}},
		{"cancelled while running", task.Executing, lifecycle.Cancel{By: "ann"}, epoch, task.Failure{Stage: lifecycle.StageCancelled, Ran: task.RanUnknown}},
		{"undecided", task.InputRequired, lifecycle.Expire{By: "gate"}, late, task.Failure{Stage: lifecycle.StageApprovalTimeout, Reason: "its time is over", Ran: task.RanNo, Retriable: true}},
		{"uncollected", task.Approved, lifecycle.Expire{By: "gate"}, late, task.Failure{Stage: lifecycle.StageUncollected, Reason: "its time is over", Ran: task.RanNo, Retriable: true}},
		{"ran too long", task.Executing, lifecycle.Expire{By: "gate"}, late, task.Failure{Stage: lifecycle.StageExecutionTimeout, Reason: "its time is over", Ran: task.RanUnknown}},
		{"the executor died", task.Executing, lifecycle.Lapse{By: "gate"}, late, task.Failure{Stage: lifecycle.StageExecutorLost, Reason: "the executor's lease lapsed", Ran: task.RanUnknown}},
		{"policy drift", task.Approved, fail, epoch, task.Failure{Stage: lifecycle.StagePolicyDrift, Reason: "denied by rule 9", Ran: task.RanNo}},
		{
			"unknown is never retriable", task.Executing,
			lifecycle.Fail{By: "gate", Failure: task.Failure{Stage: lifecycle.StageShutdown, Retriable: true}},
			epoch,
			task.Failure{Stage: lifecycle.StageShutdown, Ran: task.RanUnknown},
		},
		{
			"a call that ran is never retriable", task.Executing,
			lifecycle.Fail{By: "gate", Failure: task.Failure{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes, Retriable: true}},
			epoch,
			task.Failure{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanYes},
		},
		{
			"the upstream was not reached", task.Executing,
			lifecycle.Fail{By: "gate", Failure: task.Failure{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanNo, Retriable: true}},
			epoch,
			task.Failure{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanNo, Retriable: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after, err := lifecycle.Apply(inState(t, tt.state), tt.event, tt.at)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, after.Failure); diff != "" {
				t.Errorf("failure (-want +got):\n%s", diff)
			}
		})
	}
}

// A claim refuses a call that differs from the approved call.
func TestClaimRunsOnlyApprovedCall(t *testing.T) {
	for name, change := range map[string]func(*task.Task){
		"arguments": func(x *task.Task) { x.Call.Arguments = `{"path":"/"}` },
		"name":      func(x *task.Task) { x.Call.Name = "drop_table" },
		"upstream":  func(x *task.Task) { x.Call.Upstream = "prod" },
		"no JSON":   func(x *task.Task) { x.Call.Arguments = `{` },
	} {
		approved := inState(t, task.Approved)
		change(&approved)
		if _, err := lifecycle.Apply(approved, claim, epoch); !errors.Is(err, lifecycle.ErrDigestMismatch) {
			t.Errorf("changed %s: err = %v; want %v", name, err, lifecycle.ErrDigestMismatch)
		}
	}
}

func TestAnnotate(t *testing.T) {
	later := epoch.Add(10 * time.Second)
	step := func(before task.Task, e lifecycle.Event) task.Task {
		t.Helper()
		after, err := lifecycle.Apply(before, e, later)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}

	got := step(inState(t, task.Executing), lifecycle.Contact{PollInterval: 5 * time.Second})
	if !got.ContactAt.Equal(later) || got.PollInterval != 5*time.Second || !got.UpdatedAt.Equal(epoch) {
		t.Errorf("after a contact: at %v, every %v, updated %v", got.ContactAt, got.PollInterval, got.UpdatedAt)
	}
	got = step(got, lifecycle.RenewLease{By: "gate-1", Until: epoch.Add(time.Minute)})
	if !got.Due().Equal(epoch.Add(time.Minute)) || !got.UpdatedAt.Equal(epoch) {
		t.Errorf("after renewing the lease: due %v, updated %v", got.Due(), got.UpdatedAt)
	}
	got = step(got, lifecycle.Progress{By: "gate-1", UpstreamTask: "u1", InputRequests: json.RawMessage(`{ "q" : {} }`)})
	if got.Execution.UpstreamTask != "u1" || string(got.Execution.InputRequests) != `{"q":{}}` || !got.UpdatedAt.Equal(later) {
		t.Errorf("after a note: %+v", got.Execution)
	}
	if got = step(got, lifecycle.Progress{By: "gate-1", UpstreamTask: "u1"}); got.Execution.InputRequests != nil {
		t.Errorf("input requests remained: %s", got.Execution.InputRequests)
	}
	if got = step(got, lifecycle.ExtendTTL{TTL: 5 * ttl, Max: 3 * ttl}); got.TTL() != 3*ttl {
		t.Errorf("extended to %v; want %v", got.TTL(), 3*ttl)
	}
	if got = step(step(got, complete), lifecycle.Deliver{}); !got.DeliveredAt.Equal(later) {
		t.Errorf("delivered at %v; want %v", got.DeliveredAt, later)
	}
	if _, err := lifecycle.Apply(got, lifecycle.Deliver{}, later); !errors.Is(err, lifecycle.ErrAlreadyDelivered) {
		t.Errorf("second delivery: err = %v; want %v", err, lifecycle.ErrAlreadyDelivered)
	}
}

func TestInContact(t *testing.T) {
	made := newTask(t) // its poll interval is 10 s
	for after, want := range map[time.Duration]bool{0: true, 20 * time.Second: true, 20*time.Second + 1: false} {
		if got := made.InContact(epoch.Add(after)); got != want {
			t.Errorf("in contact after %v: %v; want %v", after, got, want)
		}
	}
}

// An owner is present until the end of its announced wait, then polling for two poll intervals,
// and then gone. When a clock is set back, the length of the wait stays.
func TestPresenceFollowsContact(t *testing.T) {
	waits, err := lifecycle.Apply(newTask(t), lifecycle.Contact{WaitsUntil: epoch.Add(5 * time.Second)}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]gatetask.Presence{
		0: gatetask.OwnerWaits, 5 * time.Second: gatetask.OwnerPolls, 20 * time.Second: gatetask.OwnerPolls, 21 * time.Second: gatetask.OwnerGone,
	} {
		if got := waits.Presence(epoch.Add(after)); got != want {
			t.Errorf("after %v: %s; want %s", after, got, want)
		}
	}
	early := epoch.Add(-time.Hour)
	if got, err := lifecycle.Apply(waits, lifecycle.Contact{WaitsUntil: early.Add(7 * time.Second)}, early); err != nil || !got.WaitsUntil.Equal(epoch.Add(7*time.Second)) {
		t.Errorf("with a clock that was set back: until %v, %v", got.WaitsUntil, err)
	}
	if got, err := lifecycle.Apply(waits, lifecycle.Contact{}, epoch); err != nil || !got.WaitsUntil.Equal(waits.WaitsUntil) {
		t.Errorf("a contact without a wait: until %v, %v", got.WaitsUntil, err)
	}
}

// TestDue checks the time at which a task in each state needs attention.
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

// A standing approval approves a task with the approvals of its givers.
func TestGrantApprovesTask(t *testing.T) {
	made := newTask(t)
	given := []gatetask.Decision{{By: "bob", At: epoch.Add(-time.Hour), NewGrant: &gatetask.GrantTerms{Uses: 1}, UnreadBytes: 3}, {By: "eve"}}
	after := apply(t, made, lifecycle.Admit{By: "gate", Reason: "grant", Grant: "gr_1", Approvals: given})
	a := after.Approval
	if after.State != task.Approved || a.Grant() != "gr_1" || a.Quorum != 2 || !a.DecidedAt().Equal(epoch) {
		t.Errorf("task %+v with %+v", after, a)
	}
	if d := a.Approvals[0]; d.NewGrant != nil || d.UnreadBytes != 0 || !d.At.Equal(epoch) {
		t.Errorf("decision %+v", d)
	}
	mustRefuse(t, made, lifecycle.Admit{By: "gate", Grant: "gr_1"}, task.ErrInvalid)
	mustRefuse(t, made, lifecycle.Admit{By: "gate", Approvals: given}, task.ErrInvalid)
}
