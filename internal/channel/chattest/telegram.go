package chattest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

// The chat and the token of the bot of a [Telegram].
const (
	TelegramChat  = "-1001234567890"
	TelegramToken = "123456:bot-token"
)

// A Telegram is a Telegram server with one chat.
type Telegram struct {
	Service *Service

	t            *testing.T
	hook, secret string // of the registered webhook
}

// NewTelegram returns a server.
func NewTelegram(t *testing.T) *Telegram {
	t.Helper()
	g := &Telegram{t: t}
	g.Service = NewService(t, g.execute)
	return g
}

// Settings returns the settings of a channel in the configuration.
func (g *Telegram) Settings() string {
	return fmt.Sprintf("{telegram: {bot_token: '%s', chat: '%s', people: %s, url: '%s'}}", TelegramToken, TelegramChat, people, g.Service.URL)
}

// Limit answers that there are too many requests.
func (*Telegram) Limit(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = fmt.Fprint(w, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 1","parameters":{"retry_after":1}}`)
}

// Says is [Service.Says].
func (g *Telegram) Says(text string) Message { return g.Service.Says(text) }

// Restart restarts a gate, which returns the URL for decisions, and waits until it has registered
// that.
func (g *Telegram) Restart(gate func() string) {
	url := gate()
	g.Service.await("the webhook "+url+" is registered", func() bool { return g.hook == url })
}

// Registered waits for a webhook, and returns its URL and secret.
func (g *Telegram) Registered() (url, secret string) {
	g.Service.await("a webhook is registered", func() bool { url, secret = g.hook, g.secret; return url != "" })
	return url, secret
}

// Send sends an update to the webhook, with a secret.
func (g *Telegram) Send(secret, text string) (int, string) {
	url, _ := g.Registered()
	return Post(g.t, url, http.Header{"X-Telegram-Bot-Api-Secret-Token": {secret}}, text)
}

// Update returns the update of an account that presses a button in a chat.
func (*Telegram) Update(account, data, chat string) string {
	return fmt.Sprintf(`{"update_id":1,"callback_query":{"id":"77","from":{"id":%s,"is_bot":false,"first_name":"x"},
		"message":{"message_id":1,"date":1,"chat":{"id":%s,"type":"supergroup"}},"chat_instance":"1","data":%q}}`, account, chat, data)
}

// Forge presses a button without the secret of the webhook, and returns the status.
func (g *Telegram) Forge(account, data string) int {
	status, _ := g.Send(strings.Repeat("0", 64), g.Update(account, data, TelegramChat))
	return status
}

// Press presses a button, and returns what the user is told.
func (g *Telegram) Press(account, data string) string {
	_, secret := g.Registered()
	status, answer := g.Send(secret, g.Update(account, data, TelegramChat))
	var got struct {
		Method string
		ID     string `json:"callback_query_id"`
		Text   string
		Alert  bool `json:"show_alert"`
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != http.StatusOK || got.Method != "answerCallbackQuery" || got.ID != "77" ||
		len([]rune(got.Text)) > 200 || got.Alert != (got.Text != "") {
		g.t.Errorf("status %d: %s", status, answer)
	}
	return got.Text
}

// execute executes a method of the API.
func (g *Telegram) execute(s *Service, w http.ResponseWriter, r *http.Request, text []byte) {
	var b telegramRequest
	method, ours := strings.CutPrefix(r.URL.Path, "/bot"+TelegramToken+"/")
	if err := json.Unmarshal(text, &b); err != nil || !ours || method != "setWebhook" && b.Chat != TelegramChat {
		g.t.Errorf("%s: %v: %s", r.URL, err, text)
	}
	switch method {
	case "setWebhook":
		g.hook, g.secret = b.URL, b.Secret
		if !slices.Equal(b.Updates, []string{"callback_query"}) || len(b.Secret) != 64 {
			g.t.Errorf("webhook %s", text)
		}
		_, _ = fmt.Fprint(w, `{"ok":true,"result":true,"description":"Webhook was set"}`)
		return
	case "sendMessage":
		b.ID = s.Add(b.shown(g.t))
	case "editMessageText":
		if !s.Edit(b.ID, b.shown(g.t)) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, `{"ok":false,"error_code":400,"description":"Bad Request: message to edit not found"}`)
			return
		}
	default:
		g.t.Errorf("method %s", method)
	}
	_, _ = fmt.Fprintf(w, `{"ok":true,"result":{"message_id":%d,"date":1,"chat":{"id":%s}}}`, b.ID, TelegramChat)
}

// A telegramRequest is what the gate sends.
type telegramRequest struct {
	Chat     string `json:"chat_id"`
	ID       int    `json:"message_id"`
	Text     string
	Entities []struct {
		Type           string
		Offset, Length int
	}
	Mode    string `json:"parse_mode"`
	Preview struct {
		Disabled bool `json:"is_disabled"`
	} `json:"link_preview_options"`
	Markup struct {
		Rows [][]struct {
			Text string
			URL  string
			Data string `json:"callback_data"`
		} `json:"inline_keyboard"`
	} `json:"reply_markup"`
	Reply struct {
		ID int `json:"message_id"`
	} `json:"reply_parameters"`

	URL     string   `json:"url"`
	Secret  string   `json:"secret_token"`
	Updates []string `json:"allowed_updates"`
}

// checkFormat checks that Telegram finds no markup outside of preformatted text.
func (b *telegramRequest) checkFormat(t *testing.T, units []uint16) {
	t.Helper()
	free := units
	for _, e := range b.Entities {
		if e.Type != "pre" || e.Length == 0 || e.Offset+e.Length > len(units) {
			t.Fatalf("entity %+v of %d", e, len(units))
		}
		free = slices.Concat(units[:e.Offset], units[e.Offset+e.Length:])
	}
	if text := string(utf16.Decode(free)); strings.ContainsAny(text, "@/#:<*_[") {
		t.Errorf("Telegram looks for markup in %q", text)
	}
}

// shown checks a message as Telegram does, and returns what it shows.
func (b *telegramRequest) shown(t *testing.T) Message {
	t.Helper()
	units := utf16.Encode([]rune(b.Text))
	if len(units) == 0 || len(units) > 4096 || b.Mode != "" || !b.Preview.Disabled {
		t.Errorf("a text of %d, mode %q", len(units), b.Mode)
	}
	b.checkFormat(t, units)
	m := Message{Text: b.Text, Buttons: map[string]string{}}
	if b.Reply.ID != 0 {
		m.Replies = strconv.Itoa(b.Reply.ID)
	}
	for _, row := range b.Markup.Rows {
		for _, one := range row {
			if len(one.Data) > 64 || (one.Data == "") == (one.URL == "") {
				t.Errorf("button %+v", one)
			}
			m.Buttons[one.Text] = one.Data + one.URL
		}
	}
	return m
}
