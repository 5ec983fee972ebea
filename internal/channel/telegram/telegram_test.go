package telegram_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/chattest"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/telegram"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	chat  = "-1001234567890"
	token = "123456:bot-token"
)

// A body is what the gate sends.
type body struct {
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

// shown checks a message as Telegram does, and returns what it shows.
func (b *body) shown(t *testing.T) chattest.Message {
	t.Helper()
	units := utf16.Encode([]rune(b.Text))
	if len(units) == 0 || len(units) > 4096 || b.Mode != "" || !b.Preview.Disabled {
		t.Errorf("a text of %d, mode %q", len(units), b.Mode)
	}
	free := units
	for _, e := range b.Entities {
		if e.Type != "pre" || e.Length == 0 || e.Offset+e.Length > len(units) {
			t.Fatalf("entity %+v of %d", e, len(units))
		}
		free = append(append([]uint16{}, units[:e.Offset]...), units[e.Offset+e.Length:]...)
	}
	if text := string(utf16.Decode(free)); strings.ContainsAny(text, "@/#:<*_[") {
		t.Errorf("Telegram looks for markup in %q", text)
	}
	m := chattest.Message{Text: b.Text, Buttons: map[string]string{}}
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

// A fake is a Telegram server with one chat.
type fake struct {
	*chattest.Chat

	t *testing.T

	registered sync.Mutex
	secret     string
	hooks      chan string // the URLs of registered webhooks
}

func open(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, hooks: make(chan string, 100)}
	gate := chattest.NewGate(t)
	service := chattest.NewService(t, f.execute)
	f.Chat = &chattest.Chat{Service: service, Gate: gate, Alice: "1", Ann: "2", Press: f.press, Open: func() channel.Channel {
		address, err := url.Parse(service.URL)
		if err != nil {
			t.Fatal(err)
		}
		c, err := (&telegram.Settings{
			BotToken: config.NewSecret(token), Chat: chat, People: map[string]string{"1": "alice", "2": "ann"}, URL: address,
		}).Open(gate.Parts(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}, Limit: func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 1","parameters":{"retry_after":1}}`)
	}}
	return f
}

// execute executes a method of the API.
func (f *fake) execute(s *chattest.Service, w http.ResponseWriter, r *http.Request, text []byte) {
	var b body
	method, ours := strings.CutPrefix(r.URL.Path, "/bot"+token+"/")
	if err := json.Unmarshal(text, &b); err != nil || !ours || method != "setWebhook" && b.Chat != chat {
		f.t.Errorf("%s: %v: %s", r.URL, err, text)
	}
	switch method {
	case "setWebhook":
		f.registered.Lock()
		f.secret = b.Secret
		f.registered.Unlock()
		if len(b.Updates) != 1 || b.Updates[0] != "callback_query" || len(b.Secret) != 64 {
			f.t.Errorf("webhook %s", text)
		}
		f.hooks <- b.URL
		fmt.Fprint(w, `{"ok":true,"result":true,"description":"Webhook was set"}`)
		return
	case "sendMessage":
		b.ID = s.Add(b.shown(f.t))
	case "editMessageText":
		if !s.Edit(b.ID, b.shown(f.t)) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"ok":false,"error_code":400,"description":"Bad Request: message to edit not found"}`)
			return
		}
	default:
		f.t.Errorf("method %s", method)
	}
	fmt.Fprintf(w, `{"ok":true,"result":{"message_id":%d,"date":1,"chat":{"id":%s}}}`, b.ID, chat)
}

func pressOf(account, data, chat string) string {
	return fmt.Sprintf(`{"update_id":1,"callback_query":{"id":"77","from":{"id":%s,"is_bot":false,"first_name":"x"},
		"message":{"message_id":1,"date":1,"chat":{"id":%s,"type":"supergroup"}},"chat_instance":"1","data":%q}}`, account, chat, data)
}

// send sends an update with the secret of the webhook.
func (f *fake) send(text string) (int, string) {
	if f.current() == "" {
		<-f.hooks
	}
	return f.Gate.Post(http.Header{"X-Telegram-Bot-Api-Secret-Token": {f.current()}}, text)
}

func (f *fake) current() string {
	f.registered.Lock()
	defer f.registered.Unlock()
	return f.secret
}

// press presses a button, and returns what the user is told.
func (f *fake) press(account, data string) string {
	status, answer := f.send(pressOf(account, data, chat))
	var got struct {
		Method string
		ID     string `json:"callback_query_id"`
		Text   string
		Alert  bool `json:"show_alert"`
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != http.StatusOK || got.Method != "answerCallbackQuery" || got.ID != "77" ||
		len([]rune(got.Text)) > 200 || got.Alert != (got.Text != "") {
		f.t.Errorf("status %d: %s", status, answer)
	}
	return got.Text
}

// TestTelegram tests the channel with the tests of all chats.
func TestTelegram(t *testing.T) {
	chattest.Test(t, func(t *testing.T) *chattest.Chat { return open(t).Chat })
}

// TestForgedUpdates checks that only updates with the secret of the webhook, from the chat,
// decide.
func TestForgedUpdates(t *testing.T) {
	f := open(t)
	f.Gate.Run(f.Open())
	if hook := <-f.hooks; hook != f.Gate.URL+"/api/channels/chat/decisions" {
		t.Errorf("webhook %s", hook)
	}
	id := f.Gate.Hold(`{}`)
	data := f.Service.Last(1).Buttons["Reject"]
	press := pressOf("1", data, chat)
	for _, secret := range []string{"", "x", strings.Repeat("0", 64)} {
		if status, _ := f.Gate.Post(http.Header{"X-Telegram-Bot-Api-Secret-Token": {secret}}, press); status != http.StatusUnauthorized {
			t.Errorf("secret %q: status %d", secret, status)
		}
	}
	for text, want := range map[string]string{
		pressOf("1", data, "-5"):                            "takes no decisions in this chat",
		strings.Replace(press, "false", "true", 1):          "does not know this button",
		`{"update_id":1,"message":{"message_id":1}}`:        "{}",
		`{"update_id":1,"update_id":2,"callback_query":{}}`: "must be an update",
	} {
		if _, answer := f.send(text); !strings.Contains(answer, want) {
			t.Errorf("%s: %s", text, answer)
		}
	}
	if got := f.Gate.State(id); got.State != task.InputRequired {
		t.Errorf("state %s", got.State)
	}
	if told := f.press("1", data); told != "" {
		t.Errorf("told %q", told)
	}
	f.Service.Says("Rejected by alice")
}

// TestReport checks a long summary.
func TestReport(t *testing.T) {
	f := open(t)
	c := f.Open().(*telegram.Telegram)
	defer c.Close()
	if err := c.Report(t.Context(), channel.Report{Title: "Calls from 18 November", Lines: []string{"1 call", strings.Repeat("@everyone *x* ", 900)}}); err != nil {
		t.Error(err)
	}
	if m := f.Service.Last(1); !strings.Contains(m.Text, "1 call\n@everyone *x*") {
		t.Errorf("%+v", m)
	}
}

// TestMissingMessages checks that the outcome of a deleted message is not retried, and that
// one whose message is unknown is sent.
func TestMissingMessages(t *testing.T) {
	f := open(t)
	c := f.Open()
	defer c.(channel.Closer).Close()
	q := channel.Question{Stage: channel.Rejected, Page: "https://gate.example.com/"}
	if err := c.Update(t.Context(), "7", q); err != nil {
		t.Error(err)
	}
	if err := c.Update(t.Context(), "", q); err != nil {
		t.Error(err)
	}
	if m := f.Service.Last(1); !strings.Contains(m.Text, "Rejected") {
		t.Errorf("%+v", m)
	}
	f.Service.Next(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"ok":false,"error_code":401,"description":"Unauthorized\n\u001b[2J%s"}`, strings.Repeat("x", 50_000))
	})
	if _, err := c.Ask(t.Context(), q); err == nil || strings.Contains(err.Error(), token) || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("error %.1000q", err)
	}
}
