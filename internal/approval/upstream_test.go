package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A remote is an upstream that makes tasks of calls, and counts what it is
// asked.
type remote struct {
	mu      sync.Mutex
	counts  map[string]int
	report  approval.Report
	outcome func() (approval.Outcome, error) // what is fetched
	failing error                            // of polls
	before  func()                           // a call is answered
	asks    json.RawMessage                  // what is asked before the call is answered, once
	again   error                            // of the call that goes on with the answers
	heard   []string
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

func (r *remote) Call(_ context.Context, t task.Task) (approval.Outcome, error) {
	r.note("call")
	if r.before != nil {
		r.before()
	}
	if r.asks != nil && t.Execution.Answers == nil {
		return approval.Outcome{Report: &approval.Report{State: task.UpstreamAsks, InputRequests: r.asks, RequestState: "state"}}, nil
	}
	if r.asks != nil {
		r.heard = append(r.heard, string(t.Execution.Answers)+" "+t.Execution.RequestState)
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

// nested returns an office with a call that the upstream has made a task of.
func nested(t *testing.T, r *remote, change func(*approval.Config)) (*office, task.Task) {
	t.Helper()
	o, held := approved(t, change)
	if _, err := o.Contact(t.Context(), mine(held), r); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return o, o.now(t, held.ID)
}

// GOV-004 10.3 "No client polling", NF-001.3: nothing at all is done about a call that runs as a task of the
// upstream's while nobody asks: the store is not touched, and no lease lapses.
func TestNestedCallNeedsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		o, before := nested(t, r, nil)
		store := &touchStore{GateStore: o.store, about: before.ID}
		o = branch(t, store, nil)
		if !before.Execution.Detached() || before.Execution.UpstreamTask != "u1" {
			t.Fatalf("execution %+v; want the upstream's task and nobody at it", before.Execution)
		}
		stop := o.runHousekeeping(t)
		pass(10 * time.Minute)
		stop()
		after := o.now(t, before.ID)
		if diff := cmp.Diff(before, after); diff != "" || r.count("poll") != 0 {
			t.Errorf("polled %d times; the task changed:\n%s", r.count("poll"), diff)
		}
		if reads, writes := store.reads.Load()-1, store.writes.Load(); reads != 0 || writes != 0 { // one read is the test's
			t.Errorf("the task was read %d times and written %d times; want the store not to be touched", reads, writes)
		}
		// Another replica goes on with it.
		other := branch(t, o.store, nil)
		r.say(func(r *approval.Report) { r.State = task.UpstreamReady })
		got, err := other.Wait(t.Context(), mine(before), r)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, got, task.Completed)
	})
}

// A touchStore counts what is done about one task.
type touchStore struct {
	task.GateStore

	about         task.ID
	reads, writes atomic.Int64
}

// Get implements [task.Store].
func (s *touchStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if ref.ID == s.about {
		s.reads.Add(1)
	}
	return s.GateStore.Get(ctx, ref)
}

// List implements [task.Store]. The census for metrics, which reads the heads of
// all tasks, is not about this one.
func (s *touchStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	page, err := s.GateStore.List(ctx, q)
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
	return s.GateStore.Watch(ctx, ref)
}

// Swap implements [task.Store].
func (s *touchStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if t.ID == s.about {
		s.writes.Add(1)
	}
	return s.GateStore.Swap(ctx, t, notes...)
}

// A stuckRemote never answers when it is told to stop.
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

// GOV-004 F-007.4: an upstream that is told to stop has that long to answer, and
// is not waited for any longer. The client is not kept waiting at all.
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
			t.Errorf("the client waited for %v", took)
		}
		if took := (<-r.gaveUp).Sub(began); took != 7*time.Second {
			t.Errorf("the upstream was waited for during %v; want 7s", took)
		}
	})
}

// F-005.12: an upstream that cannot be asked changes nothing. Its
// message and its poll interval are passed on within bounds.
// GOV-004 F-005.9.
func TestPollIsPassedOn(t *testing.T) {
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
		r.failing = &approval.SendError{Stage: task.StageUpstreamTimeout, Err: errors.New("slow")}
		_, err := o.Contact(t.Context(), mine(held), r)
		if failed, ok := errors.AsType[*approval.SendError](err); !ok || failed.Stage != task.StageUpstreamTimeout {
			t.Errorf("err = %v; want to know that the upstream was slow", err)
		}
		if after := o.now(t, held.ID); after.Version != version || after.State != task.Executing {
			t.Errorf("the task changed: %+v", after)
		}
		r.failing = &approval.SendError{Stage: task.StageUpstreamGone, Err: errors.New("purged")}
		got, err := o.Contact(t.Context(), mine(held), r)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, got, task.Failed)
		if got.Failure.Stage != task.StageUpstreamGone || got.Failure.Ran != task.RanUnknown {
			t.Errorf("failure %+v", got.Failure)
		}
	})
}

// An outcome that breaks off on the way is fetched again, at the pace of polls.
func TestFetchBreaksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		o, held := nested(t, r, nil)
		r.say(func(r *approval.Report) { r.State = task.UpstreamReady })
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
			t.Errorf("the result is %.100s, %v", text, err)
		}
	})
}

// A replica that dies while it fetches the outcome holds others up no longer
// than its lease.
func TestFetcherDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		r.report.State = task.UpstreamReady
		o, held := nested(t, r, nil)
		now := time.Now()
		dead := task.Resume{By: "a replica that died", LeaseUntil: now.Add(30 * time.Second)}
		if _, err := task.Advance(t.Context(), o.store, mine(held), dead, now); err != nil {
			t.Fatal(err)
		}
		got, err := o.Wait(t.Context(), mine(held), r)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, got, task.Completed)
		if took := time.Since(now); took < 30*time.Second || took > 40*time.Second || r.count("fetch") != 1 {
			t.Errorf("after %v and %d fetches; want one, when the lease lapsed", took, r.count("fetch"))
		}
	})
}

// A task that the upstream makes of a call which nobody wants any more is
// cancelled there, though the gate's task has ended and knows nothing of it.
func TestCancelWhileUpstreamTakesCall(t *testing.T) {
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
			t.Errorf("the upstream heard %v; want its task cancelled", r.counts)
		}
	})
}

// The owner answers the questions that an upstream asks before it answers; then the
// call goes on, once, if policy still allows it, wherever the last answer came.
func TestCallGoesOnWithAnswers(t *testing.T) {
	notSent := &approval.SendError{Stage: task.StageUpstreamUnreachable, Ran: task.RanNo, Err: errors.New("connection refused")}
	for name, tt := range map[string]struct {
		between func(o *office)
		again   error
		state   task.State
		calls   int
	}{
		"allowed":       {func(*office) {}, nil, task.Completed, 2},
		"denied by now": {func(o *office) { o.rule(policy.Verdict{Action: policy.Deny}) }, nil, task.Failed, 1},
		"not sent":      {func(*office) {}, notSent, task.Failed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRemote()
				r.asks, r.again = json.RawMessage(`{"a":{},"b":{}}`), tt.again
				o, held := nested(t, r, nil)
				got, err := o.Wait(t.Context(), mine(held), r)
				if err != nil || !got.Asks() {
					t.Fatalf("Wait = %+v, %v; want it to ask", got.Execution, err)
				}
				pass(time.Minute) // no lease, so nothing lapses
				other := branch(t, o.store, nil)
				if got, err = other.Respond(t.Context(), mine(held), json.RawMessage(`{"a":1}`), r); err != nil || !got.Asks() {
					t.Fatalf("Respond = %+v, %v; want it to ask on", got.Execution, err)
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
				if tt.calls == 2 && !cmp.Equal(r.heard, []string{`{"a":1,"b":2} state`}) {
					t.Errorf("the upstream heard %v", r.heard)
				}
				if f := o.now(t, held.ID).Failure; f != nil && (f.Ran != task.RanUnknown || f.Retriable) {
					t.Errorf("failure %+v; want it unknown whether it ran, because the upstream had begun", f)
				}
			})
		})
	}
}

// A lapsing store does not let leases be renewed while it is cut off.
type lapsingStore struct {
	task.GateStore

	off atomic.Bool
}

func (s *lapsingStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if s.off.Load() {
		return errors.New("cut off")
	}
	return s.GateStore.Swap(ctx, t, notes...)
}

// A replica that lost its lease while it fetched an outcome, and then fails to,
// leaves alone what the one after it has kept.
func TestLateFetcherLeavesTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := `{"content":["` + strings.Repeat("x", 300<<10) + `"]}`
		r := newRemote()
		var store *lapsingStore
		o, held := nested(t, r, func(c *approval.Config) {
			store = &lapsingStore{GateStore: c.Store}
			c.Store, c.Execution = store, 5*time.Minute
		})
		r.say(func(r *approval.Report) { r.State = task.UpstreamReady })
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
			t.Errorf("the outcome has %d of %d bytes, %v", len(text), len(large), err)
		}
	})
}

// A desk fetches one outcome twice if its clock is set forward: the lease of the first
// fetch seems to have lapsed. That one ends, and does not end what the second keeps, or
// discard it. Everybody who waits reads that.
func TestTwoFetchesOnOneDesk(t *testing.T) {
	for name, broken := range map[string]error{"it ends well": nil, "it breaks off": errors.New("cut off")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fetchTwice(t, broken) })
		})
	}
}

// fetchTwice has an outcome fetched twice. The second fetch breaks off if broken is not
// nil.
func fetchTwice(t *testing.T, broken error) {
	var clock wall
	r := newRemote()
	o, held := nested(t, r, func(c *approval.Config) { c.Now, c.Execution = clock.now, 5*time.Minute })
	r.say(func(r *approval.Report) { r.State = task.UpstreamReady })
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
		t.Error("the first fetch goes on")
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
		if broken != nil && !errors.Is(err, approval.ErrBrokenOff) || broken == nil && (err != nil || string(text) != large) {
			t.Errorf("%d of %d bytes, %v", len(text), len(large), err)
		}
	}
	synctest.Wait()
	if want := map[bool]task.State{true: task.Completed, false: task.Executing}[broken == nil]; o.now(t, held.ID).State != want {
		t.Errorf("the task is %s; want %s", o.now(t, held.ID).State, want)
	}
}
