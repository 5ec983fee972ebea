package explore

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// A server is the upstream. It keeps a ledger of the calls that it ran.
type server struct {
	w *world

	mu     sync.Mutex
	ledger []string          // the arguments of the calls that ran
	polls  map[string]int    // the number of polls of each nested task
	tasks  map[string]string // the result of each nested task; empty if it was cancelled
	tools  string            // the result of tools/list

	redefined time.Time // when the tools were changed
	forgets   bool      // whether it refuses the next call, because its session has ended
}

const description = `{"name":"hold_x","inputSchema":{"type":"object"}},` +
	`{"name":"hold_nested","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}},` +
	`{"name":"hold_large","inputSchema":{"type":"object"}},` +
	`{"name":"hold_slow","inputSchema":{"type":"object"}},` +
	`{"name":"hold_asks","inputSchema":{"type":"object"}}`

func newServer(w *world) *server {
	return &server{w: w, tools: description, polls: map[string]int{}, tasks: map[string]string{}}
}

// runs returns the ledger.
func (s *server) runs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.ledger...)
}

// forget has the server end its session before the next call.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgets = true
}

// redefine changes the definitions of the server's tools.
func (s *server) redefine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redefined = time.Now()
	s.tools = strings.ReplaceAll(description, `"inputSchema"`, `"description":"changed","inputSchema"`)
}

// serve answers one request.
func (s *server) serve(httpMethod string, body []byte) (status int, header http.Header, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	header = http.Header{"Content-Type": {"application/json"}}
	if httpMethod == http.MethodGet {
		return http.StatusMethodNotAllowed, header, ""
	}
	p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
	if err != nil {
		return http.StatusOK, header, ""
	}
	if s.forgets && p.Messages[0].Method == "tools/call" {
		s.forgets = false
		return http.StatusNotFound, header, ""
	}
	var answers []string
	for i := range p.Messages {
		if m := &p.Messages[i]; m.ID.Present() {
			answers = append(answers, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID.Bytes, s.answer(m, header)))
		}
	}
	switch {
	case len(answers) == 0:
		return http.StatusAccepted, header, ""
	case p.Batch:
		return http.StatusOK, header, "[" + strings.Join(answers, ",") + "]"
	default:
		return http.StatusOK, header, answers[0]
	}
}

func (s *server) answer(m *jsonrpc.Message, header http.Header) string {
	modern := strings.Contains(string(m.Params.Meta.Bytes), "2026-07-28")
	id, _ := m.Params.Member("taskId").Text()
	switch m.Method {
	case "initialize":
		header.Set("Mcp-Session-Id", "s-1")
		return `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}},"cancel":{}}},"serverInfo":{"name":"test","version":"1"}}`
	case "server/discover":
		return `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}},"serverInfo":{"name":"test","version":"1"}}`
	case "tools/list":
		return `"result":{"resultType":"complete","tools":[` + s.tools + `]}`
	case "tools/call":
		return s.call(m, modern)
	case "tasks/get":
		return s.get(id, modern)
	case "tasks/result":
		s.polls[id] = 9
		return `"result":` + s.tasks[id]
	case "tasks/cancel":
		if s.polls[id] < 2 {
			s.tasks[id], s.polls[id] = "", 9
		}
		return `"result":` + s.standing(id, modern)
	default:
		return `"result":{}`
	}
}

// call runs a tool.
func (s *server) call(m *jsonrpc.Message, modern bool) string {
	name, _ := m.Params.Name.Text()
	arguments := string(m.Params.Arguments.Bytes)
	if name == "hold_asks" && !m.Params.Member("inputResponses").Present() {
		return `"result":{"resultType":"input_required","requestState":"theirs","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}}}}`
	}
	entry := name + " " + arguments
	s.ledger = append(s.ledger, entry)
	s.w.outcomes.runs(arguments, count(s.ledger, entry), s.redefined)
	long := ""
	if name == "hold_large" {
		long = strings.Repeat(" and more", 20_000)
	}
	result := fmt.Sprintf(`{"content":[{"type":"text","text":"done %d%s"}]%s}`, len(s.ledger), long, map[bool]string{true: `,"resultType":"complete"`}[modern])
	s.w.tell("the upstream runs %s %s", name, arguments)
	if name != "hold_nested" {
		return `"result":` + result
	}
	id := fmt.Sprint("u-", len(s.ledger))
	s.tasks[id] = result
	if modern {
		return `"result":` + strings.Replace(s.standing(id, true), `{`, `{"resultType":"task",`, 1)
	}
	return `"result":{"task":` + s.standing(id, false) + `}`
}

func count(list []string, text string) (n int) {
	for _, one := range list {
		if one == text {
			n++
		}
	}
	return n
}

// get returns the state of a task, which ends at the second poll.
func (s *server) get(id string, modern bool) string {
	s.polls[id]++
	return `"result":` + s.standing(id, modern)
}

func (s *server) standing(id string, modern bool) string {
	status, more := "working", ""
	switch {
	case s.polls[id] >= 2 && s.tasks[id] == "":
		status = "cancelled"
	case s.polls[id] >= 2:
		status = "completed"
		if modern {
			more = `,"result":` + s.tasks[id]
		}
	}
	if modern {
		return fmt.Sprintf(`{"taskId":%q,"status":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":600000,"pollIntervalMs":1000%s}`, id, status, more)
	}
	return fmt.Sprintf(`{"taskId":%q,"status":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":600000,"pollInterval":1000}`, id, status)
}

// policyNow returns a policy: calls of hold_* need approval, or all calls are denied.
func (w *world) policyNow(denies bool) *policy.Snapshot {
	action := policy.Approve
	if denies {
		action = policy.Deny
	}
	snapshot, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{{Match: "hold_*", Action: action}}, Default: policy.Rule{Action: policy.Forward},
		Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: patience}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return snapshot
}
