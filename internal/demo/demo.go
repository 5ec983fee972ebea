// Package demo is a small MCP server for trying the gate: six tools on an in-memory file tree, and
// a ledger of the calls that really ran.
//
// It serves both eras of the protocol at one endpoint. A request with modern metadata is answered
// without a session; "initialize" opens a legacy session. The server does not know the gate.
//
// The official SDK is not used: it keeps every result in memory, while big_report shows that the
// gate does not, and it has no batches of 2025-03-26.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const maxBody = 1 << 20 // bytes of one request

// A Server is the demo's MCP endpoint. It serves every path.
type Server struct {
	files    *tree
	sessions *sessions
	ledger   *ledger
	tools    []tool
}

// New returns a server with a new file tree and an empty ledger.
func New() *Server {
	s := &Server{files: newTree(), sessions: new(sessions), ledger: new(ledger)}
	s.tools = s.newTools()
	return s
}

// Calls returns the latest tool calls in the order in which they began. It does not include calls
// that were refused before they reached a tool.
func (s *Server) Calls() []Call { return s.ledger.all() }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isTrusted(r) {
		http.Error(w, "this server answers local clients only", http.StatusForbidden)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		s.post(w, r)
	case r.Method == http.MethodDelete && !claimsModern(r.Header):
		s.endSession(w, r)
	default:
		// The server sends no notifications outside of requests, so there is no GET stream.
		w.Header().Set("Allow", "POST, DELETE")
		http.Error(w, "use POST", http.StatusMethodNotAllowed)
	}
}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	if !accepts(r.Header, "application/json") || !accepts(r.Header, "text/event-stream") {
		http.Error(w, "Accept must allow application/json and text/event-stream", http.StatusNotAcceptable)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooBig := new(http.MaxBytesError); errors.As(err, &tooBig) {
		http.Error(w, "the message is larger than 1 MiB", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		return // the client has disconnected
	}
	in, fault := parse(body)
	rep := &reply{w: w}
	switch {
	case fault != nil:
		rep.refuse(fault)
	case isModern(r.Header, in):
		s.serveModern(r.Context(), rep, r.Header, in)
	default:
		s.serveLegacy(r.Context(), rep, r.Header, in)
	}
}

// listTools answers tools/list. There is one page, so a cursor is an error.
func (s *Server) listTools(rep *reply, p params) {
	if p.Cursor != nil {
		rep.refuse(&fault{code: jsonrpc.CodeInvalidParams, message: "there is only one page of tools"})
		return
	}
	tools, err := json.Marshal(s.tools)
	if err != nil {
		rep.refuse(&fault{code: jsonrpc.CodeInternal, message: err.Error()})
		return
	}
	rep.result(rep.era.cached() + `"tools":` + string(tools))
}

// callTool answers tools/call and records the outcome in the ledger.
func (s *Server) callTool(ctx context.Context, rep *reply, p params) {
	i := slices.IndexFunc(s.tools, func(t tool) bool { return t.Name == p.Name })
	if i < 0 {
		rep.refuse(&fault{code: jsonrpc.CodeInvalidParams, message: "unknown tool " + quote(p.Name)})
		return
	}
	settle := s.ledger.begin(p.Name, p.Arguments)
	text, err := s.tools[i].run(ctx, &call{
		arguments: p.Arguments,
		progress: func(done, total int, message string) {
			rep.progress(p.Meta.ProgressToken, fmt.Sprintf(`"progress":%d,"total":%d,"message":%s`, done, total, quote(message)))
		},
	})
	// Settle the call before its answer ends, so that a client that has the answer finds the
	// outcome in the ledger.
	switch {
	case err != nil && ctx.Err() != nil:
		settle(Cancelled)
	case err != nil:
		settle(Failed)
		rep.toolError(err)
	case rep.text(ctx, text):
		settle(Done)
		rep.endText()
	default:
		settle(Cancelled)
		panic(http.ErrAbortHandler) // an incomplete message must not look complete
	}
}

// isTrusted refuses requests of web pages from other sites, including those that reach a loopback
// address by another host name (DNS rebinding).
func isTrusted(r *http.Request) bool {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && isLoopback(local.String()) && !isLoopback(r.Host) {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && (u.Host == r.Host || isLoopback(u.Host))
}

func isLoopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// accepts reports whether h allows an answer of the given media type.
func accepts(h http.Header, mediaType string) bool {
	wanted := h.Values("Accept")
	if len(wanted) == 0 {
		return true
	}
	family, _, _ := strings.Cut(mediaType, "/")
	for item := range strings.SplitSeq(strings.Join(wanted, ","), ",") {
		item, _, _ = strings.Cut(item, ";")
		switch strings.ToLower(strings.TrimSpace(item)) {
		case mediaType, family + "/*", "*/*":
			return true
		}
	}
	return false
}

func quote(s string) string { return string(jsonrpc.AppendString(nil, s)) }
