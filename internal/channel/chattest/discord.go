package chattest

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// A Discord is a Discord server with one channel.
type Discord struct {
	Service   *Service
	Room      string             // the id of the channel
	Key       ed25519.PrivateKey // of the application
	Decisions string             // the URL for interactions
	Window    string             // the last window that was opened

	t      *testing.T
	nonces map[string]int
}

// NewDiscord returns a server.
func NewDiscord(t *testing.T) *Discord {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &Discord{t: t, Room: "1100000000000000001", Key: private, nonces: map[string]int{}}
	d.Service = NewService(t, d.execute)
	return d
}

// Settings returns the settings of a channel in the configuration.
func (d *Discord) Settings() string {
	return fmt.Sprintf("{discord: {bot_token: bot-token, public_key: '%x', channel: '%s', people: %s, url: '%s/api/v10/'}}",
		d.Key.Public(), d.Room, people, d.Service.URL)
}

// Limit answers that there are too many requests.
func (*Discord) Limit(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "1.2")
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = fmt.Fprint(w, `{"message":"You are being rate limited.","retry_after":1.2,"global":false}`)
}

// Says is [Service.Says].
func (d *Discord) Says(text string) Message { return d.Service.Says(text) }

// Restart restarts a gate, which returns the URL for decisions.
func (d *Discord) Restart(gate func() string) { d.Decisions = gate() }

// Forge presses a button without a signature of Discord, and returns the status.
func (d *Discord) Forge(account, data string) int {
	own := d.Key
	defer func() { d.Key = own }()
	d.Key = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	status, _ := d.Send(time.Now(), d.Click(account, data))
	return status
}

// execute posts or edits a message.
func (d *Discord) execute(s *Service, w http.ResponseWriter, r *http.Request, text []byte) {
	var b discordMessage
	if err := json.Unmarshal(text, &b); err != nil || r.Header.Get("Authorization") != "Bot bot-token" {
		d.t.Errorf("%v: %s", err, text)
	}
	path, ours := strings.CutPrefix(r.URL.Path, "/api/v10/channels/"+d.Room+"/messages")
	number, _ := strconv.Atoi(strings.TrimPrefix(path, "/"))
	switch {
	case !ours:
		d.t.Errorf("%s %s", r.Method, r.URL)
	case r.Method == http.MethodPatch:
		if !s.Edit(number, b.shown(d.t)) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"message":"Unknown Message","code":10008}`)
			return
		}
	case b.Enforce && d.nonces[b.Nonce] > 0:
		number = d.nonces[b.Nonce]
	default:
		if len(b.Nonce) > 25 {
			d.t.Errorf("nonce %q", b.Nonce)
		}
		number = s.Add(b.shown(d.t))
		d.nonces[b.Nonce] = number
	}
	_, _ = fmt.Fprintf(w, `{"id":"%d","channel_id":"%s","type":0}`, number, d.Room)
}

// Send sends an interaction to the gate, signed at a time.
func (d *Discord) Send(at time.Time, text string) (int, string) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h := http.Header{}
	h.Set("X-Signature-Timestamp", stamp)
	h.Set("X-Signature-Ed25519", hex.EncodeToString(ed25519.Sign(d.Key, []byte(stamp+text))))
	return Post(d.t, d.Decisions, h, text)
}

// Click returns the interaction of an account that clicks a button.
func (d *Discord) Click(account, data string) string {
	return fmt.Sprintf(`{"id":"5","application_id":"6","type":3,"token":"t","version":1,"channel_id":%q,"message":{"id":"1","content":"x"},
		"member":{"user":{"id":%q,"username":"x"}},"data":{"component_type":2,"custom_id":%q}}`, d.Room, account, data)
}

// Press clicks a button, and returns what the user is told.
func (d *Discord) Press(account, data string) string {
	status, answer := d.Send(time.Now(), d.Click(account, data))
	var got struct {
		Type int
		Data struct {
			Content string
			Flags   int
		}
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != http.StatusOK {
		d.t.Errorf("status %d: %s", status, answer)
	}
	switch got.Type {
	case 6:
	case 9:
		d.Window = answer
	case 4:
		if got.Data.Flags != 64 || !strings.Contains(answer, `"allowed_mentions":{"parse":[]}`) {
			d.t.Errorf("everybody sees %s", answer)
		}
	default:
		d.t.Errorf("answer %s", answer)
	}
	return strings.ReplaceAll(got.Data.Content, `\`, "")
}

// A discordMessage is what the gate posts.
type discordMessage struct {
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

// markup matches what Discord would interpret.
var markup = regexp.MustCompile("(^|[^\\\\])[*_~`|<>@#\\[\\]():/-]")

// plain checks that a text has no markup but that of a block of code, and returns what is shown.
func plain(t *testing.T, text string, most int) string {
	t.Helper()
	if n := len(utf16.Encode([]rune(text))); n > most {
		t.Errorf("a text of %d characters", n)
	}
	if code, ok := strings.CutPrefix(text, "```\n"); ok {
		code = strings.TrimSuffix(code, "\n```")
		if strings.Contains(code, "`") {
			t.Errorf("the code ends early: %q", code)
		}
		return code
	}
	if m := markup.FindString(strings.ReplaceAll(text, `\\`, "")); m != "" {
		t.Errorf("active markup %q in %q", m, text)
	}
	return regexp.MustCompile(`\\(.)`).ReplaceAllString(text, "$1")
}

// shown checks a message as Discord does, and returns what it shows.
func (b *discordMessage) shown(t *testing.T) Message {
	t.Helper()
	size := 0
	if b.Mentions.Parse == nil || len(b.Mentions.Parse) > 0 {
		t.Errorf("the message may mention people")
	}
	m := Message{Text: plain(t, b.Content, 2000), Buttons: map[string]string{}}
	for _, e := range b.Embeds {
		if size += len(utf16.Encode([]rune(e.Description))); size > 6000 {
			t.Errorf("embeds of %d characters", size)
		}
		m.Text += "\n" + plain(t, e.Description, 4096)
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
