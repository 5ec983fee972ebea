package mcpstdio

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A forwarding is a message or batch that is forwarded to the server.
type forwarding struct {
	a      *Agent
	x      *exchange
	packet jsonrpc.Packet
	reply  *reply
	plan   *conversation.Plan
	batch  *batchAnswers // of a batch that the server is answering

	subscribed            atomic.Bool // the server has acknowledged the client's subscription
	registered, tableFull bool        // results of register
}

// run sends the planned message to the server.
func (f *forwarding) run() error {
	f.dropCancelled()
	ids := f.requestIDs()
	ctx := f.traceUpstream()
	message := upstream.Forwarded{
		Packet: f.packet, Body: f.plan.Body, Credentials: f.a.client.Caller().Credentials(),
		Forget: func() bool { return len(ids) == 0 || f.unregister(ids) },
	}
	if f.packet.Batch {
		message.Packet = upstream.ReadLine(f.plan.Body, 0).Packet
		if len(ids) > 0 {
			f.batch = &batchAnswers{missing: ids}
		}
	}
	limit := f.a.cfg.Limits.Silence.of(message.Packet)
	message.Expect = func() bool { return f.register(ids, limit) }
	// The client may leave before the server accepts the message.
	err := f.a.cfg.Link.Forward(context.WithoutCancel(ctx), message)
	switch {
	case len(ids) == 0:
		return nil // no answer is expected
	case f.tableFull:
		return f.reply.Refuse(tooMany())
	case err != nil && !f.registered:
		return f.unanswered(err)
	case err != nil && f.unregister(ids):
		return f.unanswered(err)
	default:
		return errLater // the answer follows, or was already sent
	}
}

// dropCancelled forgets the request that the message cancels, since the server need not answer
// it.
func (f *forwarding) dropCancelled() {
	id := cancelledBy(f.packet)
	if id == nil {
		return
	}
	if target := f.a.pending.take(id); target != nil {
		target.x.end(nil)
	}
}

// requestIDs returns the IDs of the requests that the server must answer.
func (f *forwarding) requestIDs() [][]byte {
	if !f.packet.Batch {
		if id := f.reply.request.ID(); id != nil {
			return [][]byte{id}
		}
		return nil
	}
	var ids [][]byte
	for _, m := range upstream.ReadLine(f.plan.Body, 0).Packet.Messages {
		if m.Kind == jsonrpc.Request {
			ids = append(ids, m.ID.Bytes)
		}
	}
	return ids
}

// traceUpstream starts the span of the server's part. It adds the span to _meta if that is
// present and the message is unchanged.
func (f *forwarding) traceUpstream() context.Context {
	if f.a.cfg.Tracing == nil {
		return f.reply.account.Context
	}
	ctx, _ := f.reply.account.StartUpstream(f.reply.account.Context)
	if !f.packet.Batch {
		f.plan.Body = upstream.ContinueTrace(ctx, &f.packet.Messages[0], f.plan.Body)
	}
	return ctx
}

// register adds the message to the pending requests, and reports whether the table had space. limit
// is how long the server may be silent.
func (f *forwarding) register(ids [][]byte, limit time.Duration) bool {
	for i, id := range ids {
		if !f.a.pending.add(id, f, f.a.cfg.Limits.Requests) {
			f.unregister(ids[:i])
			f.tableFull = true
			return false
		}
	}
	f.registered = true
	if len(ids) > 0 {
		//mutate:drop internal/app.TestWrapLimitsForwardedCalls a server that never answers holds its requests forever
		f.x.wait.begin(limit, &f.a.readClock, func() { f.giveUp(ids) })
	}
	return true
}

// unregister removes the message from the pending requests, and reports whether it was there.
func (f *forwarding) unregister(ids [][]byte) (was bool) {
	for _, id := range ids {
		was = f.a.pending.drop(id, f) || was
	}
	f.registered = f.registered && !was
	return was
}

// Received implements [upstream.Receiver].
func (a *Agent) Received(line upstream.Line) {
	a.readClock.stop()
	defer a.readClock.resume()
	switch {
	case line.Err != nil:
		a.receiveInvalid(line)
	case !line.Packet.Batch:
		a.receive(line.Text, &line.Packet.Messages[0])
	default:
		for i := range line.Packet.Messages {
			a.receive(line.Packet.Messages[i].Raw, &line.Packet.Messages[i])
		}
	}
}

// receive handles one message of the server.
func (a *Agent) receive(text []byte, m *jsonrpc.Message) {
	if m.Kind != jsonrpc.Response {
		a.noteActivity(m)
		a.receiveUnsolicited(text, m)
		return
	}
	if f := a.pending.take(m.ID.Bytes); f != nil {
		f.x.safely(func() error { return f.answered(text, m) })
		return
	}
	tellsOfUnreadable := (!m.ID.Present() || m.ID.IsNull()) && m.Error.Present()
	if tellsOfUnreadable || !a.cfg.Gateway.Governs() {
		_ = a.out.send(text) // send fails only if the client has left
		return
	}
	a.filter.LogDropped()
}

// answered sends the client the server's answer, rewritten as planned.
func (f *forwarding) answered(text []byte, m *jsonrpc.Message) error {
	if f.batch != nil {
		return f.addBatchAnswer(m)
	}
	f.reply.account.Answered(m)
	code, _ := m.Error.Member("code").Int()
	unknown := f.reply.account.Failed && code == jsonrpc.CodeMethodNotFound
	switch p := f.plan; {
	case f.reply.account.Failed && f.isUnacknowledged() && (p.OwnTasks != nil || unknown && f.reply.request.Subscriber().WantsLists()):
		return f.listenAlone()
	case unknown && p.MethodNotFound != nil:
		return f.reply.request.AnswerError(p.MethodNotFound)
	case p.Rewrite != nil:
		return f.sendRewritten(text)
	default:
		return f.a.out.send(text)
	}
}

// sendRewritten sends the client the server's answer after plan.Rewrite. After the answer to
// initialize it starts notifications.
func (f *forwarding) sendRewritten(text []byte) error {
	m, err := jsonrpc.ParseMessage(text, f.a.cfg.Limits.Parse)
	if err != nil {
		return f.reply.Refuse(uncheckable(err))
	}
	rewritten := f.plan.Rewrite(m)
	initialized := f.reply.account.Label == mcpname.Initialize && m.Result.Present()
	if initialized {
		version, _ := m.Result.Member("protocolVersion").Text()
		f.a.client.version.Store(&version)
	}
	if err := f.a.out.send(rewritten); err != nil || !initialized {
		return err
	}
	f.a.startNotifications()
	return nil
}

func uncheckable(cause error) *mcp.Problem {
	return &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server's answer cannot be checked", Cause: cause}
}

// startNotifications starts notifying the client of its tasks and of list changes.
func (a *Agent) startNotifications() {
	r := a.beginStream()
	a.running.Go(func() {
		s := &stream{reply: r}
		leave := r.request.Subscriber().Join(a.left, s)
		<-a.left.Done()
		s.Close()
		leave()
		r.request.End()
	})
}

// batchAnswers collects the answers to a batch.
type batchAnswers struct {
	mu      sync.Mutex
	missing [][]byte // IDs without an answer
	answers [][]byte
}

// addBatchAnswer adds one answer, and answers the batch when it is complete.
func (f *forwarding) addBatchAnswer(m *jsonrpc.Message) error {
	shown, err := f.reply.request.ReadBatch(f.plan, m.Raw)
	if err != nil {
		return f.addBatchError(m.ID.Bytes, uncheckable(err))
	}
	f.x.wait.alive(&f.a.readClock)
	return f.addToBatch(m.ID.Bytes, func() { f.reply.account.Failed = m.Error.Present() }, shown...)
}

// addBatchError adds an error in place of one answer.
func (f *forwarding) addBatchError(id []byte, problem *mcp.Problem) error {
	return f.addToBatch(id, func() { f.reply.account.Problem = problem }, problem.AppendResponse(nil, f.reply.account.Era, id, f.reply.Correlation()))
}

// addToBatch adds answers for one request of a batch, and calls note under the lock. The server
// may answer while the gate gives up on other requests.
func (f *forwarding) addToBatch(id []byte, note func(), answers ...[]byte) error {
	f.batch.mu.Lock()
	defer f.batch.mu.Unlock()
	note()
	f.batch.answers = append(f.batch.answers, answers...)
	if i := slices.IndexFunc(f.batch.missing, func(other []byte) bool { return jsonrpc.SameID(id, other) }); i >= 0 {
		f.batch.missing = slices.Delete(slices.Clone(f.batch.missing), i, i+1)
	}
	if len(f.batch.missing) > 0 {
		return errLater
	}
	return f.reply.request.AnswerBatch(f.reply.account.Context, f.plan, f.batch.answers)
}

// receiveInvalid handles a line that cannot be parsed, maybe because it is ambiguous. If it may
// be an answer, the client gets it only if it cannot be taken for the answer to another
// request.
func (a *Agent) receiveInvalid(line upstream.Line) {
	if !a.cfg.Gateway.Governs() {
		_ = a.out.send(line.Text)
		return
	}
	var scan jsonrpc.AnswerScanner
	_ = scan.Scan(line.Text) // IDs found before an error count
	found := false
	for _, id := range scan.IDs() {
		if f := a.pending.take(id); f != nil {
			found = true
			f.x.safely(func() error { return f.answeredInvalid(line, id) })
		}
	}
	if found {
		return
	}
	ctx := logging.Limited(a.left, "no message", a.client.from.Upstream)
	a.cfg.Log.WarnContext(ctx, "the server wrote a line to its standard output that is no message; it was dropped",
		"upstream", a.client.from.Upstream, "line", safetext.Line(string(line.Text), maxExcerpt), "cause", line.Err)
}

// maxExcerpt is the length up to which the log shows an invalid line.
const maxExcerpt = 120

// answeredInvalid is answered for an answer that cannot be parsed.
func (f *forwarding) answeredInvalid(line upstream.Line, id []byte) error {
	switch {
	case f.batch != nil:
		return f.addBatchError(id, uncheckable(line.Err))
	case f.plan.Rewrite != nil, f.reply.request.Listens(), f.reply.request.CheckText().Pass(line.Text) != nil:
		return f.reply.Refuse(uncheckable(line.Err))
	default:
		return f.a.out.send(line.Text)
	}
}

// receiveUnsolicited forwards a message that the server sends on its own initiative, as far as
// the client may see it.
func (a *Agent) receiveUnsolicited(text []byte, m *jsonrpc.Message) {
	if !a.cfg.Gateway.Governs() {
		_ = a.out.send(text)
		return
	}
	if conversation.IsAcknowledgement(m) {
		id := m.Params.Meta.Member(mcpname.MetaSubscriptionID).Bytes
		//mutate:swap " && !f.subscribed.Swap(true)" "" TestRepeatedAcknowledgement a client is notified as often as the server acknowledges
		if f := a.pending.get(id); f != nil && f.reply.request.Listens() && !f.subscribed.Swap(true) {
			_ = f.reply.safely(func() error { return f.acknowledged(text) })
			return
		}
	}
	if a.filter.MustInspect(text) {
		shown, pass := a.filter.Rewrite(m)
		if !pass {
			return
		}
		text = shown
	}
	_ = a.out.send(text)
}

// acknowledged sends the client the acknowledgement of its subscription, and starts to notify
// it. It runs once, even if the server repeats its acknowledgement.
func (f *forwarding) acknowledged(text []byte) error {
	s := f.reply.Listen()
	leave := f.reply.request.Subscriber().Join(f.reply.account.Context, s)
	context.AfterFunc(f.reply.account.Context, func() {
		s.Close()
		leave()
	})
	if f.plan.OwnTasks == nil {
		return f.a.out.send(text)
	}
	m, err := jsonrpc.ParseMessage(text, f.a.cfg.Limits.Parse)
	if err != nil {
		return err
	}
	known := f.reply.request.Subscriber().ExistingTasks(f.reply.account.Context, f.plan.OwnTasks)
	if err := f.a.out.send(conversation.AddToAcknowledgement(m, known)); err != nil {
		return err
	}
	f.a.running.Go(func() {
		_ = f.reply.safely(func() error { f.reply.request.Subscriber().FollowTasks(f.reply.account.Context, s, known); return nil })
	})
	return nil
}

// isUnacknowledged reports whether the client subscribes and the server has not acknowledged
// it. An acknowledged subscription ends when the server ends it.
//
//mutate:swap " && !f.subscribed.Load()" "" TestListenEndsAfterAcknowledgement a client is notified twice after its server has ended
func (f *forwarding) isUnacknowledged() bool {
	return f.reply.request.Listens() && !f.subscribed.Load()
}

// listenAlone serves a subscription without the server.
func (f *forwarding) listenAlone() error {
	f.reply.account.Failed = false
	id := f.reply.request.ID()
	f.a.own.add(id, f.reply, 0)
	s := f.reply.Listen()
	f.a.running.Go(func() {
		defer f.a.own.drop(id, f.reply)
		f.x.safely(func() error {
			return f.reply.request.Subscriber().ServeSubscription(f.reply.account.Context, f.plan, s)
		})
	})
	return errLater
}

// Unanswered implements [upstream.Receiver].
func (a *Agent) Unanswered(ids [][]byte, problem *mcp.Problem) {
	if ids == nil {
		a.pending.each(func(f *forwarding) { ids = append(ids, f.requestIDs()...) })
	}
	for _, id := range ids {
		f := a.pending.take(id)
		switch {
		case f == nil:
		case f.batch != nil:
			f.x.safely(func() error { return f.addBatchError(id, problem) })
		default:
			f.x.safely(func() error { return f.unanswered(problem) })
		}
	}
}

// unanswered answers a request that the server does not answer.
func (f *forwarding) unanswered(err error) error {
	problem := upstream.ProblemOf(err)
	if f.packet.Batch {
		return f.batchUnanswered(problem)
	}
	if f.plan.Fallback != nil {
		if message := f.plan.Fallback(); message != nil {
			return f.a.out.send(message)
		}
	}
	if f.isUnacknowledged() && f.plan.OwnTasks != nil {
		return f.listenAlone()
	}
	return f.reply.Refuse(problem)
}

// batchUnanswered answers a batch that was not sent to the server.
func (f *forwarding) batchUnanswered(problem *mcp.Problem) error {
	if f.batch == nil {
		return f.reply.Refuse(problem)
	}
	err := errLater
	for _, id := range f.batch.missing {
		err = f.addBatchError(id, problem)
	}
	return err
}
