package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// sending begins to measure a request to the upstream. The request is counted
// when the function that it returns is first told how the request ended.
func (u *Upstream) sending() func(outcome string) {
	var once sync.Once
	sent := time.Now()
	return func(outcome string) {
		once.Do(func() { u.cfg.Metrics.UpstreamDone(outcome, time.Since(sent)) })
	}
}

// outcomeOf returns how a request to an upstream ended that failed with err, or
// went well if err is nil.
func outcomeOf(err error) string {
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

// outcomeOfStatus returns how a request to an upstream ended that was answered
// with an HTTP status. A request that the upstream refuses (4xx) has been dealt
// with properly.
func outcomeOfStatus(status int) string {
	if status >= http.StatusInternalServerError {
		return metrics.Error
	}
	return metrics.Success
}

// upstreamOutcome returns how the upstream did its part of the exchange, given
// the status of its answer.
func (x *exchange) upstreamOutcome(status int) string {
	if x.problem != nil && x.problem.Type.Upstream() {
		return outcomeOf(x.problem)
	}
	return outcomeOfStatus(status)
}

// endless reports whether the answer is a stream that lasts as long as the
// client likes.
func (x *exchange) endless() bool { return x.listens || x.r.Method == http.MethodGet }

// noteAnswer notes whether the upstream answered the exchange's request with a
// JSON-RPC error.
func (x *exchange) noteAnswer(message []byte) {
	if x.id == nil || !bytes.Contains(message, []byte(`"error"`)) {
		return
	}
	m, err := x.readMessage(message)
	x.failed = x.failed || err == nil && x.answeredBy(m) && m.Error.Present()
}

// noteEvents is noteAnswer for the messages of complete events.
func (x *exchange) noteEvents(events []byte) {
	if x.id == nil || !bytes.Contains(events, []byte(`"error"`)) {
		return
	}
	for r := jsonrpc.NewEventReader(bytes.NewReader(events), len(events)); ; {
		event, err := r.Next()
		if err != nil {
			return
		}
		x.noteAnswer(event.Data)
	}
}

// A countedBody is the body of an upstream's answer whose request is counted
// when the body was read to its end, or is closed.
type countedBody struct {
	io.ReadCloser

	status int
	count  func(outcome string)
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.count(outcomeOfStatus(b.status))
	case err != nil:
		b.count(outcomeOf(err))
	}
	return n, err
}

// Close implements [io.Closer].
func (b *countedBody) Close() error {
	b.count(outcomeOfStatus(b.status))
	return b.ReadCloser.Close()
}
