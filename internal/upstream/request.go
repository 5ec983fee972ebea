package upstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// parsed returns the one message in text.
func parsed(text []byte) (*jsonrpc.Message, error) {
	return jsonrpc.ParseMessage(text, jsonrpc.Limits{})
}

// newRequestID returns the id of a request of the gate's own, which must not be
// one of the client's in whose session it is made.
func newRequestID() []byte { return jsonrpc.AppendString(nil, "tg-"+rand.Text()) }

// request returns a request of the gate's own. Members are those of its params;
// empty ones are left out.
func request(method string, members ...string) (*jsonrpc.Message, error) {
	members = slices.DeleteFunc(members, func(member string) bool { return member == "" })
	return parsed([]byte(`{"jsonrpc":"2.0","id":` + string(newRequestID()) + `,"method":"` + method +
		`","params":{` + strings.Join(members, ",") + `}}`))
}

// metaMember returns the metadata of a request of the gate's own as a member of
// its params, in the era of the call that the request is made for.
func metaMember(call *jsonrpc.Message) string {
	if wire.EraOf(call) == wire.Legacy {
		return ""
	}
	return `"_meta":` + string(requestMeta(call))
}

// requestMeta returns the metadata of a modern request about a task: what the
// client of the call said of itself then, and that the gate knows tasks.
func requestMeta(call *jsonrpc.Message) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, name := range []string{wire.MetaVersion, wire.MetaClientInfo, wire.MetaCapabilities} {
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
	declared, err := parsed(wire.DeclareTasks(m))
	if err != nil {
		return b.Bytes()
	}
	return declared.Params.Meta.Bytes
}

// outgoing returns the request with which the call of t is made.
func outgoing(t task.Task) (*jsonrpc.Message, error) {
	message, err := approval.Outgoing(t)
	if err != nil {
		return nil, err
	}
	return parsed(message)
}

// outgoingPacket is outgoing for a call that may be a batch.
func outgoingPacket(t task.Task) ([]byte, jsonrpc.Packet, error) {
	message, err := approval.Outgoing(t)
	if err != nil {
		return nil, jsonrpc.Packet{}, err
	}
	packet, err := jsonrpc.Parse(message, jsonrpc.Limits{})
	return message, packet, err
}

// unsendable says that a held call could not be made, because of err.
func unsendable(err error) error {
	return &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanNo, Err: err}
}

// sendError says how far a call got whose request failed.
func sendError(err error) error {
	if unsent, ok := errors.AsType[*UnsentError](err); ok {
		return unsent.failure()
	}
	problem, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		return err
	}
	failure := &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: problem.Cause}
	switch problem.Type {
	case wire.UpstreamDown, wire.Overloaded: // not connected, so nothing was sent
		failure.Stage, failure.Ran = task.StageUpstreamUnreachable, task.RanNo
	case wire.UpstreamTimeout:
		failure.Stage = task.StageUpstreamTimeout
	default:
	}
	return failure
}

// failure says the same of a held call: it did not run.
func (e *UnsentError) failure() *approval.SendError {
	failure := &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanNo, Err: e}
	problem, ok := errors.AsType[*wire.Problem](e.Cause)
	switch {
	case ok && problem.Type == wire.UpstreamDown:
		failure.Stage = task.StageUpstreamUnreachable
	case ok && problem.Type == wire.UpstreamTimeout, errors.Is(e.Cause, context.DeadlineExceeded):
		failure.Stage = task.StageUpstreamTimeout
	default:
	}
	return failure
}
