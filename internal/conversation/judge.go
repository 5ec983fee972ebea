package conversation

import (
	"context"
	"errors"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A judge puts the messages of a request to policy.
type judge struct{ *Request }

// message puts a message to policy and returns the problem if it may not pass,
// neither now nor later.
func (j judge) message(ctx context.Context, m *jsonrpc.Message) (gate.Judgement, *wire.Problem) {
	if problem := j.checkTask(m); problem != nil {
		return gate.Judgement{}, problem
	}
	if j.lacksMethod(m) {
		return gate.Judgement{Handling: policy.PassOn}, nil
	}
	ctx, span := j.hub.cfg.Tracing.StartPolicy(ctx)
	judged, err := j.hub.cfg.Gate.Judge(ctx, j.client.From(), m, j.claims(m))
	if err == nil && j.undescribed(judged) {
		j.claimAnswer() // the upstream, which is asked now, must not answer the call
		if j.tools().Find(ctx, m).DigestText() != "" {
			// Approvers, and policies that look at hints, are to know the tool.
			judged, err = j.hub.cfg.Gate.Judge(ctx, j.client.From(), m, j.claims(m))
		}
	}
	span.SetVerdict(string(judged.Verdict.Action), judged.Verdict.Snapshot)
	span.End()
	switch {
	case errors.Is(err, gate.ErrMisspelled):
		return gate.Judgement{}, &wire.Problem{Type: wire.AmbiguousMethod}
	case err != nil:
		return gate.Judgement{}, &wire.Problem{Type: wire.InvalidParams, Detail: err.Error()}
	}
	return judged, j.refusal(ctx, m, judged)
}

// refusal returns the problem of a message that may not pass, neither now nor
// later, given what policy said of it.
func (j judge) refusal(ctx context.Context, m *jsonrpc.Message, judged gate.Judgement) *wire.Problem {
	if problem := j.checkMirrors(ctx, m, judged); problem != nil {
		return problem
	}
	switch judged.Handling {
	case policy.PassOn:
		return nil
	case policy.OwnTask, policy.ReadyTask, policy.HoldRequest:
		return j.holdable(m, judged)
	case policy.RefuseNoTask:
		j.hub.cfg.Metrics.InvalidTask(metrics.TaskRequired)
		return wire.TaskMissing(j.era, judged.Name)
	default:
		return j.denial(judged)
	}
}

// undescribed reports whether a call is to be held of a tool that the upstream
// has not described to this client yet.
func (j judge) undescribed(judged gate.Judgement) bool {
	switch judged.Handling {
	case policy.OwnTask, policy.HoldRequest:
		return j.hub.Holds() && judged.Kind == policy.Tool && judged.Tool.DigestText() == ""
	default:
		return false
	}
}

// checkMirrors refuses a modern call one of whose headers contradicts the
// arguments: the upstream might act by either. If such headers are given and the
// upstream has not described the tool yet, it is asked to; a call of a tool whose
// definition cannot be read is refused. An upstream that has no definition of the
// tool cannot give the headers a meaning.
func (j judge) checkMirrors(ctx context.Context, m *jsonrpc.Message, judged gate.Judgement) *wire.Problem {
	header := j.client.Transport().Header
	if j.era != wire.Modern || judged.Kind != policy.Tool || header == nil {
		return nil
	}
	tool := judged.Tool
	if tool.DigestText() == "" && judged.Handling != policy.RefuseDenied && wire.HasMirrors(header) {
		var err error
		if tool, err = j.client.Caller().Described(ctx, m); err != nil {
			return &wire.Problem{Type: wire.HeaderMismatch, Tool: judged.Name, Cause: err, Detail: "the upstream does not describe the tool properly, " +
				"so it cannot be checked whether the Mcp-Param headers agree with the arguments; it did not run"}
		}
	}
	if tool.Mirrored == nil {
		return nil
	}
	return wire.CheckMirrors(header, jsonrpc.Value{Bytes: tool.Mirrored}, m.Params.Arguments)
}

// lacksMethod reports whether m is a modern request to subscribe to a resource,
// which that era does not have, and names none. There is nothing to judge, and
// the upstream answers that it does not know the method. A request that
// names a resource is judged like any other.
func (j judge) lacksMethod(m *jsonrpc.Message) bool {
	return j.era == wire.Modern && m.Method == "resources/subscribe" && !m.Params.URI.Present()
}

// holdable returns the problem of a call that cannot be held: because nobody
// would be there for the answer, or because it carries what its approver would
// not be shown.
func (j judge) holdable(m *jsonrpc.Message, judged gate.Judgement) *wire.Problem {
	if !j.hub.Holds() || m.Kind != jsonrpc.Request {
		return j.denial(judged)
	}
	detail := ""
	for name := range m.Params.Members() {
		for _, unseen := range []string{"inputResponses", "requestState"} {
			if strings.EqualFold(name, unseen) { // some servers read names so
				detail = "a call that needs approval cannot carry " + unseen + ", which its approver would not see"
			}
		}
	}
	if err := approval.CheckCarried(m, judged.Name); err != nil {
		detail = err.Error()
	}
	if detail == "" {
		return nil
	}
	return &wire.Problem{Type: wire.InvalidParams, Tool: judged.Name, Detail: detail + "; it did not run"}
}

// denial says which rule or policy said no, why as far as that says,
// and nothing more. The model of a client that called a tool reads it in the place
// of the tool's result.
func (j judge) denial(judged gate.Judgement) *wire.Problem {
	reason := judged.Verdict.Reason
	problem := &wire.Problem{Type: wire.PolicyDenied, Hint: reason}
	if judged.Kind == policy.Tool {
		problem.Tool = judged.Name
	}
	if judged.Verdict.Ambiguous {
		problem.Type = wire.AmbiguousName
		return problem
	}
	if reason != "" {
		problem.Detail = "Denied by policy: " + reason + ". It did not run."
	}
	problem.Meta = j.dialect().Denied(string(wire.PolicyDenied), mcptask.RemediationUnavailable, "")
	problem.Result = problem.Tool != "" && (j.era == wire.Modern || !j.hub.Waiting().Errors)
	return problem
}

// checkTask refuses a call that asks for a task with something that is no wish
// for one. Modern requests have no such member, so there it is ignored.
func (j judge) checkTask(m *jsonrpc.Message) *wire.Problem {
	asked := m.Params.Task
	if m.Method != "tools/call" || j.era == wire.Modern || !asked.Present() {
		return nil
	}
	detail := ""
	if !asked.IsObject() {
		detail = "task must be an object"
	} else if ttl := asked.Member("ttl"); ttl.Present() {
		if _, err := task.ParseTTL(ttl.Bytes); err != nil {
			detail = "task.ttl must be a positive whole number of milliseconds"
		}
	}
	if detail == "" {
		return nil
	}
	j.hub.cfg.Metrics.InvalidTask(metrics.TaskMalformed)
	return &wire.Problem{Type: wire.InvalidParams, Detail: detail}
}

// claims returns what m says of the client. Every modern request says of which program
// and version of the protocol it is, and nothing is known from the requests before it:
// they may be of another client, if nothing tells the two apart. A legacy client says so
// when it begins.
func (j judge) claims(m *jsonrpc.Message) gate.Claims {
	c := gate.Claims{Wish: j.wish(m)}
	if j.era == wire.Modern {
		c.Session = j.said(m)
	}
	return c
}

// wish returns how the client can wait, from what this request shows.
func (j judge) wish(m *jsonrpc.Message) policy.TaskWish {
	switch {
	case m.Method != "tools/call" || m.Kind != jsonrpc.Request:
		return policy.NoTask
	case j.era == wire.Legacy && m.Params.Task.Present():
		return policy.WantsTask
	case j.era == wire.Modern && declaresTasks(m):
		return policy.AcceptsTask
	default:
		return policy.NoTask
	}
}
