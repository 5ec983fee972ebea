// Package chattest tests channels with buttons against a fake of their service.
package chattest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A Gate is an approval service with the operators' API and one channel, named chat. Alice
// and ann may approve.
type Gate struct {
	Approvals *approval.Service
	Store     gatestore.Store
	Workflow  approval.Workflow // may be changed until a call is held
	Decisions string            // the URL for decisions in the channel

	t       *testing.T
	mu      sync.Mutex
	channel channel.Channel
}

// NewGate returns a gate.
func NewGate(t *testing.T) *Gate {
	t.Helper()
	g := &Gate{t: t, Store: memstore.New(memstore.Options{}), Workflow: approval.Workflow{
		Quorum: 1, Approvers: []string{"alice", "ann"}, Timeout: time.Hour, Redact: []string{"arguments.password"},
	}}
	t.Cleanup(func() { _ = g.Store.Close() })
	var err error
	g.Approvals, err = approval.New(approval.Config{
		Store:    g.Store,
		Judge:    func(policy.Call) policy.Verdict { return policy.Verdict{Action: policy.Approve, Workflow: "chat"} },
		Workflow: func(string) (approval.Workflow, bool) { return g.Workflow, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	auth, err := operator.New(operator.Config{Records: g.Store, Ring: keyring.Ephemeral(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	h, err := api.New(api.Config{Approvals: g.Approvals, Viewer: g.Approvals.Viewer(), Auth: auth, Receiver: func(name string) channel.Receiver {
		g.mu.Lock()
		defer g.mu.Unlock()
		r, _ := g.channel.(channel.Receiver)
		if name != "chat" {
			return nil
		}
		return r
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	g.Decisions = server.URL + "/api/channels/chat/decisions"
	return g
}

// Parts returns the parts of the gate for channels.
func (g *Gate) Parts() channel.Gate {
	return channel.Gate{
		Channel: "chat", Records: g.Store, Now: time.Now, Log: slog.New(slog.DiscardHandler), Decide: g.Approvals.Decide, Explain: api.Message,
		Shown: func(ctx context.Context, id task.ID) (string, error) {
			a, err := g.Approvals.Viewer().Show(ctx, id)
			return a.ShownDigest, err
		},
		DecisionsURL: func() string { return g.Decisions },
	}
}

// Open opens a channel of the gate.
func (g *Gate) Open(s channel.Settings) channel.Channel {
	g.t.Helper()
	c, err := s.Open(g.Parts(), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// Run runs the channel until the test ends or stop is called.
func (g *Gate) Run(c channel.Channel) (stop func()) {
	g.mu.Lock()
	g.channel = c
	g.mu.Unlock()
	outbox := channel.New(channel.Config{
		Store: g.Store, Cases: g.Approvals.Viewer(), Channels: map[string]channel.Channel{"chat": c},
		Workflow: func(task.Task) policy.Workflow { return policy.Workflow{Channels: []string{"chat"}} },
		Page:     func(id task.ID) string { return "https://gate.example.com/approvals/" + string(id) },
		Name:     string(task.NewID(time.Now())), Metrics: noMetrics{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(g.t.Context())
	done := make(chan struct{})
	go func() { outbox.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	g.t.Cleanup(stop)
	return stop
}

type noMetrics struct{}

func (noMetrics) ChannelSent(string, error)     {}
func (noMetrics) ChannelWaiting(string, int)    {}
func (noMetrics) ChannelReceives(string, error) {}

// Hold holds a call of ann's agent.
func (g *Gate) Hold(arguments string) task.ID { return g.HoldTool("delete_file", arguments) }

// HoldTool is Hold for a tool.
func (g *Gate) HoldTool(tool, arguments string) task.ID {
	g.t.Helper()
	held, _, err := g.Approvals.Hold(g.t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files",
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: "chat", Reason: "rule @everyone [a](https://evil) <b>*bold*"},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`),
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return held.ID
}

// Reject rejects a call outside of the channel.
func (g *Gate) Reject(id task.ID) {
	g.t.Helper()
	if _, err := g.Approvals.Decide(g.t.Context(), id, approval.Approver{Name: "alice"}, approval.Ruling{Decision: approval.Reject, Reason: "no"}); err != nil {
		g.t.Error(err)
	}
}

// State returns a held call.
func (g *Gate) State(id task.ID) task.Task {
	g.t.Helper()
	held, err := g.Store.Get(g.t.Context(), task.AnyOwner().Ref(id))
	if err != nil {
		g.t.Fatal(err)
	}
	return held
}

// Post posts to an address, and returns the answer.
func Post(t *testing.T, address string, h http.Header, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// A Message is the present state of a message in a chat.
type Message struct {
	Text    string            // all that is shown
	Buttons map[string]string // the data of buttons, or their URLs, by label
	Replies string            // the message that it replies to
}

// onlyLinks reports whether a message has no buttons but one that opens the page of a call.
func (m Message) onlyLinks(id task.ID) bool {
	return len(m.Buttons) == 1 && m.Buttons["Open in the inbox"] == page+string(id)
}

// A Service is a fake chat service. The test of a channel says what requests do.
type Service struct {
	URL string

	t        *testing.T
	mu       sync.Mutex
	messages []Message
	next     []http.HandlerFunc
}

// NewService returns a service. Execute handles a request, with the lock of the service
// held.
func NewService(t *testing.T, execute func(s *Service, w http.ResponseWriter, r *http.Request, body []byte)) *Service {
	t.Helper()
	s := &Service{t: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.next) == 0 || strings.HasSuffix(r.URL.Path, "/setWebhook") {
			execute(s, w, r, body)
			return
		}
		instead := s.next[0]
		s.next = s.next[1:]
		if instead == nil { // the answer is lost
			execute(s, httptest.NewRecorder(), r, body)
			panic(http.ErrAbortHandler)
		}
		instead(w, r)
	}))
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Address returns the URL of a path.
func (s *Service) Address(path string) *url.URL {
	s.t.Helper()
	address, err := url.Parse(s.URL + path)
	if err != nil {
		s.t.Fatal(err)
	}
	return address
}

// Next adds an answer to the next request about a message in place of its execution; nil
// loses the answer to a request that is executed.
func (s *Service) Next(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, answer)
}

// Add adds a message, and returns its number. The lock must be held.
func (s *Service) Add(m Message) int {
	s.messages = append(s.messages, m)
	return len(s.messages)
}

// Edit replaces a message, and reports whether it exists. The lock must be held.
func (s *Service) Edit(number int, m Message) bool {
	if number < 1 || number > len(s.messages) {
		return false
	}
	s.messages[number-1] = m
	return true
}

// Await waits until the messages fulfil a condition, and returns them.
func (s *Service) Await(what string, fulfilled func([]Message) bool) (all []Message) {
	s.t.Helper()
	s.await(what, func() bool {
		all = slices.Clone(s.messages)
		return fulfilled(all)
	})
	return all
}

// await waits until a condition is true. It calls condition with the lock held.
func (s *Service) await(what string, condition func() bool) {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(2 * time.Minute) // a claim lasts 40 seconds
	defer deadline.Stop()
	for {
		s.mu.Lock()
		done, all := condition(), slices.Clone(s.messages)
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			s.t.Fatalf("timed out waiting until %s: %+v", what, all)
		}
	}
}

// Last waits for n messages, and returns the last.
func (s *Service) Last(n int) Message {
	s.t.Helper()
	all := s.Await(fmt.Sprintf("%d messages are posted", n), func(all []Message) bool { return len(all) >= n })
	if len(all) != n {
		s.t.Errorf("%d messages; want %d", len(all), n)
	}
	return all[n-1]
}

// Says waits until the last message contains a text, and returns it.
func (s *Service) Says(text string) Message {
	s.t.Helper()
	all := s.Await("the message says "+text, func(all []Message) bool { return len(all) > 0 && strings.Contains(all[len(all)-1].Text, text) })
	return all[len(all)-1]
}

// The accounts of alice, and of ann, whose agent makes the calls.
const (
	Alice = "1"
	Ann   = "2"
)

// people are the people of a channel in the configuration.
const people = "{'" + Alice + "': alice, '" + Ann + "': ann}"

// People returns the names of approvers by their accounts.
func People() map[string]string { return map[string]string{Alice: "alice", Ann: "ann"} }

// A Chat is a service with a channel that the suite tests.
type Chat struct {
	Service *Service

	Gate  *Gate
	Open  func() channel.Channel                     // returns the channel as after a start of the gate
	Press func(account, data string) (answer string) // a person presses a button; answer is what they are told
	Limit http.HandlerFunc                           // the answer of the service to too many requests

	// Again reports whether a message that may have been posted is found again.
	Finds bool
}

// Test tests a channel.
func Test(t *testing.T, open func(t *testing.T) *Chat) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *Chat){
		"an approval counts":                   approves,
		"only approvers decide":                onlyApprovers,
		"a call is decided elsewhere":          decidedElsewhere,
		"text has no effect":                   hostileText,
		"a rate limit delays a message":        rateLimited,
		"an answer is lost":                    answerLost,
		"a gate starts again":                  restarts,
		"passkeys are asked for":               passkeys,
		"a long name cannot be approved":       longName,
		"a call that changed is not approved":  changed,
		"two approvals are needed":             quorum,
		"a repeated press has no other effect": repeated,
		"a reminder replies and has a link":    reminds,
	} {
		if test != nil {
			t.Run(name, func(t *testing.T) { test(t, open(t)) })
		}
	}
}

const page = "https://gate.example.com/approvals/"

func approves(t *testing.T, c *Chat) {
	c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{"path":"/a","password":"hunter2"}`)
	m := c.Service.Last(1)
	for _, want := range []string{"Approval needed: delete_file", "Requested by: ann", `"path": "/a"`} {
		if !strings.Contains(m.Text, want) {
			t.Errorf("the message lacks %q: %s", want, m.Text)
		}
	}
	if strings.Contains(m.Text, "hunter2") || m.Buttons["Open in the inbox"] != page+string(id) {
		t.Errorf("a redacted value, or no link: %+v", m)
	}
	if told := c.Press(Alice, m.Buttons["Approve"]); told != "" {
		t.Errorf("told %q", told)
	}
	after := c.Service.Says("Approved by alice")
	got := c.Gate.State(id)
	if got.State != task.Approved || !after.onlyLinks(id) {
		t.Errorf("state %s, buttons %v", got.State, after.Buttons)
	}
	if via := got.Approval.Approvals[0].Via; via != (gatetask.Via{Kind: gatetask.ViaChannel, Channel: "chat", Account: Alice}) {
		t.Errorf("via %+v", via)
	}
}

func onlyApprovers(t *testing.T, c *Chat) {
	c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{}`)
	data := c.Service.Last(1).Buttons["Approve"]
	for _, try := range []struct{ account, data, why string }{
		{"999", data, "not set up as an approver"},
		{Ann, data, "cannot approve a call from your own agent"},
		{Alice, data[:1] + "x" + data[2:], "differs from what you were shown"},
		{Alice, "nonsense", "does not know this button"},
		{Alice, data[:len(data)-3] + "zzz", "does not count"},
	} {
		if told := c.Press(try.account, try.data); !strings.Contains(told, try.why) {
			t.Errorf("%s with %s is told %q; want %q", try.account, try.data, told, try.why)
		}
	}
	if got := c.Gate.State(id); got.State != task.InputRequired || len(got.Approval.Approvals) > 0 {
		t.Errorf("state %s with %d approvals", got.State, len(got.Approval.Approvals))
	}
}

func decidedElsewhere(t *testing.T, c *Chat) {
	c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{}`)
	data := c.Service.Last(1).Buttons["Approve"]
	c.Gate.Reject(id)
	if m := c.Service.Says("Rejected by alice: no"); !m.onlyLinks(id) {
		t.Errorf("buttons %v", m.Buttons)
	}
	c.Service.Last(1)
	if told := c.Press(Alice, data); !strings.Contains(told, "does not count") {
		t.Errorf("told %q", told)
	}
}

func hostileText(t *testing.T, c *Chat) {
	c.Gate.Run(c.Open())
	c.Gate.HoldTool("delete_@everyone_[x](https://evil)", "{\"a\":\"``` @everyone <b>*x*_y_ [a](https://evil) <@1> \\u202egnp\"}")
	m := c.Service.Last(1) // the fake checks that text has no effect
	if m.Buttons["Approve"] == "" {
		t.Errorf("a short call: %+v", m)
	}
	for n, arguments := range []string{`{"a":"` + strings.Repeat("x", 900_000) + `"}`, `{"a":"` + strings.Repeat("`*", 800) + `"}`, `{"a":"` + strings.Repeat("😀", 700) + `"}`, `{"a":"` + strings.Repeat("`", 400) + `"}`} {
		c.Gate.Hold(arguments)
		m := c.Service.Last(n + 2)
		if n == 0 && (m.Buttons["Approve"] != "" || m.Buttons["Reject"] == "" || !strings.Contains(m.Text, "does not show the whole call")) {
			t.Errorf("a long call: %+v", m)
		}
		if m.Buttons["Approve"] == "" && !strings.Contains(m.Text, "does not show the whole call") {
			t.Errorf("the message does not tell why nobody can approve the call: %+v", m)
		}
		if m.Buttons["Approve"] != "" && strings.Contains(m.Text, "…") {
			t.Errorf("a call that is not shown as a whole can be approved: %+v", m)
		}
	}
}

func longName(t *testing.T, c *Chat) {
	c.Gate.Run(c.Open())
	c.Gate.HoldTool("read_notes"+strings.Repeat("_", 150)+"and_delete_all", `{}`)
	if m := c.Service.Last(1); m.Buttons["Approve"] != "" || m.Buttons["Reject"] == "" {
		t.Errorf("a long name: %+v", m)
	}
}

func changed(t *testing.T, c *Chat) {
	c.Gate.Run(c.Open())
	first := c.Gate.Hold(`{"a":1}`)
	one := c.Service.Last(1).Buttons["Approve"]
	second := c.Gate.Hold(`{"a":2}`)
	c.Service.Last(2)
	mixed := strings.Replace(one, string(first), string(second), 1) // what is shown is that of the first call
	if told := c.Press(Alice, mixed); !strings.Contains(told, "differs from what you were shown") {
		t.Errorf("told %q", told)
	}
}

func quorum(t *testing.T, c *Chat) {
	c.Gate.Workflow.Quorum = 2
	c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{}`)
	data := c.Service.Last(1).Buttons["Approve"]
	if told := c.Press(Alice, data); !strings.Contains(told, "1 of 2 approvals") {
		t.Errorf("told %q", told)
	}
	if told := c.Press(Alice, data); !strings.Contains(told, "does not count") || c.Gate.State(id).State != task.InputRequired {
		t.Errorf("told %q", told)
	}
}

func repeated(t *testing.T, c *Chat) {
	c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{}`)
	data := c.Service.Last(1).Buttons["Approve"]
	c.Press(Alice, data)
	if told := c.Press(Alice, data); !strings.Contains(told, "does not count") || len(c.Gate.State(id).Approval.Approvals) != 1 {
		t.Errorf("told %q", told)
	}
}

func passkeys(t *testing.T, c *Chat) {
	c.Gate.Workflow.Passkey = true
	c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{}`)
	m := c.Service.Last(1)
	if m.Buttons["Approve"] != "" || !strings.Contains(m.Text, "needs your passkey") || m.Buttons["Open in the inbox"] == "" {
		t.Errorf("%+v", m)
	}
	forged := "a" + m.Buttons["Reject"][1:]
	if told := c.Press(Alice, forged); !strings.Contains(told, "does not count") || c.Gate.State(id).State != task.InputRequired {
		t.Errorf("told %q", told)
	}
}

func rateLimited(t *testing.T, c *Chat) {
	c.Service.Next(c.Limit)
	start := time.Now()
	c.Gate.Run(c.Open())
	c.Gate.Hold(`{}`)
	c.Service.Last(1)
	if waited := time.Since(start); waited < time.Second {
		t.Errorf("the message was sent again after %s", waited)
	}
}

func answerLost(_ *testing.T, c *Chat) {
	c.Service.Next(nil)
	c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{}`)
	if !c.Finds { // it is sent again, and the last message is edited
		c.Service.Last(2)
	}
	c.Service.Await("the question is sent", func(all []Message) bool { return len(all) > 0 })
	c.Gate.Reject(id)
	c.Service.Says("Rejected by alice")
	if c.Finds {
		c.Service.Last(1)
	}
}

func restarts(t *testing.T, c *Chat) {
	stop := c.Gate.Run(c.Open())
	id := c.Gate.Hold(`{}`)
	data := c.Service.Last(1).Buttons["Approve"]
	c.Service.Await("the message is recorded", func([]Message) bool {
		r, err := c.Gate.Store.GetRecord(t.Context(), "channel/chat/"+string(id))
		return err == nil && strings.Contains(string(r.Value), "pending")
	})
	stop()
	c.Gate.Run(c.Open())
	c.Press(Alice, data)
	c.Service.Says("Approved by alice")
	c.Service.Last(1)
}

func reminds(t *testing.T, c *Chat) {
	sends := c.Open()
	defer sends.(channel.Closer).Close()
	q := channel.Question{Stage: channel.Pending, Page: page + "tg_1"}
	ref, err := sends.Ask(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	q.Reminder = 1
	if err := sends.Remind(t.Context(), ref, q); err != nil {
		t.Fatal(err)
	}
	if m := c.Service.Last(2); !strings.Contains(m.Text, "Still waiting for a decision") || m.Replies != ref || !m.onlyLinks("tg_1") {
		t.Errorf("%+v", m)
	}
}
