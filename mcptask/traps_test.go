package mcptask_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// own is the dialect of a server that runs its tools itself.
var (
	ownLegacy = mcptask.Dialect{Era: mcptask.V2025}
	ownModern = mcptask.Dialect{Era: mcptask.V2026}
)

func sum(name string) task.Draft {
	return task.Draft{Owner: "alice", TTL: time.Hour, Call: task.Call{Method: "tools/call", Name: name, Message: "{}"}}
}

// until waits until the task is in a state, or in one that it cannot leave.
func (b bench) until(id task.ID, state task.State) task.Task {
	b.t.Helper()
	got, err := storekit.Wait(b.t.Context(), b.Store, task.AnyOwner().Ref(id), func(t task.Task) bool { return t.State == state || t.State.Terminal() })
	if err != nil || got.State != state {
		b.t.Fatalf("the task is %s, %+v; want %s: %v", got.State, got.Failure, state, err)
	}
	return got
}

// launch launches work for alice.
func (b bench) launch(work mcptask.Work) task.Task {
	b.t.Helper()
	made, err := b.Launch(b.t.Context(), sum("sum"), work)
	if err != nil {
		b.t.Fatal(err)
	}
	return made
}

// alive returns a bench whose clock runs.
func alive(t *testing.T) bench {
	t.Helper()
	b := newBench(t)
	b.Now = time.Now
	return b
}

func forever(ctx context.Context) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A live process renews the lease of its tasks for as long as they take. The lease is short,
// and each process has a unique name.
func TestLeaseIsShortAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		other := b.restarted()
		made := b.launch(forever)
		if held := time.Until(made.Execution.LeaseUntil); held > 10*time.Second {
			t.Errorf("the lease of a dead process would last %v", held)
		}
		second := other.launch(forever)
		if made.Execution.Executor == second.Execution.Executor {
			t.Errorf("two processes have the name %s", made.Execution.Executor)
		}
		for range 100 {
			time.Sleep(time.Second)
			if err := other.Tidy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := b.until(made.ID, task.Executing); got.Execution.Executor != made.Execution.Executor {
			t.Errorf("the task was taken over: %+v", got.Execution)
		}
		b.interruptAll(other)
	})
}

// interruptAll ends all running tasks of the servers.
func (b bench) interruptAll(others ...bench) {
	for _, s := range append(others, b) {
		s.drained()
	}
}

// The task of a killed process fails when the lease ends, not at the end of its TTL. The error
// says that the outcome is unknown.
func TestCrashFailsTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		lost := b.killed()
		time.Sleep(9 * time.Second)
		if err := b.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.until(lost.ID, task.Executing)
		time.Sleep(2 * time.Second)
		if got := b.ask(ownLegacy, mcpname.TasksGet, `{"taskId":"killed"}`); !strings.Contains(got, "Outcome unknown: it may have run.") {
			t.Errorf("the client sees %s", got)
		}
		b.until(lost.ID, task.Failed)
	})
}

// Repeatable work of a killed process is run again once, by another process.
func TestCrashRunsTaskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		lost := b.killed()
		var runs atomic.Int32
		work := func(ctx context.Context) ([]byte, error) {
			runs.Add(1)
			time.Sleep(30 * time.Second)
			return []byte(`{"content":[]}`), ctx.Err()
		}
		ctx, stop := context.WithCancel(t.Context())
		var keeping sync.WaitGroup
		for range 3 {
			s := b.restarted()
			s.Rerun = func(t task.Task) mcptask.Work {
				if t.Call.Name != "sum" {
					return nil
				}
				return work
			}
			keeping.Go(func() { _ = s.Housekeep(ctx) })
		}
		b.until(lost.ID, task.Completed)
		stop()
		keeping.Wait()
		if n := runs.Load(); n != 1 {
			t.Errorf("the work ran %d times after the crash", n)
		}
	})
}

// A process that is to end gives running work some time, then interrupts it. The next process
// runs repeatable work again. Other tasks fail, with an error that says so.
func TestShutdownInterruptsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		b.Rerun = func(t task.Task) mcptask.Work {
			if t.Call.Name == "twice" {
				return forever
			}
			return nil
		}
		quick, once := b.launch(func(ctx context.Context) ([]byte, error) {
			time.Sleep(3 * time.Second)
			return []byte(`{}`), ctx.Err()
		}), b.launch(forever)
		twice, err := b.Launch(t.Context(), sum("twice"), forever)
		if err != nil {
			t.Fatal(err)
		}
		b.drained()
		b.until(quick.ID, task.Completed)
		if got := b.until(once.ID, task.Failed); got.Failure.Stage != lifecycle.StageShutdown || got.Failure.Ran != task.RanUnknown {
			t.Errorf("%+v", got.Failure)
		}
		b.until(twice.ID, task.Executing)
		if _, err := b.Launch(t.Context(), sum("late"), forever); !errors.Is(err, task.ErrClosed) {
			t.Errorf("a task after the shutdown: %v", err)
		}
	})
}

// A panic fails the task. Its text is only written to the log.
func TestPanicFailsTask(t *testing.T) {
	b := alive(t)
	var log strings.Builder
	b.Log = slog.New(slog.NewTextHandler(&log, nil))
	made := b.launch(func(context.Context) ([]byte, error) { panic("secret") })
	failed := b.until(made.ID, task.Failed)
	if got := string(payloadOf(failed)); !strings.Contains(got, "Internal error") || strings.Contains(got, "secret") {
		t.Errorf("the client sees %s", got)
	}
	b.drained()
	if !strings.Contains(log.String(), "secret") {
		t.Errorf("log: %s", log.String())
	}
}

// drained ends all running tasks of the server.
func (b bench) drained() {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := b.Housekeep(ctx); err != nil {
		b.t.Error(err)
	}
}

// Cancelling a task ends its work, and logs no error.
func TestCancelLogsNoError(t *testing.T) {
	b := alive(t)
	var log strings.Builder
	b.Log = slog.New(slog.NewTextHandler(&log, nil))
	made := b.launch(forever)
	b.ask(modern, mcpname.TasksCancel, `{"taskId":"`+string(made.ID)+`"}`)
	b.drained()
	if log.String() != "" {
		t.Errorf("log: %s", log.String())
	}
}

// The result in the tasks/get answer of 2026-07-28 has a result type, and the answer to
// tasks/result has none, whatever the work returned.
func TestInlinedResultHasType(t *testing.T) {
	for _, result := range []string{`{"content":[]}`, `{"content":[],"resultType":"complete"}`} {
		b := alive(t)
		made := b.launch(func(context.Context) ([]byte, error) { return []byte(result), nil })
		b.until(made.ID, task.Completed)
		params := `{"taskId":"` + string(made.ID) + `"}`
		got := jsonrpc.Value{Bytes: []byte(b.ask(modern, mcpname.TasksGet, params))}.Member("result")
		if kind, _ := got.Member("resultType").Text(); kind != "complete" || !got.Member("content").IsArray() {
			t.Errorf("%s: the client of 2026-07-28 gets %s", result, got.Bytes)
		}
		if got := b.ask(legacy, mcpname.TasksResult, params); strings.Contains(got, "resultType") || !strings.Contains(got, `"content":[]`) {
			t.Errorf("%s: the client of 2025-11-25 gets %s", result, got)
		}
	}
}

// A task whose TTL has passed is shown as expired, even without housekeeping.
func TestExpiryWithoutHousekeeping(t *testing.T) {
	b := newBench(t)
	ref := b.start()
	later := changed.Add(2 * time.Hour)
	b.Now = func() time.Time { return later }
	params := `{"taskId":"` + string(ref.ID) + `"}`
	if got := b.ask(legacy, mcpname.TasksGet, params); !strings.Contains(got, `"status":"failed"`) {
		t.Errorf("tasks/get: %s", got)
	}
	again := newBench(t)
	ref = again.start()
	again.Now = b.Now
	if got := again.ask(legacy, mcpname.TasksResult, `{"taskId":"`+string(ref.ID)+`"}`); !strings.Contains(got, "Nobody decided in time") {
		t.Errorf("tasks/result: %s", got)
	}
}

// Work ends when the TTL of its task has passed, without housekeeping.
func TestExpiryEndsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		began := time.Now()
		made := b.launch(forever)
		b.until(made.ID, task.Expired)
		if took := time.Since(began); took > time.Hour+time.Second {
			t.Errorf("the work ended after %v", took)
		}
		b.drained()
	})
}

// Refused variables leave no task behind.
func TestRefusedVariablesLeaveNoTask(t *testing.T) {
	b := newBench(t)
	draft := sum("sum")
	draft.Variables = []task.VariableChange{
		{Side: task.ServerSide, Values: task.Variables{"server.step": json.RawMessage(`1`)}},
		{Side: task.ClientSide, Values: task.Variables{"client.reason": json.RawMessage(`"because"`)}},
	}
	made, err := b.Start(t.Context(), draft)
	if err != nil || len(made.Variables) != 2 || made.Version != 1 {
		t.Errorf("%v, version %d, %v", made.Variables, made.Version, err)
	}
	draft.Variables[1].Values = task.Variables{"server.mine": json.RawMessage(`1`)}
	if _, err := b.Start(t.Context(), draft); !errors.Is(err, task.ErrVariableOwnership) {
		t.Errorf("a client's server.mine: %v", err)
	}
	page, err := b.Store.List(t.Context(), task.Query{Scope: task.AnyOwner()})
	if err != nil || len(page.Tasks) != 1 {
		t.Errorf("%d tasks, %v; want only the accepted one", len(page.Tasks), err)
	}
}

// The messages of a server that runs its tools itself do not mention an upstream.
func TestOwnMessagesAreNotQuoted(t *testing.T) {
	b := alive(t)
	status := make(chan string)
	made := b.launch(func(ctx context.Context) ([]byte, error) {
		call, ok := mcptask.From(ctx)
		if !ok {
			return nil, errors.New("no call")
		}
		if err := call.Status(ctx, "read 3 of 10 pages"); err != nil {
			return nil, err
		}
		status <- call.ID()
		<-status
		return nil, &jsonrpc.Error{Code: 7, Message: "page 4 is missing"}
	})
	if id := <-status; id != string(made.ID) {
		t.Errorf("the work runs for task %s; want %s", id, made.ID)
	}
	params := `{"taskId":"` + string(made.ID) + `"}`
	if _, err := storekit.Wait(t.Context(), b.Store, task.AnyOwner().Ref(made.ID), func(t task.Task) bool { return t.Execution.Message != "" }); err != nil {
		t.Fatal(err)
	}
	for _, d := range []mcptask.Dialect{ownLegacy, ownModern} {
		if got := b.ask(d, mcpname.TasksGet, params); !strings.Contains(got, `"statusMessage":"read 3 of 10 pages"`) {
			t.Errorf("while it runs: %s", got)
		}
	}
	status <- ""
	b.until(made.ID, task.Failed)
	if got := b.ask(ownModern, mcpname.TasksGet, params); !strings.Contains(got, `"statusMessage":"page 4 is missing"`) {
		t.Errorf("at its end: %s", got)
	}
}

// The work outlives the request that started it.
func TestLaunchOutlivesRequest(t *testing.T) {
	b := alive(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	made, err := b.Launch(ctx, sum("sum"), func(ctx context.Context) ([]byte, error) {
		<-gone
		return []byte(`{}`), ctx.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	close(gone)
	b.until(made.ID, task.Completed)
}

// restarted returns a server with the store of b, as after a restart.
func (b bench) restarted() bench {
	return bench{&mcptask.Server{Store: b.Store, Now: b.Now}, b.t}
}

// killed adds a task of a process that has died.
func (b bench) killed() task.Task {
	b.t.Helper()
	draft := sum("sum")
	draft.ID = "killed"
	t, err := task.New(draft, b.Now())
	for _, e := range []lifecycle.Event{lifecycle.Admit{By: "dead"}, lifecycle.Claim{By: "dead", LeaseUntil: b.Now().Add(10 * time.Second)}} {
		if err != nil {
			b.t.Fatal(err)
		}
		t, err = lifecycle.Apply(t, e, b.Now())
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.keep(t)
	return t
}

var whoAndWhere = schema.Object{
	{Name: "name", Value: json.RawMessage(`{"method":"elicitation/create","params":{"message":"Who?"}}`)},
	{Name: "roots", Value: json.RawMessage(`{"method":"roots/list"}`)},
}

// A task asks its client, in both eras.
func TestCallAsksClientOfBothGenerations(t *testing.T) {
	asking := func(ctx context.Context) ([]byte, error) {
		call, _ := mcptask.From(ctx)
		answers, err := call.Ask(ctx, whoAndWhere)
		if err != nil {
			return nil, err
		}
		return jsonv2.Marshal(answers)
	}
	const both = `{"name":{"action":"accept"},"roots":{"roots":[]}}`
	t.Run("2026-07-28", func(t *testing.T) {
		b := alive(t)
		made := b.launch(asking)
		asked, err := storekit.Wait(t.Context(), b.Store, task.AnyOwner().Ref(made.ID), task.Task.AwaitsInput)
		if err != nil {
			t.Fatal(err)
		}
		for key := range (jsonrpc.Value{Bytes: asked.Execution.InputRequests}).Members() {
			name, _, _ := strings.Cut(key, "-")
			answer := jsonrpc.Value{Bytes: []byte(both)}.Member(name).Bytes
			b.ask(modern, mcpname.TasksUpdate, `{"taskId":"`+string(made.ID)+`","inputResponses":{"`+key+`":`+string(answer)+`},"_meta":{$tasks}}`)
		}
		if got := string(payloadOf(b.until(made.ID, task.Completed))); got != both {
			t.Errorf("the work got the answer %s", got)
		}
	})
	t.Run("2025-11-25", func(t *testing.T) {
		b := alive(t)
		b.Ask = func(_ context.Context, _ task.Task, request []byte) ([]byte, error) {
			if strings.Contains(string(request), "roots/list") {
				return []byte(`{"roots":[]}`), nil
			}
			return []byte(`{"action":"accept"}`), nil
		}
		made := b.launch(asking)
		if got := b.ask(legacy, mcpname.TasksResult, `{"taskId":"`+string(made.ID)+`"}`); !strings.HasPrefix(got, strings.TrimSuffix(both, "}")) {
			t.Errorf("the result is %s", got)
		}
	})
	t.Run("cannot be asked", func(t *testing.T) {
		b := alive(t)
		failed := make(chan error, 1)
		made := b.launch(func(ctx context.Context) ([]byte, error) {
			_, err := asking(ctx)
			failed <- err
			return nil, err
		})
		b.ask(legacy, mcpname.TasksResult, `{"taskId":"`+string(made.ID)+`"}`)
		if err := <-failed; !errors.Is(err, mcptask.ErrNotAsked) {
			t.Errorf("err = %v; want %v", err, mcptask.ErrNotAsked)
		}
	})
}

// Server and client exchange variables while the work runs.
func TestServerAndClientExchangeVariables(t *testing.T) {
	b := alive(t)
	made := b.launch(func(ctx context.Context) ([]byte, error) {
		call, _ := mcptask.From(ctx)
		var chosen string
		if there, err := call.Get(ctx, "client.choice", &chosen); there || err != nil {
			return nil, fmt.Errorf("client.choice is there: %w", err)
		}
		if err := call.Set(ctx, "client.plan", 1); !errors.Is(err, task.ErrVariableOwnership) {
			return nil, fmt.Errorf("the server wrote a variable of the client: %w", err)
		}
		if err := call.Set(ctx, "server.plan", []string{"a", "b"}); err != nil { // the client chooses after it has read the plan
			return nil, err
		}
		if err := call.Wait(ctx, "client.choice", &chosen); err != nil {
			return nil, err
		}
		return fmt.Appendf(nil, `{"chosen":%q}`, chosen), call.Extend(ctx, 2*time.Hour)
	})
	ref := task.AnyOwner().Ref(made.ID)
	if _, err := storekit.Wait(t.Context(), b.Store, ref, func(t task.Task) bool { return t.Variables["server.plan"] != nil }); err != nil {
		t.Fatal(err)
	}
	b.ask(modern, mcpname.TasksUpdate, `{"taskId":"`+string(made.ID)+`","inputResponses":{},"_meta":{$tasks,"client.choice":"b"}}`)
	done := b.until(made.ID, task.Completed)
	if got := string(payloadOf(done)); got != `{"chosen":"b"}` || done.TTL() != 2*time.Hour {
		t.Errorf("%s, lives %v", got, done.TTL())
	}
}

// A store only needs to keep tasks: without watches, waiting requests poll. An answer that is
// too large for such a store fails its task.
func TestStoreWithoutOptionalParts(t *testing.T) {
	b := alive(t)
	b.Store = struct{ task.Store }{b.Store}
	small := b.launch(func(context.Context) ([]byte, error) {
		time.Sleep(10 * time.Millisecond)
		return []byte(`{"content":[]}`), nil
	})
	if got := b.ask(ownLegacy, mcpname.TasksResult, `{"taskId":"`+string(small.ID)+`"}`); !strings.HasPrefix(got, `{"content":[]`) {
		t.Errorf("tasks/result: %s", got)
	}
	large := b.launch(func(context.Context) ([]byte, error) {
		return fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", task.ChunkSize)), nil
	})
	if got := b.until(large.ID, task.Failed); got.Failure.Stage != lifecycle.StageResultTooLarge || got.Failure.Ran != task.RanYes {
		t.Errorf("%+v", got.Failure)
	}
}
