package inbox_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// again is a call whose workflow allows standing approvals.
var again = held{workflow: "again", args: `{"path":"/a","<b>n":1,"password":"hunter2"}`, toolDigest: "v2-1"}

// free returns the form value for the name of an argument.
func free(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// allowing returns the form of an approval that allows five more calls, with any value for
// the named arguments.
func allowing(names ...string) url.Values {
	form := url.Values{"grant_uses": {"5"}, "grant_for": {"600"}}
	for _, name := range names {
		form.Add("grant_free", free(name))
	}
	return form
}

var grantLink = regexp.MustCompile(`/grants/(gr_[a-z0-9]+)`)

// TestGrantLifecycle gives a standing approval without a script, shows it, and revokes it.
func TestGrantLifecycle(t *testing.T) {
	o := open(t)
	alice, vera := o.signIn(t, "alice"), o.signIn(t, "vera")
	id := o.hold(t, again)
	page := alice.get("/approvals/" + string(id))
	mustHave(t, page, "Allow more calls like this one", "None: ask each time", "up to 10 more calls", "within 1 hour", free("path"), "&lt;b&gt;n")
	mustLack(t, page, free("password"), "<b>n")
	mustLack(t, vera.get("/approvals/"+string(id)), "Allow more calls")

	status, page := alice.decideSeeing("/approvals/"+string(id), id, "approve", allowing("path"))
	link := grantLink.FindStringSubmatch(page)
	if status != http.StatusOK || link == nil || o.state(t, id) != task.Approved {
		t.Fatalf("approve: %d\n%s", status, page)
	}
	grant := "/grants/" + link[1]
	mustHave(t, page, "Standing approval given", "Used 0 of 5 times.")
	mustHave(t, vera.get("/grants"), "delete_file", "ann", "Any value for", "<strong>path</strong>", "Given by", "alice", "[redacted]", "&lt;b&gt;n")
	mustLack(t, vera.get("/grants"), "hunter2", "Revoke", "<b>n")

	covered := o.hold(t, held{workflow: "again", args: strings.Replace(again.args, "/a", "/b", 1), toolDigest: "v2-1"})
	if o.state(t, covered) != task.Approved {
		t.Fatalf("the call that the standing approval covers is %s, want approved", o.state(t, covered))
	}
	mustHave(t, alice.get("/approvals/"+string(covered)), "Nobody reviewed this call.", "Allowed by the standing approval of alice", "Approved by a standing approval, given by")
	mustHave(t, alice.get(grant), string(covered), "Used 1 of 5 times.")

	if status, _ := vera.post(grant+"/revoke", url.Values{}); status != http.StatusForbidden {
		t.Errorf("a viewer revokes: status %d, want 403", status)
	}
	if status, _ := alice.post(grant+"/revoke", url.Values{}); status != http.StatusForbidden {
		t.Errorf("a form of another site revokes: status %d, want 403", status)
	}
	status, page = alice.send("/grants", grant+"/revoke", url.Values{"reason": {"<i>enough"}})
	if status != http.StatusOK {
		t.Fatalf("revoke: %d\n%s", status, page)
	}
	mustHave(t, page, "The standing approval was revoked", "Used 1 of 5 times.", "No standing approvals yet.")
	mustHave(t, alice.get("/grants?state=all"), "Revoked", "&lt;i&gt;enough")
	status, page = alice.send("/approvals/"+string(o.hold(t, again)), grant+"/revoke", url.Values{})
	if status != http.StatusConflict {
		t.Errorf("revoke again: status %d, want 409", status)
	}
	mustHave(t, page, "It was revoked before")
}

// TestInvalidGrantDecidesNothing checks that a form without a choice gives no standing
// approval, and that a choice beyond the limits of the workflow decides nothing.
func TestInvalidGrantDecidesNothing(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, again)
	for name, form := range map[string]url.Values{
		"too long":           {"grant_uses": {"5"}, "grant_for": {"999999"}},
		"too often":          {"grant_uses": {"500"}, "grant_for": {"600"}},
		"for no time":        {"grant_uses": {"5"}},
		"a redacted one":     allowing("password"),
		"one that is not":    allowing("force"),
		"the same one twice": allowing("path", "path"),
	} {
		status, page := alice.decideSeeing("/approvals/"+string(id), id, "approve", form)
		if status != http.StatusUnprocessableEntity || o.state(t, id) != task.InputRequired {
			t.Fatalf("%s: %d, and the call is %s\n%s", name, status, o.state(t, id), page)
		}
		mustHave(t, page, "Your approval was not recorded", "More calls like this one cannot be allowed")
	}
	plain := o.hold(t, held{toolDigest: "v2-1"})
	mustLack(t, alice.get("/approvals/"+string(plain)), "Allow more calls")
	if status, _ := alice.decideSeeing("/approvals/"+string(plain), plain, "approve", allowing()); status != http.StatusUnprocessableEntity {
		t.Errorf("a workflow without standing approvals: status %d, want 422", status)
	}
	if status, _ := alice.decideSeeing("/approvals/"+string(id), id, "approve", url.Values{"grant_uses": {""}, "grant_for": {"600"}}); status != http.StatusOK {
		t.Errorf("an approval without a standing approval: status %d, want 200", status)
	}
	if o.state(t, id) != task.Approved {
		t.Errorf("the call is %s, want approved", o.state(t, id))
	}
	mustHave(t, alice.get("/grants?state=all"), "No standing approvals yet.")
}

// TestGrantStoreFailureReported checks the page if the store cannot keep the standing
// approval: it says that the call is approved, and that further calls are not.
func TestGrantStoreFailureReported(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, again)
	o.store.noRecords.Store(true)
	status, page := alice.decideSeeing("/approvals/"+string(id), id, "approve", allowing("path"))
	if status != http.StatusConflict || o.state(t, id) != task.Approved {
		t.Errorf("approve: status %d, and the call is %s", status, o.state(t, id))
	}
	mustHave(t, page, "Your approval was recorded, but more calls may not be allowed", "the standing approval was not made: the gate could not keep it.")
	mustLack(t, page, "Standing approval given", "not recorded")
	mustHave(t, alice.get("/grants?state=all"), "No standing approvals yet.")
}

// TestSecondApproverSeesGrant checks that the second approver sees the standing approval that
// the first has chosen.
func TestSecondApproverSeesGrant(t *testing.T) {
	o := open(t)
	alice, bob := o.signIn(t, "alice"), o.signIn(t, "bob")
	both := again
	both.workflow = "again-two"
	id := o.hold(t, both)
	if status, page := alice.decideSeeing("/approvals/"+string(id), id, "approve", allowing("path", "<b>n")); status != http.StatusOK {
		t.Fatalf("the first approval: status %d\n%s", status, page)
	}
	page := bob.get("/approvals/" + string(id))
	mustHave(t, page, "alice allows 5 more calls until", "Any value for: path, &lt;b&gt;n", "The narrowest choice counts")
	if status, page := bob.decideSeeing("/approvals/"+string(id), id, "approve", url.Values{"grant_uses": {"2"}, "grant_for": {"600"}}); status != http.StatusOK {
		t.Fatalf("the second approval: status %d\n%s", status, page)
	}
	page = bob.get("/grants")
	mustHave(t, page, "Used 0 of 2 times.", "alice, bob")
	mustLack(t, page, "Any value for")
}
