package mcphttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// whoever are clients that the gate can tell from others, and that it cannot.
var whoever = map[string][]string{"a session": nil, "a stranger": nobody}

// Reports of a legacy upstream on a task that it made of a held call are not for the
// client, also when the held call has ended: it is cancelled there only after that.
func TestUpstreamTasksOfHeldCallsAreNotHeardOf(t *testing.T) {
	for who, headers := range whoever {
		t.Run(who, func(t *testing.T) {
			p, radio := newRadioFixture(t, 5*time.Millisecond)
			radio.greets = false
			next := p.stream(t, http.MethodGet, "", headers...)
			own := p.start(toolCall("3", "hold_required", `,"task":{}`), headers...)
			eventually(t, "the gate knows the task", func() bool {
				now, err := p.desk.Get(t.Context(), task.AnyOwner().Ref(task.ID(own)))
				return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
			})
			upstreams := p.server.made()[0]
			say := func(id, status string) {
				radio.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":%q,"status":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null}}`, id, status))
			}
			say(upstreams, "working")
			wantText(t, "cancel", p.ask(legacyAbout("tasks/cancel", own), headers...), `"status":"cancelled"`)
			say(upstreams, "cancelled")
			say("theirs", "working")
			for told := ""; !strings.Contains(told, "theirs"); {
				if told = next(); strings.Contains(told, upstreams) {
					t.Errorf("the client is told of %s: %s", upstreams, told)
				}
			}
		})
	}
}

// A question of a legacy upstream on the GET stream, because of a task that it made
// of a held call, belongs to the task that the client knows.
func TestQuestionOnGetStream(t *testing.T) {
	p, radio := newRadioFixture(t, 5*time.Millisecond)
	radio.greets = false
	next := p.stream(t, http.MethodGet, "")
	own := p.start(toolCall("3", "hold_required", `,"task":{}`))
	eventually(t, "the gate knows the task", func() bool { return p.state(own).Execution.UpstreamTask != "" })
	ask := func(id string) {
		radio.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"sure?","_meta":{"io.modelcontextprotocol/related-task":{"taskId":%q}}}}`, id))
	}
	ask(p.server.made()[0])
	ask("theirs")
	for told := ""; !strings.Contains(told, "elicitation/create"); {
		if told = next(); strings.Contains(told, "elicitation/create") {
			wantText(t, "the client", told, `"io.modelcontextprotocol/related-task":{"taskId":"`+own+`"}`, "sure?")
		}
	}
	for told := ""; !strings.Contains(told, "elicitation/create"); {
		if told = next(); strings.Contains(told, "elicitation/create") {
			wantText(t, "the client", told, `{"taskId":"theirs"}`)
		}
	}
}
