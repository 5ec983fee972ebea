package inbox_test

import (
	"context"
	"fmt"
	"io"
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
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/inbox"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An office is a served inbox with a clock that can be set.
type office struct {
	desk   *approval.Desk
	store  *countingStore
	logins *memstore.Store
	url    string
	gets   atomic.Int64 // how often a task was read

	mu      sync.Mutex
	late    time.Duration
	verdict policy.Verdict            // of a call that is judged again
	push    atomic.Pointer[push.Push] // nil unless a test has set it
}

// rule sets what policy says of calls that are judged again.
func (o *office) rule(v policy.Verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.verdict = v
}

func (o *office) judge(policy.Call) policy.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.verdict
}

func (o *office) now() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Add(o.late)
}

// pass lets time pass.
func (o *office) pass(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late += d
}

// open serves a desk to alice and bob, who may decide, and to vera, who may
// look. The workflow two needs two of them, bobs needs bob.
func open(t *testing.T) *office {
	t.Helper()
	o := &office{verdict: policy.Verdict{Action: policy.Deny}, logins: memstore.New(memstore.Options{})}
	store := &countingStore{GateStore: memstore.New(memstore.Options{}), gets: &o.gets}
	o.store = store
	t.Cleanup(func() { store.Close() })
	workflows := map[string]approval.Workflow{
		"default": {Redact: []string{"arguments.password", "arguments.users.key"}, Timeout: time.Hour},
		"two":     {Quorum: 2, Timeout: time.Hour},
		"bobs":    {Approvers: []string{"bob", "group:oncall"}},
		"again":   {Redact: []string{"arguments.password"}, Timeout: time.Hour, Grants: grantstore.Limits{Longest: time.Hour, Uses: 10}},

		"again-two": {Quorum: 2, Timeout: time.Hour, Grants: grantstore.Limits{Longest: time.Hour, Uses: 10}},
	}
	var err error
	o.desk, err = approval.New(approval.Config{
		Store: store, Now: o.now,
		Judge:    o.judge,
		Workflow: func(name string) (approval.Workflow, bool) { w, ok := workflows[name]; return w, ok },
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := inbox.New(inbox.Config{Desk: o.desk, Cases: o.desk.Cases(), Now: o.now, KeepAlive: 20 * time.Millisecond, Push: o.push.Load})
	if err != nil {
		t.Fatal(err)
	}
	auth, err := operator.New(operator.Config{
		Tokens: []operator.Token{
			{Hash: operator.HashOf("alice's own long token"), Name: "alice", Role: operator.Approver},
			{Hash: operator.HashOf("bob's own long token"), Name: "bob", Role: operator.Approver},
			{Hash: operator.HashOf("vera's own long token"), Name: "vera", Role: operator.Viewer},
		},
		Records: o.logins, Ring: keyring.Ephemeral(), Now: o.now, Page: pages.Login, Session: 12 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	auth.Register(mux)
	pages.Register(mux, auth)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	o.url = server.URL
	return o
}

// A held call, as far as tests care.
type held struct {
	tool, args, workflow, by, says string
	toolDigest                     string
	why                            policy.Verdict
}

// hold holds a call.
func (o *office) hold(t *testing.T, h held) task.ID {
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
		Tool:    approval.Tool{Description: "Deletes <b>a file</b>.", Digest: h.toolDigest},
	}
	if h.says != "" {
		text, err := json.Marshal(h.says)
		if err != nil {
			t.Fatal(err)
		}
		c.Variables = task.Variables{casefile.ClientReason: text}
	}
	got, _, err := o.desk.Hold(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return got.ID
}

func (o *office) state(t *testing.T, id task.ID) task.State {
	t.Helper()
	a, err := o.desk.Cases().Show(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return a.State
}

// A visitor is somebody with a browser that runs no scripts.
type visitor struct {
	t      *testing.T
	client *http.Client
	url    string
}

// visit logs somebody in.
func (o *office) visit(t *testing.T, who string) *visitor {
	t.Helper()
	v := o.stranger(t)
	status, body := v.post("/login", url.Values{"token": {who + "'s own long token"}, "next": {"/"}})
	if status != http.StatusOK || !strings.Contains(body, "Sign out") {
		t.Fatalf("%s cannot log in: %d\n%s", who, status, body)
	}
	return v
}

func (o *office) stranger(t *testing.T) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return &visitor{t, client, o.url}
}

func (v *visitor) do(method, path, body string) (int, string, http.Header) {
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

func (v *visitor) get(path string) string {
	v.t.Helper()
	status, body, _ := v.do(http.MethodGet, path, "")
	if status != http.StatusOK {
		v.t.Fatalf("%s: %d\n%s", path, status, body)
	}
	return body
}

func (v *visitor) post(path string, form url.Values) (int, string) {
	v.t.Helper()
	status, body, _ := v.do(http.MethodPost, path, form.Encode())
	return status, body
}

// hidden finds what a page gives its forms.
var hidden = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// send sends a form of a page.
func (v *visitor) send(page, path string, form url.Values) (int, string) {
	v.t.Helper()
	token := hidden.FindStringSubmatch(v.get(page))
	if token == nil {
		v.t.Fatalf("%s has no form", page)
	}
	form.Set("csrf", token[1])
	return v.post(path, form)
}

func (v *visitor) decide(id task.ID, what, reason string) (int, string) {
	v.t.Helper()
	return v.decideSeeing("/approvals/"+string(id), id, what, url.Values{"reason": {reason}})
}

// decideSeeing looks at a page of a call and sends its form, with what is given.
func (v *visitor) decideSeeing(page string, id task.ID, what string, form url.Values) (int, string) {
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

func TestDecide(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
	yes, no := o.hold(t, held{}), o.hold(t, held{args: `{"path":"/b"}`})
	status, page := alice.decide(yes, "approve", "backup exists")
	mustHave(t, page, "Approved by alice", "backup exists", "It runs now: the agent is waiting.")
	if status != http.StatusOK || o.state(t, yes) != task.Approved {
		t.Errorf("%d, %s", status, o.state(t, yes))
	}
	_, page = alice.decide(no, "reject", "wrong <bucket>")
	mustHave(t, page, "Rejected by alice", "wrong &lt;bucket&gt;", "It did not run.")
	if o.state(t, no) != task.Rejected {
		t.Error(o.state(t, no))
	}
}

func TestQuorum(t *testing.T) {
	o := open(t)
	alice, bob := o.visit(t, "alice"), o.visit(t, "bob")
	id := o.hold(t, held{workflow: "two"})
	mustHave(t, alice.get("/"), "0 of 2 approvals")
	_, page := alice.decide(id, "approve", "")
	mustHave(t, page, "1 of 2 approvals, by alice. It needs one more person", "You have approved this.")
	mustLack(t, page, `id="approve"`)
	mustHave(t, bob.get("/"), "1 of 2 approvals")
	_, page = bob.decide(id, "approve", "")
	mustHave(t, page, "Approved by alice and bob")
}

// Nobody decides who is not logged in, may only look, or was led here by
// another site.
func TestNotDecided(t *testing.T) {
	o := open(t)
	id := o.hold(t, held{})
	path := "/approvals/" + string(id)
	vera := o.visit(t, "vera")
	page := vera.get(path)
	mustHave(t, page, "You may view this call, but not decide it")
	mustLack(t, page, `id="decision"`, `id="approve"`)
	mustLack(t, vera.get("/"), "checkbox")
	status, page := vera.send("/", path+"/approve", url.Values{})
	mustHave(t, page, "You may view calls, but not decide")
	if status != http.StatusForbidden {
		t.Errorf("vera: %d", status)
	}

	alice := o.visit(t, "alice")
	for name, form := range map[string]url.Values{"no token": {}, "another's token": {"csrf": {hidden.FindStringSubmatch(vera.get("/"))[1]}}} {
		status, page = alice.post(path+"/approve", form)
		mustHave(t, page, "Nothing was decided")
		if status != http.StatusForbidden {
			t.Errorf("%s: %d", name, status)
		}
	}
	token := hidden.FindStringSubmatch(alice.get(path))[1]
	o.pass(13 * time.Hour)
	id = o.hold(t, held{args: `{"path":"/b"}`}) // the other one has expired, and its client is told so first
	status, page = alice.post("/approvals/"+string(id)+"/approve", url.Values{"csrf": {token}})
	mustHave(t, page, "Your session has ended", "Nothing was decided", "/login?next=%2Fapprovals%2F"+string(id))
	if status != http.StatusUnauthorized {
		t.Errorf("ended session: %d", status)
	}
	if got := o.state(t, id); got != task.InputRequired {
		t.Errorf("state %s", got)
	}
	_, page, _ = o.stranger(t).do(http.MethodGet, "/approvals/"+string(id), "")
	mustHave(t, page, "<h1>Sign in</h1>", `name="next" value="/approvals/`+string(id)+`"`)
	mustLack(t, page, "delete_file", "files")
}

// Somebody whose login cannot be checked is told that, and not that they asked too often.
func TestLoginUnchecked(t *testing.T) {
	o := open(t)
	id := o.hold(t, held{})
	path := "/approvals/" + string(id)
	alice := o.visit(t, "alice")
	token := hidden.FindStringSubmatch(alice.get(path))[1]
	if err := o.logins.Close(); err != nil {
		t.Fatal(err)
	}
	status, page := alice.post(path+"/approve", url.Values{"csrf": {token}})
	mustHave(t, page, "The gate cannot check your sign-in", "Nothing was decided", "store cannot be reached", "Try again", path)
	mustLack(t, page, "Too many")
	if status != http.StatusServiceUnavailable || o.state(t, id) != task.InputRequired {
		t.Errorf("answered %d, and the call is %s", status, o.state(t, id))
	}
}

// Every answer tells the browser to run nothing but the gate's own files.
func TestHeaders(t *testing.T) {
	o := open(t)
	id := o.hold(t, held{})
	alice := o.visit(t, "alice")
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
			t.Errorf("%s: %s", path, csp)
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
				t.Errorf("%s has something inline:\n%s", path, page)
			}
		}
	}
}

func TestHistory(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
	mustHave(t, alice.get("/history"), "No decisions yet.")
	for i := range 35 {
		id := o.hold(t, held{by: fmt.Sprintf("agent%d", i%7), args: fmt.Sprintf(`{"path":"/%d"}`, i)})
		if _, err := decide(t.Context(), o.desk, id, approval.Approver{Name: "bob"}, approval.Reject, fmt.Sprintf("no. %d.", i)); err != nil {
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

// A change of the tool's definition since its last approval is told.
func TestChangedDefinition(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
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

// Approvers are told what held a call, in words of their own.
func TestWhy(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
	tests := map[string]struct {
		why  policy.Verdict
		want []string
	}{
		"rule":     {policy.Verdict{Rule: 3, Label: "rules[3]", Match: "delete_*", Says: []string{"deleted is deleted"}}, []string{"The rule rules[3] wants approval for every tool that matches delete_*.", "deleted is deleted"}},
		"a name":   {policy.Verdict{Rule: 3, Label: "rule deletions", Match: "delete_*"}, []string{"The rule deletions wants approval for every tool that matches delete_*."}},
		"default":  {policy.Verdict{Rule: policy.ByDefault}, []string{"No rule matches this tool"}},
		"policy":   {policy.Verdict{Rule: 1, Policies: []string{"refunds"}, Says: []string{"more than <100>"}}, []string{"The Cedar policy refunds allows this only with approval.", "more than &lt;100&gt;"}},
		"policies": {policy.Verdict{Policies: []string{"a", "b"}}, []string{"The Cedar policies a and b allow this only with approval."}},
	}
	for name, tt := range tests {
		id := o.hold(t, held{why: tt.why, args: fmt.Sprintf(`{"path":%q}`, name)})
		mustHave(t, alice.get("/approvals/"+string(id)), tt.want...)
	}
}

// The story of a call is on its page, and still there when the call is not.
func TestStory(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
	id := o.hold(t, held{why: policy.Verdict{Reason: "rules[0] says so"}})
	alice.decide(id, "reject", "wrong <bucket>")
	told := []string{"What happened", "Requested by <strong>ann</strong>; on hold", "by <strong>ann</strong>", "Approval requested", "Rejected", "by <strong>alice</strong>", "<q>wrong &lt;bucket&gt;</q>", "it did not run"}
	mustHave(t, alice.get("/approvals/"+string(id)), told...)
	o.pass(10 * time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- o.desk.Run(ctx) }()
	for {
		if _, err := o.desk.Cases().Show(t.Context(), id); err != nil {
			break
		}
	}
	cancel()
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	page := alice.get("/approvals/" + string(id))
	mustHave(t, page, append(told, "The call itself is no longer kept", "rules[0] says so")...)
	status, page, _ := alice.do(http.MethodGet, "/approvals/tg_unknown", "")
	mustHave(t, page, "No such request")
	if status != http.StatusNotFound {
		t.Errorf("unknown: %d", status)
	}
}
