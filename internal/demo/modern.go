package demo

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

const (
	latestModern = "2026-07-28"
	capabilities = `"capabilities":{"tools":{}},`
	instructions = `"instructions":"A file tree to play with. It lives in memory; deleting is allowed and real."`
)

// An era is one of the two generations of the protocol.
type era int

const (
	legacy era = iota // sessions, up to 2025-11-25
	modern            // stateless, 2026-07-28
)

// claimsModern reports whether the version header names the modern era. Versions are dates, so they
// sort as text.
func claimsModern(h http.Header) bool { return h.Get(versionHeader) >= latestModern }

// isModern reports whether a POST is modern. The body decides; the header alone makes it a
// malformed modern request.
func isModern(h http.Header, in jsonrpc.Packet) bool {
	if in.Batch {
		return false
	}
	p, bad := paramsOf(in.Messages[0])
	return bad == nil && p.Meta.ProtocolVersion != nil || claimsModern(h)
}

func (s *Server) serveModern(ctx context.Context, rep *reply, h http.Header, in jsonrpc.Packet) {
	m := in.Messages[0]
	rep.era, rep.id = modern, m.ID.Bytes
	switch m.Kind {
	case jsonrpc.Response:
		rep.refuse(&fault{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest, message: "this server sends no requests"})
		return
	case jsonrpc.Notification:
		rep.w.WriteHeader(http.StatusAccepted)
		return
	default:
	}
	p, bad := paramsOf(m)
	if bad == nil {
		bad = checkModern(h, m, p)
	}
	if bad != nil {
		bad.status = max(bad.status, http.StatusBadRequest)
		rep.refuse(bad)
		return
	}
	switch m.Method {
	case mcpname.ServerDiscover:
		rep.result(modern.cached() + `"supportedVersions":` + supportedVersions() + `,` + capabilities + instructions)
	case mcpname.ToolsList:
		s.listTools(rep, p)
	case mcpname.ToolsCall:
		s.callTool(ctx, rep, p)
	}
}

func supportedVersions() string {
	return `["` + latestModern + `","` + strings.Join(legacyVersions, `","`) + `"]`
}

// checkModern returns the first error of a modern request, in the order that the specification's
// conformance suite expects.
func checkModern(h http.Header, m jsonrpc.Message, p params) *fault {
	switch {
	case p.Meta.ProtocolVersion == nil || p.Meta.Capabilities.Kind() != '{':
		return &fault{code: jsonrpc.CodeInvalidParams, message: "_meta lacks the protocol version or the client's capabilities"}
	case !headerMatches(h, versionHeader, *p.Meta.ProtocolVersion):
		return &fault{code: codeHeaderMismatch, message: "MCP-Protocol-Version differs from the body"}
	case *p.Meta.ProtocolVersion != latestModern:
		return &fault{
			code: codeUnsupportedVersion, message: "unsupported protocol version",
			data: `{"supported":` + supportedVersions() + `,"requested":` + quote(*p.Meta.ProtocolVersion) + `}`,
		}
	case !headerMatches(h, "Mcp-Method", m.Method):
		return &fault{code: codeHeaderMismatch, message: "Mcp-Method differs from the body"}
	case m.Method == mcpname.ToolsCall && !headerMatches(h, "Mcp-Name", p.Name):
		return &fault{code: codeHeaderMismatch, message: "Mcp-Name differs from the body"}
	case !slices.Contains([]string{mcpname.ServerDiscover, mcpname.ToolsList, mcpname.ToolsCall}, m.Method):
		return &fault{status: http.StatusNotFound, code: jsonrpc.CodeMethodNotFound, message: "unknown method " + quote(m.Method)}
	}
	return nil
}

// headerMatches reports whether there is exactly one header with this name, and it equals the value
// in the body.
func headerMatches(h http.Header, name, want string) bool {
	values := h.Values(name)
	if len(values) != 1 {
		return false
	}
	got := values[0]
	if coded, ok := strings.CutPrefix(got, "=?base64?"); ok && name == "Mcp-Name" {
		if coded, ok = strings.CutSuffix(coded, "?="); ok {
			plain, err := base64.StdEncoding.DecodeString(coded)
			if err != nil || !utf8.Valid(plain) {
				return false
			}
			got = string(plain)
		}
	}
	return got == want
}
