// Package taskserver has an MCP server with tasks, for tests.
package taskserver

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A message is any message of the tests.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name           string
		TaskID         string
		Task           json.RawMessage
		InputResponses map[string]json.RawMessage
		Notifications  struct{ TaskIDs []string }
		Meta           struct {
			Capabilities struct{ Extensions map[string]json.RawMessage } `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	}
	Result json.RawMessage
}

// A testTask is a task of a test server.
type testTask struct {
	session string
	tool    string
	status  string
	asked   bool
	answer  string
	changed chan struct{}
}

// A Server is a server with tasks. Its tools are slow, which ends when the test says so, failing,
// confirm, which asks a question, and those that the server of an era adds.
type Server struct {
	mu        sync.Mutex
	tasks     map[string]*testTask
	sessions  map[string]bool
	seen      []string // methods
	listeners []chan string
}

// New returns a server without tasks.
func New() *Server {
	return &Server{tasks: make(map[string]*testTask), sessions: make(map[string]bool)}
}

func (s *Server) create(tool, session string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := "task-" + strconv.Itoa(len(s.tasks)+1)
	status := map[string]string{"slow": "working", "confirm": "input_required", "failing": "completed", "broken": "failed"}[tool]
	s.tasks[id] = &testTask{session: session, tool: tool, status: status, changed: make(chan struct{})}
	return id
}

// Set changes the status of a task.
func (s *Server) Set(id, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	task := s.tasks[id]
	task.status = status
	close(task.changed)
	task.changed = make(chan struct{})
	for _, l := range s.listeners {
		l <- id
	}
}

// get returns a task, or nil if the session does not have it.
func (s *Server) get(id, session string) (task *testTask, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	task = s.tasks[id]
	if task == nil || task.session != session {
		return nil, ""
	}
	return task, task.status
}

// Saw returns how often the server got a method.
func (s *Server) Saw(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.seen {
		if m == method {
			n++
		}
	}
	return n
}

// Status returns the status of a task, or "" if there is none.
func (s *Server) Status(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[id] == nil {
		return ""
	}
	return s.tasks[id].status
}

// Listeners returns how many clients have listened.
func (s *Server) Listeners() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.listeners)
}

func (s *Server) receive(r *http.Request) message {
	body, _ := io.ReadAll(r.Body)
	var m message
	_ = json.Unmarshal(body, &m) // a GET has no message
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, m.Method)
	return m
}

// outcome returns the end of a task.
func outcome(task *testTask) (result string, failed bool) {
	switch task.tool {
	case "failing":
		return `{"content":[{"type":"text","text":"no disk"}],"isError":true}`, false
	case "broken":
		return `{"code":-32000,"message":"bug"}`, true
	default:
		return `{"content":[{"type":"text","text":"done ` + task.answer + `"}]}`, false
	}
}

const question = `{"message":"sure?","requestedSchema":{"type":"object","properties":{}}`

// A reply writes the answer to a message.
type reply struct {
	w http.ResponseWriter
	m message
}

func (r reply) send(text string) { _, _ = io.WriteString(r.w, text) }

// answer answers with the member result or error.
func (r reply) answer(member string) {
	r.send(`{"jsonrpc":"2.0","id":` + string(r.m.ID) + `,` + member + `}`)
}

const noTask = `"error":{"code":-32602,"message":"no such task"}`

// Legacy is the server of 2025-11-25.
func (s *Server) Legacy(w http.ResponseWriter, r *http.Request) {
	m := s.receive(r)
	session := r.Header.Get("Mcp-Session-Id")
	w.Header().Set("Content-Type", "application/json")
	to := reply{w, m}
	switch {
	case r.Method == http.MethodDelete:
		s.End(session)
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", s.begin())
		to.answer(`"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"old","version":"1"}}`)
	case m.Method == "server/discover":
		to.answer(`"error":{"code":-32601,"message":"Method not found"}`)
	case !s.knows(session):
		w.WriteHeader(http.StatusNotFound)
	case m.Result != nil:
		s.answered(m)
		w.WriteHeader(http.StatusAccepted)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "tools/list":
		to.answer(`"result":{"tools":[{"name":"slow","execution":{"taskSupport":"required"}},{"name":"confirm","execution":{"taskSupport":"required"}},{"name":"failing","execution":{"taskSupport":"optional"}},{"name":"broken","execution":{"taskSupport":"optional"}},{"name":"plain"}]}`)
	case m.Method == "tools/call":
		s.call(to, session)
	default:
		s.aboutTask(to, r, session)
	}
}

// begin begins a session.
func (s *Server) begin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := "s" + strconv.Itoa(len(s.sessions)+1)
	s.sessions[session] = true
	return session
}

func (s *Server) knows(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[session]
}

// answered takes the answer to the question of a task.
func (s *Server) answered(m message) {
	id, _ := strconv.Unquote(string(m.ID))
	id = strings.TrimPrefix(id, "question of ")
	s.mu.Lock()
	s.tasks[id].answer = "answered"
	s.mu.Unlock()
	s.Set(id, "completed")
}

// call answers tools/call of 2025-11-25.
func (s *Server) call(to reply, session string) {
	name, asTask := to.m.Params.Name, to.m.Params.Task != nil
	switch {
	case asTask == (name == "plain") && name != "failing" && name != "broken":
		to.answer(`"error":{"code":-32601,"message":"Tool does not run so"}`)
	case !asTask:
		to.answer(`"result":{"content":[{"type":"text","text":"at once"}]}`)
	default:
		to.answer(`"result":{"task":{"taskId":"` + s.create(name, session) + `","status":"working","createdAt":"2026-08-22T10:30:00Z","lastUpdatedAt":"2026-08-22T10:30:00Z","ttl":60000,"pollInterval":50}}`)
	}
}

// aboutTask answers the requests of 2025-11-25 about a task.
func (s *Server) aboutTask(to reply, r *http.Request, session string) {
	id := to.m.Params.TaskID
	task, status := s.get(id, session)
	ended := status != "working" && status != "input_required"
	switch {
	case task == nil, to.m.Method == "tasks/cancel" && ended:
		to.answer(noTask)
	case to.m.Method == "tasks/get":
		to.answer(`"result":{"taskId":"` + id + `","status":"` + status + `","statusMessage":"step","createdAt":"2026-08-22T10:30:00Z","lastUpdatedAt":"2026-08-22T10:30:00Z","ttl":null,"pollInterval":50}`)
	case to.m.Method == "tasks/cancel":
		s.Set(id, "cancelled")
		to.answer(`"result":{"taskId":"` + id + `","status":"cancelled","createdAt":"2026-08-22T10:30:00Z","lastUpdatedAt":"2026-08-22T10:30:00Z","ttl":null}`)
	case to.m.Method == "tasks/result":
		s.result(to, r, task)
	}
}

// result answers tasks/result of 2025-11-25.
func (s *Server) result(to reply, r *http.Request, task *testTask) {
	to.w.Header().Set("Content-Type", "text/event-stream")
	flush(to.w)
	related := `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + to.m.Params.TaskID + `"}}}`
	for {
		s.mu.Lock()
		status, changed := task.status, task.changed
		ask := status == "input_required" && !task.asked
		task.asked = task.asked || ask
		s.mu.Unlock()
		if ask {
			to.send(`data: {"jsonrpc":"2.0","id":"question of ` + to.m.Params.TaskID + `","method":"elicitation/create","params":` + question + `,` + related + "}\n\n")
			flush(to.w)
		}
		if status != "working" && status != "input_required" {
			text, failed := outcome(task)
			member := `"error":` + text
			if !failed {
				member = `"result":` + strings.TrimSuffix(text, "}") + "," + related
			}
			to.send(`data: {"jsonrpc":"2.0","id":` + string(to.m.ID) + `,` + member + "}\n\n")
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// End ends a session.
func (s *Server) End(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session)
}

const taskTimes = `"createdAt":"2026-08-22T10:30:00Z","lastUpdatedAt":"2026-08-22T10:30:00Z","ttlMs":60000,"pollIntervalMs":50`

// Modern is the server of 2026-07-28.
func (s *Server) Modern(w http.ResponseWriter, r *http.Request) {
	m := s.receive(r)
	w.Header().Set("Content-Type", "application/json")
	to := reply{w, m}
	switch {
	case m.Method == "server/discover":
		to.answer(`"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`)
	case m.Method == "tools/list":
		to.answer(`"result":{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[{"name":"slow","inputSchema":{"type":"object"}}]}`)
	case m.Method == "tools/call" && m.Params.Name == "plain":
		to.answer(`"result":{"resultType":"complete","content":[{"type":"text","text":"at once"}]}`)
	case m.Method == "subscriptions/listen":
		s.listen(to, r)
	case m.Params.Meta.Capabilities.Extensions["io.modelcontextprotocol/tasks"] == nil:
		w.WriteHeader(http.StatusBadRequest)
		to.answer(`"error":{"code":-32021,"message":"Missing required client capability","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}`)
	case m.Method == "tools/call":
		to.answer(`"result":{"resultType":"task","taskId":"` + s.create(m.Params.Name, "") + `","status":"working",` + taskTimes + `}`)
	case r.Header.Get("Mcp-Name") != m.Params.TaskID:
		to.answer(`"error":{"code":-32020,"message":"Header mismatch"}`)
	default:
		s.aboutModernTask(to)
	}
}

// aboutModernTask answers the requests of 2026-07-28 about a task.
func (s *Server) aboutModernTask(to reply) {
	id := to.m.Params.TaskID
	task, status := s.get(id, "")
	switch {
	case task == nil:
		to.answer(noTask)
	case to.m.Method == "tasks/get":
		to.answer(`"result":{"resultType":"complete",` + detailed(id, task, status) + `}`)
	case to.m.Method == "tasks/cancel":
		s.Set(id, "cancelled")
		to.answer(`"result":{"resultType":"complete"}`)
	case to.m.Method == "tasks/update":
		s.mu.Lock()
		task.answer = strings.ReplaceAll(string(to.m.Params.InputResponses["in-1"]), `"`, "'")
		s.mu.Unlock()
		s.Set(id, "completed")
		to.answer(`"result":{"resultType":"complete"}`)
	}
}

func detailed(id string, task *testTask, status string) string {
	text := `"taskId":"` + id + `","status":"` + status + `",` + taskTimes
	switch status {
	case "input_required":
		return text + `,"inputRequests":{"in-1":{"method":"elicitation/create","params":` + question + `}}}`
	case "completed", "failed":
		result, failed := outcome(task)
		if failed {
			return text + `,"error":` + result
		}
		return text + `,"result":` + result
	}
	return text
}

// listen reports the steps of tasks.
func (s *Server) listen(to reply, r *http.Request) {
	news := make(chan string, 10)
	s.mu.Lock()
	s.listeners = append(s.listeners, news)
	s.mu.Unlock()
	to.w.Header().Set("Content-Type", "text/event-stream")
	to.send(`data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}` + "\n\n")
	flush(to.w)
	for {
		select {
		case id := <-news:
			if slices.Contains(to.m.Params.Notifications.TaskIDs, id) {
				task, status := s.get(id, "")
				to.send(`data: {"jsonrpc":"2.0","method":"notifications/tasks","params":{` + detailed(id, task, status) + "}}\n\n")
				flush(to.w)
			}
		case <-r.Context().Done():
			return
		}
	}
}
