package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A taskServer is an MCP server of 2025-11-25 that runs its tools as tasks if its capabilities
// include them. It uses the project's own library.
type taskServer struct {
	mcptask.Server

	capabilities string // JSON
	support      string // of its tools
	running      sync.WaitGroup
}

func newTaskServer(t *testing.T, capabilities, support string) *taskServer {
	s := &taskServer{
		Server:       mcptask.Server{Store: memstore.New(memstore.Options{}), Now: time.Now},
		capabilities: capabilities, support: support,
	}
	t.Cleanup(func() {
		s.running.Wait()
		s.Store.(io.Closer).Close()
	})
	return s
}

func (s *taskServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
	if err != nil || r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	m := &p.Messages[0]
	if m.Kind != jsonrpc.Request {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", "session")
	}
	result, err := s.result(r.Context(), m)
	if err != nil {
		w.Write(jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, mcptask.Dialect{}.Error(err)))
		return
	}
	w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, result))
}

func (s *taskServer) result(ctx context.Context, m *jsonrpc.Message) (json.RawMessage, error) {
	r := mcptask.Request{Owner: "everybody", Method: m.Method, Params: m.Params.Bytes}
	switch {
	case m.Method == "initialize":
		return json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":` + s.capabilities + `,"serverInfo":{"name":"tasks","version":"1"}}`), nil
	case m.Method == "tools/list":
		var tools []string
		for _, name := range []string{"read_file", "delete_file", "drop_table"} {
			tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"execution":{"taskSupport":%q}}`, name, s.support))
		}
		return json.RawMessage(`{"tools":[` + strings.Join(tools, ",") + `]}`), nil
	case m.Method == "tools/call" && m.Params.Task.Present():
		t, err := s.Start(ctx, task.Draft{Owner: r.Owner, TTL: time.Hour, Call: task.Call{Method: m.Method, Name: "any", Message: string(m.Raw)}})
		if err != nil {
			return nil, err
		}
		after := context.WithoutCancel(ctx)
		s.running.Go(func() {
			_, _ = s.Run(after, task.OwnedBy(r.Owner).Ref(t.ID), func(context.Context) ([]byte, error) { return called, nil })
		})
		return r.Dialect.CreateResult(t)
	case m.Method == "tools/call":
		return called, nil
	default:
		return s.Handle(ctx, r)
	}
}

var called = json.RawMessage(`{"content":[{"type":"text","text":"called"}]}`)

// A governed gate has its rules in a file that tests change.
type governed struct {
	t    *testing.T
	url  string
	file string
	base string
}

func govern(t *testing.T, upstream, rules string) *governed {
	t.Helper()
	g := &governed{t: t, file: filepath.Join(t.TempDir(), "thoughtgate.yaml")}
	g.base = "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0}\nstore: 'memory:'\nupstreams: [{url: " + upstream + "}]\n"
	g.write(rules)
	load := func() (config.Config, error) {
		cfg, _, err := config.Load(config.Sources{File: g.file})
		return cfg, err
	}
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	gate, err := app.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := gate.ReloadFrom(app.Source{Load: load}); err != nil {
		t.Fatal(err)
	}
	g.url = run(t, gate)
	return g
}

func (g *governed) write(rules string) {
	g.t.Helper()
	if err := os.WriteFile(g.file+".new", []byte(g.base+rules), 0o600); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Rename(g.file+".new", g.file); err != nil {
		g.t.Fatal(err)
	}
}

// ask sends a request in the session and returns the answer.
func (g *governed) ask(method, params string) string {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method != "initialize" {
		r.Header.Set("Mcp-Session-Id", "session")
	}
	resp, err := newHTTPClient(g.t).Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return string(body)
}

// support returns the listed tools with their task support.
func (g *governed) support() string {
	g.t.Helper()
	answer := g.ask("tools/list", "{}")
	p, err := jsonrpc.Parse([]byte(answer), jsonrpc.Limits{})
	if err != nil {
		g.t.Fatalf("%s: %v", answer, err)
	}
	var seen []string
	for tool := range p.Messages[0].Result.Member("tools").Elements() {
		name, _ := tool.Member("name").Text()
		support, _ := tool.Member("execution").Member("taskSupport").Text()
		seen = append(seen, name+"="+support)
	}
	return strings.Join(seen, " ")
}

const (
	fileRules  = "rules: [{match: 'read_*', action: forward}, {match: 'delete_*', action: approve}]\ndefault: deny\n"
	meetParams = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`
	doesTasks  = `{"tools":{},"tasks":{"list":{},"requests":{"tools":{"call":{}}}}}`
)

// 9.2 "Full handshake", "Policy reload", "Upstream reconnect", EC-SEP-010: the client's view
// of capabilities and annotations before and after a policy change, and after an upstream has
// restarted with other capabilities.
func TestCapabilitiesFollowPolicyAndUpstream(t *testing.T) {
	withTasks, without := newTaskServer(t, doesTasks, "optional"), newTaskServer(t, `{"tools":{}}`, "optional")
	var mu sync.Mutex
	current := withTasks
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		s := current
		mu.Unlock()
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(up.Close)
	g := govern(t, up.URL, fileRules)

	met := g.ask("initialize", meetParams)
	for _, want := range []string{`"listChanged":true`, `"tasks":{"list":{},"requests":{"tools":{"call":{}}},"cancel":{}}`} {
		if !strings.Contains(met, want) {
			t.Errorf("initialize: %s\nwant it to have %s", met, want)
		}
	}
	if got, want := g.support(), "read_file=optional delete_file=optional"; got != want {
		t.Errorf("tools are %s; want %s", got, want)
	}

	// Mixed ownership: a task of a forwarded tool belongs to the upstream.
	if created := g.ask("tools/call", `{"name":"read_file","task":{}}`); strings.Contains(created, `"tg_`) || !strings.Contains(created, `"taskId"`) {
		t.Errorf("forward + task + optional: %s; want a task of the upstream's", created)
	}
	if created := g.ask("tools/call", `{"name":"delete_file","task":{}}`); !strings.Contains(created, `"taskId":"tg_`) {
		t.Errorf("approve + task: %s; want a task of the gate's", created)
	}
	// tasks/list lists the gate's tasks first, then those of the upstream, on one page.
	list := g.ask("tasks/list", `{}`)
	before, after, _ := strings.Cut(list, `"taskId":"tg_`)
	if strings.Contains(before, `"taskId"`) || strings.Count(after, `"taskId"`) != 1 || strings.Contains(list, "nextCursor") {
		t.Errorf("tasks/list: %s\nwant the gate's task, then the upstream's task, and no others", list)
	}

	g.write(strings.Replace(fileRules, "delete_*", "drop_*", 1))
	eventually(t, func() bool { return g.support() == "read_file=optional drop_table=optional" })

	mu.Lock()
	current = without
	mu.Unlock()
	g.ask("initialize", meetParams)
	if got, want := g.support(), "read_file=forbidden drop_table=optional"; got != want {
		t.Errorf("after a restart without tasks the tools are %s; want %s", got, want)
	}
	// Forward + task + forbidden: the gate keeps the task (accelerated path).
	created := g.ask("tools/call", `{"name":"read_file","task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if result := g.ask("tasks/result", `{"taskId":"`+id+`"}`); !strings.HasPrefix(id, "tg_") || !strings.Contains(result, "called") {
		t.Errorf("%s\nthen %s; want a task of the gate's, and its result", created, result)
	}
}

// The official client of each era sees only the tools that policy allows, and is notified of
// changes on its streams.
func TestPolicyWithOfficialSDK(t *testing.T) {
	for _, version := range []string{"2025-11-25", modernVersion} {
		t.Run(version, func(t *testing.T) {
			server := newServer(nil)
			for _, name := range []string{"read_file", "delete_file", "drop_table"} {
				addTool(server, name, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return textResult("ran " + name), nil
				})
			}
			s := (setting{version: version}).serve(t, server)
			g := govern(t, s.url, fileRules)
			s.url = g.url
			changed := make(chan string, 10)
			session := s.connect(t, &mcp.ClientOptions{
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { offer(changed, "changed") },
			})
			if got := toolNames(t, session); got != "delete_file read_file" {
				t.Errorf("the client sees %q; want the allowed tools", got)
			}
			if got := callText(t, session, &mcp.CallToolParams{Name: "read_file"}); got != "ran read_file" {
				t.Errorf("read_file: %q", got)
			}
			if result, err := session.CallTool(soon(t), &mcp.CallToolParams{Name: "drop_table"}); err == nil && !result.IsError {
				t.Errorf("a denied tool ran: %v", result)
			}

			g.write(strings.Replace(fileRules, "delete_*", "drop_*", 1))
			if !s.modern() {
				expect(t, changed, "changed")
			}
			eventually(t, func() bool { return toolNames(t, session) == "drop_table read_file" })
		})
	}
}

func toolNames(t *testing.T, session *mcp.ClientSession) string {
	t.Helper()
	list, err := session.ListTools(soon(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
