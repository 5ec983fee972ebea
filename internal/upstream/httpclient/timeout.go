package httpclient

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// A TimeoutBody is the body of an answer whose server may be silent for a limited time during each
// read. Then the read fails with [os.ErrDeadlineExceeded].
type TimeoutBody struct {
	io.ReadCloser

	timeout  time.Duration
	timer    *time.Timer // runs during a read; nil before the first one, and if the body is a timeoutSetter
	timedOut atomic.Bool
}

// NewTimeoutBody returns a body with a read timeout; 0 means none.
func NewTimeoutBody(body io.ReadCloser, timeout time.Duration) *TimeoutBody {
	return &TimeoutBody{ReadCloser: body, timeout: timeout}
}

// A timeoutSetter implements read timeouts itself.
type timeoutSetter interface{ SetReadTimeout(d time.Duration) }

// SetReadTimeout changes the timeout of later reads; 0 means none. Only the reading goroutine may
// call it.
func (b *TimeoutBody) SetReadTimeout(d time.Duration) { b.timeout = d }

// Read implements [io.Reader].
func (b *TimeoutBody) Read(p []byte) (int, error) {
	if limited, ok := b.ReadCloser.(timeoutSetter); ok {
		limited.SetReadTimeout(b.timeout)
		return b.ReadCloser.Read(p)
	}
	if b.timeout == 0 {
		return b.ReadCloser.Read(p)
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(b.timeout, b.abortRead)
	} else {
		b.timer.Reset(b.timeout)
	}
	n, err := b.ReadCloser.Read(p)
	//mutate:drop TestReadTimeout a slow client takes the time of the server
	b.timer.Stop() // the time between reads is the reader's
	if err != nil && b.timedOut.Load() {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// abortRead ends the current read.
func (b *TimeoutBody) abortRead() {
	b.timedOut.Store(true)
	_ = b.Close()
}

// BeforeWait makes the body call f before each read that may wait for the server. It returns false
// if the body does not support that.
func (b *TimeoutBody) BeforeWait(f func()) bool {
	watchful, ok := b.ReadCloser.(interface{ BeforeWait(f func()) bool })
	return ok && watchful.BeforeWait(f)
}

// DisableReadTimeout removes the read timeout from the body of an answer of [Client.Send] or
// [Client.AnswerBody]. Only the reading goroutine may call it.
func DisableReadTimeout(body io.ReadCloser) {
	if limited, ok := body.(timeoutSetter); ok {
		limited.SetReadTimeout(0)
	}
}

// AnswerBody adds the read timeout of r to the body of its answer, or to the rest of it. Event
// streams and requests of the gate have none: the context limits those.
func (c *Client) AnswerBody(r upstream.Request, body io.ReadCloser) io.ReadCloser {
	switch use := useOf(r); use {
	case Plain, Call:
		return NewTimeoutBody(body, c.ReadTimeout(use))
	default:
		return body
	}
}
