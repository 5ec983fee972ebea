package app_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// A deskRig has a gate at the desk of an earlier version, whose only secret could approve.
type deskRig struct {
	*testing.T

	client            *http.Client
	inbox             string
	program, person   string // the values of Authorization
	held, other, last string // calls
}

// earlier is the secret of the desk of the earlier version.
const earlier = "tgo_of_an_earlier_version_0123456789"

// request makes a request to the desk.
func (r *deskRig) request(method, path, body string, headers ...string) (int, string, http.Header) {
	r.Helper()
	return request(r.T, r.client, method, r.inbox+path, body, headers...)
}

// digest returns the digest of a call as it is shown.
func (r *deskRig) digest(id string) string {
	_, text, _ := r.request("GET", "/api/approvals/"+id+"?arguments=all", "", "Authorization", r.person)
	var shown review.Approval
	decode(r.T, text, &shown)
	return shown.ShownDigest
}

// state returns the state of a call.
func (r *deskRig) state(id string) string {
	_, text, _ := r.request("GET", "/api/approvals/"+id, "", "Authorization", r.program)
	var shown review.Approval
	decode(r.T, text, &shown)
	return string(shown.State)
}

// The token that programs find at a desk looks, rejects and revokes. It approves nothing, by the
// API or in a browser, not even if an earlier version made it, whose sessions end up with its
// role. The person's secret approves, without a step after the upgrade.
func TestDeskTokenOnlyRejects(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	state := t.TempDir()
	if err := os.Mkdir(localdesk.Dir(state), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(localdesk.Dir(state), "token"), []byte(earlier+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var ran atomic.Int64
	a, log, stop := startLogged(t, deskGate(state, "one", counting(t, &ran), "{grants: {longest: 1h, uses: 3}}"))
	found(t, state)
	inbox, err := localdesk.Find(state)
	if err != nil || inbox.Token != earlier || inbox.SignIn == earlier {
		t.Fatalf("the desk has %+v, %v", inbox, err)
	}
	r := &deskRig{T: t, inbox: inbox.URL, program: "Bearer " + inbox.Token, person: "Bearer " + inbox.SignIn, client: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for n, id := range []*string{&r.held, &r.other, &r.last} {
		*id = heldTask(t, a, fmt.Sprintf(`{"name":"hold_x","arguments":{"n":%d},"task":{}}`, n))
	}
	r.attackByAPI()
	r.attackByBrowser()
	if state := r.state(r.held); state != "input_required" || ran.Load() != 0 {
		t.Errorf("after the attacks the call is %s, and %d ran", state, ran.Load())
	}
	if lines := log.with(`"operator lacks the role for a request"`, `"WARN"`, `"by":"program"`, `"role":"rejecter"`, `"needs":"approver"`, r.held); len(lines) < 3 {
		t.Errorf("the log has %q", lines)
	}
	r.approve(a.LoginLink())
	r.checkJournal()
	eventually(t, "the approved call runs", func() bool { return ran.Load() == 1 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// attackByAPI tries everything that the token of programs must not do by the API, and rejects.
func (r *deskRig) attackByAPI() {
	r.Helper()
	approval := `"shownDigest":"` + r.digest(r.held) + `"`
	for _, attack := range []struct{ route, body, needs string }{
		{"POST /api/approvals/" + r.held + "/approve", "{" + approval + "}", "approver"},
		{"POST /api/approvals/" + r.held + "/approve", "{" + approval + `,"grant":{"seconds":60,"uses":1}}`, "approver"},
		{"POST /api/changes/" + strings.Repeat("0", 64) + "/accept", "{}", "admin"},
		{"GET /api/audit", "", "admin"},
		{"GET /api/audit/ends", "", "admin"},
	} {
		method, path, _ := strings.Cut(attack.route, " ")
		status, answer, _ := r.request(method, path, attack.body, "Authorization", r.program)
		if status != http.StatusForbidden || !strings.Contains(answer, `"type":"forbidden"`) || !strings.Contains(answer, "this needs the role "+attack.needs+", and yours is rejecter") {
			r.Errorf("%s: %d %s", attack.route, status, answer)
		}
	}
	if status, answer, _ := r.request("GET", "/api/approvals", "", "Authorization", r.program); status != http.StatusOK || !strings.Contains(answer, r.held) {
		r.Errorf("list: %d %s", status, answer)
	}
	if status, answer, _ := r.request("POST", "/api/approvals/"+r.other+"/reject", `{"reason":"a watchdog"}`, "Authorization", r.program); status != http.StatusOK || r.state(r.other) != "rejected" {
		r.Errorf("reject: %d %s", status, answer)
	}
	if status, answer, _ := r.request("POST", "/api/grants/none/revoke", "", "Authorization", r.program); status != http.StatusNotFound {
		r.Errorf("revoke a standing approval that does not exist: %d %s", status, answer)
	}
}

var formToken = regexp.MustCompile(`name="` + operator.FormField + `" value="([^"]+)"`)

// attackByBrowser approves in a session that began with the token of programs, and rejects.
func (r *deskRig) attackByBrowser() {
	r.Helper()
	if status, page, header := r.request("GET", "/login?token="+earlier, ""); status != http.StatusUnauthorized || header.Get("Set-Cookie") != "" || !strings.Contains(page, "thoughtgate desk link") {
		r.Errorf("a link with the token of programs: %d %s", status, page)
	}
	form := []string{"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}
	_, _, header := r.request("POST", "/login", "token="+earlier, form...)
	cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
	_, page, _ := r.request("GET", "/approvals/"+r.held, "", "Cookie", cookie)
	found := formToken.FindStringSubmatch(page)
	if found == nil || strings.Contains(page, `id="approve"`) || !strings.Contains(page, "lets you reject this call, but not approve it") {
		r.Fatalf("the page of the call: %s", page)
	}
	send := func(path, id string) (int, string) {
		status, page, _ := r.request("POST", path, url.Values{"csrf": {found[1]}, "shown": {r.digest(r.held)}, "read": {"all"}, "id": {id}}.Encode(), append(form, "Cookie", cookie)...)
		return status, page
	}
	if status, page := send("/approvals/"+r.held+"/approve", ""); status != http.StatusForbidden || !strings.Contains(page, "this needs the role approver, and yours is rejecter") {
		r.Errorf("approve in the browser: %d %s", status, page)
	}
	if status, page := send("/changes/"+strings.Repeat("0", 64)+"/accept", ""); status != http.StatusForbidden {
		r.Errorf("accept in the browser: %d %s", status, page)
	}
	if status, page := send("/approvals/reject", r.last); status != http.StatusOK || r.state(r.last) != "rejected" {
		r.Errorf("reject in the browser: %d %s", status, page)
	}
}

// approve approves as the person.
func (r *deskRig) approve(link string) {
	r.Helper()
	if status, _, header := request(r.T, r.client, "GET", link, ""); status != http.StatusSeeOther || header.Get("Set-Cookie") == "" {
		r.Errorf("the person's link: %d", status)
	}
	if status, answer, _ := r.request("POST", "/api/approvals/"+r.held+"/approve", `{"shownDigest":"`+r.digest(r.held)+`"}`, "Authorization", r.person); status != http.StatusOK {
		r.Errorf("the person approves: %d %s", status, answer)
	}
}

// checkJournal checks that only the person has approved.
func (r *deskRig) checkJournal() {
	r.Helper()
	status, journal, _ := r.request("GET", "/api/audit", "", "Authorization", r.person)
	if status != http.StatusOK {
		r.Fatalf("audit: %d %s", status, journal)
	}
	var approved, rejected int
	for line := range strings.Lines(journal) {
		byProgram := strings.Contains(line, `"approver":"program"`)
		switch {
		case strings.Contains(line, `"outcome":"approve"`):
			approved++
			if byProgram {
				r.Errorf("recorded: %s", line)
			}
		case strings.Contains(line, `"outcome":"reject"`) && byProgram:
			rejected++
		}
	}
	if approved != 1 || rejected != 2 {
		r.Errorf("%d approvals, and %d rejections by the program; want 1 and 2: %s", approved, rejected, journal)
	}
}
