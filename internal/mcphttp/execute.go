package mcphttp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A guise is in whose name a held call is made.
//
// The query of the contact is no part of it: the approver saw neither that nor
// the one of the call, and either could change what the call does.
type guise struct {
	header     http.Header
	definition func(tool string) []byte // of a tool some of whose arguments headers repeat; may be nil
}

// headerOf turns the headers of a contact into those of the call itself, which
// the contact may have been about rather than made.
//
// The error says that the tool's definition cannot be followed.
func (g guise) headerOf(m *jsonrpc.Message) (http.Header, error) {
	header := g.header.Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	header.Del("Last-Event-Id")
	if header.Get("Mcp-Method") != m.Method {
		// The contact is about the call, so what it mirrors are not the arguments.
		maps.DeleteFunc(header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Mcp-Param-") })
	}
	version, modern := m.Params.Meta.Member(wire.MetaVersion).Text()
	if !modern {
		header.Del("Mcp-Method")
		header.Del("Mcp-Name")
		if header.Get("Mcp-Protocol-Version") >= wire.Version20260728 {
			header.Del("Mcp-Protocol-Version")
		}
		return header, nil
	}
	subject, named := subjectOf(m).Text()
	header.Set("Mcp-Protocol-Version", version)
	header.Set("Mcp-Method", m.Method)
	header.Del("Mcp-Name")
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

// plainCall returns the call without any wish for a task: the gate keeps the
// task, and calls the tool like anybody else.
func plainCall(m *jsonrpc.Message) []byte {
	params := m.Params.Value
	extensions := m.Params.Meta.Member(wire.MetaCapabilities).Member("extensions")
	if extensions.Member(wire.ExtensionTasks).Present() {
		var within jsonrpc.Patch
		extensions.Offset -= params.Offset
		within.Replace(extensions, extensions.Without(wire.ExtensionTasks))
		params.Bytes = within.Apply(params.Bytes)
	}
	if m.Params.Task.Present() {
		params.Bytes = params.Without("task")
	}
	var patch jsonrpc.Patch
	patch.Replace(m.Params.Value, params.Bytes)
	return patch.Apply(m.Raw)
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
