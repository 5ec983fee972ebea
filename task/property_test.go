package task_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// anyEvent draws a valid or invalid event, around the given time.
func anyEvent(r *rapid.T, now time.Time) lifecycle.Event {
	who := rapid.SampledFrom([]string{"ann", "bob", "eve", "gate-1", "gate-2", ""}).Draw(r, "by")
	soon := now.Add(time.Duration(rapid.IntRange(-10, 3000).Draw(r, "seconds")) * time.Second)
	result := rapid.SampledFrom([]task.Result{
		{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2},
		{Kind: task.ResultToolError, Chunks: 2, Size: 100_000},
		{Kind: task.ResultRPCError, Inline: []byte("{}"), Size: 2},
		{},
	}).Draw(r, "result")
	failure := task.Failure{
		Stage:     rapid.SampledFrom([]task.Stage{lifecycle.StageUpstreamError, lifecycle.StageShutdown, ""}).Draw(r, "stage"),
		Ran:       rapid.SampledFrom([]task.Ran{"", task.RanNo, task.RanYes, task.RanUnknown}).Draw(r, "ran"),
		Retriable: rapid.Bool().Draw(r, "retriable"),
	}
	name := rapid.SampledFrom([]string{"client.a", "client.b", "server.a", "x"}).Draw(r, "name")
	value := json.RawMessage(rapid.SampledFrom([]string{"null", " 1.0", `{"a": [ ]}`, "{"}).Draw(r, "value"))
	side := rapid.SampledFrom([]task.Side{task.ClientSide, task.ServerSide}).Draw(r, "side")
	return rapid.SampledFrom([]lifecycle.Event{
		lifecycle.Submit{By: who, Quorum: rapid.IntRange(-1, 3).Draw(r, "quorum"), SelfApproval: rapid.Bool().Draw(r, "self"), Deadline: soon},
		lifecycle.Admit{By: who},
		lifecycle.Approve{By: who, Reason: "yes"},
		lifecycle.Approve{By: "bob"},
		lifecycle.Approve{By: "eve"},
		lifecycle.Reject{By: who, Reason: "no"},
		lifecycle.Claim{By: who, LeaseUntil: soon},
		lifecycle.Claim{By: who, Executor: "gate-1#1", LeaseUntil: soon},
		lifecycle.Complete{By: who, Result: result},
		lifecycle.Complete{By: who, Executor: "gate-1#1", Result: result},
		lifecycle.Fail{By: who, Failure: failure, Result: rapid.SampledFrom([]*task.Result{nil, &result}).Draw(r, "answer")},
		lifecycle.Lapse{By: who},
		lifecycle.Cancel{By: who},
		lifecycle.Expire{By: who},
		lifecycle.Contact{PollInterval: time.Duration(rapid.IntRange(-1, 5).Draw(r, "poll")) * time.Second},
		lifecycle.SetVariables{Side: side, Values: task.Variables{name: value}},
		lifecycle.ExtendTTL{TTL: soon.Sub(epoch), Max: 2 * ttl},
		lifecycle.RenewLease{By: who, Until: soon},
		lifecycle.Progress{By: who, UpstreamTask: "u", InputRequests: value},
		lifecycle.Progress{By: who, InputRequests: json.RawMessage(`{"a":{}}`), Release: true},
		lifecycle.Progress{By: who, UpstreamTask: "u", Upstream: gatetask.UpstreamReady, Release: true},
		lifecycle.Ask{By: who, Questions: json.RawMessage(`{"b":{}}`)},
		lifecycle.Answer{Responses: map[string]json.RawMessage{"a": value}},
		lifecycle.Answer{Responses: map[string]json.RawMessage{"a": value, "b": value}, By: who, LeaseUntil: soon},
		lifecycle.Resume{By: who, LeaseUntil: soon},
		lifecycle.Describe{By: who, Message: "half"},
		lifecycle.Restart{By: who, LeaseUntil: soon},
		lifecycle.Deliver{},
	}).Draw(r, "event")
}

// TestTaskInvariants applies arbitrary events to a task, in any order and at any time, and checks
// the invariants of tasks after each step.
func TestTaskInvariants(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		current, now := newTask(r), epoch
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-20, 300).Draw(r, "passed")) * time.Second)
			e := anyEvent(r, now)
			before := current.Clone()
			after, err := lifecycle.Apply(current, e, now)
			if diff := cmp.Diff(before, current); diff != "" {
				r.Fatalf("Apply changed its receiver:\n%s", diff)
			}
			if err != nil {
				checkRefusal(r, before, after, err)
				continue
			}
			checkStep(r, before, after, e, now)
			checkTask(r, after)
			current = after
		}
	})
}

func checkRefusal(r *rapid.T, before, after task.Task, err error) {
	if diff := cmp.Diff(before, after); diff != "" {
		r.Fatalf("a refused event changed the task:\n%s", diff)
	}
	e, ok := errors.AsType[*task.Error](err)
	if !ok || e.ID != before.ID || e.State != before.State || e.Action == "" || e.Kind == "" {
		r.Fatalf("err = %#v; want task, state, action and kind", err)
	}
}

// checkStep checks the invariants between a task before and after an event.
func checkStep(r *rapid.T, before, after task.Task, e lifecycle.Event, now time.Time) {
	if after.Version != before.Version+1 {
		r.Fatalf("version %d follows %d", after.Version, before.Version)
	}
	if before.State.Terminal() && after.State != before.State {
		r.Fatalf("%s left %s", e.Action(), before.State)
	}
	if !slices.Equal(before.Transitions, after.Transitions[:len(before.Transitions)]) {
		r.Fatalf("%s rewrote the trail", e.Action())
	}
	added := after.Transitions[len(before.Transitions):]
	switch {
	case after.State == before.State && len(added) != 0, after.State != before.State && len(added) != 1:
		r.Fatalf("%s to %s added %d transitions", before.State, after.State, len(added))
	case len(added) == 1 && (added[0].From != before.State || added[0].To != after.State || added[0].By == ""):
		r.Fatalf("%s to %s is recorded as %+v", before.State, after.State, added[0])
	}

	end := before.ExpiresAt
	if before.State == task.InputRequired {
		end = before.Approval.Deadline
	}
	if late := now.After(end); late {
		switch e.(type) {
		case lifecycle.Expire, lifecycle.Deliver:
		case lifecycle.Complete, lifecycle.Fail, lifecycle.Lapse:
			if before.State != task.Executing {
				r.Fatalf("late %s while %s", e.Action(), before.State)
			}
		default:
			r.Fatalf("late %s while %s", e.Action(), before.State)
		}
	}
}

// checkTask checks the invariants of a task.
func checkTask(r *rapid.T, x task.Task) {
	state, at, runs := task.Working, x.CreatedAt, 0
	for _, step := range x.Transitions {
		if step.From != state || step.To == step.From || step.At.Before(at) {
			r.Fatalf("broken trail: %+v", x.Transitions)
		}
		if state, at = step.To, step.At; step.To == task.Executing {
			runs++
		}
	}
	if state != x.State || runs > 1 {
		r.Fatalf("the trail ends in %s with %d runs; the task is %s", state, runs, x.State)
	}
	if runs == 0 && (x.Execution != nil || x.Result != nil || x.Failure != nil && x.Failure.Ran != task.RanNo) {
		r.Fatalf("never executed, but %+v, %+v, %+v", x.Execution, x.Result, x.Failure)
	}
	if (x.Failure != nil) != (x.State.Terminal() && x.State != task.Completed) || x.State == task.Completed && x.Result == nil {
		r.Fatalf("%s with failure %+v and result %+v", x.State, x.Failure, x.Result)
	}
	if f := x.Failure; f != nil && f.Ran != task.RanNo && f.Retriable {
		r.Fatalf("may have run, and retriable: %+v", f)
	}
	checkApproval(r, x)

	data, err := storekit.Encode(x)
	if err != nil {
		r.Fatal(err)
	}
	back, err := storekit.Decode(data)
	if diff := cmp.Diff(x, back); err != nil || diff != "" {
		r.Fatalf("stored form: %v\n%s", err, diff)
	}
}

// checkApproval checks that a quorum consists of different people who may approve.
func checkApproval(r *rapid.T, x task.Task) {
	asked := slices.ContainsFunc(x.Transitions, func(s task.Transition) bool { return s.To == task.InputRequired })
	if asked != (x.Approval != nil) {
		r.Fatalf("asked: %v, but %+v", asked, x.Approval)
	}
	if !asked {
		return
	}
	people := make(map[string]bool)
	for _, d := range x.Approval.Approvals {
		if d.By == "" || people[d.By] || d.By == x.Owner && !x.Approval.SelfApproval {
			r.Fatalf("approvals: %+v", x.Approval)
		}
		people[d.By] = true
	}
	approved := slices.ContainsFunc(x.Transitions, func(s task.Transition) bool { return s.To == task.Approved })
	if approved != (len(people) == x.Approval.Quorum) || len(people) > x.Approval.Quorum {
		r.Fatalf("approved: %v with %d of %d", approved, len(people), x.Approval.Quorum)
	}
	if (x.State == task.Rejected) != (x.Approval.Rejection != nil) || approved && x.Approval.Rejection != nil {
		r.Fatalf("%s with rejection %+v", x.State, x.Approval.Rejection)
	}
}
