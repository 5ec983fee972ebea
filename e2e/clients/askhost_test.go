package clients_test

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/demo"
)

// With ask_host, the gate asks the official Go client once to open the approval page. The
// client declines immediately, as hosts without a user do. Its call still waits for the
// decision and gets the result.
func TestGoAskedAtHost(t *testing.T) {
	bothEras(t, func(t *testing.T, version string) {
		s := &site{demo: demo.New()}
		s.url, s.operator, s.token = openGate(t, s.demo, `
rules: [{match: delete_file, action: approve}]
default: forward
workflows: {default: {ask_host: true}}
waiting: {hold: `+longHold+`}
`)
		asked, completed := make(chan *mcp.ElicitParams, 10), make(chan string, 10)
		end := connectGoWith(t, s, version, "", &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
			ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked <- r.Params
				return &mcp.ElicitResult{Action: "decline"}, nil
			},
			ElicitationCompleteHandler: func(_ context.Context, r *mcp.ElicitationCompleteNotificationRequest) {
				completed <- r.Params.ElicitationID
			},
		}).remove(t.Context(), bonuses)
		held := s.pending(t)
		if question := receive(t, asked); question.Mode != "url" || question.URL != s.operator+"/approvals/"+held.ID {
			t.Errorf("asked %+v; want an invitation to the page of %s", question, held.ID)
		}
		s.ran(t, 0)
		s.approve(t, held)
		deleted(t, receive(t, end))
		s.ran(t, 1)
		if version == legacyVersion {
			if id := receive(t, completed); id != held.ID {
				t.Errorf("the elicitation %s was completed; want %s", id, held.ID)
			}
		}
		if len(asked) != 0 {
			t.Errorf("asked again: %+v", <-asked)
		}
	})
}
