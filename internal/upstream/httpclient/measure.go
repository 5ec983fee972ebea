package httpclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// A Measurement is of one request to the upstream.
type Measurement struct {
	metrics *metrics.Metrics
	sent    time.Time
}

// Ended counts the request, which ended with the given outcome. It is called
// once.
func (m Measurement) Ended(outcome string) { m.metrics.UpstreamDone(outcome, time.Since(m.sent)) }

// OutcomeOf returns how a request to an upstream ended that failed with err, or
// went well if err is nil.
func OutcomeOf(err error) string {
	problem, known := errors.AsType[*wire.Problem](err)
	switch {
	case err == nil:
		return metrics.Success
	case known && problem.Type == wire.UpstreamTimeout,
		errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return metrics.Timeout
	default:
		return metrics.Error
	}
}

// OutcomeOfStatus returns how a request to an upstream ended that was answered
// with an HTTP status. A request that the upstream refuses (4xx) has been dealt
// with properly.
func OutcomeOfStatus(status int) string {
	if status >= http.StatusInternalServerError {
		return metrics.Error
	}
	return metrics.Success
}

// A countedBody is the body of an upstream's answer. Its request is counted once,
// when the body was read to its end or is closed.
type countedBody struct {
	io.ReadCloser

	status      int
	measurement Measurement
	counted     atomic.Bool
}

func (b *countedBody) count(outcome string) {
	if b.counted.CompareAndSwap(false, true) {
		b.measurement.Ended(outcome)
	}
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.count(OutcomeOfStatus(b.status))
	case err != nil:
		b.count(OutcomeOf(err))
	}
	return n, err
}

// SetPatience limits the server's silence, if the body has a limit.
func (b *countedBody) SetPatience(d time.Duration) {
	if limited, ok := b.ReadCloser.(limitedBody); ok {
		limited.SetPatience(d)
	}
}

// Close implements [io.Closer].
func (b *countedBody) Close() error {
	b.count(OutcomeOfStatus(b.status))
	return b.ReadCloser.Close()
}
