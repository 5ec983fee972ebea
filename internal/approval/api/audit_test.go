package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

func asAdmin(r *http.Request) { r.Header.Set("Authorization", "Bearer "+adminSecret) }

// audited returns the steps on a page of the journal.
func (o *fixture) audited(t *testing.T, query string) (steps []string, next string) {
	t.Helper()
	r := o.do(t, "GET", "/api/audit"+query, "", asAdmin)
	if r.status != http.StatusOK || r.header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("answer = %d %s", r.status, r.body)
	}
	if strings.Contains(r.body, "hunter2") || strings.Contains(r.body, "/a") {
		t.Errorf("the journal has arguments: %s", r.body)
	}
	for e, err := range audit.Lines(strings.NewReader(r.body)) {
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, fmt.Sprint(e.Seq, " ", e.Step, " ", e.Requester))
	}
	return steps, r.header.Get("Audit-Next")
}

func TestAudit(t *testing.T) {
	o := open(t)
	first, second := o.hold(t, "ops", "ann", "/a"), o.hold(t, "two", "bea", "/a")
	o.do(t, "POST", "/api/approvals/"+string(first)+"/reject", `{"reason":"no"}`, nil).read(t, new(review.Approval))
	long := url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339Nano))
	for query, want := range map[string][]string{
		"":                          {"1 held ann", "2 asked ann", "3 held bea", "4 asked bea", "5 decided ann"},
		"?after=3":                  {"4 asked bea", "5 decided ann"},
		"?limit=2":                  {"1 held ann", "2 asked ann"},
		"?task=" + string(second):   {"3 held bea", "4 asked bea"},
		"?requester=ann&after=1":    {"2 asked ann", "5 decided ann"},
		"?requester=nobody":         nil,
		"?principal=ann&after=1":    {"2 asked ann", "5 decided ann"},
		"?approver=alice":           {"5 decided ann"},
		"?tool=delete_file&limit=1": {"1 held ann"},
		"?tool=other":               nil,
		"?since=" + long:            nil,
		"?limit=1&until=" + long:    {"1 held ann"},
	} {
		got, next := o.audited(t, query)
		if !slices.Equal(got, want) || (next != "") != strings.Contains(query, "limit=") {
			t.Errorf("%q: %q, next %q; want %q", query, got, next, want)
		}
	}
	o.do(t, "POST", "/api/approvals/"+string(second)+"/reject", "", func(r *http.Request) { r.Header.Set("User-Agent", approval.CommandLineUserAgent) }).read(t, new(review.Approval))
	entries := o.do(t, "GET", "/api/audit", "", asAdmin).body
	for _, via := range []string{`"via":{"kind":"api","login":"token"}`, `"via":{"kind":"command_line","login":"token"}`} {
		if strings.Count(entries, via) != 1 {
			t.Errorf("no entry has %s: %s", via, entries)
		}
	}
	if _, next := o.audited(t, "?limit=2"); next != "2" {
		t.Errorf("next = %q", next)
	}
	for _, bad := range []string{"after=-1", "after=x", "limit=0", "limit=1001", "limit=x", "limit=-1", "since=yesterday", "until=1", "requester=ann&principal=bea"} {
		o.do(t, "GET", "/api/audit?"+bad, "", asAdmin).mustRefuse(t, http.StatusBadRequest, "bad_request")
	}

	var ends auditlog.Ends
	o.do(t, "GET", "/api/audit/ends", "", asAdmin).read(t, &ends)
	if want, err := o.store.Ends(t.Context()); err != nil || ends != want || ends.Head.Seq != 6 {
		t.Errorf("ends = %v; want %v, %v", ends, want, err)
	}
	for _, path := range []string{"/api/audit", "/api/audit/ends"} { // for an approver without the role admin
		o.do(t, "GET", path, "", nil).mustRefuse(t, http.StatusForbidden, "forbidden")
	}
	o.store.Close()
	for _, path := range []string{"/api/audit", "/api/audit/ends"} {
		o.do(t, "GET", path, "", asAdmin).mustRefuse(t, http.StatusServiceUnavailable, "shutting_down")
	}
}

// A decision that cannot be recorded is not made.
func TestUnrecordedDecision(t *testing.T) {
	o := open(t)
	id := o.hold(t, "ops", "ann", "/a")
	var a review.Approval
	o.do(t, "GET", "/api/approvals/"+string(id), "", nil).read(t, &a)
	body := `{"shownDigest":"` + a.ShownDigest + `"}`
	o.store.readOnly.Store(true)
	for _, what := range []string{"approve", "reject"} {
		r := o.do(t, "POST", "/api/approvals/"+string(id)+"/"+what, body, nil)
		r.mustRefuse(t, http.StatusInternalServerError, "internal_error")
		if strings.Contains(r.body, "hunter2") {
			t.Errorf("answer %s", r.body)
		}
	}
	if err := json.Unmarshal([]byte(o.do(t, "GET", "/api/approvals/"+string(id), "", nil).body), &a); err != nil || a.State != task.InputRequired {
		t.Errorf("state %s, %v", a.State, err)
	}
	o.store.readOnly.Store(false)
	o.do(t, "POST", "/api/approvals/"+string(id)+"/approve", body, nil).read(t, &a)
	if got, _ := o.audited(t, "?approver=alice"); len(got) != 1 {
		t.Errorf("recorded: %q", got)
	}
}
