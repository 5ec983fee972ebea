package mcphttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// clientKinds has clients that the gate can and cannot distinguish.
var clientKinds = map[string][]string{"a session": nil, "without a session": unidentified}

// Reports are hidden also after the held call has ended, because the task of the upstream is
// cancelled later.
func TestReportsOnNestedTasksAreHidden(t *testing.T) {
	for kind, headers := range clientKinds {
		t.Run(kind, func(t *testing.T) {
			p, notifier := newNotifierFixture(t, 5*time.Millisecond)
			notifier.acknowledges = false
			next := p.stream(t, http.MethodGet, "", headers...)
			own := p.start(toolCall("3", "hold_required", `,"task":{}`), headers...)
			eventually(t, "the gate knows the task", func() bool {
				now, err := p.approvals.Get(t.Context(), task.AnyOwner().Ref(task.ID(own)))
				return err == nil && now.Execution != nil && now.Execution.UpstreamTask != ""
			})
			upstreams := p.server.made()[0]
			say := func(id, status string) {
				notifier.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":%q,"status":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null}}`, id, status))
			}
			say(upstreams, "working")
			wantText(t, "cancel", p.ask(legacyAbout("tasks/cancel", own), headers...), `"status":"cancelled"`)
			say(upstreams, "cancelled")
			say("theirs", "working")
			for told := ""; !strings.Contains(told, "theirs"); {
				if told = next(); strings.Contains(told, upstreams) {
					t.Errorf("the client sees %s: %s", upstreams, told)
				}
			}
		})
	}
}

// The question belongs to the task that the upstream made of a held call.
func TestQuestionOnGetStreamNamesClientTask(t *testing.T) {
	p, notifier := newNotifierFixture(t, 5*time.Millisecond)
	notifier.acknowledges = false
	next := p.stream(t, http.MethodGet, "")
	own := p.start(toolCall("3", "hold_required", `,"task":{}`))
	eventually(t, "the gate knows the task", func() bool { return p.state(own).Execution.UpstreamTask != "" })
	ask := func(id string) {
		notifier.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"sure?","_meta":{"io.modelcontextprotocol/related-task":{"taskId":%q}}}}`, id))
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
