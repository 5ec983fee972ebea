package demo

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"

	version20250326 = "2025-03-26" // the only version with batches
	latestLegacy    = "2025-11-25"
	maxSessions     = 1000
)

var legacyVersions = []string{latestLegacy, "2025-06-18", version20250326}

func (s *Server) serveLegacy(ctx context.Context, rep *reply, h http.Header, in jsonrpc.Packet) {
	if m := in.Messages[0]; m.Method == mcpname.Initialize && m.Kind == jsonrpc.Request && !in.Batch {
		s.initialize(rep, m)
		return
	}
	current, ok := s.session(rep.w, h)
	if !ok {
		return
	}
	if in.Batch && current.version != version20250326 {
		rep.refuse(&fault{status: http.StatusBadRequest, code: jsonrpc.CodeInvalidRequest, message: "this protocol version has no batches"})
		return
	}
	switch {
	case !slices.ContainsFunc(in.Messages, func(m jsonrpc.Message) bool { return m.Kind == jsonrpc.Request }):
		rep.w.WriteHeader(http.StatusAccepted)
	case in.Batch:
		rep.stream()
	}
	for _, m := range in.Messages {
		if m.Kind == jsonrpc.Request {
			s.answerLegacy(ctx, rep, current, m)
		} else {
			current.notified(m)
		}
	}
}

func (s *Server) initialize(rep *reply, m jsonrpc.Message) {
	rep.id = m.ID.Bytes
	p, bad := paramsOf(m)
	if bad != nil {
		rep.refuse(bad)
		return
	}
	if p.ProtocolVersion == "" {
		rep.refuse(&fault{code: jsonrpc.CodeInvalidParams, message: "protocolVersion is missing"})
		return
	}
	version := p.ProtocolVersion
	if !slices.Contains(legacyVersions, version) {
		version = latestLegacy
	}
	rep.w.Header().Set(sessionHeader, s.sessions.open(version))
	rep.result(`"protocolVersion":"` + version + `",` + capabilities + `"serverInfo":` + self + `,` + instructions)
}

func (s *Server) answerLegacy(ctx context.Context, rep *reply, current *session, m jsonrpc.Message) {
	rep.id = m.ID.Bytes
	p, bad := paramsOf(m)
	if bad != nil {
		rep.refuse(bad)
		return
	}
	switch m.Method {
	case mcpname.Ping:
		rep.result("")
	case mcpname.ToolsList:
		s.listTools(rep, p)
	case mcpname.ToolsCall:
		ctx, end := current.begin(ctx, m.ID.Bytes)
		defer end()
		s.callTool(ctx, rep, p)
	default:
		rep.refuse(&fault{code: jsonrpc.CodeMethodNotFound, message: "unknown method " + quote(m.Method)})
	}
}

func (s *Server) endSession(w http.ResponseWriter, r *http.Request) {
	current, ok := s.session(w, r.Header)
	if !ok {
		return
	}
	s.sessions.close(current)
	w.WriteHeader(http.StatusNoContent)
}

// session returns the session of a request. If there is none, it answers the request with an error.
func (s *Server) session(w http.ResponseWriter, h http.Header) (*session, bool) {
	id := h.Get(sessionHeader)
	if id == "" {
		http.Error(w, "the Mcp-Session-Id header is missing; begin with initialize", http.StatusBadRequest)
		return nil, false
	}
	current := s.sessions.find(id)
	if current == nil {
		http.Error(w, "no such session", http.StatusNotFound)
		return nil, false
	}
	if v := h.Get(versionHeader); v != "" && !slices.Contains(legacyVersions, v) {
		http.Error(w, "unsupported protocol version", http.StatusBadRequest)
		return nil, false
	}
	return current, true
}

// A session is a session of a legacy client.
type session struct {
	id      string
	version string

	mu      sync.Mutex
	running map[string]context.CancelFunc // by request id, as received
}

// begin returns a context that ends when the client cancels the request.
func (s *session) begin(ctx context.Context, id jsontext.Value) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[string(id)] = cancel
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, string(id))
	}
}

// notified handles a message that needs no answer. Only cancellations have an effect.
func (s *session) notified(m jsonrpc.Message) {
	if m.Method != mcpname.NotifyCancelled {
		return
	}
	p, bad := paramsOf(m)
	if bad != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.running[string(p.RequestID)]; cancel != nil {
		cancel()
	}
}

// sessions are the open sessions, the oldest first.
type sessions struct {
	mu   sync.Mutex
	list []*session
}

// open begins a session and returns its id. If there are too many, the oldest is removed, because
// some clients never end theirs.
func (s *sessions) open(version string) string {
	fresh := &session{id: rand.Text(), version: version, running: map[string]context.CancelFunc{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == maxSessions {
		s.list = slices.Delete(s.list, 0, 1)
	}
	s.list = append(s.list, fresh)
	return fresh.id
}

// find returns the session with an id, or nil.
func (s *sessions) find(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.list {
		if open.id == id {
			return open
		}
	}
	return nil
}

// close removes a session and cancels its running calls.
func (s *sessions) close(ended *session) {
	s.mu.Lock()
	s.list = slices.DeleteFunc(s.list, func(open *session) bool { return open == ended })
	s.mu.Unlock()
	ended.mu.Lock()
	defer ended.mu.Unlock()
	for _, cancel := range ended.running {
		cancel()
	}
}
