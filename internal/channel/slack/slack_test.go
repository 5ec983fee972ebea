package slack_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/slack"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is a desk that asks a workspace. Alice (U1) and the members of on-call
// (S1) may approve.
type fixture struct {
	*workspace

	store task.Store
	desk  *approval.Desk
	tool  string // that hold calls
}

func open(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{workspace: newWorkspace(t), store: memstore.New(memstore.Options{}), tool: "delete_file"}
	t.Cleanup(func() { f.store.Close() })
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	var err error
	f.desk, err = approval.New(approval.Config{
		Store: f.store,
		Judge: func(policy.Call) policy.Verdict { return policy.Verdict{Action: policy.Approve, Workflow: "chat"} },
		Workflow: func(string) (approval.Workflow, bool) {
			return approval.Workflow{Approvers: []string{"alice", "group:on-call", "ann"}, Timeout: time.Hour, Redact: []string{"arguments.password"}}, true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// run runs the outbox until the test ends.
func (f *fixture) run() {
	chat := slack.New(slack.Config{
		URL: f.url + "/api/", BotToken: "xoxb-bot", AppToken: "xapp-app", Channel: channelID,
		People: map[string]string{"U1": "alice", "U5": "ann", "U6": "robot"}, Groups: map[string]string{"S1": "on-call"},
		Decide: f.desk.Decide, Explain: api.Message, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	o := channel.New(channel.Config{
		Store: f.store, Cases: f.desk.Cases(), Channels: map[string]channel.Channel{"chat": chat},
		Of:   func(workflow string) []string { return []string{workflow} },
		Page: func(id task.ID) string { return "https://gate.example.com/approvals/" + string(id) },
		Name: "a", Metrics: counted{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { o.Run(ctx); close(done) }()
	f.t.Cleanup(func() { cancel(); <-done })
}

// counted is for those who count nothing.
type counted struct{}

func (counted) ChannelSent(string, error)  {}
func (counted) ChannelWaiting(string, int) {}

// hold holds a call with arguments.
func (f *fixture) hold(arguments string) task.ID {
	f.t.Helper()
	held, _, err := f.desk.Hold(f.t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files",
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: "chat", Reason: `rule "<!channel> *bold*"`},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + f.tool + `","arguments":` + arguments + `}}`),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return held.ID
}

func (f *fixture) state(id task.ID) task.Task {
	f.t.Helper()
	t, err := f.store.Get(f.t.Context(), task.AnyOwner().Ref(id))
	if err != nil {
		f.t.Fatal(err)
	}
	return t
}

// updated waits until the message says something.
func (f *fixture) updated(text string) {
	f.t.Helper()
	f.eventually("the message says "+text, func() bool { return strings.Contains(f.messages[len(f.messages)-1].blocks, text) })
}

// Somebody approves a call in Slack, and the message says so.
func TestApprove(t *testing.T) {
	f := open(t)
	f.run()
	id := f.hold(`{"path":"/a","password":"hunter2"}`)
	m := f.posted(1)
	for _, want := range []string{"Approval needed: delete_file", "Requested by: ann", `\"path\": \"/a\"`, "https://gate.example.com/approvals/" + string(id)} {
		if !strings.Contains(m.blocks, want) {
			t.Errorf("the message has no %q: %s", want, m.blocks)
		}
	}
	if strings.Contains(m.blocks+m.text, "hunter2") || strings.Contains(m.text, "/a") {
		t.Error("the message has what it must not have")
	}
	f.click("U1", "approve", m.value("approve"), channelID)
	f.updated("Approved by alice")
	if got := f.state(id); got.State != task.Approved || f.posted(1).value("approve") != "" {
		t.Errorf("state %s, buttons %q", got.State, f.posted(1).value("approve"))
	}
}

// Somebody rejects a call with a reason, for which a window opens. A member of a
// user group counts by a confirmed e-mail address.
func TestReject(t *testing.T) {
	f := open(t)
	f.run()
	id := f.hold(`{"path":"/a"}`)
	m := f.posted(1)
	f.click("U3", "reject", m.value("reject"), channelID)
	f.eventually("the window opens", func() bool { return len(f.views) == 1 && strings.Contains(f.views[0], "thoughtgate_reject") })
	metadata, _ := json.Marshal(m.value("reject"))
	f.send(fmt.Sprintf(`{"type":"view_submission","user":{"id":"U3"},"view":{"callback_id":"thoughtgate_reject","private_metadata":%s,
		"state":{"values":{"reason":{"reason":{"type":"plain_text_input","value":"not on a Friday"}}}}}}`, metadata))
	f.updated("Rejected by carol@example.com: not on a Friday")
	if got := f.state(id); got.State != task.Rejected || got.Approval.Rejection.Reason != "not on a Friday" {
		t.Errorf("state %s", got.State)
	}
}

// Nobody else can decide: a stranger, a bot, somebody whose address is not confirmed,
// the requester, or anybody with a message of another channel or another digest. Each
// is told why.
func TestRefused(t *testing.T) {
	f := open(t)
	f.run()
	id := f.hold(`{"path":"/a"}`)
	value := f.posted(1).value("approve")
	for i, c := range []struct{ user, value, why string }{
		{"U2", value, "not set up as an approver"},
		{"U4", value, "not set up as an approver"},
		{"U6", value, "not set up as an approver"},
		{"U5", value, "cannot approve a call from your own agent"},
		{"U1", strings.Replace(value, `"shown":"`, `"shown":"x`, 1), "differs from what you were shown"},
	} {
		f.click(c.user, "approve", c.value, channelID)
		f.eventually(c.user+" is told why", func() bool { return len(f.ephemerals) > i })
		f.mu.Lock()
		got := f.ephemerals[i]
		f.mu.Unlock()
		if !strings.HasPrefix(got, c.user+": ") || !strings.Contains(got, c.why) {
			t.Errorf("%s is told %q; want %q", c.user, got, c.why)
		}
	}
	f.click("U1", "approve", value, "C0OTHER")
	f.click("U1", "unknown", value, channelID)
	if got := f.state(id); got.State != task.InputRequired || len(got.Approval.Approvals) > 0 {
		t.Errorf("state %s with %d approvals", got.State, len(got.Approval.Approvals))
	}
}

// Hostile text stays text, and what does not fit cannot be approved in Slack.
func TestHostile(t *testing.T) {
	f := open(t)
	f.run()
	f.hold("{\"a\":\"<!channel> ``` *x* <https://evil|click> :fire: &amp; \\u202egnp\"}")
	if m := f.posted(1); m.value("approve") == "" || !strings.Contains(m.blocks, "```") {
		t.Errorf("a short call: %s", m.blocks)
	}
	if strings.Contains(f.posted(1).text, "<!channel>") {
		t.Error("a notification has markup")
	}
	f.hold(`{"a":"` + strings.Repeat("x", 900_000) + `"}`)
	m := f.posted(2)
	if m.value("approve") != "" || m.value("reject") == "" || !strings.Contains(m.blocks, "does not show the whole call") {
		t.Errorf("a long call: %s", m.blocks)
	}
}

// A tool whose name does not fit into the message cannot be approved in Slack either:
// its end may say what it does.
func TestLongName(t *testing.T) {
	f := open(t)
	f.run()
	f.tool = "read_notes" + strings.Repeat("_", 150) + "and_delete_all"
	f.hold(`{}`)
	if m := f.posted(1); m.value("approve") != "" || m.value("reject") == "" {
		t.Errorf("a long name: %s", m.blocks)
	}
}

// A message that Slack has no time for is sent again later, once.
func TestRateLimited(t *testing.T) {
	f := open(t)
	f.refusals = []func(http.ResponseWriter){
		func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		func(w http.ResponseWriter) { fmt.Fprint(w, `{"ok":false,"error":"is_archived"}`) },
	}
	f.run()
	f.hold(`{}`)
	f.posted(1)
}

// A gate that was killed after it had sent a message does not send it again.
func TestFoundAgain(t *testing.T) {
	f := open(t)
	id := f.hold(`{}`)
	f.messages = []message{{stamp: "1700000000.000100", metadata: fmt.Sprintf(`{"event_type":"thoughtgate_question","event_payload":{"task":%q}}`, id)}}
	if err := f.store.PutRecord(t.Context(), task.Record{Name: "channel/chat/" + string(id), Version: 1, Value: []byte(`{"attempts":1}`)}); err != nil {
		t.Fatal(err)
	}
	f.run()
	f.eventually("the gate looks for its message", func() bool { return len(f.sockets) > 0 })
	if _, err := f.desk.Decide(t.Context(), id, approval.Approver{Name: "alice"}, approval.Ruling{Decision: approval.Reject}); err != nil {
		t.Fatal(err)
	}
	f.updatedOrGone()
	f.posted(1)
}

// updatedOrGone waits until the one message was changed, or its question forgotten
// because it was decided before it could be asked.
func (f *fixture) updatedOrGone() {
	f.t.Helper()
	f.eventually("the message is changed", func() bool {
		records, err := f.store.ListRecords(f.t.Context(), task.RecordQuery{Prefix: "channel/chat/", Limit: 10})
		return err == nil && (len(records) == 0 || f.messages[0].changes > 0)
	})
}

// Slack asks the gate to connect again now and then: clicks arrive afterwards. A
// message that somebody has deleted needs no update.
func TestReconnects(t *testing.T) {
	f := open(t)
	f.run()
	id := f.hold(`{}`)
	m := f.posted(1)
	f.eventually("the gate connects", func() bool { return len(f.sockets) == 1 })
	f.mu.Lock()
	first := f.sockets[0]
	f.deleted = true
	f.mu.Unlock()
	if err := first.WriteMessage(1, []byte(`{"type":"disconnect","reason":"refresh_requested","debug_info":{"host":"h"}}`)); err != nil {
		t.Fatal(err)
	}
	f.eventually("the gate connects again", func() bool { return len(f.sockets) > 0 && f.sockets[len(f.sockets)-1] != first })
	f.click("U1", "approve", m.value("approve"), channelID)
	f.eventually("the call is approved", func() bool { return f.state(id).State == task.Approved })
}
