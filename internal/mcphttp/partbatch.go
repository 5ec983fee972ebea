package mcphttp

import (
	"net/http"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/several"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A combinedBatch is a batch for several servers. Each server gets its messages as one batch, or one by
// one if its version has no batches. If policy holds one of them, the whole batch must go to one server,
// because one call that waits for approval is for one server.
type combinedBatch struct {
	c     *combined
	units []*batchUnit
	of    map[string]*batchUnit // by the ids of requests

	mu     sync.Mutex
	began  bool // the client is answered with events
	stream sharedStream
}

// A batchUnit is what is sent at once: messages for one server, or a message that the endpoint answers.
type batchUnit struct {
	batch    *combinedBatch
	server   *several.Server // nil if the endpoint answers
	array    bool            // the server takes batches
	messages []jsonrpc.Message
	names    []string

	to      *recorder
	answers map[string][]byte // by ids
	failure *jsonrpc.Error    // of all requests without an answer
}

// batch answers a batch.
func (c *combined) batch(packet jsonrpc.Packet) error {
	if problem := c.join(); problem != nil {
		return c.refuse(problem)
	}
	c.x.delegated = true
	b := &combinedBatch{c: c, of: make(map[string]*batchUnit)}
	b.stream.out = &c.x.reply.out
	b.divide(packet.Messages)
	if len(b.units) == 1 && b.units[0].array {
		return c.route(b.units[0].server, b.units[0].body(), "")
	}
	requests := requestsIn(packet.Messages)
	if detail := b.problem(requests); detail != "" {
		b.refuseAll(detail)
	} else {
		b.run()
	}
	return b.answer(requests)
}

// requestsIn returns the ids of requests.
func requestsIn(messages []jsonrpc.Message) (ids [][]byte) {
	for i := range messages {
		if messages[i].Kind == jsonrpc.Request {
			ids = append(ids, messages[i].ID.Bytes)
		}
	}
	return ids
}

// divide assigns the messages to units. The endpoint answers its own at once.
func (b *combinedBatch) divide(messages []jsonrpc.Message) {
	taking := make(map[*several.Server]*batchUnit)
	for i := range messages {
		m := &messages[i]
		own := b.newUnit(nil)
		sub := b.fork(own.to, *m)
		unit := own
		sub.divert = func(s *several.Server, body []byte, name string) {
			if unit = taking[s]; unit == nil {
				unit = b.newUnit(s)
				b.units = append(b.units, unit)
				if unit.array {
					taking[s] = unit
				}
			}
			if routed, err := jsonrpc.ParseMessage(body, b.c.x.h.cfg.Limits.Parse); err == nil {
				unit.messages, unit.names = append(unit.messages, *routed), append(unit.names, name)
			}
		}
		err := sub.message()
		if m.Kind == jsonrpc.Request {
			b.of[jsonrpc.IDKey(m.ID.Bytes)] = unit
		}
		if unit != own {
			continue
		}
		if !sub.x.delegated {
			sub.x.record(err)
		}
		if own.finish(); m.Kind == jsonrpc.Request {
			b.units = append(b.units, own)
		}
	}
}

func (b *combinedBatch) newUnit(s *several.Server) *batchUnit {
	u := &batchUnit{batch: b, server: s, to: newRecorder(several.MaxList), answers: make(map[string][]byte)}
	u.to.events = &eventWrapper{whole: true, limit: several.MaxList, pass: u.pass}
	if s != nil {
		member, _ := b.c.member(b.c.x.account.Context, s)
		u.array = member == nil || member.Version == mcp.Version20250326
	}
	return u
}

// fork returns what serves one message of the batch, with the answer for w.
func (b *combinedBatch) fork(w http.ResponseWriter, m jsonrpc.Message) *combined {
	x := newExchange(b.c.x.h, w, b.c.x.r)
	x.client = b.c.x.client
	x.client.out, x.account.Era = &x.reply.out, x.client.era
	if m.Raw != nil {
		x.account.Describe(jsonrpc.Packet{Messages: []jsonrpc.Message{m}})
	}
	return &combined{x: x, endpoint: b.c.endpoint, m: m, session: b.c.session}
}

// body returns the batch for the server.
func (u *batchUnit) body() []byte {
	var raw [][]byte
	for i := range u.messages {
		raw = append(raw, u.messages[i].Raw)
	}
	return jsonrpc.Array(raw)
}

// problem returns why the batch cannot run, or "".
func (b *combinedBatch) problem(requests [][]byte) string {
	if len(b.of) < len(requests) {
		return "two requests of this batch have the same id, so their answers could be confused"
	}
	var routed []*batchUnit
	for _, u := range b.units {
		if u.server != nil {
			routed = append(routed, u)
		}
	}
	if len(routed) < 2 {
		return ""
	}
	for _, u := range routed {
		for i := range u.messages {
			if b.holds(u.server, &u.messages[i]) {
				return "a message of this batch needs approval, which cannot be given for several servers at once, so no call of it ran: send the messages one by one"
			}
		}
	}
	return ""
}

// holds reports whether policy holds a message.
func (b *combinedBatch) holds(s *several.Server, m *jsonrpc.Message) bool {
	member, why := b.c.member(b.c.x.account.Context, s)
	if m.Kind != jsonrpc.Request || why != "" {
		return false
	}
	ctx := b.c.x.account.Context
	p := b.c.x.part(ctx, newRecorder(0), b.c.to(s, member, m.Method, "", m.Raw))
	p.client.era = b.c.x.client.era
	plan := b.c.x.h.cfg.Gateway.PlanOf(ctx, &p.client, conversation.Message{
		Packet: jsonrpc.Packet{Messages: []jsonrpc.Message{*m}}, Body: m.Raw, Era: p.client.era,
	})
	return plan.Kind == conversation.HoldTask || plan.Kind == conversation.HoldRequest
}

// refuseAll makes an error the answer of all requests.
func (b *combinedBatch) refuseAll(detail string) {
	problem := &mcp.Problem{Type: mcp.InvalidRequest, Detail: detail}
	b.c.x.account.Problem = problem
	for _, u := range b.units {
		clear(u.answers)
		u.failure = problem.RPCError(b.c.x.client.era, b.c.x.reply.Correlation())
	}
	b.c.x.delegated = false
}

// run sends the units, those of different servers at the same time.
func (b *combinedBatch) run() {
	byServer := make(map[*several.Server][]*batchUnit)
	for _, u := range b.units {
		if u.server != nil {
			byServer[u.server] = append(byServer[u.server], u)
		}
	}
	var running sync.WaitGroup
	for _, units := range byServer {
		running.Go(func() {
			for _, u := range units {
				u.run()
			}
		})
	}
	running.Wait()
}

func (u *batchUnit) run() {
	body, name, m := u.body(), "", jsonrpc.Message{}
	if !u.array {
		body, name, m = u.messages[0].Raw, u.names[0], u.messages[0]
	}
	sub := u.batch.fork(u.to, m)
	if err := sub.route(u.server, body, name); !sub.x.delegated {
		sub.x.record(err)
	}
	u.finish()
}

// pass keeps the answers in an event, and passes everything else on.
func (u *batchUnit) pass(text []byte) error {
	e, ok := jsonrpc.EventIn(text)
	if !ok {
		return u.batch.send(text)
	}
	for _, m := range u.take(e.Data) {
		if err := u.batch.send(event(m.Raw)); err != nil {
			return err
		}
	}
	return nil
}

// take keeps the answers in a text, and returns the other messages.
func (u *batchUnit) take(text []byte) (others []jsonrpc.Message) {
	packet, err := jsonrpc.Parse(text, u.batch.c.x.h.cfg.Limits.Parse)
	if err != nil {
		return nil
	}
	for _, m := range packet.Messages {
		switch {
		case m.Kind != jsonrpc.Response:
			others = append(others, m)
		case m.ID.Present() && !m.ID.IsNull():
			u.answers[jsonrpc.IDKey(m.ID.Bytes)] = append([]byte(nil), m.Raw...)
		default:
			u.failure = errorIn(&m)
		}
	}
	return others
}

// finish reads what was recorded.
func (u *batchUnit) finish() {
	u.to.events.flush()
	u.take(u.to.body.Bytes())
	u.to.body.Reset()
}

// send sends events to a client that takes them.
func (b *combinedBatch) send(events []byte) error {
	if !b.c.x.client.takesEvents() {
		return nil
	}
	b.mu.Lock()
	if !b.began {
		b.began = true
		b.c.beginStream()
	}
	b.mu.Unlock()
	_, err := b.stream.send(events)
	return err
}

// answer sends the answers in the order of the requests.
func (b *combinedBatch) answer(requests [][]byte) error {
	if len(requests) == 0 {
		return b.c.x.reply.Answer(conversation.Answered, nil)
	}
	missing := &mcp.Problem{Type: mcp.UpstreamInvalid, Detail: "the server did not answer this request of the batch"}
	var answers [][]byte
	for _, id := range requests {
		key := jsonrpc.IDKey(id)
		u := b.of[key]
		answer := u.answers[key]
		switch {
		case answer != nil:
		case u.failure != nil:
			answer = jsonrpc.AppendErrorResponse(nil, id, u.failure)
		default:
			answer = missing.AppendResponse(nil, b.c.x.client.era, id, b.c.x.reply.Correlation())
		}
		answers = append(answers, answer)
	}
	if b.began {
		_, err := b.stream.send(event(jsonrpc.Array(answers)))
		return err
	}
	return b.c.x.reply.Answer(conversation.Answered, jsonrpc.Array(answers))
}
