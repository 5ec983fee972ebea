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

var (
	created = lifecycle.Progress{By: "gate-1", UpstreamTask: "u1", Release: true}
	asks    = lifecycle.Progress{By: "gate-1", RequestState: "s1", InputRequests: json.RawMessage(`{"a":{"n":1.0},"b":{}}`), Release: true}
	resume  = lifecycle.Resume{By: "gate-2", LeaseUntil: epoch.Add(lease)}
)

// A run with an upstream task needs no process: its lease cannot lapse, each replica may record
// its status, and one process at a time resumes it.
func TestUpstreamTaskNeedsNoExecutor(t *testing.T) {
	nested := apply(t, inState(t, task.Executing), created)
	if !nested.Execution.Detached() || nested.Execution.Executor != "" || !nested.Due().Equal(nested.ExpiresAt) {
		t.Errorf("execution %+v, due %v; want no executor and no lease until its deadline", nested.Execution, nested.Due())
	}
	late := epoch.Add(lease + time.Second)
	if _, err := lifecycle.Apply(nested, lifecycle.Lapse{By: "gate-2"}, late); !errors.Is(err, task.ErrInvalidTransition) || nested.Lost(late) {
		t.Errorf("lapse: err = %v, lost %t; want neither", err, nested.Lost(late))
	}
	mustRefuse(t, nested, created, lifecycle.ErrNotExecutor) // again, by the executor that has released it
	noted := apply(t, nested, lifecycle.Progress{UpstreamTask: "u1", Upstream: gatetask.UpstreamReady, Message: "done", PollInterval: time.Second})
	if x := noted.Execution; x.Upstream != gatetask.UpstreamReady || x.Message != "done" || x.PollInterval != time.Second {
		t.Errorf("after progress recorded by another replica: %+v", x)
	}

	taken := apply(t, noted, resume)
	if !taken.Due().Equal(taken.ExpiresAt) {
		t.Errorf("due %v although the upstream keeps the task until %v", taken.Due(), taken.ExpiresAt)
	}
	other := lifecycle.Resume{By: "gate-3", LeaseUntil: epoch.Add(time.Minute)}
	if _, err := lifecycle.Apply(taken, other, epoch.Add(lease)); !errors.Is(err, task.ErrNotReady) {
		t.Errorf("a second process resumes it: err = %v", err)
	}
	mustRefuse(t, taken, lifecycle.Progress{By: "gate-3", UpstreamTask: "u1"}, lifecycle.ErrNotExecutor)
	if after, err := lifecycle.Apply(taken, other, late); err != nil || after.Execution.Executor != "gate-3" {
		t.Errorf("after the executor died: %+v, %v", after.Execution, err)
	}
	if _, err := lifecycle.Apply(taken, created, late); !errors.Is(err, lifecycle.ErrNotExecutor) {
		t.Errorf("an earlier executor reports after the last one died: %v", err)
	}
	if after, err := lifecycle.Apply(taken, lifecycle.Progress{UpstreamTask: "u1"}, late); err != nil || !after.Execution.Detached() {
		t.Errorf("progress from another process after the executor died: %+v, %v", after.Execution, err)
	}
	done := apply(t, taken, lifecycle.Complete{By: "gate-2", Result: task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}})
	if done.State != task.Completed {
		t.Errorf("state %s; want it completed by the process that fetched the outcome", done.State)
	}
	if back := apply(t, taken, lifecycle.Progress{By: "gate-2", UpstreamTask: "u1", Upstream: gatetask.UpstreamReady, Release: true}); !back.Execution.Detached() {
		t.Errorf("released: %+v", back.Execution)
	}
}

func mustRefuse(t *testing.T, from task.Task, e lifecycle.Event, want error) {
	t.Helper()
	if _, err := lifecycle.Apply(from, e, epoch); !errors.Is(err, want) {
		t.Errorf("%s: err = %v; want %v", e.Action(), err, want)
	}
}

// A client answers the questions of an upstream one by one. The run continues after the last
// answer, and only once.
func TestRunContinuesAfterLastAnswer(t *testing.T) {
	asked := apply(t, inState(t, task.Executing), asks)
	if !asked.AwaitsInput() || !asked.Due().Equal(asked.ExpiresAt) {
		t.Errorf("asks %t, due %v", asked.AwaitsInput(), asked.Due())
	}
	mustRefuse(t, asked, resume, task.ErrInvalidTransition)
	one := apply(t, asked, lifecycle.Answer{Responses: map[string]json.RawMessage{"b": json.RawMessage(`{"action":"accept"}`), "c": json.RawMessage(`1`)}})
	if x := one.Execution; !one.AwaitsInput() || string(x.InputRequests) != `{"a":{"n":1.0}}` || string(x.Answers) != `{"b":{"action":"accept"}}` {
		t.Errorf("after one answer: asks %t for %s, has %s", one.AwaitsInput(), x.InputRequests, x.Answers)
	}
	mustRefuse(t, one, resume, task.ErrInvalidTransition)
	both := apply(t, one, lifecycle.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`{}`), "b": json.RawMessage(`{"action":"late"}`)}})
	want := &task.Execution{StartedAt: epoch, RequestState: "s1", Answers: json.RawMessage(`{"a":{},"b":{"action":"accept"}}`)}
	if diff := cmp.Diff(want, both.Execution); diff != "" || !both.Execution.Answered() {
		t.Errorf("after all answers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(json.RawMessage(`{"a":{"n":1.0},"b":{}}`), asked.Execution.InputRequests); diff != "" {
		t.Errorf("answers changed the task they were made to:\n%s", diff)
	}
	mustRefuse(t, both, lifecycle.Answer{}, task.ErrInvalidTransition)

	direct := apply(t, one, lifecycle.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`{}`)}, By: "gate-2", LeaseUntil: epoch.Add(lease)})
	if direct.Execution.Executor != "gate-2" || !direct.Due().Equal(epoch.Add(lease)) {
		t.Errorf("the process with the last answer does not run the task: %+v", direct.Execution)
	}
	mustRefuse(t, one, lifecycle.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`{}`)}, By: "gate-2"}, task.ErrInvalid)
	again := apply(t, both, resume)
	mustRefuse(t, again, lifecycle.Resume{By: "gate-3", LeaseUntil: epoch.Add(lease)}, task.ErrNotReady)
	if !again.Due().Equal(epoch.Add(lease)) || !again.Lost(epoch.Add(lease+time.Second)) {
		t.Errorf("due %v; want the end of the lease, because the call is running again", again.Due())
	}
	if third := apply(t, again, lifecycle.Progress{By: "gate-2", UpstreamTask: "u1", Release: true}); third.Execution.Answers != nil {
		t.Errorf("answers remained: %s", third.Execution.Answers)
	}
}

func TestInvalidUpstreamEventsAreRefused(t *testing.T) {
	running := inState(t, task.Executing)
	mustRefuse(t, running, resume, task.ErrNotReady)
	mustRefuse(t, running, lifecycle.Answer{}, task.ErrInvalidTransition)
	mustRefuse(t, running, lifecycle.Progress{By: "gate-1", Release: true}, task.ErrInvalid)
	mustRefuse(t, running, lifecycle.Progress{By: "gate-1", UpstreamTask: "\xff"}, task.ErrInvalid)
	mustRefuse(t, running, lifecycle.Progress{By: "gate-1", UpstreamTask: "u", PollInterval: -1}, task.ErrInvalid)
	nested := apply(t, running, created)
	mustRefuse(t, nested, lifecycle.Progress{UpstreamTask: "u2"}, task.ErrInvalid)
	mustRefuse(t, nested, lifecycle.Answer{}, task.ErrInvalidTransition)
	mustRefuse(t, nested, lifecycle.Resume{LeaseUntil: epoch.Add(lease)}, task.ErrInvalid)
	mustRefuse(t, nested, lifecycle.Resume{By: "gate-1", LeaseUntil: epoch}, task.ErrInvalid)
	mustRefuse(t, apply(t, running, asks), lifecycle.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`{`)}}, task.ErrInvalid)
}

// Each run of a process has its own name, so an earlier run cannot end, undo or prolong a later
// one. The trail contains the name of the process.
func TestEarlierRunCannotChangeLaterOne(t *testing.T) {
	claim := lifecycle.Claim{By: "gate-1", Executor: "gate-1#1", LeaseUntil: epoch.Add(lease)}
	running := apply(t, inState(t, task.Approved), claim)
	if running.Execution.Executor != "gate-1#1" || running.Transitions[len(running.Transitions)-1].By != "gate-1" {
		t.Errorf("claimed: %+v by %+v", running.Execution, running.Transitions)
	}
	first := lifecycle.Progress{By: "gate-1#1", RequestState: "s1", InputRequests: json.RawMessage(`{"a":{}}`), Release: true}
	answered := apply(t, apply(t, running, first), lifecycle.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`1`)}})
	mustRefuse(t, answered, first, lifecycle.ErrNotExecutor)
	again := apply(t, answered, lifecycle.Resume{By: "gate-1#2", LeaseUntil: epoch.Add(lease)})
	result := task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}
	failure := task.Failure{Stage: lifecycle.StageUpstreamTimeout}
	for _, e := range []lifecycle.Event{
		first,
		lifecycle.RenewLease{By: "gate-1#1", Until: epoch.Add(time.Hour)},
		lifecycle.Complete{By: "gate-1", Executor: "gate-1#1", Result: result},
		lifecycle.Complete{By: "gate-1", Result: result},
		lifecycle.Fail{By: "gate-1", Executor: "gate-1#1", Failure: failure},
	} {
		mustRefuse(t, again, e, lifecycle.ErrNotExecutor)
	}
	mustRefuse(t, inState(t, task.Approved), lifecycle.Fail{By: "gate-1", Executor: "gate-1#1", Failure: failure}, lifecycle.ErrNotExecutor)
	mustRefuse(t, inState(t, task.Approved), lifecycle.Claim{By: "gate-1", Executor: "\xff", LeaseUntil: epoch.Add(lease)}, task.ErrInvalid)
	done := apply(t, again, lifecycle.Complete{By: "gate-1", Executor: "gate-1#2", Result: result})
	if by := done.Transitions[len(done.Transitions)-1].By; done.State != task.Completed || by != "gate-1" {
		t.Errorf("%s by %s", done.State, by)
	}
	if failed := apply(t, again, lifecycle.Fail{By: "gate-1", Executor: "gate-1#2", Failure: failure}); failed.State != task.Failed {
		t.Errorf("%s; want it ended by its own failure", failed.State)
	}
}

// The failure of a call whose outcome was not fetched says that the call ran.
func TestUnfetchedCallCountsAsRun(t *testing.T) {
	ready := apply(t, inState(t, task.Executing), lifecycle.Progress{By: "gate-1", UpstreamTask: "u1", Upstream: gatetask.UpstreamReady, Release: true})
	after, err := lifecycle.Apply(ready, lifecycle.Expire{By: "gate"}, epoch.Add(ttl+time.Second))
	want := &task.Failure{Stage: lifecycle.StageUnfetched, Reason: "its time is over", Ran: task.RanYes}
	if diff := cmp.Diff(want, after.Failure); err != nil || diff != "" {
		t.Errorf("err = %v, failure (-want +got):\n%s", err, diff)
	}
}

// Another process takes over repeatable work from an executor that has died. It starts from the
// beginning, but the client is not asked again.
func TestRestartTakesOverWork(t *testing.T) {
	running := inState(t, task.Executing)
	asking := apply(t, running, lifecycle.Ask{By: "gate-1", Questions: json.RawMessage(`{"a":{},"b":{}}`)})
	asking = apply(t, asking, lifecycle.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`1`)}})
	again := lifecycle.Restart{By: "gate-2", LeaseUntil: epoch.Add(time.Hour)}
	mustRefuse(t, asking, again, task.ErrNotReady)
	taken, err := lifecycle.Apply(asking, again, epoch.Add(lease+time.Second))
	if err != nil || taken.State != task.Executing || !taken.AwaitsInput() || taken.Execution.Executor != "gate-2" {
		t.Errorf("%+v, %v", taken.Execution, err)
	}
	same := apply(t, taken, lifecycle.Ask{By: "gate-2", Questions: json.RawMessage(`{"a":{},"b":{}}`)})
	if x := same.Execution; string(x.InputRequests) != `{"b":{}}` || string(x.Answers) != `{"a":1}` {
		t.Errorf("the client is asked %s and has answered %s", x.InputRequests, x.Answers)
	}
	all := apply(t, same, lifecycle.Answer{Responses: map[string]json.RawMessage{"b": json.RawMessage(`2`)}, By: "gate-3", LeaseUntil: epoch.Add(time.Hour)})
	if all.AwaitsInput() || all.Execution.Executor != "gate-2" {
		t.Errorf("an answer ended the run of %s", all.Execution.Executor)
	}
	again.Dead = true
	if at := apply(t, running, again).Execution; at.Executor != "gate-2" {
		t.Errorf("the executor is known to have died, but it is %+v", at)
	}
	if failed := apply(t, running, lifecycle.Lapse{By: "gate-2", Dead: true}); failed.State != task.Failed {
		t.Errorf("the executor is known to have died, but the task is %s", failed.State)
	}
	if _, err := lifecycle.Apply(taken, lifecycle.Complete{By: "gate-1", Result: task.Result{Kind: task.ResultOK}}, epoch.Add(lease+time.Second)); !errors.Is(err, lifecycle.ErrNotExecutor) {
		t.Errorf("the lost executor completes it: %v", err)
	}
	mustRefuse(t, running, lifecycle.Restart{LeaseUntil: epoch.Add(time.Hour)}, task.ErrInvalid)
	mustRefuse(t, running, lifecycle.Restart{By: "gate-2", LeaseUntil: epoch}, task.ErrInvalid)
	mustRefuse(t, apply(t, running, created), again, task.ErrInvalidTransition)
}

// A live executor waits for the answers to its questions, and can report progress meanwhile.
func TestExecutorGetsAnswers(t *testing.T) {
	asking := apply(t, inState(t, task.Executing), lifecycle.Progress{By: "gate-1", InputRequests: json.RawMessage(`{"a":{},"b":{}}`)})
	half := apply(t, asking, lifecycle.Answer{Responses: map[string]json.RawMessage{"a": json.RawMessage(`1`)}})
	half = apply(t, half, lifecycle.Describe{By: "gate-1", Message: "one more"})
	if !half.AwaitsInput() || half.Execution.Message != "one more" {
		t.Errorf("with one of two answers: %+v", half.Execution)
	}
	all := apply(t, half, lifecycle.Answer{Responses: map[string]json.RawMessage{"b": json.RawMessage(`2`)}})
	if all.AwaitsInput() || all.Execution.Executor != "gate-1" || string(all.Execution.Answers) != `{"a":1,"b":2}` {
		t.Errorf("with all answers: %+v", all.Execution)
	}
	mustRefuse(t, half, lifecycle.Describe{By: "gate-2"}, lifecycle.ErrNotExecutor)
	mustRefuse(t, half, lifecycle.Ask{By: "gate-2", Questions: json.RawMessage(`{}`)}, lifecycle.ErrNotExecutor)
	mustRefuse(t, half, lifecycle.Ask{By: "gate-1", Questions: json.RawMessage(`[]`)}, task.ErrInvalid)
	mustRefuse(t, half, lifecycle.Describe{By: "gate-1", Message: "\xff"}, task.ErrInvalid)
}
