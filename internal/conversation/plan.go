package conversation

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/human"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Kind classifies plans.
type Kind string

// The kinds of plans.
const (
	Forward     Kind = "forward"      // to the upstream
	Refuse      Kind = "refuse"       // with a problem
	HoldTask    Kind = "hold as task" // the client gets a task
	HoldRequest Kind = "hold request" // the client waits in its request
	AnswerSelf  Kind = "answer"       // by the gate
)

// A Plan is the decision about a request. It is made once.
type Plan struct {
	Kind    Kind
	Verdict policy.Verdict // on the message, or on a held batch
	Problem *mcp.Problem   // why the message is refused; nil for a batch
	Wait    WaitMode       // of a held call

	// Answer answers the request without the upstream. It is nil if and only if Kind is
	// Forward. Then the fields below say what the upstream gets, and what the client sees of
	// its answer.
	Answer func(context.Context) error

	Body           []byte                        // sent to the upstream
	Rewrite        func(*jsonrpc.Message) []byte // rewrites the response for the client; nil forwards it unchanged
	RewriteNote    string                        // describes the result of Rewrite
	Fallback       func() []byte                 // returns an answer if the upstream fails; may be nil
	MethodNotFound *jsonrpc.Error                // replaces the upstream's error for an unknown method; may be nil
	OwnTasks       []task.ID                     // tasks of the gate that a client subscribes to together with those of the upstream
	Answers        [][]byte                      // to the requests of a batch that are not forwarded

	lists []listRequest // of a batch
	ended []task.Task   // tasks with an outcome in Answers
}

// ChangesBatch reports whether the client gets something else than the upstream's answer to the
// batch.
func (p *Plan) ChangesBatch() bool { return p.Answers != nil || p.lists != nil }

// HasLists reports whether the batch asks for lists, whose answers the gate must read.
func (p *Plan) HasLists() bool { return p.lists != nil }

// forward returns the plan of a message that is forwarded unchanged.
func forward(body []byte) *Plan { return &Plan{Kind: Forward, Body: body} }

// answers returns the plan of a message that the gate answers itself.
func answers(answer func(context.Context) error) *Plan {
	return &Plan{Kind: AnswerSelf, Answer: answer}
}

// refuse returns the plan of a message that is refused.
func refuse(out responder, problem *mcp.Problem) *Plan {
	return &Plan{Kind: Refuse, Problem: problem, Answer: func(context.Context) error { return out.reply.Refuse(problem) }}
}

// Plan decides what happens to the request.
func (r *Request) Plan(ctx context.Context) *Plan {
	p := planner{request: r, check: policyCheck{sender: &r.sender, out: r.out, registered: &r.registered}}
	plan := p.plan(ctx)
	if r.gateway.cfg.Log.Enabled(ctx, slog.LevelDebug) {
		r.gateway.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "planned", slog.String("plan", plan.String()))
	}
	return plan
}

// A planner makes the plan of one request.
type planner struct {
	request *Request
	check   policyCheck
}

func (p *planner) plan(ctx context.Context) *Plan {
	r := p.request
	if !r.gateway.Governs() {
		r.ids = r.registered.ids
		return forward(r.body)
	}
	if r.packet.Batch {
		b := &batch{sender: &r.sender, out: r.out, registered: &r.registered, check: p.check, messages: r.packet.Messages, plan: forward(r.body)}
		b.decide(ctx)
		r.ids, r.judged = b.sent, b.judged
		return b.plan
	}
	m := &r.packet.Messages[0]
	if r.listens {
		return p.listening(ctx, m)
	}
	var own *Plan
	if r.gateway.Holds() {
		own = p.own(ctx, m)
	}
	if own != nil && own.Answer != nil {
		return own
	}
	judged, problem := p.check.check(ctx, m)
	plan := p.judged(ctx, m, own, judged, problem)
	plan.Verdict = judged.Verdict
	if plan.Kind != HoldTask && plan.Kind != HoldRequest {
		r.judged = r.gateway.judgedCall(m, judged, problem)
	}
	return plan
}

// listening plans the request of a client that subscribes. Policy judges the whole request before
// the gate answers any part of it.
func (p *planner) listening(ctx context.Context, m *jsonrpc.Message) *Plan {
	if _, problem := p.check.check(ctx, m); problem != nil {
		return refuse(p.request.out, problem)
	}
	if p.request.gateway.Holds() {
		if own := p.own(ctx, m); own != nil {
			return own
		}
	}
	return forward(p.request.body)
}

// own returns the plan of a message for the gate itself: a request about its tasks, an answer to
// its invitation, or a cancellation of a held call. It returns nil for all other messages.
func (p *planner) own(ctx context.Context, m *jsonrpc.Message) *Plan {
	r := p.request
	if m.Method == mcpname.NotifyCancelled {
		return canceller{sender: &r.sender, out: r.out}.plan(ctx, m)
	}
	if m.Kind == jsonrpc.Response {
		return inviter{sender: &r.sender, out: r.out}.planAnswer(ctx, m)
	}
	if isAboutOwnTask(m) {
		return answers(func(context.Context) error { return r.out.answer(nil) })
	}
	if isTaskRequest(m) {
		return taskRequest{sender: &r.sender, out: r.out, registered: &r.registered}.plan(ctx, m, r.body)
	}
	if r.listens {
		if plan := r.Subscriber().plan(m); plan != nil {
			return plan
		}
	}
	if r.out.era != mcp.Modern || m.Kind != jsonrpc.Request {
		return nil
	}
	state, _ := m.Params.Member("requestState").Text()
	if !IsSealed(state) {
		return nil
	}
	return answers(func(ctx context.Context) error { return r.hold().retry(ctx, m, state) })
}

// judged returns the plan of a message that policy has judged. A plan of the gate itself counts
// only if the message may pass.
func (p *planner) judged(ctx context.Context, m *jsonrpc.Message, own *Plan, judged catalog.Judgement, problem *mcp.Problem) *Plan {
	switch {
	case problem != nil:
		return refuse(p.request.out, problem)
	case own != nil && judged.Handling == policy.PassOn:
		return own
	case judged.Handling == policy.PassOn:
		return p.forward(ctx, m)
	default:
		return p.holds(m, judged)
	}
}

// forward returns the plan of a message that passes, and of how its answer is rewritten.
func (p *planner) forward(ctx context.Context, m *jsonrpc.Message) *Plan {
	r := p.request
	plan := forward(r.body)
	if r.gateway.Holds() {
		plan.Body = toUpstreamTask(ctx, &r.sender, m, r.body)
	}
	switch {
	case m.Kind != jsonrpc.Request:
	case mcp.IsList(m.Method):
		method := m.Method
		cursor, _ := m.Params.Member("cursor").Text()
		plan.RewriteNote = "the list without what policy hides"
		plan.Rewrite = func(answer *jsonrpc.Message) []byte { return r.lists().show(method, cursor, answer) }
		plan.Fallback = func() []byte { return r.lists().cached(method, cursor) }
	case m.Method == mcpname.Initialize || m.Method == mcpname.ServerDiscover:
		facts := catalog.Handshake{Session: r.sender.clientInfo(m), OpensURLs: opensURLs(m.Params.Member("capabilities"))}
		plan.RewriteNote = "the capabilities including those of the gate"
		plan.Rewrite = func(answer *jsonrpc.Message) []byte { return r.lists().handshake(facts, answer) }
	}
	return plan
}

// holds plans a call that needs approval.
func (p *planner) holds(m *jsonrpc.Message, judged catalog.Judgement) *Plan {
	r := p.request
	r.registered.reserve() // before the call becomes known to the upstream
	if judged.Handling != policy.HoldRequest {
		return &Plan{Kind: HoldTask, Wait: WaitMode{Era: r.out.era}, Answer: func(ctx context.Context) error {
			return r.hold().asTask(ctx, m, judged)
		}}
	}
	return &Plan{Kind: HoldRequest, Wait: r.gateway.waitMode(r.out.era, r.sender.holdTime(m), judged.Verdict), Answer: func(ctx context.Context) error {
		return r.hold().inRequest(ctx, m, judged)
	}}
}

// A WaitMode is the way in which the client of a held call waits.
type WaitMode struct {
	Era      mcp.Era
	Patience time.Duration // how long its request stays open; 0 if it gets a task instead
	Expires  time.Duration // when the call expires; 0 if that is not known
}

// waitMode returns how the client of a call waits that is held in its request.
func (g *Gateway) waitMode(era mcp.Era, holdTime time.Duration, v policy.Verdict) WaitMode {
	w := WaitMode{Era: era, Patience: holdTime}
	if g.Holds() {
		w.Expires = g.cfg.Approvals.TimeToDecide(v.Workflow)
	}
	return w
}

func (w WaitMode) String() string {
	switch {
	case w.Patience == 0:
		return "the client gets a task"
	case 0 < w.Expires && w.Expires <= w.Patience:
		return fmt.Sprintf("the client waits up to %s in its request for a decision, then the call expires", human.Duration(w.Expires))
	case w.Era == mcp.Modern:
		return fmt.Sprintf("the client waits up to %s in its request, then it is asked to repeat it, %d times at most", human.Duration(w.Patience), maxRounds)
	default:
		return fmt.Sprintf("the client waits up to %s in its request, then it is asked to call again", human.Duration(w.Patience))
	}
}

// String describes the plan in words, without the arguments of the message. The debug log and the
// command explain print it.
func (p *Plan) String() string {
	var b strings.Builder
	b.WriteString(string(p.Kind))
	if p.Problem != nil {
		b.WriteString(" with " + string(p.Problem.Type))
		if p.Problem.Result {
			b.WriteString(" as a tool result")
		}
	}
	held := p.Kind == HoldTask || p.Kind == HoldRequest
	if held && p.Verdict.Workflow != "" {
		b.WriteString(" for workflow " + p.Verdict.Workflow)
	}
	b.WriteString(p.decidedBy())
	switch {
	case held:
		b.WriteString(": " + p.Wait.String())
	case p.RewriteNote != "":
		b.WriteString(": the client gets " + p.RewriteNote)
	}
	if len(p.Answers) > 0 {
		fmt.Fprintf(&b, "; the gate answers %d of the batch", len(p.Answers))
	}
	return b.String()
}

// decidedBy names the rule that decided, if any.
func (p *Plan) decidedBy() string {
	rule := p.Verdict.Label
	if p.Verdict.Action != "" && p.Verdict.Rule == policy.ByDefault {
		rule = "default"
	}
	if rule == "" {
		return ""
	}
	if p.Verdict.Would != nil {
		rule += ", only observed"
	}
	return " (" + rule + ")"
}

// PlanOf returns the plan for a message of c, without sending or holding anything.
func (g *Gateway) PlanOf(ctx context.Context, c Client, m Message) *Plan {
	r := g.Begin(c, planOnly{ctx: ctx}, m)
	defer r.End()
	return r.Plan(ctx)
}

// planOnly is the [Reply] to a message that is only planned.
type planOnly struct {
	Reply

	ctx context.Context // of the message
}

// Context implements [Reply].
func (p planOnly) Context() context.Context { return p.ctx }

// Gone implements [Reply].
func (p planOnly) Gone() bool { return p.ctx.Err() != nil }

// Correlation implements [Reply].
func (planOnly) Correlation() string { return "" }
