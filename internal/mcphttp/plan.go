package mcphttp

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A plan is what becomes of what a client sent: the gate answers it itself, or the
// upstream does.
type plan struct {
	// answer answers in place of the upstream. If it is nil, body goes to the
	// upstream, and the other fields say what the client sees of its answer.
	answer func(context.Context) error

	body     []byte
	rewrite  func(*jsonrpc.Message) []byte // what the client sees of the response; nil leaves it as it is
	instead  func() []byte                 // the answer if the upstream fails to give one; nil if there is none
	unknown  *jsonrpc.Error                // the answer if the upstream does not know the method; nil leaves its own
	own      []task.ID                     // the gate's own tasks that a client wants to hear of together with the upstream's
	refusals [][]byte                      // answers to those of a batch that do not go to the upstream
	lists    []listRequest                 // those of a batch
	handed   []task.Task                   // whose outcomes are among the refusals
}

// answered returns the plan of what the gate answers itself.
func answered(answer func(context.Context) error) *plan { return &plan{answer: answer} }

// refusedFor returns the plan of what may not pass.
func (x *exchange) refusedFor(problem *wire.Problem) *plan {
	return answered(func(context.Context) error { return x.refuse(problem) })
}

// plan decides what becomes of a packet.
func (x *exchange) plan(ctx context.Context, p jsonrpc.Packet, body []byte) *plan {
	if !x.h.cfg.Gate.Governs() {
		return &plan{body: body}
	}
	if p.Batch {
		return x.planMany(ctx, p, body)
	}
	m := &p.Messages[0]
	if x.listens {
		return x.planListening(ctx, m, body)
	}
	return x.planOne(ctx, m, body)
}

// planOne is plan for one message.
func (x *exchange) planOne(ctx context.Context, m *jsonrpc.Message, body []byte) *plan {
	var own *plan
	if x.h.cfg.Desk != nil {
		own = x.planOwn(ctx, m, body)
	}
	if own != nil && own.answer != nil {
		return own
	}
	judged, problem := x.judge(ctx, m)
	switch {
	case problem != nil:
		return x.refusedFor(problem)
	case own != nil && judged.Handling == policy.PassOn:
		return own
	case judged.Handling == policy.PassOn:
		return x.planForward(ctx, m, body)
	case judged.Handling == policy.HoldRequest:
		x.await() // from now on, before anybody else knows of it
		return answered(func(ctx context.Context) error { return x.hold(ctx, m, judged) })
	default:
		return answered(func(ctx context.Context) error { return x.createTask(ctx, m, judged) })
	}
}

// planListening is plan for a client that wants to hear of things. What it asks of
// the upstream is judged before any of it is answered by the gate.
func (x *exchange) planListening(ctx context.Context, m *jsonrpc.Message, body []byte) *plan {
	if _, problem := x.judge(ctx, m); problem != nil {
		return x.refusedFor(problem)
	}
	if x.h.cfg.Desk != nil {
		if own := x.planOwn(ctx, m, body); own != nil {
			return own
		}
	}
	return &plan{body: body}
}

// planOwn returns the plan of what is addressed to the gate itself: requests about
// its tasks, and what clients say of requests that it holds. It returns nil for
// everything else.
func (x *exchange) planOwn(ctx context.Context, m *jsonrpc.Message, body []byte) *plan {
	if m.Method == "notifications/cancelled" {
		return x.planCancel(m)
	}
	if tellsOfOwnTask(m) {
		return answered(func(context.Context) error { return x.accept() })
	}
	if p := x.planTasks(ctx, m, body); p != nil {
		return p
	}
	if p := x.planListen(m, body); p != nil {
		return p
	}
	state, _ := m.Params.Member("requestState").Text()
	if x.era != wire.Modern || m.Kind != jsonrpc.Request || !isSealed(state) {
		return nil
	}
	return answered(func(ctx context.Context) error { return x.resume(ctx, m, state) })
}

// planForward returns the plan of a message that passes: which answers the gate
// has to see, and what it makes of them.
func (x *exchange) planForward(ctx context.Context, m *jsonrpc.Message, body []byte) *plan {
	p := &plan{body: body}
	if x.h.cfg.Desk != nil {
		p.body = x.toUpstreamTask(ctx, m, body)
	}
	switch {
	case m.Kind != jsonrpc.Request:
	case wire.IsList(m.Method):
		cursor, _ := m.Params.Member("cursor").Text()
		p.rewrite = func(answer *jsonrpc.Message) []byte { return x.showList(m.Method, cursor, answer) }
		p.instead = func() []byte { return x.remembered(m.Method, cursor) }
	case m.Method == "initialize" || m.Method == "server/discover":
		session := policy.Session{Protocol: x.protocol(m)}
		session.Client, session.Version = clientInfo(m)
		p.rewrite = func(answer *jsonrpc.Message) []byte { return x.meet(session, answer) }
	}
	return p
}
