package lifecycle

import (
	"time"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// oweCancellation records that the upstream must be sent a cancellation of t, which ends,
// if the upstream may still be working on the call.
func oweCancellation(t *task.Task, now time.Time) {
	x := t.Execution
	if t.State != task.Executing || x.Upstream.Ended() || x.UpstreamTask == "" && x.Detached() {
		return
	}
	t.Execution = x.Clone()
	t.Execution.Cancellation = gatetask.NewCancellation(now)
}

// apply implements [Event].
func (e CancelUpstream) apply(t *task.Task, now time.Time) *task.Error {
	if !t.OwesCancellation() {
		return &task.Error{Kind: task.ErrInvalidTransition, Detail: "no cancellation is owed to the upstream"}
	}
	x := t.Execution.Clone()
	c := x.Cancellation
	executed := x.UpstreamTask == "" && x.Executor != e.By && !now.After(x.LeaseUntil) // by a process that is about to send it
	switch {
	case executed:
		return &task.Error{Kind: task.ErrNotReady, Detail: "the executor sends the cancellation", RetryAfter: x.LeaseUntil.Sub(now)}
	case c.Claimed(now, e.OwnerPresent):
		return &task.Error{Kind: task.ErrNotReady, Detail: "another process sends the cancellation", RetryAfter: c.NextTry.Sub(now)}
	case !utf8.ValidString(e.UpstreamTask):
		return &task.Error{Kind: task.ErrInvalid, Detail: "the id of the upstream's task is not valid UTF-8"}
	case x.UpstreamTask == "":
		x.UpstreamTask = e.UpstreamTask
	}
	c.Claim(now)
	t.Execution = x
	return nil
}

// apply implements [Event].
func (e SettleUpstream) apply(t *task.Task, now time.Time) *task.Error {
	if !t.OwesCancellation() {
		return &task.Error{Kind: task.ErrInvalidTransition, Detail: "no cancellation is owed to the upstream"}
	}
	t.Execution = t.Execution.Clone()
	t.Execution.Cancellation.SettledAt, t.Execution.Cancellation.Outcome = now, e.Outcome
	return nil
}
