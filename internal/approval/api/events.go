package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// writeTime is how long a client may take to read what it is sent.
const writeTime = 10 * time.Second

// A stream sends events to one client.
type stream struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
}

// events sends every approval that is pending, and then what changes. It ends
// with the desk or when the client goes.
func (h *handler) events(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	s := stream{w, http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	defer func() { _ = s.ctrl.SetWriteDeadline(time.Time{}) }() // the connection may serve other requests
	if err := s.send(": approvals\n\n"); err != nil {
		return
	}
	ctx, stop := context.WithCancel(r.Context())
	changes, done := make(chan change), make(chan struct{})
	go func() {
		defer close(done)
		defer close(changes)
		h.follow(ctx, changes)
	}()
	defer func() { <-done }()
	defer stop()

	quiet := time.NewTicker(h.KeepAlive)
	defer quiet.Stop()
	for {
		text := ": \n\n"
		select {
		case c, open := <-changes:
			if !open {
				return
			}
			text = c.text
		case <-quiet.C:
		}
		if err := s.send(text); err != nil {
			return
		}
	}
}

// A change is an event as it is sent.
type change struct{ text string }

// follow turns what the desk tells into events, until ctx or the desk ends.
func (h *handler) follow(ctx context.Context, to chan<- change) {
	for a, err := range h.Desk.Watch(ctx) {
		var c change
		if err == nil {
			c, err = event(a)
		}
		if err != nil {
			if !errors.Is(err, task.ErrClosed) && !errors.Is(err, task.ErrUnavailable) {
				h.Log.ErrorContext(ctx, "approval events", "error", err)
			}
			return
		}
		select {
		case to <- c:
		case <-ctx.Done():
			return
		}
	}
}

// event writes a as an event: pending while it waits for a decision, and
// settled once it does not. JSON has no line breaks of its own.
func event(a approval.Approval) (change, error) {
	text, err := json.Marshal(a)
	name := "settled"
	if a.State == task.InputRequired {
		name = "pending"
	}
	return change{"event: " + name + "\ndata: " + string(text) + "\n\n"}, err
}

func (s stream) send(text string) error {
	if err := s.ctrl.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.ctrl.Flush()
}
