package mcpstdio_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcpstdio"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// testTimeout is the time limit of tests. Only a failing test uses it up.
const testTimeout = time.Minute

// A fixture is a gate between a test client and a real server process.
type fixture struct {
	t         *testing.T
	in        *io.PipeWriter
	out       *io.PipeReader
	lines     chan string
	statuses  chan string // of legacy tasks, which may come at any time
	store     gatestore.Store
	approvals *approval.Service
	agent     *mcpstdio.Agent
	server    *stdioclient.Client
	served    chan struct{}
	log       *logBuffer
	seen      string // the file with the lines that the server got

	notifications []string // messages that came while the test waited for an answer
}

// options are the settings that tests change.
type options struct {
	env      []string
	store    gatestore.Store // nil means a new one
	server   func(*stdioclient.Config)
	agent    func(*mcpstdio.Config)
	waiting  func(*conversation.Waiting)
	tracing  *tracing.Tracing
	hold     time.Duration
	restarts int
}

func open(t *testing.T, o options) *fixture {
	t.Helper()
	s := &fixture{t: t, lines: make(chan string, 10_000), statuses: make(chan string, 1000), store: o.store, served: make(chan struct{}), log: new(logBuffer), seen: filepath.Join(t.TempDir(), "seen")}
	if s.store == nil {
		s.store = memstore.New(memstore.Options{})
	}
	log := logging.New(s.log, "json", slog.LevelDebug)
	snapshot, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{
			{Match: "delete_denied", Action: policy.Deny, Reason: "never"},
			{Match: "delete*", Action: policy.Approve},
			{Match: "for_tester", Action: policy.AskPolicies},
		},
		Default: policy.Rule{Action: policy.Forward},
		Cedar: []policy.Source{{Name: "p.cedar", Text: []byte(
			`permit (principal, action, resource) when { context.session == {client: "tester", version: "1", protocol: "2026-07-28"} };`)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := catalog.New(&catalog.Settings{Policy: snapshot, HideDenied: true}, time.Now, log, nil)
	s.approvals, err = approval.New(approval.Config{
		Store: s.store, Durable: true, Judge: g.Recheck, Log: log,
		Workflow: func(string) (approval.Workflow, bool) { return approval.Workflow{Timeout: time.Hour}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	waiting := conversation.Waiting{
		Hold: max(o.hold, time.Millisecond), HoldWithProgress: testTimeout, HoldUnlimited: time.Hour, Heartbeat: 20 * time.Millisecond, Pending: "working",
	}
	if o.waiting != nil {
		o.waiting(&waiting)
	}
	gateway := conversation.NewGateway(conversation.Config{Catalog: g, Approvals: s.approvals, Log: log, Waiting: waiting, Tracing: o.tracing})
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := stdioclient.Config{
		Name: "test", Command: []string{program}, Env: append(append(os.Environ(), "MCPSTDIO_SEEN="+s.seen), o.env...),
		Stderr: s.log, MaxLine: 1 << 20, Grace: testTimeout, Restarts: o.restarts, Log: log, Tracing: o.tracing,
	}
	if o.server != nil {
		o.server(&cfg)
	}
	s.server = stdioclient.New(cfg)
	in, write := io.Pipe()
	read, out := io.Pipe()
	s.in, s.out = write, read
	config := mcpstdio.Config{
		In: in, Out: out, Link: s.server, Principal: policy.Principal{ID: "local:tester"}, Catalog: g, Gateway: gateway,
		Limits: mcpstdio.Limits{Line: 1 << 20, Requests: 1000}, Log: log, Tracing: o.tracing,
	}
	if o.agent != nil {
		o.agent(&config)
	}
	s.agent = mcpstdio.New(config)
	if err := s.server.Start(s.agent); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	keeping := make(chan struct{})
	go func() { defer close(keeping); _ = s.approvals.Run(ctx) }()
	go func() { defer close(s.served); s.agent.Serve(ctx) }()
	go func() {
		defer close(s.lines)
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, 256<<20)
		for lines.Scan() {
			if strings.Contains(lines.Text(), `"notifications/tasks/status"`) {
				s.statuses <- lines.Text()
				continue
			}
			s.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		write.Close()
		<-s.served
		finishing, done := context.WithTimeout(context.Background(), testTimeout)
		defer done()
		s.server.Close()
		s.agent.Finish(finishing)
		_ = s.approvals.Close(finishing)
		gateway.Close()
		stop()
		<-keeping
		out.Close()
		if finishing.Err() != nil {
			t.Error("the requests of the agent do not end")
		}
		if t.Failed() {
			t.Logf("log:\n%s\nthe server saw:\n%s", s.log, strings.Join(s.saw(), "\n"))
		}
	})
	return s
}

// say sends lines unchanged.
func (s *fixture) say(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(s.in, line+"\n"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// next returns the next line to the client.
func (s *fixture) next() string {
	s.t.Helper()
	select {
	case line, more := <-s.lines:
		if !more {
			s.t.Fatal("the gate has closed the pipe")
		}
		return line
	case <-time.After(testTimeout):
		s.t.Fatal("no message from the gate")
	}
	return ""
}

// answer returns the answer to a request. It keeps earlier messages in notifications.
func (s *fixture) answer(id string) string {
	s.t.Helper()
	for {
		line := s.next()
		m, err := jsonrpc.ParseMessage([]byte(line), jsonrpc.Limits{})
		if err != nil {
			s.t.Fatalf("the client got a line that is not a message: %v\n%.500s", err, line)
		}
		if m.Kind == jsonrpc.Response && jsonrpc.SameID(m.ID.Bytes, []byte(id)) {
			return line
		}
		s.notifications = append(s.notifications, line)
	}
}

// ask sends a request and returns its answer.
func (s *fixture) ask(id, method, params string) string {
	s.t.Helper()
	s.say(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	return s.answer(id)
}

// initialize begins a 2025-11-25 session.
func (s *fixture) initialize() {
	s.t.Helper()
	s.ask(`"init"`, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tester","version":"1"}}`)
	s.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// saw returns the lines that the server got.
func (s *fixture) saw() []string {
	text, err := os.ReadFile(s.seen)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// sawWith returns the number of those lines that contain a text.
func (s *fixture) sawWith(text string) (n int) {
	for _, line := range s.saw() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// held waits until a call of delete is held, and returns its task.
func (s *fixture) held() task.Task {
	s.t.Helper()
	var found task.Task
	s.eventually("a call is held", func() bool {
		page, err := s.store.List(s.t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 100})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, t := range page.Tasks {
			if t.Call.Name == "delete" && t.State == task.InputRequired {
				found = t
				return true
			}
		}
		return false
	})
	return found
}

// decide views a held call and decides it, as an approver does.
func (s *fixture) decide(t task.Task, what approval.Decision) {
	s.t.Helper()
	shown, err := s.approvals.Viewer().ShowAll(s.t.Context(), t.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.approvals.Decide(s.t.Context(), t.ID, approval.Approver{Name: "alice"}, approval.Ruling{Decision: what, Shown: shown.ShownDigest}); err != nil {
		s.t.Fatal(err)
	}
}

// close closes the client's end of the pipe.
func (s *fixture) close() {
	s.t.Helper()
	s.in.Close()
	select {
	case <-s.served:
	case <-time.After(testTimeout):
		s.t.Fatal("the gate does not notice that the client has left")
	}
}

// finish waits until all work for the departed client has ended.
func (s *fixture) finish() {
	s.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), testTimeout)
	defer stop()
	s.server.Close()
	if s.agent.Finish(ctx); ctx.Err() != nil {
		s.t.Fatal("the requests of the agent do not end")
	}
}

func (s *fixture) eventually(what string, condition func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for !condition() {
		if time.Now().After(deadline) {
			s.t.Fatalf("timed out waiting until %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// A logBuffer collects output.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
