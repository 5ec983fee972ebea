package mcphttp

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// run passes events on until body ends, and returns why. Little that is left then goes on
// its way with the end of the answer.
func (s *eventRelay) run(body io.Reader) error {
	defer s.Close()
	err := s.passAll(body)
	if errors.Is(err, io.EOF) && s.isNearlySent() {
		return err
	}
	if gone := s.flush(); gone != nil {
		return gone
	}
	return err
}

// passAll passes events on until body ends, and returns why. While more of a busy stream
// is there, what it writes is not sent on its way piece by piece, but before anything that
// may wait.
func (s *eventRelay) passAll(body io.Reader) error {
	body = beforeWait(body, func() { _ = s.flush() }) // whoever writes or flushes next learns that the client is gone
	seat := s.x.upstream.Room().Seat()
	defer seat.Leave()
	buffer := newEventBuffer()
	defer buffer.giveBack()
	for {
		err := buffer.read(body)
		s.lookForID(buffer)
		sent, passErr := s.pass(buffer.text(), buffer.fresh)
		if passErr != nil {
			return passErr
		}
		s.lookForQuestion(buffer.text()[:sent])
		buffer.discard(sent)
		if err != nil {
			return s.end(buffer.text(), err)
		}
		if buffer.held <= upstream.PieceSize {
			seat.Leave()
		}
		if err := s.makeRoom(buffer, seat); err != nil {
			return err
		}
	}
}

// makeRoom makes room for the next read. What was written is on its way before it waits.
func (s *eventRelay) makeRoom(buffer *eventBuffer, seat *upstream.Seat) error {
	switch {
	case !buffer.full():
		buffer.shrink()
	case buffer.size() < s.room():
		if err := s.take(seat, 2*buffer.size()); err != nil {
			return err
		}
		buffer.grow()
	case buffer.held == buffer.size():
		if err := s.passPart(buffer.text()); err != nil {
			return err
		}
		buffer.discard(buffer.held)
	}
	return nil
}

// take takes the seat for an event of size bytes.
func (s *eventRelay) take(seat *upstream.Seat, size int) error {
	if seat.TryTake(size) {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	return seat.Take(s.x.ctx, size, s.relay.silence)
}

// eventID begins the line of an event with its id. A server that gives ids gives one to
// its first events, so the rest of a long stream is not searched.
const (
	eventID   = "id:"
	idsWithin = 64 << 10
)

// lookForID notes whether what was read last has an id.
func (s *eventRelay) lookForID(b *eventBuffer) {
	if s.resumable || s.searched > idsWithin {
		return
	}
	s.searched += len(b.text()) - b.fresh
	s.resumable = bytes.Contains(b.text()[max(0, b.fresh-len(eventID)+1):], []byte(eventID))
}

// Text that is longer than lookedAt is searched for a question at its edges alone: an
// upstream that sends so much at once has more to say, unless it is one large question. The
// members of a request besides its parameters stand at its beginning and its end.
const (
	lookedAt = 32 << 10
	edge     = 1 << 10
)

// lookForQuestion lifts the limit on the upstream's silence once it has asked the client
// something in the given events: the client may take any time to answer.
func (s *eventRelay) lookForQuestion(events []byte) {
	if s.limited == nil || !mayHoldQuestion(events) {
		return
	}
	reader := jsonrpc.NewEventReader(bytes.NewReader(events), len(events))
	for {
		event, err := reader.Next()
		if err != nil {
			return
		}
		if upstream.Asks(upstream.ReadLine(bytes.TrimSpace(event.Data), s.x.h.cfg.Limits.Parse.Depth).Packet) {
			s.waitAnyTime()
			return
		}
	}
}

// mayHoldQuestion reports whether one of the events may be a request.
func mayHoldQuestion(events []byte) bool {
	if len(events) <= lookedAt {
		return asksIn(events)
	}
	return asksIn(events[:edge], events[len(events)-edge:])
}

// asksIn reports whether the parts of a text have the members that make a message a request.
func asksIn(parts ...[]byte) bool {
	has := func(member string) bool {
		return slices.ContainsFunc(parts, func(part []byte) bool { return bytes.Contains(part, []byte(member)) })
	}
	return has(`"method"`) && has(`"id"`)
}

// mayAsk reports whether a text may be part of a request.
func mayAsk(text []byte) bool { return bytes.Contains(text, []byte(`"method"`)) }

// waitAnyTime lets the upstream say nothing for as long as it likes.
func (s *eventRelay) waitAnyTime() {
	if s.limited != nil {
		s.limited.SetPatience(0)
		s.limited = nil
	}
}

// room is how large an event may be to be held until it is complete.
func (s *eventRelay) room() int {
	if s.strict || s.merged || s.change != nil && (s.x.r.Method == http.MethodGet || s.x.request.Listens()) {
		return upstream.MaxWhole
	}
	return upstream.PieceSize
}

// pass writes the complete events of p, whose bytes from fresh on are new, and
// returns how many bytes those events have.
func (s *eventRelay) pass(p []byte, fresh int) (int, error) {
	if s.change == nil {
		return s.passAsIs(p, fresh)
	}
	sent, start, at := 0, 0, fresh // the events from sent to start are still to be written, as they are
	for at < len(p) {
		n, complete := s.framer.Next(p[at:])
		if at += n; !complete {
			break
		}
		if s.slow != nil && s.slow(p[start:at]) {
			if err := cmp.Or(s.writeAll(p[sent:start]), s.flush()); err != nil {
				return start, err
			}
			sent = start
		}
		event, err := s.changed(p[start:at], &s.framer)
		if err == nil && !s.merged && isSame(event, p[start:at]) {
			start = at
			continue
		}
		if err := errors.Join(s.writeAll(p[sent:start]), err); err != nil {
			return start, err
		}
		if err := s.send(event); err != nil {
			return start, err
		}
		sent, start = at, at
	}
	return start, s.writeAll(p[sent:start])
}

// passAsIs is pass for a stream of which nothing changes.
func (s *eventRelay) passAsIs(p []byte, fresh int) (int, error) {
	cut := s.framer.Advance(p[fresh:])
	if cut == 0 {
		return 0, nil
	}
	events := p[:fresh+cut]
	if conversation.MayAnswer(events) {
		s.keep(events)
	}
	return len(events), s.write(events)
}

// isSame reports whether two slices are the same memory.
func isSame(a, b []byte) bool { return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] }

// writeAll writes events, if there are any.
func (s *eventRelay) writeAll(events []byte) error {
	if len(events) == 0 {
		return nil
	}
	return s.write(events)
}

// passPart writes part of an event that is too large to be held.
func (s *eventRelay) passPart(part []byte) error {
	if s.strict || s.change != nil && s.x.r.Method == http.MethodGet && !s.x.request.Resumed() {
		return upstream.ErrUnchecked
	}
	if s.change != nil {
		if s.check == nil {
			s.check = s.x.request.CheckEvent()
		}
		if err := s.check.Pass(part); err != nil {
			return err
		}
	}
	if s.huge = true; mayAsk(part) {
		s.waitAnyTime() // it may be a question, of which the rest is not looked at
	}
	return s.writePart(part)
}
