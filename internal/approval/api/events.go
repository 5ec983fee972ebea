package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// events streams every pending approval, and then each change.
func (h *handler) events(w http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	Stream{Viewer: h.Viewer, KeepAlive: h.KeepAlive, Comment: ": \n\n", Event: event, Log: h.Log}.Serve(w, r)
	return nil, nil
}

// event encodes a as an event named pending or settled. Its JSON has no line breaks.
func event(a review.Approval) (string, error) {
	text, err := visibleJSON(a)
	name := "settled"
	if a.State == task.InputRequired {
		name = "pending"
	}
	return "event: " + name + "\ndata: " + string(text) + "\n\n", err
}

// A Stream sends pending calls, and then their changes, to one client as server-sent events.
type Stream struct {
	Viewer    *review.Viewer
	KeepAlive time.Duration
	Comment   string                                // sent first, and after KeepAlive without an event
	Event     func(review.Approval) (string, error) // encodes a call as an event
	Log       *slog.Logger
}

// Serve sends events until the gate shuts down or the client disconnects.
func (s Stream) Serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the connection may serve other requests
	ctx, stop := context.WithCancel(r.Context())
	changes, done := make(chan string), make(chan struct{})
	go func() {
		defer close(done)
		defer close(changes)
		s.follow(ctx, changes)
	}()
	defer func() { <-done }()
	defer stop()

	quiet := time.NewTicker(s.KeepAlive)
	defer quiet.Stop()
	for text, open := s.Comment, true; open; {
		if err := send(w, control, text); err != nil {
			return
		}
		select {
		case text, open = <-changes:
		case <-quiet.C:
			text = s.Comment
		}
	}
}

// follow encodes changes until ctx ends or the gate shuts down.
func (s Stream) follow(ctx context.Context, to chan<- string) {
	for a, err := range s.Viewer.Watch(ctx) {
		var text string
		if err == nil {
			text, err = s.Event(a)
		}
		if err != nil {
			if !errors.Is(err, task.ErrClosed) && !errors.Is(err, task.ErrUnavailable) {
				s.Log.ErrorContext(ctx, "approval events", "err", err)
			}
			return
		}
		select {
		case to <- text:
		case <-ctx.Done():
			return
		}
	}
}

// writeTime is the write timeout.
const writeTime = 10 * time.Second

func send(w http.ResponseWriter, control *http.ResponseController, text string) error {
	if err := control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	return control.Flush()
}
