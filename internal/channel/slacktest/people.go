package slacktest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// Send sends an envelope with an interaction, and waits until it is acknowledged.
func (w *Workspace) Send(payload string) {
	w.t.Helper()
	w.await("the gate connects", func() bool { return len(w.sockets) > 0 })
	w.mu.Lock()
	w.envelopes++
	id := fmt.Sprintf("e%d", w.envelopes)
	err := w.connection().WriteMessage(websocket.TextMessage,
		fmt.Appendf(nil, `{"type":"interactive","envelope_id":%q,"accepts_response_payload":true,"payload":%s}`, id, payload))
	w.mu.Unlock()
	if err != nil {
		w.t.Fatal(err)
	}
	w.await("the gate acknowledges a click", func() bool { return w.acked[id] })
}

// InTurn sends each further click to the next connection. The real Slack chooses connections
// at random.
func (w *Workspace) InTurn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inTurn = true
}

// connection returns the connection for the next click: the newest, unless [Workspace.InTurn]
// was called.
func (w *Workspace) connection() *websocket.Conn {
	if w.inTurn {
		return w.sockets[w.envelopes%len(w.sockets)]
	}
	return w.sockets[len(w.sockets)-1]
}

// Click sends the click of a user on a button of a message in a channel.
func (w *Workspace) Click(user, action, value, channel string) {
	w.t.Helper()
	quoted, _ := json.Marshal(value) // a text
	w.Send(fmt.Sprintf(`{"type":"block_actions","trigger_id":"t1","user":{"id":%q},"channel":{"id":%q},
		"actions":[{"type":"button","block_id":"decide","action_id":%q,"value":%s}]}`, user, channel, action, quoted))
}

// Submit sends a window in which a user has entered a reason.
func (w *Workspace) Submit(user, window, reason string) {
	w.t.Helper()
	var opened struct {
		View struct {
			Callback string `json:"callback_id"`
			Metadata string `json:"private_metadata"`
		} `json:"view"`
	}
	if err := json.Unmarshal([]byte(window), &opened); err != nil {
		w.t.Fatal(err)
	}
	metadata, _ := json.Marshal(opened.View.Metadata) // a text
	w.Send(fmt.Sprintf(`{"type":"view_submission","user":{"id":%q},"view":{"callback_id":%q,"private_metadata":%s,
		"state":{"values":{"reason":{"reason":{"type":"plain_text_input","value":%q}}}}}}`, user, opened.View.Callback, metadata, reason))
}

// Refresh asks the gate to connect again, as Slack does from time to time, and waits for that.
func (w *Workspace) Refresh() {
	w.t.Helper()
	w.Reconnects(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := w.sockets[0].WriteMessage(websocket.TextMessage, []byte(`{"type":"disconnect","reason":"refresh_requested","debug_info":{"host":"h"}}`)); err != nil {
			w.t.Error(err)
		}
	})
}

// Reconnects calls why, after which the gate must connect again. It waits for that, and until
// earlier connections have ended.
func (w *Workspace) Reconnects(why func()) {
	w.t.Helper()
	w.Connected()
	w.mu.Lock()
	before := slices.Clone(w.sockets)
	w.mu.Unlock()
	why()
	w.await("the gate connects again", func() bool {
		return len(w.sockets) > 0 && !slices.ContainsFunc(w.sockets, func(c *websocket.Conn) bool { return slices.Contains(before, c) })
	})
}

// Connected waits until the gate is connected.
func (w *Workspace) Connected() {
	w.t.Helper()
	w.await("the gate connects", func() bool { return len(w.sockets) > 0 })
}

// Disconnected waits until the gate is not connected.
func (w *Workspace) Disconnected() {
	w.t.Helper()
	w.await("the gate disconnects", func() bool { return len(w.sockets) == 0 })
}

// Connections returns the number of connections of the gate.
func (w *Workspace) Connections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sockets)
}

// Stalled waits until a request for a method waits: see [Workspace.StallMethod].
func (w *Workspace) Stalled(method string) {
	w.t.Helper()
	w.await("a request for "+method+" waits", func() bool { return w.stalled[method] > 0 })
}

// Abandoned waits until the clients of all stalled requests for a method have disconnected: see
// [Workspace.StallMethod].
func (w *Workspace) Abandoned(method string) {
	w.t.Helper()
	w.await("no request for "+method+" waits", func() bool { return w.stalled[method] == 0 })
}

// await waits until a condition is true. It calls condition with the lock held.
func (w *Workspace) await(what string, condition func() bool) {
	w.t.Helper()
	w.Eventually(what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return condition()
	})
}

// Eventually waits until a condition is true.
func (w *Workspace) Eventually(what string, condition func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(2 * time.Minute) // a gate that was killed has claimed a message for 40 seconds
	defer deadline.Stop()
	for {
		if condition() {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			w.t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// Messages returns all messages.
func (w *Workspace) Messages() []Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.messages)
}

// Put adds a message that was posted earlier. Its default channel is [ChannelID].
func (w *Workspace) Put(m Message) {
	if m.Channel == "" {
		m.Channel = ChannelID
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.messages = append(w.messages, m)
}

// Posted waits for n messages and returns the last one.
func (w *Workspace) Posted(n int) Message {
	w.t.Helper()
	w.await(fmt.Sprintf("%d messages are posted", n), func() bool { return len(w.messages) >= n })
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.messages) != n {
		w.t.Errorf("%d messages; want %d", len(w.messages), n)
	}
	return w.messages[n-1]
}

// Says waits until the last message outside of threads contains a text.
func (w *Workspace) Says(text string) {
	w.t.Helper()
	w.await("the message says "+text, func() bool {
		for _, m := range slices.Backward(w.messages) {
			if m.Thread == "" {
				return strings.Contains(m.Blocks, text)
			}
		}
		return false
	})
}

// PostedIn waits for n messages in a channel and returns the last one.
func (w *Workspace) PostedIn(channel string, n int) Message {
	w.t.Helper()
	var found []Message
	w.await(fmt.Sprintf("%d messages are posted in %s", n, channel), func() bool {
		found = slices.DeleteFunc(slices.Clone(w.messages), func(m Message) bool { return m.Channel != channel })
		return len(found) >= n
	})
	if len(found) != n {
		w.t.Errorf("%d messages in %s; want %d", len(found), channel, n)
	}
	return found[n-1]
}

// Told waits for n messages to single users, and returns the last one.
func (w *Workspace) Told(n int) string {
	w.t.Helper()
	_, text := w.ToldIn(n)
	return text
}

// ToldIn is [Workspace.Told] with the channel of the message.
func (w *Workspace) ToldIn(n int) (channel, text string) {
	w.t.Helper()
	w.await(fmt.Sprintf("%d users get a message of their own", n), func() bool { return len(w.ephemerals) >= n })
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.ephemerals[n-1]
	return last.channel, last.user + ": " + last.text
}

// Tellings returns the number of messages to single users.
func (w *Workspace) Tellings() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ephemerals)
}

// Opened waits for a window, and returns it.
func (w *Workspace) Opened() string {
	w.t.Helper()
	w.await("a window opens", func() bool { return len(w.views) > 0 })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.views[len(w.views)-1]
}

// Value returns the value of the button for an action, or "".
func (m Message) Value(action string) string {
	var blocks []struct {
		Elements []struct {
			Action string `json:"action_id"`
			Value  string `json:"value"`
		} `json:"elements"`
	}
	_ = json.Unmarshal([]byte(m.Blocks), &blocks)
	for _, b := range blocks {
		for _, e := range b.Elements {
			if e.Action == action {
				return e.Value
			}
		}
	}
	return ""
}

// A block has the parts of a block that Slack limits.
type block struct {
	Type     string
	Text     struct{ Text string }
	Fields   []struct{ Text string }
	Elements []struct{ Value string }
}

// checkBlocks checks that blocks keep the limits of Slack, and have no markup.
func checkBlocks(t *testing.T, text string) {
	t.Helper()
	if len(text) > 13_000 || strings.Contains(text, `"mrkdwn"`) {
		t.Errorf("blocks of %d bytes, or with markup: %.200s", len(text), text)
	}
	var blocks []block
	if err := json.Unmarshal([]byte(text), &blocks); err != nil || len(blocks) == 0 || len(blocks) > 50 {
		t.Errorf("%d blocks, %v", len(blocks), err)
	}
	for _, b := range blocks {
		b.check(t)
	}
}

func (b block) check(t *testing.T) {
	t.Helper()
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
