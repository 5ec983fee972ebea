package task_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
)

var (
	created = task.Progress{By: "gate-1", UpstreamTask: "u1", Release: true}
	asks    = task.Progress{By: "gate-1", RequestState: "s1", InputRequests: json.RawMessage(`{"a":{"n":1.0},"b":{}}`), Release: true}
	resume  = task.Resume{By: "gate-2", LeaseUntil: epoch.Add(lease)}
)

// A run that the upstream has a task of needs no process: no lease can lapse,
// anybody may say how it stands, and one process at a time takes it up.
func TestUpstreamTaskNeedsNoExecutor(t *testing.T) {
	nested := apply(t, inState(t, task.Executing), created)
	if !nested.Execution.Detached() || nested.Execution.Executor != "" || !nested.Due().Equal(nested.ExpiresAt) {
		t.Errorf("execution %+v, due %v; want nobody at it until the end of its time", nested.Execution, nested.Due())
	}
	late := epoch.Add(lease + time.Second)
	if _, err := nested.Apply(task.Lapse{By: "gate-2"}, late); !errors.Is(err, task.ErrInvalidTransition) || nested.Lost(late) {
		t.Errorf("lapse: err = %v, lost %t; want neither", err, nested.Lost(late))
	}
	mustRefuse(t, nested, created, task.ErrNotExecutor) // once more, by the one that has released it
	noted := apply(t, nested, task.Progress{UpstreamTask: "u1", Upstream: task.UpstreamReady, Message: "done", PollInterval: time.Second})
	if x := noted.Execution; x.Upstream != task.UpstreamReady || x.Message != "done" || x.PollInterval != time.Second {
		t.Errorf("after a note by another replica: %+v", x)
	}

	taken := apply(t, noted, resume)
	if !taken.Due().Equal(taken.ExpiresAt) {
		t.Errorf("due %v although the upstream keeps the task until %v", taken.Due(), taken.ExpiresAt)
	}
	other := task.Resume{By: "gate-3", LeaseUntil: epoch.Add(time.Minute)}
	if _, err := taken.Apply(other, epoch.Add(lease)); !errors.Is(err, task.ErrNotReady) {
		t.Errorf("a second one takes it up: err = %v", err)
	}
	mustRefuse(t, taken, task.Progress{By: "gate-3", UpstreamTask: "u1"}, task.ErrNotExecutor)
	if after, err := taken.Apply(other, late); err != nil || after.Execution.Executor != "gate-3" {
		t.Errorf("after the first one died: %+v, %v", after.Execution, err)
	}
	if _, err := taken.Apply(created, late); !errors.Is(err, task.ErrNotExecutor) {
		t.Errorf("an earlier executor speaks after the last one died: %v", err)
	}
	if after, err := taken.Apply(task.Progress{UpstreamTask: "u1"}, late); err != nil || !after.Execution.Detached() {
		t.Errorf("somebody is told after the first one died: %+v, %v", after.Execution, err)
	}
	done := apply(t, taken, task.Complete{By: "gate-2", Result: task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}})
	if done.State != task.Completed {
		t.Errorf("state %s; want the one who fetched the outcome to complete it", done.State)
	}
	if back := apply(t, taken, task.Progress{By: "gate-2", UpstreamTask: "u1", Upstream: task.UpstreamReady, Release: true}); !back.Execution.Detached() {
		t.Errorf("given back: %+v", back.Execution)
	}
}

func mustRefuse(t *testing.T, from task.Task, e task.Event, want error) {
	t.Helper()
	if _, err := from.Apply(e, epoch); !errors.Is(err, want) {
		t.Errorf("%s: err = %v; want %v", e.Action(), err, want)
	}
}

// A client answers the questions of an upstream one by one. The run continues
// only after the last answer, and only once.
func TestAnswersBeforeTheRunGoesOn(t *testing.T) {
	asked := apply(t, inState(t, task.Executing), asks)
	if !asked.Asks() || !asked.Due().Equal(asked.ExpiresAt) {
		t.Errorf("asks %t, due %v", asked.Asks(), asked.Due())
	}
	mustRefuse(t, asked, resume, task.ErrInvalidTransition)
	one := apply(t, asked, task.Answer{Responses: map[string]json.RawMessage{"b": json.RawMessage(`{"action":"accept"}`), "c": json.RawMessage(`1`)}})
	if x := one.Execution; !one.Asks() || string(x.InputRequests) != `{"a":{"n":1.0}}` || string(x.Answers) != `{"b":{"action":"accept"}}` {
		t.Errorf("after one answer: asks %t for %s, has %s", one.Asks(), x.InputRequests, x.Answers)
	}
	mustRefuse(t, one, resume, task.ErrInvalidTransition)
	both := apply(t, one, task.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`{}`), "b": json.RawMessage(`{"action":"late"}`)}})
	want := &task.Execution{StartedAt: epoch, RequestState: "s1", Answers: json.RawMessage(`{"a":{},"b":{"action":"accept"}}`)}
	if diff := cmp.Diff(want, both.Execution); diff != "" || !both.Execution.Answered() {
		t.Errorf("after all answers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(json.RawMessage(`{"a":{"n":1.0},"b":{}}`), asked.Execution.InputRequests); diff != "" {
		t.Errorf("answers changed the task they were made to:\n%s", diff)
	}
	mustRefuse(t, both, task.Answer{}, task.ErrInvalidTransition)

	again := apply(t, both, resume)
	mustRefuse(t, again, task.Resume{By: "gate-3", LeaseUntil: epoch.Add(lease)}, task.ErrNotReady)
	if !again.Due().Equal(epoch.Add(lease)) || !again.Lost(epoch.Add(lease+time.Second)) {
		t.Errorf("due %v; want the lease to count again, since the call is being made", again.Due())
	}
	if third := apply(t, again, task.Progress{By: "gate-2", UpstreamTask: "u1", Release: true}); third.Execution.Answers != nil {
		t.Errorf("answers stayed: %s", third.Execution.Answers)
	}
}

func TestUpstreamRefusals(t *testing.T) {
	running := inState(t, task.Executing)
	mustRefuse(t, running, resume, task.ErrNotReady)
	mustRefuse(t, running, task.Answer{}, task.ErrInvalidTransition)
	mustRefuse(t, running, task.Progress{By: "gate-1", Release: true}, task.ErrInvalid)
	mustRefuse(t, running, task.Progress{By: "gate-1", UpstreamTask: "\xff"}, task.ErrInvalid)
	mustRefuse(t, running, task.Progress{By: "gate-1", UpstreamTask: "u", PollInterval: -1}, task.ErrInvalid)
	nested := apply(t, running, created)
	mustRefuse(t, nested, task.Progress{UpstreamTask: "u2"}, task.ErrInvalid)
	mustRefuse(t, nested, task.Answer{}, task.ErrInvalidTransition)
	mustRefuse(t, nested, task.Resume{LeaseUntil: epoch.Add(lease)}, task.ErrInvalid)
	mustRefuse(t, nested, task.Resume{By: "gate-1", LeaseUntil: epoch}, task.ErrInvalid)
	mustRefuse(t, apply(t, running, asks), task.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`{`)}}, task.ErrInvalid)
}

// The runs of one process have names of their own: an earlier one cannot end, undo
// or prolong a later one. The trail names the process.
func TestRunsOfOneProcess(t *testing.T) {
	claim := task.Claim{By: "gate-1", Executor: "gate-1#1", LeaseUntil: epoch.Add(lease)}
	running := apply(t, inState(t, task.Approved), claim)
	if running.Execution.Executor != "gate-1#1" || running.Transitions[len(running.Transitions)-1].By != "gate-1" {
		t.Errorf("claimed: %+v by %+v", running.Execution, running.Transitions)
	}
	first := task.Progress{By: "gate-1#1", RequestState: "s1", InputRequests: json.RawMessage(`{"a":{}}`), Release: true}
	answered := apply(t, apply(t, running, first), task.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`1`)}})
	mustRefuse(t, answered, first, task.ErrNotExecutor)
	again := apply(t, answered, task.Resume{By: "gate-1#2", LeaseUntil: epoch.Add(lease)})
	result := task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}
	failure := task.Failure{Stage: task.StageUpstreamTimeout}
	for _, e := range []task.Event{
		first,
		task.RenewLease{By: "gate-1#1", Until: epoch.Add(time.Hour)},
		task.Complete{By: "gate-1", Executor: "gate-1#1", Result: result},
		task.Complete{By: "gate-1", Result: result},
		task.Fail{By: "gate-1", Executor: "gate-1#1", Failure: failure},
	} {
		mustRefuse(t, again, e, task.ErrNotExecutor)
	}
	mustRefuse(t, inState(t, task.Approved), task.Fail{By: "gate-1", Executor: "gate-1#1", Failure: failure}, task.ErrNotExecutor)
	mustRefuse(t, inState(t, task.Approved), task.Claim{By: "gate-1", Executor: "\xff", LeaseUntil: epoch.Add(lease)}, task.ErrInvalid)
	done := apply(t, again, task.Complete{By: "gate-1", Executor: "gate-1#2", Result: result})
	if by := done.Transitions[len(done.Transitions)-1].By; done.State != task.Completed || by != "gate-1" {
		t.Errorf("%s by %s", done.State, by)
	}
	if failed := apply(t, again, task.Fail{By: "gate-1", Executor: "gate-1#2", Failure: failure}); failed.State != task.Failed {
		t.Errorf("%s; want its own failure to end it", failed.State)
	}
}

// A call that ran is reported as such, even if nobody fetched its outcome.
func TestUnfetched(t *testing.T) {
	ready := apply(t, inState(t, task.Executing), task.Progress{By: "gate-1", UpstreamTask: "u1", Upstream: task.UpstreamReady, Release: true})
	after, err := ready.Apply(task.Expire{By: "gate"}, epoch.Add(ttl+time.Second))
	want := &task.Failure{Stage: task.StageUnfetched, Reason: "its time is over", Ran: task.RanYes}
	if diff := cmp.Diff(want, after.Failure); err != nil || diff != "" {
		t.Errorf("err = %v, failure (-want +got):\n%s", err, diff)
	}
}

// Work that may be done twice is taken over from an executor that has died, and
// begins anew: its questions are forgotten.
func TestRestart(t *testing.T) {
	running := inState(t, task.Executing)
	asking := apply(t, running, task.Progress{By: "gate-1", InputRequests: json.RawMessage(`{"a":{}}`)})
	again := task.Restart{By: "gate-2", LeaseUntil: epoch.Add(time.Hour)}
	mustRefuse(t, asking, again, task.ErrNotReady)
	taken, err := asking.Apply(again, epoch.Add(lease+time.Second))
	if err != nil || taken.State != task.Executing || taken.Asks() || taken.Execution.Executor != "gate-2" {
		t.Errorf("%+v, %v", taken.Execution, err)
	}
	if _, err := taken.Apply(task.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultOK}}, epoch.Add(lease+time.Second)); !errors.Is(err, task.ErrNotExecutor) {
		t.Errorf("the one that seemed dead completes it: %v", err)
	}
	mustRefuse(t, running, task.Restart{LeaseUntil: epoch.Add(time.Hour)}, task.ErrInvalid)
	mustRefuse(t, running, task.Restart{By: "gate-2", LeaseUntil: epoch}, task.ErrInvalid)
	mustRefuse(t, apply(t, running, created), again, task.ErrInvalidTransition)
}

// An executor that is alive waits for the answers to what it asks, and says
// meanwhile how far it is.
func TestAnswerToExecutor(t *testing.T) {
	asking := apply(t, inState(t, task.Executing), task.Progress{By: "gate-1", InputRequests: json.RawMessage(`{"a":{},"b":{}}`)})
	half := apply(t, asking, task.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`1`)}})
	half = apply(t, half, task.Describe{By: "gate-1", Message: "one more"})
	if !half.Asks() || half.Execution.Message != "one more" {
		t.Errorf("with one of two answers: %+v", half.Execution)
	}
	all := apply(t, half, task.Answer{Responses: map[string]json.RawMessage{"b": json.RawMessage(`2`)}})
	if all.Asks() || all.Execution.Executor != "gate-1" || string(all.Execution.Answers) != `{"a":1,"b":2}` {
		t.Errorf("with all answers: %+v", all.Execution)
	}
	mustRefuse(t, half, task.Describe{By: "gate-2"}, task.ErrNotExecutor)
	mustRefuse(t, half, task.Describe{By: "gate-1", Message: "\xff"}, task.ErrInvalid)
}
