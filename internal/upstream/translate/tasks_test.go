package translate_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/taskserver"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/translate"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

const tasksMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// An agent is a client of a translator.
type agent struct {
	t         *testing.T
	tr        *translate.Translator
	principal string
	session   string
	meta      string // of a modern client
}

// do sends a request, and returns the answer.
func (a agent) do(method, params string) string {
	a.t.Helper()
	_, text, _ := ask(a.t, a.tr, a.request(method, params))
	if at := strings.LastIndex(text, "data: "); at >= 0 {
		text = text[at+len("data: "):]
	}
	return strings.TrimSpace(text)
}

func (a agent) request(method, params string) sent {
	params = strings.Trim(params+","+a.meta, ",")
	header := http.Header{}
	if a.meta != "" {
		header.Set("Mcp-Method", method)
	}
	return sent{principal: a.principal, session: a.session, header: header, body: `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{` + params + `}}`}
}

// expect fails the test unless the answer has all texts.
func expect(t *testing.T, what, got string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("%s: %s; want %s", what, got, text)
		}
	}
}

// idIn returns the id of the task in an answer.
func idIn(t *testing.T, answer string) string {
	t.Helper()
	_, rest, found := strings.Cut(answer, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !found {
		t.Fatalf("no task: %s", answer)
	}
	return id
}

func about(id string) string { return `"taskId":"` + id + `"` }

// until asks until the answer has a text.
func (a agent) until(method, params, want string) string {
	a.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		text := a.do(method, params)
		if strings.Contains(text, want) {
			return text
		}
		if time.Now().After(end) {
			a.t.Fatalf("%s: %s; want %s", method, text, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A modern client uses the tasks of a legacy server.
func TestTasksOfLegacyServer(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, s.Legacy)
	ann := agent{t: t, tr: tr, principal: "ann", meta: tasksMeta}
	expect(t, "discover", ann.do("server/discover", ""), `"extensions":{"io.modelcontextprotocol/tasks":{}}`)

	made := ann.do("tools/call", `"name":"slow","arguments":{}`)
	expect(t, "call", made, `"id":7`, `"resultType":"task"`, `"status":"working"`, `"ttlMs":60000`, `"pollIntervalMs":50`)
	id := idIn(t, made)
	if strings.Contains(made, "task-1\"") {
		t.Errorf("the client learns the id of the server: %s", made)
	}
	expect(t, "get", ann.do("tasks/get", about(id)), `"resultType":"complete"`, `"status":"working"`, `"statusMessage":"step"`, `"ttlMs":null`, id)
	for name, other := range map[string]agent{"another principal": {t: t, tr: tr, principal: "bob", meta: tasksMeta}, "nobody": {t: t, tr: tr, meta: tasksMeta}} {
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			expect(t, name+" "+method, other.do(method, about(id)), `"code":-32602`)
		}
	}
	expect(t, "the id of the server", ann.do("tasks/get", about("task-1")), `"code":-32602`)
	expect(t, "a method of the other era", ann.do("tasks/result", about(id)), `"code":-32601`)
	s.Set("task-1", "completed")
	got := ann.do("tasks/get", about(id))
	expect(t, "the end", got, `"status":"completed"`, `"result":{"content":[{"type":"text","text":"done "}]}`)
	if strings.Contains(got, "related-task") {
		t.Errorf("the result names the task: %s", got)
	}
	expect(t, "cancel the ended task", ann.do("tasks/cancel", about(id)), `"result":{"resultType":"complete"}`)

	id = idIn(t, ann.do("tools/call", `"name":"slow"`))
	expect(t, "cancel", ann.do("tasks/cancel", about(id)), `"result":{"resultType":"complete"}`)
	expect(t, "the cancelled task", ann.do("tasks/get", about(id)), `"status":"cancelled"`)

	id = idIn(t, ann.do("tools/call", `"name":"failing"`))
	expect(t, "an error of the tool", ann.do("tasks/get", about(id)), `"status":"completed"`, `"isError":true`)
	id = idIn(t, ann.do("tools/call", `"name":"broken"`))
	expect(t, "an error of the server", ann.do("tasks/get", about(id)), `"status":"failed"`, `"error":{"code":-32000`)
	expect(t, "a tool without tasks", ann.do("tools/call", `"name":"plain"`), `"resultType":"complete"`, "at once")
	if n := s.Saw("tools/list"); n != 1 {
		t.Errorf("the tools were listed %d times", n)
	}
}

// The questions of a task at a legacy server reach a modern client with the task.
func TestQuestionsOfLegacyTask(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, s.Legacy)
	ann := agent{t: t, tr: tr, principal: "ann", meta: tasksMeta}
	id := idIn(t, ann.do("tools/call", `"name":"confirm"`))
	asked := ann.do("tasks/get", about(id))
	expect(t, "get", asked, `"status":"input_required"`, `"method":"elicitation/create"`, `"message":"sure?"`)
	if strings.Contains(asked, "related-task") {
		t.Errorf("the question names the task: %s", asked)
	}
	key := keyIn(asked)
	expect(t, "the same again", ann.do("tasks/get", about(id)), key)
	expect(t, "update", ann.do("tasks/update", about(id)+`,"inputResponses":{"`+key+`":{"action":"accept"},"other":{}}`), `"result":{"resultType":"complete"}`)
	ann.until("tasks/get", about(id), "done answered")
	if n := s.Saw("tasks/result"); n != 2 {
		t.Errorf("the server was asked %d times for the result; want once for questions and once for the result", n)
	}
}

// keyIn returns the key of the question in an answer.
func keyIn(answer string) string {
	var m struct {
		Result struct{ InputRequests map[string]any }
	}
	json.Unmarshal([]byte(answer), &m)
	for key := range m.Result.InputRequests {
		return key
	}
	return ""
}

// A client that does not support tasks waits for the end of a task that the tool requires.
func TestLegacyTaskForClientWithoutTasks(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, s.Legacy)
	ann := agent{t: t, tr: tr, principal: "ann", meta: modernMeta}
	ended := make(chan string, 1)
	go func() { ended <- ann.do("tools/call", `"name":"slow"`) }()
	waitFor(t, "the task", func() bool { return s.Saw("tasks/get") > 0 })
	s.Set("task-1", "completed")
	expect(t, "slow", <-ended, `"id":7`, `"resultType":"complete"`, "done")
	expect(t, "a tool that can also run at once", ann.do("tools/call", `"name":"failing"`), "at once")

	state, key := stateOf(t, ann.do("tools/call", `"name":"confirm"`))
	expect(t, "after the answer", ann.do("tools/call", `"name":"confirm","requestState":"`+state+`","inputResponses":{"`+key+`":{"action":"accept"}}`), `"resultType":"complete"`, "done answered")

	resp, leave, err := open(t, tr, ann.request("tools/call", `"name":"slow"`))
	if err != nil {
		t.Fatal(err)
	}
	leave()
	resp.Body.Close()
	waitFor(t, "the task is cancelled", func() bool { return s.Status("task-3") == "cancelled" })
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within a minute: " + what)
		}
	}
}

// Another replica has the tasks of one that has ended, and takes the answers to their questions. A call
// without a task that has asked a question is lost, and so is a task whose session the server has ended:
// the client is told.
func TestTasksOfLostReplica(t *testing.T) {
	s := taskserver.New()
	server := httptest.NewServer(http.HandlerFunc(s.Legacy))
	t.Cleanup(server.Close)
	store := memstore.New(memstore.Options{})
	first, second := newReplica(t, time.Minute, server.URL, store), newReplica(t, time.Minute, server.URL, store)
	ann := agent{t: t, tr: first, principal: "ann", meta: tasksMeta}
	slow, confirm := idIn(t, ann.do("tools/call", `"name":"slow"`)), idIn(t, ann.do("tools/call", `"name":"confirm"`))
	key2 := keyIn(ann.do("tasks/get", about(confirm)))
	state, key := stateOf(t, agent{t: t, tr: first, principal: "ann", meta: modernMeta}.do("tools/call", `"name":"confirm"`))
	first.Close()

	ann.tr = second
	expect(t, "the task at another replica", ann.do("tasks/get", about(slow)), `"status":"working"`)
	s.Set("task-1", "completed")
	expect(t, "its end", ann.do("tasks/get", about(slow)), `"status":"completed"`, "done")
	plain := agent{t: t, tr: second, principal: "ann", meta: modernMeta}
	_, leave, err := open(t, second, plain.request("tools/call", `"name":"confirm","requestState":"`+state+`","inputResponses":{"`+key+`":{}}`))
	leave()
	if problem, ok := errors.AsType[*mcp.Problem](err); !ok || problem.Type != mcp.UpstreamInvalid || !strings.Contains(problem.Detail, "through another replica") {
		t.Errorf("a lost question: %v", err)
	}
	expect(t, "the call again", plain.do("tools/call", `"name":"confirm"`), `"resultType":"input_required"`)
	ann.do("tasks/update", about(confirm)+`,"inputResponses":{"`+key2+`":{"action":"accept"}}`)
	expect(t, "the answered task", ann.do("tasks/get", about(confirm)), "done answered")
	s.End("s1")
	gone := `"code":-32602,"message":"The server has ended the session of this task. The call may have run","data":{"error_type":"upstream_task_not_found"}`
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		expect(t, method+" without the session", ann.do(method, about(confirm)+`,"inputResponses":{"`+key2+`":{}}`), gone)
	}
	if s := ann.do("tools/call", `"name":"slow"`); idIn(t, s) == "" {
		t.Errorf("the next call: %s", s)
	}
}

// A modern client that listens to a task learns its steps.
func TestListenToLegacyTask(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, s.Legacy)
	ann := agent{t: t, tr: tr, principal: "ann", meta: tasksMeta}
	id := idIn(t, ann.do("tools/call", `"name":"slow"`))
	resp, leave, err := open(t, tr, ann.request("subscriptions/listen", `"notifications":{"taskIds":["`+id+`","task-1"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	expect(t, "first", nextEvent(t, events), "acknowledged", `"taskIds":["`+id+`"]`)
	expect(t, "the task", nextEvent(t, events), `"method":"notifications/tasks"`, id, `"status":"working"`, `subscriptionId":7`)
	s.Set("task-1", "completed")
	expect(t, "its end", nextEvent(t, events), id, `"status":"completed"`, `"result":{"content"`)
}

// nextEvent returns the next event of a stream.
func nextEvent(t *testing.T, events *bufio.Scanner) string {
	t.Helper()
	for events.Scan() {
		if data, ok := strings.CutPrefix(events.Text(), "data: "); ok && data != "" {
			return data
		}
	}
	t.Fatalf("the stream ended: %v", events.Err())
	return ""
}

// initialized returns a legacy client.
func initialized(t *testing.T, tr *translate.Translator, principal, version string) agent {
	t.Helper()
	_, text, session := ask(t, tr, sent{principal: principal, body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{"elicitation":{}},"clientInfo":{"name":"old","version":"1"}}}`})
	if version == "2025-11-25" {
		expect(t, "initialize", text, `"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)
	} else if strings.Contains(text, "tasks") {
		t.Errorf("a version without tasks: %s", text)
	}
	return agent{t: t, tr: tr, principal: principal, session: session}
}

// A legacy client uses the tasks of a modern server.
func TestTasksOfModernServer(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, s.Modern)
	ann := initialized(t, tr, "ann", "2025-11-25")
	expect(t, "tools", ann.do("tools/list", ""), `"execution":{"taskSupport":"optional"}`)
	made := ann.do("tools/call", `"name":"slow","task":{"ttl":1000}`)
	expect(t, "call", made, `"result":{"task":{"taskId":"task-1","status":"working"`, `"ttl":60000`, `"pollInterval":50`)
	expect(t, "get", ann.do("tasks/get", about("task-1")), `"result":{"taskId":"task-1","status":"working"`)
	for name, other := range map[string]agent{"another principal": initialized(t, tr, "bob", "2025-11-25"), "another session": initialized(t, tr, "ann", "2025-11-25")} {
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			expect(t, name+" "+method, other.do(method, about("task-1")), `"code":-32602`)
		}
		expect(t, name+" lists", other.do("tasks/list", ""), `"tasks":[]`)
	}
	ended := make(chan string, 1)
	go func() { ended <- ann.do("tasks/result", about("task-1")) }()
	waitFor(t, "the gate asks for the task", func() bool { return s.Saw("tasks/get") > 1 })
	s.Set("task-1", "completed")
	expect(t, "result", <-ended, `"content":[{"type":"text","text":"done "}]`, `"io.modelcontextprotocol/related-task":{"taskId":"task-1"}`)
	expect(t, "cancel the ended task", ann.do("tasks/cancel", about("task-1")), `"code":-32602`)

	ann.do("tools/call", `"name":"failing","task":{}`)
	expect(t, "an error of the tool", ann.do("tasks/get", about("task-2")), `"status":"failed"`, `"statusMessage":"no disk"`)
	expect(t, "its result", ann.do("tasks/result", about("task-2")), `"isError":true`)
	ann.do("tools/call", `"name":"broken","task":{}`)
	expect(t, "an error of the server", ann.do("tasks/result", about("task-3")), `"id":7`, `"error":{"code":-32000`)

	ann.do("tools/call", `"name":"slow","task":{}`)
	expect(t, "cancel", ann.do("tasks/cancel", about("task-4")), `"status":"cancelled"`, `"taskId":"task-4"`)
	s.Set("task-4", "completed") // a modern server may end it otherwise
	expect(t, "the cancelled task", ann.do("tasks/get", about("task-4")), `"status":"cancelled"`)
	expect(t, "its result", ann.do("tasks/result", about("task-4")), `"error":`, "cancelled")
	expect(t, "cancel again", ann.do("tasks/cancel", about("task-4")), `"code":-32602`)
	expect(t, "list", ann.do("tasks/list", ""), `"taskId":"task-1","status":"completed"`, `"taskId":"task-4","status":"cancelled"`)

	made = ann.do("tools/call", `"name":"plain","task":{}`)
	expect(t, "a call that the server answers at once", made, `"task":{"taskId":`, `"status":"working"`)
	id := idIn(t, made)
	expect(t, "it has ended", ann.do("tasks/get", about(id)), `"status":"completed"`)
	expect(t, "its result", ann.do("tasks/result", about(id)), "at once", `related-task":{"taskId":"`+id+`"`)
	expect(t, "a plain call", ann.do("tools/call", `"name":"plain"`), `"result":{"content":[{"type":"text","text":"at once"}]}`)
}

// A legacy client that does not ask for a task waits until that of the server has ended, and answers its
// questions meanwhile.
func TestModernTaskForWaitingClient(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2025-06-18"} {
		s := taskserver.New()
		tr := newTranslator(t, time.Minute, s.Modern)
		ann := initialized(t, tr, "ann", version)
		ended := make(chan string, 1)
		go func() { ended <- ann.do("tools/call", `"name":"slow"`) }()
		waitFor(t, "the gate asks for the task", func() bool { return s.Saw("tasks/get") > 0 })
		s.Set("task-1", "completed")
		expect(t, version, <-ended, `"id":7,"result":{"content":[{"type":"text","text":"done "}]}`)
		answerOn(t, ann, "tools/call", `"name":"confirm"`, "")
		resp, leave, err := open(t, tr, ann.request("tools/call", `"name":"slow"`))
		if err != nil {
			t.Fatal(err)
		}
		leave()
		resp.Body.Close()
		waitFor(t, "the task is cancelled", func() bool { return s.Status("task-3") == "cancelled" })
	}
}

// answerOn sends a request, answers the question in its stream, and expects the result.
func answerOn(t *testing.T, a agent, method, params, task string) {
	t.Helper()
	resp, leave, err := open(t, a.tr, a.request(method, params))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	asked := nextEvent(t, events)
	expect(t, "the question", asked, `"method":"elicitation/create"`, "sure?", task)
	var q struct{ ID json.RawMessage }
	json.Unmarshal([]byte(asked), &q)
	ask(t, a.tr, sent{principal: a.principal, session: a.session, body: `{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"accept"}}`})
	expect(t, "the result", nextEvent(t, events), `"id":7`, "done {'action':'accept'}", task)
}

// A legacy client answers the questions of a task in the stream of tasks/result, also at another replica.
func TestQuestionsOfModernTask(t *testing.T) {
	s := taskserver.New()
	server := httptest.NewServer(http.HandlerFunc(s.Modern))
	t.Cleanup(server.Close)
	store := memstore.New(memstore.Options{})
	first, second := newReplica(t, time.Minute, server.URL, store), newReplica(t, time.Minute, server.URL, store)
	ann := initialized(t, first, "ann", "2025-11-25")
	ann.do("tools/call", `"name":"confirm","task":{}`)
	expect(t, "get", ann.do("tasks/get", about("task-1")), `"status":"input_required"`)
	first.Close()
	ann.tr = second
	answerOn(t, ann, "tasks/result", about("task-1"), `"io.modelcontextprotocol/related-task":{"taskId":"task-1"}`)
}

// A legacy client learns the steps of its tasks in its stream.
func TestModernTaskInStream(t *testing.T) {
	s := taskserver.New()
	tr := newTranslator(t, time.Minute, s.Modern)
	ann := initialized(t, tr, "ann", "2025-11-25")
	ann.do("tools/call", `"name":"slow","task":{}`)
	resp, leave, err := open(t, tr, sent{principal: "ann", session: ann.session})
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	defer resp.Body.Close()
	waitFor(t, "the server has a listener", func() bool { return s.Listeners() == 1 })
	s.Set("task-1", "completed")
	expect(t, "the step", nextEvent(t, bufio.NewScanner(resp.Body)), `"method":"notifications/tasks/status"`, `"params":{"taskId":"task-1","status":"completed"`, `"ttl":60000`)
}

// Requests that change a session at the same time all count.
func TestConcurrentSubscriptions(t *testing.T) {
	s := taskserver.New()
	listened := make(chan string, 1)
	tr := newTranslator(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "subscriptions/listen" {
			body, _ := io.ReadAll(r.Body)
			listened <- string(body)
			return
		}
		s.Modern(w, r)
	})
	ann := initialized(t, tr, "ann", "2025-11-25")
	const n = 20
	var subscribing sync.WaitGroup
	for i := range n {
		subscribing.Go(func() {
			expect(t, "subscribe", ann.do("resources/subscribe", `"uri":"book://`+strconv.Itoa(i)+`."`), `"result":{}`)
			expect(t, "a task", ann.do("tools/call", `"name":"slow","task":{}`), `"status":"working"`)
		})
	}
	subscribing.Wait()
	_, leave, err := open(t, tr, sent{principal: "ann", session: ann.session})
	defer leave()
	if err != nil {
		t.Fatal(err)
	}
	wanted := <-listened
	for i := range n {
		expect(t, "the server is asked for", wanted, `"book://`+strconv.Itoa(i)+`."`, `"task-`+strconv.Itoa(i+1)+`"`)
	}
}
