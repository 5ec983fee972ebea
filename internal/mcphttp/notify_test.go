package mcphttp_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// stream opens a stream and returns a function that reads its next message.
func (h *fixture) stream(t *testing.T, method, message string, headers ...string) (next func() string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	events := jsonrpc.NewEventReader(resp.Body, 1<<20)
	return func() string {
		t.Helper()
		for {
			e, err := events.Next()
			if err != nil {
				t.Fatalf("the stream ended: %v", err)
			}
			if len(e.Data) > 0 {
				return string(e.Data)
			}
		}
	}
}

// F-006.3: a legacy client is notified of its own tasks on its GET stream, between the
// upstream's events.
func TestStatusOnGetStream(t *testing.T) {
	h := newFixture(t, nil)
	h.get = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/hello\"}\n\ndata: {\"unfini")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	next := h.stream(t, http.MethodGet, "")
	other := h.stream(t, http.MethodGet, "", "Mcp-Session-Id", "s-2")
	wantText(t, "a notification of the upstream", next(), "notifications/hello")
	wantText(t, "the upstream's", other(), "notifications/hello")

	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	wantText(t, "held", next(), `"method":"notifications/tasks/status"`, id, `"status":"working"`)
	h.reject(task.ID(id), "no")
	for message := ""; !strings.Contains(message, `"status":"failed"`); {
		message = next()
		wantText(t, "later", message, id)
	}

	foreign := taskID(t, h.ask(toolCall("3", "hold_y", `,"task":{}`), "Mcp-Session-Id", "s-2"))
	wantText(t, "the other client's own", other(), foreign)
}

// A modern client is notified of the tasks it names, if they are its own, starting with their
// current state.
func TestStatusOnSubscription(t *testing.T) {
	h := newFixture(t, nil)
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	foreignHeaders := modernHeaders("hold_x")
	foreignHeaders[9] = "Bearer other"
	foreign := taskID(t, h.ask(modernCall("hold_x", tasksExtension), foreignHeaders...))
	headers := modernHeaders("")
	headers[3] = "subscriptions/listen"
	listen := `{"jsonrpc":"2.0","id":"l1","method":"subscriptions/listen","params":{"notifications":{"taskIds":["` + id + `","` + foreign + `"]},` + modernMeta(tasksExtension) + `}}`

	next := h.stream(t, http.MethodPost, listen, headers...)
	acknowledged := next()
	wantText(t, "acknowledgement", acknowledged, `"notifications/subscriptions/acknowledged"`, `"taskIds":["`+id+`"]`, `"io.modelcontextprotocol/subscriptionId":"l1"`)
	wantText(t, "status", next(), `"method":"notifications/tasks"`, id, `"status":"working"`)
	h.approve(task.ID(id)) // the subscription counts as contact, so it runs
	last := ""
	for !strings.Contains(last, `"status":"completed"`) {
		last = next()
		wantText(t, "later", last, id, `"io.modelcontextprotocol/subscriptionId":"l1"`)
	}
	wantText(t, "result", last, "done hold_x")

	undeclared := h.send(strings.Replace(listen, tasksExtension, "", 1), headers...)
	wantText(t, "without the extension", undeclared.wait(t), `"code":-32021`)
}

// GOV-004 10.2 "TG-SSE: approval received", "TG-SSE: execution started", "TG-SSE: completed",
// "TG-SSE: cancelled", "TG-SSE: rejected", F-012.1, F-012.2, F-012.3, F-012.4, F-012.5: the GET
// stream reports every step once, in order, with its status and message.
func TestStatusOfEveryStep(t *testing.T) {
	const approved, running = `"status":"working","statusMessage":"Approved`, `"status":"working","statusMessage":"Running`
	tests := map[string]struct {
		do   func(h *fixture, id string)
		want []string
	}{
		"completed": {func(h *fixture, id string) {
			h.approve(task.ID(id))
			h.ask(legacyAbout("tasks/result", id))
		}, []string{approved, running, `"status":"completed"`}},
		"failed": {func(h *fixture, id string) {
			h.answer = func(w http.ResponseWriter, id string) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-1,"message":"no"}}`)
			}
			h.approve(task.ID(id))
			h.ask(legacyAbout("tasks/result", id))
		}, []string{approved, running, `"status":"failed"`}},
		"rejected":  {func(h *fixture, id string) { h.reject(task.ID(id), "") }, []string{`"status":"failed","statusMessage":"Rejected`}},
		"cancelled": {func(h *fixture, id string) { h.ask(legacyAbout("tasks/cancel", id)) }, []string{`"status":"cancelled"`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.get = silent
			next := h.stream(t, http.MethodGet, "")
			next()
			id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
			wantText(t, "held", next(), id, `"status":"working","statusMessage":"Waiting for approval by default`)
			tt.do(h, id)
			for _, want := range tt.want {
				wantText(t, name, next(), `"method":"notifications/tasks/status"`, id, want)
			}
		})
	}
}

// GOV-004 10.2 "TG-SSE: expired", "TG-SSE: no subscribers".
func TestStatusOfExpiry(t *testing.T) {
	var shift atomic.Int64
	h := newFixture(t, func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
		c.Sweep = 20 * time.Millisecond
	})
	h.get = silent
	unheard := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	next := h.stream(t, http.MethodGet, "", "Mcp-Session-Id", "s-2")
	next()
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`), "Mcp-Session-Id", "s-2"))
	wantText(t, "held", next(), id, `"status":"working"`)
	shift.Store(int64(61 * time.Minute)) // longer than the workflow allows
	wantText(t, "expired", next(), id, `"status":"failed"`, "in time")
	wantText(t, "unheard", h.ask(legacyAbout("tasks/get", unheard)), `"status":"failed"`)
}

// silent answers GET with a stream that has one event and then stays silent.
func silent(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/hello\"}\n\n")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// F-012: a client that waits for a result is notified on that stream, or on its GET stream if
// it has one, but not on both.
func TestStatusOnResultStream(t *testing.T) {
	h := newFixture(t, nil)
	h.get = silent
	id := taskID(t, h.ask(toolCall("3", "hold_x", `,"task":{}`)))
	other := taskID(t, h.ask(toolCall("3", "hold_y", `,"task":{}`)))
	result := h.stream(t, http.MethodPost, legacyAbout("tasks/result", id))
	eventually(t, "the client listens", func() bool { return h.conversations.OpenStreams() == 1 })
	h.reject(task.ID(other), "") // the stream belongs to another task
	h.approve(task.ID(id))
	message := ""
	for !strings.Contains(message, "done hold_x") {
		if message = result(); strings.Contains(message, other) {
			t.Errorf("notification about another task: %s", message)
		}
		wantText(t, "meanwhile", message, id)
		if strings.Contains(message, `"status":"working"`) && !strings.Contains(message, "notifications/tasks/status") {
			t.Errorf("unexpected message: %s", message)
		}
	}

	get := h.stream(t, http.MethodGet, "")
	get()
	id = taskID(t, h.ask(toolCall("3", "hold_z", `,"task":{}`)))
	told := func() string { // of this task: the last steps of the other one may come here as well
		for {
			if message := get(); strings.Contains(message, id) {
				return message
			}
		}
	}
	wantText(t, "GET", told(), "Waiting for approval")
	result = h.stream(t, http.MethodPost, legacyAbout("tasks/result", id))
	h.approve(task.ID(id))
	wantText(t, "GET", told(), "Approved")
	wantText(t, "GET", told(), "Running")
	wantText(t, "GET", told(), "completed")
	wantText(t, "the result stream", result(), "done hold_z")
}

func TestOldVersionsGetNoStatus(t *testing.T) {
	h := newFixture(t, nil)
	h.get = silent
	old := h.stream(t, http.MethodGet, "", "MCP-Protocol-Version", "2025-06-18")
	old()
	held := h.send(toolCall("3", "hold_x", ""), "MCP-Protocol-Version", "2025-06-18")
	h.approve(h.pending(1)[0])
	wantText(t, "the call", held.wait(t), "done hold_x")
	h.conversations.ListsChanged()
	wantText(t, "the first thing told", old(), "tools/list_changed")
}

// A decision at one replica is sent on a stream at another, once.
func TestStatusFromAnotherReplica(t *testing.T) {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	share := func(_ *catalog.Settings, c *approval.Config, _ *conversation.Waiting) { c.Store = store }
	a, b := newFixture(t, share), newFixture(t, share)
	a.get = silent
	get := a.stream(t, http.MethodGet, "")
	get()
	id := taskID(t, b.ask(toolCall("3", "hold_x", `,"task":{}`)))
	wantText(t, "held at b", get(), id, "Waiting for approval")
	modern := taskID(t, b.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	listen, headers := listenTo(modern)
	next := a.stream(t, http.MethodPost, listen, headers...)
	wantText(t, "acknowledgement", next(), modern)
	wantText(t, "status", next(), modern, "Waiting for approval")

	b.approve(task.ID(id))
	b.approve(task.ID(modern))
	wantText(t, "approved at b", get(), id, "Approved")
	for _, want := range []string{"Approved", "Running", "done hold_x"} {
		wantText(t, "approved at b", next(), modern, want)
	}
	wantText(t, "run at b", b.ask(legacyAbout("tasks/result", id)), "done hold_x")
	for _, want := range []string{"Running", `"status":"completed"`} {
		wantText(t, "run at b", get(), id, want)
	}
	if a, b := a.ran(), b.ran(); len(a)+len(b) != 2 {
		t.Errorf("ran %v at a and %v at b; want both calls once", a, b)
	}
}

// listenTo returns a request to subscribe to tasks, and its headers.
func listenTo(ids ...string) (string, []string) {
	return listenFor(`"taskIds":["` + strings.Join(ids, `","`) + `"]`)
}

func listenFor(wishes string) (string, []string) {
	headers := modernHeaders("")
	headers[3] = "subscriptions/listen"
	return `{"jsonrpc":"2.0","id":"l1","method":"subscriptions/listen","params":{"notifications":{` + wishes + `},` + modernMeta(tasksExtension) + `}}`, headers
}

// One stream carries notifications of the gate and of the upstream. The upstream never gets the
// gate's task IDs.
func TestSubscriptionMergesNotifications(t *testing.T) {
	h := newFixture(t, nil)
	release, id := make(chan struct{}), ""
	h.listen = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": hi\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":\"l1\"},\"notifications\":{\"toolsListChanged\":true,\"taskIds\":[\"theirs\"]}}}\n\ndata: {\"half")
		w.(http.Flusher).Flush()
		<-release
		io.WriteString(w, "\":1}\n\n")
		for _, task := range []string{id, `\u0074` + id[1:], `x","taskId":"` + id} { // only the gate may report on its own task
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tasks\",\"params\":{\"taskId\":\"%s\",\"status\":\"completed\"}}\n\n", task)
		}
		io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tasks\",\"params\":{\"taskId\":\"theirs\",\"statusMessage\":\"\\u00e9\"}}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	id = taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	listen, headers := listenFor(`"toolsListChanged":true,"taskIds":["theirs","` + id + `","tg_unknown","` + id + `"]`)
	next := h.stream(t, http.MethodPost, listen, headers...)
	wantText(t, "acknowledgement", next(), `"notifications":{"toolsListChanged":true,"taskIds":["theirs","`+id+`"]}`, `"io.modelcontextprotocol/subscriptionId":"l1"`)
	wantText(t, "status", next(), id, "Waiting for approval", `"io.modelcontextprotocol/subscriptionId":"l1"`)
	close(release)
	wantText(t, "the upstream's event", next(), `{"half":1}`)
	wantText(t, "the upstream's task", next(), `"theirs"`)
	h.conversations.ListsChanged()
	wantText(t, "lists", next(), "tools/list_changed")
	h.approve(task.ID(id))
	for _, want := range []string{"Approved", "Running", "done hold_x"} {
		wantText(t, "later", next(), id, want)
	}
	if asked := h.listened(); len(asked) != 1 || strings.Contains(asked[0], "tg_") || !strings.Contains(asked[0], `"notifications":{"toolsListChanged":true,"taskIds":["theirs"]}`) {
		t.Errorf("the upstream was asked %q", asked)
	}
}

// A notification with the method of a subscription does not subscribe. It is forwarded unless
// it names a task of the gate.
func TestListenNotificationDoesNotSubscribe(t *testing.T) {
	h := newFixture(t, nil)
	h.listen = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
	for wishes, want := range map[string]int{
		`"taskIds":["` + id + `"]`:                                  http.StatusAccepted,
		`"toolsListChanged":true,"taskIds":["theirs","` + id + `"]`: http.StatusAccepted,
		`"toolsListChanged":true`:                                   http.StatusNotFound,
	} {
		listen, headers := listenFor(wishes)
		headers = slices.Delete(headers, 4, 6) // Mcp-Name
		told := h.send(strings.Replace(listen, `"id":"l1",`, "", 1), headers...)
		if body := told.wait(t); told.status != want || body != "" {
			t.Errorf("%s: got %d %q; want %d and nothing else", wishes, told.status, body, want)
		}
	}
	if heard := h.listened(); len(heard) != 1 || strings.Contains(heard[0], "tg_") {
		t.Errorf("the upstream got %q; want only messages without a task of the gate", heard)
	}
}

// The gate notifies of its own tasks even if the upstream refuses the subscription.
func TestSubscriptionWithoutUpstream(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"unknown method": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"jsonrpc":"2.0","id":"l1","error":{"code":-32601,"message":"Method not found"}}`)
		},
		"error in JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":"l1","error":{"code":-32603,"message":"no"}}`)
		},
		"error on a stream": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"l1\",\"error\":{\"code\":-32603,\"message\":\"no\"}}\n\n")
		},
		"broken": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	for name, refuse := range tests {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.listen = refuse
			id := taskID(t, h.ask(modernCall("hold_x", tasksExtension), modernHeaders("hold_x")...))
			listen, headers := listenFor(`"toolsListChanged":true,"taskIds":["` + id + `"]`)
			next := h.stream(t, http.MethodPost, listen, headers...)
			wantText(t, "acknowledgement", next(), `"notifications":{"toolsListChanged":true,"taskIds":["`+id+`"]}`)
			wantText(t, "status", next(), id, "Waiting for approval")
			h.reject(task.ID(id), "")
			wantText(t, "rejected", next(), id, "Rejected")
		})
	}
	t.Run("unauthorized", func(t *testing.T) {
		h := newFixture(t, nil)
		h.listen = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you?", http.StatusUnauthorized) }
		listen, headers := listenFor(`"toolsListChanged":true,"taskIds":["tg_x"]`)
		r := h.send(listen, headers...)
		r.wait(t)
		if r.status != http.StatusUnauthorized {
			t.Errorf("status %d; want the upstream status 401", r.status)
		}
	})
}

// After a policy change, legacy sessions and interested modern subscriptions are notified once.
func TestListsChanged(t *testing.T) {
	h := newFixture(t, nil)
	quiet := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/hello\"}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	h.get = quiet
	h.answer = nil
	legacy := h.stream(t, http.MethodGet, "")
	wantText(t, "legacy", legacy(), "hello")
	headers := modernHeaders("")
	headers[3] = "subscriptions/listen"
	h.listen = quiet
	modern := h.stream(t, http.MethodPost, `{"jsonrpc":"2.0","id":"l1","method":"subscriptions/listen","params":{"notifications":{"promptsListChanged":true},`+modernMeta("")+`}}`, headers...)
	wantText(t, "modern", modern(), "hello")

	h.conversations.ListsChanged()

	for _, kind := range []string{"tools", "prompts", "resources"} {
		wantText(t, "legacy", legacy(), `{"jsonrpc":"2.0","method":"notifications/`+kind+`/list_changed"}`)
	}
	wantText(t, "modern", modern(), `"notifications/prompts/list_changed"`, `"io.modelcontextprotocol/subscriptionId":"l1"`)
}

// A list on a resumed stream is filtered like any other. Everything else on that stream stays
// unchanged.
func TestListOnResumedStream(t *testing.T) {
	h := newFixture(t, func(s *catalog.Settings, _ *approval.Config, _ *conversation.Waiting) { s.HideDenied = true })
	const call = `{"jsonrpc":"2.0","id":2,"result":{"content":[],"tools":[{"name":"secret"}]}}`
	big := `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 100_000) + `"}]}}`
	h.get = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "id: a\ndata: \n\n: comment\n\nid: b\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[{\"name\":\"get_x\"},{\"name\":\"secret\"},{\"name\":\"hold_x\"}]}}\n\n"+
			"data: "+call+"\n\ndata: "+big+"\n\ndata: no JSON\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	h.beginStreams("1", "2", "3")
	next := h.stream(t, http.MethodGet, "", "Last-Event-Id", "a")
	list := next()
	wantText(t, "the list", list, `{"name":"get_x"`, `"taskSupport":"optional"`)
	if strings.Contains(list, "secret") {
		t.Errorf("the list has a denied tool: %s", list)
	}
	for _, want := range []string{call, big, "no JSON"} {
		if got := next(); got != want {
			t.Errorf("got %.200s; want it unchanged, %.200s", got, want)
		}
	}
}
