package conversation

import (
	"context"
	"errors"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/gatedialect"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A policyCheck asks policy about the messages of one request, and returns the problem of a
// message that may not pass.
type policyCheck struct {
	sender     *sender
	out        responder
	registered *registrations
	lookup     *upstream.Lookup // set by tools
}

// check asks policy about a message. It returns a problem if the message may neither pass nor be
// held.
func (c *policyCheck) check(ctx context.Context, m *jsonrpc.Message) (catalog.Judgement, *mcp.Problem) {
	if problem := c.checkTask(m); problem != nil {
		return catalog.Judgement{}, problem
	}
	if c.lacksMethod(m) {
		return catalog.Judgement{Handling: policy.PassOn}, nil
	}
	ctx, span := c.out.gateway.cfg.Tracing.StartPolicy(ctx)
	judged, err := c.out.gateway.cfg.Catalog.Judge(ctx, c.sender.client.Identity(), m, c.requestInfo(m))
	if err == nil && c.undescribed(judged) {
		//mutate:drop internal/mcphttp.TestForgedAnswerDuringToolQuery an upstream answers a call while it is asked about the tool
		c.registered.reserve() // the upstream, which is asked now, must not answer the call
		if c.tools().Find(ctx, m).DigestText() != "" {
			// Judge again, now that the hints of the tool are known.
			judged, err = c.out.gateway.cfg.Catalog.Judge(ctx, c.sender.client.Identity(), m, c.requestInfo(m))
		}
	}
	span.SetVerdict(string(judged.Verdict.Action), judged.Verdict.Snapshot)
	span.End()
	switch {
	case errors.Is(err, catalog.ErrMisspelled):
		return catalog.Judgement{}, &mcp.Problem{Type: mcp.AmbiguousMethod}
	case errors.Is(err, catalog.ErrTooLong):
		return catalog.Judgement{}, &mcp.Problem{Type: mcp.NameTooLong}
	case err != nil:
		return catalog.Judgement{}, &mcp.Problem{Type: mcp.InvalidParams, Detail: err.Error()}
	}
	return judged, c.refusal(ctx, m, judged)
}

// checkTask refuses a legacy call whose member "task" is malformed. Modern requests have no such
// member, so there it is ignored.
func (c *policyCheck) checkTask(m *jsonrpc.Message) *mcp.Problem {
	asked := m.Params.Task
	if m.Method != mcpname.ToolsCall || c.out.era == mcp.Modern || !asked.Present() {
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
	c.out.gateway.cfg.Metrics.InvalidTask(metrics.TaskMalformed)
	return &mcp.Problem{Type: mcp.InvalidParams, Detail: detail}
}

// lacksMethod reports whether m is a modern resources/subscribe without a URI. The modern era
// does not have this method, so the upstream answers that. A request with a URI is judged.
func (c *policyCheck) lacksMethod(m *jsonrpc.Message) bool {
	return c.out.era == mcp.Modern && m.Method == mcpname.ResourcesSubscribe && !m.Params.URI.Present()
}

// requestInfo returns the claims of m about its client. Every modern request names its program and
// protocol version. Earlier requests do not count, because another client may have sent them. A
// legacy client names them when it initializes.
func (c *policyCheck) requestInfo(m *jsonrpc.Message) catalog.RequestInfo {
	claims := catalog.RequestInfo{Task: c.taskMode(m)}
	if c.out.era == mcp.Modern {
		//mutate:drop internal/mcphttp.TestModernRequestsNameTheirClient policy takes a modern client for another one
		claims.Session = c.sender.clientInfo(m)
	}
	return claims
}

// taskMode returns how the client can wait for a held call.
func (c *policyCheck) taskMode(m *jsonrpc.Message) policy.TaskWish {
	switch {
	case m.Method != mcpname.ToolsCall || m.Kind != jsonrpc.Request:
		return policy.NoTask
	case c.out.era == mcp.Legacy && m.Params.Task.Present():
		return policy.WantsTask
	case c.out.era == mcp.Modern && declaresTasks(m):
		return policy.AcceptsTask
	default:
		return policy.NoTask
	}
}

// undescribed reports whether a call must be held or denied whose tool the upstream has not yet
// described to this client.
func (c *policyCheck) undescribed(judged catalog.Judgement) bool {
	switch judged.Handling {
	case policy.RefuseDenied:
		return judged.Verdict.Unpinned && judged.Tool.DigestText() == ""
	case policy.OwnTask, policy.HoldRequest:
		return c.out.gateway.Holds() && judged.Kind == policy.Tool && judged.Tool.DigestText() == ""
	default:
		return false
	}
}

// tools returns the lookup of tools for this request.
func (c *policyCheck) tools() *upstream.Lookup {
	if c.lookup == nil {
		c.lookup = upstream.NewLookup(c.sender.client.Caller())
	}
	return c.lookup
}

// refusal returns the problem of a message that policy neither lets pass nor holds.
func (c *policyCheck) refusal(ctx context.Context, m *jsonrpc.Message, judged catalog.Judgement) *mcp.Problem {
	if problem := c.checkMirrors(ctx, m, judged); problem != nil {
		return problem
	}
	switch judged.Handling {
	case policy.PassOn:
		return nil
	case policy.OwnTask, policy.ReadyTask, policy.HoldRequest:
		return c.holdable(m, judged)
	case policy.RefuseNoTask:
		c.out.gateway.cfg.Metrics.InvalidTask(metrics.TaskRequired)
		return mcp.TaskRequiredProblem(c.out.era, judged.Name)
	default:
		return c.denial(judged)
	}
}

// checkMirrors refuses a modern call with a header that contradicts its arguments, because the
// upstream might act on either. If the call has such headers and the tool is not yet known, the
// upstream is asked for its definition; if that fails, the call is refused. Without a definition
// the headers have no meaning.
func (c *policyCheck) checkMirrors(ctx context.Context, m *jsonrpc.Message, judged catalog.Judgement) *mcp.Problem {
	header := c.sender.client.Transport().Header
	if c.out.era != mcp.Modern || judged.Kind != policy.Tool || header == nil {
		return nil
	}
	tool := judged.Tool
	if tool.DigestText() == "" && judged.Handling != policy.RefuseDenied && mcp.HasMirrors(header) {
		var err error
		if tool, err = c.sender.client.Caller().Definition(ctx, m); err != nil {
			return &mcp.Problem{Type: mcp.HeaderMismatch, Tool: judged.Name, Cause: err, Detail: "the upstream does not describe the tool properly, " +
				"so it cannot be checked whether the Mcp-Param headers agree with the arguments; it did not run"}
		}
	}
	if tool.Mirrored == nil {
		return nil
	}
	return mcp.CheckMirrors(header, jsonrpc.Value{Bytes: tool.Mirrored}, m.Params.Arguments)
}

// holdable returns the problem of a call that cannot be held, because it is not a request or
// because it carries members that approvers do not see.
func (c *policyCheck) holdable(m *jsonrpc.Message, judged catalog.Judgement) *mcp.Problem {
	if !c.out.gateway.Holds() || m.Kind != jsonrpc.Request {
		return c.denial(judged)
	}
	detail := ""
	for name := range m.Params.Members() {
		for _, unseen := range []string{"inputResponses", "requestState"} {
			if strings.EqualFold(name, unseen) { // some servers ignore the case of names
				detail = "a call that needs approval cannot carry " + unseen + ", which its approver would not see"
			}
		}
	}
	if err := approval.CheckHoldable(m, judged.Name); err != nil {
		detail = err.Error()
	}
	if detail == "" {
		return nil
	}
	return &mcp.Problem{Type: mcp.InvalidParams, Tool: judged.Name, Detail: detail + "; it did not run"}
}

// denial returns the problem of a message that policy denies. It names only the rule and its
// reason. A client that called a tool gets it as a tool result, which its model reads.
func (c *policyCheck) denial(judged catalog.Judgement) *mcp.Problem {
	reason := judged.Verdict.Reason
	problem := &mcp.Problem{Type: mcp.PolicyDenied, Hint: reason}
	if judged.Kind == policy.Tool {
		problem.Tool = judged.Name
	}
	if judged.Verdict.Ambiguous {
		problem.Type = mcp.AmbiguousName
		return problem
	}
	if reason != "" {
		problem.Detail = "Denied by policy: " + reason + ". It did not run."
	}
	if judged.Verdict.Unpinned {
		problem.Type = mcp.ToolUnpinned
	}
	problem.Meta = c.out.denied(problem.Type, gatedialect.RemediationUnavailable, "")
	problem.Result = problem.Tool != "" && (c.out.era == mcp.Modern || !c.out.gateway.Waiting().Errors)
	return problem
}
