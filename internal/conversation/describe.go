package conversation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// A Face is how a held call looks to the client that made it.
type Face struct {
	Era      wire.Era
	Patience time.Duration // how long its request is kept open; 0 if it gets a task instead
	Expires  time.Duration // after which there is nothing left to wait for; 0 if that is not known
}

// face returns how a call that is held in its request looks.
func (h *Hub) face(era wire.Era, patience time.Duration, v policy.Verdict) Face {
	f := Face{Era: era, Patience: patience}
	if h.Holds() {
		f.Expires = h.cfg.Desk.TimeToDecide(v.Workflow)
	}
	return f
}

func (f Face) String() string {
	switch {
	case f.Patience == 0:
		return "the client gets a task"
	case 0 < f.Expires && f.Expires <= f.Patience:
		return fmt.Sprintf("the client waits up to %v in its request for a decision, then the call expires", f.Expires)
	case f.Era == wire.Modern:
		return fmt.Sprintf("the client waits up to %v in its request, then it is asked to repeat it, %d times at most", f.Patience, maxRounds)
	default:
		return fmt.Sprintf("the client waits up to %v in its request, then it is asked to call again", f.Patience)
	}
}

// String returns in words what becomes of the message. The debug log and the
// command explain print it. It has nothing of the message's arguments in it.
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
		b.WriteString(": " + p.Face.String())
	case p.Shown != "":
		b.WriteString(": the client gets " + p.Shown)
	}
	if len(p.Answers) > 0 {
		fmt.Fprintf(&b, "; the gate answers %d of the batch", len(p.Answers))
	}
	return b.String()
}

// decidedBy names the rule that decided, if one did.
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

// PlanOf returns the plan that a message of c gets. Nothing is sent or held.
func (h *Hub) PlanOf(ctx context.Context, c Client, m Message) *Plan {
	r := h.Begin(c, planOnly{ctx: ctx}, m)
	defer r.End()
	return r.Plan(ctx)
}

// planOnly is the [Reply] of a message that is planned and never answered.
type planOnly struct {
	Reply

	ctx context.Context //nolint:containedctx // a reply has that of its message
}

// Context implements [Reply].
func (p planOnly) Context() context.Context { return p.ctx }

// Gone implements [Reply].
func (p planOnly) Gone() bool { return p.ctx.Err() != nil }

// Correlation implements [Reply].
func (planOnly) Correlation() string { return "" }
