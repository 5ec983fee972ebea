package inbox_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// pastLink returns the link of the first row of a page of the history.
func pastLink(t *testing.T, page string) string {
	t.Helper()
	found := regexp.MustCompile(`<a class="open" href="([^"]+)"`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no row:\n%s", read(page))
	}
	return html.UnescapeString(found[1])
}

// The history answers which user was deleted, who allowed it, and when, also after the task was
// deleted. The link of the row leads to the page of the call, and then to what was recorded of it.
func TestHistoryTellsWhoDeletedAUser(t *testing.T) {
	o := open(t)
	alice, vera := o.signIn(t, "alice"), o.signIn(t, "vera")
	id := o.hold(t, held{tool: "delete_user", args: `{"user":4711,"password":"hunter2"}`, by: "ops-bot"})
	other := o.hold(t, held{tool: "delete_user", args: `{"user":4712}`})
	alice.decide(id, "reject", "still a customer")
	alice.decide(other, "reject", "")
	at := o.now().UTC()

	row := []string{`<span class="key">user</span>`, ">4711<", "ops-bot", "Rejected by alice", "still a customer", at.Format("2 Jan 2006")}
	page := vera.get("/history?q=4711")
	mustHave(t, page, row...)
	mustLack(t, page, "4712", "hunter2")
	link := pastLink(t, page)
	mustHave(t, vera.get(link), `data-case="`+string(id)+`"`)

	o.forget(t, id)
	page = vera.get("/history?q=4711")
	mustHave(t, page, row...)
	if again := pastLink(t, page); again != link {
		t.Errorf("the link is %s; want %s as before", again, link)
	}
	for _, path := range []string{link, "/approvals/" + string(id)} {
		page = vera.get(path)
		mustHave(t, page, "4711", "[redacted]", "Rejected by alice", "still a customer", "What happened", "The call itself was deleted", "Asked for by")
		mustLack(t, page, "hunter2")
	}
	for query, want := range map[string]bool{
		"q=hunter2": false, "q=DELETE_user+4711+alice": true, "q=4711+bob": false, "approver=ALI": true, "approver=bob": false,
		"tool=user": true, "tool=file": false, "requester=ops": true, "outcome=rejected": true, "outcome=approved": false, "outcome=unknown": true,
		"from=" + at.AddDate(0, 0, -1).Format(time.DateOnly): true, "from=" + at.AddDate(0, 0, 2).Format(time.DateOnly): false,
		"to=" + at.Format(time.DateOnly): true, "to=" + at.AddDate(0, 0, -1).Format(time.DateOnly): false,
		"from=" + url.QueryEscape(at.Add(-time.Minute).Format(time.RFC3339)): true, "to=" + url.QueryEscape(at.Add(-time.Minute).Format(time.RFC3339)): false, "from=x&to=31.12.": true,
	} {
		if got := strings.Contains(vera.get("/history?"+query), ">4711<"); got != want {
			t.Errorf("%s: the call is found: %v; want %v", query, got, want)
		}
	}
}

// Arguments that are too long are recorded in part, and the page says so.
func TestHistoryOfLongArguments(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{args: `{"first":4711,"text":"` + strings.Repeat("<b>\\u202e ", 2000) + `","last":"end"}`})
	alice.decide(id, "reject", "")
	page := alice.get("/history?q=4711")
	mustHave(t, page, ">4711<")
	mustLack(t, page, "<b>", "\u202e")
	o.forget(t, id)
	page = alice.get(pastLink(t, page))
	mustHave(t, page, "4711", "Only this first part was recorded.", "&lt;b&gt;")
	mustLack(t, page, "<b>", "\u202e", "&#34;end")
}

// What was approved and has not ended is in the history too, once.
func TestHistoryHasCallsThatHaveNotEnded(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{by: "waiting-bot"})
	alice.decide(id, "approve", "")
	for query, want := range map[string]int{
		"": 1, "?outcome=approved": 1, "?outcome=rejected": 0, "?q=waiting-bot": 1, "?approver=alice": 1, "?approver=bob": 0,
		"?from=" + o.now().UTC().AddDate(0, 0, 2).Format(time.DateOnly): 0,
	} {
		if got := strings.Count(alice.get("/history"+query), `data-id="`+string(id)+`"`); got != want {
			t.Errorf("/history%s has the call %d times; want %d", query, got, want)
		}
	}
	o.pass(2 * time.Hour)
	if _, err := o.approvals.Viewer().Show(t.Context(), id); err != nil { // it expires
		t.Fatal(err)
	}
	page := alice.get("/history")
	if got := strings.Count(page, `data-id="`+string(id)+`"`); got != 1 {
		t.Errorf("after it has expired, the history has the call %d times; want 1", got)
	}
	mustHave(t, page, "It was approved.")
}

// Calls that were not held are for administrators, who find them by a filter.
func TestHistoryOfOtherCalls(t *testing.T) {
	o := open(t)
	entry := callrecord.Entry{
		Time: o.now(), Event: callrecord.Judged, Upstream: "crm", Method: "tools/call", Name: "read_<b>\u202e", Principal: "ann\u202e", Action: policy.Forward, Rule: "rule reading", Outcome: callrecord.Success,
		Took: 3 * time.Millisecond,
	}
	o.log.Add(entry)
	entry.Name, entry.Action, entry.Rule, entry.Outcome = "wipe", policy.Deny, callrecord.ByDefault, callrecord.Denied
	o.log.Add(entry)
	ada, vera, alice := o.signIn(t, "ada"), o.signIn(t, "vera"), o.signIn(t, "alice")
	mustHave(t, ada.get("/history"), "No decisions yet.", "Forwarded, not held")
	page := ada.get("/history?outcome=forwarded")
	mustHave(t, page, "read_&lt;b&gt;", "U+202E", "Forwarded by rule reading.")
	mustLack(t, page, "<b>", "\u202e", "wipe")
	mustHave(t, ada.get("/history?outcome=denied"), "wipe", "Denied, because no rule matched.")
	link := pastLink(t, page)
	page = ada.get(link)
	mustHave(t, page, "read_&lt;b&gt;", "None were recorded.", "rule reading", "3 ms")
	mustLack(t, page, "<b>", "\u202e", "The call itself was deleted")

	for _, other := range []*browser{vera, alice} {
		for _, path := range []string{"/history", "/history?outcome=forwarded", "/history?outcome=denied"} {
			mustLack(t, other.get(path), "read_", "wipe", "Forwarded, not held")
		}
		if status, page, _ := other.do(http.MethodGet, link, ""); status != http.StatusForbidden || strings.Contains(page, "read_") {
			t.Errorf("%s answers %d", link, status)
		}
		_, place, _ := strings.Cut(link, "?")
		if status, page, _ := other.do(http.MethodGet, "/approvals/?"+place, ""); status == http.StatusOK || strings.Contains(page, "read_") {
			t.Errorf("/approvals/?%s answers %d", place, status)
		}
		if status, page, _ := other.do(http.MethodGet, "/approvals/tg_unknown?"+place, ""); status != http.StatusNotFound || strings.Contains(page, "read_") {
			t.Errorf("/approvals/tg_unknown?%s answers %d", place, status)
		}
	}
	for _, bad := range []string{"", "x", "20260101T000000.000000Z-a-1.0", "../x.1"} {
		if status, _, _ := ada.do(http.MethodGet, "/history/call?entry="+url.QueryEscape(bad), ""); status != http.StatusNotFound {
			t.Errorf("entry %q: %d; want 404", bad, status)
		}
	}
}

// The history of a gate that records nothing says so, and what can be done.
func TestHistoryWithoutRecord(t *testing.T) {
	o := open(t)
	o.log.Configure(callrecord.Settings{Off: true})
	mustHave(t, o.signIn(t, "vera").get("/history"), "Calls are not recorded", "record.max_size")
}

// A page of the history reads a part of the record. The next page goes on, also if nothing was found.
func TestHistoryLooksFurtherBack(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	first := o.hold(t, held{args: `{"user":4711}`})
	if _, err := decide(t.Context(), o.approvals, first, approval.Approver{Name: "bob"}, approval.Reject, ""); err != nil {
		t.Fatal(err)
	}
	for n := range 510 {
		o.log.Add(callrecord.Entry{Time: o.now(), Event: callrecord.Judged, Upstream: "crm", Method: "tools/call", Name: fmt.Sprint("tool", n), Action: policy.Forward})
		o.log.Flush(t.Context())
	}
	page := alice.get("/history?q=4711")
	mustHave(t, page, "No matching calls so far.", "Look further back")
	next := regexp.MustCompile(`href="(/history\?cursor=[^"]+)"`).FindStringSubmatch(page)
	if next == nil {
		t.Fatal("there is no next page")
	}
	page = alice.get(html.UnescapeString(next[1]))
	mustHave(t, page, ">4711<", `data-id="`+string(first)+`"`)
	mustLack(t, page, "Look further back")
}
