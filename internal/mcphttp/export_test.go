package mcphttp

import (
	"context"
	"io"
	"time"
)

// Listening returns on how many streams the gate can speak unasked, and is
// ready to.
func (h *Handler) Listening() int {
	h.listeners.mu.Lock()
	defer h.listeners.mu.Unlock()
	n := 0
	for _, a := range h.listeners.clients {
		select {
		case <-a.begun:
			n += len(a.streams)
		default:
		}
	}
	return n
}

// ReportInterval is how often the gate acts on what an upstream says of a task.
const ReportInterval = reportInterval

// A ReadingRoom bounds how many large answers of an upstream are in memory.
type ReadingRoom struct{ readingRoom }

// NewReadingRoom returns the room of one upstream.
func NewReadingRoom() ReadingRoom { return ReadingRoom{newReadingRoom()} }

// Read reads an answer, and returns what is to be called when it is not needed
// any more.
func (r ReadingRoom) Read(ctx context.Context, body io.Reader, patience time.Duration) ([]byte, func(), error) {
	text, seat, err := r.readWhole(ctx, body, patience)
	return text, seat.leave, err
}

// ErrNoRoom is the error of an answer for which there is no room in time.
var ErrNoRoom = errNoRoom
