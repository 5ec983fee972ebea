package mcphttp

import (
	"bytes"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// An eventEditor decides what the client sees of each upstream event. It also finds the answer
// to the request.
type eventEditor struct {
	h       *Handler
	request *conversation.Request
	plan    *conversation.Plan
	use     httpclient.Use
	filter  *conversation.StreamFilter // for messages other than the answer

	change func([]byte) ([]byte, error) // returns the event for the client; nil changes nothing
	strict bool                         // refuse events that are too large for change
	check  *conversation.Check          // checks an oversized event while it passes

	answer  []byte // the last events that may contain the answer
	matched bool   // an answer to the request was seen
	strayed bool   // an answer to another request was seen
}

// begin prepares the editor for the answer that a relays.
func (e *eventEditor) begin(a *relay) {
	e.h, e.request, e.plan, e.use, e.filter = a.h, a.request, a.plan, a.use, a.request.Filter()
	switch {
	case a.plan.Rewrite != nil:
		e.change, e.strict = e.rewritten, true
	case a.plan.HasLists():
		e.change, e.strict = e.rewrittenBatch, true
	case a.use == httpclient.Stream && a.client.checksAnswers():
		e.change = e.filtered
	case a.client.checksAnswers():
		e.change = e.expectedOnly
	}
}

// changed returns the event for the client, or the rest of an oversized event. The
// framer must have read exactly up to its end.
func (e *eventEditor) changed(raw []byte, framer *jsonrpc.Framer) ([]byte, error) {
	switch {
	case e.change == nil:
		return raw, nil
	case e.check != nil:
		err := e.check.PassLast(raw)
		e.check = nil
		return raw, err
	default:
		event, err := e.change(raw)
		//mutate:false TestForgedFramingIsRefused an event passes that clients parse differently
		if err == nil && isSame(event, raw) && !framer.Plain() {
			event = plainEvent(eventOf(raw))
		}
		return event, err
	}
}

// checkPart checks part of an oversized event.
func (e *eventEditor) checkPart(part []byte) error {
	if e.strict || e.change != nil && e.use == httpclient.Stream && !e.request.Resumed() {
		return upstream.ErrUnchecked
	}
	if e.change == nil {
		return nil
	}
	if e.check == nil {
		e.check = e.request.CheckEvent()
	}
	return e.check.Pass(part)
}

// isSame reports whether two slices share the same memory.
func isSame(a, b []byte) bool { return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] }

// rewritten returns the event with the answer to the request rewritten.
func (e *eventEditor) rewritten(raw []byte) ([]byte, error) {
	event := eventOf(raw)
	if len(event.Data) == 0 {
		return raw, nil // a comment, or only an event ID
	}
	m, err := e.h.readMessage(event.Data)
	if err != nil {
		return nil, upstream.ErrUnchecked
	}
	if !e.request.IsAnswer(m) {
		return e.withoutUnasked(raw, event)
	}
	e.keep(raw)
	e.matched = true
	return withData(raw, event, e.plan.Rewrite(m)), nil
}

// rewrittenBatch returns the event with the lists in it rewritten.
func (e *eventEditor) rewrittenBatch(raw []byte) ([]byte, error) {
	event := eventOf(raw)
	if len(event.Data) == 0 {
		return raw, nil
	}
	messages, err := e.request.ReadBatch(e.plan, event.Data)
	if err != nil {
		return nil, upstream.ErrUnchecked
	}
	e.keep(raw)
	return withMessages(event, messages), nil
}

// filtered returns the event for a client on its GET stream.
func (e *eventEditor) filtered(raw []byte) ([]byte, error) {
	if !e.filter.MustInspect(raw) {
		return raw, nil
	}
	return e.withoutUnasked(raw, eventOf(raw))
}

// expectedOnly removes responses to other requests and the upstream's notifications about the
// gate's tasks.
func (e *eventEditor) expectedOnly(raw []byte) ([]byte, error) {
	signs := conversation.DetectTraits(raw)
	if signs == (conversation.Traits{}) {
		return raw, nil
	}
	if signs.Response {
		e.keep(raw)
	}
	return e.withoutUnasked(raw, eventOf(raw))
}

// withoutUnasked removes responses that the client must not see. It shows tasks of held calls
// under the IDs that the client knows.
func (e *eventEditor) withoutUnasked(raw []byte, event jsonrpc.Event) ([]byte, error) {
	text := bytes.TrimSpace(event.Data)
	if len(text) == 0 {
		return withoutMessage(event), nil // other fields carry no message
	}
	rest, err := e.filter.Apply(text)
	e.matched, e.strayed = e.matched || rest.HasAnswer, e.strayed || rest.HasForeign
	switch {
	case err != nil:
		return nil, err
	case rest.Unchanged:
		return raw, nil
	default:
		return withMessages(event, rest.Messages), nil
	}
}

// withMessages returns an event with other messages, in an array if they were in one.
func withMessages(event jsonrpc.Event, messages [][]byte) []byte {
	switch {
	case len(messages) == 0:
		return withoutMessage(event)
	case bytes.HasPrefix(bytes.TrimSpace(event.Data), []byte("[")):
		event.Data = jsonrpc.Array(messages)
	default:
		event.Data = messages[0]
	}
	return plainEvent(event)
}

// withoutMessage returns an event without its message. The event ID stays.
func withoutMessage(event jsonrpc.Event) []byte {
	event.Data, event.Name = nil, ""
	return plainEvent(event)
}

// withData returns the event with other data, or raw itself if the data is equal.
func withData(raw []byte, event jsonrpc.Event, data []byte) []byte {
	if bytes.Equal(data, event.Data) {
		return raw
	}
	event.Data = data
	return plainEvent(event)
}

// eventOf returns the event in raw, or a zero Event. Its data may alias raw.
func eventOf(raw []byte) jsonrpc.Event {
	event, _ := jsonrpc.EventIn(raw)
	return event
}

// plainEvent returns an event in a form that all clients parse alike: data on one line, since
// line breaks in JSON are white space, and only printable ASCII in name and ID.
func plainEvent(event jsonrpc.Event) []byte {
	for _, end := range []string{"\r", "\n"} {
		event.Data = bytes.ReplaceAll(event.Data, []byte(end), []byte(" "))
	}
	if !isPrintable(event.Name) {
		event.Name = ""
	}
	if !isPrintable(event.ID) {
		event.ID, event.HasID = "", false
	}
	return jsonrpc.AppendEvent(nil, event)
}

// isPrintable reports whether text is printable ASCII.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// keep stores events that may contain the answer, until the answer is found. They are parsed
// when the stream ends.
func (e *eventEditor) keep(events []byte) {
	if e.request.ID() != nil && e.response() == nil {
		e.answer = append(e.answer[:0], events...)
	}
}

// response returns the answer that was sent to the client, or nil.
func (e *eventEditor) response() *jsonrpc.Message {
	if len(e.answer) == 0 {
		return nil
	}
	events := jsonrpc.NewEventReader(bytes.NewReader(e.answer), len(e.answer))
	for {
		event, err := events.Next()
		if err != nil {
			return nil
		}
		if m, err := e.h.readMessage(event.Data); err == nil && e.request.IsAnswer(m) {
			return m
		}
	}
}

// failure returns the upstream's answer if it may be an error.
func (e *eventEditor) failure() *jsonrpc.Message {
	signs := [...]string{`"error"`, `"isError":true`, `"isError": true`} // as servers write them
	if e.request.ID() == nil || !slices.ContainsFunc(signs[:], func(s string) bool { return bytes.Contains(e.answer, []byte(s)) }) {
		return nil
	}
	return e.response()
}
