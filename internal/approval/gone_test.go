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
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// If an upstream returns the result in tasks/get and then forgets its task, the gate keeps the
// result that it is storing, whichever replica polls again.
func TestResultSurvivesForgottenUpstreamTask(t *testing.T) {
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
				r.failing = &approval.SendError{Stage: lifecycle.StageUpstreamGone, Ran: task.RanUnknown, Err: errors.New("no such task")}
				r.mu.Unlock()
				second := o
				if replica {
					second = branch(t, o.store, nil)
				}
				if got, err := second.Contact(t.Context(), mine(held), r); err != nil || got.State.Terminal() {
					t.Errorf("second poll: %s, %+v, %v", got.State, got.Failure, err)
				}
				go func() { _, _ = io.WriteString(upstream, text[100<<10:]); upstream.Close() }()
				<-first
				synctest.Wait()
				after := o.now(t, held.ID)
				if after.State != task.Completed {
					t.Errorf("state %s, %+v; want completed: this replica had the whole result", after.State, after.Failure)
				}
			})
		})
	}
}

// A replica has lost its lease. The upstream reports that the task does not exist, because the
// next replica has fetched the result. The first replica does not end the task.
func TestReplacedFetcherDoesNotEndTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := `{"content":["` + strings.Repeat("y", 200<<10) + `"]}`
		r := newRemote()
		var store *lapsingStore
		o, held := nested(t, r, func(c *approval.Config) {
			store = &lapsingStore{Store: c.Store}
			c.Store, c.Execution = store, 5*time.Minute
		})
		r.say(func(r *approval.Report) { r.State = gatetask.UpstreamReady })
		answered := make(chan struct{})
		r.outcome = func() (approval.Outcome, error) {
			<-answered
			return approval.Outcome{}, &approval.SendError{Stage: lifecycle.StageUpstreamGone, Ran: task.RanUnknown, Err: errors.New("no such task")}
		}
		late := o.wait(t.Context(), mine(held), r)
		synctest.Wait()
		store.off.Store(true) // suspended or disconnected
		pass(31 * time.Second)
		body, upstream := io.Pipe()
		r.outcome = func() (approval.Outcome, error) { return approval.Outcome{Body: body}, nil }
		other := branch(t, o.store, func(c *approval.Config) { c.Execution = 5 * time.Minute })
		w := other.wait(t.Context(), mine(held), r)
		_, _ = io.WriteString(upstream, text[:100<<10])
		synctest.Wait()
		store.off.Store(false)
		close(answered) // before the guard of the first replica checks again
		synctest.Wait()
		go func() { _, _ = io.WriteString(upstream, text[100<<10:]); upstream.Close() }()
		<-w.done
		synctest.Wait()
		<-late.done
		after := o.now(t, held.ID)
		if after.State != task.Completed {
			t.Errorf("state %s, %+v; want completed: the other replica had the whole result", after.State, after.Failure)
		}
	})
}
