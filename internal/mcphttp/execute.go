package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// send returns what makes a held call in the name of this request: with its
// headers, so that the upstream sees the credentials and the session of a
// client that is there now.
func (x *exchange) send() approval.Sender {
	upstream, from, known := x.upstream, x.from(), x.h.cfg.Gate.Tool
	as := guise{header: x.r.Header.Clone(), definition: func(name string) []byte {
		tool, _ := known(from, name)
		return tool.Mirrored
	}}
	return func(ctx context.Context, message []byte) (approval.Outcome, error) {
		return upstream.execute(ctx, as, message)
	}
}

// Name returns the name of the upstream.
func (u *Upstream) Name() string { return u.cfg.Name }

// Sender returns what makes a held call with the gate's own credentials, in the
// name of no client.
func (u *Upstream) Sender() approval.Sender {
	return func(ctx context.Context, message []byte) (approval.Outcome, error) {
		return u.execute(ctx, guise{header: make(http.Header)}, message)
	}
}

// A guise is in whose name a held call is made.
//
// The query of the contact is no part of it: the approver saw neither that nor
// the one of the call, and either could change what the call does.
type guise struct {
	header     http.Header
	definition func(tool string) []byte // of a tool some of whose arguments headers repeat; may be nil
}

// execute sends a call that was held and returns the upstream's answer to it.
// No exchange is there to turn a panic into an answer.
func (u *Upstream) execute(ctx context.Context, as guise, message []byte) (_ approval.Outcome, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &approval.SendError{
				Stage: task.StageExecutorLost, Ran: task.RanUnknown,
				Err: fmt.Errorf("panic: %v\n%s", cause, debug.Stack()),
			}
		}
	}()
	packet, err := jsonrpc.Parse(message, jsonrpc.Limits{})
	if err != nil {
		return approval.Outcome{}, &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanNo, Err: err}
	}
	m := &packet.Messages[0]
	if packet.Batch {
		return u.executeBatch(ctx, as, packet, message)
	}
	resp, err := u.sendBy(ctx, u.patient, &http.Request{ //nolint:bodyclose // closed with the outcome
		Method: http.MethodPost,
		URL:    new(url.URL),
		Header: as.headerOf(m),
	}, plainCall(m))
	if err != nil {
		return approval.Outcome{}, sendError(err)
	}
	return readOutcome(resp, m.ID.Bytes)
}

// executeBatch is execute for a whole batch, which goes as it came.
func (u *Upstream) executeBatch(ctx context.Context, as guise, p jsonrpc.Packet, message []byte) (approval.Outcome, error) {
	resp, err := u.sendBy(ctx, u.patient, &http.Request{ //nolint:bodyclose // closed where it is read
		Method: http.MethodPost,
		URL:    new(url.URL),
		Header: as.headerOf(&p.Messages[0]),
	}, message)
	if err != nil {
		return approval.Outcome{}, sendError(err)
	}
	return readBatchOutcome(resp, p)
}

// headerOf turns the headers of a contact into those of the call itself, which
// the contact may have been about rather than made.
func (g guise) headerOf(m *jsonrpc.Message) http.Header {
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
		return header
	}
	name := m.Params.Name
	if kind, _ := policy.Governed(m.Method); kind == policy.Resource {
		name = m.Params.URI
	}
	subject, _ := name.Text()
	header.Set("Mcp-Protocol-Version", version)
	header.Set("Mcp-Method", m.Method)
	header.Set("Mcp-Name", wire.EncodeHeader(subject))
	if g.definition != nil {
		if tool := g.definition(subject); tool != nil {
			wire.MirrorArguments(header, jsonrpc.Value{Bytes: tool}, m.Params.Arguments)
		}
	}
	return header
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
	problem, ok := errors.AsType[*wire.Problem](err)
	if !ok {
		return err
	}
	failure := &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: problem.Cause}
	switch problem.Type {
	case wire.UpstreamDown:
		failure.Stage, failure.Ran = task.StageUpstreamUnreachable, task.RanNo
	case wire.UpstreamTimeout:
		failure.Stage = task.StageUpstreamTimeout
	default:
	}
	return failure
}
