package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// An Event is a change of a held call.
type Event struct {
	Kind     Kind            `json:"event"`
	Approval review.Approval `json:"approval"`
}

// A Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Pending Kind = "pending" // it waits for a decision, or got another approval
	Settled Kind = "settled" // it no longer waits
	Gone    Kind = "gone"    // the gate no longer knows it
)

// A LostError reports a broken stream, which will be reconnected.
type LostError struct {
	Err   error
	Retry time.Duration // until the next attempt
}

// Error implements error.
func (e *LostError) Error() string { return e.Err.Error() }

// Unwrap returns why it broke off.
func (e *LostError) Unwrap() error { return e.Err }

// maxBackoff is the longest pause between two attempts.
const maxBackoff = 15 * time.Second

// Watch reports every pending call and its later changes. It reports a broken stream as a
// [LostError] and reconnects, without reporting anything twice; calls settled meanwhile are
// reported then. It ends when ctx ends, or with another error: the gate refuses, or the first
// connection fails.
func (c *Client) Watch(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := watcher{client: c, known: make(map[task.ID]review.Approval), backoff: c.cfg.Backoff}
		for {
			err := w.follow(ctx, yield)
			if ctx.Err() != nil || errors.Is(err, errEnough) {
				return
			}
			if !w.connected || final(err) {
				yield(Event{}, err)
				return
			}
			// Spread reconnects of many clients.
			delay := w.backoff + rand.N(w.backoff) // jitter only; not security-sensitive
			w.backoff = min(2*w.backoff, maxBackoff)
			if !yield(Event{}, &LostError{err, delay}) || !pause.For(ctx, delay) {
				return
			}
		}
	}
}

// errEnough ends a watch whose caller has stopped.
var errEnough = errors.New("enough")

// final reports whether a retry is useless.
func final(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Status < http.StatusInternalServerError
}

// A watcher keeps every pending call as last reported.
type watcher struct {
	client    *Client
	known     map[task.ID]review.Approval
	connected bool // at least once
	backoff   time.Duration
}

// follow reports the events of one connection.
func (w *watcher) follow(ctx context.Context, yield func(Event, error) bool) error {
	streaming, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	silence := time.AfterFunc(w.client.cfg.Silence, func() { stop(errors.New("the gate stopped answering")) })
	defer silence.Stop()
	resp, err := w.client.send(streaming, http.MethodGet, approvals+"/events", nil)
	if err != nil {
		return because(streaming, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := w.catchUp(streaming, yield); err != nil {
		return because(streaming, err)
	}
	w.connected, w.backoff = true, w.client.cfg.Backoff
	if w.client.cfg.Connected != nil {
		w.client.cfg.Connected()
	}
	stream := noisyReader{resp.Body, func() { silence.Reset(w.client.cfg.Silence) }}
	err = readEvents(stream, func(e Event) bool { return w.notify(e, yield) })
	return because(streaming, err)
}

// because returns the cause of the end of ctx, or err.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// catchUp reports changes missed between two connections. The new stream is already open, so none
// is lost.
func (w *watcher) catchUp(ctx context.Context, yield func(Event, error) bool) error {
	for id, before := range w.known {
		now, err := w.client.Show(ctx, id)
		e := Event{Settled, now}
		if refused, ok := errors.AsType[*Error](err); ok && refused.Type == "not_found" {
			e, err = Event{Gone, before}, nil
		}
		if err != nil {
			return err
		}
		if e.Kind == Settled && now.State == task.InputRequired {
			continue
		}
		if !w.notify(e, yield) {
			return errEnough
		}
	}
	return nil
}

// notify yields e unless it was reported, and reports whether the caller wants more.
func (w *watcher) notify(e Event, yield func(Event, error) bool) bool {
	id := e.Approval.ID
	before, reported := w.known[id]
	if e.Kind != Pending {
		delete(w.known, id)
		return !reported || yield(e, nil)
	}
	w.known[id] = e.Approval
	same := func(a, b gatetask.Decision) bool { return a.By == b.By && a.At.Equal(b.At) }
	if reported && slices.EqualFunc(before.Approvals, e.Approval.Approvals, same) {
		return true
	}
	return yield(e, nil)
}

// maxEvent is the maximum length of a line of the stream.
const maxEvent = 1 << 20

// readEvents passes events to notify until the stream ends, which is an error.
func readEvents(r io.Reader, notify func(Event) bool) error {
	events := jsonrpc.NewEventReader(r, maxEvent)
	for {
		next, err := events.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("the gate ended the stream")
		case err != nil:
			return fmt.Errorf("read events: %w", err)
		}
		e := Event{Kind: Kind(next.Name)}
		if err := json.Unmarshal(next.Data, &e.Approval); err != nil {
			return fmt.Errorf("invalid event: %w", err)
		}
		if !notify(e) {
			return errEnough
		}
	}
}

// A noisyReader calls heard after every read.
type noisyReader struct {
	io.Reader

	heard func()
}

// Read implements [io.Reader].
func (r noisyReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.heard()
	return n, err
}
