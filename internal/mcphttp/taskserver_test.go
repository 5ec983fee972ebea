package mcphttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A taskServer is an MCP server of both generations with its own tasks. Its tools are named
// after their task support, such as hold_required, and return the text that the test passes to done.
type taskServer struct {
	t       *testing.T
	tasks   *mcptask.Server
	plain   bool // without tasks
	works   sync.WaitGroup
	results chan json.RawMessage
	answers chan schema.Object // answers of clients to the questions of tasks

	mu     sync.Mutex
	closed bool
	log    []string                           // methods and their subjects
	ids    []string                           // of its tasks
	refuse func(method string) *jsonrpc.Error // answers instead of the upstream; may be nil
	slow   func(method string)                // is called before anything is answered; may be nil
	reply  intercept                          // answers instead of the upstream if it reports true; may be nil
	speak  http.HandlerFunc                   // answers GET and subscriptions/listen; may be nil
}

// An intercept may answer a message instead of a task server, and reports whether it did.
type intercept func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) bool

// intercepted passes messages to reply first.
func (s *taskServer) intercepted(reply intercept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

// replying returns an intercept for requests with the given method.
func replying(method, result string) intercept {
	return func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) bool {
		if m.Method != method {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(result)))
		return true
	}
}

// idOf returns the ID of the request in body.
func idOf(body string) string {
	p, err := jsonrpc.Parse([]byte(body), jsonrpc.Limits{})
	if err != nil {
		return "null"
	}
	return string(p.Messages[0].ID.Bytes)
}

// fail sets the answer to some methods.
func (s *taskServer) fail(slow func(method string), refuse func(method string) *jsonrpc.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow, s.refuse = slow, refuse
}

// A taskFixture is a gate in front of a task server.
type taskFixture struct {
	*fixture

	server  *taskServer
	up      string // URL of the upstream
	waiting conversation.Waiting
}

// newTaskFixture starts a gate in front of a task server, and completes the handshake of legacy
// session s-1.
func newTaskFixture(t *testing.T, adjust func(*approval.Config, *conversation.Waiting)) *taskFixture {
	t.Helper()
	server := newTaskServer(t)
	up := serve(t, server.serve)
	var kept conversation.Waiting
	p := &taskFixture{server: server, up: up, fixture: newFixture(t, func(_ *catalog.Settings, c *approval.Config, w *conversation.Waiting) {
		// An owner counts as present for two intervals after its last request. The upstream's
		// poll interval applies.
		c.Polling = task.Polling{Min: 10 * time.Millisecond, Max: time.Minute}
		if adjust != nil {
			adjust(c, w)
		}
		kept = *w
	})}
	p.waiting = kept
	p.gateway = startGate(t, up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = p.catalog, p.approvals, kept
		s.upstream.Metrics = s.handler.Metrics
	})
	t.Cleanup(server.close)
	p.ask(initialize)
	return p
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`

// newTaskServer returns a task server, which must be closed before its HTTP server.
func newTaskServer(t *testing.T) *taskServer {
	server := &taskServer{t: t, results: make(chan json.RawMessage), answers: make(chan schema.Object, 10), tasks: &mcptask.Server{
		Store: memstore.New(memstore.Options{}), Now: time.Now, Name: "mcptask.Server",
		Polling: task.Polling{Min: 20 * time.Millisecond, Max: 20 * time.Millisecond},
	}}
	server.tasks.Input = func(_ context.Context, _ task.Task, responses schema.Object) error {
		server.answers <- responses
		return nil
	}
	return server
}

// close ends the running tools.
func (s *taskServer) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.results)
	s.works.Wait()
	_ = s.tasks.Store.(io.Closer).Close()
}

// done lets the oldest running tool return a result.
func (s *taskServer) done(result string) {
	s.t.Helper()
	select {
	case s.results <- json.RawMessage(result):
	case <-time.After(testTimeout):
		s.t.Fatal("no tool runs")
	}
}

// heard returns the upstream's requests with a method.
func (s *taskServer) heard(method string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var about []string
	for _, line := range s.log {
		if strings.HasPrefix(line, method) {
			about = append(about, line)
		}
	}
	return about
}

// made returns the IDs of the upstream's tasks.
func (s *taskServer) made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

func (s *taskServer) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && s.speak != nil {
		s.speak(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m := &p.Messages[0]
	about, _ := m.Params.Name.Text()
	if id, ok := m.Params.TaskID.Text(); ok {
		about = id
	}
	s.mu.Lock()
	s.log = append(s.log, strings.TrimSpace(m.Method+" "+about))
	slow, refuse, reply := s.slow, s.refuse, s.reply
	s.mu.Unlock()
	if reply != nil && reply(w, r, m) {
		return
	}
	if slow != nil {
		slow(m.Method)
	}
	if m.Method == "subscriptions/listen" && s.speak != nil {
		s.speak(w, r)
		return
	}
	if m.Kind != jsonrpc.Request {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result, failed := s.handle(r.Context(), m, owner(r))
	if refuse != nil {
		if e := refuse(m.Method); e != nil {
			result, failed = nil, e
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", "s-1")
	}
	if failed != nil {
		w.Write(jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, failed))
		return
	}
	w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, result))
}

func owner(r *http.Request) string {
	return "owner " + r.Header.Get("Mcp-Session-Id") + r.Header.Get("Authorization")
}

func dialectOf(m *jsonrpc.Message) mcptask.Dialect {
	if m.Params.Meta.Member("io.modelcontextprotocol/protocolVersion").Present() {
		return mcptask.Dialect{Era: mcptask.V2026}
	}
	return mcptask.Dialect{}
}

func (s *taskServer) handle(ctx context.Context, m *jsonrpc.Message, owner string) (json.RawMessage, *jsonrpc.Error) {
	dialect := dialectOf(m)
	switch m.Method {
	case "initialize":
		if s.plain {
			return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"taskserver","version":"0"}}`), nil
		}
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"taskserver","version":"1"}}`), nil
	case "server/discover":
		if s.plain {
			return json.RawMessage(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"taskserver","version":"0"}}`), nil
		}
		return json.RawMessage(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"serverInfo":{"name":"taskserver","version":"1"}}`), nil
	case "tools/list":
		var tools []string
		for _, support := range []string{"required", "optional", "forbidden"} {
			for _, rule := range []string{"hold", "get"} {
				tools = append(tools, fmt.Sprintf(`{"name":"%s_%s","inputSchema":{"type":"object"},"execution":{"taskSupport":%[2]q}}`, rule, support))
			}
		}
		return json.RawMessage(`{"tools":[{"name":"hold_plain","inputSchema":{"type":"object"}},` + strings.Join(tools, ",") + `]}`), nil
	case "tools/call":
		return s.call(ctx, m, dialect, owner)
	}
	result, err := s.tasks.Handle(ctx, mcptask.Request{Dialect: dialect, Owner: owner, Method: m.Method, Params: m.Params.Bytes})
	if err != nil {
		return nil, dialect.Error(err)
	}
	return result, nil
}

func (s *taskServer) call(ctx context.Context, m *jsonrpc.Message, dialect mcptask.Dialect, owner string) (json.RawMessage, *jsonrpc.Error) {
	name, _ := m.Params.Name.Text()
	asked := m.Params.Task.Present()
	switch {
	case s.plain:
		asked = false
	case dialect.Era == mcptask.V2026:
		var meta schema.Object
		_ = jsonv2.Unmarshal(m.Params.Meta.Bytes, &meta)
		asked = schema.RequestDeclaresTasks(meta) && !strings.HasSuffix(name, "_forbidden")
	case asked && (strings.HasSuffix(name, "_forbidden") || strings.HasSuffix(name, "_plain")):
		return nil, mcptask.TaskForbidden()
	}
	if !asked {
		if strings.HasSuffix(name, "_required") && !s.plain {
			return nil, dialect.TaskRequired()
		}
		result, err := s.work(ctx)
		if err != nil {
			return nil, dialect.Error(err)
		}
		return result, nil
	}
	ttl := time.Hour
	if ms, ok := m.Params.Task.Member("ttl").Int(); ok {
		ttl = time.Duration(ms) * time.Millisecond
	}
	t, err := s.tasks.Start(ctx, task.Draft{Owner: owner, TTL: ttl, Call: task.Call{
		Method: m.Method, Name: name, Message: string(m.Raw), Arguments: string(m.Params.Arguments.Bytes),
	}})
	if err != nil {
		return nil, dialect.Error(err)
	}
	s.mu.Lock() // closing waits for tools that have begun
	defer s.mu.Unlock()
	if s.closed {
		return nil, dialect.Error(task.ErrClosed)
	}
	s.ids = append(s.ids, string(t.ID))
	s.works.Go(func() { _, _ = s.tasks.Run(context.WithoutCancel(ctx), task.OwnedBy(owner).Ref(t.ID), s.work) })
	result, err := dialect.CreateResult(t)
	if err != nil {
		return nil, dialect.Error(err)
	}
	return result, nil
}

// ask makes the upstream's latest task ask a question.
func (s *taskServer) ask(questions string) {
	s.t.Helper()
	made := s.made()
	ref := task.AnyOwner().Ref(task.ID(made[len(made)-1]))
	note := lifecycle.Progress{By: "mcptask.Server", InputRequests: json.RawMessage(questions)}
	eventually(s.t, "the task runs", func() bool {
		_, err := lifecycle.Advance(s.t.Context(), s.tasks.Store, ref, note, time.Now())
		return err == nil
	})
}

// work implements all tools, as the test directs.
func (s *taskServer) work(ctx context.Context) ([]byte, error) {
	select {
	case result, open := <-s.results:
		if !open {
			return nil, context.Canceled
		}
		if code, _, failed := strings.Cut(string(result), "!"); failed {
			return nil, &jsonrpc.Error{Code: -32050, Message: code}
		}
		return result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
