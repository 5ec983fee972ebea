package upstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

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

// request returns a request with the given members of params. Empty members are left out.
func request(method string, members ...string) (*jsonrpc.Message, error) {
	members = slices.DeleteFunc(members, func(member string) bool { return member == "" })
	return parsed([]byte(`{"jsonrpc":"2.0","id":` + string(newRequestID()) + `,"method":"` + method +
		`","params":{` + strings.Join(members, ",") + `}}`))
}

// metaMember returns the member _meta for a request that concerns call, or nothing if call is
// legacy.
func metaMember(call *jsonrpc.Message) string {
	if mcp.EraOf(call) == mcp.Legacy {
		return ""
	}
	return `"_meta":` + string(requestMeta(call))
}

// requestMeta returns the metadata of a modern request: the client information of
// call, and the capability for tasks.
func requestMeta(call *jsonrpc.Message) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, name := range []string{mcpname.MetaProtocolVersion, mcpname.MetaClientInfo, mcpname.MetaClientCapabilities} {
		if value := call.Params.Meta.Member(name); value.Present() {
			if b.Len() > 1 {
				b.WriteByte(',')
			}
			b.Write(jsonrpc.AppendString(nil, name))
			b.WriteByte(':')
			b.Write(value.Bytes)
		}
	}
	b.WriteByte('}')
	probe := append([]byte(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"_meta":`), b.Bytes()...)
	m, err := parsed(append(probe, `}}`...))
	if err != nil {
		return b.Bytes()
	}
	declared, err := parsed(mcp.DeclareTasks(m))
	if err != nil {
		return b.Bytes()
	}
	return declared.Params.Meta.Bytes
}

// unsendable reports a held call that could not be built because of err.
func unsendable(err error) error {
	return &approval.SendError{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanNo, Err: err}
}

// sendError returns the error of a call whose request failed, and says whether it may have run.
func sendError(err error) error {
	_, unsent := errors.AsType[*UnsentError](err)
	problem, known := errors.AsType[*mcp.Problem](err)
	failure := &approval.SendError{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanUnknown}
	switch {
	case unsent:
		failure.Ran, failure.Err = task.RanNo, err
	case known:
		failure.Err = problem.Cause
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
