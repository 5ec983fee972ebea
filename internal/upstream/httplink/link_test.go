package httplink_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// testTimeout limits how long a test waits; only failing tests wait that long.
const testTimeout = time.Minute

// A server is an MCP server over HTTP. The names of the tools describe their behavior.
type server struct {
	t *testing.T

	mu       sync.Mutex
	seen     []string // the messages that it got, with session and token
	sessions map[string]bool
	token    string // the required token; empty accepts any
	begun    int
	streams  chan string // messages for the GET stream
	replies  chan string // answers of clients
	broken   map[string]string
	gone     chan struct{} // gets a value when the client of "hang" leaves
	ended    chan struct{} // closed once the server's tasks have ended
	taking   chan struct{} // unless nil, the server waits for its end before it accepts "initialized"
	forgets  bool          // the server forgets new sessions at once, and all with "delete_session"
}

func newServer(t *testing.T) (*server, string) {
	t.Helper()
	s := &server{
		t: t, sessions: map[string]bool{}, streams: make(chan string, 10), replies: make(chan string, 10), broken: map[string]string{},
		gone: make(chan struct{}, 10), ended: make(chan struct{}),
	}
	up := httptest.NewServer(s)
	t.Cleanup(func() {
		up.CloseClientConnections()
		up.Close()
	})
	return s, up.URL
}

// count returns how many messages with a text the server has received.
func (s *server) count(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.seen {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (s *server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
}

// forgetsAll forgets all sessions if the server forgets new ones, and reports whether it does.
func (s *server) forgetsAll() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forgets {
		clear(s.sessions)
	}
	return s.forgets
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	session := r.Header.Get("Mcp-Session-Id")
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+session+" "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Key")+" "+r.Header.Get("Mcp-Method")+" "+r.Header.Get("Last-Event-Id")+" "+string(body))
	known, token, taking := s.sessions[session], s.token, s.taking
	s.mu.Unlock()
	p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
	isModern := err == nil && strings.Contains(string(body), "io.modelcontextprotocol/protocolVersion")
	switch {
	case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
		http.Error(w, "no", http.StatusUnauthorized)
	case err == nil && p.Messages[0].Method == "initialize":
		s.initialize(w, &p.Messages[0])
	case !isModern && !known:
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "":
		s.stream(w, r)
	case r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "silence":
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "id: end\ndata: %s\n\n", s.broken[r.Header.Get("Last-Event-Id")])
	case r.Method == http.MethodDelete:
		s.expire()
	case p.Messages[0].Kind == jsonrpc.Response:
		s.replies <- string(body)
		w.WriteHeader(http.StatusAccepted)
	case p.Messages[0].Kind == jsonrpc.Notification:
		if taking != nil && p.Messages[0].Method == "notifications/initialized" {
			select {
			case <-taking:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		s.answer(w, r, &p.Messages[0])
	}
}

func (s *server) initialize(w http.ResponseWriter, m *jsonrpc.Message) {
	s.mu.Lock()
	s.begun++
	id := fmt.Sprintf("s-%d", s.begun)
	s.sessions[id] = !s.forgets
	s.mu.Unlock()
	w.Header().Set("Mcp-Session-Id", id)
	w.Header().Set("Content-Type", "application/json")
	version := string(m.Params.Member("protocolVersion").Bytes)
	_, _ = w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{"protocolVersion":`+version+`,"capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"remote","version":"1"}}`)))
}

func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush()
	for {
		select {
		case message := <-s.streams:
			s.mu.Lock()
			known := s.sessions[r.Header.Get("Mcp-Session-Id")]
			s.mu.Unlock()
			if !known { // the message belongs to the stream of the next session
				s.streams <- message
				return
			}
			fmt.Fprintf(w, "data: %s\n\n", message)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (s *server) answer(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) {
	name, _ := m.Params.Name.Text()
	text := string(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{"content":[{"type":"text","text":"ran `+name+`"}]}`)))
	switch {
	case m.Method == "tools/list":
		text = string(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"delete","inputSchema":{"type":"object"}}]}`)))
	case m.Method == "tasks/result": // blocks until the task has ended
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		select {
		case <-s.ended:
			fmt.Fprintf(w, "data: %s\n\n", text)
		case <-r.Context().Done():
		}
		return
	case name == "delete_session" && s.forgetsAll():
		http.Error(w, "no such session", http.StatusNotFound)
		return
	case name == "delete_oddly":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, text)
		return
	case name == "ping_client": // then the server is silent
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"jsonrpc":"2.0","id":"p1","method":"ping"}`+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	case name == "ask_client":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, `data: {"jsonrpc":"2.0","id":"q1","method":"sampling/createMessage","params":{}}`+"\n\n")
		w.(http.Flusher).Flush()
		fmt.Fprintf(w, "data: %s\n\n", jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{"content":[],"got":`+<-s.replies+`}`)))
		return
	case name == "break": // the client must request the rest of the stream
		s.mu.Lock()
		s.broken["e-1"] = text
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: e-1\nretry: 10\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"before\"}}\n\n")
		return
	case name == "cut": // the stream cannot be resumed
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"before\"}}\n\n")
		return
	case name == "stall": // the rest of the answer never arrives
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text[:len(text)/2])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	case name == "break_and_hang": // the rest of the stream never arrives
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "id: silence\nretry: 10\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"before\"}}\n\n")
		return
	case name == "hang":
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		s.gone <- struct{}{}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
}

// A fixture is a wrap in front of a server over HTTP. The test plays the agent.
type fixture struct {
	t     *testing.T
	in    io.Writer
	lines chan string
	gate  *app.App
	stop  func()
}

// open starts a wrap of the server at a URL. Token is the file with the token, or empty.
func open(t *testing.T, target, token string, headers ...string) *fixture {
	t.Helper()
	return openWith(t, "", target, token, headers...)
}

// openWith is open with additional settings of the gate.
func openWith(t *testing.T, settings, target, token string, headers ...string) *fixture {
	t.Helper()
	remote, err := config.RemoteServer(target, headers, []string{"KEY=k-1"})
	if err != nil {
		t.Fatal(err)
	}
	remote.Name = "remote"
	dir := t.TempDir()
	file := filepath.Join(dir, "gate.yaml")
	text := "version: 1\noperators: {listen: 127.0.0.1:0, token: secret-of-the-operators}\nstore: 'sqlite:" + filepath.Join(dir, "gate.db") + "'\nwaiting: {hold: 1m}\n" +
		"rules: [{match: 'delete*', action: approve}]\ndefault: forward\n" + settings
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Sources{File: file, Server: &remote})
	if err != nil {
		t.Fatal(err)
	}
	in, write := io.Pipe()
	read, out := io.Pipe()
	how := app.Wrap{In: in, Out: out, User: "tester"}
	if token != "" {
		how.Token = func() (string, error) {
			text, err := os.ReadFile(token)
			return string(text), err
		}
	}
	s := &fixture{t: t, in: write, lines: make(chan string, 100)}
	if s.gate, err = app.NewWrap(cfg, slog.New(slog.DiscardHandler), how); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.gate.Run(context.WithoutCancel(t.Context())) }()
	go func() {
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			s.lines <- lines.Text()
		}
	}()
	s.stop = sync.OnceFunc(func() {
		write.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		read.Close()
	})
	t.Cleanup(s.stop)
	return s
}

func (s *fixture) say(message string) { fmt.Fprintln(s.in, message) }

// hear returns the next message with a text in it.
func (s *fixture) hear(with string) string {
	s.t.Helper()
	deadline := time.After(testTimeout)
	for {
		select {
		case line := <-s.lines:
			if strings.Contains(line, with) {
				return line
			}
		case <-deadline:
			s.t.Fatalf("the client did not get %s", with)
		}
	}
}

func (s *fixture) begin() {
	s.t.Helper()
	s.beginAs("2025-11-25")
}

// beginAs begins as a client of a protocol version.
func (s *fixture) beginAs(version string) {
	s.t.Helper()
	s.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{"sampling":{}},"clientInfo":{"name":"tester","version":"1"}}}`)
	s.hear(`"serverInfo"`)
	s.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func call(id, tool string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`
}

func modernCall(id, tool string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("timed out waiting until %s", what)
}

// approve waits for a pending call and approves it.
func (s *fixture) approve() {
	s.t.Helper()
	operate := func(method, path, body string) string {
		r, err := http.NewRequestWithContext(s.t.Context(), method, s.gate.InboxURL()+path, strings.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret-of-the-operators")
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			s.t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return string(text)
	}
	member := func(text, name string) string {
		_, rest, _ := strings.Cut(text, `"`+name+`":"`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	var id string
	await(s.t, "a call is held", func() bool {
		time.Sleep(25 * time.Millisecond) // the gate limits requests
		id = member(operate(http.MethodGet, "/api/approvals?state=pending", ""), "id")
		return id != ""
	})
	shown := member(operate(http.MethodGet, "/api/approvals/"+id+"?arguments=all", ""), "shownDigest")
	operate(http.MethodPost, "/api/approvals/"+id+"/approve", `{"reason":"fine","shownDigest":"`+shown+`"}`)
}

// A client at a pipe has a session with a server over HTTP, and ends it. The server's requests and
// notifications reach the client.
func TestLegacy(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	s := open(t, target, "", "X-Key: ${KEY}")
	s.begin()
	s.say(call("1", "echo"))
	if got := s.hear(`"id":1`); got != `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ran echo"}]}}` {
		t.Errorf("a call was answered %s", got)
	}
	if up.count("POST s-1  k-1") == 0 {
		t.Errorf("the server got %q", up.seen)
	}
	s.say(call("2", "ask_client"))
	s.hear("sampling/createMessage")
	s.say(`{"jsonrpc":"2.0","id":"q1","result":{"role":"assistant"}}`)
	if got := s.hear(`"id":2`); !strings.Contains(got, "assistant") {
		t.Errorf("the call was answered %s", got)
	}
	up.streams <- `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`
	s.hear("notifications/resources/list_changed")
	s.say(call("3", "hang"))
	await(t, "the server has the call", func() bool { return up.count(`"hang"`) == 1 })
	s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
	await(t, "the server hears of the cancellation", func() bool { return up.count("notifications/cancelled") == 1 })
	s.say(call("4", "delete"))
	s.approve()
	if got := s.hear(`"id":4`); !strings.Contains(got, "ran delete") || up.count(`"delete"`) != 1 {
		t.Errorf("the held call was answered %s", got)
	}
	s.stop()
	await(t, "the session is ended", func() bool { return up.count("DELETE s-1") == 1 })
}

func cancelled(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

// If a legacy client cancels a call, the server gets the notification, and then the connection is
// closed. Other calls continue.
func TestLegacyCancelClosesConnection(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	s := open(t, target, "")
	s.beginAs("2025-03-26")    // the only version with batches
	s.say(call("1", "delete")) // held
	s.say("[" + call("2", "hang") + "," + call("3", "hang") + "]")
	await(t, "the server has the batch", func() bool { return up.count(`"hang"`) == 1 })
	s.say(cancelled("2"))
	s.say(call("4", "echo"))
	s.hear(`"id":4`)
	if len(up.gone) > 0 {
		t.Error("all of a batch ended because a part of it was cancelled")
	}
	s.say(cancelled("3")) // otherwise the gate waits for it at the end
	s.say(call("5", "hang"))
	await(t, "the server has the call", func() bool { return up.count(`"hang"`) == 2 })
	s.say(cancelled("5"))
	select {
	case <-up.gone:
	case <-time.After(testTimeout):
		t.Fatal("the connection of the cancelled call is still open")
	}
	if up.count(`"requestId":5`) != 1 {
		t.Error("the connection was closed before the server got the cancellation")
	}
	s.approve()
	if got := s.hear(`"id":1`); !strings.Contains(got, "ran delete") {
		t.Errorf("the held call was answered %s", got)
	}
}

// A client cancels the call that renews the session. The session is still renewed, for later calls.
func TestCancelledWhileSessionBegins(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	s := open(t, target, "")
	s.begin()
	s.say(call("1", "echo"))
	s.hear(`"id":1`)
	up.mu.Lock()
	up.taking = make(chan struct{})
	up.mu.Unlock()
	up.expire()
	s.say(call("2", "echo"))
	await(t, "the session is begun again", func() bool { return up.count("notifications/initialized") == 2 })
	s.say(cancelled("2"))
	s.say(call("3", "echo"))
	s.hear(`"id":3`)
	close(up.taking)
	await(t, "the gate listens to the session", func() bool { return up.count("GET s-2") == 1 })
}

// An interrupted stream is resumed after its last event. If that fails, the client learns that the
// call may have run, and it is not repeated.
func TestBrokenStreamIsResumed(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	s := open(t, target, "")
	s.begin()
	s.say(call("1", "break"))
	if got := s.hear(`"id":1`); !strings.Contains(got, "ran break") {
		t.Errorf("the call was answered %s", got)
	}
	s.say(call("2", "cut"))
	if got := s.hear(`"id":2`); !strings.Contains(got, "upstream_invalid_response") || !strings.Contains(got, "may have run") {
		t.Errorf("the call was answered %s", got)
	}
	if up.count(`"cut"`) != 1 || up.count(`"break"`) != 1 {
		t.Error("a call was repeated")
	}
}

// A session that the server has ended is renewed, for forwarded and for held calls.
func TestEndedSessionIsRenewed(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	s := open(t, target, "")
	s.begin()
	s.say(call("1", "echo"))
	s.hear(`"id":1`)
	up.expire()
	s.say(call("2", "echo"))
	if got := s.hear(`"id":2`); !strings.Contains(got, "ran echo") {
		t.Errorf("after the end of the session: %s", got)
	}
	if up.count("notifications/initialized") != 2 || up.count(`"clientInfo":{"name":"tester"`) != 2 {
		t.Errorf("the server got %q", up.seen)
	}
	s.say(call("3", "delete"))
	up.expire()
	s.approve()
	if got := s.hear(`"id":3`); !strings.Contains(got, "ran delete") {
		t.Errorf("the held call was answered %s", got)
	}
	up.streams <- `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`
	s.hear("notifications/resources/list_changed")
}

// A server that forgets the new session as well, for example behind a balancer, is an error for the
// call. The next call begins another session.
func TestRenewedSessionIsForgotten(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	s := open(t, target, "")
	s.begin()
	await(t, "the gate listens", func() bool { return up.count("GET s-1") == 1 })
	forget := func(forgets bool) {
		up.mu.Lock()
		defer up.mu.Unlock()
		up.forgets = forgets
	}
	forget(true)
	s.say(call("1", "delete_session"))
	s.approve()
	if got := s.hear(`"id":1`); !strings.Contains(got, "session_gone") {
		t.Errorf("the held call was answered %s", got)
	}
	s.say(call("2", "echo"))
	if got := s.hear(`"id":2`); !strings.Contains(got, "error") {
		t.Errorf("the call was answered %s", got)
	}
	forget(false)
	s.say(call("3", "delete_session"))
	if got := s.hear(`"id":3`); !strings.Contains(got, "ran delete_session") {
		t.Errorf("the repeated call was answered %s", got)
	}
}

// A call whose refusal has a result has run, and is not repeated.
func TestRefusalWithResultIsNotRepeated(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	s := open(t, target, "")
	s.begin()
	s.say(call("1", "delete_oddly"))
	s.approve()
	s.hear(`"id":1`)
	if n := up.count(`"delete_oddly"`); n != 1 {
		t.Errorf("the server was called %d times: %q", n, up.seen)
	}
}

// A modern client has no session. It cancels by a notification, and the server sees the end of the
// stream.
func TestModern(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	s := open(t, target, "")
	s.say(modernCall("1", "echo"))
	if got := s.hear(`"id":1`); !strings.Contains(got, "ran echo") {
		t.Errorf("the call was answered %s", got)
	}
	if up.count("POST    tools/call") != 1 {
		t.Errorf("the server got %q", up.seen)
	}
	s.say(modernCall("2", "hang"))
	await(t, "the server has the call", func() bool { return up.count(`"hang"`) == 1 })
	s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	select {
	case <-up.gone:
	case <-time.After(testTimeout):
		t.Error("the server does not notice that the client has left")
	}
	if up.count("notifications/cancelled") != 0 {
		t.Error("the server got a notification that HTTP does not need")
	}
}

// The token is read for every request, and a refused token is explained.
func TestToken(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	up.token = "first"
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	s := open(t, target, file)
	s.begin()
	s.say(call("1", "echo"))
	s.hear("ran echo")
	up.mu.Lock()
	up.token = "second"
	up.mu.Unlock()
	s.say(call("2", "echo"))
	if got := s.hear(`"id":2`); !strings.Contains(got, "401") || !strings.Contains(got, "token") {
		t.Errorf("a wrong token: %s", got)
	}
	s.say(call("3", "delete"))
	write("second")
	s.approve()
	if got := s.hear(`"id":3`); !strings.Contains(got, "ran delete") {
		t.Errorf("a held call after the token has changed: %s", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.say(call("4", "echo"))
	if got := s.hear(`"id":4`); !strings.Contains(got, "upstream_unreachable") || up.count(`"id":4`) != 0 {
		t.Errorf("a token that cannot be read: %s", got)
	}
}

// An unreachable server is reported, and used when it is back.
func TestUnreachableServerIsReported(t *testing.T) {
	t.Parallel()
	s := open(t, "http://127.0.0.1:1/mcp", "")
	s.say(call("1", "echo"))
	if got := s.hear(`"id":1`); !strings.Contains(got, "upstream_unreachable") {
		t.Errorf("the call was answered %s", got)
	}
}
