package model

import (
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
)

// events writes an answer as server-sent events. Write errors are ignored, because a host that
// has disconnected needs no answer.
type events struct {
	w      http.ResponseWriter
	number int // of the next event, for APIs that count them
}

func newEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	return &events{w: w}
}

// data writes an event without a name.
func (e *events) data(value any) {
	text, err := json.Marshal(value)
	if err != nil {
		text = []byte(`{"error":"cannot be encoded"}`)
	}
	_, _ = fmt.Fprintf(e.w, "data: %s\n\n", text)
}

// typed writes an event whose name is repeated in its data.
func (e *events) typed(name string, value object) {
	value["type"] = name
	_, _ = fmt.Fprintf(e.w, "event: %s\n", name)
	e.data(value)
}

// numbered writes a typed event with its number in the stream.
func (e *events) numbered(name string, value object) {
	value["sequence_number"] = e.number
	e.number++
	e.typed(name, value)
}
