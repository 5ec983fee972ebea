package gatetask

import "time"

// A Cancellation is the cancellation that a gateway owes the upstream if a task ends while its
// call runs. It is stored together with the end of the task, so that another process sends it
// if the first one dies.
type Cancellation struct {
	Tries   int       `json:"tries,omitzero"` // the number of attempts to send it
	NextTry time.Time `json:"nextTry"`        // the time from which another process may try
	Until   time.Time `json:"until"`          // the end of all attempts

	SettledAt time.Time          `json:"settledAt,omitzero"` // zero while it is owed
	Outcome   CancellationResult `json:"outcome,omitzero"`
}

// A CancellationResult is the outcome of a [Cancellation].
type CancellationResult string

// Results of a cancellation.
const (
	CancellationSent    CancellationResult = "told"     // the upstream was sent the cancellation
	CancellationRefused CancellationResult = "refused"  // the upstream does not know the call
	CancellationMoot    CancellationResult = "moot"     // the upstream had already answered
	CancellationGivenUp CancellationResult = "given_up" // the upstream could not be reached in time
)

const (
	// firstRetry is the time for which the process that has ended a task may try to reach the
	// upstream before another process tries. It doubles with every attempt.
	firstRetry = 10 * time.Second

	// cancelWithin is the time for which a cancellation is owed.
	cancelWithin = time.Hour
)

// pause returns the time that other processes wait after the last attempt. A process with the
// credentials of the owner does not wait that long.
func (c *Cancellation) pause() time.Duration { return firstRetry << min(c.Tries, 10) }

// lastTry returns the time of the last attempt to send the cancellation.
func (c *Cancellation) lastTry() time.Time { return c.NextTry.Add(-c.pause()) }

// NewCancellation returns the cancellation that is owed from now on.
func NewCancellation(now time.Time) *Cancellation {
	return &Cancellation{NextTry: now.Add(firstRetry), Until: now.Add(cancelWithin)}
}

// Claimed reports whether another process may be sending the cancellation. While the owner is
// present, a process has the owner's credentials, and only waits for the last attempt.
func (c *Cancellation) Claimed(now time.Time, present bool) bool {
	return now.Before(c.NextTry) && (!present || c.Tries > 0 && now.Before(c.lastTry().Add(firstRetry)))
}

// Claim records that a process starts to send the cancellation.
func (c *Cancellation) Claim(now time.Time) {
	c.Tries++
	c.NextTry = now.Add(c.pause())
}
