package task

import (
	"time"
	"unicode/utf8"
)

// A Cancellation is what the upstream is to be told of a call whose task has
// ended while the call was running: nobody waits for it any more. It is noted
// with the end of the task, so that it is owed even if the process that was to
// tell the upstream dies before it has.
type Cancellation struct {
	Tries   int       `json:"tries,omitzero"` // how often somebody has set out to tell it
	NextTry time.Time `json:"nextTry"`        // when somebody else may try
	Until   time.Time `json:"until"`          // after which nobody tries any more

	SettledAt time.Time          `json:"settledAt,omitzero"` // zero while it is owed
	Outcome   CancellationResult `json:"outcome,omitzero"`
}

// A CancellationResult says what became of a [Cancellation].
type CancellationResult string

// Results of a cancellation.
const (
	CancellationSent    CancellationResult = "told"     // the upstream was told
	CancellationRefused CancellationResult = "refused"  // the upstream was told, and knows of nothing to cancel
	CancellationMoot    CancellationResult = "moot"     // the upstream had answered already
	CancellationGivenUp CancellationResult = "given_up" // the upstream could not be told in time
)

const (
	// firstRetry is how long the process that has ended a task has to tell the
	// upstream before others try, and how long the next one has. It doubles with
	// every try.
	firstRetry = 10 * time.Second

	// cancelWithin is how long a cancellation is owed.
	cancelWithin = time.Hour
)

// pause returns how long the last try keeps others from trying, but for those
// who have the credentials of the owner.
func (c *Cancellation) pause() time.Duration { return firstRetry << min(c.Tries, 10) }

// lastTry returns when somebody last set out to tell the upstream.
func (c *Cancellation) lastTry() time.Time { return c.NextTry.Add(-c.pause()) }

// Owes reports whether the upstream is still to be told that nobody waits for t.
func (t Task) Owes() bool {
	return t.Execution != nil && t.Execution.Cancellation != nil && t.Execution.Cancellation.SettledAt.IsZero()
}

// owe notes that the upstream is to be told that nobody waits for t, which ends,
// if there is something that the upstream may still be doing for it.
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
	executed := x.UpstreamTask == "" && x.Executor != e.By && !now.After(x.LeaseUntil) // by somebody who is about to tell it
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
