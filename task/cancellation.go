package task

import (
	"time"
	"unicode/utf8"
)

// A Cancellation is the cancellation that a gateway owes the upstream if a task ends
// while its call runs. It is stored together with the end of the task, so that another
// process sends it if the first one dies.
type Cancellation struct {
	Tries   int       `json:"tries,omitzero"` // how often a process has tried to send it
	NextTry time.Time `json:"nextTry"`        // when another process may try
	Until   time.Time `json:"until"`          // after which no process tries any more

	SettledAt time.Time          `json:"settledAt,omitzero"` // zero while it is owed
	Outcome   CancellationResult `json:"outcome,omitzero"`
}

// A CancellationResult says what became of a [Cancellation].
type CancellationResult string

// Results of a cancellation.
const (
	CancellationSent    CancellationResult = "told"     // the upstream was sent the cancellation
	CancellationRefused CancellationResult = "refused"  // the upstream knows of nothing to cancel
	CancellationMoot    CancellationResult = "moot"     // the upstream had answered already
	CancellationGivenUp CancellationResult = "given_up" // the upstream could not be reached in time
)

const (
	// firstRetry is how long the process that has ended a task has to reach the
	// upstream before others try, and how long the next one has. It doubles with
	// every try.
	firstRetry = 10 * time.Second

	// cancelWithin is how long a cancellation is owed.
	cancelWithin = time.Hour
)

// pause returns how long the last try keeps others from trying, but for those
// who have the credentials of the owner.
func (c *Cancellation) pause() time.Duration { return firstRetry << min(c.Tries, 10) }

// lastTry returns when a process last began to send the cancellation.
func (c *Cancellation) lastTry() time.Time { return c.NextTry.Add(-c.pause()) }

// Owes reports whether the upstream must still be sent a cancellation of t.
func (t Task) Owes() bool {
	return t.Execution != nil && t.Execution.Cancellation != nil && t.Execution.Cancellation.SettledAt.IsZero()
}

// owe records that the upstream must be sent a cancellation of t, which ends, if the
// upstream may still be working for it.
func (t *Task) owe(now time.Time) {
	x := t.Execution
	if t.State != Executing || x.Upstream.Ended() || x.UpstreamTask == "" && x.Detached() {
		return
	}
	t.Execution = x.clone()
	t.Execution.Cancellation = &Cancellation{NextTry: now.Add(firstRetry), Until: now.Add(cancelWithin)}
}

// apply implements [Event].
func (e CancelUpstream) apply(t *Task, now time.Time) *Error {
	if !t.Owes() {
		return &Error{Kind: KindInvalidTransition, Detail: "the upstream is owed nothing"}
	}
	x := t.Execution.clone()
	c := x.Cancellation
	executed := x.UpstreamTask == "" && x.Executor != e.By && !now.After(x.LeaseUntil) // by a process that is about to send it
	switch {
	case executed:
		return &Error{Kind: KindNotReady, Detail: "the executor tells it", RetryAfter: x.LeaseUntil.Sub(now)}
	case now.Before(c.NextTry) && (!e.Now || c.Tries > 0 && now.Before(c.lastTry().Add(firstRetry))):
		return &Error{Kind: KindNotReady, Detail: "somebody is at it", RetryAfter: c.NextTry.Sub(now)}
	case !utf8.ValidString(e.UpstreamTask):
		return &Error{Kind: KindInvalid, Detail: "the id of the upstream's task is no valid UTF-8"}
	case x.UpstreamTask == "":
		x.UpstreamTask = e.UpstreamTask
	}
	c.Tries++
	c.NextTry = now.Add(c.pause())
	t.Execution = x
	return nil
}

// apply implements [Event].
func (e SettleUpstream) apply(t *Task, now time.Time) *Error {
	if !t.Owes() {
		return &Error{Kind: KindInvalidTransition, Detail: "the upstream is owed nothing"}
	}
	t.Execution = t.Execution.clone()
	t.Execution.Cancellation.SettledAt, t.Execution.Cancellation.Outcome = now, e.Outcome
	return nil
}
