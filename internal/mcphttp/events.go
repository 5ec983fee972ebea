package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/time/rate"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// relayEvents passes a stream of events on, each as soon as it is complete.
func (x *exchange) relayEvents(ctx context.Context, p *plan, resp *http.Response) error {
	kind := metrics.StreamPost
	if x.r.Method == http.MethodGet {
		kind = metrics.StreamGet
	}
	x.h.cfg.Metrics.StreamOpened(kind)
	defer x.h.cfg.Metrics.StreamClosed(kind)
	s := x.newRelay(p)
	if x.listens {
		defer x.h.listeners.add(x.peer(), s, x.hearing())()
		s.awaitFollower(ctx)
	}
	x.w.Header().Set("X-Accel-Buffering", "no") // proxies in front must not hold events back either
	x.w.Header().Del("Content-Length")
	x.begin(resp.StatusCode)
	if err := s.begin(ctx, p); err != nil {
		return err
	}
	if p.own != nil {
		defer x.merge(ctx, s, p.own)()
	}
	body := resp.Body
	if x.id != nil && !x.listens { // the client waits for an answer
		patient := &patientBody{ReadCloser: body, patience: x.silence}
		defer patient.stop()
		body = patient
	}
	err := s.run(body)
	x.noteEvents(s.last)
	return x.ended(ctx, p, s, err)
}

// newRelay returns the relay of a stream, which changes what p says.
func (x *exchange) newRelay(p *plan) *eventRelay {
	s := &eventRelay{x: x, torn: true, merged: p.own != nil}
	switch {
	case p.rewrite != nil:
		s.change, s.strict = func(raw []byte) ([]byte, error) { return s.rewritten(p, raw) }, true
	case p.lists != nil:
		s.change, s.strict = func(raw []byte) ([]byte, error) { return s.rewrittenBatch(p, raw) }, true
	case x.r.Method == http.MethodGet && x.h.cfg.Gate.Governs():
		s.change = s.overheard
	case x.h.cfg.Gate.Governs():
		s.change = s.answersOnly
	}
	return s
}

// begin sends the answers to what does not go to the upstream of a batch.
func (s *eventRelay) begin(ctx context.Context, p *plan) error {
	for _, refusal := range p.refusals {
		if err := s.x.write(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: refusal})); err != nil {
			return err
		}
	}
	if err := s.send(nil); err != nil {
		return err
	}
	s.x.handOver(ctx, p)
	return nil
}

// ended deals with the end of a stream, given why the upstream's part ended.
func (x *exchange) ended(ctx context.Context, p *plan, s *eventRelay, err error) error {
	drained := ctx.Err() != nil && x.h.drain.Err() != nil
	switch {
	case errors.Is(err, upstream.ErrRefused):
		return x.listenAlone(ctx, p, &eventRelay{x: x})
	case drained, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, errGone), s.isLost(), x.ctx.Err() != nil:
		return errGone
	default:
		return s.cutOff(err)
	}
}

// An eventRelay holds back no more than the event that is still incomplete, so
// that a stream which breaks off can be ended properly, and so that an event of
// the gate's own can be inserted at any time.
type eventRelay struct {
	x      *exchange
	about  task.ID // the one task that the stream is about, if it is
	framer jsonrpc.Framer
	last   []byte // the last events that were sent
	huge   bool   // whether an event was too large to be held until it was complete

	check *answerCheck // of the event that is too large to be held, while it passes

	change func([]byte) ([]byte, error) // what the client is to see of an event; nil leaves it as it is
	strict bool                         // nothing may pass that change has not seen
	merged bool                         // events of the gate's own are merged into the stream
	after  func()                       // to be called once when the next event has been sent

	origins map[string]origin // see originOf; only for the goroutine that reads
	lookups *rate.Limiter

	followed <-chan struct{} // closed when the client's tasks are followed; nil if they are not

	mu     sync.Mutex  // guards what the client is sent
	torn   bool        // the client has been sent part of an event, or nothing yet
	queue  []insertion // events to insert when that is complete
	closed bool
	lost   bool // the client did not take what it was sent
}

// awaitFollower waits until nothing that happens to the client's tasks escapes
// the gate: from the moment a client sees its stream, it relies on that.
func (s *eventRelay) awaitFollower(ctx context.Context) {
	if s.followed == nil {
		return
	}
	select {
	case <-s.followed:
	case <-ctx.Done():
	}
}

// run passes events on until body ends, and returns why.
func (s *eventRelay) run(body io.Reader) error {
	defer s.close()
	seat := s.x.upstream.Room().Seat()
	defer seat.Leave()
	piece := make([]byte, 1<<10) // most streams are idle: they start small
	held := 0
	for {
		n, err := body.Read(piece[held:])
		sent, passErr := s.pass(piece[:held+n], held)
		if passErr != nil {
			return passErr
		}
		held = copy(piece, piece[sent:held+n])
		if len(piece) > upstream.PieceSize && held <= upstream.PieceSize {
			piece = append(make([]byte, 0, upstream.PieceSize), piece[:held]...)[:upstream.PieceSize]
			seat.Leave()
		}
		if err != nil {
			return s.end(piece[:held], err)
		}
		if held < len(piece) {
			continue
		}
		if len(piece) < s.room() {
			if err := seat.Take(s.x.ctx, 2*len(piece), s.x.silence); err != nil {
				return err
			}
			piece = slices.Concat(piece, make([]byte, len(piece)))
			continue
		}
		if err := s.passPart(piece); err != nil {
			return err
		}
		held = 0
	}
}

// room is how large an event may be to be held until it is complete.
func (s *eventRelay) room() int {
	if s.strict || s.merged || s.change != nil && s.x.r.Method == http.MethodGet {
		return upstream.MaxWhole
	}
	return upstream.PieceSize
}

// pass sends the complete events of p, whose bytes from fresh on are new, and
// returns how many bytes those events have.
func (s *eventRelay) pass(p []byte, fresh int) (int, error) {
	if s.change == nil {
		cut := s.framer.Advance(p[fresh:])
		if cut == 0 {
			return 0, nil
		}
		return fresh + cut, s.send(p[:fresh+cut])
	}
	start, at := 0, fresh
	for at < len(p) {
		n, complete := s.framer.Next(p[at:])
		if at += n; !complete {
			break
		}
		event, err := s.changed(p[start:at])
		if err != nil {
			return start, err
		}
		if err := s.send(event); err != nil {
			return start, err
		}
		start = at
	}
	return start, nil
}

// rewritten returns the event with its message changed, if that is the response
// that the exchange is about, and as it is otherwise.
func (s *eventRelay) rewritten(p *plan, raw []byte) ([]byte, error) {
	event := eventOf(raw)
	if len(event.Data) == 0 {
		return raw, nil // nothing but comments, or a place to resume from
	}
	m, err := s.x.readMessage(event.Data)
	if err != nil {
		return nil, upstream.ErrUnchecked
	}
	if !s.x.answeredBy(m) {
		return s.withoutUnasked(raw, event)
	}
	data := p.rewrite(m)
	if bytes.Equal(data, event.Data) {
		return raw, nil
	}
	event.Data = data
	return jsonrpc.AppendEvent(nil, event), nil
}

// rewrittenBatch returns the event with those of its messages changed that are
// lists.
func (s *eventRelay) rewrittenBatch(p *plan, raw []byte) ([]byte, error) {
	event := eventOf(raw)
	if len(event.Data) == 0 {
		return raw, nil
	}
	messages, err := s.x.readBatch(p.lists, event.Data)
	if err != nil {
		return nil, upstream.ErrUnchecked
	}
	switch event.Data = bytes.TrimSpace(event.Data); {
	case len(messages) == 0:
		return placeOf(event), nil
	case event.Data[0] == '[':
		event.Data = jsonrpc.Array(messages)
	default:
		event.Data = messages[0]
	}
	return jsonrpc.AppendEvent(nil, event), nil
}

// eventOf returns the event in raw, or none.
func eventOf(raw []byte) jsonrpc.Event {
	event, err := jsonrpc.NewEventReader(bytes.NewReader(raw), len(raw)).Next()
	if err != nil {
		return jsonrpc.Event{}
	}
	return event
}

// readMessage reads a message of the upstream's. Offsets in it count from the
// start of its Raw.
func (x *exchange) readMessage(data []byte) (*jsonrpc.Message, error) {
	return jsonrpc.ParseMessage(data, x.h.cfg.Limits.Parse)
}

// answeredBy reports whether m is the response to the exchange's request.
func (x *exchange) answeredBy(m *jsonrpc.Message) bool {
	return m.Kind == jsonrpc.Response && jsonrpc.SameID(m.ID.Bytes, x.id)
}

// end sends what was held back when the stream ended as it should. There are
// clients that read an event which nothing but the end of the stream ends.
func (s *eventRelay) end(held []byte, err error) error {
	if !errors.Is(err, io.EOF) || len(held) == 0 {
		return err
	}
	const end = "\n\n"
	complete := slices.Concat(held, []byte(end))
	event, refused := s.changed(complete)
	if refused != nil {
		return refused
	}
	if bytes.Equal(event, complete) {
		event = held
	}
	if sent := s.sendPart(event); sent != nil {
		return sent
	}
	return err
}

// send sends complete events.
func (s *eventRelay) send(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.x.write(p); err != nil {
		return err
	}
	for _, event := range s.queue {
		s.writeAside(event)
	}
	if err := s.x.flush(); err != nil {
		return err
	}
	s.torn, s.queue = false, nil
	if s.x.id != nil {
		s.last = append(s.last[:0], p...)
	}
	if s.after != nil {
		s.after()
		s.after = nil
	}
	return nil
}

// sendPart sends part of an event.
func (s *eventRelay) sendPart(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.torn = true
	return s.x.sendNow(p)
}

// maxQueue is how many events may wait for the end of one that is torn.
const maxQueue = 1000

// An insertion writes an event of the gate's own, of any size.
type insertion func(io.Writer) error

// insert is insertWith for an event that is at hand.
func (s *eventRelay) insert(event []byte) bool {
	return s.insertWith(func(w io.Writer) error {
		_, err := w.Write(event)
		return err
	})
}

// insertWith sends an event of the gate's own between two of the upstream's, and
// reports whether the client is still there. It may be called from any
// goroutine. A client that does not take it in time loses its stream: it would
// be told of everything that follows too late as well.
func (s *eventRelay) insertWith(event insertion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case !s.torn:
		s.writeAside(event)
	case len(s.queue) < maxQueue:
		s.queue = append(s.queue, event)
	default:
		s.lose()
	}
	return !s.closed
}

// writeAside sends an event from a goroutine that may not be the exchange's. An
// event that breaks off breaks the stream off, so that nobody takes what comes
// after for its end.
func (s *eventRelay) writeAside(event insertion) {
	out := &aside{x: s.x}
	if err := event(out); err != nil && out.begun || s.x.control.Flush() != nil {
		s.lose()
	}
}

// lose gives up a client.
func (s *eventRelay) lose() {
	s.closed, s.lost = true, true
	s.x.cut()
}

// isLost reports whether the client was given up.
func (s *eventRelay) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// An aside writes what does not come from the exchange's own goroutine.
type aside struct {
	x     *exchange
	begun bool
}

// Write implements [io.Writer].
func (a *aside) Write(p []byte) (int, error) {
	a.begun = true
	if err := a.x.tryWrite(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// close makes sure that nothing is inserted once the exchange has ended.
func (s *eventRelay) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// cutOff ends a stream whose upstream broke off. A client that can resume it
// must see the break; another one gets an answer, unless it has it already.
func (s *eventRelay) cutOff(cause error) error {
	x := s.x
	x.problem = brokenOff(cause)
	if s.huge || x.id == nil || s.framer.HasIDs() {
		return errBrokenOff
	}
	if s.answered() {
		return nil
	}
	data := x.problem.AppendResponse(nil, x.era, x.id, x.correlationID())
	return x.sendNow(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: data}))
}

// answered reports whether the last events that were sent hold the response.
func (s *eventRelay) answered() bool {
	events := jsonrpc.NewEventReader(bytes.NewReader(s.last), len(s.last))
	for {
		event, err := events.Next()
		if err != nil {
			return false
		}
		if m, err := s.x.readMessage(event.Data); err == nil && s.x.answeredBy(m) {
			return true
		}
	}
}
