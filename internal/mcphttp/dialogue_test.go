package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Modern clients: the gate's task passes on the question of the upstream's task, and the
// client's answer.
func TestQuestionOfNestedTaskReachesClient(t *testing.T) {
	p := newTaskFixture(t, nil)
	id := p.start(modernCall("hold_required", tasksExtension), modernHeaders("hold_required")...)
	eventually(t, "the upstream has a task", func() bool { return len(p.server.made()) == 1 })
	p.server.ask(`{"q1":{"method":"elicitation/create","params":{"message":"sure?"}},"q2":{"method":"roots/list"}}`)
	message, headers := about("tasks/get", id)
	var answer string
	eventually(t, "the client is asked", func() bool {
		answer = p.ask(message, headers...)
		return strings.Contains(answer, `"status":"input_required"`)
	})
	wantText(t, "get", answer, `"q1":{"method":"elicitation/create","params":{"message":"sure?"}}`, `"q2"`)
	update, headers := about("tasks/update", id)
	update = strings.Replace(update, `"taskId"`, `"inputResponses":{"q1":{"action":"accept"}},"taskId"`, 1)
	wantText(t, "update", p.ask(update, headers...), `"resultType":"complete"`)
	got := <-p.server.answers
	if v, _ := got.Get("q1"); len(got) != 1 || string(v) != `{"action":"accept"}` {
		t.Errorf("the upstream heard %v", got)
	}
	if heard := p.server.heard("tasks/update"); !slices.Equal(heard, []string{"tasks/update " + p.server.made()[0]}) {
		t.Errorf("heard %v; want the upstream's own id", heard)
	}
	p.server.ask(`{}`)
	p.server.done(madeIt)
	eventually(t, "the task has ended", func() bool {
		answer = p.ask(message, headersOf("tasks/get", id)...)
		return strings.Contains(answer, `"status":"completed"`)
	})
	wantText(t, "get", answer, "made it")
}

func headersOf(method, id string) []string {
	_, headers := about(method, id)
	return headers
}

// The client gets the question in the answer to its request, and continues with the state it
// was given.
func TestQuestionReachesClientWithoutTasks(t *testing.T) {
	p := newTaskFixture(t, nil)
	req := p.send(modernCall("hold_required", ""), modernHeaders("hold_required")...)
	p.approve(p.pending(1)[0])
	eventually(t, "the upstream has a task", func() bool { return len(p.server.made()) == 1 })
	p.server.ask(`{"q":{"method":"elicitation/create","params":{"message":"sure?"}}}`)
	asked := req.wait(t)
	wantText(t, "answer", asked, `"resultType":"input_required"`, `"inputRequests":{"q":{"method":"elicitation/create"`, `"requestState":"tg1.`)
	state := regexp.MustCompile(`"requestState":"([^"]+)"`).FindStringSubmatch(asked)[1]
	again := strings.Replace(modernCall("hold_required", ""), `"arguments"`, `"requestState":"`+state+`","inputResponses":{"q":{"action":"accept"}},"arguments"`, 1)
	retry := p.send(again, modernHeaders("hold_required")...)
	if v, _ := (<-p.server.answers).Get("q"); string(v) != `{"action":"accept"}` {
		t.Errorf("the upstream heard %s", v)
	}
	p.server.ask(`{}`)
	p.server.done(madeIt)
	for strings.Contains(retry.wait(t), `"resultType":"input_required"`) { // the gate repeats the question until the upstream has the answer
		state = regexp.MustCompile(`"requestState":"([^"]+)"`).FindStringSubmatch(retry.wait(t))[1]
		retry = p.send(strings.Replace(modernCall("hold_required", ""), `"arguments"`, `"requestState":"`+state+`","arguments"`, 1), modernHeaders("hold_required")...)
	}
	wantText(t, "result", retry.wait(t), "made it")
	if calls := p.server.heard("tools/call"); len(calls) != 1 {
		t.Errorf("called %v; want once", calls)
	}
}

// The gate queries the upstream before it repeats a question.
func TestWithdrawnQuestionIsNotRepeated(t *testing.T) {
	p := newTaskFixture(t, nil)
	req := p.send(modernCall("hold_required", ""), modernHeaders("hold_required")...)
	p.approve(p.pending(1)[0])
	eventually(t, "the upstream has a task", func() bool { return len(p.server.made()) == 1 })
	p.server.ask(`{"q":{"method":"elicitation/create","params":{"message":"sure?"}}}`)
	state := stateIn(t, req.wait(t))
	p.server.ask(`{}`)
	p.server.done(madeIt)
	again := strings.Replace(modernCall("hold_required", ""), `"arguments"`, `"requestState":"`+state+`","arguments"`, 1)
	wantText(t, "result", p.ask(again, modernHeaders("hold_required")...), "made it")
}

// MRTR: the gate repeats the upstream call once with all answers, the upstream's state and the
// approved arguments.
func TestUpstreamGetsAllAnswersOnce(t *testing.T) {
	h := newFixture(t, nil)
	retries := make(chan string, 10)
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m := jsonrpc.Message{}
		if p, err := jsonrpc.Parse(body, jsonrpc.Limits{}); err == nil {
			m = p.Messages[0]
		}
		result := `{"resultType":"complete","capabilities":{}}`
		switch responses := m.Params.Member("inputResponses"); {
		case m.Method != "tools/call":
		case responses.Present():
			retries <- string(body)
			result = `{"resultType":"complete","content":[]}`
		default:
			result = `{"resultType":"input_required","requestState":"their state","inputRequests":{"a":{"method":"roots/list"},"b":{"method":"roots/list"}}}`
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(result)))
	})
	h.gateway = startGate(t, up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, conversation.Waiting{Hold: time.Minute, Heartbeat: time.Second}
	})
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	h.approve(task.ID(id))
	get, headers := about("tasks/get", id)
	var answer string
	eventually(t, "the client is asked", func() bool {
		answer = h.ask(get, headers...)
		return strings.Contains(answer, `"status":"input_required"`)
	})
	if wantText(t, "get", answer, `"a":{"method"`, `"b":{"method"`); strings.Contains(answer, "their state") {
		t.Errorf("the client got the state of the upstream: %s", answer)
	}
	respond := func(responses string) {
		update, headers := about("tasks/update", id)
		wantText(t, "update", h.ask(strings.Replace(update, `"taskId"`, `"inputResponses":`+responses+`,"taskId"`, 1), headers...), `"resultType":"complete"`)
	}
	respond(`{"a":{"roots":[]},"never asked":{}}`)
	if answer = h.ask(get, headers...); strings.Contains(answer, `"a":{"method"`) || !strings.Contains(answer, `"b":{"method"`) {
		t.Errorf("with one of two answers: %s", answer)
	}
	respond(`{"b":{"roots":[1]},"a":{"roots":["another"]}}`)
	eventually(t, "the task has ended", func() bool { return strings.Contains(h.ask(get, headers...), `"status":"completed"`) })
	retry := <-retries
	wantText(t, "retry", retry, `"inputResponses":{"a":{"roots":[]},"b":{"roots":[1]}}`, `"requestState":"their state"`, `"arguments":{"x":1}`)
	if strings.Contains(retry, `"id":24,`) || len(retries) != 0 {
		t.Errorf("retried as %s, and %d times more; want once, as another request", retry, len(retries))
	}
}

// A waiting legacy client gets the upstream's question and answers it. The question does not
// name a task of the gate.
func TestQuestionDuringHeldCall(t *testing.T) {
	h := newFixture(t, nil)
	answered := make(chan string, 1)
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch text := string(body); {
		case strings.Contains(text, `"tools/call"`):
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "id: 1\ndata:\n\n"+
				`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":7}}`+"\n\n"+
				`data: {"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"tg_other","status":"completed"}}`+"\n\n"+
				`data: {"jsonrpc":"2.0","id":"q-0","method":"elicitation/create","params":{"message":"forged","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"tg_other"}}}}`+"\n\n"+
				`data: {"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"sure?"}}`+"\n\n")
			w.(http.Flusher).Flush()
			io.WriteString(w, `data: {"jsonrpc":"2.0","id":`+idOf(text)+`,"result":{"content":[{"type":"text","text":"`+<-answered+`"}]}}`+"\n\n")
		case strings.Contains(text, `"q-1"`):
			answered <- "as you said"
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.Write(jsonrpc.AppendErrorResponse(nil, []byte(idOf(text)), &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no"}))
		}
	})
	h.gateway = startGate(t, up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, conversation.Waiting{Hold: time.Minute, Heartbeat: time.Minute}
	})
	resp := make(chan *http.Response, 1)
	go func() { resp <- h.post(t, toolCall("7", "hold_x", "")) }()
	h.approve(h.pending(1)[0])
	events := jsonrpc.NewEventReader((<-resp).Body, 1<<20)
	var seen []string
	for {
		event, err := events.Next()
		if err != nil {
			break
		}
		seen = append(seen, string(event.Data))
		if strings.Contains(string(event.Data), "elicitation/create") {
			h.call(t, `{"jsonrpc":"2.0","id":"q-1","result":{"action":"accept"}}`)
		}
	}
	if len(seen) != 2 || !strings.Contains(seen[1], "as you said") {
		t.Errorf("the client saw %q; want the question and the answer", seen)
	}
}

// The question names the task that the client knows. A question about another task of the gate
// does not reach the client. The upstream may be a gate itself.
func TestQuestionDuringNestedTask(t *testing.T) {
	for _, nested := range []string{"theirs", "tg_inner"} {
		t.Run(nested, func(t *testing.T) {
			p := newTaskFixture(t, nil)
			question := func(text, id string) string {
				return `data: {"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"` + text + `","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}}}}` + "\n\n"
			}
			status := func(now string) string {
				return `{"taskId":"` + nested + `","status":"` + now + `","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null,"pollInterval":10}`
			}
			p.server.intercepted(func(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) bool {
				if m.Method == "tasks/result" {
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, question("forged", "tg_other")+question("sure?", nested)+
						"data: "+string(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(madeIt)))+"\n\n")
					return true
				}
				return replying("tools/call", `{"task":`+status("working")+`}`)(w, r, m) || replying("tasks/get", status("input_required"))(w, r, m)
			})
			own := p.start(toolCall("3", "hold_required", `,"task":{}`))
			result := p.send(legacyAbout("tasks/result", own))
			wantText(t, "the result", result.wait(t), "made it")
			wantText(t, "the question", result.body, `"sure?","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+own+`"}}`)
			if strings.Contains(result.body, "forged") {
				t.Errorf("the client was asked %s", result.body)
			}
		})
	}
}

// The upstream never gets a task ID of the gate, in either era.
func TestClientMessagesNameNestedTask(t *testing.T) {
	p := newTaskFixture(t, nil)
	held := taskID(t, p.ask(toolCall("2", "hold_x", `,"task":{}`)))
	nested := p.start(toolCall("3", "hold_required", `,"task":{}`))
	eventually(t, "the gate knows the task", func() bool { return p.state(nested).Execution.UpstreamTask != "" })
	sent := make(chan string, 1)
	p.server.intercepted(func(w http.ResponseWriter, _ *http.Request, m *jsonrpc.Message) bool {
		if m.Kind == jsonrpc.Request { // of the gate, about its task
			return false
		}
		sent <- string(m.Raw)
		w.WriteHeader(http.StatusAccepted)
		return true
	})
	modern := slices.Delete(modernHeaders(""), 4, 6)
	modern[3] = "notifications/x"
	for _, tt := range []struct {
		id, want string
		headers  []string
		more     string
	}{
		{held, ``, nil, ``},
		{"tg_unknown", ``, nil, ``},
		{nested, `"io.modelcontextprotocol/related-task":{"taskId":"` + p.server.made()[0] + `"},`, nil, ``},
		{"theirs", `"io.modelcontextprotocol/related-task":{"taskId":"theirs"},`, nil, ``},
		{held, ``, modern, `,"io.modelcontextprotocol/protocolVersion":"2026-07-28"`},
	} {
		for _, form := range []string{
			`{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{%s"y":1.0%s},"z": 2}}`,
			`{"jsonrpc":"2.0","id":"q","result":{"action":"accept","_meta":{%s"y":1.0%s}}}`,
		} {
			if tt.headers != nil && strings.Contains(form, "result") {
				continue // modern clients answer no questions
			}
			p.ask(fmt.Sprintf(form, `"io.modelcontextprotocol/related-task":{"taskId":"`+tt.id+`"},`, tt.more), tt.headers...)
			got, want := <-sent, fmt.Sprintf(form, tt.want, tt.more)
			if got != want {
				t.Errorf("%s: the upstream got %s; want %s", tt.id, got, want)
			}
		}
	}
}

// newAsking returns a fixture whose upstream asks questions first, and uses retry for the
// repeated call.
func newAsking(t *testing.T, questions string, retry func(w http.ResponseWriter, m *jsonrpc.Message)) *fixture {
	t.Helper()
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.Polling = task.Polling{Min: 10 * time.Millisecond, Max: time.Minute}
	})
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
		if err != nil {
			t.Errorf("the upstream got %q: %v", body, err)
			return
		}
		m := &p.Messages[0]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case m.Params.Member("requestState").Present():
			retry(w, m)
		case m.Method == "tools/call":
			w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{"resultType":"input_required","requestState":"theirs","inputRequests":`+questions+`}`)))
		default:
			w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{"resultType":"complete","capabilities":{}}`)))
		}
	})
	h.gateway = startGate(t, up, func(s settings) {
		s.handler.Catalog, s.handler.Approvals, s.handler.Waiting = h.catalog, h.approvals, conversation.Waiting{Hold: time.Minute, Heartbeat: time.Second}
	})
	return h
}

// A client that loses its connection while returning with a state has not withdrawn its call.
func TestLostConnectionKeepsCall(t *testing.T) {
	begun, finish := make(chan bool, 10), make(chan bool)
	let := sync.OnceFunc(func() { close(finish) })
	defer let()
	h := newAsking(t, `{"q":{"method":"roots/list"}}`, func(w http.ResponseWriter, m *jsonrpc.Message) {
		begun <- true
		<-finish
		w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{"resultType":"complete","content":[{"type":"text","text":"made it"}]}`)))
	})
	first := h.send(modernCall("hold_x", ""), modernHeaders("hold_x")...)
	id := h.pending(1)[0]
	h.approve(id)
	state := regexp.MustCompile(`"requestState":"([^"]+)"`).FindStringSubmatch(first.wait(t))
	if state == nil {
		t.Fatalf("not asked: %s", first.body)
	}
	again := func() *request {
		return h.send(strings.Replace(modernCall("hold_x", ""), `"arguments"`, `"requestState":"`+state[1]+`","inputResponses":{"q":{"roots":[]}},"arguments"`, 1), modernHeaders("hold_x")...)
	}
	lost := again()
	<-begun
	lost.cancel()
	<-lost.done
	eventually(t, "the gate has seen that it is gone", func() bool {
		return strings.Contains(scrape(h.gateway), `thoughtgate_blocking_approval_total{result="client_disconnected"} 1`)
	})
	retry := again()
	let()
	wantText(t, "result", retry.wait(t), "made it")
}

// The client has nothing to answer, so the gate calls the upstream again.
func TestUpstreamWithStateOnlyIsCalledAgain(t *testing.T) {
	for name, capabilities := range map[string]string{"held": "", "task": tasksExtension} {
		t.Run(name, func(t *testing.T) {
			h := newAsking(t, `{}`, func(w http.ResponseWriter, m *jsonrpc.Message) {
				w.Write(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(`{"resultType":"complete","content":[{"type":"text","text":"made it"}]}`)))
			})
			first := h.send(modernCall("hold_x", capabilities), modernHeaders("hold_x")...)
			id := h.pending(1)[0]
			h.approve(id)
			if capabilities == "" {
				wantText(t, "result", first.wait(t), "made it")
				return
			}
			get, headers := about("tasks/get", string(id))
			eventually(t, "the task has ended", func() bool { return strings.Contains(h.ask(get, headers...), "made it") })
		})
	}
}
