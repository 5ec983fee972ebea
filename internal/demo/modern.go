package demo

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const (
	latestModern = "2026-07-28"
	instructions = "A file tree to play with. It lives in memory; deleting is allowed and real."

	listTTL = 300_000 // milliseconds a client may keep a list
)

// An era is one of the two generations of the protocol.
type era int

const (
	legacy era = iota // sessions, up to 2025-11-25
	modern            // stateless, 2026-07-28
)

var self = implementation{Name: "thoughtgate-demo", Version: "1.0.0"}

func (e era) onResult() extras {
	if e == legacy {
		return extras{}
	}
	return extras{ResultType: "complete", Meta: &resultMeta{Server: self}}
}

func (e era) onList() caching {
	if e == legacy {
		return caching{}
	}
	return caching{TTL: listTTL, Scope: "public"}
}

type discoverResult struct {
	extras
	caching
	SupportedVersions []string     `json:"supportedVersions"`
	Capabilities      capabilities `json:"capabilities"`
	Instructions      string       `json:"instructions"`
}

// claimsModern reports whether the version header names the stateless era.
// Versions are dates, so they sort as text.
func claimsModern(h http.Header) bool { return h.Get(versionHeader) >= latestModern }

// isModern reports whether a POST belongs to the stateless era. The body
// decides; the header alone makes it a malformed modern request.
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
		rep.refuse(&fault{status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, Message: "this server asked nothing"})
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
	case "server/discover":
		rep.result(discoverResult{
			extras:            modern.onResult(),
			caching:           modern.onList(),
			SupportedVersions: supportedVersions(),
			Instructions:      instructions,
		})
	case "tools/list":
		s.listTools(rep, p)
	case "tools/call":
		s.callTool(ctx, rep, p)
	}
}

func supportedVersions() []string { return append([]string{latestModern}, legacyVersions...) }

// checkModern returns the first thing that is wrong with a modern request, in
// the order the specification's own test suite expects.
func checkModern(h http.Header, m jsonrpc.Message, p params) *fault {
	switch {
	case p.Meta.ProtocolVersion == nil || p.Meta.Capabilities.Kind() != '{':
		return &fault{Code: jsonrpc.CodeInvalidParams, Message: "_meta lacks the protocol version or the client's capabilities"}
	case !mirrors(h, versionHeader, *p.Meta.ProtocolVersion):
		return &fault{Code: codeHeaderMismatch, Message: "MCP-Protocol-Version differs from the body"}
	case *p.Meta.ProtocolVersion != latestModern:
		return &fault{Code: codeUnsupportedVersion, Message: "unsupported protocol version", Data: unsupported{
			Supported: supportedVersions(), Requested: *p.Meta.ProtocolVersion,
		}}
	case !mirrors(h, "Mcp-Method", m.Method):
		return &fault{Code: codeHeaderMismatch, Message: "Mcp-Method differs from the body"}
	case m.Method == "tools/call" && !mirrors(h, "Mcp-Name", p.Name):
		return &fault{Code: codeHeaderMismatch, Message: "Mcp-Name differs from the body"}
	case !slices.Contains([]string{"server/discover", "tools/list", "tools/call"}, m.Method):
		return &fault{status: http.StatusNotFound, Code: jsonrpc.CodeMethodNotFound, Message: "unknown method " + quote(m.Method)}
	}
	return nil
}

type unsupported struct {
	Supported []string `json:"supported"`
	Requested string   `json:"requested"`
}

// mirrors reports whether there is exactly one header of that name and it says
// the same as the body.
func mirrors(h http.Header, name, want string) bool {
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
