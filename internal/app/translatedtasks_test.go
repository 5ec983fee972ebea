package app_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/taskserver"
)

const plainMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

const tasksMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// taskGate starts a gate before a server with tasks of the other era. Calls of the tool failing are held.
func taskGate(t *testing.T, handler http.HandlerFunc) (url string, approve func()) {
	t.Helper()
	up := httptest.NewServer(handler)
	t.Cleanup(up.Close)
	gate, stop := start(t, "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: "+adminToken+"}\nstore: 'memory:'\nupstreams: [{url: "+up.URL+", translate: true}]\n"+
		"rules: [{match: failing, action: approve}, {match: '*', action: forward}]\ndefault: forward\n")
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + gate.AgentAddr() + "/mcp", func() { approveCall(t, gate, awaitPending(t, gate)) }
}

// send sends a request with headers, and returns the answer.
func sendTo(t *testing.T, url, method, params string, headers ...string) string {
	t.Helper()
	headers = append(headers, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
	_, text, _ := request(t, http.DefaultClient, http.MethodPost, url, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+`}}`, headers...)
	if at := strings.LastIndex(text, "data: {"); at >= 0 {
		text = text[at+len("data: "):]
	}
	return strings.TrimSpace(text)
}

func taskIn(t *testing.T, answer string) string {
	t.Helper()
	_, rest, found := strings.Cut(answer, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !found {
		t.Fatalf("no task: %s", answer)
	}
	return id
}

func wants(t *testing.T, what, got string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("%s: %s; want %s", what, got, text)
		}
	}
}

// crossTasks uses the tasks of another server, also those of held calls.
func crossTasks(t *testing.T, x *crossing) string {
	t.Helper()
	s := taskserver.New()
	if x.modern {
		tasksOfLegacyServer(t, s)
	} else {
		tasksOfModernServer(t, s)
	}
	return ""
}

// crossWithoutTasks calls a tool of another server that makes tasks. The client waits in its request.
func crossWithoutTasks(t *testing.T, x *crossing) string {
	t.Helper()
	s := taskserver.New()
	alone := make(chan string, 1)
	if x.modern {
		url, _ := taskGate(t, s.Legacy)
		go func() { alone <- fromModern(t, url, "tools/call", "slow", `"name":"slow",`+plainMeta) }()
	} else {
		url, _ := taskGate(t, s.Modern)
		legacy := fromLegacy(t, url)
		go func() { alone <- legacy("tools/call", `"name":"slow"`) }()
	}
	eventually(t, "the task", func() bool { return s.Status("task-1") != "" })
	s.Set("task-1", "completed")
	wants(t, "without a task", receive(t, alone), `"id":7`, "done")
	return ""
}

func fromModern(t *testing.T, url, method, name, params string) string {
	t.Helper()
	return sendTo(t, url, method, params, "Mcp-Protocol-Version", modernVersion, "Mcp-Method", method, "Mcp-Name", name)
}

// fromLegacy returns a function that sends requests in a new session.
func fromLegacy(t *testing.T, url string) func(method, params string) string {
	t.Helper()
	_, _, header := request(t, http.DefaultClient, http.MethodPost, url,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`,
		"Content-Type", "application/json", "Accept", "application/json, text/event-stream")
	return func(method, params string) string {
		return sendTo(t, url, method, params, "Mcp-Protocol-Version", legacyVersion, "Mcp-Session-Id", header.Get("Mcp-Session-Id"))
	}
}

// A modern client uses the tasks of a legacy server through the gate, also those of held calls.
func tasksOfLegacyServer(t *testing.T, s *taskserver.Server) {
	t.Helper()
	url, approve := taskGate(t, s.Legacy)
	modern := func(method, name, params string) string {
		return fromModern(t, url, method, name, params+","+tasksMeta)
	}
	id := taskIn(t, modern("tools/call", "slow", `"name":"slow"`))
	wants(t, "get", modern("tasks/get", id, `"taskId":"`+id+`"`), `"status":"working"`)
	s.Set("task-1", "completed")
	wants(t, "get", modern("tasks/get", id, `"taskId":"`+id+`"`), `"status":"completed"`, "done")

	held := taskIn(t, modern("tools/call", "failing", `"name":"failing"`))
	wants(t, "held", modern("tasks/get", held, `"taskId":"`+held+`"`), `"status":"working"`)
	approve()
	eventually(t, "the held call ends", func() bool {
		got := modern("tasks/get", held, `"taskId":"`+held+`"`)
		return strings.Contains(got, `"status":"completed"`) && strings.Contains(got, "no disk") && strings.Contains(got, held)
	})
	if s.Saw("tasks/result") < 2 {
		t.Error("the held call was not made as a task of the server")
	}
}

// A legacy client uses the tasks of a modern server through the gate, also those of held calls.
func tasksOfModernServer(t *testing.T, s *taskserver.Server) {
	t.Helper()
	url, approve := taskGate(t, s.Modern)
	legacy := fromLegacy(t, url)
	wants(t, "tools", legacy("tools/list", ""), `"taskSupport":"optional"`)
	id := taskIn(t, legacy("tools/call", `"name":"slow","task":{}`))
	wants(t, "get", legacy("tasks/get", `"taskId":"`+id+`"`), `"status":"working"`)
	s.Set(id, "completed")
	wants(t, "result", legacy("tasks/result", `"taskId":"`+id+`"`), "done", "related-task")

	held := taskIn(t, legacy("tools/call", `"name":"failing","task":{}`))
	approve()
	wants(t, "held", legacy("tasks/result", `"taskId":"`+held+`"`), "no disk", held)
	wants(t, "list", legacy("tasks/list", ""), held, id)

	wants(t, "a call that ends at once", legacy("tools/call", `"name":"plain","task":{}`), `"task":{"taskId":`)
}
