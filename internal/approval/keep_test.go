package approval_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// EC-TASK-012, F-008: two replicas that do housekeeping end each task once, and finally delete
// it. GOV-001 F-008.1, F-008.2, F-008.4.
func TestHousekeepingEndsAndDeletesTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		other := branch(t, o.store, nil)
		stop, stopOther := o.runHousekeeping(t), other.runHousekeeping(t)
		defer stop()
		defer stopOther()
		const many = 250
		for i := range many {
			o.hold(t, call("ann", fmt.Sprint(i)))
		}
		pass(16 * time.Minute)
		page, err := o.views.Pending(t.Context(), review.Filter{States: []task.State{task.Expired}, Limit: 100})
		if err != nil || len(page.Approvals) != 100 || page.Next == "" {
			t.Fatalf("expired: %d, %v", len(page.Approvals), err)
		}
		if n := o.count(approval.Overdue) + other.count(approval.Overdue); n != many {
			t.Errorf("%d reported ends; want %d", n, many)
		}
		if page, _ := o.views.Pending(t.Context(), review.Filter{}); len(page.Approvals) != 0 {
			t.Errorf("%d pending tasks", len(page.Approvals))
		}
		pass(2 * time.Hour) // the lifetime of the task and one more hour
		if page, _ := o.views.Pending(t.Context(), review.Filter{States: task.States()}); len(page.Approvals) != 0 {
			t.Errorf("%d tasks are left", len(page.Approvals))
		}
		if o.count(approval.Deleted)+other.count(approval.Deleted) == 0 {
			t.Error("the deletions were not reported")
		}
	})
}

// An expired task ends within a second on any replica, however rare housekeeping is. Lists and
// the count of pending tasks show it.
func TestExpiryIsNoticedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seldom := func(c *approval.Config) { c.Sweep = time.Hour }
		o := open(t, seldom)
		other := branch(t, o.store, seldom)
		for _, one := range []*fixture{o, other} {
			one.workflows["ops"] = approval.Workflow{Approvers: []string{"alice"}, Timeout: 8 * time.Second}
			defer one.runHousekeeping(t)()
		}
		pass(100 * time.Second)
		for i := range 3 { // each has its own deadline; some deadlines are close together
			o.hold(t, call("ann", fmt.Sprint(i)))
			pass(300 * time.Millisecond)
		}
		counted := func(want int) {
			t.Helper()
			for _, one := range []*fixture{o, other} {
				one.mu.Lock()
				got := -1
				for _, e := range one.steps {
					if e.Step == approval.Counted {
						got = e.Pending[task.InputRequired]
					}
				}
				one.mu.Unlock()
				if got != want {
					t.Errorf("%d counted as pending; want %d", got, want)
				}
			}
		}
		pass(7 * time.Second) // just before the first deadline
		if n := o.count(approval.Overdue) + other.count(approval.Overdue); n != 0 {
			t.Errorf("%d expired early", n)
		}
		counted(3)
		pass(2500 * time.Millisecond) // more than a second after the last deadline
		if n := o.count(approval.Overdue) + other.count(approval.Overdue); n != 3 {
			t.Errorf("%d of 3 expiries noticed", n)
		}
		page, err := o.store.List(t.Context(), task.Query{Scope: task.AnyOwner(), States: task.Pending()})
		if err != nil || len(page.Tasks) != 0 {
			t.Errorf("%d pending in the store, %v", len(page.Tasks), err)
		}
		counted(0)
	})
}

// GOV-001 F-008.3: each expiry is logged, with the task, its tool and its age.
func TestExpiryIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := open(t, func(c *approval.Config) { c.Log = logging.New(&log, "json", slog.LevelInfo) })
		stop := o.runHousekeeping(t)
		held := o.hold(t, call("ann", "/a"))
		pass(16 * time.Minute)
		stop()
		var line struct {
			Level, Msg, Tool, From, To, Principal string
			Task                                  string  `json:"task_id"`
			Age                                   float64 `json:"age_seconds"`
		}
		for text := range strings.Lines(log.String()) {
			if strings.Contains(text, "task overdue") {
				if err := json.Unmarshal([]byte(text), &line, json.MatchCaseInsensitiveNames(true)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if line.Level != "WARN" || line.Task != string(held.ID) || line.Tool != held.Call.Name || line.From != "input_required" || line.To != "expired" || line.Principal != "ann" || line.Age < 900 || line.Age > 960 {
			t.Errorf("logged %+v; want task %s of tool %s after about 15 minutes", line, held.ID, held.Call.Name)
		}
	})
}

// Run returns no error if its context ended before it began.
func TestRunWithEndedContext(t *testing.T) {
	o := open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Run(ctx); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// Housekeeping ends a call whose approval is too old. GOV-001 6.1, approval_valid_until:
// approvers see how long an approval is valid.
func TestRunValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		stop := o.runHousekeeping(t)
		defer stop()
		c := call("ann", "/a")
		c.Verdict.Workflow = "brief"
		held := o.hold(t, c)
		if asked := o.views.View(held); !asked.ValidUntil.IsZero() {
			t.Errorf("an unapproved call is valid until %v", asked.ValidUntil)
		}
		o.approve(t, held.ID)
		now := o.now(t, held.ID)
		if got, want := o.views.View(now).ValidUntil, now.Approval.DecidedAt().Add(time.Minute); !got.Equal(want) {
			t.Errorf("valid until %v; want %v", got, want)
		}
		pass(2 * time.Minute)
		after := o.now(t, held.ID)
		mustState(t, after, task.Failed)
		if after.Failure.Stage != lifecycle.StageUncollected || after.Failure.Ran != task.RanNo || o.count(approval.OwnerAbsent) != 1 {
			t.Errorf("failure = %+v, absent owner reported %d times", after.Failure, o.count(approval.OwnerAbsent))
		}
	})
}

// With start: approval, if a replica dies between the decision and the start, any other replica
// starts the call.
func TestRunStartsCallOfDeadReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		died, held := approved(t, nil)
		upstream := newFakeUpstream()
		o := branch(t, died.store, func(c *approval.Config) {
			c.Start, c.Send = approval.StartOnApproval, func(task.Task) approval.Sender { return upstream.send }
		})
		stop := o.runHousekeeping(t)
		defer stop()
		pass(time.Second)
		mustState(t, o.now(t, held.ID), task.Completed)
		if len(upstream.entries()) != 1 {
			t.Errorf("ran %v", upstream.entries())
		}
	})
}

// EC-TASK-016: if the store is lost with the process, pending tasks fail, waiting requests
// return at once, and running calls may finish.
func TestCloseEndsPendingTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, running := approved(t, nil)
		pending := o.hold(t, call("ann", "/pending"))
		w := o.wait(t.Context(), mine(pending), o.upstream.send)
		o.Contact(t.Context(), mine(running), o.upstream.slow(10*time.Second))
		synctest.Wait()
		closed := make(chan error)
		go func() {
			ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
			defer stop()
			closed <- o.Close(ctx)
		}()
		synctest.Wait()
		<-w.done // no time has passed
		mustBe(t, w.err, task.ErrClosed)
		_, _, err := o.Hold(t.Context(), call("ann", "/new"))
		mustBe(t, err, task.ErrClosed)
		mustState(t, o.now(t, running.ID), task.Executing)
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		mustState(t, o.now(t, running.ID), task.Completed)
		after := o.now(t, pending.ID)
		mustState(t, after, task.Failed)
		if f := after.Failure; f.Stage != lifecycle.StageShutdown || f.Ran != task.RanNo || !f.Retriable {
			t.Errorf("failure = %+v", f)
		}
		if err := o.Close(t.Context()); err != nil {
			t.Errorf("second Close = %v", err)
		}
	})
}

// With a durable store pending tasks outlive the service, and another service continues with
// them.
func TestCloseKeepsDurableTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(c *approval.Config) { c.Durable = true })
		pending := o.hold(t, call("ann", "/pending"))
		ready := o.hold(t, call("ann", "/ready"))
		o.approve(t, ready.ID)
		if err := o.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := o.Contact(t.Context(), mine(ready), o.upstream.send)
		mustBe(t, err, task.ErrClosed)
		next := branch(t, o.store, nil)
		next.approve(t, pending.ID)
		for _, held := range []task.Task{pending, ready} {
			got, err := next.Wait(t.Context(), mine(held), next.upstream.send)
			if err != nil {
				t.Fatal(err)
			}
			mustState(t, got, task.Completed)
		}
		if len(o.upstream.entries()) != 0 {
			t.Error("a closed service ran a call")
		}
	})
}

// A call that does not finish in time is interrupted. Its outcome is unknown.
func TestCloseInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, func(c *approval.Config) { c.Durable = true })
		o.Contact(t.Context(), mine(held), o.upstream.slow(50*time.Second))
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		if err := o.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v", err)
		}
		after := o.now(t, held.ID)
		mustState(t, after, task.Failed)
		if f := after.Failure; f.Stage != lifecycle.StageExecutorLost || f.Ran != task.RanUnknown {
			t.Errorf("failure = %+v", f)
		}
	})
}

// An answer survives a store that fails for a moment.
func TestAnswerSurvivesStoreFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		flaky := &flakyStore{Store: o.store}
		o = branch(t, flaky, nil)
		held := o.hold(t, call("ann", "/a"))
		o.approve(t, held.ID)
		o.Contact(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) {
			flaky.failures = 4
			return answer(`{}`), nil
		}))
		pass(5 * time.Second)
		mustState(t, o.now(t, held.ID), task.Completed)
		if flaky.failures != 0 {
			t.Error("the store did not fail")
		}
	})
}

// A flakyStore fails to write for a while.
type flakyStore struct {
	gatestore.Store

	failures int
}

func (f *flakyStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if f.failures > 0 {
		f.failures--
		return errors.New("disk on fire")
	}
	return f.Store.Swap(ctx, t, notes...)
}

// A large answer survives a store that fails to write some of its chunks, as a small answer
// does. If the store fails for longer, the result of an upstream task is fetched again.
func TestLargeAnswerSurvivesStoreFailure(t *testing.T) {
	large := `{"content":["` + strings.Repeat("x", 300<<10) + `"]}`
	for name, tt := range map[string]struct {
		nested bool
		once   bool          // one write fails, or all of them
		during time.Duration // from the arrival of the answer
		state  task.State
	}{
		"plain, once":             {false, true, time.Minute, task.Completed},
		"plain, for a while":      {false, false, 20 * time.Second, task.Completed},
		"plain, for too long":     {false, false, time.Minute, task.Failed},
		"nested, once":            {true, true, time.Minute, task.Completed},
		"nested, for a while":     {true, false, 20 * time.Second, task.Completed},
		"nested, for a long time": {true, false, time.Minute, task.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &chunklessStore{once: tt.once}
				change := func(c *approval.Config) { store.Store, c.Store = c.Store, store }
				r := newRemote()
				r.outcome = func() (approval.Outcome, error) {
					store.failFor(tt.during)
					return answer(large), nil
				}
				var o *fixture
				var held task.Task
				if tt.nested {
					r.report.State = gatetask.UpstreamReady
					o, held = nested(t, r, change)
					w := o.wait(t.Context(), mine(held), r)
					defer func() { <-w.done }()
				} else {
					o, held = approved(t, change)
					o.Contact(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) { return r.outcome() }))
				}
				pass(3 * time.Minute)
				if store.failures.Load() == 0 {
					t.Error("the store did not fail")
				}
				after := o.now(t, held.ID)
				mustState(t, after, tt.state)
				if tt.state == task.Failed {
					if f := after.Failure; f.Stage != lifecycle.StageExecutorLost || f.Ran != task.RanYes || f.Retriable {
						t.Errorf("failure %+v", f)
					}
					return
				}
				if text, _, err := o.result(t, mine(held)); err != nil || text != large {
					t.Errorf("answer of %d of %d bytes, %v", len(text), len(large), err)
				}
			})
		})
	}
}

// A chunklessStore fails to write chunks for a while.
type chunklessStore struct {
	gatestore.Store

	once     bool // it fails once
	begin    sync.Once
	until    atomic.Pointer[time.Time]
	failures atomic.Int64
}

// failFor makes the store fail from now on, unless it has failed before.
func (s *chunklessStore) failFor(long time.Duration) {
	s.begin.Do(func() {
		until := time.Now().Add(long)
		s.until.Store(&until)
	})
}

// WriteChunk implements [task.Blobs].
func (s *chunklessStore) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if until := s.until.Load(); until != nil && time.Now().Before(*until) && (s.failures.Add(1) == 1 || !s.once) {
		return errors.New("disk on fire")
	}
	return s.Store.WriteChunk(ctx, ref, n, data)
}
