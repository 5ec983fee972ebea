package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret      = "correct horse battery staple"
	adminSecret = "incorrect zebra mains clamp"
)

// A fixture is a service and its API.
type fixture struct {
	service *approval.Service
	store   *failingStore
	url     string
}

// open serves a service with the workflow ops, which alice approves, and the workflow two,
// which needs two approvals. Alice has the secret.
func open(t *testing.T) *fixture {
	t.Helper()
	store := &failingStore{Store: memstore.New(memstore.Options{})}
	t.Cleanup(func() { store.Close() })
	workflows := map[string]approval.Workflow{
		"ops":    {Approvers: []string{"alice"}, Redact: []string{"arguments.password"}},
		"two":    {Quorum: 2},
		"others": {Approvers: []string{"bob"}},
		"brief":  {Timeout: time.Millisecond},
		"again":  {Grants: policy.Grants{Longest: time.Hour, Uses: 10}},
	}
	service, err := approval.New(approval.Config{
		Store: store,
		Judge: func(policy.Call) policy.Verdict { return policy.Verdict{Action: policy.Deny} },
		Workflow: func(name string) (approval.Workflow, bool) {
			w, ok := workflows[name]
			return w, ok
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	h, err := api.New(api.Config{
		Approvals: service, Viewer: service.Viewer(), Auth: alice(t), KeepAlive: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(fromAfar(h))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &fixture{service, store, server.URL}
}

// alice returns the authentication that accepts the secret for alice.
func alice(t *testing.T) *operator.Auth {
	t.Helper()
	auth, err := operator.New(operator.Config{
		Tokens: []operator.Token{
			{Hash: operator.HashOf(secret), Name: "alice", Role: operator.Approver},
			{Hash: operator.HashOf(adminSecret), Name: "root", Role: operator.Admin},
		},
		Records: memstore.New(memstore.Options{}), Ring: keyring.Ephemeral(), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return auth
}

// fromAfar gives every request a different client address.
func fromAfar(h http.Handler) http.Handler {
	var n atomic.Uint32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", n.Add(1)>>8, byte(n.Load()))
		h.ServeHTTP(w, r)
	})
}

// hold holds a call for a workflow.
func (o *fixture) hold(t *testing.T, workflow, owner, file string) task.ID {
	t.Helper()
	held, _, err := o.service.Hold(t.Context(), approval.Call{
		Owner: owner, Principal: policy.Principal{ID: owner}, Upstream: "files",
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: workflow, Reason: "rules[0]"},
		Message: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":%q,"password":"hunter2"}}}`, file),
	})
	if err != nil {
		t.Fatal(err)
	}
	return held.ID
}

// A reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	body   string
}

// do makes a request with the secret. Change, if not nil, adjusts the request. The answer must
// match openapi.json.
func (o *fixture) do(t *testing.T, method, path, body string, change func(*http.Request)) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, o.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := reply{answer.StatusCode, answer.Header, string(text)}
	readDescription(t).check(t, r, got)
	return got
}

// mustRefuse checks that the answer is an error of the given type, in the documented form.
func (r reply) mustRefuse(t *testing.T, status int, kind string) {
	t.Helper()
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
		Approval *review.Approval `json:"approval"`
	}
	if err := json.Unmarshal([]byte(r.body), &body, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
	if r.status != status || body.Error.Type != kind || body.Error.Message == "" {
		t.Errorf("answer = %d %s; want %d %s", r.status, r.body, status, kind)
	}
}

func (r reply) read(t *testing.T, to any) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("answer = %d %s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), to, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
}

func TestAuthentication(t *testing.T) {
	o := open(t)
	id := o.hold(t, "ops", "ann", "/a")
	paths := []string{
		"GET /api/approvals", "GET /api/approvals/" + string(id), "GET /api/approvals/events",
		"POST /api/approvals/" + string(id) + "/approve", "GET /nothing",
		"GET /api/audit", "GET /api/audit/ends",
	}
	headers := map[string]string{
		"none": "", "wrong": "Bearer wrong", "prefix": "Bearer " + secret[:10], "longer": "Bearer " + secret + "x",
		"another scheme": "Basic " + secret, "no scheme": secret, "the task's id": "Bearer " + string(id), "empty": "Bearer ",
	}
	for _, path := range paths {
		method, path, _ := strings.Cut(path, " ")
		for name, header := range headers {
			r := o.do(t, method, path, "", func(r *http.Request) { r.Header.Set("Authorization", header) })
			r.mustRefuse(t, http.StatusUnauthorized, "unauthorized")
			if r.header.Get("Www-Authenticate") == "" {
				t.Errorf("%s %s: no challenge", name, path)
			}
		}
		r := o.do(t, method, path+"?access_token="+url.QueryEscape(secret), "", func(r *http.Request) { r.Header.Del("Authorization") })
		r.mustRefuse(t, http.StatusUnauthorized, "unauthorized")
	}
	var a review.Approval
	o.do(t, "GET", "/api/approvals/"+string(id), "", nil).read(t, &a)
	if a.State != task.InputRequired {
		t.Errorf("state = %s", a.State)
	}
}

func TestAPIRequiresAuthentication(t *testing.T) {
	if _, err := api.New(api.Config{}); err == nil {
		t.Error("New accepted an API without authentication")
	}
}

func TestListAndShow(t *testing.T) {
	o := open(t)
	first, second := o.hold(t, "ops", "ann", "/a"), o.hold(t, "ops", "ann", "/b")
	var page review.Page
	r := o.do(t, "GET", "/api/approvals?state=pending&limit=1", "", nil)
	r.read(t, &page)
	if len(page.Approvals) != 1 || page.Approvals[0].ID != second || page.Next == "" {
		t.Fatalf("first page = %+v", page)
	}
	o.do(t, "GET", "/api/approvals?limit=1&cursor="+page.Next, "", nil).read(t, &page)
	if len(page.Approvals) != 1 || page.Approvals[0].ID != first {
		t.Errorf("second page = %+v", page)
	}
	if strings.Contains(r.body, "hunter2") {
		t.Errorf("the list has a secret: %s", r.body)
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Content-Type": "application/json", "X-Content-Type-Options": "nosniff",
		"Access-Control-Allow-Origin": "",
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s: %q; want %q", name, got, want)
		}
	}

	for query, want := range map[string]int{
		"tool=delete": 2, "tool=read": 0, "agent=an": 2, "agent=bob": 0, "workflow=op": 2, "workflow=two": 0, "q=%2Fb+files": 1, "q=hunter2": 0,
		"tool=file&agent=ann&workflow=ops&q=%2Fa": 1,
	} {
		o.do(t, "GET", "/api/approvals?"+query, "", nil).read(t, &page)
		if len(page.Approvals) != want {
			t.Errorf("%s: %d approvals; want %d", query, len(page.Approvals), want)
		}
	}

	var a map[string]any
	o.do(t, "GET", "/api/approvals/"+string(first), "", nil).read(t, &a)
	for name := range strings.FieldsSeq("id state tool upstream arguments principal workflow reason createdAt expiresAt") {
		if a[name] == nil {
			t.Errorf("%s missing in %v", name, a)
		}
	}
	if diff := cmp.Diff(map[string]any{"path": "/a", "password": "[redacted]"}, a["arguments"]); diff != "" {
		t.Error(diff)
	}

	o.do(t, "POST", "/api/approvals/"+string(first)+"/reject", "", nil)
	for query, want := range map[string]int{"": 1, "?state=rejected": 1, "?state=all": 2, "?state=approved": 0} {
		o.do(t, "GET", "/api/approvals"+query, "", nil).read(t, &page)
		if len(page.Approvals) != want {
			t.Errorf("%s: %d approvals; want %d", query, len(page.Approvals), want)
		}
	}
	for _, query := range []string{"state=odd", "limit=0", "limit=-1", "limit=1.5", "limit=101", "limit=x", "cursor=x"} {
		o.do(t, "GET", "/api/approvals?"+query, "", nil).mustRefuse(t, http.StatusBadRequest, "bad_request")
	}
	o.do(t, "GET", "/api/approvals/tg_nothing", "", nil).mustRefuse(t, http.StatusNotFound, "not_found")
}

func TestDecide(t *testing.T) {
	o := open(t)
	path := func(id task.ID, what string) string { return "/api/approvals/" + string(id) + "/" + what }
	id := o.hold(t, "ops", "ann", "/a")
	var a review.Approval
	digest := func(id task.ID) string {
		t.Helper()
		var a review.Approval
		o.do(t, "GET", "/api/approvals/"+string(id), "", nil).read(t, &a)
		return a.ShownDigest
	}
	for body, want := range map[string]struct {
		status int
		kind   string
	}{
		"":                        {http.StatusPreconditionRequired, "digest_required"},
		`{"reason":"fine"}`:       {http.StatusPreconditionRequired, "digest_required"},
		`{"shownDigest":"other"}`: {http.StatusConflict, "view_changed"},
	} {
		refused := o.do(t, "POST", path(id, "approve"), body, nil)
		refused.mustRefuse(t, want.status, want.kind)
		if !strings.Contains(refused.body, `"shownDigest":"`+digest(id)+`"`) || !strings.Contains(refused.body, `"state":"input_required"`) {
			t.Errorf("%s: no current call in the answer: %s", body, refused.body)
		}
	}
	o.do(t, "POST", path(id, "approve"), `{"reason":"fine","shownDigest":"`+digest(id)+`"}`, nil).read(t, &a)
	if a.State != task.Approved || len(a.Approvals) != 1 || a.Approvals[0].By != "alice" || a.Approvals[0].Reason != "fine" {
		t.Errorf("approved: %+v", a)
	}
	o.do(t, "POST", path(id, "reject"), "", nil).mustRefuse(t, http.StatusConflict, "already_decided")

	id = o.hold(t, "ops", "ann", "/b")
	o.do(t, "POST", path(id, "reject"), `{"reason":"no"}`, nil).read(t, &a)
	if a.State != task.Rejected || a.Rejection.Reason != "no" {
		t.Errorf("rejected: %+v", a)
	}
	o.do(t, "POST", path(id, "approve"), "", nil).mustRefuse(t, http.StatusGone, "ended")

	id = o.hold(t, "two", "ann", "/c")
	o.do(t, "POST", path(id, "approve"), `{"shownDigest":"`+digest(id)+`"}`, nil).read(t, &a)
	o.do(t, "POST", path(id, "approve"), `{"shownDigest":"`+digest(id)+`"}`, nil).mustRefuse(t, http.StatusConflict, "already_decided")

	id = o.hold(t, "others", "ann", "/d")
	o.do(t, "POST", path(id, "approve"), "", nil).mustRefuse(t, http.StatusForbidden, "forbidden")
	id = o.hold(t, "two", "alice", "/e")
	o.do(t, "POST", path(id, "approve"), "", nil).mustRefuse(t, http.StatusForbidden, "self_approval")
	o.do(t, "POST", path("tg_nothing", "approve"), "", nil).mustRefuse(t, http.StatusNotFound, "not_found")

	id = o.hold(t, "brief", "ann", "/f")
	page, err := o.service.Viewer().Pending(t.Context(), review.Filter{Limit: 1})
	if err != nil || page.Approvals[0].ID != id {
		t.Fatal(page, err)
	}
	<-time.After(time.Until(page.Approvals[0].ExpiresAt) + time.Millisecond)
	o.do(t, "POST", path(id, "approve"), "", nil).mustRefuse(t, http.StatusGone, "expired")
	if _, err := o.service.Viewer().Show(t.Context(), id); err != nil { // viewing ends the expired task
		t.Fatal(err)
	}
	o.do(t, "POST", path(id, "approve"), "", nil).mustRefuse(t, http.StatusGone, "ended")
}

// Lists and single calls warn of lookalike letters in names and values, but not of ordinary
// text in another script.
func TestWarnings(t *testing.T) {
	o := open(t)
	id := o.hold(t, "ops", "ann", "/hom\u0435/\u0444\u0430\u0439\u043b.txt")
	want := []string{"value /hom\u0435/\u0444\u0430\u0439\u043b.txt: Characters that look like others: \u0435 is U+0435 Cyrillic"}
	var page review.Page
	o.do(t, "GET", "/api/approvals", "", nil).read(t, &page)
	var a review.Approval
	o.do(t, "GET", "/api/approvals/"+string(id), "", nil).read(t, &a)
	for name, got := range map[string]review.Approval{"list": page.Approvals[0], "show": a} {
		if diff := cmp.Diff(review.Cautions{Risk: review.RiskUnknown, Warnings: want}, got.Cautions); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	o.hold(t, "ops", "ann", "/\u0444\u0430\u0439\u043b.txt \u4f60\u597d caf\u00e9")
	o.do(t, "GET", "/api/approvals", "", nil).read(t, &page)
	if got := page.Approvals[0].Warnings; got != nil {
		t.Errorf("warnings about ordinary text: %q", got)
	}
}

// The requests in the documentation work as written.
func TestDocumentedRequestsWork(t *testing.T) {
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^curl (-N )?-H "\$AUTH"(?: -H 'Content-Type: application/json' -d ('[^']*'|"(?:[^"\\]|\\.)*"))? "\$GATE([^"]+)"$`)
	requests := line.FindAllStringSubmatch(string(text), -1)
	if len(requests) < 5 || len(requests) != strings.Count(string(text), "\ncurl ") {
		t.Fatalf("%d of %d requests parsed", len(requests), strings.Count(string(text), "\ncurl "))
	}
	o := open(t)
	for i, r := range requests {
		id := o.hold(t, "ops", "ann", fmt.Sprint(i))
		shown, err := o.service.Viewer().Show(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		stream, path := r[1] != "", strings.ReplaceAll(r[3], "$ID", string(id))
		body := strings.NewReplacer(`\"`, `"`, "$SHOWN", shown.ShownDigest).Replace(strings.Trim(r[2], `'"`))
		if stream || strings.Contains(path, "$CHANGE") {
			continue // tested by TestEvents, and by TestChangedToolIsHeld of package app
		}
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		if got := o.do(t, method, path, body, nil); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", r[0], got.status, got.body)
		}
	}
	for _, kind := range api.ErrorTypes() {
		if !strings.Contains(string(text), "- `"+kind+"` (") {
			t.Errorf("error type %s is not documented", kind)
		}
	}
}

// Bodies are parsed strictly. A refused body decides nothing.
func TestDecideBodiesAreStrict(t *testing.T) {
	o := open(t)
	id := o.hold(t, "ops", "ann", "/a")
	path := "/api/approvals/" + string(id) + "/approve"
	tests := map[string]struct {
		body, contentType string
		status            int
		kind              string
	}{
		"unknown member":   {`{"reason":"x","approver":"bob"}`, "application/json", 400, "bad_request"},
		"another case":     {`{"Reason":"x"}`, "application/json", 400, "bad_request"},
		"duplicate member": {`{"reason":"x","reason":"y"}`, "application/json", 400, "bad_request"},
		"not an object":    {`"x"`, "application/json", 400, "bad_request"},
		"not JSON":         {`reason=x`, "application/json", 400, "bad_request"},
		"two values":       {`{} {}`, "application/json", 400, "bad_request"},
		"a form":           {`{"reason":"x"}`, "text/plain", 415, "wrong_type"},
		"no type":          {`{"reason":"x"}`, "", 415, "wrong_type"},
		"too large":        {`{"reason":"` + strings.Repeat("x", 17<<10) + `"}`, "application/json", 413, "too_large"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := o.do(t, "POST", path, tt.body, func(r *http.Request) { r.Header.Set("Content-Type", tt.contentType) })
			r.mustRefuse(t, tt.status, tt.kind)
		})
	}
	for _, request := range []string{"GET " + path, "PUT " + path, "POST /api/approvals", "POST /api/approvals/" + string(id) + "/maybe", "GET /"} {
		method, path, _ := strings.Cut(request, " ")
		o.do(t, method, path, "", nil).mustRefuse(t, http.StatusNotFound, "not_found")
	}
	if got, err := o.service.Viewer().Show(t.Context(), id); err != nil || got.State != task.InputRequired {
		t.Errorf("state = %s, %v", got.State, err)
	}
}

func TestEvents(t *testing.T) {
	o := open(t)
	id := o.hold(t, "ops", "ann", "/a")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url+"/api/approvals/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type = %s", got)
	}
	lines := bufio.NewScanner(answer.Body)
	comments := 0
	next := func(name string) (a review.Approval) {
		t.Helper()
		for lines.Scan() {
			line := lines.Text()
			if strings.HasPrefix(line, ":") {
				comments++
			}
			if event, ok := strings.CutPrefix(line, "event: "); ok {
				if event != name || !lines.Scan() {
					t.Fatalf("event %s; want %s", event, name)
				}
				data := strings.TrimPrefix(lines.Text(), "data: ")
				if err := json.Unmarshal([]byte(data), &a); err != nil {
					t.Fatal(err)
				}
				readDescription(t).valid(t, "#/components/schemas/Approval", data)
				return a
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return a
	}
	if a := next("pending"); a.ID != id {
		t.Errorf("first event is of %s; want %s", a.ID, id)
	}
	for comments < 3 { // comments keep the stream alive
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		if strings.HasPrefix(lines.Text(), ":") {
			comments++
		}
	}
	o.do(t, "POST", "/api/approvals/"+string(id)+"/reject", "", nil)
	if a := next("settled"); a.ID != id || a.State != task.Rejected {
		t.Errorf("settled: %+v", a)
	}
	if err := o.service.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // the stream ends with the service
	}
	if lines.Err() != nil {
		t.Error(lines.Err())
	}
}

// Internal errors are hidden from clients, but a shutdown is reported.
func TestInternalErrorsAreHidden(t *testing.T) {
	o := open(t)
	o.store.fails.Store(true)
	r := o.do(t, "GET", "/api/approvals", "", nil)
	r.mustRefuse(t, http.StatusInternalServerError, "internal_error")
	if strings.Contains(r.body, "hunter2") {
		t.Errorf("internal error in the answer: %s", r.body)
	}
	o.store.fails.Store(false)
	o.store.Close()
	r = o.do(t, "GET", "/api/approvals", "", nil)
	r.mustRefuse(t, http.StatusServiceUnavailable, "shutting_down")
	if r.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// A failingStore fails to list, or to change anything, on request.
type failingStore struct {
	gatestore.Store

	fails    atomic.Bool
	readOnly atomic.Bool

	noRecords atomic.Bool
}

func (s *failingStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if s.readOnly.Load() && len(notes) > 0 {
		return errors.New("no space for notes in /var/hunter2")
	}
	return s.Store.Swap(ctx, t, notes...)
}

func (s *failingStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	if s.fails.Load() {
		return task.Page{}, errors.New("dial db with password hunter2")
	}
	return s.Store.List(ctx, q)
}
