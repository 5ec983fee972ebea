package mcpstdio_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/spans"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// The server makes a task of a held call. The client sees only the gate's task, with the
// outcome of the server's.
func TestNestedTask(t *testing.T) {
	t.Parallel()
	s := open(t, options{env: []string{"MCPSTDIO_TASKS=1"}})
	s.initialize()
	created, err := jsonrpc.ParseMessage([]byte(s.ask("1", "tools/call", `{"name":"delete","arguments":{},"task":{}}`)), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := created.Result.Member("task").Member("taskId").Text()
	s.decide(s.held(), approval.Approve)
	s.eventually("the task completes", func() bool {
		got := s.ask("2", "tasks/get", `{"taskId":"`+id+`"}`)
		if strings.Contains(got, "nested-1") {
			t.Errorf("the client sees the task of the server: %s", got)
		}
		return strings.Contains(got, `"completed"`)
	})
	contains(t, s.ask("3", "tasks/result", `{"taskId":"`+id+`"}`), "nested outcome", id)
	if n := s.sawWith(`"tools/call"`); n != 1 {
		t.Errorf("the call ran %d times", n)
	}
	if s.sawWith(`"taskId":"nested-1"`) == 0 || s.sawWith(id) != 0 {
		t.Error("the server was not asked about its own task")
	}
}

// A client that opens URLs is asked to open the page of a held call. Its answer decides nothing
// and is not forwarded.
func TestHostIsAskedAboutHeldCall(t *testing.T) {
	t.Parallel()
	s := open(t, options{hold: time.Minute, waiting: func(w *conversation.Waiting) {
		w.Page = func(id task.ID) string { return "https://gate.example/approvals/" + string(id) }
		w.AskHost = func(string) bool { return true }
	}})
	s.ask(`"init"`, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{},"url":{}}},"clientInfo":{"name":"tester","version":"1"}}`)
	s.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	s.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + call("delete", `{}`) + `}`)
	asked := s.next()
	contains(t, asked, "elicitation/create", `"mode":"url"`, "https://gate.example/approvals/")
	m, err := jsonrpc.ParseMessage([]byte(asked), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	s.say(`{"jsonrpc":"2.0","id":` + string(m.ID.Bytes) + `,"result":{"action":"decline"}}`)
	s.decide(s.held(), approval.Approve)
	contains(t, s.answer("1"), "ran delete")
	if s.sawWith("decline") != 0 {
		t.Error("the server got an answer to a question that it did not ask")
	}
}

// NF-004: the client's trace continues in gate and server. The spans of a forwarded call are
// those of HTTP, and a held call has the gate's step as its parent.
func TestTrace(t *testing.T) {
	t.Parallel()
	exported := new(spans.Collector)
	collector := httptest.NewServer(exported)
	defer collector.Close()
	traces, err := tracing.New(tracing.Config{Endpoint: collector.URL, Sample: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, options{hold: time.Minute, tracing: traces})
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	const parent = "00-" + trace + "-" + span + "-01"
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"traceparent":"` + parent + `"}`
	s.ask("1", "tools/call", `{"name":"echo","arguments":{},`+meta+`}`)
	s.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","arguments":{},` + meta + `}}`)
	s.decide(s.held(), approval.Approve)
	contains(t, s.answer("2"), "ran delete")
	for _, line := range s.saw() {
		if strings.Contains(line, `"delete"`) && strings.Contains(line, "tools/call") && (!strings.Contains(line, `"traceparent":"00-`) || strings.Contains(line, parent)) {
			t.Errorf("the held call does not name the gate's step: %s", line)
		}
	}
	s.ask("3", "tools/call", `{"name":"echo","arguments":{}}`) // the gate has ended the first exchange when it takes this answer
	if err := traces.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	request := exported.Find(t, "mcp.request", func(one spans.Span) bool { return one.Trace == trace && one.Parent == span })
	exported.Find(t, "policy.evaluate", func(one spans.Span) bool { return one.Parent == request.ID })
	server := exported.Find(t, "mcp.upstream", func(one spans.Span) bool { return one.Parent == request.ID })
	if s.sawWith(server.Traceparent()) != 1 {
		t.Errorf("the server of a forwarded call does not get the span %+v", server)
	}
	if !strings.Contains(request.Attributes["method"], "tools/call") {
		t.Errorf("the span of the request has the attributes %v", request.Attributes)
	}
}
