package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An Event is what [Client.Watch] reports of a held call.
type Event struct {
	Kind     Kind              `json:"event"`
	Approval casefile.Approval `json:"approval"`
}

// A Kind says what an event is about.
type Kind string

// The kinds of events.
const (
	Pending Kind = "pending" // it waits for a decision, or has got another approval
	Settled Kind = "settled" // it no longer waits
	Gone    Kind = "gone"    // the gate no longer knows it: it was reported last before a gap
)

// A LostError reports a stream of events that broke off, and will be tried
// again.
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

// Watch reports every call that waits for a decision, and then what becomes
// of them. A stream that breaks off is reported as a [LostError] and taken up again
// without reporting anything twice; what was settled meanwhile is then reported. It
// ends when ctx does, or with an error that is none of those: the gate refuses,
// or could not be reached in the first place.
func (c *Client) Watch(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := watcher{client: c, known: make(map[task.ID]casefile.Approval), backoff: c.cfg.Backoff}
		for {
			err := w.follow(ctx, yield)
			if ctx.Err() != nil || errors.Is(err, errEnough) {
				return
			}
			if !w.connected || final(err) {
				yield(Event{}, err)
				return
			}
			// Spread out, so that all who watch do not come back at once.
			delay := w.backoff + rand.N(w.backoff) //nolint:gosec // jitter only; not security-sensitive
			w.backoff = min(2*w.backoff, maxBackoff)
			if !yield(Event{}, &LostError{err, delay}) || !pause.For(ctx, delay) {
				return
			}
		}
	}
}

// errEnough ends a watch that nobody listens to any more.
var errEnough = errors.New("enough")

// final reports whether trying again is of no use.
func final(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Status < http.StatusInternalServerError
}

// A watcher knows what it has reported: every pending call as it was then.
type watcher struct {
	client    *Client
	known     map[task.ID]casefile.Approval
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
	err = readEvents(resp.Body, func(e Event) bool { return w.notify(e, yield) }, func() { silence.Reset(w.client.cfg.Silence) })
	return because(streaming, err)
}

// because returns why ctx was stopped if it was, or else err.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// catchUp reports what became of calls while there was no connection. The new one
// is open already, so nothing falls between them.
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

// notify yields e unless it is known, and reports whether more is wanted.
func (w *watcher) notify(e Event, yield func(Event, error) bool) bool {
	id := e.Approval.ID
	before, reported := w.known[id]
	if e.Kind != Pending {
		delete(w.known, id)
		return !reported || yield(e, nil)
	}
	w.known[id] = e.Approval
	same := func(a, b task.Decision) bool { return a.By == b.By && a.At.Equal(b.At) }
	if reported && slices.EqualFunc(before.Approvals, e.Approval.Approvals, same) {
		return true
	}
	return yield(e, nil)
}

// maxEvent bounds a line of a stream. A gate sends less.
const maxEvent = 1 << 20

// readEvents passes on the events of a stream until it ends, which is an error,
// and says whenever it has heard anything at all.
func readEvents(r io.Reader, notify func(Event) bool, heard func()) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	var name, data string
	for lines.Scan() {
		heard()
		line := lines.Text()
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			name = value
		case field == "data":
			data += value
		case line == "" && data != "":
			e := Event{Kind: Kind(name)}
			if err := json.Unmarshal([]byte(data), &e.Approval); err != nil {
				return fmt.Errorf("invalid event: %w", err)
			}
			if !notify(e) {
				return errEnough
			}
			fallthrough
		case line == "":
			name, data = "", ""
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	return errors.New("the gate ended the stream")
}
