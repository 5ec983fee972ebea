package inbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// writeTime is how long a browser may take to read what it is sent.
const writeTime = 10 * time.Second

// An event tells the pages that are open that something has changed, and
// enough of it to say so. They get the rest as every page is got.
type event struct {
	ID        task.ID   `json:"id"`
	Pending   bool      `json:"pending"`
	Tool      string    `json:"tool"`
	Requester string    `json:"requester"`
	CreatedAt time.Time `json:"createdAt"`
}

// events tells of every call that waits, and then of what changes. It ends
// with the session, with the desk, or when the browser goes.
func (i *Inbox) events(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	send := func(text string) error {
		if err := control.SetWriteDeadline(i.cfg.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return err
		}
		return control.Flush()
	}
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }() // the connection may serve other requests
	ctx, stop := context.WithCancel(r.Context())
	changes, done := make(chan string), make(chan struct{})
	go func() {
		defer close(done)
		defer close(changes)
		i.follow(ctx, changes)
	}()
	defer func() { <-done }()
	defer stop()

	quiet := time.NewTicker(i.cfg.KeepAlive)
	defer quiet.Stop()
	// A comment would be enough to keep the stream open, but scripts do not see
	// comments, and so could not tell a quiet stream from one that was cut off.
	beat := fmt.Sprintf("event: beat\ndata: %d\n\n", i.cfg.KeepAlive.Milliseconds())
	for text, open := beat, true; open; {
		if err := send(text); err != nil {
			return
		}
		select {
		case text, open = <-changes:
		case <-quiet.C:
			text = beat
		}
	}
}

// follow turns what the desk tells into events, until ctx or the desk ends.
func (i *Inbox) follow(ctx context.Context, to chan<- string) {
	for a, err := range i.cfg.Desk.Watch(ctx) {
		var text string
		if err == nil {
			text, err = eventText(a)
		}
		if err != nil {
			if !errors.Is(err, task.ErrClosed) {
				i.cfg.Log.ErrorContext(ctx, "inbox events", "error", err)
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

func eventText(a approval.Approval) (string, error) {
	text, err := json.Marshal(event{
		ID: a.ID, Pending: a.State == task.InputRequired, Tool: a.Tool, Requester: requester(a), CreatedAt: a.CreatedAt,
	})
	return "data: " + string(text) + "\n\n", err
}
