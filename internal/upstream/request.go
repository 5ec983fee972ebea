package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// parsed parses one message.
func parsed(text []byte) (*jsonrpc.Message, error) {
	return jsonrpc.ParseMessage(text, jsonrpc.Limits{})
}

// newRequestID returns a random id that no request of the client has.
func newRequestID() []byte { return jsonrpc.AppendString(nil, "tg-"+rand.Text()) }

// request returns a request about call, in its era, with the given members of params. Members
// without a value are left out.
func request(call *jsonrpc.Message, method string, members ...jsonrpc.Member) *jsonrpc.Message {
	if mcp.EraOf(call) == mcp.Modern {
		members = append(members, jsonrpc.Member{Name: "_meta", JSON: requestMeta(call)})
	}
	members = slices.DeleteFunc(members, func(m jsonrpc.Member) bool { return m.JSON == nil })
	m := jsonrpc.NewRequest(newRequestID(), method, jsonrpc.NewParams(members...))
	return &m
}

// requestMeta returns the metadata of a modern request: the client information of
// call, and the capability for tasks.
func requestMeta(call *jsonrpc.Message) []byte {
	var members []jsonrpc.Member
	for _, name := range []string{mcpname.MetaProtocolVersion, mcpname.MetaClientInfo, mcpname.MetaClientCapabilities} {
		if value := call.Params.Meta.Member(name); value.Present() {
			members = append(members, jsonrpc.Member{Name: name, JSON: value.Bytes})
		}
	}
	return mcp.DeclareTasks(jsonrpc.Value{Bytes: jsonrpc.AppendObject(nil, members...)})
}

// unsendable reports a held call that could not be built because of err.
func unsendable(err error) error {
	return &approval.SendError{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanNo, Err: err}
}

// sendError returns the error of a call whose request failed, and says whether it may have run.
func sendError(err error) error {
	if problem, ok := errors.AsType[*mcp.Problem](err); ok && problem.Type == mcp.NotConnected {
		return notConnected(problem)
	}
	return sendFailure(err)
}

// sendFailure is [sendError] for a failed connection or answer.
func sendFailure(err error) error {
	_, unsent := errors.AsType[*UnsentError](err)
	problem, known := errors.AsType[*mcp.Problem](err)
	failure := &approval.SendError{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanUnknown}
	switch {
	case unsent:
		failure.Ran, failure.Err = task.RanNo, err
	case known:
		failure.Err = problem
		if problem.Cause != nil {
			failure.Err = problem.Cause
		}
	default:
		return err
	}
	switch {
	case known && (problem.Type == mcp.UpstreamDown || problem.Type == mcp.Overloaded && !unsent): // not connected, so nothing was sent
		failure.Stage, failure.Ran = lifecycle.StageUpstreamUnreachable, task.RanNo
	case known && problem.Type == mcp.UpstreamTimeout, unsent && errors.Is(err, context.DeadlineExceeded):
		failure.Stage = lifecycle.StageUpstreamTimeout
	}
	return failure
}

// notConnected returns the error of a call for which the gate has no token. The task keeps its reason,
// which must not be the link of a sign-in.
func notConnected(problem *mcp.Problem) error {
	reason := "a person must sign in to the server first"
	if problem.Connect != "" {
		reason = problem.Detail
	}
	return &approval.SendError{
		//mutate:swap "lifecycle.StageSessionGone" "lifecycle.StageUpstreamError" internal/app.TestEndedConnectionKeepsApproval an approved call is lost when the connection of its person has ended
		Stage: lifecycle.StageSessionGone, Ran: task.RanNo, Err: problem,
		Refusal: &approval.Refusal{Status: http.StatusUnauthorized, Reason: reason, Cause: problem},
	}
}
