package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A lossyStore makes some changes but reports that their outcome is unknown.
type lossyStore struct {
	gatestore.Store

	loses func(task.Task) bool // whether the confirmation of this change is lost
	until chan struct{}        // delays the error until it is closed; nil for no delay
}

// Swap implements [task.Store].
func (s *lossyStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	err := s.Store.Swap(ctx, t, notes...)
	if err != nil || !s.loses(t) {
		return err
	}
	if s.until != nil {
		<-s.until
	}
	return &task.Error{Kind: task.ErrUnavailable}
}

// Create implements [task.Store].
func (s *lossyStore) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	err := s.Store.Create(ctx, t, l, notes...)
	if err != nil || !s.loses(t) {
		return err
	}
	return &task.Error{Kind: task.ErrUnavailable}
}

// A call whose task was stored counts as held, although the store did not confirm it. Otherwise
// the client would make it again while it is approved and runs.
func TestLostAnswerToCreation(t *testing.T) {
	for name, c := range map[string]approval.Call{
		"needs no approval":        {Verdict: policy.Verdict{Action: policy.Forward}},
		"needs no approval, alone": {Verdict: policy.Verdict{Action: policy.Forward}, SharedOwner: true},
		"needs approval":           {Verdict: held},
		"needs approval, alone":    {Verdict: held, SharedOwner: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newFakeUpstream()
				o := open(t, func(cfg *approval.Config) {
					cfg.Store = &lossyStore{Store: cfg.Store, loses: once(func(task.Task) bool { return true })}
					cfg.Start = approval.StartOnApproval
					cfg.Send = func(task.Task) approval.Sender { return l.send }
				})
				o.rule(c.Verdict)
				made := call("agent", "/a")
				made.Verdict, made.SharedOwner = c.Verdict, c.SharedOwner
				kept, attached, err := o.Hold(t.Context(), made)
				if err != nil || attached {
					t.Fatalf("Hold: %v, attached %t; want the stored task", err, attached)
				}
				stop := o.runHousekeeping(t)
				defer stop()
				if c.Verdict.Action == policy.Approve {
					if _, err := o.decide(t.Context(), kept.ID, alice, approval.Approve, ""); err != nil {
						t.Fatal(err)
					}
				}
				pass(time.Minute)
				mustState(t, o.now(t, kept.ID), task.Completed)
				if n := len(l.entries()); n != 1 {
					t.Errorf("ran %d times", n)
				}
			})
		})
	}
}

// once returns a function that returns what, but true at most once.
func once(what func(task.Task) bool) func(task.Task) bool {
	var was atomic.Bool
	return func(t task.Task) bool { return what(t) && !was.Swap(true) }
}

// A run that stored the upstream's question without confirmation does not ask again after the
// client has answered and the upstream was called again.
func TestLostAnswerToQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		r.asks = json.RawMessage(`{"a":{}}`)
		noticed, second := make(chan struct{}), make(chan struct{})
		r.before = func() {
			if r.count("call") == 2 {
				<-second
			}
		}
		o, held := approved(t, func(c *approval.Config) {
			c.Store = &lossyStore{Store: c.Store, loses: once(task.Task.AwaitsInput), until: noticed}
		})
		if _, err := o.Contact(t.Context(), mine(held), r); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		respond := func() {
			if _, err := o.Respond(t.Context(), mine(held), json.RawMessage(`{"a":1}`), r); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		respond()
		close(noticed)
		pass(5 * time.Second)
		close(second)
		synctest.Wait()
		if o.now(t, held.ID).AwaitsInput() {
			t.Error("the client got the question again")
			respond()
		}
		mustState(t, o.now(t, held.ID), task.Completed)
		if n := r.count("call"); n != 2 {
			t.Errorf("the upstream was called %d times; want 2", n)
		}
	})
}

// A run that stored the id of an upstream task without confirmation does not touch that task
// while another replica works on it.
func TestLostAnswerToUpstreamTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		noticed, fetched := make(chan struct{}), make(chan struct{})
		o, held := approved(t, func(c *approval.Config) {
			first := once(func(t task.Task) bool { return t.Execution != nil && t.Execution.UpstreamTask != "" })
			c.Store = &lossyStore{Store: c.Store, loses: first, until: noticed}
		})
		if _, err := o.Contact(t.Context(), mine(held), r); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.say(func(r *approval.Report) { r.State = gatetask.UpstreamReady })
		r.outcome = func() (approval.Outcome, error) { <-fetched; return answer(`{"content":[]}`), nil }
		w := branch(t, o.store, nil).wait(t.Context(), mine(held), r)
		synctest.Wait()
		close(noticed)
		pass(5 * time.Second)
		if n := r.count("cancel u1"); n != 0 {
			t.Errorf("%d cancellations of the upstream task while its result was fetched", n)
		}
		close(fetched)
		<-w.done
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Completed)
	})
}

// A run that stored its answer without confirmation is reported like any other.
func TestLostAnswerToCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, held := approved(t, func(c *approval.Config) {
			c.Store = &lossyStore{Store: c.Store, loses: func(t task.Task) bool { return t.State == task.Completed }}
		})
		if _, err := o.Contact(t.Context(), mine(held), o.upstream.send); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		mustState(t, o.now(t, held.ID), task.Completed)
		if n := o.count(approval.Finished); n != 1 {
			t.Errorf("%d reports of the end; want 1", n)
		}
	})
}

// A gate that does not know whether it has claimed a call finds out, and makes the call once if
// it has.
func TestLostAnswerToClaim(t *testing.T) {
	running := func(t task.Task) bool { return t.State == task.Executing }
	again := func(t task.Task) bool { return running(t) && t.Execution.Answers != nil && !t.Execution.Detached() }
	for name, tt := range map[string]struct {
		loses func(task.Task) bool
		asks  bool
		calls int
	}{
		"the first call":              {once(running), false, 1},
		"the first call, all changes": {running, false, 1},
		"a call with answers":         {again, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, held := approved(t, func(c *approval.Config) { c.Store = &lossyStore{Store: c.Store, loses: tt.loses} })
				defer o.runHousekeeping(t)()
				r := newRemote()
				r.asks = json.RawMessage(`{"a":{}}`)
				send := o.upstream.send
				if tt.asks {
					send = r
				}
				w := o.wait(t.Context(), mine(held), send)
				if tt.asks {
					<-w.done
					if _, err := o.Respond(t.Context(), mine(held), json.RawMessage(`{"a":1}`), r); err != nil {
						t.Fatal(err)
					}
				}
				pass(time.Minute)
				mustState(t, o.now(t, held.ID), task.Completed)
				if n := len(o.upstream.entries()) + r.count("call"); n != tt.calls {
					t.Errorf("the upstream was called %d times; want %d", n, tt.calls)
				}
			})
		})
	}
}

// A refusingStore fails to make changes for a moment, and reports that their outcome is
// unknown.
type refusingStore struct {
	gatestore.Store

	refuse func(task.Task) bool
}

// Swap implements [task.Store].
func (s *refusingStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if s.refuse(t) {
		return errors.New("no answer")
	}
	return s.Store.Swap(ctx, t, notes...)
}

// A call that could not be claimed at once does not run if policy denies it by then.
func TestDeniedDuringClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var denied atomic.Bool
		running := once(func(t task.Task) bool { return t.State == task.Executing })
		o, held := approved(t, func(c *approval.Config) {
			judge := c.Judge
			c.Judge = func(call policy.Call) policy.Verdict {
				if denied.Load() {
					return policy.Verdict{Action: policy.Deny}
				}
				return judge(call)
			}
			c.Store = &refusingStore{Store: c.Store, refuse: func(t task.Task) bool {
				refused := running(t)
				if refused {
					denied.Store(true)
				}
				return refused
			}}
		})
		defer o.runHousekeeping(t)()
		o.wait(t.Context(), mine(held), o.upstream.send)
		pass(time.Minute)
		o.Contact(t.Context(), mine(held), o.upstream.send)
		synctest.Wait()
		if runs := o.upstream.entries(); len(runs) != 0 {
			t.Errorf("ran %v; want no call", runs)
		}
		mustState(t, o.now(t, held.ID), task.Failed)
	})
}

// A deafStore makes each change, but fails if the caller's context has ended meanwhile.
type deafStore struct {
	gatestore.Store

	meanwhile func(task.Task)
}

// Swap implements [task.Store].
func (s *deafStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	s.meanwhile(t)
	err := s.Store.Swap(context.WithoutCancel(ctx), t, notes...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// A client that disconnects while its approved call is claimed does not lose it.
func TestClientLeavesDuringClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		o, held := approved(t, func(c *approval.Config) {
			c.Store = &deafStore{Store: c.Store, meanwhile: func(t task.Task) {
				if t.State == task.Executing {
					leave()
				}
			}}
		})
		o.Contact(ctx, mine(held), o.upstream.send)
		synctest.Wait()
		mustState(t, o.now(t, held.ID), task.Completed)
		if runs := o.upstream.entries(); len(runs) != 1 {
			t.Errorf("ran %v; want one call", runs)
		}
	})
}

// A received answer is stored when the store recovers, however long that takes. The gate does
// not consider its own run dead meanwhile.
func TestAnswerSurvivesLongStoreOutage(t *testing.T) {
	for _, long := range []time.Duration{24 * time.Second, 2 * time.Minute, 10 * time.Minute} {
		t.Run(long.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(troubledStore)
				o, held := approved(t, func(c *approval.Config) {
					store.Store = c.Store
					c.Store = store
				})
				defer o.runHousekeeping(t)()
				w := o.wait(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) {
					time.Sleep(9 * time.Second) // the lease is about to be renewed
					store.down.Store(true)
					return answer(`{"content":[]}`), nil
				}))
				pass(9*time.Second + long)
				store.down.Store(false)
				back := time.Now()
				<-w.done
				if w.err != nil {
					t.Fatal(w.err)
				}
				mustState(t, w.task, task.Completed)
				if late := time.Since(back); late > 2*time.Second {
					t.Errorf("the answer was stored %v after the store recovered", late)
				}
			})
		})
	}
}

// Requests that wait for a call whose answer cannot be stored do not poll the store all the
// time.
func TestWaitForUnstoredAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store *touchStore
		writes := new(lapsingStore)
		o, held := approved(t, func(c *approval.Config) {
			writes.Store = c.Store
			store = &touchStore{Store: writes}
			c.Store = store
		})
		store.about = held.ID
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		follower, err := o.Follow(ctx, "ann", []task.ID{held.ID})
		if err != nil {
			t.Fatal(err)
		}
		defer follower.Close()
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			for ctx.Err() == nil {
				follower.Next(ctx, time.Hour)
			}
		}()
		w := o.wait(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) {
			writes.off.Store(true)
			return answer(`{"content":[]}`), nil
		}))
		pass(3 * time.Minute) // the lease lasts for 30 seconds of them
		if n := store.reads.Load(); n > 1000 {
			t.Errorf("the task was read %d times in three minutes", n)
		}
		writes.off.Store(false)
		<-w.done
		if w.err != nil {
			t.Fatal(w.err)
		}
		mustState(t, w.task, task.Completed)
		stop()
		<-followed
	})
}

// Close does not wait forever for an unavailable store.
func TestCloseDuringStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(troubledStore)
		o, held := approved(t, func(c *approval.Config) {
			store.Store = c.Store
			c.Store, c.Durable = store, true
		})
		o.Contact(t.Context(), mine(held), plain(func(context.Context, []byte) (approval.Outcome, error) {
			store.down.Store(true)
			return answer(`{"content":[]}`), nil
		}))
		pass(2 * time.Minute)
		ctx, stop := context.WithTimeout(t.Context(), 40*time.Second)
		defer stop()
		began := time.Now()
		if err := o.Close(ctx); err != nil {
			t.Errorf("Close = %v; want it to wait for the end of the run", err)
		}
		if took := time.Since(began); took < 29*time.Second || took > 32*time.Second {
			t.Errorf("Close took %v; want about a lease", took)
		}
		store.down.Store(false)
		pass(time.Minute)
		mustState(t, o.now(t, held.ID), task.Executing)
		after, err := branch(t, o.store, nil).Contact(t.Context(), mine(held), nil)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, after, task.Failed)
	})
}

// A cutOffStore fails reads and writes while it is off.
type cutOffStore struct{ lapsingStore }

// Get implements [task.Store].
func (s *cutOffStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if s.off.Load() {
		return task.Task{}, errors.New("cut off")
	}
	return s.Store.Get(ctx, ref)
}

// A replica that lost its lease while it fetched a result stops when another replica fetches
// it, and does not overwrite that replica's result.
func TestReplacedFetcherStops(t *testing.T) {
	for name, tt := range map[string]struct{ read, done bool }{
		"unread": {}, "read": {read: true},
		"unread, other fetch done": {done: true}, "read, other fetch done": {read: true, done: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := func(letter string) string { return `{"content":["` + strings.Repeat(letter, 300<<10) + `"]}` }
				r := newRemote()
				var store *cutOffStore
				o, held := nested(t, r, func(c *approval.Config) {
					store = &cutOffStore{lapsingStore{Store: c.Store}}
					c.Store, c.Execution = store, 5*time.Minute
				})
				r.say(func(r *approval.Report) { r.State = gatetask.UpstreamReady })
				fetch := func(o *fixture, part string) (*waiter, *io.PipeWriter) {
					body, upstream := io.Pipe()
					r.outcome = func() (approval.Outcome, error) { return approval.Outcome{Body: body}, nil }
					w := o.wait(t.Context(), mine(held), r)
					io.WriteString(upstream, part)
					<-w.done
					return w, upstream
				}
				late, lateUpstream := fetch(o, text("x")[:100<<10])
				if tt.read {
					reading, stop := context.WithCancel(t.Context())
					defer stop()
					o.Open(reading, late.task)
				}
				store.off.Store(true)
				pass(31 * time.Second)
				other := branch(t, o.store, func(c *approval.Config) { c.Execution = 5 * time.Minute })
				_, upstream := fetch(other, text("y")[:290<<10])
				end := func() {
					io.WriteString(upstream, text("y")[290<<10:])
					upstream.Close()
					synctest.Wait()
				}
				if tt.done {
					end()
				}
				store.off.Store(false)
				pass(15 * time.Second) // it tries to renew its lease
				go func() {
					io.WriteString(lateUpstream, text("x")[100<<10:])
					lateUpstream.Close()
				}()
				synctest.Wait()
				if !tt.done {
					end()
				}
				if got, _, err := other.result(t, mine(held)); err != nil || got != text("y") {
					t.Errorf("result of %d bytes, %d of them from the replaced replica, %v", len(got), strings.Count(got, "x"), err)
				}
			})
		})
	}
}

// A decision counts if the store has recorded it, even without confirmation. Its grant is
// stored.
func TestLostAnswerToDecision(t *testing.T) {
	decided := func(t task.Task) bool { return t.State == task.Approved || t.State == task.Rejected }
	for name, what := range map[string]approval.Decision{"approval": approval.Approve, "rejection": approval.Reject} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, func(c *approval.Config) { c.Store = &lossyStore{Store: c.Store, loses: decided} })
				held := o.hold(t, call("agent", "a"))
				after, err := o.decide(t.Context(), held.ID, approval.Approver{Name: "alice"}, what, "")
				if err != nil || !decided(after) || o.count(approval.Decided) != 1 {
					t.Errorf("state %s, %d reports, error %v", after.State, o.count(approval.Decided), err)
				}
			})
		})
	}
	t.Run("standing approval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := open(t, func(c *approval.Config) { c.Store = &lossyStore{Store: c.Store, loses: decided} })
			o.allowGrants("ops")
			o.grant(t, toolCall(`{"path":"/a"}`), terms(2))
		})
	})
}

// An approver is told if it is unknown whether the decision was recorded, and if it was not
// recorded.
func TestUnconfirmedDecisionIsReported(t *testing.T) {
	decided := func(t task.Task) bool { return t.State == task.Rejected }
	for name, tt := range map[string]struct {
		store  func(gatestore.Store) gatestore.Store
		unsure bool
	}{
		"not recorded": {func(s gatestore.Store) gatestore.Store { return &refusingStore{Store: s, refuse: decided} }, false},
		"not known":    {func(s gatestore.Store) gatestore.Store { return &silentStore{Store: s, after: decided} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, func(c *approval.Config) { c.Store = tt.store(c.Store) })
				held := o.hold(t, call("agent", "a"))
				_, err := o.decide(t.Context(), held.ID, approval.Approver{Name: "alice"}, approval.Reject, "")
				if err == nil || errors.Is(err, approval.ErrUnsure) != tt.unsure || o.count(approval.Decided) != 0 {
					t.Errorf("%d reports, error %v", o.count(approval.Decided), err)
				}
			})
		})
	}
}

// A silentStore fails a change and all later reads.
type silentStore struct {
	gatestore.Store

	after  func(task.Task) bool
	silent atomic.Bool
}

// Swap implements [task.Store].
func (s *silentStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if s.after(t) {
		s.silent.Store(true)
		return &task.Error{Kind: task.ErrUnavailable}
	}
	return s.Store.Swap(ctx, t, notes...)
}

// Get implements [task.Store].
func (s *silentStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	if s.silent.Load() {
		return task.Task{}, &task.Error{Kind: task.ErrUnavailable}
	}
	return s.Store.Get(ctx, ref)
}
