package browser_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/inbox"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A sharedInbox is a service with an inbox for several people: alice and bob may decide, and vera
// may only read.
type sharedInbox struct {
	site

	service *approval.Service
	server  *httptest.Server
	silent  atomic.Bool // close every connection without an answer
	swallow atomic.Bool // perform the next change, and then become silent
	streams atomic.Int32
}

// serve serves a request, unless the inbox is silent.
func (b *sharedInbox) serve(w http.ResponseWriter, r *http.Request, pages http.Handler) {
	if r.URL.Path == "/events" {
		b.streams.Add(1)
		defer b.streams.Add(-1)
	}
	switch {
	case b.silent.Load():
	case b.swallow.Load() && r.Method == http.MethodPost:
		pages.ServeHTTP(httptest.NewRecorder(), r)
		b.swallow.Store(false)
		b.disconnect()
	default:
		pages.ServeHTTP(w, r)
		return
	}
	panic(http.ErrAbortHandler)
}

// disconnect makes the gate refuse all connections, and reconnect ends this.
func (b *sharedInbox) disconnect() {
	b.silent.Store(true)
	b.server.CloseClientConnections()
}

func (b *sharedInbox) reconnect() { b.silent.Store(false) }

func openSharedInbox(t *testing.T, workflows map[string]approval.Workflow) *sharedInbox {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	allow := policy.Verdict{Action: policy.Approve, Workflow: "default"}
	service, err := approval.New(approval.Config{
		Store: store, Judge: func(policy.Call) policy.Verdict { return allow },
		Workflow: func(name string) (approval.Workflow, bool) { w, ok := workflows[name]; return w, ok },
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := inbox.New(inbox.Config{
		Approvals: service, Viewer: service.Viewer(), Now: time.Now, KeepAlive: time.Second, Log: slog.New(slog.DiscardHandler), Push: func() *push.Push { return nil },
		NeedsRestart: func() []string { return nil }, Changes: func(context.Context) ([]task.Note, error) { return nil, nil },
		Channels: func() []channel.Status { return nil }, Missing: func() []inbox.MissingServer { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var tokens []operator.Token
	for name, role := range map[string]operator.Role{"alice": operator.Approver, "bob": operator.Approver, "vera": operator.Viewer} {
		tokens = append(tokens, operator.Token{Hash: operator.HashOf("the long token of " + name), Name: name, Role: role})
	}
	auth, err := operator.New(operator.Config{Tokens: tokens, Records: memstore.New(memstore.Options{}), Ring: keyring.Ephemeral(), Now: time.Now, Page: pages.Login})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	auth.Register(mux)
	pages.Register(mux, auth)
	b := &sharedInbox{service: service}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.serve(w, r, mux) }))
	b.operators = b.server.URL
	t.Cleanup(b.server.Close)
	t.Cleanup(func() { _ = service.Close(context.WithoutCancel(t.Context())) }) // ends the streams of events
	return b
}

// A success is an upstream on which all calls succeed.
type success struct{ approval.Sender }

func (success) Call(context.Context, task.Task, approval.UpstreamRequest) (approval.Outcome, error) {
	return approval.Outcome{Body: strings.NewReader(`{"content":[]}`)}, nil
}

// enter signs a person in with their token.
func (b *sharedInbox) enter(t *testing.T, name string) (*person, bool) {
	t.Helper()
	p, ok := openBrowser(t, &b.site)
	if !ok {
		return nil, false
	}
	p.open("/")
	p.signIn(name)
	return p, true
}

// signIn submits the sign-in form of the page.
func (p *person) signIn(name string) {
	p.t.Helper()
	p.do(chromedp.SendKeys(chromedp.CSS("#token"), "the long token of "+name), chromedp.Submit(chromedp.CSS("#token")))
	p.sees("Waiting for a decision")
}

// hold holds a call of a principal. The name of the tool determines its definition.
func (b *sharedInbox) hold(t *testing.T, by, tool, arguments string) task.ID {
	t.Helper()
	return b.holdFor(t, "default", by, tool, arguments)
}

// holdFor is like hold, for a given workflow.
func (b *sharedInbox) holdFor(t *testing.T, workflow, by, tool, arguments string) task.ID {
	t.Helper()
	says := map[string]policy.Annotations{
		"delete_file": {Destructive: &yes}, "list_tables": {ReadOnly: &yes}, "refund_payment": {Destructive: &no},
	}
	held, _, err := b.service.Hold(t.Context(), approval.Call{
		Owner: by, Principal: policy.Principal{ID: by}, Upstream: "files", Tool: approval.Tool{Annotations: says[tool]},
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: workflow, Match: "*"}, SharedOwner: true,
		Message: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments),
	})
	if err != nil {
		t.Fatal(err)
	}
	return held.ID
}

// ask holds a call of a principal that waits for the result.
func (b *sharedInbox) ask(t *testing.T, by string) (task.ID, *call) {
	t.Helper()
	held, _, err := b.service.Hold(t.Context(), approval.Call{
		Owner: by, Principal: policy.Principal{ID: by}, Upstream: "files",
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: "default", Match: "delete_*"},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/payroll/bonuses.csv"}}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &call{done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		defer close(c.done)
		ended, err := b.service.Wait(ctx, task.OwnedBy(by).Ref(held.ID), success{})
		c.text, c.err = string(ended.State), err
	}()
	t.Cleanup(func() { cancel(); <-c.done })
	return held.ID, c
}

// If two people decide at the same time, the first decision counts, and the other person is
// shown who made it.
func TestFirstOfTwoDecisionsCounts(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	bob, _ := b.enter(t, "bob")
	id, c := b.ask(t, "ann")
	path := "/approvals/" + string(id)
	// Bob's page does not update itself.
	bob.do(send(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	for _, p := range []*person{alice, bob} {
		p.open(path)
		p.sees("Why it is held")
	}
	alice.do(chromedp.SendKeys(chromedp.CSS("#reason"), "no backup"))
	alice.click("#reject")
	alice.sees("Rejected by alice")
	bob.tolerate("409")
	bob.click("#approve")
	bob.sees("Your approval was not recorded")
	bob.sees("Somebody else decided first: Rejected by alice")
	bob.sees("no backup")
	if got := c.wait(t); got != string(task.Rejected) {
		t.Errorf("the agent gets %s", got)
	}
}

// With a quorum of two, each approver's page shows the other's approval.
func TestQuorumOfTwo(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {Quorum: 2}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	bob, _ := b.enter(t, "bob")
	vera, _ := b.enter(t, "vera")
	id, c := b.ask(t, "ann")
	for _, p := range []*person{alice, bob, vera} {
		p.open("/approvals/" + string(id))
		p.sees("0 of 2 approvals")
	}
	vera.sees("You may view this call, but not decide it.")
	bob.do(chromedp.SendKeys(chromedp.CSS("#reason"), "as discussed"))
	alice.click("#approve")
	alice.sees("1 of 2 approvals, by alice. 1 more approval needed.")
	alice.click("#notice a")
	alice.sees("You have approved this.")
	bob.sees("1 of 2 approvals, by alice. 1 more approval needed.")
	if got := value[string](bob, `document.querySelector("#reason").value`); got != "as discussed" {
		t.Errorf("bob's typed reason is now %q", got)
	}
	bob.click("#approve")
	bob.sees("Approved by alice and bob")
	for _, p := range []*person{alice, vera} { // their pages were not reloaded
		p.sees("Approved by alice and bob")
		p.sees("It ran, and the agent can fetch the result.")
	}
	if got := c.wait(t); got != string(task.Completed) {
		t.Errorf("the agent gets %s", got)
	}
}

// A requester cannot approve their own call.
func TestRequesterCannotApproveOwnCall(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	id, c := b.ask(t, "alice")
	alice.open("/approvals/" + string(id))
	alice.sees("You cannot approve a call from your own agent.")
	if value[bool](alice, `Boolean(document.querySelector("#approve"))`) {
		t.Error("alice can approve her own call")
	}
	alice.click("#reject")
	alice.sees("Rejected by alice")
	if got := c.wait(t); got != string(task.Rejected) {
		t.Errorf("the agent gets %s", got)
	}
}

// A whole gate with operators, an agent and a workflow from its configuration: alice may not
// approve the call of her own agent, and two other approvals are needed.
func TestQuorumOfTwoThroughGate(t *testing.T) {
	const agent = "tga_the-token-of-the-agent-of-alice"
	token := func(name string) string { return "tgo_the-token-of-" + name + "-at-the-gate" }
	rules := fmt.Sprintf("identity: {tokens: [{name: alice-s-bot, owner: Alice, hash: %q}]}\n", identity.HashOf(agent)) + "operators:\n  tokens:\n"
	for _, name := range []string{"alice", "bob", "carol"} {
		rules += fmt.Sprintf("    - {name: %s, groups: [finance], hash: %q}\n", name, identity.HashOf(token(name)))
	}
	s := open(t, rules+`
workflows: {pairs: {approvers: ["group:finance"], quorum: 2}}
rules: [{match: "refund_*", action: approve, workflow: pairs}]
default: deny
waiting: {hold: 1h}
`)
	s.agent = agent
	people := map[string]*person{}
	for _, name := range []string{"alice", "bob", "carol"} {
		p, ok := openBrowser(t, s)
		if !ok {
			return
		}
		p.open("/")
		p.do(chromedp.SendKeys(chromedp.CSS("#token"), token(name)), chromedp.Submit(chromedp.CSS("#token")))
		p.sees("No pending approvals.")
		people[name] = p
	}
	c := s.ask(t, "refund_payment", map[string]any{"amount": 9000})
	for _, p := range people {
		p.sees("alice-s-bot")
		p.click(".row .open")
		p.sees("2 more approvals needed.")
	}
	alice, bob, carol := people["alice"], people["bob"], people["carol"]
	alice.sees("You cannot approve a call from your own agent.")
	alice.tolerate("403")
	value[bool](alice, `(() => {
		const form = document.querySelector("#decision");
		form.action = form.action.replace(/reject$/, "approve"); // the page has no such button
		form.submit();
		return true;
	})()`)
	alice.sees("Your approval was not recorded")
	bob.click("#approve")
	bob.sees("1 of 2 approvals, by bob. 1 more approval needed.")
	bob.click("#notice a")
	bob.sees("You have approved this.")
	carol.sees("1 of 2 approvals, by bob. 1 more approval needed.")
	if ran := s.upstream.calls(); len(ran) > 0 {
		t.Errorf("the call ran with one approval of two: %v", ran)
	}
	carol.click("#approve")
	carol.sees("Approved by bob and carol")
	if got := c.wait(t); got != "done: refund_payment" {
		t.Errorf("the agent gets %q", got)
	}
	alice.sees("Approved by bob and carol")
}

// An approver who turned notifications on gets them while the page is not in focus.
func TestNotificationsWhileNotInFocus(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	// This browser has no screen, so the test replaces the properties that tell whether the
	// page is in focus.
	value[bool](alice, `(() => {
		window.shown = [];
		window.Notification = class { static permission = "default"; static async requestPermission() { return this.permission = "granted"; }
			constructor(title, options) { window.shown.push(title + ": " + options.body); } };
		document.hasFocus = () => false;
		return true;
	})()`)
	alice.click("#notify")
	alice.eventually(`document.querySelector("#notify").getAttribute("aria-pressed") === "true"`, "notifications are on")
	b.ask(t, "ann")
	alice.eventually(`shown.length === 1 && shown[0] === "Approval requested: delete_file, from ann"`, "a notification is shown")
	alice.click("#notify")
	alice.eventually(`document.querySelector("#notify").getAttribute("aria-pressed") === "false"`, "notifications are off")
	b.ask(t, "zoe")
	alice.eventually(`document.querySelectorAll(".row").length === 2 && shown.length === 1`, "no notification is shown")
}

// A page pauses between two requests, however many events occur.
func TestPagePausesBetweenRequests(t *testing.T) {
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	const fetches = `performance.getEntriesByType("resource").filter((e) => e.initiatorType === "fetch")`
	const shortest = fetches + `.reduce((least, e, i, all) => i ? Math.min(least, e.startTime - all[i-1].responseEnd) : least, 1e9)`
	const wanted = 8
	began := time.Now()
	for n := 0; value[int](alice, fetches+".length") < wanted; n++ {
		if time.Since(began) > time.Minute {
			t.Fatalf("the page did not make %d requests in a minute", wanted)
		}
		for i := range 20 {
			id, _ := b.ask(t, fmt.Sprint("ann ", n, " ", i))
			if _, err := decide(t.Context(), b.service, id, approval.Approver{Name: "bob"}, approval.Reject, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	const pause, tolerance = 400, 10 // in milliseconds, by the clock of the page
	if gap := value[float64](alice, shortest); gap < pause-tolerance {
		t.Errorf("the page made the next request after %.0f ms; want a pause of %d", gap, pause)
	}
}

// decide reads a call and then decides, as an approver does.
func decide(ctx context.Context, service *approval.Service, id task.ID, who approval.Approver, what approval.Decision, reason string) (task.Task, error) {
	r := approval.Ruling{Decision: what, Reason: reason}
	if shown, err := service.Viewer().ShowAll(ctx, id); err == nil {
		r.Shown = shown.ShownDigest
	}
	return service.Decide(ctx, id, who, r)
}
