package mcphttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/ownstack"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// An eventRelay relays the upstream's events. It holds back only the incomplete event, so that
// it can end a broken stream properly and insert the gate's events between others.
type eventRelay struct {
	h       *Handler
	reply   *reply
	request *conversation.Request
	plan    *conversation.Plan
	silence time.Duration // how long the upstream may be silent
	edit    eventEditor
	to      *stream

	framer    jsonrpc.Framer
	limit     silenceLimit // limits the upstream's silence
	oversized bool         // an event was too large to hold, so part of it was sent
	merged    bool         // the gate inserts its own events into the stream
}

// passEvents relays an event stream. A complete event never waits for more of the stream.
func (a *relay) passEvents(ctx context.Context) error {
	kind := metrics.StreamPost
	if a.use == httpclient.Stream {
		kind = metrics.StreamGet
	}
	a.h.cfg.Metrics.StreamOpened(kind)
	defer a.h.cfg.Metrics.StreamClosed(kind)
	s := &eventRelay{
		h: a.h, reply: a.reply, request: a.request, plan: a.plan, silence: a.silence,
		to: a.reply.newStream(), merged: a.plan.OwnTasks != nil,
	}
	s.edit.begin(a)
	if a.request.Listens() {
		defer a.request.Subscriber().Join(ctx, s.to)()
	}
	header := a.reply.out.header()
	header.Set("X-Accel-Buffering", "no") // tells proxies not to buffer events
	header.Del("Content-Length")
	a.reply.out.begin(a.resp.StatusCode)
	var err error
	if a.request.Listens() {
		ownstack.Do(func() { err = s.begin(ctx) })
	} else {
		err = s.begin(ctx)
	}
	if err != nil {
		return err
	}
	if a.plan.OwnTasks != nil {
		defer s.merge(ctx)()
	}
	body := a.resp.Body
	//mutate:swap "!a.request.Listens()" "a.request.ID() != nil && !a.request.Listens()" TestSilentStreamTimesOut a batch may wait forever for a silent stream
	if !a.request.Listens() {
		s.limit = silenceLimit{body: httpclient.NewTimeoutBody(body, a.patience), depth: a.h.cfg.Limits.Parse.Depth}
		body = s.limit.body
	}
	forget := a.trackEvents()
	err = s.run(body)
	if !s.framer.HasIDs() {
		forget()
	}
	if m := s.edit.failure(); m != nil {
		a.reply.account.Answered(m)
	}
	if errors.Is(err, io.EOF) && s.edit.matched && !s.edit.strayed {
		httpclient.Accept(a.resp.Body)
	}
	return s.ended(ctx, err)
}

// trackEvents is [conversation.Request.TrackEvents], unless the upstream's answers pass unread.
func (a *relay) trackEvents() (forget func()) {
	if !a.client.checksAnswers() {
		return func() {}
	}
	return a.request.TrackEvents()
}

// begin writes the head, and the answers to those messages of a batch that are not forwarded.
func (s *eventRelay) begin(ctx context.Context) error {
	answers := s.plan.Answers
	if len(answers) == 0 && !s.request.Listens() {
		return s.to.write(nil)
	}
	for _, answer := range answers {
		if err := s.to.out.write(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: answer})); err != nil {
			return err
		}
	}
	if err := s.to.send(nil); err != nil {
		return err
	}
	s.request.NoteDelivered(ctx, s.plan)
	return nil
}

// run relays events until body ends, and returns the reason. A short remainder is flushed with
// the end of the answer.
func (s *eventRelay) run(body io.Reader) error {
	defer s.to.Close()
	err := s.passAll(body)
	if errors.Is(err, io.EOF) && s.to.isNearlySent() {
		return err
	}
	if gone := s.to.flush(); gone != nil {
		return gone
	}
	return err
}

// passAll relays events until body ends, and returns the reason. It flushes before any read
// that may block, not after each event.
func (s *eventRelay) passAll(body io.Reader) error {
	//mutate:swap " _ = s.to.flush() " "" Test(StreamWrittenAtOnce|LargeEventsAreNotBuffered) events wait for more of the stream
	body = beforeWait(body, func() { _ = s.to.flush() }) // the next write or flush reports a lost client
	permit := s.reply.client.upstream.AnswerLimit().NewPermit()
	defer permit.Release()
	buffer := newEventBuffer()
	defer buffer.giveBack()
	for {
		err := buffer.read(body)
		sent, passErr := s.pass(buffer.text(), buffer.fresh)
		if passErr != nil {
			return passErr
		}
		//mutate:drop TestQuestionLiftsSilenceLimit the time of a client for its answer is limited like that of the upstream
		s.limit.lookForQuestion(buffer.text()[:sent])
		buffer.discard(sent)
		if err != nil {
			return s.end(buffer.text(), err)
		}
		if buffer.held <= upstream.PieceSize {
			permit.Release()
		}
		if err := s.makeSpace(buffer, permit); err != nil {
			return err
		}
	}
}

// makeSpace frees or adds space for the next read. It flushes before it waits for memory.
func (s *eventRelay) makeSpace(buffer *eventBuffer, permit *upstream.Permit) error {
	switch {
	case !buffer.full():
		buffer.shrink()
	case buffer.size() < s.maxHeld():
		if err := s.reserve(permit, 2*buffer.size()); err != nil {
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

// reserve takes the slot's memory for an event of size bytes.
func (s *eventRelay) reserve(permit *upstream.Permit, size int) error {
	if permit.TryAcquire(size) {
		return nil
	}
	//mutate:drop TestEventIsSentBeforeWaitingForMemory an event waits until there is memory for the next one
	if err := s.to.flush(); err != nil {
		return err
	}
	return permit.Acquire(s.reply.account.Context, size, s.silence)
}

// maxHeld is the largest event that is held until it is complete.
func (s *eventRelay) maxHeld() int {
	if s.edit.strict || s.merged || s.edit.change != nil && s.request.Listens() {
		return upstream.MaxWhole
	}
	return upstream.PieceSize
}

// A watchfulBody calls f before each read that may block. BeforeWait reports whether it
// supports that.
type watchfulBody interface{ BeforeWait(f func()) bool }

// beforeWait returns a body that calls f before each read that may block.
func beforeWait(body io.Reader, f func()) io.Reader {
	if watchful, ok := body.(watchfulBody); ok && watchful.BeforeWait(f) {
		return body
	}
	return &waitingBody{body: body, before: f}
}

// A waitingBody is a body of which any read may block.
type waitingBody struct {
	body   io.Reader
	before func()
}

// Read implements [io.Reader].
func (b *waitingBody) Read(p []byte) (int, error) {
	b.before()
	return b.body.Read(p)
}

// pass writes the complete events of p, of which bytes from fresh on are new. It returns the
// length of those events.
func (s *eventRelay) pass(p []byte, fresh int) (int, error) {
	if s.edit.change == nil {
		return s.passAsIs(p, fresh)
	}
	sent, start, at := 0, 0, fresh // events from sent to start will be written unchanged
	for at < len(p) {
		n, complete := s.framer.Next(p[at:])
		if at += n; !complete {
			break
		}
		if mayWait(p[start:at]) {
			if err := cmp.Or(s.writeAll(p[sent:start]), s.to.flush()); err != nil {
				return start, err
			}
			sent = start
		}
		event, err := s.edit.changed(p[start:at], &s.framer)
		if err == nil && !s.merged && isSame(event, p[start:at]) {
			start = at
			continue
		}
		if err := errors.Join(s.writeAll(p[sent:start]), err); err != nil {
			return start, err
		}
		if err := s.to.send(event); err != nil {
			return start, err
		}
		sent, start = at, at
	}
	return start, s.writeAll(p[sent:start])
}

// mayWait reports whether editing the event may query the store. A wrong answer costs only an
// extra flush or a short delay.
func mayWait(event []byte) bool { return bytes.Contains(event, []byte("task")) }

// passAsIs is pass for a stream that is not edited.
func (s *eventRelay) passAsIs(p []byte, fresh int) (int, error) {
	cut := s.framer.Advance(p[fresh:])
	if cut == 0 {
		return 0, nil
	}
	events := p[:fresh+cut]
	if conversation.MayBeResponse(events) {
		s.edit.keep(events)
	}
	return len(events), s.to.write(events)
}

// writeAll writes events, if there are any.
func (s *eventRelay) writeAll(events []byte) error {
	if len(events) == 0 {
		return nil
	}
	return s.to.write(events)
}

// passPart writes part of an event that is too large to hold.
func (s *eventRelay) passPart(part []byte) error {
	if err := s.edit.checkPart(part); err != nil {
		return err
	}
	if s.oversized = true; mayAsk(part) {
		s.limit.lift() // possibly a question, whose rest is not parsed
	}
	return s.to.writePart(part)
}

// merge inserts the gate's events into the upstream's stream after the upstream's
// acknowledgement. The returned function stops that.
func (s *eventRelay) merge(ctx context.Context) (end func()) {
	request := s.request
	var following sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	s.edit.change = func(raw []byte) ([]byte, error) {
		event := eventOf(raw)
		m, err := s.h.readMessage(event.Data)
		switch {
		case err == nil && request.IsAnswer(m) && m.Error.Present():
			return nil, upstream.ErrRefused
		case err == nil && conversation.IsAcknowledgement(m):
			known := request.Subscriber().ExistingTasks(ctx, s.plan.OwnTasks)
			s.edit.change, s.to.after = s.edit.expectedOnly, func() {
				following.Go(func() { request.Subscriber().FollowTasks(ctx, s.to, known) })
			}
			event.Data = conversation.AddToAcknowledgement(m, known)
			return plainEvent(event), nil
		default:
			return s.edit.expectedOnly(raw)
		}
	}
	return func() {
		cancel()
		following.Wait()
	}
}

// end writes the incomplete rest of a stream that ended properly. Some clients accept an event
// without a final empty line.
func (s *eventRelay) end(held []byte, err error) error {
	if !errors.Is(err, io.EOF) || len(held) == 0 {
		return err
	}
	end := []byte("\n\n")
	s.framer.Next(end)
	complete := slices.Concat(held, end)
	event, refused := s.edit.changed(complete, &s.framer)
	if refused != nil {
		return refused
	}
	if bytes.Equal(event, complete) {
		event = held
	}
	if gone := s.to.writePart(event); gone != nil {
		return gone
	}
	return err
}

// ended handles the end of a stream; err is why the upstream's part ended.
func (s *eventRelay) ended(ctx context.Context, err error) error {
	drained := ctx.Err() != nil && s.h.drain.Err() != nil
	switch {
	case errors.Is(err, upstream.ErrRefused):
		return s.request.Subscriber().ServeSubscription(ctx, s.plan, s.reply.newStream())
	case drained, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, conversation.ErrGone), s.to.isLost(), s.reply.account.Context.Err() != nil:
		return conversation.ErrGone
	default:
		return s.cutOff(err)
	}
}

// cutOff handles an upstream that broke off. A client that can resume must see the break;
// another client gets an error, unless it has received its answer.
func (s *eventRelay) cutOff(cause error) error {
	account := s.reply.account
	account.Problem = brokenOff(cause)
	if s.oversized || s.request.ID() == nil || s.framer.HasIDs() {
		return conversation.ErrBrokenOff
	}
	if s.edit.response() != nil {
		return nil
	}
	data := account.Problem.AppendResponse(nil, account.Era, s.request.ID(), account.Correlation())
	return s.to.out.sendNow(jsonrpc.AppendEvent(nil, jsonrpc.Event{Name: "message", Data: data}))
}
