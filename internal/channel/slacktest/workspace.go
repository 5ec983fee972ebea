// Package slacktest is a fake Slack for tests. It uses the real protocol over HTTP and
// WebSocket, and enforces the limits of Slack.
package slacktest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// ChannelID is the id of the channel that most tests use. The workspace has every other
// channel as well.
const ChannelID = "C024BE91L"

// A Workspace is a Slack workspace with one app and these users: alice (U1), mallory (U2),
// carol (U3), a user with an unconfirmed address (U4), ann (U5), and a bot (U6). U3 and U4 are
// the members of the user group S1.
type Workspace struct {
	t   *testing.T
	URL string // the URL of the API

	mu         sync.Mutex
	messages   []Message
	ephemerals []ephemeral
	views      []string
	sockets    []*websocket.Conn
	acked      map[string]bool
	refusals   map[string][]string         // the next error answers, by method
	lost       map[string]http.HandlerFunc // replaces the answer to the next request, by method
	botToken   string
	appToken   string
	deleted    bool                     // messages are deleted and cannot be changed
	stalls     map[string]chan struct{} // closed when requests continue, by method
	stalled    map[string]int           // the number of stalled requests, by method
	inTurn     bool                     // see InTurn
	envelopes  int
	addresses  map[string]string // changed e-mail addresses, by user
}

// An ephemeral is a message that only one user sees.
type ephemeral struct{ channel, user, text string }

// A Message is the present state of a posted message.
type Message struct {
	Channel, Stamp, Thread, Text, Blocks, Metadata string
	Changes                                        int
}

// users are the answers of users.info.
var users = map[string]string{
	"U1": `{"id":"U1","is_email_confirmed":true,"profile":{"email":"alice@example.com"}}`,
	"U2": `{"id":"U2","is_email_confirmed":true,"profile":{"email":"mallory@example.com"}}`,
	"U3": `{"id":"U3","is_email_confirmed":true,"profile":{"email":"carol@example.com"}}`,
	"U4": `{"id":"U4","is_email_confirmed":false,"profile":{"email":"alice@example.com"}}`,
	"U5": `{"id":"U5","is_email_confirmed":true,"profile":{"email":"ann"}}`,
	"U6": `{"id":"U6","is_bot":true}`,
}

// groups are the members of user groups.
var groups = map[string]string{"S1": `["U3","U4"]`}

// New returns a workspace for which the tokens xoxb-bot and xapp-app are valid.
func New(t *testing.T) *Workspace {
	t.Helper()
	w := &Workspace{
		t: t, acked: map[string]bool{}, refusals: map[string][]string{}, lost: map[string]http.HandlerFunc{},
		stalls: map[string]chan struct{}{}, stalled: map[string]int{},
	}
	w.Rotate("xoxb-bot", "xapp-app")
	mux := http.NewServeMux()
	mux.HandleFunc("/api/{method}", w.serve)
	mux.HandleFunc("/socket", w.connect)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.URL = server.URL + "/api/"
	return w
}

// Rotate replaces the valid tokens, and ends all connections.
func (w *Workspace) Rotate(bot, app string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.botToken, w.appToken = bot, app
	for _, s := range w.sockets {
		_ = s.Close()
	}
}

// Refuse makes the next requests for a method fail, each with one of the errors.
func (w *Workspace) Refuse(method string, errors ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range errors {
		w.refusals[method] = append(w.refusals[method], fmt.Sprintf(`{"ok":false,"error":%q,"needed":"chat:write"}`, e))
	}
}

// Limit makes the next request for a method fail with a rate limit.
func (w *Workspace) Limit(method string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusals[method] = append(w.refusals[method], "")
}

// Lose replaces the answer to the next request for a method. Slack still executes the request.
func (w *Workspace) Lose(method string, answer http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost[method] = answer
}

// Delete makes all messages look deleted to the gate.
func (w *Workspace) Delete() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted = true
}

// Stall delays changes of messages until resume is called.
func (w *Workspace) Stall() (resume func()) { return w.StallMethod("chat.update") }

// StallMethod delays requests for a method until resume is called.
func (w *Workspace) StallMethod(method string) (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stall := make(chan struct{})
	w.stalls[method] = stall
	return sync.OnceFunc(func() {
		w.mu.Lock()
		delete(w.stalls, method)
		w.mu.Unlock()
		close(stall)
	})
}

// serve answers a request to the API.
func (w *Workspace) serve(out http.ResponseWriter, r *http.Request) {
	method := r.PathValue("method")
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	if failed := r.ParseForm(); err != nil || failed != nil {
		w.t.Errorf("%s: %v, %v", method, err, failed)
	}
	if !w.wait(r, method) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out.Header().Set("Content-Type", "application/json")
	if w.refuse(out, method) || !w.authorized(out, r, method) {
		return
	}
	answer, known := w.methods()[method]
	if !known {
		w.t.Errorf("unexpected request for %s", method)
		return
	}
	text := answer(r, body)
	if other := w.lost[method]; other != nil {
		delete(w.lost, method)
		other(out, r)
		return
	}
	_, _ = io.WriteString(out, text)
}

// wait waits until requests for a method continue, and reports whether the client is still
// connected.
func (w *Workspace) wait(r *http.Request, method string) bool {
	w.mu.Lock()
	stall := w.stalls[method]
	if stall == nil {
		w.mu.Unlock()
		return true
	}
	w.stalled[method]++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stalled[method]--
	}()
	select {
	case <-stall:
		return true
	case <-r.Context().Done():
		return false
	}
}

func (w *Workspace) refuse(out http.ResponseWriter, method string) bool {
	next := w.refusals[method]
	if len(next) == 0 {
		return false
	}
	w.refusals[method] = next[1:]
	if next[0] == "" {
		out.Header().Set("Retry-After", "1")
		out.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = io.WriteString(out, next[0])
	return true
}

// authorized reports whether a request has the token that its method needs.
func (w *Workspace) authorized(out http.ResponseWriter, r *http.Request, method string) bool {
	token := w.botToken
	if method == "apps.connections.open" {
		token = w.appToken
	}
	if r.Header.Get("Authorization") == "Bearer "+token || r.Form.Get("token") == token {
		return true
	}
	_, _ = io.WriteString(out, `{"ok":false,"error":"token_revoked"}`)
	return false
}

// methods returns the methods of the API.
func (w *Workspace) methods() map[string]func(r *http.Request, body []byte) string {
	return map[string]func(r *http.Request, body []byte) string{
		"apps.connections.open": func(*http.Request, []byte) string {
			return fmt.Sprintf(`{"ok":true,"url":%q}`, "ws"+strings.TrimSuffix(strings.TrimPrefix(w.URL, "http"), "/api/")+"/socket")
		},
		"chat.postMessage": func(r *http.Request, _ []byte) string { return w.post(r) },
		"chat.update":      func(r *http.Request, _ []byte) string { return w.update(r) },
		"chat.postEphemeral": func(r *http.Request, _ []byte) string {
			w.ephemerals = append(w.ephemerals, ephemeral{r.Form.Get("channel"), r.Form.Get("user"), r.Form.Get("text")})
			return `{"ok":true,"message_ts":"1.1"}`
		},
		"views.open": func(_ *http.Request, body []byte) string {
			w.views = append(w.views, string(body))
			return `{"ok":true,"view":{"id":"V1"}}`
		},
		"users.info": func(r *http.Request, _ []byte) string {
			return fmt.Sprintf(`{"ok":true,"user":%s}`, w.user(r.Form.Get("user")))
		},
		"usergroups.users.list": func(r *http.Request, _ []byte) string {
			return fmt.Sprintf(`{"ok":true,"users":%s}`, groups[r.Form.Get("usergroup")])
		},
		"conversations.history": func(r *http.Request, _ []byte) string { return w.history(r.Form.Get("channel"), "") },
		"conversations.replies": func(r *http.Request, _ []byte) string { return w.history(r.Form.Get("channel"), r.Form.Get("ts")) },
	}
}

// user returns the answer of users.info for a user.
func (w *Workspace) user(id string) string {
	if now := w.addresses[id]; now != "" {
		return fmt.Sprintf(`{"id":%q,"is_email_confirmed":true,"profile":{"email":%q}}`, id, now)
	}
	return users[id]
}

// Moves changes the e-mail address of a user to another confirmed address.
func (w *Workspace) Moves(user, address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.addresses == nil {
		w.addresses = map[string]string{}
	}
	w.addresses[user] = address
}

func (w *Workspace) post(r *http.Request) string {
	m := Message{
		Channel: r.Form.Get("channel"), Stamp: fmt.Sprintf("%d.000100", 1700000000+len(w.messages)), Thread: r.Form.Get("thread_ts"),
		Text: r.Form.Get("text"), Blocks: r.Form.Get("blocks"), Metadata: r.Form.Get("metadata"),
	}
	if m.Blocks != "" {
		checkBlocks(w.t, m.Blocks)
	}
	w.messages = append(w.messages, m)
	return fmt.Sprintf(`{"ok":true,"channel":%q,"ts":%q}`, m.Channel, m.Stamp)
}

func (w *Workspace) update(r *http.Request) string {
	i := slices.IndexFunc(w.messages, func(m Message) bool { return m.Channel == r.Form.Get("channel") && m.Stamp == r.Form.Get("ts") })
	if i < 0 || w.deleted {
		return `{"ok":false,"error":"message_not_found"}`
	}
	checkBlocks(w.t, r.Form.Get("blocks"))
	w.messages[i].Blocks, w.messages[i].Text = r.Form.Get("blocks"), r.Form.Get("text")
	w.messages[i].Changes++
	return fmt.Sprintf(`{"ok":true,"channel":%q,"ts":%q}`, w.messages[i].Channel, w.messages[i].Stamp)
}

// history returns the messages of a channel, or of a thread in it.
func (w *Workspace) history(channel, thread string) string {
	var all []string
	for _, m := range w.messages {
		if m.Channel == channel && m.Thread == thread {
			all = append(all, fmt.Sprintf(`{"type":"message","ts":%q,"text":"","metadata":%s}`, m.Stamp, m.Metadata))
		}
	}
	return fmt.Sprintf(`{"ok":true,"messages":[%s]}`, strings.Join(all, ","))
}

// connect opens a socket and reads the acknowledgements of the client.
func (w *Workspace) connect(out http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := upgrader.Upgrade(out, r, nil)
	if err != nil {
		return
	}
	_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"hello","num_connections":1,"connection_info":{"app_id":"A1"},"debug_info":{"host":"h"}}`))
	w.mu.Lock()
	w.sockets = append(w.sockets, conn)
	w.mu.Unlock()
	gone := make(chan struct{})
	defer close(gone)
	go ping(conn, gone)
	for {
		_, text, err := conn.ReadMessage()
		w.mu.Lock()
		if err != nil {
			w.sockets = slices.DeleteFunc(w.sockets, func(c *websocket.Conn) bool { return c == conn })
			w.mu.Unlock()
			return
		}
		var ack struct {
			ID string `json:"envelope_id"`
		}
		if json.Unmarshal(text, &ack) == nil {
			w.acked[ack.ID] = true
		}
		w.mu.Unlock()
	}
}

// pingTime is the time between two pings of a socket. A client disconnects if it receives none
// for 30 seconds.
const pingTime = 5 * time.Second

// ping sends pings until the client disconnects, as Slack does.
func ping(conn *websocket.Conn, gone <-chan struct{}) {
	tick := time.NewTicker(pingTime)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-tick.C:
			_ = conn.WriteControl(websocket.PingMessage, nil, time.Time{})
		}
	}
}
