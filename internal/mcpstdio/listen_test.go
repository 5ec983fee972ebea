package mcpstdio_test

import (
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// withTasks is the _meta of a modern client with the tasks extension.
const withTasks = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// holdTask holds a call as a task of a modern client, and returns its ID.
func (s *fixture) holdTask() string {
	s.t.Helper()
	created, err := jsonrpc.ParseMessage([]byte(s.ask("1", "tools/call", `{"name":"delete","arguments":{},`+withTasks+`}`)), jsonrpc.Limits{})
	if err != nil {
		s.t.Fatal(err)
	}
	id, _ := created.Result.Member("taskId").Text()
	return id
}

// listen subscribes to a task of the gate, and to tasks of the server.
func (s *fixture) listen(id, more string) {
	s.t.Helper()
	s.say(`{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen","params":{"notifications":{"taskIds":["` + id + `"],` + more + `},` + withTasks + `}}`)
}

// A modern client is notified of its task on a subscription, with and without the server.
func TestModernListen(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	id := s.holdTask()
	s.listen(id, `"toolsListChanged":true`)
	contains(t, s.next(), "acknowledged", `/subscriptionId":"sub"`, `"toolsListChanged":true`, `"taskIds":["`+id+`"]`)
	contains(t, s.next(), `"working"`)
	s.decide(s.held(), approval.Approve)
	for !strings.Contains(s.next(), "ran delete") {
		continue
	}
	s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"sub"}}`)
	s.eventually("the server is told that the client listens no more", func() bool { return s.sawWith("notifications/cancelled") == 1 })
	for _, line := range s.saw() {
		if strings.Contains(line, "listen") && strings.Contains(line, id) {
			t.Errorf("the server got a message about a task of the gate: %s", line)
		}
	}
}

// A notification with the method of a subscription does not subscribe. The server does not
// learn task IDs of the gate, and the client does not count as present after it has left.
func TestListenNotificationDoesNotSubscribe(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	id := s.holdTask()
	for _, more := range []string{"", `,"toolsListChanged":true`} {
		s.say(`{"jsonrpc":"2.0","method":"subscriptions/listen","params":{"notifications":{"taskIds":["` + id + `"]` + more + `},` + withTasks + `}}`)
	}
	contains(t, s.ask("2", "tools/call", `{"name":"echo","arguments":{},`+withTasks+`}`), "ran echo")
	if len(s.notifications) > 0 {
		t.Errorf("the client got %q", s.notifications)
	}
	s.close()
	s.finish()
	if n := s.sawWith(id); n != 0 {
		t.Errorf("the server got %d messages about the task", n)
	}
}

// The client is notified once of each step.
func TestRepeatedAcknowledgement(t *testing.T) {
	t.Parallel()
	const times = 50
	s := open(t, options{})
	id := s.holdTask()
	s.listen(id, `"acknowledgements":50`)
	acknowledged, working := 0, 0
	count := func(line string) {
		if strings.Contains(line, "acknowledged") {
			acknowledged++
		}
		if strings.Contains(line, `"working"`) {
			working++
		}
	}
	for acknowledged < times || working == 0 {
		count(s.next())
	}
	s.decide(s.held(), approval.Reject)
	ended := 0
	for ended == 0 {
		line := s.next()
		count(line)
		if strings.Contains(line, `"completed"`) {
			ended++
		}
	}
	contains(t, s.ask("2", "tools/call", `{"name":"echo","arguments":{},`+withTasks+`}`), "ran echo")
	for _, line := range s.notifications {
		count(line)
		if strings.Contains(line, `"completed"`) {
			ended++
		}
	}
	if acknowledged != times || working != 1 || ended != 1 {
		t.Errorf("%d acknowledgements, %d statuses working and %d final statuses; want %d, 1 and 1", acknowledged, working, ended, times)
	}
}

// A subscription ends when the server ends it with an error or exits. The client is told once,
// and can subscribe again.
func TestListenEndsAfterAcknowledgement(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]string{"error": "no more", "crash": "the server ended before it answered"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := open(t, options{restarts: 1})
			id := s.holdTask()
			s.listen(id, `"end":"`+end+`"`)
			contains(t, s.answer(`"sub"`), want)
			contains(t, s.ask("2", "tools/call", `{"name":"echo","arguments":{},`+withTasks+`}`), "ran echo")
			s.close()
			s.finish()
			acknowledged := 0
			for _, line := range s.notifications {
				if strings.Contains(line, "acknowledged") {
					acknowledged++
				}
			}
			if acknowledged != 1 {
				t.Errorf("the client got %q; want one acknowledgement", s.notifications)
			}
		})
	}
}
