package slack_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/gorilla/websocket"
)

// A workspace is a Slack that speaks the real protocol, with one channel.
type workspace struct {
	t   *testing.T
	url string // of the API

	mu         sync.Mutex
	messages   []message
	ephemerals []string // "user: text"
	views      []string
	sockets    []*websocket.Conn
	acked      map[string]bool
	refusals   []func(http.ResponseWriter) // of the next requests for chat.postMessage
	users      map[string]string           // JSON of users by id
	groups     map[string][]string
	deleted    bool // messages cannot be changed any more
	envelopes  int
}

// A message is one that was posted, as it is now.
type message struct {
	stamp, text, blocks, metadata string
	changes                       int
}

const channelID = "C024BE91L"

func newWorkspace(t *testing.T) *workspace {
	t.Helper()
	w := &workspace{
		t: t, acked: map[string]bool{}, groups: map[string][]string{"S1": {"U3", "U4"}},
		users: map[string]string{
			"U1": `{"id":"U1","is_email_confirmed":true,"profile":{"email":"alice@example.com"}}`,
			"U2": `{"id":"U2","is_email_confirmed":true,"profile":{"email":"mallory@example.com"}}`,
			"U3": `{"id":"U3","is_email_confirmed":true,"profile":{"email":"carol@example.com"}}`,
			"U4": `{"id":"U4","is_email_confirmed":false,"profile":{"email":"alice@example.com"}}`,
			"U5": `{"id":"U5","is_email_confirmed":true,"profile":{"email":"ann"}}`,
			"U6": `{"id":"U6","is_bot":true}`,
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/{method}", w.serve)
	mux.HandleFunc("/socket", w.connect)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// serve answers a request to the API.
func (w *workspace) serve(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	method := r.PathValue("method")
	token := "Bearer xoxb-bot"
	if method == "apps.connections.open" {
		token = "Bearer xapp-app"
	}
	if err := r.ParseForm(); err != nil || r.Header.Get("Authorization") != token && "Bearer "+r.Form.Get("token") != token {
		w.t.Errorf("%s: %v, Authorization %q", method, err, r.Header.Get("Authorization"))
	}
	out.Header().Set("Content-Type", "application/json")
	switch method {
	case "apps.connections.open":
		fmt.Fprintf(out, `{"ok":true,"url":%q}`, "ws"+strings.TrimPrefix(w.url, "http")+"/socket")
	case "chat.postMessage":
		w.post(out, r)
	case "chat.update":
		w.update(out, r)
	case "chat.postEphemeral":
		w.ephemerals = append(w.ephemerals, r.Form.Get("user")+": "+r.Form.Get("text"))
		fmt.Fprint(out, `{"ok":true,"message_ts":"1.1"}`)
	case "views.open":
		body, _ := io.ReadAll(r.Body)
		w.views = append(w.views, string(body))
		fmt.Fprint(out, `{"ok":true,"view":{"id":"V1"}}`)
	case "users.info":
		fmt.Fprintf(out, `{"ok":true,"user":%s}`, w.users[r.Form.Get("user")])
	case "usergroups.users.list":
		users, _ := json.Marshal(w.groups[r.Form.Get("usergroup")])
		fmt.Fprintf(out, `{"ok":true,"users":%s}`, users)
	case "conversations.history":
		w.history(out)
	default:
		w.t.Errorf("unexpected request for %s", method)
		fmt.Fprint(out, `{"ok":false,"error":"unknown_method"}`)
	}
}

func (w *workspace) post(out http.ResponseWriter, r *http.Request) {
	if len(w.refusals) > 0 {
		refuse := w.refusals[0]
		w.refusals = w.refusals[1:]
		refuse(out)
		return
	}
	m := message{stamp: fmt.Sprintf("%d.000100", 1700000000+len(w.messages)), text: r.Form.Get("text"), blocks: r.Form.Get("blocks"), metadata: r.Form.Get("metadata")}
	checkBlocks(w.t, m.blocks)
	w.messages = append(w.messages, m)
	fmt.Fprintf(out, `{"ok":true,"channel":%q,"ts":%q}`, channelID, m.stamp)
}

func (w *workspace) update(out http.ResponseWriter, r *http.Request) {
	i := slices.IndexFunc(w.messages, func(m message) bool { return m.stamp == r.Form.Get("ts") })
	if i < 0 || w.deleted {
		w.deleted = true
		fmt.Fprint(out, `{"ok":false,"error":"message_not_found"}`)
		return
	}
	checkBlocks(w.t, r.Form.Get("blocks"))
	w.messages[i].blocks, w.messages[i].text = r.Form.Get("blocks"), r.Form.Get("text")
	w.messages[i].changes++
	fmt.Fprintf(out, `{"ok":true,"channel":%q,"ts":%q}`, channelID, r.Form.Get("ts"))
}

func (w *workspace) history(out http.ResponseWriter) {
	var all []string
	for _, m := range w.messages {
		all = append(all, fmt.Sprintf(`{"type":"message","ts":%q,"text":"","metadata":%s}`, m.stamp, m.metadata))
	}
	fmt.Fprintf(out, `{"ok":true,"messages":[%s]}`, strings.Join(all, ","))
}

// connect opens a socket and reads what the client acknowledges.
func (w *workspace) connect(out http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(out, r, nil)
	if err != nil {
		return
	}
	conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"hello","num_connections":1,"connection_info":{"app_id":"A1"},"debug_info":{"host":"h"}}`))
	w.mu.Lock()
	w.sockets = append(w.sockets, conn)
	w.mu.Unlock()
	for {
		_, text, err := conn.ReadMessage()
		if err != nil {
			w.mu.Lock()
			w.sockets = slices.DeleteFunc(w.sockets, func(c *websocket.Conn) bool { return c == conn })
			w.mu.Unlock()
			return
		}
		var ack struct {
			ID string `json:"envelope_id"`
		}
		if json.Unmarshal(text, &ack) == nil {
			w.mu.Lock()
			w.acked[ack.ID] = true
			w.mu.Unlock()
		}
	}
}

// send sends an envelope with an interaction, and waits until it is acknowledged.
func (w *workspace) send(payload string) {
	w.t.Helper()
	w.eventually("the gate connects", func() bool { return len(w.sockets) > 0 })
	w.mu.Lock()
	w.envelopes++
	id := fmt.Sprintf("e%d", w.envelopes)
	err := w.sockets[len(w.sockets)-1].WriteMessage(websocket.TextMessage,
		fmt.Appendf(nil, `{"type":"interactive","envelope_id":%q,"accepts_response_payload":true,"payload":%s}`, id, payload))
	w.mu.Unlock()
	if err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the gate acknowledges a click", func() bool { return w.acked[id] })
}

// click has a user press a button of a message in a channel.
func (w *workspace) click(user, action, value, channel string) {
	w.t.Helper()
	quoted, _ := json.Marshal(value)
	w.send(fmt.Sprintf(`{"type":"block_actions","trigger_id":"t1","user":{"id":%q},"channel":{"id":%q},
		"actions":[{"type":"button","block_id":"decide","action_id":%q,"value":%s}]}`, user, channel, action, quoted))
}

// eventually waits for something that holds while nothing changes.
func (w *workspace) eventually(what string, condition func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		w.mu.Lock()
		done := condition()
		w.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("it never happened that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// posted waits for a number of messages and returns the last.
func (w *workspace) posted(n int) message {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d messages are posted", n), func() bool { return len(w.messages) >= n })
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.messages) != n {
		w.t.Errorf("%d messages; want %d", len(w.messages), n)
	}
	return w.messages[n-1]
}

// value returns the value of the button of an action, or nothing if there is none.
func (m message) value(action string) string {
	var blocks []struct {
		Elements []struct {
			Action string `json:"action_id"`
			Value  string `json:"value"`
		} `json:"elements"`
	}
	_ = json.Unmarshal([]byte(m.blocks), &blocks)
	for _, b := range blocks {
		for _, e := range b.Elements {
			if e.Action == action {
				return e.Value
			}
		}
	}
	return ""
}

// checkBlocks demands that blocks keep the limits of Slack, and have no markup.
func checkBlocks(t *testing.T, text string) {
	t.Helper()
	if len(text) > 13_000 || strings.Contains(text, `"mrkdwn"`) {
		t.Errorf("blocks of %d bytes, or with markup: %.200s", len(text), text)
	}
	var blocks []struct {
		Type     string                  `json:"type"`
		Text     struct{ Text string }   `json:"text"`
		Fields   []struct{ Text string } `json:"fields"`
		Elements []struct {
			Value string `json:"value"`
		} `json:"elements"`
	}
	if err := json.Unmarshal([]byte(text), &blocks, json.MatchCaseInsensitiveNames(true)); err != nil || len(blocks) == 0 || len(blocks) > 50 {
		t.Errorf("%d blocks, %v", len(blocks), err)
	}
	for _, b := range blocks {
		most := 3000
		if b.Type == "header" {
			most = 150
		}
		if n := len([]rune(b.Text.Text)); n > most {
			t.Errorf("a %s of %d characters", b.Type, n)
		}
		if len(b.Fields) > 10 {
			t.Errorf("%d fields", len(b.Fields))
		}
		for _, f := range b.Fields {
			if n := len([]rune(f.Text)); n > 2000 || n == 0 {
				t.Errorf("a field of %d characters", n)
			}
		}
		for _, e := range b.Elements {
			if len(e.Value) > 2000 {
				t.Errorf("a value of %d bytes", len(e.Value))
			}
		}
	}
}
