package app_test

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A plainServer is a server of MCP 2025-11-25 that can be stopped, hang and lie.
type plainServer struct {
	name     string
	tools    string // in the list
	more     atomic.Value
	hangs    atomic.Bool
	broken   atomic.Bool  // it answers 503
	before   atomic.Value // func(*http.Request), called for each request; may be unset
	asked    atomic.Int64 // requests
	restarts atomic.Int64 // each forgets all sessions
	gone     chan struct{}

	refuses atomic.Int64 // the status of an answer in place of a stream
	refused atomic.Int64 // such answers

	version string       // if it is not 2025-11-25
	begun   atomic.Int64 // sessions
	forgets atomic.Bool  // all sessions that have begun
	events  string       // of the stream on its own initiative; empty if it has none

	mu   sync.Mutex
	http *httptest.Server
	addr string
	last string // the last answer or notification from the client
}

func newPlainServer(t *testing.T, name string, tools ...string) *plainServer {
	t.Helper()
	s := &plainServer{name: name, gone: make(chan struct{})}
	var entries []string
	for _, tool := range tools {
		entries = append(entries, `{"name":"`+tool+`","inputSchema":{"type":"object"}}`)
	}
	s.tools = strings.Join(entries, ",")
	s.more.Store("")
	s.start(t)
	t.Cleanup(func() { close(s.gone); s.stop() })
	return s
}

// start starts the server, at its former address if it had one.
func (s *plainServer) start(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.http = httptest.NewUnstartedServer(s)
	if s.addr != "" {
		eventually(t, "the address is free", func() bool {
			l, err := net.Listen("tcp", s.addr)
			if err != nil {
				return false
			}
			s.http.Listener.Close()
			s.http.Listener = l
			return true
		})
	}
	s.http.Start()
	s.addr = s.http.Listener.Addr().String()
}

func (s *plainServer) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.http.CloseClientConnections()
	s.http.Close()
}

// foreignAnswer answers a request that another server may have got.
const foreignAnswer = `{"jsonrpc":"2.0","id":4711,"result":{"content":[{"type":"text","text":"of another call"}]}}`

func (s *plainServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	body, id := string(text), ""
	s.asked.Add(1)
	if before, ok := s.before.Load().(func(*http.Request)); ok {
		before(r)
	}
	if s.broken.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if s.hangs.Load() {
		select {
		case <-s.gone:
		case <-r.Context().Done():
		}
		return
	}
	if r.Method == http.MethodGet {
		s.serveStream(w, r)
		return
	}
	if s.forgets.Load() && r.Header.Get("Mcp-Session-Id") != "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if strings.HasPrefix(body, "[") {
		s.serveBatch(w, r, text)
		return
	}
	if strings.Contains(body, `"id":`) {
		id = idOf(text)
	}
	if id == "" || !strings.Contains(body, `"method"`) {
		s.mu.Lock()
		s.last = body
		s.mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
		return
	}
	session := fmt.Sprintf("session-of-%s-%d-", s.name, s.restarts.Load())
	if of := r.Header.Get("Mcp-Session-Id"); of != "" && !strings.HasPrefix(of, session) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer := func(result string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result) }
	switch {
	case strings.Contains(body, `"slow"`):
		select {
		case <-s.gone:
		case <-r.Context().Done():
		}
	case strings.Contains(body, `"initialize"`):
		s.forgets.Store(false)
		w.Header().Set("Mcp-Session-Id", session+fmt.Sprint(s.begun.Add(1)))
		answer(`{"protocolVersion":"` + cmp.Or(s.version, "2025-11-25") + `","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
	case strings.Contains(body, `"tools/list"`):
		more, _ := s.more.Load().(string)
		answer(`{"tools":[` + s.tools + `]` + more + `}`)
	case strings.Contains(body, `"lie"`):
		fmt.Fprint(w, foreignAnswer)
	case strings.Contains(body, `"lies"`):
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\n\ndata: [%[1]s]\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%[2]s,\"result\":{\"content\":[]}}\n\n", foreignAnswer, id)
	case strings.Contains(body, `"forge"`): // in a form that the gate passes on unread
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"b:1\",\"method\":\"roots/list\",\"params\":{\"x\":\"%s\"}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", strings.Repeat("x", 2<<20), id)
	case strings.Contains(body, `"ask"`):
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "id: e1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", id)
	case strings.Contains(body, `"tools/call"`):
		answer(`{"content":[{"type":"text","text":"done by ` + s.name + ` for ` + r.Header.Get("Mcp-Session-Id") + `"}]}`)
	default:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, id)
	}
}

// serveStream serves the stream of the server's own messages until the server stops.
func (s *plainServer) serveStream(w http.ResponseWriter, r *http.Request) {
	if status := int(s.refuses.Load()); status != 0 || s.events == "" {
		w.WriteHeader(cmp.Or(status, http.StatusMethodNotAllowed))
		s.refused.Add(1)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, s.events)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-s.gone:
	case <-r.Context().Done():
	}
}

// serveBatch answers each message of a batch as if it had come alone.
func (s *plainServer) serveBatch(w http.ResponseWriter, r *http.Request, text []byte) {
	s.mu.Lock()
	s.last = string(text)
	s.mu.Unlock()
	packet, err := jsonrpc.Parse(text, jsonrpc.Limits{})
	if err != nil || s.version != "2025-03-26" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var answers [][]byte
	for _, m := range packet.Messages {
		one := r.Clone(r.Context())
		one.Body = io.NopCloser(bytes.NewReader(m.Raw))
		if answer := httptest.NewRecorder(); m.Kind == jsonrpc.Request {
			s.ServeHTTP(answer, one)
			answers = append(answers, answer.Body.Bytes())
		}
	}
	if answers == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(jsonrpc.Array(answers))
}

func (s *plainServer) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// A plainRig is a gate with an endpoint of plain servers, and a client in a session.
type plainRig struct {
	*testing.T
	gate    *app.App
	session string
}

func startPlain(t *testing.T, servers ...*plainServer) *plainRig {
	t.Helper()
	return startPlainWith(t, "rules: [{match: '*', action: forward}]\ndefault: deny\n", servers...)
}

func startPlainWith(t *testing.T, more string, servers ...*plainServer) *plainRig {
	t.Helper()
	return startPlainEndpoint(t, "", more, servers...)
}

// startPlainEndpoint is startPlainWith with settings of the endpoint.
func startPlainEndpoint(t *testing.T, settings, more string, servers ...*plainServer) *plainRig {
	t.Helper()
	gate, stop := start(t, plainEndpoint("memory:", settings, more, servers...))
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	r := &plainRig{T: t, gate: gate}
	r.begin()
	return r
}

func plainConfig(store, more string, servers ...*plainServer) string {
	return plainEndpoint(store, "", more, servers...)
}

func plainEndpoint(store, settings, more string, servers ...*plainServer) string {
	text := "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: " + adminToken + ", tokens: [{name: ann, role: approver, hash: '" + identity.HashOf(approverToken).String() + "'}]}\nstore: '" + store + "'\n" + more
	if !strings.Contains(more, "limits:") {
		text += "limits: {request_timeout: 2s, call_timeout: 2s}\n"
	}
	text += "upstreams:\n"
	endpoint := "endpoints: [{path: /mcp, " + settings + "servers: ["
	for _, s := range servers {
		text += "- {name: " + s.name + ", url: 'http://" + s.addr + "/', connect_timeout: 1s}\n"
		endpoint += "{upstream: " + s.name + "}, "
	}
	return text + endpoint + "]}]\n"
}

// begin begins a session.
func (r *plainRig) begin() {
	r.Helper()
	r.beginAs("2025-11-25")
}

func (r *plainRig) beginAs(version string) {
	r.Helper()
	r.session = ""
	_, _, head := r.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	r.session = head.Get("Mcp-Session-Id")
	r.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (r *plainRig) post(body string) (int, string, http.Header) {
	r.Helper()
	return request(r.T, http.DefaultClient, "POST", "http://"+r.gate.AgentAddr()+"/mcp", body, "Mcp-Session-Id", r.session, "Authorization", "Bearer "+annsAgent, "Accept", "application/json, text/event-stream")
}

func (r *plainRig) list() string {
	r.Helper()
	_, answer, _ := r.post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	return answer
}

func (r *plainRig) call(tool string) string {
	r.Helper()
	_, answer, _ := r.post(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"` + tool + `"}}`)
	return answer
}

// listen returns the lines of the session's stream.
func (r *plainRig) listen() *bufio.Scanner {
	r.Helper()
	stream, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+r.gate.AgentAddr()+"/mcp", nil)
	if err != nil {
		r.Fatal(err)
	}
	stream.Header.Set("Mcp-Session-Id", r.session)
	stream.Header.Set("Accept", "text/event-stream")
	answer, err := http.DefaultClient.Do(stream)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { answer.Body.Close() })
	return bufio.NewScanner(answer.Body)
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %s", text, part)
		}
	}
}

// A server that dies does not disturb the others, and returns with a list change.
func TestEndpointServerDiesAndReturns(t *testing.T) {
	a, b, c := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x"), newPlainServer(t, "c", "x")
	r := startPlain(t, a, b, c)
	has(t, r.list(), `"name":"x"`, `"name":"b__x"`, `"name":"c__x"`)
	has(t, r.call("b__x"), "done by b for session-of-b")
	lines := r.listen()

	b.stop()

	has(t, r.call("b__x"), "upstream_unreachable")
	has(t, r.call("b__x"), "the server b is unavailable", "did not run")
	has(t, r.call("x"), "done by a")
	has(t, r.list(), `"name":"x"`, `"name":"b__x"`, `"name":"c__x"`, `"thoughtgate/stale":["b"]`)

	b.start(t)

	changed := make(chan struct{})
	go func() {
		for lines.Scan() {
			if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
				close(changed)
				return
			}
		}
	}()
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("no list change")
	}
	eventually(t, "the server is used again", func() bool { return strings.Contains(r.call("b__x"), "done by b") })
	if list := r.list(); strings.Contains(list, "thoughtgate/") {
		t.Errorf("the list is %s", list)
	}
}

// The inbox names a missing server to administrators until it is back.
func TestEndpointMissingServerIsInInbox(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	r := startPlain(t, a, b)
	inbox := func(token string) string {
		_, page, _ := request(t, http.DefaultClient, "GET", "http://"+r.gate.OperatorAddr()+"/", "", "Authorization", "Bearer "+token)
		return page
	}
	named := func() bool { return strings.Contains(inbox(adminToken), "Server b of /mcp: unavailable since ") }
	if named() {
		t.Error("a server that works is named as missing")
	}
	b.stop()
	has(t, r.call("b__x"), "upstream_unreachable")
	has(t, inbox(adminToken), "Server b of /mcp: unavailable since ", "Cause: it cannot be reached")
	if page := inbox(approverToken); strings.Contains(page, "Server b") || !strings.Contains(page, "Sign out") {
		t.Errorf("the page of an approver is %s", page)
	}
	b.start(t)
	eventually(t, "the notice ends without a call", func() bool { return !named() })

	eventually(t, "the server is used again", func() bool { return strings.Contains(r.call("b__x"), "done by b") })
	b.hangs.Store(true)
	r.list()
	has(t, inbox(adminToken), "Server b of /mcp: unavailable since ", "Cause: it did not answer in time")
	b.hangs.Store(false)
	eventually(t, "the server is used again", func() bool { return strings.Contains(r.call("b__x"), "done by b") })
	if named() {
		t.Error("a server that works is named as missing")
	}
}

// A server that hangs is waited for once; others wait for nothing.
func TestEndpointServerHangs(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	r := startPlain(t, a, b)
	b.hangs.Store(true)
	has(t, r.list(), `"name":"x"`, `"thoughtgate/unavailable":[{"server":"b"`)
	asked := b.asked.Load()
	began := time.Now()
	for range 10 {
		has(t, r.call("x"), "done by a")
		has(t, r.call("b__x"), `"error_type":"upstream_`)
	}
	if n := b.asked.Load() - asked; n > 2+int64(time.Since(began)/(500*time.Millisecond)) { // at most one for each pause
		t.Errorf("%d requests to a server that hangs", n)
	}
	b.hangs.Store(false)
	eventually(t, "the server is used again", func() bool { return strings.Contains(r.call("b__x"), "done by b") })
}

// Calls that are denied do not keep others from a server that has returned, and a slow resource of a
// server does not keep them from the rest of it.
func TestEndpointServerIsNotKeptDown(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x", "denied")
	r := startPlainWith(t, "rules: [{match: denied, action: deny}, {match: '*', action: forward}]\ndefault: deny\n", a, b)
	b.stop()
	has(t, r.call("b__x"), "upstream_unreachable")
	b.start(t)
	eventually(t, "the server is used again", func() bool {
		r.call("b__denied")
		return strings.Contains(r.call("b__x"), "done by b")
	})

	_, slow, _ := r.post(`{"jsonrpc":"2.0","id":4,"method":"prompts/get","params":{"name":"b__slow"}}`)
	has(t, slow, "upstream_timeout")
	has(t, r.call("b__x"), "done by b")
}

// A server that has forgotten its sessions lists its tools in a new one.
func TestEndpointServerForgetsSessions(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	r := startPlain(t, a, b)
	b.restarts.Add(1)
	has(t, r.list(), `"name":"x"`, `"name":"b__x"`)
	has(t, r.call("b__x"), "done by b for session-of-b-1-")
}

// A server that is away when a session begins joins it later.
func TestEndpointServerJoinsLater(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	b.stop()
	r := startPlain(t, a, b)
	has(t, r.list(), `"name":"x"`, `"thoughtgate/unavailable":[{"server":"b"`)
	b.start(t)
	eventually(t, "the server joins", func() bool { return strings.Contains(r.list(), `"b__x"`) })
	has(t, r.call("b__x"), "done by b for session-of-b")
	eventually(t, "the server is told that the session has begun", func() bool { return strings.Contains(b.heard(), "notifications/initialized") })
}

// A hostile server takes no names, answers no calls and asks no questions of others.
func TestEndpointHostileServer(t *testing.T) {
	a, b := newPlainServer(t, "a", "x", "b__x", "lie", "ask", "forge"), newPlainServer(t, "b", "x", "ask")
	r := startPlain(t, a, b)
	list := r.list()
	if strings.Count(list, `"b__x"`) != 2 { // once as a tool, once as a collision
		t.Errorf("the list is %s", list)
	}
	has(t, list, `"thoughtgate/collisions":["b__x"]`)
	has(t, r.call("b__x"), "done by b")
	has(t, r.call("lie"), "upstream_unasked_response")
	asked := r.call("b__ask")
	has(t, asked, `id: b:e1`, `"method":"roots/list"`)
	question := regexp.MustCompile(`"id":"(b:\w{20,}:)1"`).FindStringSubmatch(asked)
	has(t, r.call("ask"), `id: a:e1`, `"id":"a:`)
	if question == nil {
		t.Fatalf("the question of b is %s", asked)
	}
	has(t, r.call("forge"), `"id":"b:1"`)
	answer := func(id string) {
		r.post(`{"jsonrpc":"2.0","id":` + id + `,"result":{"roots":[]}}`)
	}
	for _, id := range []string{`"b:1"`, `"c:1"`, `7`, `"` + question[1] + `1,\"method\":\"ping\""`} {
		answer(id)
	}
	if got := b.heard(); strings.Contains(got, "roots") {
		t.Errorf("b got the answer %s", got)
	}
	answer(`"` + question[1] + `1"`)
	if got := b.heard(); got != `{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}` {
		t.Errorf("b got the answer %s", got)
	}
	if got := a.heard(); strings.Contains(got, "roots") {
		t.Errorf("a got the answer %s", got)
	}

	a.more.Store(`,"nextCursor":"again"`)
	has(t, r.list(), `"b__x"`, `"thoughtgate/stale":["a"]`)
	a.more.Store(`,"x":"` + strings.Repeat("x", 9<<20) + `"`)
	has(t, r.list(), `"b__x"`, `"a"`, "thoughtgate/")
}

// A client of both eras learns from servers of the legacy era that it must use that.
func TestEndpointOfLegacyServers(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	text := strings.ReplaceAll(plainConfig("memory:", "rules: [{match: '*', action: forward}]\ndefault: deny\n", a, b), ", connect_timeout", ", translate: false, connect_timeout")
	gate, stop := start(t, text)
	defer stop()
	_, answer, _ := request(t, http.DefaultClient, "POST", "http://"+gate.AgentAddr()+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "server/discover", "Accept", "application/json, text/event-stream")
	has(t, answer, "Method not found")
}

// The stream of a session has the events of a server that was away for a while, also in a new session with it.
func TestEndpointStreamIsOpenedAgain(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	b.events = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/of_b\"}\n\n"
	r := startPlain(t, a, b)
	events := make(chan struct{}, 10)
	stream := r.listen()
	go func() {
		for stream.Scan() {
			if strings.Contains(stream.Text(), "notifications/of_b") {
				events <- struct{}{}
			}
		}
	}()
	heard := func() {
		t.Helper()
		select {
		case <-events:
		case <-time.After(time.Minute):
			t.Fatal("no event of b")
		}
	}
	heard()
	for _, status := range []int64{http.StatusServiceUnavailable, http.StatusNotFound} {
		b.refuses.Store(status)
		b.stop()
		b.start(t)
		refused := b.refused.Load()
		eventually(t, "the stream is refused", func() bool { return b.refused.Load() > refused })
		if status == http.StatusNotFound {
			b.restarts.Add(1) // a session that has ended
		}
		b.refuses.Store(0)
		eventually(t, "the server is used again", func() bool { return strings.Contains(r.call("b__x"), "done by b") })
		heard()
	}
}

// A server answers no request that another server got, also if there is no policy.
func TestEndpointServerAnswersOwnRequestsOnly(t *testing.T) {
	for name, rules := range map[string]string{"policy": "rules: [{match: '*', action: forward}]\ndefault: deny\n", "no policy": ""} {
		t.Run(name, func(t *testing.T) {
			a, b := newPlainServer(t, "a", "x", "lie", "lies"), newPlainServer(t, "b", "x")
			a.events = "data: " + foreignAnswer + "\n\ndata: [" + foreignAnswer + "]\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/end\"}\n\n"
			r := startPlainWith(t, rules, a, b)
			for _, tool := range []string{"lie", "lies"} {
				if got := r.call(tool); strings.Contains(got, "4711") {
					t.Errorf("%s: the client got %s", tool, got)
				}
			}
			stream := r.listen()
			for stream.Scan() && !strings.Contains(stream.Text(), "notifications/end") {
				if strings.Contains(stream.Text(), "4711") {
					t.Errorf("the client got %s", stream.Text())
				}
			}
			if err := stream.Err(); err != nil {
				t.Error(err)
			}

			a.version, b.version = "2025-03-26", "2025-03-26"
			r.beginAs("2025-03-26")
			_, answers, _ := r.post(batchOf(callAs("1", "x"), callAs("2", "b__x"), callAs("3", "x")))
			has(t, answers, `"id":1,"result"`, `"id":2,"result"`, `"id":3,"result"`, "done by b")
			_, answers, _ = r.post(batchOf(callAs("1", "x"), callAs("2", "x")))
			has(t, answers, `"id":1,"result"`, `"id":2,"result"`)
		})
	}
}

// Sessions belong to their clients, and what an endpoint does not support is refused.
func TestEndpointRefusals(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	r := startPlain(t, a, b)
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"x/y"}`:                                           "-32601",
		`{"jsonrpc":"2.0","id":1,"method":"TOOLS/CALL","params":{"name":"x"}}`:              "-32601",
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`:            "invalid cursor",
		`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"tg_unknown"}}`:    "task_not_found",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b__"}}`:            "Unknown tool",
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///x"}}`:   `"code":-32002,"message":"no available server`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                                          `"result":{}`,
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}`: `"result":{}`,
	} {
		_, answer, _ := r.post(body)
		has(t, answer, want)
	}
	for session, want := range map[string]string{"": "begin with initialize", "unknown": "session_gone", "session-of-a": "session_gone"} {
		_, answer, _ := request(t, http.DefaultClient, "POST", "http://"+r.gate.AgentAddr()+"/mcp", call("x"), "Mcp-Session-Id", session)
		has(t, answer, want)
	}
}

// The task of a held call belongs to its agent, who finds it in any session, and to no other.
func TestEndpointTasks(t *testing.T) {
	a, b := newPlainServer(t, "a", "x"), newPlainServer(t, "b", "x")
	token := func(name, secret string) string {
		return "{name: " + name + ", hash: '" + identity.HashOf(secret).String() + "'}"
	}
	r := startPlainWith(t, "rules: [{match: x, upstream: b, action: approve}, {match: '*', action: forward}]\ndefault: deny\n"+
		"identity: {tokens: ["+token("ann", annsAgent)+", "+token("bob", bobsAgent)+"]}\n", a, b)
	_, created, _ := r.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b__x","task":{}}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !strings.HasPrefix(id, "tg_") {
		t.Fatalf("the call is answered with %s", created)
	}
	about := func(method string) string {
		_, answer, _ := r.post(`{"jsonrpc":"2.0","id":5,"method":"` + method + `","params":{"taskId":"` + id + `"}}`)
		return answer
	}
	has(t, about("tasks/get"), `"status":"working"`)
	_, list, _ := r.post(`{"jsonrpc":"2.0","id":5,"method":"tasks/list"}`)
	has(t, list, id)

	of := r.session
	r.begin()
	has(t, about("tasks/get"), `"status":"working"`)
	for _, session := range []string{of, r.session} {
		_, answer, _ := request(t, http.DefaultClient, "POST", "http://"+r.gate.AgentAddr()+"/mcp", call("x"), "Mcp-Session-Id", session, "Authorization", "Bearer "+bobsAgent)
		has(t, answer, "session_gone")
	}
	has(t, about("tasks/cancel"), `"status":"cancelled"`)
}
