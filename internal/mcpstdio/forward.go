package mcpstdio

import (
	"context"
	"errors"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// forward sends what passed of the message to the server.
func (x *exchange) forward() error {
	x.dropCancelled()
	ids := x.asked()
	ctx := x.traceUpstream()
	f := upstream.Forwarded{
		Packet: x.packet, Body: x.plan.Body, As: x.Caller().As(),
		Expect: func() bool { return x.expect(ids) }, Forget: func() bool { return len(ids) == 0 || x.forget(ids) },
	}
	if x.packet.Batch {
		f.Packet = upstream.ReadLine(x.plan.Body, 0).Packet
		if len(ids) > 0 {
			x.parts = &parts{missing: ids}
		}
	}
	// The client may leave before the server has taken the message.
	err := x.a.cfg.Link.Forward(context.WithoutCancel(ctx), f)
	switch {
	case len(ids) == 0:
		return nil // nobody waits for an answer
	case x.crowded:
		return x.Refuse(tooMany())
	case err != nil && !x.expected:
		return x.unanswered(err)
	case err != nil && x.forget(ids):
		return x.unanswered(err)
	default:
		return errLater // to be answered, or answered by now
	}
}

// traceUpstream starts the span of the server's part, and sends the server its id
// where the message has a place for that and was not changed.
func (x *exchange) traceUpstream() context.Context {
	if x.a.cfg.Tracing == nil {
		return x.ctx
	}
	var ctx context.Context
	ctx, x.upstreamSpan = x.a.cfg.Tracing.StartUpstream(x.ctx)
	if !x.packet.Batch {
		x.plan.Body = upstream.ContinueTrace(ctx, &x.packet.Messages[0], x.plan.Body)
	}
	return ctx
}

// expect takes the exchange in among those that the server is to answer, and
// reports whether there was room.
func (x *exchange) expect(ids [][]byte) bool {
	for i, id := range ids {
		if !x.a.pending.add(id, x, x.a.cfg.Limits.Requests) {
			x.forget(ids[:i])
			x.crowded = true
			return false
		}
	}
	x.expected = true
	return true
}

// asked returns the ids of the requests that the server is to answer.
func (x *exchange) asked() [][]byte {
	if !x.packet.Batch {
		if id := x.request.ID(); id != nil {
			return [][]byte{id}
		}
		return nil
	}
	var ids [][]byte
	for _, m := range upstream.ReadLine(x.plan.Body, 0).Packet.Messages {
		if m.Kind == jsonrpc.Request {
			ids = append(ids, m.ID.Bytes)
		}
	}
	return ids
}

// forget takes the exchange out of those that the server is to answer, and reports
// whether it was there.
func (x *exchange) forget(ids [][]byte) (was bool) {
	for _, id := range ids {
		was = x.a.pending.drop(id, x) || was
	}
	x.expected = x.expected && !was
	return was
}

// dropCancelled forgets the request that the message cancels, if it is such a
// message: the server need not answer it any more.
func (x *exchange) dropCancelled() {
	m := &x.packet.Messages[0]
	id := m.Params.Member("requestId")
	if x.packet.Batch || m.Method != methodCancelled || !id.Present() {
		return
	}
	if target := x.a.pending.take(id.Bytes); target != nil {
		target.end(nil)
	}
}

// Received implements [upstream.Receiver].
func (a *Agent) Received(line upstream.Line) {
	switch {
	case line.Err != nil:
		a.unread(line)
	case !line.Packet.Batch:
		a.receive(line.Text, &line.Packet.Messages[0])
	default:
		for i := range line.Packet.Messages {
			a.receive(line.Packet.Messages[i].Raw, &line.Packet.Messages[i])
		}
	}
}

// receive takes one message of the server.
func (a *Agent) receive(text []byte, m *jsonrpc.Message) {
	if m.Kind != jsonrpc.Response {
		a.unasked(text, m)
		return
	}
	if x := a.pending.take(m.ID.Bytes); x != nil {
		x.safely(func() error { return x.answered(text, m) })
		return
	}
	tellsOfUnreadable := (!m.ID.Present() || m.ID.IsNull()) && m.Error.Present()
	if tellsOfUnreadable || !a.cfg.Hub.Governs() {
		_ = a.out.send(text) // a client that is gone has said so
		return
	}
	a.filter.Dropped()
}

// answered gives the client the server's answer to its request, as it may see it.
func (x *exchange) answered(text []byte, m *jsonrpc.Message) error {
	x.failed = m.Error.Present()
	code, _ := m.Error.Member("code").Int()
	unknown := x.failed && code == jsonrpc.CodeMethodNotFound
	switch p := x.plan; {
	case x.parts != nil:
		return x.partAnswered(m)
	case x.failed && x.isUnacknowledged() && (p.Own != nil || unknown && x.request.Listening().WantsLists()):
		return x.listenAlone()
	case unknown && p.Unknown != nil:
		return x.request.AnswerError(p.Unknown)
	case p.Rewrite != nil:
		return x.rewritten(text)
	default:
		return x.a.out.send(text)
	}
}

// rewritten gives the client an answer that the gate has to change.
func (x *exchange) rewritten(text []byte) error {
	m, err := jsonrpc.ParseMessage(text, x.a.cfg.Limits.Parse) // whose places count from its own start
	if err != nil {
		return x.Refuse(uncheckable(err))
	}
	shown := x.plan.Rewrite(m)
	greeted := x.label == "initialize" && m.Result.Present()
	if greeted {
		version, _ := m.Result.Member("protocolVersion").Text()
		x.a.version.Store(&version)
	}
	if err := x.a.out.send(shown); err != nil || !greeted {
		return err
	}
	x.a.hear()
	return nil
}

func uncheckable(cause error) *wire.Problem {
	return &wire.Problem{Type: wire.UpstreamInvalid, Detail: "the server's answer cannot be checked", Cause: cause}
}

// hear has the client notified of its tasks and of lists that change.
func (a *Agent) hear() {
	x := a.newExchange(a.left)
	x.request = a.cfg.Hub.BeginStream(x, x, false)
	a.running.Go(func() {
		s := &stream{x: x}
		leave := x.request.Listening().Hear(a.left, s)
		<-a.left.Done()
		s.Close()
		leave()
		x.request.End()
	})
}

// partAnswered takes one answer to a batch, and gives the client all of them when
// they are complete.
func (x *exchange) partAnswered(m *jsonrpc.Message) error {
	shown, err := x.request.ReadBatch(x.plan, m.Raw)
	if err != nil {
		return x.partFailed(m.ID.Bytes, uncheckable(err))
	}
	return x.addPart(m.ID.Bytes, shown...)
}

// partFailed takes the place of one answer to a batch.
func (x *exchange) partFailed(id []byte, problem *wire.Problem) error {
	x.problem = problem
	return x.addPart(id, problem.AppendResponse(nil, x.era, id, x.Correlation()))
}

func (x *exchange) addPart(id []byte, answers ...[]byte) error {
	x.parts.answers = append(x.parts.answers, answers...)
	if i := slices.IndexFunc(x.parts.missing, func(other []byte) bool { return jsonrpc.SameID(id, other) }); i >= 0 {
		x.parts.missing = slices.Delete(slices.Clone(x.parts.missing), i, i+1)
	}
	if len(x.parts.missing) > 0 {
		return errLater
	}
	return x.request.AnswerBatch(x.ctx, x.plan, x.parts.answers)
}

// unread takes a line that the gate cannot read, maybe because it is ambiguous. If
// the line may be an answer, it goes to the client only where it cannot be taken
// for the answer to another request.
func (a *Agent) unread(line upstream.Line) {
	if !a.cfg.Hub.Governs() {
		_ = a.out.send(line.Text)
		return
	}
	var scan jsonrpc.AnswerScanner
	_ = scan.Scan(line.Text) // what it has found by then counts
	found := false
	for _, id := range scan.IDs() {
		if x := a.pending.take(id); x != nil {
			found = true
			x.safely(func() error { return x.answeredUnread(line, id) })
		}
	}
	if found {
		return
	}
	ctx := logging.Limited(a.left, "no message", a.sender.Upstream)
	a.cfg.Log.WarnContext(ctx, "the server wrote a line to its standard output that is no message; it was dropped",
		"upstream", a.sender.Upstream, "line", plain.Line(string(line.Text), maxExcerpt), "cause", line.Err)
}

// maxExcerpt is how much of a line that is no message the log shows.
const maxExcerpt = 120

// answeredUnread is answered for an answer that the gate cannot read.
func (x *exchange) answeredUnread(line upstream.Line, id []byte) error {
	switch {
	case x.parts != nil:
		return x.partFailed(id, uncheckable(line.Err))
	case x.plan.Rewrite != nil, x.request.Listens(), x.request.CheckText().Pass(line.Text) != nil:
		return x.Refuse(uncheckable(line.Err))
	default:
		return x.a.out.send(line.Text)
	}
}

// unasked gives the client what the server says without being asked, as the client
// may see it.
func (a *Agent) unasked(text []byte, m *jsonrpc.Message) {
	if !a.cfg.Hub.Governs() {
		_ = a.out.send(text)
		return
	}
	if conversation.IsAcknowledgement(m) {
		id := m.Params.Meta.Member(wire.MetaSubscription).Bytes
		if x := a.pending.get(id); x != nil && x.request.Listens() && !x.subscribed.Swap(true) {
			x.recoverOnly(func() error { return x.acknowledged(text) })
			return
		}
	}
	if a.filter.Concerns(text) {
		shown, pass := a.filter.Shown(m)
		if !pass {
			return
		}
		text = shown
	}
	_ = a.out.send(text)
}

// recoverOnly does something for an exchange that goes on, and survives a panic.
func (x *exchange) recoverOnly(do func() error) { _ = x.recovered(do) }

// acknowledged sends a client that listens what it will hear of, and begins to notify it. It
// is called once: a server may repeat its acknowledgement.
func (x *exchange) acknowledged(text []byte) error {
	s := x.Listen()
	leave := x.request.Listening().Hear(x.ctx, s)
	context.AfterFunc(x.ctx, func() {
		s.Close()
		leave()
	})
	if x.plan.Own == nil {
		return x.a.out.send(text)
	}
	m, err := jsonrpc.ParseMessage(text, x.a.cfg.Limits.Parse)
	if err != nil {
		return err
	}
	known := x.request.Listening().Known(x.ctx, x.plan.Own)
	if err := x.a.out.send(conversation.Acknowledged(m, known)); err != nil {
		return err
	}
	x.a.running.Go(func() { x.recoverOnly(func() error { x.request.Listening().FollowTasks(x.ctx, s, known); return nil }) })
	return nil
}

// isUnacknowledged reports whether the client subscribes and the server has not
// acknowledged that. A subscription that the server has acknowledged ends with the
// server's part.
func (x *exchange) isUnacknowledged() bool { return x.request.Listens() && !x.subscribed.Load() }

// listenAlone serves a client that listens without the server.
func (x *exchange) listenAlone() error {
	x.failed = false
	id := x.request.ID()
	x.a.own.add(id, x, 0)
	s := x.Listen()
	x.a.running.Go(func() {
		defer x.a.own.drop(id, x)
		x.safely(func() error { return x.request.Listening().ListenAlone(x.ctx, x.plan, s) })
	})
	return errLater
}

// Unanswered implements [upstream.Receiver].
func (a *Agent) Unanswered(ids [][]byte, problem *wire.Problem) {
	if ids == nil {
		for _, x := range a.pending.all() {
			ids = append(ids, x.asked()...)
		}
	}
	for _, id := range ids {
		x := a.pending.take(id)
		switch {
		case x == nil:
		case x.parts != nil:
			x.safely(func() error { return x.partFailed(id, problem) })
		default:
			x.safely(func() error { return x.unanswered(problem) })
		}
	}
}

// unanswered answers a request in place of a server that does not.
func (x *exchange) unanswered(err error) error {
	problem, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		problem = &wire.Problem{Type: wire.UpstreamInvalid, Cause: err}
	}
	if x.packet.Batch {
		return x.batchUnanswered(problem)
	}
	if x.plan.Instead != nil {
		if message := x.plan.Instead(); message != nil {
			return x.a.out.send(message)
		}
	}
	if x.isUnacknowledged() && x.plan.Own != nil {
		return x.listenAlone()
	}
	return x.Refuse(problem)
}

// batchUnanswered answers all of a batch in place of a server that was not sent it.
func (x *exchange) batchUnanswered(problem *wire.Problem) error {
	if x.parts == nil {
		return x.Refuse(problem)
	}
	err := errLater
	for _, id := range x.parts.missing {
		err = x.partFailed(id, problem)
	}
	return err
}
