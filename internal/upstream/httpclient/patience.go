package httpclient

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// A PatientBody is the body of an answer whose server may say nothing for a limited time
// while somebody reads. Then a read fails with [os.ErrDeadlineExceeded].
type PatientBody struct {
	io.ReadCloser

	patience time.Duration
	timer    *time.Timer // runs during a read; nil before the first one, and if the body has a limit itself
	gaveUp   atomic.Bool
}

// NewPatientBody returns a body that gives up on the server after it has said nothing for
// the time of its patience; 0 means never.
func NewPatientBody(body io.ReadCloser, patience time.Duration) *PatientBody {
	return &PatientBody{ReadCloser: body, patience: patience}
}

// A limitedBody knows itself how long the server may take.
type limitedBody interface{ SetPatience(d time.Duration) }

// SetPatience limits how long the server may say nothing from now on; 0 means any time. It
// is for the goroutine that reads.
func (b *PatientBody) SetPatience(d time.Duration) { b.patience = d }

// Read implements [io.Reader].
func (b *PatientBody) Read(p []byte) (int, error) {
	if limited, ok := b.ReadCloser.(limitedBody); ok {
		limited.SetPatience(b.patience)
		return b.ReadCloser.Read(p)
	}
	if b.patience == 0 {
		return b.ReadCloser.Read(p)
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(b.patience, b.giveUp)
	} else {
		b.timer.Reset(b.patience)
	}
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop() // whoever reads may take longer than the server
	if err != nil && b.gaveUp.Load() {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// giveUp ends the read that goes on.
func (b *PatientBody) giveUp() {
	b.gaveUp.Store(true)
	_ = b.Close()
}

// BeforeWait has f called before each read that may wait for the server, and reports
// whether it does.
func (b *PatientBody) BeforeWait(f func()) bool {
	watchful, ok := b.ReadCloser.(interface{ BeforeWait(f func()) bool })
	return ok && watchful.BeforeWait(f)
}

// WaitAnyTime lifts the limit on the server's silence from the body of an answer of
// [Client.Send] or [Client.AnswerBody]. It is for the goroutine that reads.
func WaitAnyTime(body io.ReadCloser) {
	if limited, ok := body.(limitedBody); ok {
		limited.SetPatience(0)
	}
}

// AnswerBody returns the body of an answer to r, or the rest of it, with the limit on the
// server's silence that r has. A stream without an end of its own has none, and neither
// has a request of the gate's own, which its context limits.
func (c *Client) AnswerBody(r upstream.Request, body io.ReadCloser) io.ReadCloser {
	switch use := useOf(r); use {
	case Plain, Call:
		return NewPatientBody(body, c.Silence(use))
	default:
		return body
	}
}
