package approval_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A remote is an upstream that makes tasks of calls, and counts its requests.
type remote struct {
	mu      sync.Mutex
	counts  map[string]int
	report  approval.Report
	outcome func() (approval.Outcome, error) // the result of the task
	failing error                            // the error of polls
	before  func()                           // runs before a call is answered
	asks    json.RawMessage                  // questions before the call is answered, asked once
	again   error                            // the error of the call that continues with the answers
	answers []string
}

func newRemote() *remote {
	return &remote{counts: make(map[string]int), report: approval.Report{Task: "u1"}, outcome: func() (approval.Outcome, error) { return answer(`{"content":[]}`), nil }}
}

func (r *remote) count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[what]
}

func (r *remote) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

func (r *remote) say(change func(*approval.Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
}

func (r *remote) Call(_ context.Context, t task.Task, _ approval.UpstreamRequest) (approval.Outcome, error) {
	r.note("call")
	if r.before != nil {
		r.before()
	}
	if r.asks != nil && t.Execution.Answers == nil {
		return approval.Outcome{Report: &approval.Report{State: gatetask.UpstreamAsks, InputRequests: r.asks, RequestState: "state"}}, nil
	}
	if r.asks != nil {
		r.answers = append(r.answers, string(t.Execution.Answers)+" "+t.Execution.RequestState)
		return answer(`{"content":["thanks"]}`), r.again
	}
	return approval.Outcome{Report: &r.report}, nil
}

func (r *remote) Poll(context.Context, task.Task) (approval.Report, error) {
	r.note("poll")
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report, r.failing
}

func (r *remote) Fetch(context.Context, task.Task) (approval.Outcome, error) {
	r.note("fetch")
	return r.outcome()
}

func (r *remote) Answer(context.Context, task.Task, json.RawMessage) error {
	r.note("answer")
	return nil
}

func (r *remote) Cancel(_ context.Context, t task.Task) error {
	r.note("cancel " + t.Execution.UpstreamTask)
	return nil
}

// nested returns a fixture with a call that runs as an upstream task.
func nested(t *testing.T, r *remote, change func(*approval.Config)) (*fixture, task.Task) {
	t.Helper()
	o, held := approved(t, change)
	if _, err := o.Contact(t.Context(), mine(held), r); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return o, o.now(t, held.ID)
}

// GOV-004 10.3 "No client polling", NF-001.3: while the owner does not ask about a call that
// runs as an upstream task, the gate does not use the store, and no lease expires.
func TestUpstreamTaskNeedsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		o, before := nested(t, r, nil)
		store := &touchStore{Store: o.store, about: before.ID}
		o = branch(t, store, nil)
		if !before.Execution.Detached() || before.Execution.UpstreamTask != "u1" {
			t.Fatalf("execution %+v; want an upstream task and no executor", before.Execution)
		}
		stop := o.runHousekeeping(t)
		pass(10 * time.Minute)
		stop()
		after := o.now(t, before.ID)
		if diff := cmp.Diff(before, after); diff != "" || r.count("poll") != 0 {
			t.Errorf("polled %d times; the task changed:\n%s", r.count("poll"), diff)
		}
		if reads, writes := store.reads.Load()-1, store.writes.Load(); reads != 0 || writes != 0 { // one read is the test's own
			t.Errorf("the task was read %d times and written %d times; want no access to the store", reads, writes)
		}
		// Another replica continues with the task.
		other := branch(t, o.store, nil)
		r.say(func(r *approval.Report) { r.State = gatetask.UpstreamReady })
		got, err := other.Wait(t.Context(), mine(before), r)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, got, task.Completed)
	})
}

// A touchStore counts the reads and writes of one task.
type touchStore struct {
	gatestore.Store

	about         task.ID
	reads, writes atomic.Int64
}

// Get implements [task.Store].
func (s *touchStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if ref.ID == s.about {
		s.reads.Add(1)
	}
	return s.Store.Get(ctx, ref)
}

// List implements [task.Store]. The count for metrics reads the outlines of all tasks and is
// not counted.
func (s *touchStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	page, err := s.Store.List(ctx, q)
	if !q.Heads && slices.ContainsFunc(page.Tasks, func(t task.Task) bool { return t.ID == s.about }) {
		s.reads.Add(1)
	}
	return page, err
}

// Watch implements [task.Watcher].
func (s *touchStore) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	if ref.ID == s.about {
		s.reads.Add(1)
	}
	return s.Store.Watch(ctx, ref)
}

// Swap implements [task.Store].
func (s *touchStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if t.ID == s.about {
		s.writes.Add(1)
	}
	return s.Store.Swap(ctx, t, notes...)
}

// A stuckRemote never answers a cancellation.
type stuckRemote struct {
	*remote

	gaveUp chan time.Time
}

// Cancel implements [approval.Sender].
func (r *stuckRemote) Cancel(ctx context.Context, _ task.Task) error {
	<-ctx.Done()
	r.gaveUp <- time.Now()
	return ctx.Err()
}

// GOV-004 F-007.4: the gate waits for the answer to a cancellation only for the configured
// time. The client does not wait at all.
func TestCancelTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &stuckRemote{remote: newRemote(), gaveUp: make(chan time.Time, 1)}
		o, held := nested(t, r.remote, func(c *approval.Config) { c.Cancel = 7 * time.Second })
		began := time.Now()
		after, err := o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann", Send: r})
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, after, task.Cancelled)
		if took := time.Since(began); took != 0 {
			t.Errorf("the client waited %v", took)
		}
		if took := (<-r.gaveUp).Sub(began); took != 7*time.Second {
			t.Errorf("the gate waited %v for the upstream; want 7s", took)
		}
	})
}

// F-005.12, GOV-004 F-005.9: a failed poll changes nothing. The upstream's message and poll
// interval are passed on, within limits.
func TestPollReportsUpstreamStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		o, held := nested(t, r, func(c *approval.Config) { c.Polling = task.Polling{Min: time.Second, Max: 10 * time.Second} })
		for asked, want := range map[time.Duration]time.Duration{time.Millisecond: time.Second, 5 * time.Second: 5 * time.Second, time.Hour: 10 * time.Second} {
			r.say(func(r *approval.Report) { r.PollInterval, r.Message = asked, "step\u202e "+asked.String() })
			got, err := o.Contact(t.Context(), mine(held), r)
			if err != nil || got.PollInterval != want || got.Execution.Message != "step "+asked.String() {
				t.Errorf("poll interval %v, message %q, %v; want %v", got.PollInterval, got.Execution.Message, err, want)
			}
		}
		version := o.now(t, held.ID).Version
		r.failing = &approval.SendError{Stage: lifecycle.StageUpstreamTimeout, Err: errors.New("slow")}
		_, err := o.Contact(t.Context(), mine(held), r)
		if failed, ok := errors.AsType[*approval.SendError](err); !ok || failed.Stage != lifecycle.StageUpstreamTimeout {
			t.Errorf("err = %v; want a timeout of the upstream", err)
		}
		if after := o.now(t, held.ID); after.Version != version || after.State != task.Executing {
			t.Errorf("the task changed: %+v", after)
		}
		r.failing = &approval.SendError{Stage: lifecycle.StageUpstreamGone, Err: errors.New("purged")}
		got, err := o.Contact(t.Context(), mine(held), r)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, got, task.Failed)
		if got.Failure.Stage != lifecycle.StageUpstreamGone || got.Failure.Ran != task.RanUnknown {
			t.Errorf("failure %+v", got.Failure)
		}
	})
}

// A result that breaks off is fetched again, at the rate of polls.
func TestBrokenFetchIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		o, held := nested(t, r, nil)
		r.say(func(r *approval.Report) { r.State = gatetask.UpstreamReady })
		tries := 0
		r.outcome = func() (approval.Outcome, error) {
			if tries++; tries < 4 {
				return approval.Outcome{Body: io.MultiReader(strings.NewReader(`{"content":["`+strings.Repeat("x", 1<<10)), brokenReader{errors.New("cut off")})}, nil
			}
			return answer(`{"content":[]}`), nil
		}
		began := time.Now()
		got, err := o.Wait(t.Context(), mine(held), r)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, got, task.Completed)
		if took := time.Since(began); took < 3*time.Second || r.count("fetch") != 4 || r.count("call") != 1 {
			t.Errorf("after %v, %d fetches and %d calls", took, r.count("fetch"), r.count("call"))
		}
		if text, _, err := o.result(t, mine(held)); err != nil || text != `{"content":[]}` {
			t.Errorf("result %.100s, %v", text, err)
		}
	})
}

// If a replica dies while it fetches the result, others wait only until its lease expires.
func TestDeadFetcherIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		r.report.State = gatetask.UpstreamReady
		o, held := nested(t, r, nil)
		now := time.Now()
		dead := lifecycle.Resume{By: "a replica that died", LeaseUntil: now.Add(30 * time.Second)}
		if _, err := lifecycle.Advance(t.Context(), o.store, mine(held), dead, now); err != nil {
			t.Fatal(err)
		}
		got, err := o.Wait(t.Context(), mine(held), r)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, got, task.Completed)
		if took := time.Since(now); took < 30*time.Second || took > 40*time.Second || r.count("fetch") != 1 {
			t.Errorf("after %v and %d fetches; want one, when the lease expired", took, r.count("fetch"))
		}
	})
}

// If the upstream makes a task of a call that was already canceled, that task is canceled too,
// although the gate's task has ended.
func TestLateUpstreamTaskIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, nil)
		r := newRemote()
		r.before = func() {
			if _, err := o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann", Send: r}); err != nil {
				t.Error(err)
			}
		}
		o.Contact(t.Context(), mine(held), r)
		synctest.Wait()
		mustState(t, o.now(t, held.ID), task.Cancelled)
		if r.count("cancel u1") != 1 {
			t.Errorf("requests to the upstream: %v; want a cancellation of its task", r.counts)
		}
	})
}

// The owner answers the upstream's questions. Then the call continues once, if policy still
// allows it, on the replica that got the last answer.
func TestCallResumesWithAnswers(t *testing.T) {
	notSent := &approval.SendError{Stage: lifecycle.StageUpstreamUnreachable, Ran: task.RanNo, Err: errors.New("connection refused")}
	for name, tt := range map[string]struct {
		between func(o *fixture)
		again   error
		state   task.State
		calls   int
	}{
		"allowed":                       {func(*fixture) {}, nil, task.Completed, 2},
		"denied before the last answer": {func(o *fixture) { o.rule(policy.Verdict{Action: policy.Deny}) }, nil, task.Failed, 1},
		"not sent":                      {func(*fixture) {}, notSent, task.Failed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRemote()
				r.asks, r.again = json.RawMessage(`{"a":{},"b":{}}`), tt.again
				o, held := nested(t, r, nil)
				got, err := o.Wait(t.Context(), mine(held), r)
				if err != nil || !got.AwaitsInput() {
					t.Fatalf("Wait = %+v, %v; want a question", got.Execution, err)
				}
				pass(time.Minute) // the task has no lease, so nothing expires
				other := branch(t, o.store, nil)
				if got, err = other.Respond(t.Context(), mine(held), json.RawMessage(`{"a":1}`), r); err != nil || !got.AwaitsInput() {
					t.Fatalf("Respond = %+v, %v; want the other question", got.Execution, err)
				}
				tt.between(o)
				if _, err = o.Respond(t.Context(), mine(held), json.RawMessage(`{"b":2}`), r); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				mustState(t, o.now(t, held.ID), tt.state)
				if r.count("call") != tt.calls {
					t.Errorf("%d calls; want %d", r.count("call"), tt.calls)
				}
				if tt.calls == 2 && !cmp.Equal(r.answers, []string{`{"a":1,"b":2} state`}) {
					t.Errorf("answers to the upstream: %v", r.answers)
				}
				if f := o.now(t, held.ID).Failure; f != nil && (f.Ran != task.RanUnknown || f.Retriable) {
					t.Errorf("failure %+v; want ran = unknown, because the upstream had begun", f)
				}
			})
		})
	}
}

// A lapsingStore fails to renew leases while it is off.
type lapsingStore struct {
	gatestore.Store

	off atomic.Bool
}

func (s *lapsingStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if s.off.Load() {
		return errors.New("cut off")
	}
	return s.Store.Swap(ctx, t, notes...)
}

// A replica that lost its lease while it fetched a result, and then fails, does not touch the
// result that the next replica has stored.
func TestReplacedFetcherKeepsNewResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := `{"content":["` + strings.Repeat("x", 300<<10) + `"]}`
		r := newRemote()
		var store *lapsingStore
		o, held := nested(t, r, func(c *approval.Config) {
			store = &lapsingStore{Store: c.Store}
			c.Store, c.Execution = store, 5*time.Minute
		})
		r.say(func(r *approval.Report) { r.State = gatetask.UpstreamReady })
		body, upstream := io.Pipe()
		r.outcome = func() (approval.Outcome, error) { return approval.Outcome{Body: body}, nil }
		late := o.wait(t.Context(), mine(held), r)
		go io.WriteString(upstream, large[:200<<10])
		<-late.done
		store.off.Store(true)
		r.outcome = func() (approval.Outcome, error) { return answer(large), nil }
		other := branch(t, o.store, nil)
		got, err := other.Wait(t.Context(), mine(held), r)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, got, task.Completed)
		store.off.Store(false)
		upstream.CloseWithError(errors.New("cut off"))
		synctest.Wait()
		if text, _, err := other.result(t, mine(held)); err != nil || text != large {
			t.Errorf("result of %d of %d bytes, %v", len(text), len(large), err)
		}
	})
}

// If its clock is set forward, a service may fetch one result twice, because the lease of the
// first fetch seems to have expired. The first fetch stops, and neither ends nor discards the
// result of the second one. All waiting clients read the second result.
func TestTwoFetchesOnOneReplica(t *testing.T) {
	for name, broken := range map[string]error{"it ends well": nil, "it breaks off": errors.New("cut off")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fetchTwice(t, broken) })
		})
	}
}

// fetchTwice fetches a result twice. The second fetch fails with broken if that is not nil.
func fetchTwice(t *testing.T, broken error) {
	var clock wall
	r := newRemote()
	o, held := nested(t, r, func(c *approval.Config) { c.Now, c.Execution = clock.now, 5*time.Minute })
	r.say(func(r *approval.Report) { r.State = gatetask.UpstreamReady })
	bodies := make(chan *io.PipeReader, 2)
	var upstream [2]*io.PipeWriter
	for i := range upstream {
		var body *io.PipeReader
		body, upstream[i] = io.Pipe()
		bodies <- body
	}
	r.outcome = func() (approval.Outcome, error) { return approval.Outcome{Body: <-bodies}, nil }
	first := o.wait(t.Context(), mine(held), r)
	synctest.Wait()
	clock.set(time.Minute)
	second := o.wait(t.Context(), mine(held), r)
	synctest.Wait()
	if n := r.count("fetch"); n != 2 {
		t.Fatalf("%d fetches; want two at the same time", n)
	}

	large := `{"content":["` + strings.Repeat("x", 300<<10) + `"]}`
	if _, err := io.WriteString(upstream[0], large); err == nil {
		t.Error("the first fetch did not stop")
	}
	half := len(large) / 2
	go func() {
		_, _ = io.WriteString(upstream[1], large[:half])
		<-first.done
		<-second.done
		if broken == nil {
			_, _ = io.WriteString(upstream[1], large[half:])
		}
		upstream[1].CloseWithError(broken)
	}()
	for _, one := range []*waiter{first, second} {
		<-one.done
		text, err := io.ReadAll(o.Open(t.Context(), one.task))
		if broken != nil && !errors.Is(err, approval.ErrTruncated) || broken == nil && (err != nil || string(text) != large) {
			t.Errorf("%d of %d bytes, %v", len(text), len(large), err)
		}
	}
	synctest.Wait()
	if want := map[bool]task.State{true: task.Completed, false: task.Executing}[broken == nil]; o.now(t, held.ID).State != want {
		t.Errorf("state %s; want %s", o.now(t, held.ID).State, want)
	}
}

// GOV-004 F-008.5, NF-004, F-007.5: the log has the id of the upstream task, that the task
// still existed when the call expired, and whether the upstream accepted the cancellation.
func TestUpstreamTaskIsLogged(t *testing.T) {
	expire := func(t *testing.T, o *fixture, _ task.Task, _ approval.Sender) {
		stop := o.runHousekeeping(t)
		pass(2 * time.Hour)
		stop()
	}
	cancel := func(t *testing.T, o *fixture, held task.Task, send approval.Sender) {
		if _, err := o.Cancel(t.Context(), mine(held), approval.Withdrawal{By: "ann", Send: send}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	}
	shutDown := func(t *testing.T, o *fixture, _ task.Task, _ approval.Sender) {
		if err := o.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	down := errors.New("down")
	for name, tt := range map[string]struct {
		end     func(*testing.T, *fixture, task.Task, approval.Sender)
		failing error // of cancellations
		want    []string
	}{
		"expired":                  {expire, nil, []string{`"level":"WARN","msg":"task overdue"`, `"upstream_task_id":"u1"`, `"to":"expired"`}},
		"cancelled":                {cancel, nil, []string{`"level":"INFO","msg":"cancellation sent to the upstream"`}},
		"cancelled, not sent":      {cancel, down, []string{`"level":"WARN","msg":"cancellation not sent to the upstream"`, `"err":"down"`}},
		"ends with gate":           {shutDown, nil, []string{`"level":"INFO","msg":"cancellation sent to the upstream"`}},
		"ends with gate, not sent": {shutDown, down, []string{`"level":"WARN","msg":"cancellation not sent to the upstream"`, `"err":"down"`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				r := &stoppable{remote: newRemote(), failing: tt.failing}
				o, held := nested(t, r.remote, func(c *approval.Config) {
					c.Log = logging.New(&log, "json", slog.LevelDebug)
					c.Send = func(task.Task) approval.Sender { return r }
				})
				wantLine(t, log.String(), held.ID, `"level":"DEBUG","msg":"Created upstream task"`, `"upstream_task_id":"u1"`)
				tt.end(t, o, held, r)
				wantLine(t, log.String(), held.ID, tt.want...)
			})
		})
	}
}

// wantLine fails the test unless one line of the log has the task and all the texts.
func wantLine(t *testing.T, log string, id task.ID, texts ...string) {
	t.Helper()
	texts = append(texts, `"task_id":"`+string(id)+`"`)
	for line := range strings.Lines(log) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return
		}
	}
	t.Errorf("no line with %q in\n%s", texts, log)
}
