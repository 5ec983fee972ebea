package slack_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/slack"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/slacktest"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is an approval service with a Slack channel. Alice (U1) and the members of
// on-call (S1) may approve.
type fixture struct {
	*slacktest.Workspace

	t *testing.T

	store     gatestore.Store
	approvals *approval.Service
	tool      string // the tool of calls by hold
	digest    string // the digest of its definition
	outbox    *channel.Outbox
	plan      policy.Workflow // the workflow, without its channels
	quorum    int

	channels map[string]channel.Channel // by default, one channel named chat
}

func open(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, Workspace: slacktest.New(t), store: memstore.New(memstore.Options{}), tool: "delete_file"}
	t.Cleanup(func() { f.store.Close() })
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	var err error
	f.approvals, err = approval.New(approval.Config{
		Store: f.store,
		Judge: func(policy.Call) policy.Verdict { return policy.Verdict{Action: policy.Approve, Workflow: "chat"} },
		Workflow: func(string) (approval.Workflow, bool) {
			return approval.Workflow{Quorum: f.quorum, Approvers: []string{"alice", "group:on-call", "ann"}, Timeout: time.Hour, Redact: []string{"arguments.password"}}, true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// chat returns a Slack channel.
func (f *fixture) chat() *slack.Slack {
	return slack.New(f.settings())
}

func (f *fixture) settings() slack.Config {
	return slack.Config{
		Name: "ops",
		URL:  f.URL, BotToken: "xoxb-bot", AppToken: "xapp-app", Channel: slacktest.ChannelID,
		People: map[string]string{"U1": "alice", "U5": "ann", "U6": "robot"}, Groups: map[string]string{"S1": "on-call"},
		Decide: f.approvals.Decide, Explain: api.Message, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
}

// run runs the outbox until the test ends or stop is called. Stop waits for its end.
func (f *fixture) run() (stop func()) {
	if f.channels == nil {
		f.channels = map[string]channel.Channel{"chat": f.chat()}
	}
	f.outbox = channel.New(channel.Config{
		Store: f.store, Cases: f.approvals.Viewer(), Channels: f.channels,
		Workflow: func(task.Task) policy.Workflow {
			p := f.plan
			p.Channels = slices.Sorted(maps.Keys(f.channels))
			return p
		},
		Page: func(id task.ID) string { return "https://gate.example.com/approvals/" + string(id) },
		Name: "a", Metrics: noMetrics{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() { f.outbox.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	f.t.Cleanup(stop)
	return stop
}

// noMetrics implements [channel.Metrics] and counts nothing.
type noMetrics struct{}

func (noMetrics) ChannelSent(string, error)     {}
func (noMetrics) ChannelWaiting(string, int)    {}
func (noMetrics) ChannelReceives(string, error) {}

// hold holds a call with arguments.
func (f *fixture) hold(arguments string) task.ID {
	f.t.Helper()
	held, _, err := f.approvals.Hold(f.t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files", Tool: approval.Tool{Digest: f.digest},
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

// TestApprovalInSlackCounts checks that a click approves a call, and that the message names the
// approver.
func TestApprovalInSlackCounts(t *testing.T) {
	f := open(t)
	f.run()
	id := f.hold(`{"path":"/a","password":"hunter2"}`)
	m := f.Posted(1)
	for _, want := range []string{"Approval needed: delete_file", "Requested by: ann", `\"path\": \"/a\"`, "https://gate.example.com/approvals/" + string(id)} {
		if !strings.Contains(m.Blocks, want) {
			t.Errorf("the message lacks %q: %s", want, m.Blocks)
		}
	}
	if strings.Contains(m.Blocks+m.Text, "hunter2") || strings.Contains(m.Text, "/a") {
		t.Error("the message has a redacted value, or its notification has arguments")
	}
	f.Click("U1", "approve", m.Value("approve"), slacktest.ChannelID)
	f.Says("Approved by alice")
	if got := f.state(id); got.State != task.Approved || f.Posted(1).Value("approve") != "" || !strings.Contains(f.Posted(1).Blocks, string(id)) {
		t.Errorf("state %s, message %s", got.State, f.Posted(1).Blocks)
	}
}

// TestRejectionInSlackHasReason checks that a click opens a window for the reason of a
// rejection. A member of a user group decides under a confirmed e-mail address.
func TestRejectionInSlackHasReason(t *testing.T) {
	f := open(t)
	f.run()
	id := f.hold(`{"path":"/a"}`)
	m := f.Posted(1)
	f.Click("U3", "reject", m.Value("reject"), slacktest.ChannelID)
	if window := f.Opened(); !strings.Contains(window, "thoughtgate_reject") {
		t.Errorf("window %s", window)
	}
	f.Submit("U3", f.Opened(), "not on a Friday")
	f.Says("Rejected by carol@example.com: not on a Friday")
	if m := f.Posted(1); strings.Contains(m.Blocks, "It failed") {
		t.Errorf("the message about a rejected call says that it failed: %s", m.Blocks)
	}
	got := f.state(id)
	if got.State != task.Rejected || got.Approval.Rejection.Reason != "not on a Friday" {
		t.Errorf("state %s", got.State)
	}
	if via := got.Approval.Rejection.Via; via != (gatetask.Via{Kind: gatetask.ViaChannel, Channel: "ops", Account: "U3"}) {
		t.Errorf("via %+v", via)
	}
}

// TestOnlyApproversDecideInSlack checks that unknown users, bots, users without a confirmed
// address and the requester cannot decide, and that the digest and the channel of a click must
// match. Each user is told the reason.
func TestOnlyApproversDecideInSlack(t *testing.T) {
	f := open(t)
	f.run()
	id := f.hold(`{"path":"/a"}`)
	value := f.Posted(1).Value("approve")
	for i, c := range []struct{ user, value, why string }{
		{"U2", value, "not set up as an approver"},
		{"U4", value, "not set up as an approver"},
		{"U6", value, "not set up as an approver"},
		{"U5", value, "cannot approve a call from your own agent"},
		{"U1", strings.Replace(value, `"shown":"`, `"shown":"x`, 1), "differs from what you were shown"},
	} {
		f.Click(c.user, "approve", c.value, slacktest.ChannelID)
		if got := f.Told(i + 1); !strings.HasPrefix(got, c.user+": ") || !strings.Contains(got, c.why) {
			t.Errorf("%s is told %q; want %q", c.user, got, c.why)
		}
	}
	f.Click("U1", "unknown", value, slacktest.ChannelID)
	f.Click("U1", "reject", value, slacktest.ChannelID)
	elsewhere := strings.ReplaceAll(f.Opened(), slacktest.ChannelID, "C0OTHER")
	for i, act := range []func(){
		func() { f.Click("U1", "approve", value, "C0OTHER") },
		func() { f.Submit("U1", elsewhere, "") },
	} {
		act()
		if where, got := f.ToldIn(6 + i); where != "C0OTHER" || !strings.Contains(got, "U1: Your decision does not count: the gate takes no decisions in this Slack channel") {
			t.Errorf("U1 is told %q in %s", got, where)
		}
	}
	if got := f.state(id); got.State != task.InputRequired || len(got.Approval.Approvals) > 0 {
		t.Errorf("state %s with %d approvals", got.State, len(got.Approval.Approvals))
	}
}

// TestHostileTextStaysText checks that markup is shown as text, and that a call that does not
// fit into the message cannot be approved in Slack.
func TestHostileTextStaysText(t *testing.T) {
	f := open(t)
	f.run()
	f.hold("{\"a\":\"<!channel> ``` *x* <https://evil|click> :fire: &amp; \\u202egnp\"}")
	if m := f.Posted(1); m.Value("approve") == "" || !strings.Contains(m.Blocks, "```") {
		t.Errorf("a short call: %s", m.Blocks)
	}
	if strings.Contains(f.Posted(1).Text, "<!channel>") {
		t.Error("a notification has markup")
	}
	f.hold(`{"a":"` + strings.Repeat("x", 900_000) + `"}`)
	m := f.Posted(2)
	if m.Value("approve") != "" || m.Value("reject") == "" || !strings.Contains(m.Blocks, "does not show the whole call") {
		t.Errorf("a long call: %s", m.Blocks)
	}
}

// TestLongNameNotApprovedInSlack checks that a call cannot be approved in Slack if the name of
// its tool is truncated, since the end of the name may tell the effect of the tool.
func TestLongNameNotApprovedInSlack(t *testing.T) {
	f := open(t)
	f.run()
	f.tool = "read_notes" + strings.Repeat("_", 150) + "and_delete_all"
	f.hold(`{}`)
	if m := f.Posted(1); m.Value("approve") != "" || m.Value("reject") == "" {
		t.Errorf("a long name: %s", m.Blocks)
	}
}

// TestRateLimitedMessageIsSentOnce checks that a message is retried after a rate limit of
// Slack, and posted once.
func TestRateLimitedMessageIsSentOnce(t *testing.T) {
	f := open(t)
	f.Limit("chat.postMessage")
	f.Refuse("chat.postMessage", "is_archived")
	f.run()
	f.hold(`{}`)
	f.Posted(1)
}

// TestMessageFoundAfterCrash checks that a gate finds a message that it posted before it was
// killed. It does not post the message again, and updates it with the outcome, even if the
// call was decided before the gate knew that the message was posted.
func TestMessageFoundAfterCrash(t *testing.T) {
	for name, decidedBefore := range map[string]bool{"decided later": false, "decided meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			id := f.hold(`{}`)
			f.Put(slacktest.Message{Stamp: "1700000000.000100", Metadata: fmt.Sprintf(`{"event_type":"thoughtgate_question","event_payload":{"task":%q}}`, id)})
			if err := f.store.PutRecord(t.Context(), gatestore.Record{Name: "channel/chat/" + string(id), Version: 1, Value: []byte(`{"claim":"dead"}`)}); err != nil {
				t.Fatal(err)
			}
			if decidedBefore {
				f.reject(id)
			}
			f.run()
			if !decidedBefore {
				f.Eventually("the message is found", func() bool { return strings.Contains(f.delivery(), "1700000000.000100") })
				f.reject(id)
			}
			f.Says("Rejected: ")
			f.Posted(1)
		})
	}
}

// TestLostAnswerDoesNotRepeatMessage checks that a message is updated with the outcome if the
// answer of Slack was lost or unclear, and the call was decided before the gate tried again.
func TestLostAnswerDoesNotRepeatMessage(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"a gateway gives up":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) },
		"Slack fails":         func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"ok":false,"error":"fatal_error"}`) },
		"a page of a proxy":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") },
		"the connection ends": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			id := f.hold(`{}`)
			f.Lose("chat.postMessage", func(w http.ResponseWriter, r *http.Request) {
				if _, err := f.approvals.Decide(r.Context(), id, approval.Approver{Name: "alice"}, approval.Ruling{Decision: approval.Reject}); err != nil {
					t.Error(err)
				}
				answer(w, r)
			})
			f.run()
			f.Says("Rejected: ")
			f.Posted(1)
		})
	}
}

// TestUnsentMessageIsNotSearched checks that the gate does not search for a message that was
// certainly not posted.
func TestUnsentMessageIsNotSearched(t *testing.T) {
	f := open(t)
	q := channel.Question{Stage: channel.Pending}
	for _, code := range []string{"is_archived", "token_revoked", "invalid_blocks", "ratelimited"} {
		f.Refuse("chat.postMessage", code)
		_, err := f.chat().Ask(t.Context(), q)
		if unsent := new(channel.NotSentError); !errors.As(err, &unsent) || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %v", code, err)
		}
	}
	f.Limit("chat.postMessage")
	_, err := f.chat().Ask(t.Context(), q)
	unsent, limited := new(channel.NotSentError), new(channel.RetryError)
	if !errors.As(err, &unsent) || !errors.As(err, &limited) || limited.After != time.Second {
		t.Errorf("too many: %v", err)
	}
	q.Again = true
	f.Refuse("conversations.history", "fatal_error")
	if _, err := f.chat().Ask(t.Context(), q); !errors.As(err, &unsent) {
		t.Errorf("the search for the message fails: %v", err)
	}
}

// TestDecidedQuestionIsNotPosted checks that a decided question is not posted if the gate died
// before it posted the question.
func TestDecidedQuestionIsNotPosted(t *testing.T) {
	f := open(t)
	id := f.hold(`{}`)
	if err := f.store.PutRecord(t.Context(), gatestore.Record{Name: "channel/chat/" + string(id), Version: 1, Value: []byte(`{"claim":"dead"}`)}); err != nil {
		t.Fatal(err)
	}
	f.reject(id)
	f.run()
	f.Eventually("the question is settled", func() bool { return strings.Contains(f.delivery(), `"sent":"rejected"`) })
	if posted := f.Messages(); len(posted) > 0 {
		t.Errorf("posted %v", posted)
	}
}

func (f *fixture) reject(id task.ID) {
	f.t.Helper()
	if _, err := f.approvals.Decide(f.t.Context(), id, approval.Approver{Name: "alice"}, approval.Ruling{Decision: approval.Reject}); err != nil {
		f.t.Fatal(err)
	}
}

// delivery returns the stored delivery of the only question.
func (f *fixture) delivery() string {
	f.t.Helper()
	records, err := f.store.ListRecords(f.t.Context(), gatestore.RecordQuery{Prefix: "channel/chat/", Limit: 10})
	if err != nil || len(records) != 1 {
		f.t.Fatalf("deliveries %v, %v", records, err)
	}
	return string(records[0].Value)
}

// TestClicksArriveAfterReconnect checks that clicks arrive after Slack has asked the gate to
// connect again, and that a deleted message is not updated.
func TestClicksArriveAfterReconnect(t *testing.T) {
	f := open(t)
	f.run()
	id := f.hold(`{}`)
	m := f.Posted(1)
	f.Connected()
	f.Delete()
	f.Refresh()
	f.Click("U1", "approve", m.Value("approve"), slacktest.ChannelID)
	f.Eventually("the call is approved", func() bool { return f.state(id).State == task.Approved })
}

// TestChangedToolNotApprovedInSlack checks that a call cannot be approved in Slack if the
// definition of its tool has changed since its last approval, because the message does not
// show the description. The message gives the reason.
func TestChangedToolNotApprovedInSlack(t *testing.T) {
	f := open(t)
	f.run()
	f.digest = "1-a"
	f.hold(`{}`)
	m := f.Posted(1)
	if strings.Contains(m.Blocks, "Caution") {
		t.Errorf("a warning about the first call: %s", m.Blocks)
	}
	f.Click("U1", "approve", m.Value("approve"), slacktest.ChannelID)
	f.Says("Approved by alice")
	f.digest = "1-b"
	f.hold(`{"n":2}`)
	if m := f.Posted(2); !strings.Contains(m.Blocks, "Caution: the tool has changed since it was last approved") || m.Value("approve") != "" || m.Value("reject") == "" {
		t.Errorf("a call of the changed tool: %s", m.Blocks)
	}
}

// status waits until seen is true for the status of each channel.
func (f *fixture) status(what string, seen func(channel.Status) bool) {
	f.t.Helper()
	f.Eventually(what, func() bool {
		all := f.outbox.Statuses()
		return len(all) == len(f.channels) && !slices.ContainsFunc(all, func(s channel.Status) bool { return !seen(s) })
	})
}

// TestSlackErrorsShownToOperators checks that the status gives advice about a revoked token, a
// missing scope and an archived channel. Messages are sent when the error is fixed.
func TestSlackErrorsShownToOperators(t *testing.T) {
	f := open(t)
	f.Refuse("chat.postMessage", "missing_scope", "is_archived", "token_revoked")
	f.run()
	f.hold(`{}`)
	for _, want := range []string{"the app needs the scope chat:write", "restore the channel", "configure a new one"} {
		f.status("operators read: "+want, func(s channel.Status) bool { return s.Waiting == 1 && strings.Contains(s.Error, want) })
	}
	m := f.Posted(1)
	f.status("the trouble is over", func(s channel.Status) bool { return s.Waiting == 0 && s.DecisionsError == "" })
	f.Refuse("users.info", "missing_scope")
	f.Click("U1", "approve", m.Value("approve"), slacktest.ChannelID)
	if told := f.Told(1); !strings.Contains(told, "the app needs the scope") {
		t.Errorf("the user is told %q", told)
	}
	f.status("the status shows that decisions are not possible", func(s channel.Status) bool { return strings.Contains(s.DecisionsError, "the app needs the scope") })
	f.Rotate("xoxb-other", "xapp-other")
	f.status("operators see that clicks do not arrive", func(s channel.Status) bool { return strings.Contains(s.DecisionsError, "token_revoked") })
	f.Rotate("xoxb-bot", "xapp-app")
	f.status("clicks arrive again", func(s channel.Status) bool { return s.DecisionsError == "" })
	f.Click("U1", "approve", m.Value("approve"), slacktest.ChannelID)
	f.Says("Approved by alice")
}

// TestReminderIsPostedOnce checks that a reminder is a reply to the message, without markup. It
// is posted once, even if the gate was killed before it stored that.
func TestReminderIsPostedOnce(t *testing.T) {
	f := open(t)
	f.tool = "<!channel> *drop*"
	stop := f.run()
	id := f.hold(`{"secret":"x"}`)
	f.Posted(1)
	f.Eventually("it is noted that they were asked", func() bool { return strings.Contains(f.delivery(), `"sent":"pending"`) })
	stop()
	f.plan.Remind = []float64{1e-6} // a share of one hour
	f.run()
	m := f.Posted(2)
	if m.Thread != f.Messages()[0].Stamp || !strings.Contains(m.Blocks, `Still waiting for a decision: \u003c!channel\u003e *drop* for ann`) || strings.Contains(m.Text, "<!channel>") {
		t.Errorf("the reminder: %+v", m)
	}
	chat := f.chat()
	q := channel.Question{Stage: channel.Pending, Reminder: 1, Again: true}
	q.Approval.ID = id
	if err := chat.Remind(t.Context(), f.Messages()[0].Stamp, q); err != nil {
		t.Fatal(err)
	}
	f.Posted(2)
	q.Reminder, q.NewlyEscalated, q.Escalated = 2, true, "managers"
	if err := chat.Remind(t.Context(), f.Messages()[0].Stamp, q); err != nil {
		t.Fatal(err)
	}
	if m := f.Posted(3); !strings.Contains(m.Blocks, "The approvers of the workflow managers may now decide as well") {
		t.Errorf("the escalation: %s", m.Blocks)
	}
}

// TestChannelsShareApp checks two channels with the same Slack app. Slack sends each click to
// any connection of the app. A click counts for the channel in which it was made, with the
// approvers of that channel. The status of both channels shows whether clicks arrive.
func TestChannelsShareApp(t *testing.T) {
	const managers = "C0MANAGERS"
	f := open(t)
	first, second := f.settings(), f.settings()
	first.Groups, second.People, second.Channel = nil, nil, managers
	others := slack.New(second)
	f.channels = map[string]channel.Channel{"managers": others, "ops": slack.New(first, others)}
	f.run()
	f.InTurn()
	listening := func(s channel.Status) bool { return s.DecisionsError == "" }
	f.status("clicks arrive", listening)
	for i := range 4 {
		id := f.hold(fmt.Sprintf(`{"n":%d}`, i))
		user, where := "U1", slacktest.ChannelID
		if i > 1 {
			user, where = "U3", managers
		}
		for _, each := range []string{slacktest.ChannelID, managers} { // wait for both, since a decided call is not posted
			f.PostedIn(each, i+1)
		}
		f.Click(user, "approve", f.PostedIn(where, i+1).Value("approve"), where)
		f.Eventually("a click counts in "+where, func() bool { return f.state(id).State == task.Approved })
	}
	id := f.hold(`{"n":"rejected"}`)
	f.Click("U3", "reject", f.PostedIn(managers, 5).Value("reject"), managers)
	f.Submit("U3", f.Opened(), "no")
	f.Eventually("a reason counts", func() bool { return f.state(id).State == task.Rejected })
	f.hold(`{"n":"others"}`)
	f.Click("U1", "approve", f.PostedIn(managers, 6).Value("approve"), managers)
	if where, told := f.ToldIn(1); where != managers || !strings.Contains(told, "not set up as an approver") {
		t.Errorf("an approver of the other channel is told %q in %s", told, where)
	}
	if n := f.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
	f.Rotate("xoxb-other", "xapp-other")
	f.status("operators see that clicks do not arrive", func(s channel.Status) bool { return strings.Contains(s.DecisionsError, "token_revoked") })
	f.Rotate("xoxb-bot", "xapp-app")
	f.status("clicks arrive again", listening)
}

// TestQuorumShownInSlack checks that the first of two approvers is told that the approval
// counts.
func TestQuorumShownInSlack(t *testing.T) {
	f := open(t)
	f.quorum = 2
	f.run()
	id := f.hold(`{}`)
	value := f.Posted(1).Value("approve")
	for i, want := range []string{"U1: Your approval is recorded: 1 of 2 approvals.", "U1: Your decision does not count: you have already approved this call"} {
		f.Click("U1", "approve", value, slacktest.ChannelID)
		if got := f.Told(i + 1); got != want {
			t.Errorf("told %q; want %q", got, want)
		}
	}
	f.Click("U3", "approve", value, slacktest.ChannelID)
	f.Says("Approved by carol@example.com")
	if got := f.state(id); got.State != task.Approved || f.Tellings() != 2 {
		t.Errorf("state %s, %d messages to single users", got.State, f.Tellings())
	}
}

// TestClickDuringStopIsHandled checks that an acknowledged click counts, or that its user is
// told that it does not. It holds also if the gate stops or reloads meanwhile, and if Slack
// does not answer requests for the user.
func TestClickDuringStopIsHandled(t *testing.T) {
	for name, answers := range map[string]bool{"Slack answers": true, "Slack does not answer": false} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			stop := f.run()
			id := f.hold(`{}`)
			m := f.Posted(1)
			resume := f.StallMethod("users.info")
			defer resume()
			f.Click("U1", "approve", m.Value("approve"), slacktest.ChannelID)
			f.Stalled("users.info")
			stopped := make(chan struct{})
			go func() { stop(); close(stopped) }()
			f.Disconnected()
			if answers {
				resume()
			}
			<-stopped
			approved := f.state(id).State == task.Approved
			if told := f.Tellings() > 0; approved == told || approved && !answers {
				t.Fatalf("approved: %t, told: %t", approved, told)
			}
			if told := "U1: Your decision does not count: Slack did not answer in time"; !approved && !strings.HasPrefix(f.Told(1), told) {
				t.Errorf("told %q", f.Told(1))
			}
		})
	}
}

// TestFailureShownInSlack checks that a message reports a failure of approved calls only, and
// not of rejected, withdrawn or undecided calls.
func TestFailureShownInSlack(t *testing.T) {
	f := open(t)
	chat := f.chat()
	decided := review.Decisions{Quorum: 1, Approvals: []gatetask.Decision{{By: "alice"}}}
	for _, c := range []struct {
		state  task.State
		stage  channel.Stage
		by     review.Decisions
		failed bool
	}{
		{task.Failed, channel.Failed, decided, true},
		{task.Expired, channel.Expired, decided, true},
		{task.Expired, channel.Expired, review.Decisions{Quorum: 1}, false},
		{task.Cancelled, channel.Cancelled, decided, false},
		{task.Rejected, channel.Rejected, review.Decisions{Quorum: 1, Rejection: &gatetask.Decision{By: "alice", Reason: "why"}}, false},
	} {
		q := channel.Question{Stage: channel.Pending, Approval: review.Approval{ID: "tg_1", Tool: "x"}}
		ref, err := chat.Ask(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		q.Stage, q.Approval.State, q.Approval.Decisions, q.Approval.Failure = c.stage, c.state, c.by, &task.Failure{Reason: "why"}
		if err := chat.Update(t.Context(), ref, q); err != nil {
			t.Fatal(err)
		}
		all := f.Messages()
		if got := strings.Contains(all[len(all)-1].Blocks, "It failed: why"); got != c.failed {
			t.Errorf("%s with %d approvals: the message says that it failed: %t", c.state, len(c.by.Approvals), got)
		}
	}
}

// People read in Slack that a program approved with a token, and which one.
func TestApprovalByTokenIsTold(t *testing.T) {
	f := open(t)
	f.run()
	id := f.hold(`{"path":"/a"}`)
	f.Posted(1)
	shown, err := f.approvals.Viewer().ShowAll(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	via := gatetask.Via{Kind: gatetask.ViaCommandLine, Login: "token", PID: 4711, Program: "/usr/bin/tg", User: "ann", Terminal: "pts/3", FromAgent: gatetask.FromAgentUnknown}
	if _, err := f.approvals.Decide(t.Context(), id, approval.Approver{Name: "alice"}, approval.Ruling{Decision: approval.Approve, Shown: shown.ShownDigest, Via: via}); err != nil {
		t.Fatal(err)
	}
	f.Says("Approved by alice via command line (origin unknown, tg, process 4711, user ann, terminal pts/3)")
}
