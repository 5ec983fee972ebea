package httpclient

import (
	"context"
	"net/http"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// headerOf returns the headers of a request with the given credentials. The error says why
// arguments cannot be repeated in headers as the tool's definition requires.
func headerOf(m *jsonrpc.Message, as upstream.Credentials) (http.Header, error) {
	header := as.Header.Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	version, modern := m.Params.Meta.Member(mcpname.MetaProtocolVersion).Text()
	if !modern {
		if header.Get("Mcp-Protocol-Version") >= mcp.Version20260728 {
			header.Del("Mcp-Protocol-Version")
		}
		return header, nil
	}
	subject, named := subjectOf(m).Text()
	header.Set("Mcp-Protocol-Version", version)
	header.Set("Mcp-Method", m.Method)
	if named {
		header.Set("Mcp-Name", mcp.EncodeHeader(subject))
	}
	if kind, _ := policy.Governed(m.Method); kind == policy.Tool && as.Definition != nil {
		if tool := as.Definition(subject); tool != nil {
			return header, mcp.MirrorArguments(header, jsonrpc.Value{Bytes: tool}, m.Params.Arguments)
		}
	}
	return header, nil
}

// subjectOf returns the member of params that names the subject of a request.
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

// continueTrace tells the upstream the span in ctx, if any, in a header and in the metadata of a
// modern request. It returns the body to send.
func continueTrace(ctx context.Context, header http.Header, m *jsonrpc.Message, body []byte) []byte {
	parent := tracing.Traceparent(ctx)
	if parent == "" {
		return body
	}
	//mutate:swap ", parent" `, ""` internal/mcphttp.TestStepsAreTraced the upstream of a held call does not get its span
	header.Set("Traceparent", parent)
	return upstream.ContinueTrace(ctx, m, body)
}
