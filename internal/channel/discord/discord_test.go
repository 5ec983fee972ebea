package discord_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/chattest"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/discord"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A body is what the gate posts.
type body struct {
	Content    string
	Embeds     []struct{ Description string }
	Components []struct {
		Components []struct {
			Type, Style int
			Label       string
			ID          string `json:"custom_id"`
			URL         string
		}
	}
	Mentions struct {
		Parse []string `json:"parse"`
	} `json:"allowed_mentions"`
	Nonce     string
	Enforce   bool `json:"enforce_nonce"`
	Reference *struct {
		Message string `json:"message_id"`
	} `json:"message_reference"`
}

// active matches markup that Discord would interpret.
var active = regexp.MustCompile("(^|[^\\\\])[*_~`|<>@#\\[\\]():/-]")

// shown checks a message as Discord does, and returns what it shows.
func (b *body) shown(t *testing.T) chattest.Message {
	t.Helper()
	size := 0
	if b.Mentions.Parse == nil || len(b.Mentions.Parse) > 0 {
		t.Errorf("the message may mention people")
	}
	unescape := func(text string) string {
		if m := active.FindString(strings.ReplaceAll(text, `\\`, "")); m != "" {
			t.Errorf("active markup %q in %q", m, text)
		}
		return regexp.MustCompile(`\\(.)`).ReplaceAllString(text, "$1")
	}
	m := chattest.Message{Text: unescape(b.Content), Buttons: map[string]string{}}
	if n := len(utf16.Encode([]rune(b.Content))); n > 2000 {
		t.Errorf("content of %d characters", n)
	}
	for _, e := range b.Embeds {
		n := len(utf16.Encode([]rune(e.Description)))
		if size += n; n > 4096 || size > 6000 {
			t.Errorf("embeds of %d and %d characters", n, size)
		}
		if code, ok := strings.CutPrefix(e.Description, "```\n"); ok {
			code = strings.TrimSuffix(code, "\n```")
			if strings.Contains(code, "`") {
				t.Errorf("the code ends early: %q", code)
			}
			m.Text += "\n" + code
		} else {
			m.Text += "\n" + unescape(e.Description)
		}
	}
	for _, row := range b.Components {
		for _, c := range row.Components {
			if len(c.ID) > 100 || len(c.URL) > 512 || c.Type != 2 || (c.Style == 5) != (c.URL != "") {
				t.Errorf("button %+v", c)
			}
			m.Buttons[c.Label] = c.ID + c.URL
		}
	}
	if b.Reference != nil {
		m.Replies = b.Reference.Message
	}
	return m
}

// A fake is a Discord server with one channel.
type fake struct {
	*chattest.Chat

	t      *testing.T
	key    ed25519.PrivateKey
	nonces map[string]int
	window string // the last window that was opened
	room   string // the only channel
}

func open(t *testing.T) *fake {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, key: private, nonces: map[string]int{}, room: "1100000000000000001"}
	gate := chattest.NewGate(t)
	service := chattest.NewService(t, f.execute)
	f.Chat = &chattest.Chat{Service: service, Gate: gate, Alice: "1", Ann: "2", Finds: true, Press: f.press, Open: func() channel.Channel {
		address, err := url.Parse(service.URL + "/api/v10/")
		if err != nil {
			t.Fatal(err)
		}
		c, err := (&discord.Settings{
			BotToken: config.NewSecret("bot-token"), PublicKey: public, Channel: f.room, People: map[string]string{"1": "alice", "2": "ann"}, URL: address,
		}).Open(gate.Parts(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}, Limit: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1.2")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"message":"You are being rate limited.","retry_after":1.2,"global":false}`)
	}}
	return f
}

// execute posts or edits a message.
func (f *fake) execute(s *chattest.Service, w http.ResponseWriter, r *http.Request, text []byte) {
	var b body
	if err := json.Unmarshal(text, &b); err != nil || r.Header.Get("Authorization") != "Bot bot-token" {
		f.t.Errorf("%v: %s", err, text)
	}
	path, ours := strings.CutPrefix(r.URL.Path, "/api/v10/channels/"+f.room+"/messages")
	number, _ := strconv.Atoi(strings.TrimPrefix(path, "/"))
	switch {
	case !ours:
		f.t.Errorf("%s %s", r.Method, r.URL)
	case r.Method == http.MethodPatch:
		if !s.Edit(number, b.shown(f.t)) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message":"Unknown Message","code":10008}`)
			return
		}
	case b.Enforce && f.nonces[b.Nonce] > 0:
		number = f.nonces[b.Nonce]
	default:
		if len(b.Nonce) > 25 {
			f.t.Errorf("nonce %q", b.Nonce)
		}
		number = s.Add(b.shown(f.t))
		f.nonces[b.Nonce] = number
	}
	fmt.Fprintf(w, `{"id":"%d","channel_id":"%s","type":0}`, number, f.room)
}

// send sends an interaction to the gate, signed at a time.
func (f *fake) send(at time.Time, text string) (int, string) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h := http.Header{}
	h.Set("X-Signature-Timestamp", stamp)
	h.Set("X-Signature-Ed25519", hex.EncodeToString(ed25519.Sign(f.key, []byte(stamp+text))))
	return f.Gate.Post(h, text)
}

func clickOf(account, data, room string) string {
	return fmt.Sprintf(`{"id":"5","application_id":"6","type":3,"token":"t","version":1,"channel_id":%q,"message":{"id":"1","content":"x"},
		"member":{"user":{"id":%q,"username":"x"}},"data":{"component_type":2,"custom_id":%q}}`, room, account, data)
}

// press clicks a button, and returns what the user is told.
func (f *fake) press(account, data string) string {
	status, answer := f.send(time.Now(), clickOf(account, data, f.room))
	var got struct {
		Type int
		Data struct {
			Content string
			Flags   int
		}
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != http.StatusOK {
		f.t.Errorf("status %d: %s", status, answer)
	}
	switch got.Type {
	case 6:
	case 9:
		f.window = answer
	case 4:
		if got.Data.Flags != 64 || !strings.Contains(answer, `"allowed_mentions":{"parse":[]}`) {
			f.t.Errorf("everybody sees %s", answer)
		}
	default:
		f.t.Errorf("answer %s", answer)
	}
	return strings.ReplaceAll(got.Data.Content, `\`, "")
}

// TestDiscord tests the channel with the tests of all chats.
func TestDiscord(t *testing.T) {
	chattest.Test(t, func(t *testing.T) *chattest.Chat { return open(t).Chat })
}

// TestForgedInteractions checks that only interactions that Discord has signed recently, in the
// channel, decide.
func TestForgedInteractions(t *testing.T) {
	f := open(t)
	f.Gate.Run(f.Open())
	id := f.Gate.Hold(`{}`)
	click := clickOf("1", f.Service.Last(1).Buttons["Approve"], f.room)
	if status, answer := f.send(time.Now(), `{"type":1,"id":"1","application_id":"2","token":"t","version":1}`); status != http.StatusOK || answer != `{"type":1}` {
		t.Errorf("ping: %d %s", status, answer)
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	own := f.key
	for name, try := range map[string]func() (int, string){
		"another key": func() (int, string) {
			f.key = other
			defer func() { f.key = own }()
			return f.send(time.Now(), click)
		},
		"an old one":   func() (int, string) { return f.send(time.Now().Add(-6*time.Minute), click) },
		"no signature": func() (int, string) { return f.Gate.Post(http.Header{}, click) },
	} {
		if status, _ := try(); status != http.StatusUnauthorized {
			t.Errorf("%s: status %d", name, status)
		}
	}
	if status, _ := f.send(time.Now(), `{"type":3,"type":1}`); status != http.StatusBadRequest {
		t.Errorf("an ambiguous body: status %d", status)
	}
	if _, answer := f.send(time.Now(), strings.Replace(click, f.room, "77", 1)); !strings.Contains(answer, "takes no decisions in this chat") {
		t.Errorf("another channel: %s", answer)
	}
	if _, answer := f.send(time.Now(), strings.Replace(click, `"username"`, `"bot":true,"username"`, 1)); !strings.Contains(answer, "does not know this button") {
		t.Errorf("a bot: %s", answer)
	}
	if got := f.Gate.State(id); got.State != task.InputRequired {
		t.Errorf("state %s", got.State)
	}
}

// TestRejectionHasReason checks that a rejection asks for a reason in a window.
func TestRejectionHasReason(t *testing.T) {
	f := open(t)
	f.Gate.Run(f.Open())
	id := f.Gate.Hold(`{}`)
	data := f.Service.Last(1).Buttons["Reject"]
	if told := f.press("1", data); told != "" || !strings.Contains(f.window, `"custom_id":"`+data) || f.Gate.State(id).State != task.InputRequired {
		t.Fatalf("told %q, window %s", told, f.window)
	}
	status, answer := f.send(time.Now(), fmt.Sprintf(`{"type":5,"channel_id":%q,"member":{"user":{"id":"1"}},"data":{"custom_id":%q,
		"components":[{"type":18,"id":1,"component":{"type":4,"id":2,"custom_id":"reason","value":"not on a *Friday*"}}]}}`, f.room, data))
	if status != http.StatusOK || answer != `{"type":6}` {
		t.Errorf("%d %s", status, answer)
	}
	f.Service.Says("Rejected by alice: not on a *Friday*")
}

// TestReport checks that a summary is sent once although it is repeated, and has no markup.
func TestReport(t *testing.T) {
	f := open(t)
	c := f.Open().(*discord.Discord)
	defer c.Close()
	for range 2 {
		if err := c.Report(t.Context(), channel.Report{ID: "summary.chat.2026-11-19", Title: "Calls from 18 November", Lines: []string{"1 call", strings.Repeat("@everyone *x* ", 900)}}); err != nil {
			t.Error(err)
		}
	}
	if m := f.Service.Last(1); !strings.Contains(m.Text, "1 call\n@everyone *x*") {
		t.Errorf("%+v", m)
	}
}

// TestOtherRoom checks that a question is asked again in another channel. Discord posts no two
// messages of a bot with the same nonce.
func TestOtherRoom(t *testing.T) {
	f := open(t)
	f.Gate.Run(f.Open())()
	id := f.Gate.Hold(`{}`)
	stop := f.Gate.Run(f.Open())
	f.Service.Last(1)
	stop()
	f.room = "1100000000000000002"
	f.Gate.Run(f.Open())
	if m := f.Service.Last(2); m.Buttons["Open in the inbox"] != "https://gate.example.com/approvals/"+string(id) {
		t.Errorf("%+v", m)
	}
}

// TestDeletedMessage checks that the outcome of a deleted message is not retried.
func TestDeletedMessage(t *testing.T) {
	f := open(t)
	if err := f.Open().Update(t.Context(), "7", channel.Question{Stage: channel.Rejected, Page: "https://gate.example.com/"}); err != nil {
		t.Error(err)
	}
}
