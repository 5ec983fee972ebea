package httpclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
)

// A Measurement measures one request to the upstream.
type Measurement struct {
	metrics *metrics.Metrics
	sent    time.Time
}

// End counts the request with its outcome. It is called once.
func (m Measurement) End(outcome string) { m.metrics.UpstreamDone(outcome, time.Since(m.sent)) }

// OutcomeOf returns the metric label of a request that ended with err, which may be nil.
func OutcomeOf(err error) string {
	problem, known := errors.AsType[*mcp.Problem](err)
	switch {
	case err == nil:
		return metrics.Success
	case known && problem.Type == mcp.UpstreamTimeout,
		errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return metrics.Timeout
	default:
		return metrics.Error
	}
}

// OutcomeOfStatus returns the metric label of a request that was answered with an HTTP status. A
// refusal (4xx) counts as success of the upstream.
func OutcomeOfStatus(status int) string {
	if status >= http.StatusInternalServerError {
		return metrics.Error
	}
	return metrics.Success
}

// A countedBody is the body of an answer. It ends the measurement of the request when it was read
// to its end or is closed.
type countedBody struct {
	io.ReadCloser

	status      int
	measurement Measurement
	counted     atomic.Bool
}

func (b *countedBody) count(outcome string) {
	if b.counted.CompareAndSwap(false, true) {
		b.measurement.End(outcome)
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

// SetReadTimeout passes the timeout on to the body, if that supports it.
func (b *countedBody) SetReadTimeout(d time.Duration) {
	if limited, ok := b.ReadCloser.(timeoutSetter); ok {
		limited.SetReadTimeout(d)
	}
}

// Close implements [io.Closer].
func (b *countedBody) Close() error {
	b.count(OutcomeOfStatus(b.status))
	return b.ReadCloser.Close()
}
