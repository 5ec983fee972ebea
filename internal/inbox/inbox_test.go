package inbox_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/inbox"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is a served inbox with an adjustable clock.
type fixture struct {
	approvals *approval.Service
	store     *countingStore
	logins    *memstore.Store
	url       string
	routes    http.Handler // the handler that is served at url
	log       *callrecord.Log
	gets      atomic.Int64 // number of reads of a task

	channels []channel.Status // set before the first request
	missing  []inbox.MissingServer

	record    []callrecord.Entry // set before the first request
	summaries int                // how often the record was read

	mu      sync.Mutex
	late    time.Duration
	verdict policy.Verdict            // for calls that are judged again
	push    atomic.Pointer[push.Push] // nil by default
}

// rule sets the verdict for calls that are judged again.
func (o *fixture) rule(v policy.Verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.verdict = v
}

func (o *fixture) judge(policy.Call) policy.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.verdict
}

func (o *fixture) now() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Add(o.late)
}

// pass moves the clock forward.
func (o *fixture) pass(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late += d
}

// open serves an inbox to the approvers alice and bob, the viewer vera and the admin ada. The
// workflow two needs two approvers, and bobs needs bob.
func open(t *testing.T) *fixture {
	t.Helper()
	o := &fixture{verdict: policy.Verdict{Action: policy.Deny}, logins: memstore.New(memstore.Options{})}
	store := &countingStore{Store: memstore.New(memstore.Options{}), gets: &o.gets}
	o.store = store
	t.Cleanup(func() { store.Close() })
	workflows := map[string]approval.Workflow{
		"default": {Redact: []string{"arguments.password", "arguments.users.key"}, Timeout: time.Hour},
		"two":     {Quorum: 2, Timeout: time.Hour},
		"star":    {Redact: []string{"arguments.*.password"}, Timeout: time.Hour},
		"bobs":    {Approvers: []string{"bob", "group:oncall"}},
		"again":   {Redact: []string{"arguments.password"}, Timeout: time.Hour, Grants: policy.Grants{Longest: time.Hour, Uses: 10}},

		"keys":      {Passkey: true, Timeout: time.Hour, Grants: policy.Grants{Longest: time.Hour, Uses: 10}},
		"again-two": {Quorum: 2, Timeout: time.Hour, Grants: policy.Grants{Longest: time.Hour, Uses: 10}},
	}
	o.log = callrecord.New(callrecord.Config{
		Store: store, Now: o.now, Log: slog.New(slog.DiscardHandler), Key: func(context.Context) ([]byte, error) { return []byte("a key"), nil },
	})
	t.Cleanup(func() { o.log.Close(context.WithoutCancel(t.Context())) })
	var err error
	o.approvals, err = approval.New(approval.Config{
		Store: store, Now: o.now, Ended: func(t task.Task) { o.log.Add(o.approvals.Viewer().EndOf(t)) },
		Judge:    o.judge,
		Workflow: func(name string) (approval.Workflow, bool) { w, ok := workflows[name]; return w, ok },
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := inbox.New(inbox.Config{
		Approvals: o.approvals, Viewer: o.approvals.Viewer(), Now: o.now, KeepAlive: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler), Push: o.push.Load,
		NeedsRestart: func() []string { return nil }, Changes: func(context.Context) ([]task.Note, error) { return nil, nil },
		Channels: func() []channel.Status { return o.channels }, Missing: func() []inbox.MissingServer { return o.missing }, Record: o.log,
		Summarize: func(_ context.Context, since, until time.Time, periods int) (callrecord.Summary, error) {
			o.summaries++
			return callrecord.Summarize(func(yield func(callrecord.Entry, error) bool) {
				for _, e := range o.record {
					if !yield(e, nil) {
						return
					}
				}
			}, since, until, periods)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	auth, err := operator.New(operator.Config{
		Tokens: []operator.Token{
			{Hash: operator.HashOf("alice's own long token"), Name: "alice", Role: operator.Approver},
			{Hash: operator.HashOf("bob's own long token"), Name: "bob", Role: operator.Approver},
			{Hash: operator.HashOf("vera's own long token"), Name: "vera", Role: operator.Viewer},
			{Hash: operator.HashOf("rex's own long token"), Name: "rex", Role: operator.Rejecter},
			{Hash: operator.HashOf("ada's own long token"), Name: "ada", Role: operator.Admin},
		},
		Records: o.logins, Ring: keyring.Ephemeral(), Now: o.now, Page: pages.Login, Session: 12 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	auth.Register(mux)
	pages.Register(mux, auth)
	operatorAPI, err := api.New(api.Config{Approvals: o.approvals, Viewer: o.approvals.Viewer(), Auth: auth, Now: o.now})
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/api/", operatorAPI)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	o.url, o.routes = server.URL, mux
	return o
}

// A held is a call for [fixture.hold]. Empty fields have defaults.
type held struct {
	tool, args, workflow, by, says string
	toolDigest                     string
	why                            policy.Verdict
	change                         *toolhistory.Change
}

// hold holds a call.
func (o *fixture) hold(t *testing.T, h held) task.ID {
	t.Helper()
	set := func(field *string, fallback string) {
		if *field == "" {
			*field = fallback
		}
	}
	set(&h.tool, "delete_file")
	set(&h.args, `{"path":"/a"}`)
	set(&h.workflow, "default")
	set(&h.by, "ann")
	name, err := json.Marshal(h.tool)
	if err != nil {
		t.Fatal(err)
	}
	h.why.Action, h.why.Workflow = policy.Approve, h.workflow
	c := approval.Call{
		Owner: h.by, Principal: policy.Principal{ID: h.by}, Upstream: "files", Verdict: h.why,
		Message: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%s,"arguments":%s}}`, name, h.args),
		Tool:    approval.Tool{Description: "Deletes <b>a file</b>.", Digest: h.toolDigest, Change: h.change},
	}
	if h.says != "" {
		text, err := json.Marshal(h.says)
		if err != nil {
			t.Fatal(err)
		}
		c.Variables = task.Variables{review.ClientReason: text}
	}
	got, _, err := o.approvals.Hold(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return got.ID
}

func (o *fixture) state(t *testing.T, id task.ID) task.State {
	t.Helper()
	a, err := o.approvals.Viewer().Show(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return a.State
}

// A browser is a browser without scripts, with its own cookies.
type browser struct {
	t      *testing.T
	client *http.Client
	url    string
}

// signIn returns the browser of a signed-in operator.
func (o *fixture) signIn(t *testing.T, who string) *browser {
	t.Helper()
	v := o.newBrowser(t)
	status, body := v.post("/login", url.Values{"token": {who + "'s own long token"}, "next": {"/"}})
	if status != http.StatusOK || !strings.Contains(body, "Sign out") {
		t.Fatalf("%s cannot sign in: %d\n%s", who, status, body)
	}
	return v
}

func (o *fixture) newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return &browser{t, client, o.url}
}

func (v *browser) do(method, path, body string) (int, string, http.Header) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := v.client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}

func (v *browser) get(path string) string {
	v.t.Helper()
	status, body, _ := v.do(http.MethodGet, path, "")
	if status != http.StatusOK {
		v.t.Fatalf("%s: %d\n%s", path, status, body)
	}
	return body
}

func (v *browser) post(path string, form url.Values) (int, string) {
	v.t.Helper()
	status, body, _ := v.do(http.MethodPost, path, form.Encode())
	return status, body
}

// hidden matches the form token of a page.
var hidden = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// send posts a form with the form token of a page.
func (v *browser) send(page, path string, form url.Values) (int, string) {
	v.t.Helper()
	token := hidden.FindStringSubmatch(v.get(page))
	if token == nil {
		v.t.Fatalf("%s has no form", page)
	}
	form.Set("csrf", token[1])
	return v.post(path, form)
}

func (v *browser) decide(id task.ID, what, reason string) (int, string) {
	v.t.Helper()
	return v.decideSeeing("/approvals/"+string(id), id, what, url.Values{"reason": {reason}})
}

// decideSeeing loads a page of a call and posts its form with additional values.
func (v *browser) decideSeeing(page string, id task.ID, what string, form url.Values) (int, string) {
	v.t.Helper()
	seen := v.get(page)
	for _, name := range []string{"shown", "read"} {
		if m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(seen); m != nil && !form.Has(name) {
			form.Set(name, m[1])
		}
	}
	return v.send("/approvals/"+string(id), "/approvals/"+string(id)+"/"+what, form)
}

func mustHave(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not have %q:\n%s", text, page)
		}
	}
}

func mustLack(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q:\n%s", text, page)
		}
	}
}

func TestDecisionRecorded(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	yes, no := o.hold(t, held{}), o.hold(t, held{args: `{"path":"/b"}`})
	status, page := alice.decide(yes, "approve", "backup exists")
	mustHave(t, page, "Approved by alice", "backup exists", "It runs now: the agent is waiting.")
	if status != http.StatusOK || o.state(t, yes) != task.Approved {
		t.Errorf("status %d, and the call is %s; want 200 and approved", status, o.state(t, yes))
	}
	_, page = alice.decide(no, "reject", "wrong <bucket>")
	mustHave(t, page, "Rejected by alice", "wrong &lt;bucket&gt;", "It did not run.")
	if o.state(t, no) != task.Rejected {
		t.Error(o.state(t, no))
	}
	if got, err := o.store.Get(t.Context(), task.AnyOwner().Ref(no)); err != nil || got.Approval.Rejection.Via.Kind != gatetask.ViaInbox {
		t.Errorf("the recorded rejection is %+v, %v; want it via the inbox", got.Approval.Rejection, err)
	}
}

func TestQuorumShown(t *testing.T) {
	o := open(t)
	alice, bob := o.signIn(t, "alice"), o.signIn(t, "bob")
	id := o.hold(t, held{workflow: "two"})
	mustHave(t, alice.get("/"), "0 of 2 approvals")
	_, page := alice.decide(id, "approve", "")
	mustHave(t, page, "1 of 2 approvals, by alice. 1 more approval needed", "You have approved this.")
	mustLack(t, page, `id="approve"`)
	mustHave(t, bob.get("/"), "1 of 2 approvals")
	_, page = bob.decide(id, "approve", "")
	mustHave(t, page, "Approved by alice and bob")
}

// A rejecter sees no button that approves, and why; it can reject one call or several.
func TestRejecterSeesNoApproveButton(t *testing.T) {
	o := open(t)
	one, other := o.hold(t, held{}), o.hold(t, held{args: `{"path":"/b"}`})
	rex := o.signIn(t, "rex")
	page := rex.get("/approvals/" + string(one))
	mustHave(t, page, `id="decision"`, `id="reject"`, "lets you reject this call, but not approve it")
	mustLack(t, page, `id="approve"`, "/approve", "grant_uses")
	status, page := rex.send("/", "/approvals/"+string(one)+"/approve", url.Values{"read": {"all"}})
	mustHave(t, page, "Nothing was decided", "this needs the role approver, and yours is rejecter")
	if status != http.StatusForbidden {
		t.Errorf("a rejecter approves: status %d, want 403", status)
	}
	_, page = rex.decide(one, "reject", "no")
	mustHave(t, page, "Rejected by rex")
	_, page = rex.send("/", "/approvals/reject", url.Values{"id": {string(other)}})
	mustHave(t, page, "1 request rejected")
	for _, id := range []task.ID{one, other} {
		if state := o.state(t, id); state != task.Rejected {
			t.Errorf("the call is %s", state)
		}
	}
}

// TestDecisionNeedsRoleAndFormToken checks that viewers, other sites and ended sessions cannot
// decide.
func TestDecisionNeedsRoleAndFormToken(t *testing.T) {
	o := open(t)
	id := o.hold(t, held{})
	path := "/approvals/" + string(id)
	vera := o.signIn(t, "vera")
	page := vera.get(path)
	mustHave(t, page, "You may view this call, but not decide it")
	mustLack(t, page, `id="decision"`, `id="approve"`)
	mustLack(t, vera.get("/"), "checkbox")
	status, page := vera.send("/", path+"/approve", url.Values{})
	mustHave(t, page, "Your role does not allow this", "this needs the role approver, and yours is viewer")
	if status != http.StatusForbidden {
		t.Errorf("a viewer approves: status %d, want 403", status)
	}

	alice := o.signIn(t, "alice")
	for name, form := range map[string]url.Values{"no token": {}, "another's token": {"csrf": {hidden.FindStringSubmatch(vera.get("/"))[1]}}} {
		status, page = alice.post(path+"/approve", form)
		mustHave(t, page, "Nothing was decided")
		if status != http.StatusForbidden {
			t.Errorf("%s: %d", name, status)
		}
	}
	token := hidden.FindStringSubmatch(alice.get(path))[1]
	o.pass(13 * time.Hour)
	id = o.hold(t, held{args: `{"path":"/b"}`}) // the first call has expired
	status, page = alice.post("/approvals/"+string(id)+"/approve", url.Values{"csrf": {token}})
	mustHave(t, page, "Your session has ended", "Nothing was decided", "/login?next=%2Fapprovals%2F"+string(id))
	if status != http.StatusUnauthorized {
		t.Errorf("ended session: status %d, want 401", status)
	}
	if got := o.state(t, id); got != task.InputRequired {
		t.Errorf("the call is %s, want input_required", got)
	}
	_, page, _ = o.newBrowser(t).do(http.MethodGet, "/approvals/"+string(id), "")
	mustHave(t, page, "<h1>Sign in</h1>", `name="next" value="/approvals/`+string(id)+`"`)
	mustLack(t, page, "delete_file", "files")
}

// TestUnavailableStoreExplained checks the page if the gate cannot read the session: it
// names the store, and does not mention a rate limit.
func TestUnavailableStoreExplained(t *testing.T) {
	o := open(t)
	id := o.hold(t, held{})
	path := "/approvals/" + string(id)
	alice := o.signIn(t, "alice")
	token := hidden.FindStringSubmatch(alice.get(path))[1]
	if err := o.logins.Close(); err != nil {
		t.Fatal(err)
	}
	status, page := alice.post(path+"/approve", url.Values{"csrf": {token}})
	mustHave(t, page, "The gate cannot check your sign-in", "Nothing was decided", "store cannot be reached", "Try again", path)
	mustLack(t, page, "Too many")
	if status != http.StatusServiceUnavailable || o.state(t, id) != task.InputRequired {
		t.Errorf("status %d, and the call is %s; want 503 and input_required", status, o.state(t, id))
	}
}

// TestSecurityHeaders checks that every response allows only files of this gate.
func TestSecurityHeaders(t *testing.T) {
	o := open(t)
	id := o.hold(t, held{})
	alice := o.signIn(t, "alice")
	for _, path := range []string{
		"/", "/history", "/approvals/" + string(id), "/approvals/" + string(id) + "/arguments", "/login", "/approvals/unknown",
		"/manifest.webmanifest", "/worker.js", "/assets/inbox.js", "/assets/inbox.css", "/assets/icon.svg", "/assets/unknown",
	} {
		_, page, header := alice.do(http.MethodGet, path, "")
		csp := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "script-src 'self'", "form-action 'self'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(csp, part) {
				t.Errorf("%s: no %s in %q", path, part, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "data:") || strings.Contains(csp, "*") {
			t.Errorf("%s: Content-Security-Policy is too wide: %s", path, csp)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		if !strings.HasPrefix(path, "/assets") {
			if got := header.Get("Cache-Control"); got != "no-store" {
				t.Errorf("%s: Cache-Control is %q", path, got)
			}
			if regexp.MustCompile(`(?i)<script(?:[^>]*>[^<]|>)|\son\w+=|style=|javascript:`).MatchString(page) {
				t.Errorf("%s has inline code or styles:\n%s", path, page)
			}
		}
	}
}

func TestHistoryFilters(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	mustHave(t, alice.get("/history"), "No decisions yet.")
	for i := range 35 {
		id := o.hold(t, held{by: fmt.Sprintf("agent%d", i%7), args: fmt.Sprintf(`{"path":"/%d"}`, i)})
		if _, err := decide(t.Context(), o.approvals, id, approval.Approver{Name: "bob"}, approval.Reject, fmt.Sprintf("no. %d.", i)); err != nil {
			t.Fatal(err)
		}
	}
	approved := o.hold(t, held{tool: "Send_mail", by: "ann"})
	alice.decide(approved, "approve", "")
	page := alice.get("/history")
	mustHave(t, page, "Send_mail", "no. 34.", "no. 6.", "Older")
	mustLack(t, page, "no. 5.")
	next := regexp.MustCompile(`href="(/history\?cursor=[^"]+)"`).FindStringSubmatch(page)
	if next == nil {
		t.Fatal("there is no next page")
	}
	page = alice.get(strings.ReplaceAll(next[1], "&amp;", "&"))
	mustHave(t, page, "no. 5.", "no. 0.", "First page")
	mustLack(t, page, "no. 6.", "Send_mail", "Older")

	page = alice.get("/history?outcome=approved")
	mustHave(t, page, "Send_mail")
	mustLack(t, page, "delete_file")
	page = alice.get("/history?tool=MAIL")
	mustHave(t, page, "Send_mail")
	mustLack(t, page, "delete_file")
	page = alice.get("/history?requester=agent3")
	mustHave(t, page, "no. 3.", "no. 31.")
	mustLack(t, page, "no. 4.", "Send_mail")
	mustHave(t, alice.get("/history?tool=nothing"), "No matching calls.")
	if _, page, _ := alice.do(http.MethodGet, "/history?cursor=bad", ""); !strings.Contains(page, "no. 34.") {
		t.Error("a bad cursor does not lead to the first page")
	}
}

// TestChangedDefinitionWarns checks that the page warns if the definition of the tool has
// changed since its last approval.
func TestChangedDefinitionWarns(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	const warning = "The tool has changed since it was last approved"
	first := o.hold(t, held{toolDigest: "d1"})
	mustLack(t, alice.get("/approvals/"+string(first)), warning)
	alice.decide(first, "approve", "")
	same := o.hold(t, held{toolDigest: "d1", args: `{"path":"/b"}`})
	page := alice.get("/approvals/" + string(same))
	mustLack(t, page, warning)
	mustHave(t, page, "Earlier calls of this tool", "/approvals/"+string(first))
	other := o.hold(t, held{toolDigest: "d2", args: `{"path":"/c"}`, by: "zoe"})
	page = alice.get("/approvals/" + string(other))
	mustHave(t, page, warning, "/approvals/"+string(first))
	elsewhere := o.hold(t, held{tool: "read_file", toolDigest: "d3"})
	mustLack(t, alice.get("/approvals/"+string(elsewhere)), warning)
}

// TestHoldReasonShown checks that the page names the rule or policy that held a call.
func TestHoldReasonShown(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	tests := map[string]struct {
		why  policy.Verdict
		want []string
	}{
		"rule":     {policy.Verdict{Rule: 3, Label: "rules[3]", Match: "delete_*", Says: []string{"deleted is deleted"}}, []string{"Held by rules[3] (delete_*).", "deleted is deleted"}},
		"a name":   {policy.Verdict{Rule: 3, Label: "rule deletions", Match: "delete_*"}, []string{"Held by rule deletions (delete_*)."}},
		"default":  {policy.Verdict{Rule: policy.ByDefault}, []string{"No rule matches this tool"}},
		"policy":   {policy.Verdict{Rule: 1, Policies: []string{"refunds"}, Says: []string{"more than <100>"}}, []string{"The Cedar policy refunds allows this only with approval.", "more than &lt;100&gt;"}},
		"policies": {policy.Verdict{Policies: []string{"a", "b"}}, []string{"The Cedar policies a and b allow this only with approval."}},
	}
	for name, tt := range tests {
		id := o.hold(t, held{why: tt.why, args: fmt.Sprintf(`{"path":%q}`, name)})
		mustHave(t, alice.get("/approvals/"+string(id)), tt.want...)
	}
}

// TestJournalShownAfterDeletion checks that the page of a call shows its journal entries, also
// after the call was deleted.
func TestJournalShownAfterDeletion(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{why: policy.Verdict{Reason: "rules[0] says so"}})
	alice.decide(id, "reject", "wrong <bucket>")
	told := []string{"What happened", "Requested by <strong>ann</strong>; on hold", "by <strong>ann</strong>", "Approval requested", "Rejected", "by <strong>alice</strong>", "<q>wrong &lt;bucket&gt;</q>", "it did not run"}
	mustHave(t, alice.get("/approvals/"+string(id)), told...)
	o.forget(t, id)
	page := alice.get("/approvals/" + string(id))
	mustHave(t, page, append(told, "The call itself was deleted", "rules[0] says so")...)
	status, page, _ := alice.do(http.MethodGet, "/approvals/tg_unknown", "")
	mustHave(t, page, "No such request", `class="count" hidden`) // the number of waiting calls is not known
	if status != http.StatusNotFound {
		t.Errorf("unknown call: status %d, want 404", status)
	}
}

// forget lets time pass until a task that has ended is deleted.
func (o *fixture) forget(t *testing.T, id task.ID) {
	t.Helper()
	o.pass(10 * time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- o.approvals.Run(ctx) }()
	for {
		if _, err := o.approvals.Viewer().Show(t.Context(), id); err != nil {
			break
		}
	}
	cancel()
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
}

// Administrators learn what to do about a channel that fails. Approvers cannot do anything about it.
func TestChannelTroubleIsForAdmins(t *testing.T) {
	o := open(t)
	o.channels = []channel.Status{{Channel: "chat", Waiting: 2, Error: "token_revoked", DecisionsError: "dial tcp"}}
	mustHave(t, o.signIn(t, "ada").get("/"), "Channel chat: 2 messages not sent", "check the channel", "token_revoked", "does not receive decisions")
	mustLack(t, o.signIn(t, "alice").get("/"), "Channel chat")
}

// Administrators see which server of an endpoint is missing, since when, and what to do. Approvers cannot
// do anything about it.
func TestMissingServerIsForAdmins(t *testing.T) {
	o := open(t)
	o.missing = []inbox.MissingServer{{Server: "crm", Endpoint: "/mcp", Cause: "it cannot be reached", Since: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}}
	mustHave(t, o.signIn(t, "ada").get("/"), "Server crm of /mcp: unavailable since 03:04 UTC", "Check that it runs", "it cannot be reached")
	mustLack(t, o.signIn(t, "alice").get("/"), "Server crm")
}

// A call without arguments has no search for them.
func TestNoArgumentsNoSearch(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	with, without := o.hold(t, held{}), o.hold(t, held{args: "{}"})
	mustHave(t, alice.get("/approvals/"+string(with)), `name="find"`)
	page := alice.get("/approvals/" + string(without))
	mustHave(t, page, "No arguments.")
	mustLack(t, page, `name="find"`, "All as text")
}
