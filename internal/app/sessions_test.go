package app_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

const (
	annToken = "tga_ann_0123456789abcdefghij"
	bobToken = "tga_bob_0123456789abcdefghij"
)

// A sessionServer begins sessions with the ids from next, and records the requests of each
// session.
type sessionServer struct {
	*httptest.Server

	mu     sync.Mutex
	next   func() string // the id of the next session
	events bool          // initialize is answered by a stream
	seen   []string      // method of HTTP, session and body
}

func newSessionServer(t *testing.T) *sessionServer {
	t.Helper()
	n := 0
	s := &sessionServer{next: func() string { n++; return fmt.Sprint("session-", n) }}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *sessionServer) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.Header.Get("Mcp-Session-Id")+" "+string(body))
	id, events := "", s.events
	if strings.Contains(string(body), `"initialize"`) {
		id = s.next()
	}
	s.mu.Unlock()
	if id != "" {
		w.Header()["Mcp-Session-Id"] = []string{id}
	}
	answer := `{"jsonrpc":"2.0","id":` + idOf(body) + `,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"},"content":[],"tools":[]}}`
	switch {
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": hello\n\n")
	case r.Method == http.MethodDelete:
	case !strings.Contains(string(body), `"id":`) || !strings.Contains(string(body), `"method"`):
		w.WriteHeader(http.StatusAccepted)
	case events:
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+answer+"\n\n")
	default:
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answer)
	}
}

// sent returns the number of requests to the server, without those of the gate itself.
func (s *sessionServer) sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, seen := range s.seen {
		if !strings.Contains(seen, `"id":"tg-`) {
			n++
		}
	}
	return n
}

// twoAgents returns the configuration of a gate with two agents, each with a token.
func twoAgents(upstreams, store, more string) string {
	return "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0}\nstore: '" + store + "'\nupstreams: " + upstreams +
		"\nidentity: {tokens: [{name: ann, hash: '" + identity.HashOf(annToken).String() + "'}, {name: bob, hash: '" + identity.HashOf(bobToken).String() + "'}]" + more + "}\n" +
		"rules: [{match: 'hold_*', action: approve}]\ndefault: forward\nwaiting: {hold: 10ms}\n"
}

// An agentClient is an agent at one endpoint.
type agentClient struct {
	t     *testing.T
	url   string
	token string
}

func (a agentClient) request(method, session, body string) (int, string, http.Header) {
	a.t.Helper()
	headers := []string{"Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2025-11-25"}
	if a.token != "" {
		headers = append(headers, "Authorization", "Bearer "+a.token)
	}
	if session != "" {
		headers = append(headers, "Mcp-Session-Id", session)
	}
	return request(a.t, http.DefaultClient, method, a.url, body, headers...)
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// begin begins a session.
func (a agentClient) begin() string {
	a.t.Helper()
	status, body, header := a.request("POST", "", initialize)
	id := header.Get("Mcp-Session-Id")
	if status != http.StatusOK || id == "" {
		a.t.Fatalf("initialize: %d %s", status, body)
	}
	return id
}

// inSession are the requests of a client in its session.
var inSession = map[string][2]string{
	"call":           {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_x","arguments":{}}}`},
	"held call":      {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold_x","arguments":{}}}`},
	"held as a task": {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold_x","arguments":{},"task":{}}}`},
	"list":           {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`},
	"task":           {"POST", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"up-1"}}`},
	"answer":         {"POST", `{"jsonrpc":"2.0","id":7,"result":{}}`},
	"cancellation":   {"POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`},
	"initialize":     {"POST", initialize},
	"modern":         {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}}}`},
	"stream":         {"GET", ""},
	"end":            {"DELETE", ""},
}

// wantForeign checks that an agent can do nothing in the session of another agent, and that
// its requests do not reach the server.
func (a agentClient) wantForeign(server *sessionServer, session string) {
	a.t.Helper()
	before := server.sent()
	for name, r := range inSession {
		if name == "modern" {
			continue // it has other headers
		}
		status, body, _ := a.request(r[0], session, r[1])
		if status != http.StatusNotFound || !strings.Contains(body, "session_gone") {
			a.t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if got := server.sent() - before; got != 0 {
		a.t.Errorf("the server got %d requests with a foreign session", got)
	}
}

// wantOwn checks that an agent can use a session.
func (a agentClient) wantOwn(session string) {
	a.t.Helper()
	for _, name := range []string{"call", "answer", "stream"} {
		if status, body, _ := a.request(inSession[name][0], session, inSession[name][1]); status != http.StatusOK && status != http.StatusAccepted {
			a.t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

func TestSessionBelongsToItsPrincipal(t *testing.T) {
	server, mail := newSessionServer(t), newSessionServer(t)
	mail.events = true
	store := "sqlite:" + filepath.Join(t.TempDir(), "gate.db")
	upstreams := "[{name: files, url: " + server.URL + ", path: /files}, {name: mail, url: " + mail.URL + ", path: /mail}]"
	for _, anonymous := range []bool{false, true} {
		more := ""
		if anonymous {
			more = ", anonymous: true"
		}
		t.Run(fmt.Sprint("anonymous agents ", anonymous), func(t *testing.T) {
			g, stop := start(t, twoAgents(upstreams, store, more))
			ann := agentClient{t, "http://" + g.AgentAddr() + "/files", annToken}
			bob := agentClient{t, ann.url, bobToken}
			session := ann.begin()
			ann.wantOwn(session)
			bob.wantForeign(server, session)
			bob.wantForeign(server, "made-up")
			elsewhere := agentClient{t, "http://" + g.AgentAddr() + "/mail", annToken}
			if anonymous {
				nobody := agentClient{t, ann.url, ""}
				nobody.wantForeign(server, session)
				nobody.wantOwn(nobody.begin())
				nobody.wantOwn("made-up")
			}

			// The other server has begun a session of the same name for another agent.
			mail.mu.Lock()
			mail.next = func() string { return session }
			mail.mu.Unlock()
			elsewhere.wantForeign(mail, session)
			agentClient{t, elsewhere.url, bobToken}.begin()
			elsewhere.wantForeign(mail, session)
			bob.wantForeign(server, session)

			if err := stop(); err != nil {
				t.Fatal(err)
			}
			g, stop = start(t, twoAgents(upstreams, store, more))
			defer stop()
			ann.url = "http://" + g.AgentAddr() + "/files"
			bob.url = ann.url
			bob.wantForeign(server, session)
			ann.wantOwn(session)
			if status, _, _ := ann.request("DELETE", session, ""); status != http.StatusOK {
				t.Errorf("the owner ends its session: %d", status)
			}
			ann.wantForeign(server, session)
		})
	}
}

// Replicas share the owners of sessions, also in an encrypted store. A gate with a store in
// memory has lost them after a restart.
func TestSessionsOnReplicas(t *testing.T) {
	redis, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return
	}
	t.Cleanup(func() { redis.Stop() })
	server := newSessionServer(t)
	text := twoAgents("[{url: "+server.URL+"}]", redis.URL(), "") + "storage: {timeout: 1m, keys: 'k1:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE='}\n"
	first, stopFirst := start(t, text)
	defer stopFirst()
	second, stopSecond := start(t, text)
	defer stopSecond()
	session := agentClient{t, "http://" + first.AgentAddr() + "/mcp", annToken}.begin()
	agentClient{t, "http://" + second.AgentAddr() + "/mcp", annToken}.wantOwn(session)
	agentClient{t, "http://" + second.AgentAddr() + "/mcp", bobToken}.wantForeign(server, session)

	forgetful, stopForgetful := start(t, twoAgents("[{url: "+server.URL+"}]", "memory:", ""))
	defer stopForgetful()
	agentClient{t, "http://" + forgetful.AgentAddr() + "/mcp", annToken}.wantForeign(server, session)
}

// The server could take a modern request with a session for a legacy one.
func TestModernRequestCannotUseForeignSession(t *testing.T) {
	server := newSessionServer(t)
	g, stop := start(t, twoAgents("[{url: "+server.URL+"}]", "memory:", ""))
	defer stop()
	url := "http://" + g.AgentAddr() + "/mcp"
	session := agentClient{t, url, annToken}.begin()
	status, body, _ := request(t, http.DefaultClient, "POST", url, inSession["modern"][1], "Accept", "application/json, text/event-stream",
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list", "Authorization", "Bearer "+bobToken, "Mcp-Session-Id", session)
	if status != http.StatusNotFound || !strings.Contains(body, "session_gone") {
		t.Errorf("%d %s", status, body)
	}
}

// The gate checks the session ids of an upstream.
func TestSessionIDsOfUpstreamAreChecked(t *testing.T) {
	server := newSessionServer(t)
	g, stop := start(t, twoAgents("[{url: "+server.URL+"}]", "memory:", ""))
	defer stop()
	ann, bob := agentClient{t, "http://" + g.AgentAddr() + "/mcp", annToken}, agentClient{t, "http://" + g.AgentAddr() + "/mcp", bobToken}
	for id, valid := range map[string]bool{
		"same for all": false, "same-for-all": true, strings.Repeat("x", 4096): true, strings.Repeat("x", 4097): false,
		"../../session/%00~": true, "caf\xe9": false, "a\tb": false,
	} {
		server.mu.Lock()
		server.next = func() string { return id }
		server.mu.Unlock()
		if !valid {
			if status, body, header := ann.request("POST", "", initialize); !strings.Contains(body, "upstream_invalid_response") || header.Get("Mcp-Session-Id") != "" {
				t.Errorf("%.20q: %d %s", id, status, body)
			}
			continue
		}
		ann.begin()
		ann.wantOwn(id)
		bob.wantForeign(server, id)
		bob.begin()
		bob.wantOwn(id)
		ann.wantOwn(id)
	}
}
