package approval_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An upstream that hands out its outcome with tasks/get, and forgets its task, does not make
// the gate drop the outcome that it is keeping, whichever replica asks the upstream again.
func TestUpstreamForgetsWhileOutcomeIsKept(t *testing.T) {
	for name, replica := range map[string]bool{"same replica": false, "other replica": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := `{"content":["` + strings.Repeat("x", 200<<10) + `"]}`
				r := newRemote()
				o, held := nested(t, r, func(c *approval.Config) { c.Execution = 5 * time.Minute })
				body, upstream := io.Pipe()
				r.say(func(r *approval.Report) { r.Outcome = &approval.Outcome{Body: body} })
				first := make(chan task.Task)
				go func() { got, _ := o.Contact(t.Context(), mine(held), r); first <- got }()
				_, _ = io.WriteString(upstream, text[:100<<10])
				synctest.Wait()
				// The upstream has forgotten the task by now.
				r.mu.Lock()
				r.report.Outcome = nil
				r.failing = &approval.SendError{Stage: task.StageUpstreamGone, Ran: task.RanUnknown, Err: errors.New("no such task")}
				r.mu.Unlock()
				second := o
				if replica {
					second = branch(t, o.store, nil)
				}
				if got, err := second.Contact(t.Context(), mine(held), r); err != nil || got.State.Terminal() {
					t.Errorf("the second look: %s, %+v, %v", got.State, got.Failure, err)
				}
				go func() { _, _ = io.WriteString(upstream, text[100<<10:]); upstream.Close() }()
				<-first
				synctest.Wait()
				after := o.now(t, held.ID)
				if after.State != task.Completed {
					t.Errorf("state %s, %+v; the whole outcome had arrived here", after.State, after.Failure)
				}
			})
		})
	}
}

// A replica that lost its lease, and hears that the upstream has no such task because the
// replica after it has fetched the outcome, does not end the task.
func TestReplacedFetcherHearsThatTaskIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := `{"content":["` + strings.Repeat("y", 200<<10) + `"]}`
		r := newRemote()
		var store *lapsingStore
		o, held := nested(t, r, func(c *approval.Config) {
			store = &lapsingStore{GateStore: c.Store}
			c.Store, c.Execution = store, 5*time.Minute
		})
		r.say(func(r *approval.Report) { r.State = task.UpstreamReady })
		answered := make(chan struct{})
		r.outcome = func() (approval.Outcome, error) {
			<-answered
			return approval.Outcome{}, &approval.SendError{Stage: task.StageUpstreamGone, Ran: task.RanUnknown, Err: errors.New("no such task")}
		}
		late := o.wait(t.Context(), mine(held), r)
		synctest.Wait()
		store.off.Store(true) // suspended, or cut off
		pass(31 * time.Second)
		body, upstream := io.Pipe()
		r.outcome = func() (approval.Outcome, error) { return approval.Outcome{Body: body}, nil }
		other := branch(t, o.store, func(c *approval.Config) { c.Execution = 5 * time.Minute })
		w := other.wait(t.Context(), mine(held), r)
		_, _ = io.WriteString(upstream, text[:100<<10])
		synctest.Wait()
		store.off.Store(false)
		close(answered) // before the guard of the first looks again
		synctest.Wait()
		go func() { _, _ = io.WriteString(upstream, text[100<<10:]); upstream.Close() }()
		<-w.done
		synctest.Wait()
		<-late.done
		after := o.now(t, held.ID)
		if after.State != task.Completed {
			t.Errorf("state %s, %+v; the whole outcome had arrived at the other replica", after.State, after.Failure)
		}
	})
}
