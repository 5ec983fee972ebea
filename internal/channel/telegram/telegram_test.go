package telegram_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/chattest"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/telegram"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*chattest.Telegram, *chattest.Chat) {
	t.Helper()
	s, gate := chattest.NewTelegram(t), chattest.NewGate(t)
	return s, &chattest.Chat{Service: s.Service, Gate: gate, Press: s.Press, Limit: s.Limit, Open: func() channel.Channel {
		return gate.Open(&telegram.Settings{
			BotToken: config.NewSecret(chattest.TelegramToken), Chat: chattest.TelegramChat, People: chattest.People(), URL: s.Service.Address(""),
		})
	}}
}

// TestTelegram tests the channel with the tests of all chats.
func TestTelegram(t *testing.T) {
	chattest.Test(t, func(t *testing.T) *chattest.Chat { _, c := open(t); return c })
}

// TestForgedUpdates checks that only updates with the secret of the webhook, from the chat,
// decide.
func TestForgedUpdates(t *testing.T) {
	s, c := open(t)
	c.Gate.Run(c.Open())
	hook, own := s.Registered()
	if hook != c.Gate.Decisions {
		t.Errorf("webhook %s", hook)
	}
	id := c.Gate.Hold(`{}`)
	data := s.Service.Last(1).Buttons["Reject"]
	press := s.Update("1", data, chattest.TelegramChat)
	for _, secret := range []string{"", "x", strings.Repeat("0", 64)} {
		if status, _ := s.Send(secret, press); status != http.StatusUnauthorized {
			t.Errorf("secret %q: status %d", secret, status)
		}
	}
	for text, want := range map[string]string{
		s.Update("1", data, "-5"):                           "takes no decisions in this chat",
		strings.Replace(press, "false", "true", 1):          "does not know this button",
		`{"update_id":1,"message":{"message_id":1}}`:        "{}",
		`{"update_id":1,"update_id":2,"callback_query":{}}`: "must be an update",
	} {
		if _, answer := s.Send(own, text); !strings.Contains(answer, want) {
			t.Errorf("%s: %s", text, answer)
		}
	}
	if got := c.Gate.State(id); got.State != task.InputRequired {
		t.Errorf("state %s", got.State)
	}
	if told := s.Press("1", data); told != "" {
		t.Errorf("told %q", told)
	}
	s.Says("Rejected by alice")
}

// TestReport checks a long summary.
func TestReport(t *testing.T) {
	s, c := open(t)
	sends := c.Open().(*telegram.Telegram)
	defer sends.Close()
	if err := sends.Report(t.Context(), channel.Report{Title: "Calls from 18 November", Lines: []string{"1 call", strings.Repeat("@everyone *x* ", 900)}}); err != nil {
		t.Error(err)
	}
	if m := s.Service.Last(1); !strings.Contains(m.Text, "1 call\n@everyone *x*") {
		t.Errorf("%+v", m)
	}
}

// TestMissingMessages checks that the outcome of a deleted message is not retried, and that
// one whose message is unknown is sent.
func TestMissingMessages(t *testing.T) {
	s, c := open(t)
	sends := c.Open()
	defer sends.(channel.Closer).Close()
	q := channel.Question{Stage: channel.Rejected, Page: "https://gate.example.com/"}
	if err := sends.Update(t.Context(), "7", q); err != nil {
		t.Error(err)
	}
	if err := sends.Update(t.Context(), "", q); err != nil {
		t.Error(err)
	}
	if m := s.Service.Last(1); !strings.Contains(m.Text, "Rejected") {
		t.Errorf("%+v", m)
	}
	s.Service.Next(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"ok":false,"error_code":401,"description":"Unauthorized\n\u001b[2J%s"}`, strings.Repeat("x", 50_000))
	})
	if _, err := sends.Ask(t.Context(), q); err == nil || strings.Contains(err.Error(), chattest.TelegramToken) || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("error %.1000q", err)
	}
}
