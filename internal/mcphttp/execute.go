package mcphttp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A guise is in whose name a held call is made: the credentials of a contact,
// and nothing else of it. The approver saw neither the contact's other headers
// nor its query, and either could change what the call does.
type guise struct {
	header     http.Header
	definition func(tool string) []byte // of a tool some of whose arguments headers repeat; may be nil
}

// credentialsOf returns what a held call takes of the headers of a contact: the
// session, the protocol version, and those that are named.
func credentialsOf(contact http.Header, named []string) http.Header {
	header := make(http.Header)
	for _, name := range append([]string{"Mcp-Session-Id"}, named...) {
		if values := contact[name]; values != nil {
			header[name] = slices.Clone(values)
		}
	}
	if version := contact.Get("Mcp-Protocol-Version"); slices.Contains(wire.Versions(), version) {
		header.Set("Mcp-Protocol-Version", version)
	}
	return header
}

// headerOf returns the headers of a request in this guise. The error says that
// the tool's definition cannot be followed.
func (g guise) headerOf(m *jsonrpc.Message) (http.Header, error) {
	header := g.header.Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	version, modern := m.Params.Meta.Member(wire.MetaVersion).Text()
	if !modern {
		if header.Get("Mcp-Protocol-Version") >= wire.Version20260728 {
			header.Del("Mcp-Protocol-Version")
		}
		return header, nil
	}
	subject, named := subjectOf(m).Text()
	header.Set("Mcp-Protocol-Version", version)
	header.Set("Mcp-Method", m.Method)
	if named {
		header.Set("Mcp-Name", wire.EncodeHeader(subject))
	}
	if kind, _ := policy.Governed(m.Method); kind == policy.Tool && g.definition != nil {
		if tool := g.definition(subject); tool != nil {
			return header, wire.MirrorArguments(header, jsonrpc.Value{Bytes: tool}, m.Params.Arguments)
		}
	}
	return header, nil
}

// subjectOf returns the member of params that names what a request is about.
func subjectOf(m *jsonrpc.Message) jsonrpc.Value {
	kind, _ := policy.Governed(m.Method)
	switch {
	case kind == policy.Resource:
		return m.Params.URI
	case strings.HasPrefix(m.Method, "tasks/"):
		return m.Params.TaskID
	default:
		return m.Params.Name
	}
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
	if unsent, ok := errors.AsType[*unsentError](err); ok {
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

// An unsentError is the failure of a request of which no byte was sent.
type unsentError struct{ cause error }

// Error implements error.
func (e *unsentError) Error() string { return "not sent: " + e.cause.Error() }

// Unwrap returns the cause of e.
func (e *unsentError) Unwrap() error { return e.cause }

// failure says the same of a held call: it did not run.
func (e *unsentError) failure() *approval.SendError {
	failure := &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanNo, Err: e}
	problem, ok := errors.AsType[*wire.Problem](e.cause)
	switch {
	case ok && problem.Type == wire.UpstreamDown:
		failure.Stage = task.StageUpstreamUnreachable
	case ok && problem.Type == wire.UpstreamTimeout, errors.Is(e.cause, context.DeadlineExceeded):
		failure.Stage = task.StageUpstreamTimeout
	default:
	}
	return failure
}
