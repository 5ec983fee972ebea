package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// events passes a stream of events on. No event waits for more of the stream.
func (a relay) events(ctx context.Context) error {
	kind := metrics.StreamPost
	if a.x.r.Method == http.MethodGet {
		kind = metrics.StreamGet
	}
	a.x.h.cfg.Metrics.StreamOpened(kind)
	defer a.x.h.cfg.Metrics.StreamClosed(kind)
	s := a.newEventRelay()
	if a.x.request.Listens() {
		defer a.x.request.Listening().Hear(ctx, s)()
	}
	a.x.out.header().Set("X-Accel-Buffering", "no") // proxies in front must not hold events back either
	a.x.out.header().Del("Content-Length")
	a.x.out.begin(a.resp.StatusCode)
	var err error
	if a.x.endless() {
		ownstack.Do(func() { err = s.begin(ctx) })
	} else {
		err = s.begin(ctx)
	}
	if err != nil {
		return err
	}
	if a.plan.Own != nil {
		defer s.merge(ctx)()
	}
	body := a.resp.Body
	if !a.x.endless() {
		s.limited = a.patient()
		body = s.limited
	}
	forget := a.x.request.BeginEvents()
	err = s.run(body)
	if !s.resumable {
		forget()
	}
	a.noteEvents(s.answer)
	return a.ended(ctx, s, err)
}

// newEventRelay returns the relay of a stream, which changes what the plan says.
func (a relay) newEventRelay() *eventRelay {
	s := &eventRelay{stream: a.x.newStream(), relay: a, merged: a.plan.Own != nil}
	switch {
	case a.plan.Rewrite != nil:
		s.change, s.strict = s.rewritten, true
	case a.plan.HasLists():
		s.change, s.strict = s.rewrittenBatch, true
	case a.x.r.Method == http.MethodGet && a.x.h.cfg.Hub.Governs():
		filter := a.x.request.Filter()
		s.change, s.slow = func(raw []byte) ([]byte, error) { return s.filtered(filter, raw) }, filter.Concerns
	case a.x.h.cfg.Hub.Governs():
		s.change = s.expectedOnly
	}
	return s
}

// begin writes the head. It sends the answers to what does not go to the upstream of a
// batch.
func (s *eventRelay) begin(ctx context.Context) error {
	answers := s.relay.plan.Answers
	if len(answers) == 0 && !s.x.endless() {
		return s.write(nil)
	}
	for _, answer := range answers {
		if err := s.out.write(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: answer})); err != nil {
			return err
		}
	}
	if err := s.send(nil); err != nil {
		return err
	}
	s.x.request.HandOver(ctx, s.relay.plan)
	return nil
}

// ended deals with the end of a stream, given why the upstream's part ended.
func (a relay) ended(ctx context.Context, s *eventRelay, err error) error {
	drained := ctx.Err() != nil && a.x.h.drain.Err() != nil
	switch {
	case errors.Is(err, upstream.ErrRefused):
		return a.x.request.Listening().ListenAlone(ctx, a.plan, a.x.newStream())
	case drained, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, conversation.ErrGone), s.isLost(), a.x.ctx.Err() != nil:
		return conversation.ErrGone
	default:
		return s.cutOff(err)
	}
}

// An eventRelay passes the events of an upstream on. It holds back no more than
// the event that is still incomplete, so that a stream which breaks off can be
// ended properly, and so that an event of the gate's own can be inserted at any
// time.
type eventRelay struct {
	*stream

	relay   relay
	framer  jsonrpc.Framer
	limited *httpclient.PatientBody // the upstream's stream, until its silence has no limit; nil then, and if it never had one
	huge    bool                    // whether an event was too large to be held until it was complete
	check   *conversation.Check     // of the event that is too large to be held, while it passes
	answer  []byte                  // the last events that may hold the answer to the request

	resumable bool // whether an event may have an id, so that the client can take up the stream from there
	searched  int  // bytes that were searched for one

	change func([]byte) ([]byte, error) // what the client is to see of an event; nil leaves it as it is
	slow   func([]byte) bool            // whether change may wait for the store; nil if it never does
	strict bool                         // nothing may pass that change has not seen
	merged bool                         // events of the gate's own are merged into the stream
}

// changed returns what the client is to see of an event, which may be the rest
// of one that was too large to be held. The framer has read it, and nothing behind it.
func (s *eventRelay) changed(raw []byte, framer *jsonrpc.Framer) ([]byte, error) {
	switch {
	case s.change == nil:
		return raw, nil
	case s.check != nil:
		err := s.check.PassLast(raw)
		s.check = nil
		return raw, err
	default:
		event, err := s.change(raw)
		if err == nil && isSame(event, raw) && !framer.Plain() {
			event = plainEvent(eventOf(raw))
		}
		return event, err
	}
}

// rewritten returns the event with its message changed, if that is the response
// that the exchange is about, and as it is otherwise.
func (s *eventRelay) rewritten(raw []byte) ([]byte, error) {
	event := eventOf(raw)
	if len(event.Data) == 0 {
		return raw, nil // nothing but comments, or a place to resume from
	}
	m, err := s.x.readMessage(event.Data)
	if err != nil {
		return nil, upstream.ErrUnchecked
	}
	if !s.x.request.IsAnswer(m) {
		return s.withoutUnasked(raw, event)
	}
	s.keep(raw)
	return withData(raw, event, s.relay.plan.Rewrite(m)), nil
}

// rewrittenBatch returns the event with those of its messages changed that are
// lists.
func (s *eventRelay) rewrittenBatch(raw []byte) ([]byte, error) {
	event := eventOf(raw)
	if len(event.Data) == 0 {
		return raw, nil
	}
	messages, err := s.x.request.ReadBatch(s.relay.plan, event.Data)
	if err != nil {
		return nil, upstream.ErrUnchecked
	}
	s.keep(raw)
	switch event.Data = bytes.TrimSpace(event.Data); {
	case len(messages) == 0:
		return placeOf(event), nil
	case event.Data[0] == '[':
		event.Data = jsonrpc.Array(messages)
	default:
		event.Data = messages[0]
	}
	return plainEvent(event), nil
}

// filtered returns what a client is to see of an event on its GET stream.
func (s *eventRelay) filtered(f *conversation.StreamFilter, raw []byte) ([]byte, error) {
	if !f.Concerns(raw) {
		return raw, nil
	}
	event := eventOf(raw)
	m, err := s.x.readMessage(event.Data)
	if err != nil || !f.Expects(m) {
		return s.withoutUnasked(raw, event)
	}
	message, shown := f.Shown(m)
	if !shown {
		return placeOf(event), nil
	}
	return withData(raw, event, message), nil
}

// expectedOnly returns an event on the stream that answers a request without
// responses to any other request, and without notifications about tasks of the
// gate's own.
func (s *eventRelay) expectedOnly(raw []byte) ([]byte, error) {
	signs := conversation.Look(raw)
	if signs == (conversation.Signs{}) {
		return raw, nil
	}
	if signs.Answer {
		s.keep(raw)
	}
	return s.withoutUnasked(raw, eventOf(raw))
}

// keep keeps events that may hold the answer to the request, to look for it when
// the stream ends, until it has the answer.
func (s *eventRelay) keep(events []byte) {
	if s.x.id() != nil && !s.answered() {
		s.answer = append(s.answer[:0], events...)
	}
}

// withoutUnasked returns an event without the responses in it that the client
// must not be given.
func (s *eventRelay) withoutUnasked(raw []byte, event jsonrpc.Event) ([]byte, error) {
	text := bytes.TrimSpace(event.Data)
	if len(text) == 0 {
		return placeOf(event), nil // what is not data says nothing
	}
	rest, err := s.x.request.WithoutUnasked(text)
	switch {
	case err != nil:
		return nil, err
	case rest.All:
		return raw, nil
	case len(rest.Messages) == 0:
		return placeOf(event), nil
	default:
		event.Data = jsonrpc.Array(rest.Messages)
		return plainEvent(event), nil
	}
}

// placeOf returns an event without its message. The place to resume from stays.
func placeOf(event jsonrpc.Event) []byte {
	event.Data, event.Name = nil, ""
	return plainEvent(event)
}

// withData returns the event of raw with other data, and raw itself if its data is
// the same.
func withData(raw []byte, event jsonrpc.Event, data []byte) []byte {
	if bytes.Equal(data, event.Data) {
		return raw
	}
	event.Data = data
	return plainEvent(event)
}

// eventOf returns the event in raw, or none. Its data may be part of raw.
func eventOf(raw []byte) jsonrpc.Event {
	event, _ := jsonrpc.EventIn(raw)
	return event
}

// readMessage reads a message of the upstream's. Offsets in it count from the
// start of its Raw.
func (x *exchange) readMessage(data []byte) (*jsonrpc.Message, error) {
	return jsonrpc.ParseMessage(data, x.h.cfg.Limits.Parse)
}

// merge has the events of the gate's own inserted into the upstream's stream,
// once that has told what it acknowledges. It returns what ends that.
func (s *eventRelay) merge(ctx context.Context) (end func()) {
	request := s.x.request
	var following sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	s.change = func(raw []byte) ([]byte, error) {
		event := eventOf(raw)
		m, err := s.x.readMessage(event.Data)
		switch {
		case err == nil && request.IsAnswer(m) && m.Error.Present():
			return nil, upstream.ErrRefused
		case err == nil && conversation.IsAcknowledgement(m):
			known := request.Listening().Known(ctx, s.relay.plan.Own)
			s.change, s.after = s.expectedOnly, func() {
				following.Go(func() { request.Listening().FollowTasks(ctx, s, known) })
			}
			event.Data = conversation.Acknowledged(m, known)
			return plainEvent(event), nil
		default:
			return s.expectedOnly(raw)
		}
	}
	return func() {
		cancel()
		following.Wait()
	}
}

// end writes what was held back when the stream ended as it should. There are
// clients that read an event which nothing but the end of the stream ends.
func (s *eventRelay) end(held []byte, err error) error {
	if !errors.Is(err, io.EOF) || len(held) == 0 {
		return err
	}
	end, framer := []byte("\n\n"), s.framer
	framer.Next(end)
	complete := slices.Concat(held, end)
	event, refused := s.changed(complete, &framer)
	if refused != nil {
		return refused
	}
	if bytes.Equal(event, complete) {
		event = held
	}
	if gone := s.writePart(event); gone != nil {
		return gone
	}
	return err
}

// cutOff ends a stream whose upstream broke off. A client that can resume it
// must see the break; another one gets an answer, unless it has it already.
func (s *eventRelay) cutOff(cause error) error {
	x := s.x
	x.problem = brokenOff(cause)
	if s.huge || x.id() == nil || s.framer.HasIDs() {
		return conversation.ErrBrokenOff
	}
	if s.answered() {
		return nil
	}
	data := x.problem.AppendResponse(nil, x.client.era, x.id(), x.Correlation())
	return x.out.sendNow(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: data}))
}

// answered reports whether the client has been sent the response.
func (s *eventRelay) answered() bool {
	if len(s.answer) == 0 {
		return false
	}
	events := jsonrpc.NewEventReader(bytes.NewReader(s.answer), len(s.answer))
	for {
		event, err := events.Next()
		if err != nil {
			return false
		}
		if m, err := s.x.readMessage(event.Data); err == nil && s.x.request.IsAnswer(m) {
			return true
		}
	}
}
