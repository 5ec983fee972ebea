package discord_test

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/chattest"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/discord"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*chattest.Discord, *chattest.Chat) {
	t.Helper()
	d, gate := chattest.NewDiscord(t), chattest.NewGate(t)
	d.Decisions = gate.Decisions
	return d, &chattest.Chat{Service: d.Service, Gate: gate, Finds: true, Press: d.Press, Limit: d.Limit, Open: func() channel.Channel {
		return gate.Open(&discord.Settings{
			BotToken: config.NewSecret("bot-token"), PublicKey: d.Key.Public().(ed25519.PublicKey), Channel: d.Room,
			People: chattest.People(), URL: d.Service.Address("/api/v10/"),
		})
	}}
}

// TestDiscord tests the channel with the tests of all chats.
func TestDiscord(t *testing.T) {
	chattest.Test(t, func(t *testing.T) *chattest.Chat { _, c := open(t); return c })
}

// TestForgedInteractions checks that only interactions that Discord has signed recently, in the
// channel, decide.
func TestForgedInteractions(t *testing.T) {
	d, c := open(t)
	c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{}`)
	data := d.Service.Last(1).Buttons["Approve"]
	click := d.Click("1", data)
	if status, answer := d.Send(time.Now(), `{"type":1,"id":"1","application_id":"2","token":"t","version":1}`); status != http.StatusOK || answer != `{"type":1}` {
		t.Errorf("ping: %d %s", status, answer)
	}
	old, _ := d.Send(time.Now().Add(-6*time.Minute), click)
	unsigned, _ := chattest.Post(t, d.Decisions, http.Header{}, click)
	if forged := d.Forge("1", data); forged != http.StatusUnauthorized || old != http.StatusUnauthorized || unsigned != http.StatusUnauthorized {
		t.Errorf("status %d for another key, %d for an old one, %d without a signature", forged, old, unsigned)
	}
	if status, _ := d.Send(time.Now(), `{"type":3,"type":1}`); status != http.StatusBadRequest {
		t.Errorf("an ambiguous body: status %d", status)
	}
	if _, answer := d.Send(time.Now(), strings.Replace(click, d.Room, "77", 1)); !strings.Contains(answer, "takes no decisions in this chat") {
		t.Errorf("another channel: %s", answer)
	}
	if _, answer := d.Send(time.Now(), strings.Replace(click, `"username"`, `"bot":true,"username"`, 1)); !strings.Contains(answer, "does not know this button") {
		t.Errorf("a bot: %s", answer)
	}
	if got := c.Gate.State(id); got.State != task.InputRequired {
		t.Errorf("state %s", got.State)
	}
}

// TestRejectionHasReason checks that a rejection asks for a reason in a window.
func TestRejectionHasReason(t *testing.T) {
	d, c := open(t)
	c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{}`)
	data := d.Service.Last(1).Buttons["Reject"]
	if told := d.Press("1", data); told != "" || !strings.Contains(d.Window, `"custom_id":"`+data) || c.Gate.State(id).State != task.InputRequired {
		t.Fatalf("told %q, window %s", told, d.Window)
	}
	status, answer := d.Send(time.Now(), fmt.Sprintf(`{"type":5,"channel_id":%q,"member":{"user":{"id":"1"}},"data":{"custom_id":%q,
		"components":[{"type":18,"id":1,"component":{"type":4,"id":2,"custom_id":"reason","value":"not on a *Friday*"}}]}}`, d.Room, data))
	if status != http.StatusOK || answer != `{"type":6}` {
		t.Errorf("%d %s", status, answer)
	}
	d.Says("Rejected by alice: not on a *Friday*")
}

// TestReport checks that a summary is sent once although it is repeated, and has no markup.
func TestReport(t *testing.T) {
	d, c := open(t)
	sends := c.Open().(*discord.Discord)
	defer sends.Close()
	for range 2 {
		if err := sends.Report(t.Context(), channel.Report{ID: "summary.chat.2026-11-19", Title: "Calls from 18 November", Lines: []string{"1 call", strings.Repeat("@everyone *x* ", 900)}}); err != nil {
			t.Error(err)
		}
	}
	if m := d.Service.Last(1); !strings.Contains(m.Text, "1 call\n@everyone *x*") {
		t.Errorf("%+v", m)
	}
}

// TestOtherRoom checks that a question is asked again in another channel. Discord posts no two
// messages of a bot with the same nonce.
func TestOtherRoom(t *testing.T) {
	d, c := open(t)
	id := c.Gate.Hold(`{}`)
	stop := c.Gate.Run(c.Open())
	d.Service.Last(1)
	stop()
	d.Room = "1100000000000000002"
	c.Gate.Run(c.Open())
	if m := d.Service.Last(2); m.Buttons["Open in the inbox"] != "https://gate.example.com/approvals/"+string(id) {
		t.Errorf("%+v", m)
	}
}

// TestDeletedMessage checks that the outcome of a deleted message is not retried.
func TestDeletedMessage(t *testing.T) {
	_, c := open(t)
	if err := c.Open().Update(t.Context(), "7", channel.Question{Stage: channel.Rejected, Page: "https://gate.example.com/"}); err != nil {
		t.Error(err)
	}
}
