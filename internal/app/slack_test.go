package app_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/slacktest"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// chatOf returns the settings of a Slack channel.
func chatOf(w *slacktest.Workspace) string {
	return fmt.Sprintf("chat: {slack: {bot_token: xoxb-bot, app_token: xapp-app, channel: %s, people: {U1: alice}, url: '%s'}}", slacktest.ChannelID, w.URL)
}

// Decisions in Slack, in the inbox and by a webhook arrive at the same time: one of them
// counts, and every message ends with the same outcome.
func TestSimultaneousDecisionsCountOnce(t *testing.T) {
	const rounds = 5
	space, r := slacktest.New(t), newReceiver(t)
	h := startAsking(t, r, "memory:", "allow_private: true,", chatOf(space))
	for n := range rounds {
		answer := h.hold(fmt.Sprintf("hold_%d", n))
		asked := h.await("the question", func(m received) bool { return m.stage == "pending" && m.approval.Tool == fmt.Sprintf("hold_%d", n) })
		message := space.Posted(n + 1)
		var deciding sync.WaitGroup
		for _, one := range []func(){
			func() { space.Click("U1", "approve", message.Value("approve"), slacktest.ChannelID) },
			func() { decide(t, h.gate.OperatorAddr(), asked.approval.ID, "reject") },
			func() { h.decide(answerKey, time.Now(), "risk", asked.decision("reject")) },
		} {
			deciding.Go(one)
		}
		deciding.Wait()
		text := <-answer
		end := h.await("the end", func(m received) bool {
			return m.approval.ID == asked.approval.ID && (m.stage == "rejected" || m.stage == "completed")
		})
		ran := end.stage == "completed"
		if ran != strings.Contains(text, "done") {
			t.Errorf("the receiver gets %s, and the agent %s", end.stage, text)
		}
		story := map[bool]string{true: "Approved, and it ran", false: "Rejected: hold_"}[ran]
		space.Says(story)
		if ran != strings.Contains(end.body, `"by":"alice"`) {
			t.Errorf("%s names the wrong approver: %s", end.stage, end.body)
		}
	}
	told := map[string]int{}
	for _, m := range h.all() {
		told[m.id]++
	}
	for id, n := range told {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
	space.Posted(rounds)
}

// A revoked token shows in the inbox and in the metrics. A new token in the configuration is
// used without a restart.
func TestSlackTokenRotated(t *testing.T) {
	space := slacktest.New(t)
	r := startReloadable(t, "rules: [{match: 'hold_*', action: approve}]\ndefault: deny\nwaiting: {hold: 0s}\nworkflows: {default: {channels: [inbox, chat]}}\nchannels: {"+
		chatOf(space)+"}\n", "token: secret-of-the-operators, ")
	space.Connected()
	space.Rotate("xoxb-new", "xapp-new")
	holdAt(t, r.AgentAddr(), "hold_x")
	page := func() string {
		q, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.OperatorAddr()+"/", http.NoBody)
		q.Header.Set("Authorization", "Bearer secret-of-the-operators")
		return do(t, q)
	}
	eventually(t, "the inbox shows the failure", func() bool {
		text := page()
		return strings.Contains(text, "1 message not sent") && strings.Contains(text, "the gate does not receive decisions made there") && strings.Contains(text, "token_revoked")
	})
	_, metrics := get(t, "http://"+r.OperatorAddr()+"/metrics")
	for _, want := range []string{`thoughtgate_channel_messages_waiting{channel="chat"} 1`, `thoughtgate_channel_listening{channel="chat"} 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	if strings.Contains(page(), "xoxb-") {
		t.Error("the page shows a token")
	}
	r.write(strings.NewReplacer("xoxb-bot", "xoxb-new", "xapp-app", "xapp-new").Replace(r.text()))
	m := space.Posted(1)
	space.Click("U1", "approve", m.Value("approve"), slacktest.ChannelID)
	space.Says("Approved by alice")
	eventually(t, "the failure is over", func() bool { return !strings.Contains(page(), "Channel chat") })
	r.write(strings.NewReplacer("channels: [inbox, chat]", "channels: [inbox]").Replace(strings.Split(r.text(), "channels: {chat")[0]))
	eventually(t, "the metrics lack the channel", func() bool {
		_, metrics := get(t, "http://"+r.OperatorAddr()+"/metrics")
		return !strings.Contains(metrics, `thoughtgate_channel_listening{channel="chat"}`)
	})
}

// Two channels use the same Slack app, for an escalation or for two workflows. Decisions in
// both count, whichever connection they come by. After one has moved to another Slack channel,
// a click on a message in the former one is answered.
func TestSlackChannelsOfOneApp(t *testing.T) {
	const managers, moved = "C0MANAGERS", "C0MOVED"
	space := slacktest.New(t)
	second := strings.NewReplacer("chat: ", "managers: ", slacktest.ChannelID, managers).Replace(chatOf(space))
	r := startReloadable(t, "rules: [{match: 'hold_*', action: approve}]\ndefault: deny\nwaiting: {hold: 0s}\nworkflows: {default: {channels: [inbox, chat, managers]}}\nchannels: {"+
		chatOf(space)+", "+second+"}\n", "token: secret-of-the-operators, ")
	space.InTurn()
	for i, where := range []string{slacktest.ChannelID, slacktest.ChannelID, managers, managers} {
		holdAt(t, r.AgentAddr(), fmt.Sprintf("hold_%d", i))
		m := space.PostedIn(where, i+1)
		for _, other := range []string{slacktest.ChannelID, managers} { // a decided call causes no new message
			space.PostedIn(other, i+1)
		}
		space.Click("U1", "approve", m.Value("approve"), where)
		space.Eventually("the click in "+where+" counts", func() bool { return strings.Contains(space.PostedIn(where, i+1).Blocks, "Approved by alice") })
	}
	holdAt(t, r.AgentAddr(), "hold_moved")
	old := space.PostedIn(managers, 5)
	space.Reconnects(func() { r.write(strings.Replace(r.text(), managers, moved, 1)) })
	space.PostedIn(moved, 1)
	space.Click("U1", "approve", old.Value("approve"), managers)
	if where, told := space.ToldIn(1); where != managers || !strings.Contains(told, "the gate takes no decisions in this Slack channel") {
		t.Errorf("got %q in %s", told, where)
	}
}

// holdAt makes a call that is held.
func holdAt(t *testing.T, address, tool string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json, text/event-stream")
	q.Header.Set("Mcp-Session-Id", "s-1")
	do(t, q)
}

// Gates with different configurations share a desk. Each has an upstream and a channel of the
// same name, and notifies only its own approvers about its own calls.
func TestGatesNotifyAboutTheirOwnCalls(t *testing.T) {
	state := t.TempDir()
	var ran atomic.Int64
	receivers := map[string]*receiver{}
	for _, name := range []string{"ann", "bob"} {
		r := newReceiver(t)
		receivers[name] = r
		gate, stop := start(t, deskGate(state, "files", counting(t, &ran), "{channels: [inbox, risk]}")+
			fmt.Sprintf("waiting: {hold: 0s}\nchannels: {risk: {webhook: {url: '%s', secret: %s, allow_private: true}}}\n", r.url, secretOf(questionKey)))
		t.Cleanup(func() { stop() })
		holdAt(t, gate.AgentAddr(), "hold_"+name)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	desk := found(t, state)
	for name, r := range receivers {
		asked := r.stage("pending")
		if asked.approval.Tool != "hold_"+name {
			t.Errorf("the approvers of %s are asked about %s", name, asked.approval.Tool)
		}
		if _, err := desk.Decide(t.Context(), task.ID(asked.approval.ID), approval.Ruling{Decision: approval.Reject}); err != nil {
			t.Fatal(err)
		}
		r.stage("rejected")
	}
	for name, r := range receivers {
		for _, m := range r.all() {
			if m.approval.Tool != "hold_"+name {
				t.Errorf("the approvers of %s are notified about %s", name, m.approval.Tool)
			}
		}
	}
}

// A call of a workflow with an e-mail channel is sent to the mail server.
func TestMailChannel(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mails := make(chan string, 10)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mails <- takeMail(conn)
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	r := startReloadable(t, "rules: [{match: 'hold_*', action: approve}]\ndefault: deny\nwaiting: {hold: 0s}\nworkflows: {default: {channels: [inbox, mail]}}\n"+
		"channels: {mail: {email: {server: '"+listener.Addr().String()+"', security: none, from: Gate <gate@example.com>, to: [ops@example.com]}}}\n",
		"token: secret-of-the-operators, ")
	holdAt(t, r.AgentAddr(), "hold_x")
	if text := <-mails; !strings.Contains(text, "RCPT TO:<ops@example.com>") || !strings.Contains(text, "http://"+r.OperatorAddr()+"/approvals/tg_") {
		t.Errorf("the mail:\n%s", text)
	}
}

// takeMail receives a mail like a server without encryption.
func takeMail(conn net.Conn) string {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	var all strings.Builder
	io.WriteString(conn, "220 ready\r\n")
	answers := map[string]string{"EHLO": "250 hello", "DATA": "354 go on", ".": "250 taken", "QUIT": "221 bye", "MAIL": "250 ok", "RCPT": "250 ok"}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		all.WriteString(strings.TrimSuffix(lines.Text(), "=") + map[bool]string{true: "", false: "\n"}[strings.HasSuffix(lines.Text(), "=")])
		command, _, _ := strings.Cut(lines.Text(), " ")
		if answer := answers[command]; answer != "" {
			io.WriteString(conn, answer+"\r\n")
		}
	}
	return all.String()
}

// Wraps of the same server share its notifications. A wrap of another server notifies its own
// approvers, although all use one store and have a channel of the same name.
func TestWrapsNotifyAboutTheirOwnCalls(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	var ran atomic.Int64
	file := filepath.Join(t.TempDir(), "own.db")
	text := func(r *receiver) string {
		return "version: 1\noperators: {listen: 127.0.0.1:0, token: secret-of-the-operators}\nstore: 'sqlite:" + file +
			"'\nupstreams: [{url: http://127.0.0.1:1/}]\nwaiting: {hold: 1m}\nrules: [{match: 'hold_*', action: approve}]\ndefault: forward\n" +
			fmt.Sprintf("workflows: {default: {channels: [inbox, risk]}}\nchannels: {risk: {webhook: {url: '%s', secret: %s, allow_private: true}}}\n", r.url, secretOf(questionKey))
	}
	files, mail := newReceiver(t), newReceiver(t)
	target := counting(t, &ran)
	wraps := map[*receiver]*wrap{files: startWrap(t, text(files), "files", target), mail: startWrap(t, text(mail), "mail", counting(t, &ran))}
	startWrap(t, text(files), "files", target) // a second wrap of the same server
	for r, w := range wraps {
		w.say(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold_it","arguments":{}}}`)
		asked := r.stage("pending")
		approve(t, w.OperatorAddr(), asked.approval.ID)
		w.hear(`"id":1`)
		r.stage("completed")
	}
	for r := range wraps {
		seen := map[string]bool{}
		for _, m := range r.all() {
			if seen[m.id] {
				t.Errorf("%s was sent twice", m.id)
			}
			seen[m.id] = true
		}
		if len(r.all()) > 3 { // pending, approved if it was seen, completed
			t.Errorf("%d messages", len(r.all()))
		}
	}
}
