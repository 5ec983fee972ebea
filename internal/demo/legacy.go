package demo

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"

	version20250326 = "2025-03-26" // the one with batches
	latestLegacy    = "2025-11-25"
	maxSessions     = 1000
)

var legacyVersions = []string{latestLegacy, "2025-06-18", version20250326}

type initializeResult struct {
	ProtocolVersion string         `json:"protocolVersion"`
	Capabilities    capabilities   `json:"capabilities"`
	ServerInfo      implementation `json:"serverInfo"`
	Instructions    string         `json:"instructions"`
}

func (s *Server) serveLegacy(ctx context.Context, rep *reply, h http.Header, in jsonrpc.Packet) {
	if m := in.Messages[0]; m.Method == "initialize" && m.Kind == jsonrpc.Request && !in.Batch {
		s.initialize(rep, m)
		return
	}
	current, ok := s.session(rep.w, h)
	if !ok {
		return
	}
	if in.Batch && current.version != version20250326 {
		rep.refuse(&fault{status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidRequest, Message: "this protocol version has no batches"})
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
			current.notice(m)
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
		rep.refuse(&fault{Code: jsonrpc.CodeInvalidParams, Message: "protocolVersion is missing"})
		return
	}
	version := p.ProtocolVersion
	if !slices.Contains(legacyVersions, version) {
		version = latestLegacy
	}
	rep.w.Header().Set(sessionHeader, s.sessions.open(version))
	rep.result(initializeResult{ProtocolVersion: version, ServerInfo: self, Instructions: instructions})
}

func (s *Server) answerLegacy(ctx context.Context, rep *reply, current *session, m jsonrpc.Message) {
	rep.id = m.ID.Bytes
	p, bad := paramsOf(m)
	if bad != nil {
		rep.refuse(bad)
		return
	}
	switch m.Method {
	case "ping":
		rep.result(struct{}{})
	case "tools/list":
		s.listTools(rep, p)
	case "tools/call":
		ctx, end := current.begin(ctx, m.ID.Bytes)
		defer end()
		s.callTool(ctx, rep, p)
	default:
		rep.refuse(&fault{Code: jsonrpc.CodeMethodNotFound, Message: "unknown method " + quote(m.Method)})
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

// session finds the session a request belongs to, or answers why there is none.
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

// A session is one legacy client.
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

// notice takes a message that needs no answer. All but one kind are ignored.
func (s *session) notice(m jsonrpc.Message) {
	if m.Method != "notifications/cancelled" {
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

// open starts a session and returns its id. Clients that never say goodbye
// are forgotten in the order in which they came.
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

// find returns the session with the given id, or nil.
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

// close forgets a session and cancels what it still has running.
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
