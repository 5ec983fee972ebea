package gosdktask_test

import (
	"bufio"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// A client of 2026-07-28 is only notified of the tasks that its subscription names.
func TestSubscriberIsOnlyNotifiedOfItsTasks(t *testing.T) {
	s := newSite(t, stateless)
	id := s.modern("tools/call", `{"name":"ask"}`).member("taskId")
	messages := s.listen(`{"taskIds":["` + id + `","another"]}`)
	first := <-messages
	if first.Method != "notifications/subscriptions/acknowledged" || !strings.Contains(string(first.Params), `"taskIds":["`+id+`"]`) {
		t.Errorf("first message: %s %s", first.Method, first.Params)
	}
	asked := answer{}
	for m := range messages {
		if asked.Result = m.Params; asked.member("status") == "input_required" {
			break
		}
	}
	if asked.member("_meta", "io.modelcontextprotocol/subscriptionId") != "l1" {
		t.Errorf("notification: %s", asked.Result)
	}
	var questions map[string]json.RawMessage
	if err := json.Unmarshal([]byte(asked.member("inputRequests")), &questions); err != nil {
		t.Fatal(err)
	}
	for key := range questions {
		s.modern("tasks/update", update(id, key))
	}
	var last answer
	for m := range messages { // until the server ends the stream
		if m.Method == "notifications/tasks" {
			last.Result = m.Params
		}
	}
	if last.member("status") != "completed" || !strings.Contains(last.member("result"), "Hello, Ann!") {
		t.Errorf("last notification: %s", last.Result)
	}
}

// listen subscribes a client of 2026-07-28 to notifications, with the id l1.
func (s *site) listen(notifications string) <-chan message {
	s.t.Helper()
	header := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}
	maps.Copy(header, s.head)
	return s.stream(`{"jsonrpc":"2.0","id":"l1","method":"subscriptions/listen","params":`+modernParams(`{"notifications":`+notifications+`}`)+`}`, header)
}

// update returns the params of a tasks/update that answers a question of a task.
func update(id, key string) string {
	return `{"taskId":"` + id + `","inputResponses":{"` + key + `":{"action":"accept","content":{"name":"Ann"}}}}`
}

// The acknowledgement of a subscription leaves out the task of another owner, and the stream
// ends.
func TestSubscriptionIgnoresTasksOfOtherOwners(t *testing.T) {
	s := newSite(t, stateless)
	s.head = http.Header{"Authorization": {"Bearer alice"}}
	id := s.modern("tools/call", `{"name":"wait"}`).member("taskId")
	for _, other := range []http.Header{{"Authorization": {"Bearer bob"}}, nil} {
		s.head = other
		messages := s.listen(`{"taskIds":["` + id + `"]}`)
		if first := <-messages; !strings.Contains(string(first.Params), `"taskIds":[]`) {
			t.Fatalf("%v: acknowledgement: %s", other, first.Params)
		}
		for m := range messages {
			if m.Method != "" {
				t.Fatalf("%v was sent %s", other, m.Params)
			}
		}
	}
}

// A subscription to tasks and to something else is one stream. It delivers both, and stays open
// after the tasks have ended.
func TestMixedSubscriptionOutlivesTasks(t *testing.T) {
	s := newSite(t, stateless)
	id := s.modern("tools/call", `{"name":"wait"}`).member("taskId")
	messages := s.listen(`{"toolsListChanged":true,"taskIds":["` + id + `"]}`)
	first := answer{Result: (<-messages).Params}
	if first.member("notifications", "toolsListChanged") != "true" || first.member("notifications", "taskIds") != `["`+id+`"]` {
		t.Errorf("acknowledgement: %s", first.Result)
	}
	changes := 0
	for m := range messages {
		got := answer{Result: m.Params}
		if got.member("_meta", "io.modelcontextprotocol/subscriptionId") != "l1" {
			t.Errorf("%s %s", m.Method, m.Params)
		}
		switch {
		case m.Method == "notifications/tasks" && got.member("taskId") == id && got.member("status") == "working":
			s.server.RemoveTools("forbidden")
		case m.Method == "notifications/tools/list_changed":
			if changes++; changes == 2 {
				return
			}
			s.modern("tasks/cancel", `{"taskId":"`+id+`"}`)
		case m.Method == "notifications/tasks" && got.member("taskId") == id && got.member("status") == "cancelled":
			s.server.RemoveTools("broken")
		default:
			t.Errorf("%s %s", m.Method, m.Params)
		}
	}
	t.Errorf("the stream ended after %d changes of the list", changes)
}

// A client of 2025-11-25 is notified of its tasks on the stream of its session.
func TestSessionIsNotifiedOfItsTasks(t *testing.T) {
	s := newSite(t, nil)
	s.post("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	s.notify("notifications/initialized")
	messages := s.stream("", http.Header{"Mcp-Protocol-Version": {"2025-11-25"}, "Mcp-Session-Id": s.head["Mcp-Session-Id"]})
	s.isTold(messages)
	other := &site{t: t, url: s.url}
	other.post("initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`)
	other.notify("notifications/initialized")
	others := other.stream("", http.Header{"Mcp-Protocol-Version": {"2025-11-25"}, "Mcp-Session-Id": other.head["Mcp-Session-Id"]})
	s.isTold(messages) // and the other session is not
	other.isTold(others)
}

// isTold makes a task and cancels it, and expects only messages about that task.
func (s *site) isTold(messages <-chan message) {
	s.t.Helper()
	id := s.post("tools/call", `{"name":"wait","task":{}}`).member("task", "taskId")
	s.post("tasks/cancel", `{"taskId":"`+id+`"}`)
	for m := range messages {
		got := answer{Result: m.Params}
		if m.Method != "notifications/tasks/status" || got.member("taskId") != id || got.member("_meta") != "" {
			s.t.Errorf("%s %s", m.Method, m.Params)
		}
		if got.member("status") == "cancelled" {
			return
		}
	}
	s.t.Error("the client was not notified that the task was cancelled")
}

// A message is a message that the server sends without a request.
type message struct {
	Method string
	Params json.RawMessage
}

// stream returns the messages of a stream until it ends. The stream is the answer to a request
// or, without a request, that of the session.
func (s *site) stream(request string, header http.Header) <-chan message {
	s.t.Helper()
	method := http.MethodPost
	if request == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(request))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = header
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		s.t.Fatal(res.Status)
	}
	messages := make(chan message, 100)
	go func() {
		defer close(messages)
		defer res.Body.Close()
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			var m message
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &m) == nil {
				messages <- m
			}
		}
	}()
	return messages
}
