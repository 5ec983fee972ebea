package teams_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/chattest"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/teams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A card is a request to the webhook of a workflow.
type card struct {
	Type        string
	Attachments []struct {
		ContentType string `json:"contentType"`
		Content     struct {
			Type    string
			Version string
			Body    []struct {
				Type    string
				Inlines []struct{ Type, Text string }
			}
			Actions []struct{ Type, Title, URL string }
			MSTeams any `json:"msteams"` // mentions people
		}
	}
}

// execute posts a card, as the webhook of a workflow does.
func execute(t *testing.T) func(s *chattest.Service, w http.ResponseWriter, r *http.Request, text []byte) {
	t.Helper()
	return func(s *chattest.Service, w http.ResponseWriter, r *http.Request, text []byte) {
		var c card
		if err := json.Unmarshal(text, &c); err != nil || len(text) > 28_000 || r.Method != http.MethodPost || r.URL.Query().Get("sig") != "secret" {
			t.Errorf("%v: %d bytes to %s", err, len(text), r.URL)
		}
		if c.Type != "message" || len(c.Attachments) != 1 || c.Attachments[0].ContentType != "application/vnd.microsoft.card.adaptive" {
			t.Fatalf("body %s", text)
		}
		content := c.Attachments[0].Content
		if content.Type != "AdaptiveCard" || content.Version != "1.4" || content.MSTeams != nil {
			t.Errorf("card %s", text)
		}
		m := chattest.Message{Buttons: map[string]string{}}
		for _, b := range content.Body {
			if b.Type != "RichTextBlock" { // Teams interprets Markdown in a TextBlock
				t.Errorf("a block of type %s", b.Type)
			}
			for _, i := range b.Inlines {
				m.Text += i.Text + "\n"
			}
		}
		for _, a := range content.Actions {
			if a.Type != "Action.OpenUrl" {
				t.Errorf("action %+v", a)
			}
			m.Buttons[a.Title] = a.URL
		}
		s.Add(m)
		w.WriteHeader(http.StatusAccepted)
	}
}

func open(t *testing.T, service *chattest.Service) channel.Channel {
	t.Helper()
	address, err := url.Parse(service.URL + "/workflows/1/triggers/manual/paths/invoke?sig=secret")
	if err != nil {
		t.Fatal(err)
	}
	c, err := (&teams.Settings{URL: address, Private: true}).Open(channel.Gate{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCards checks the cards about a call, after a rate limit. They have a link and no
// arguments.
func TestCards(t *testing.T) {
	gate := chattest.NewGate(t)
	service := chattest.NewService(t, execute(t))
	service.Next(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	start := time.Now()
	gate.Run(open(t, service))
	id := gate.HoldTool("delete_<at>all</at>", `{"path":"/secret"}`)
	m := service.Last(1)
	if time.Since(start) < time.Second {
		t.Error("the card was posted again at once")
	}
	if !strings.Contains(m.Text, "Approval needed: delete_<at>all</at>") || !strings.Contains(m.Text, "Requested by: ann") || strings.Contains(m.Text, "/secret") {
		t.Errorf("text %s", m.Text)
	}
	if want := "https://gate.example.com/approvals/" + string(id); len(m.Buttons) != 1 || m.Buttons["Sign in and decide"] != want {
		t.Errorf("buttons %v", m.Buttons)
	}
	gate.Reject(id)
	if m := service.Last(2); !strings.Contains(m.Text, "Rejected by alice: no") {
		t.Errorf("text %s", m.Text)
	}
}

// TestErrorHidesURL checks that errors do not contain the URL, which is a credential.
func TestErrorHidesURL(t *testing.T) {
	service := chattest.NewService(t, nil)
	service.Next(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	c := open(t, service)
	defer c.(channel.Closer).Close()
	_, err := c.Ask(t.Context(), channel.Question{Stage: channel.Pending})
	if err == nil || strings.Contains(err.Error(), "sig") || !strings.Contains(err.Error(), "Teams answered 403") {
		t.Errorf("error %v", err)
	}
}
