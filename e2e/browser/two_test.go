package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
	"github.com/thoughtgate/thoughtgate-go/internal/inbox"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A bureau is a desk with an inbox for several people: alice and bob, who may
// decide, and vera, who may look.
type bureau struct {
	site

	desk    *approval.Desk
	server  *httptest.Server
	silent  atomic.Bool // it answers nothing, and ends every connection
	swallow atomic.Bool // it makes the next change that it is asked for, and then falls silent
	streams atomic.Int32
}

// serve lets the inbox answer, or does not.
func (b *bureau) serve(w http.ResponseWriter, r *http.Request, pages http.Handler) {
	if r.URL.Path == "/events" {
		b.streams.Add(1)
		defer b.streams.Add(-1)
	}
	switch {
	case b.silent.Load():
	case b.swallow.Load() && r.Method == http.MethodPost:
		pages.ServeHTTP(httptest.NewRecorder(), r)
		b.swallow.Store(false)
		b.fall()
	default:
		pages.ServeHTTP(w, r)
		return
	}
	panic(http.ErrAbortHandler)
}

// fall makes the gate answer nobody, and rise lets it answer again.
func (b *bureau) fall() {
	b.silent.Store(true)
	b.server.CloseClientConnections()
}

func (b *bureau) rise() { b.silent.Store(false) }

func openBureau(t *testing.T, workflows map[string]approval.Workflow) *bureau {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	allow := policy.Verdict{Action: policy.Approve, Workflow: "default"}
	desk, err := approval.New(approval.Config{
		Store: store, Judge: func(policy.Call) policy.Verdict { return allow },
		Workflow: func(name string) (approval.Workflow, bool) { w, ok := workflows[name]; return w, ok },
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := inbox.New(inbox.Config{Desk: desk, Cases: desk.Cases(), Now: time.Now, KeepAlive: time.Second})
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
	b := &bureau{desk: desk}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.serve(w, r, mux) }))
	b.operators = b.server.URL
	t.Cleanup(b.server.Close)
	t.Cleanup(func() { _ = desk.Close(context.WithoutCancel(t.Context())) }) // ends the streams of events
	return b
}

// A success is an upstream on which all calls succeed.
type success struct{ approval.Sender }

func (success) Call(context.Context, task.Task) (approval.Outcome, error) {
	return approval.Outcome{Body: strings.NewReader(`{"content":[]}`)}, nil
}

// enter lets somebody in with their token.
func (b *bureau) enter(t *testing.T, name string) (*person, bool) {
	t.Helper()
	p, ok := visit(t, &b.site)
	if !ok {
		return nil, false
	}
	p.open("/")
	p.signIn(name)
	return p, true
}

// signIn fills in the form that the page shows.
func (p *person) signIn(name string) {
	p.t.Helper()
	p.do(chromedp.SendKeys(chromedp.CSS("#token"), "the long token of "+name), chromedp.Submit(chromedp.CSS("#token")))
	p.sees("Waiting for a decision")
}

// hold holds a call of somebody's. The definition of the tool follows from its name.
func (b *bureau) hold(t *testing.T, by, tool, arguments string) task.ID {
	t.Helper()
	return b.holdFor(t, "default", by, tool, arguments)
}

// holdFor is hold for a workflow.
func (b *bureau) holdFor(t *testing.T, workflow, by, tool, arguments string) task.ID {
	t.Helper()
	says := map[string]policy.Annotations{
		"delete_file": {Destructive: &yes}, "list_tables": {ReadOnly: &yes}, "refund_payment": {Destructive: &no},
	}
	held, _, err := b.desk.Hold(t.Context(), approval.Call{
		Owner: by, Principal: policy.Principal{ID: by}, Upstream: "files", Tool: approval.Tool{Annotations: says[tool]},
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: workflow, Match: "*"}, Alone: true,
		Message: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments),
	})
	if err != nil {
		t.Fatal(err)
	}
	return held.ID
}

// ask holds a call of somebody's, who waits for it.
func (b *bureau) ask(t *testing.T, by string) (task.ID, *call) {
	t.Helper()
	held, _, err := b.desk.Hold(t.Context(), approval.Call{
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
		ended, err := b.desk.Wait(ctx, task.OwnedBy(by).Ref(held.ID), success{})
		c.text, c.err = string(ended.State), err
	}()
	t.Cleanup(func() { cancel(); <-c.done })
	return held.ID, c
}

// Of two people who decide at once the first counts, and the other is told who
// that was.
func TestTwoApproversRace(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	bob, _ := b.enter(t, "bob")
	id, c := b.ask(t, "ann")
	path := "/approvals/" + string(id)
	// Bob's page is one that does not change by itself.
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

// With a quorum of two the pages of both follow what the other does.
func TestQuorumOfTwo(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {Quorum: 2}})
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
	alice.sees("1 of 2 approvals, by alice. It needs one more person.")
	alice.sees("You have approved this.")
	bob.sees("1 of 2 approvals, by alice. It needs one more person.")
	if got := value[string](bob, `document.querySelector("#reason").value`); got != "as discussed" {
		t.Errorf("what bob was writing is now %q", got)
	}
	bob.click("#approve")
	bob.sees("Approved by alice and bob")
	for _, p := range []*person{alice, vera} { // whose pages were not loaded again
		p.sees("Approved by alice and bob")
		p.sees("It ran, and the agent can fetch the result.")
	}
	if got := c.wait(t); got != string(task.Completed) {
		t.Errorf("the agent gets %s", got)
	}
}

// Nobody approves what they asked for themselves.
func TestOwnCall(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
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

// The same through a whole gate, with people, an agent and a workflow as its
// configuration has them: alice's agent asks, alice may not approve, and it takes
// two others.
func TestTwoPeopleAtTheGate(t *testing.T) {
	const agent = "tga_the-token-of-the-agent-of-alice"
	token := func(name string) string { return "tgo_the-token-of-" + name + "-at-the-gate" }
	rules := fmt.Sprintf("identity: {tokens: [{name: alice-s-bot, owner: Alice, hash: %q}]}\n", bearer.HashOf(agent)) + "operators:\n  tokens:\n"
	for _, name := range []string{"alice", "bob", "carol"} {
		rules += fmt.Sprintf("    - {name: %s, groups: [finance], hash: %q}\n", name, bearer.HashOf(token(name)))
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
		p, ok := visit(t, s)
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
		p.sees("It needs 2 more people.")
	}
	alice, bob, carol := people["alice"], people["bob"], people["carol"]
	alice.sees("You cannot approve a call from your own agent.")
	alice.tolerate("403")
	value[bool](alice, `(() => {
		const form = document.querySelector("#decision");
		form.action = form.action.replace(/reject$/, "approve"); // although there is no button for it
		form.submit();
		return true;
	})()`)
	alice.sees("Your approval was not recorded")
	bob.click("#approve")
	bob.sees("1 of 2 approvals, by bob. It needs one more person.")
	bob.sees("You have approved this.")
	carol.sees("1 of 2 approvals, by bob. It needs one more person.")
	if ran := s.upstream.calls(); len(ran) > 0 {
		t.Errorf("with one approval of two it ran: %v", ran)
	}
	carol.click("#approve")
	carol.sees("Approved by bob and carol")
	if got := c.wait(t); got != "done: refund_payment" {
		t.Errorf("the agent gets %q", got)
	}
	alice.sees("Approved by bob and carol")
}

// An approver who asked for notifications gets them while looking elsewhere.
func TestNotification(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
	alice, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	// Whether somebody looks is for the system to know, which here has no screen.
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
	alice.eventually(`shown.length === 1 && shown[0] === "Approval requested: delete_file, from ann"`, "it is told of")
	alice.click("#notify")
	alice.eventually(`document.querySelector("#notify").getAttribute("aria-pressed") === "false"`, "notifications are off")
	b.ask(t, "zoe")
	alice.eventually(`document.querySelectorAll(".row").length === 2 && shown.length === 1`, "it is not told of")
}

// However much agents make happen, a page pauses between one request and the
// next.
func TestBusyAgents(t *testing.T) {
	b := openBureau(t, map[string]approval.Workflow{"default": {}})
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
			t.Fatalf("the page did not ask %d times in a minute", wanted)
		}
		for i := range 20 {
			id, _ := b.ask(t, fmt.Sprint("ann ", n, " ", i))
			if _, err := decide(t.Context(), b.desk, id, approval.Approver{Name: "bob"}, approval.Reject, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	const pause, tolerance = 400, 10 // in milliseconds, by the clock of the page
	if gap := value[float64](alice, shortest); gap < pause-tolerance {
		t.Errorf("the page asked again after %.0f ms; want a pause of %d", gap, pause)
	}
}

// decide looks at a call and then decides, as an approver does.
func decide(ctx context.Context, desk *approval.Desk, id task.ID, who approval.Approver, what approval.Decision, reason string) (task.Task, error) {
	r := approval.Ruling{Decision: what, Reason: reason}
	if shown, err := desk.Cases().ShowAll(ctx, id); err == nil {
		r.Shown = shown.ShownDigest
	}
	return desk.Decide(ctx, id, who, r)
}
