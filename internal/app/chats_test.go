package app_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/channel/chattest"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/slacktest"
)

// A chat is a fake of a chat service.
type chat interface {
	Settings() string
	Restart(gate func() (decisions string))   // returns when presses can arrive
	Press(account, data string) (told string) // told is what the account is told
	Forge(account, data string) (status int)  // a press that is not from the service
	Says(text string) (last chattest.Message) // waits for that
}

// stranger is an account without the right to approve.
const stranger = "9"

// A slackChat is a workspace of Slack as a chat.
type slackChat struct {
	*slacktest.Workspace

	t         *testing.T
	decisions string
}

func (s *slackChat) Settings() string { return strings.TrimPrefix(chatOf(s.Workspace), "chat: ") }

func (s *slackChat) Restart(gate func() string) { s.Reconnects(func() { s.decisions = gate() }) }

func (s *slackChat) Says(text string) chattest.Message {
	s.Workspace.Says(text)
	m := s.Posted(1)
	return chattest.Message{Text: m.Blocks, Buttons: map[string]string{"Approve": m.Value("approve")}}
}

func (s *slackChat) Press(account, data string) (told string) {
	tellings, before := s.Tellings(), s.Posted(1).Blocks
	user := map[string]string{chattest.Alice: "U1", stranger: "U2"}[account]
	s.Click(user, "approve", data, slacktest.ChannelID)
	s.Eventually("the press has an effect", func() bool { return s.Tellings() > tellings || s.Posted(1).Blocks != before })
	if s.Tellings() > tellings {
		told = s.Told(tellings + 1)
	}
	return told
}

// Forge sends a request: presses in Slack arrive only over connections of the gate.
func (s *slackChat) Forge(_, data string) int {
	status, _ := chattest.Post(s.t, s.decisions, http.Header{}, data)
	return status
}

// Approvers press buttons in every chat, also of messages from before a restart of the gate. Only
// presses of approvers that the service has sent count, once.
func TestChats(t *testing.T) {
	for kind, c := range map[string]chat{
		"slack": &slackChat{t: t, Workspace: slacktest.New(t)}, "discord": chattest.NewDiscord(t), "telegram": chattest.NewTelegram(t),
	} {
		t.Run(kind, func(t *testing.T) {
			h := startAsking(t, newReceiver(t), "sqlite:"+filepath.Join(t.TempDir(), "gate.db"), "allow_private: true,", "chat: "+c.Settings())
			answer := h.hold("hold_x")
			m := c.Says("Approval needed: hold_x")
			if strings.Contains(m.Text, "hunter2") {
				t.Errorf("the message has a redacted argument: %s", m.Text)
			}
			c.Restart(func() string {
				h.stop()
				<-answer
				h.gate, h.stop = start(t, h.text)
				return "http://" + h.gate.OperatorAddr() + "/api/channels/chat/decisions"
			})
			answer = h.hold("hold_x") // the same call: it waits for the same decision
			data := m.Buttons["Approve"]
			if status := c.Forge(chattest.Alice, data); status != http.StatusUnauthorized {
				t.Errorf("a forged press: status %d", status)
			}
			if told := c.Press(stranger, data); !strings.Contains(told, "not set up as an approver") {
				t.Errorf("another account is told %q", told)
			}
			if n := h.ran.Load(); n != 0 {
				t.Errorf("%d calls ran", n)
			}
			if told := c.Press(chattest.Alice, data); told != "" {
				t.Errorf("alice is told %q", told)
			}
			if text := <-answer; !strings.Contains(text, "done") {
				t.Errorf("answer %s", text)
			}
			c.Says("Approved, and it ran: hold_x")
			if told := c.Press(chattest.Alice, data); !strings.Contains(told, "does not count") || h.ran.Load() != 1 {
				t.Errorf("a repeated press: told %q, %d calls ran", told, h.ran.Load())
			}
		})
	}
}

// PagerDuty gets an incident with a link to a held call, which the decision resolves. Teams is not
// at a private address, and an error does not show the URL, which is a credential.
func TestNotifyOnlyChats(t *testing.T) {
	events := make(chan string, 10)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		events <- string(body)
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(service.Close)
	h := startAsking(t, newReceiver(t), "memory:", "allow_private: true,",
		"chat: {pagerduty: {routing_key: R0UT1NGKEY, url: '"+service.URL+"'}}")
	answer := h.hold("hold_x")
	id := h.stage("pending").approval.ID
	if e := <-events; !strings.Contains(e, `"event_action":"trigger"`) || !strings.Contains(e, "/approvals/"+id) || strings.Contains(e, "hunter2") {
		t.Errorf("event %s", e)
	}
	decide(t, h.gate.OperatorAddr(), id, "reject")
	if e := <-events; !strings.Contains(e, `"event_action":"resolve"`) {
		t.Errorf("event %s", e)
	}
	<-answer
	cards := startAsking(t, newReceiver(t), "memory:", "allow_private: true,", "chat: {teams: {url: '"+service.URL+"/hook?sig=credential'}}")
	cards.hold("hold_x")
	eventually(t, "operators see the refusal", func() bool { return strings.Contains(cards.channels(), "the address is private") })
	if text := cards.channels(); strings.Contains(text, "credential") || strings.Contains(text, "allow_private") || len(events) > 0 {
		t.Errorf("channels %s", text)
	}
}
