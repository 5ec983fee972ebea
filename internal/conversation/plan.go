package conversation

import (
	"context"
	"log/slog"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Kind says in one word what becomes of a message.
type Kind string

// The kinds of plans.
const (
	Forward     Kind = "forward"      // the upstream answers
	Refuse      Kind = "refuse"       // it may not pass
	HoldTask    Kind = "hold as task" // the client gets a task
	HoldRequest Kind = "hold request" // the client waits in its request
	AnswerSelf  Kind = "answer"       // the gate answers by itself
)

// A Plan is what becomes of what a client sent. It is decided once, and everything
// that follows goes by it.
type Plan struct {
	Kind    Kind
	Verdict policy.Verdict // on the message, or on a batch that is held as a whole
	Problem *wire.Problem  // because of which the message is refused; nil for a batch
	Face    Face           // of a held call

	// Answer answers in place of the upstream. It is nil if and only if Kind is
	// Forward; then the other fields say what the upstream gets, and what the
	// client sees of its answer.
	Answer func(context.Context) error

	Body    []byte                        // what goes to the upstream
	Rewrite func(*jsonrpc.Message) []byte // what the client sees of the response; nil leaves it as it is
	Shown   string                        // what Rewrite makes of the response, in words
	Instead func() []byte                 // the answer if the upstream fails to give one; nil if there is none
	Unknown *jsonrpc.Error                // the answer if the upstream does not know the method; nil leaves its own
	Own     []task.ID                     // the gate's own tasks that a client wants to hear of together with the upstream's
	Answers [][]byte                      // the gate's answers to those of a batch that do not go to the upstream

	lists []listRequest // those of a batch
	ended []task.Task   // those whose outcomes are among Answers
}

// ChangesBatch reports whether the client sees something else of a batch than the
// upstream's answer to it.
func (p *Plan) ChangesBatch() bool { return p.Answers != nil || p.lists != nil }

// HasLists reports whether the batch asks for lists, which the gate has to see.
func (p *Plan) HasLists() bool { return p.lists != nil }

// forward returns the plan of what passes as it is.
func forward(body []byte) *Plan { return &Plan{Kind: Forward, Body: body} }

// answers returns the plan of what the gate answers by itself.
func answers(answer func(context.Context) error) *Plan {
	return &Plan{Kind: AnswerSelf, Answer: answer}
}

// refuses returns the plan of what may not pass.
func (r *Request) refuses(problem *wire.Problem) *Plan {
	return &Plan{Kind: Refuse, Problem: problem, Answer: func(context.Context) error { return r.reply.Refuse(problem) }}
}

// Plan decides what becomes of the request.
func (r *Request) Plan(ctx context.Context) *Plan {
	p := planner{r}.plan(ctx)
	if r.hub.cfg.Log.Enabled(ctx, slog.LevelDebug) {
		r.hub.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "planned", slog.String("plan", p.String()))
	}
	return p
}

// A planner decides what becomes of a request.
type planner struct{ *Request }

func (r planner) plan(ctx context.Context) *Plan {
	if !r.hub.Governs() {
		return forward(r.body)
	}
	if r.packet.Batch {
		return batch(r).plan(ctx)
	}
	m := &r.packet.Messages[0]
	if r.listens {
		return r.listening(ctx, m)
	}
	return r.one(ctx, m)
}

// one plans one message.
func (r planner) one(ctx context.Context, m *jsonrpc.Message) *Plan {
	var own *Plan
	if r.hub.Holds() {
		own = r.own(ctx, m)
	}
	if own != nil && own.Answer != nil {
		return own
	}
	judged, problem := judge(r).message(ctx, m)
	p := r.judged(ctx, m, own, judged, problem)
	p.Verdict = judged.Verdict
	return p
}

// judged plans a message that policy has judged. A plan of the gate's own for the
// message counts if the message may pass.
func (r planner) judged(ctx context.Context, m *jsonrpc.Message, own *Plan, judged gate.Judgement, problem *wire.Problem) *Plan {
	switch {
	case problem != nil:
		return r.refuses(problem)
	case own != nil && judged.Handling == policy.PassOn:
		return own
	case judged.Handling == policy.PassOn:
		return r.forward(ctx, m)
	default:
		return r.holds(m, judged)
	}
}

// holds plans a call that is held.
func (r planner) holds(m *jsonrpc.Message, judged gate.Judgement) *Plan {
	r.claimAnswer() // from now on, before anybody else knows of it
	if judged.Handling != policy.HoldRequest {
		return &Plan{Kind: HoldTask, Face: Face{Era: r.era}, Answer: func(ctx context.Context) error {
			return hold(r).asTask(ctx, m, judged)
		}}
	}
	return &Plan{Kind: HoldRequest, Face: r.hub.face(r.era, r.patience(m), judged.Verdict), Answer: func(ctx context.Context) error {
		return hold(r).inRequest(ctx, m, judged)
	}}
}

// listening plans the request of a client that subscribes. Policy judges the whole
// request before the gate answers any part of it.
func (r planner) listening(ctx context.Context, m *jsonrpc.Message) *Plan {
	if _, problem := judge(r).message(ctx, m); problem != nil {
		return r.refuses(problem)
	}
	if r.hub.Holds() {
		if own := r.own(ctx, m); own != nil {
			return own
		}
	}
	return forward(r.body)
}

// own returns the plan of what is addressed to the gate itself: requests about
// its tasks, answers to its invitations, and what clients say of requests that it
// holds. It returns nil for everything else.
func (r planner) own(ctx context.Context, m *jsonrpc.Message) *Plan {
	if m.Method == "notifications/cancelled" {
		return r.planCancel(ctx, m)
	}
	if m.Kind == jsonrpc.Response {
		return r.planInvitationAnswer(ctx, m)
	}
	if isAboutOwnTask(m) {
		return answers(func(context.Context) error { return r.answer(nil) })
	}
	if p := taskRequest(r).plan(ctx, m); p != nil {
		return p
	}
	if p := r.Listening().plan(m); p != nil {
		return p
	}
	if r.era != wire.Modern || m.Kind != jsonrpc.Request {
		return nil
	}
	state, _ := m.Params.Member("requestState").Text()
	if !IsSealed(state) {
		return nil
	}
	return answers(func(ctx context.Context) error { return hold(r).resumeRound(ctx, m, state) })
}

// forward returns the plan of a message that passes: which answers the gate
// has to see, and what it makes of them.
func (r planner) forward(ctx context.Context, m *jsonrpc.Message) *Plan {
	p := forward(r.body)
	if r.hub.Holds() {
		p.Body = r.toUpstreamTask(ctx, m)
	}
	switch {
	case m.Kind != jsonrpc.Request:
	case wire.IsList(m.Method):
		cursor, _ := m.Params.Member("cursor").Text()
		p.Shown = "the list as policy lets it see it"
		p.Rewrite = func(answer *jsonrpc.Message) []byte { return lists(r).show(m.Method, cursor, answer) }
		p.Instead = func() []byte { return lists(r).remembered(m.Method, cursor) }
	case m.Method == "initialize" || m.Method == "server/discover":
		facts := gate.Facts{Session: r.said(m), OpensURLs: opensURLs(m.Params.Member("capabilities"))}
		p.Shown = "the capabilities with those of the gate"
		p.Rewrite = func(answer *jsonrpc.Message) []byte { return r.meet(facts, answer) }
	}
	return p
}
