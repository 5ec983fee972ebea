package bridge_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// testTimeout limits how long a test waits; only failing tests wait that long.
const testTimeout = time.Minute

const (
	annToken = "ann-0123456789abcdef0123456789abcdef"
	bobToken = "bob-0123456789abcdef0123456789abcdef"
)

// A fixture is a complete gate whose upstream runs the test binary as its server.
type fixture struct {
	t     *testing.T
	dir   string
	yaml  string
	gate  *app.App
	stop  func()
	token string // the token of the client; empty if it is anonymous
	log   logBuffer
}

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// open starts a gate. Upstream is added to the settings of its upstream, and rest to those of the
// gate.
func open(t *testing.T, upstream, rest string) *fixture {
	t.Helper()
	s := &fixture{t: t, dir: t.TempDir()}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(upstream, "env:") {
		upstream = "env: {BRIDGE_SEEN: '" + s.seenFile() + "'}, " + upstream
	}
	if !strings.Contains(upstream, "command:") {
		upstream = "command: ['" + program + "'], " + upstream
	}
	upstream = strings.ReplaceAll(upstream, "SEEN_FILE", s.seenFile())
	if !strings.Contains(rest, "waiting:") {
		rest += "waiting: {hold: 50ms}\n"
	}
	if !strings.Contains(rest, "rules:") {
		rest += "rules: [{match: 'delete*', action: approve}]\ndefault: forward\n"
	}
	s.yaml = "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: secret-of-the-operators}\n" +
		"store: 'sqlite:" + filepath.Join(s.dir, "gate.db") + "'\n" +
		"upstreams: [{name: test, path: /mcp, " + strings.TrimSuffix(upstream, ", ") + "}]\n" + strings.ReplaceAll(rest, "IDENTITY", identities())
	s.start()
	t.Cleanup(func() {
		s.stop()
		http.DefaultClient.CloseIdleConnections()
		if t.Failed() {
			t.Logf("log:\n%s\nthe server saw:\n%s", s.log.String(), s.seen())
		}
	})
	return s
}

func identities() string {
	return "identity: {tokens: [{name: ann, hash: '" + identity.HashOf(annToken).String() + "'}, {name: bob, hash: '" + identity.HashOf(bobToken).String() + "'}]}\n"
}

// start starts the gate, possibly after a stop.
func (s *fixture) start() {
	s.t.Helper()
	file := filepath.Join(s.dir, "gate.yaml")
	if err := os.WriteFile(file, []byte(s.yaml), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Sources{File: file, Environ: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "CLOUD_SECRET=hush", "THOUGHTGATE_OPERATORS_URL=http://hush",
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	if s.gate, err = app.New(cfg, logging.New(&s.log, "json", slog.LevelDebug)); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	gate := s.gate
	go func() { done <- gate.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
}

func (s *fixture) seenFile() string { return filepath.Join(s.dir, "seen") }

// seen returns all messages that the processes of the server have received.
func (s *fixture) seen() string {
	text, err := os.ReadFile(s.seenFile())
	if err != nil {
		return ""
	}
	return string(text)
}

// await waits until a condition holds.
func (s *fixture) await(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	s.t.Fatalf("timed out waiting until %s", what)
}

// awaitSeen waits until the server has received a text.
func (s *fixture) awaitSeen(text string) {
	s.t.Helper()
	s.await("the server sees "+text, func() bool { return strings.Contains(s.seen(), text) })
}

// An answer is the response to one HTTP request.
type answer struct {
	status  int
	session string
	kind    string
	body    string
}

// request sends an HTTP request and returns the response when it begins.
func (s *fixture) request(ctx context.Context, method, session, body string) *http.Response {
	s.t.Helper()
	resp, err := http.DefaultClient.Do(s.newRequest(ctx, method, session, body))
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

// postAndLeave sends a message, and returns a function that disconnects the client before the
// answer.
func (s *fixture) postAndLeave(session, body string) (leave func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r := s.newRequest(ctx, http.MethodPost, session, body)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	return func() {
		cancel()
		<-gone
	}
}

// postLog calls the tool log for a modern client. The call ends when the returned function is
// called.
func (s *fixture) postLog(who string) (finish func() answer) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testTimeout)
	r := s.newRequest(ctx, http.MethodPost, "", strings.Replace(modernCall("1", "log"), `{}`, `{"after":"`+who+`"}`, 1))
	got := make(chan answer, 1)
	go func() {
		defer cancel()
		defer close(got)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			s.t.Error(err)
			return
		}
		got <- s.read(resp)
	}()
	s.awaitSeen(`{"after":"` + who + `"}`)
	return func() answer {
		s.t.Helper()
		if err := os.WriteFile(filepath.Join(s.dir, who), nil, 0o600); err != nil {
			s.t.Fatal(err)
		}
		return <-got
	}
}

// newRequest returns an HTTP request.
func (s *fixture) newRequest(ctx context.Context, method, session, body string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.gate.AgentAddr()+"/mcp", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		if strings.HasPrefix(body, "[") {
			r.Header.Set("Mcp-Protocol-Version", "2025-03-26") // the version that has batches
		}
	}
	if strings.Contains(body, "io.modelcontextprotocol/protocolVersion") {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", member(body, "method"))
		if name := member(body, "name"); name != "" && strings.Contains(body, "tools/call") {
			r.Header.Set("Mcp-Name", name)
		}
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	return r
}

// member returns the first member with a name in a JSON text, if it is a string.
func member(text, name string) string {
	_, rest, _ := strings.Cut(text, `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// post sends a message, and returns the whole answer.
func (s *fixture) post(session, body string) answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testTimeout)
	defer cancel()
	return s.read(s.request(ctx, http.MethodPost, session, body))
}

func (s *fixture) read(resp *http.Response) answer {
	s.t.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Error(err)
	}
	return answer{resp.StatusCode, resp.Header.Get("Mcp-Session-Id"), resp.Header.Get("Content-Type"), string(text)}
}

const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"sampling":{}},"clientInfo":{"name":"tester","version":"1"}}}`

// begin begins a session.
func (s *fixture) begin() (session string) {
	s.t.Helper()
	got := s.post("", initialize)
	if got.status != http.StatusOK || got.session == "" || !strings.Contains(got.body, `"serverInfo"`) {
		s.t.Fatalf("initialize: %+v", got)
	}
	if told := s.post(got.session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); told.status != http.StatusAccepted {
		s.t.Fatalf("initialized: %+v", told)
	}
	return got.session
}

// call returns a call of a tool.
func call(id, tool, args string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + args + `}}`
}

// modernCall is call for a modern client.
func modernCall(id, tool string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{},` + modernMeta + `}}`
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"tester","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}`

// pid returns the pid of the process that serves a session.
func (s *fixture) pid(session string) int {
	s.t.Helper()
	got := s.post(session, call("1", "pid", "{}"))
	return s.pidIn(got)
}

func (s *fixture) pidIn(got answer) int {
	s.t.Helper()
	_, rest, _ := strings.Cut(got.body, "pid ")
	digits, _, _ := strings.Cut(rest, ".")
	pid, err := strconv.Atoi(digits)
	if err != nil {
		s.t.Fatalf("no process in %+v", got)
	}
	return pid
}

// alive reports whether a process runs.
func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	return err == nil && process.Signal(nullSignal) == nil
}

// events reads the messages of a stream.
func events(body io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	return lines
}

// next returns the next message of a stream that has a text in it.
func next(t *testing.T, lines *bufio.Scanner, with string) string {
	t.Helper()
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && strings.Contains(data, with) {
			return data
		}
	}
	t.Fatalf("the stream ended without %s: %v", with, lines.Err())
	return ""
}

// operate sends a request to the operators' API.
func (s *fixture) operate(method, path, body string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.gate.OperatorAddr()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret-of-the-operators")
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.read(resp).body
}

// approve waits for a pending call and approves it.
func (s *fixture) approve() {
	s.t.Helper()
	var id string
	s.await("a call is held", func() bool {
		time.Sleep(25 * time.Millisecond) // the gate limits requests
		id = member(s.operate(http.MethodGet, "/api/approvals?state=pending", ""), "id")
		return id != ""
	})
	shown := member(s.operate(http.MethodGet, "/api/approvals/"+id+"?arguments=all", ""), "shownDigest")
	if got := s.operate(http.MethodPost, "/api/approvals/"+id+"/approve", `{"reason":"fine","shownDigest":"`+shown+`"}`); !strings.Contains(got, "approved") && !strings.Contains(got, "complete") {
		s.t.Fatalf("approve: %s", got)
	}
}
