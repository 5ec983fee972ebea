package task_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A call is held, approved, run and collected.
func Example() {
	ctx, now := context.Background(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	store := memstore.New(memstore.Options{})
	defer store.Close()

	// The agent calls a tool. The call becomes a task, which is stored before the agent gets an
	// answer, and waits for an approver.
	held, _ := task.New(task.Draft{
		ID: task.NewID(time.Now()), Owner: "agent-7", Workflow: "ops",
		TTL: task.TTLRules{Approval: 15 * time.Minute, Execution: time.Minute}.Resolve(0).Value,
		Call: task.Call{
			Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: `{"path":"/tmp/x"}`,
			Message: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/tmp/x"}}}`,
		},
	}, now)
	held, _ = lifecycle.Apply(held, lifecycle.Submit{By: "gate", Deadline: now.Add(15 * time.Minute)}, now)
	if err := store.Create(ctx, held, task.Limits{PerOwner: 10, Total: 1000, Unique: true}); err != nil {
		fmt.Println(err)
	}

	// An approver approves. One executor claims the task and makes the call.
	mine := task.OwnedBy("agent-7").Ref(held.ID)
	_, _ = lifecycle.Advance(ctx, store, task.AnyOwner().Ref(held.ID), lifecycle.Approve{By: "alice"}, now.Add(time.Minute))
	_, _ = lifecycle.Advance(ctx, store, mine, lifecycle.Claim{By: "gate-1", LeaseUntil: now.Add(2 * time.Minute)}, now.Add(time.Minute))
	result, _ := storekit.WriteResult(ctx, store, mine, strings.NewReader(`{"content":[{"type":"text","text":"gone"}]}`))
	result.Kind = task.ResultOK
	_, _ = lifecycle.CompleteWithResult(ctx, store, mine, lifecycle.Complete{By: "gate-1", Result: result}, now.Add(time.Minute))

	// The agent collects the result, now or again later.
	done, _ := storekit.Wait(ctx, store, mine, func(t task.Task) bool { return t.State.Terminal() })
	for _, step := range done.Transitions {
		fmt.Printf("%s -> %s by %s\n", step.From, step.To, step.By)
	}
	_ = storekit.ReadResult(ctx, store, done, os.Stdout)
	// Output:
	// working -> input_required by gate
	// input_required -> approved by alice
	// approved -> executing by gate-1
	// executing -> completed by gate-1
	// {"content":[{"type":"text","text":"gone"}]}
}

// A pure function applies events to a task.
func Example_apply() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	t, _ := task.New(task.Draft{ID: "tg_1", Owner: "ann", TTL: time.Hour}, now)
	t, _ = lifecycle.Apply(t, lifecycle.Submit{By: "gate", Quorum: 2, Deadline: now.Add(time.Minute)}, now)

	for _, e := range []lifecycle.Event{
		lifecycle.Approve{By: "ann"}, lifecycle.Approve{By: "bob"}, lifecycle.Approve{By: "bob"}, lifecycle.Approve{By: "eve"}, lifecycle.Reject{By: "joe"},
	} {
		after, err := lifecycle.Apply(t, e, now)
		fmt.Println(after.State, err)
		t = after
	}
	// Output:
	// input_required task tg_1: cannot approve while input_required: self approval
	// input_required <nil>
	// input_required task tg_1: cannot approve while input_required: already decided
	// approved <nil>
	// approved task tg_1: cannot reject while approved: invalid transition
}

// Errors have a kind and a suggestion.
func ExampleError() {
	store := memstore.New(memstore.Options{})
	defer store.Close()
	_, err := store.Get(context.Background(), task.OwnedBy("ann").Ref("tg_1"))

	fmt.Println(errors.Is(err, task.ErrNotFound))
	if e, ok := errors.AsType[*task.Error](err); ok {
		fmt.Println(e.ID, e.Action, e.Suggest)
	}
	// Output:
	// true
	// tg_1 get make the call again
}

// An owner requests a TTL of a minute, which is shorter than the time for approval.
func ExampleTTLRules() {
	asked, _ := task.ParseTTL([]byte("60000"))
	rules := task.TTLRules{Approval: 15 * time.Minute, Execution: time.Minute}
	fmt.Printf("%+v\n", rules.Resolve(asked))
	// Output: {Value:26m0s Raised:true Clamped:false}
}
