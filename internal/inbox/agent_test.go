package inbox_test

import (
	"net/url"
	"regexp"
	"testing"
	"time"
)

// TestAgentPresenceShown checks that the page shows whether the agent still waits, and the list that it does
// not. A call that is approved after the agent left runs when the agent asks again. The
// approver need not reload the page when the agent leaves.
func TestAgentPresenceShown(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{})
	page := alice.get("/approvals/" + string(id))
	mustHave(t, page, "Agent is waiting")
	mustLack(t, alice.get("/"), "Agent ")
	digest := regexp.MustCompile(`name="shown" value="([^"]*)"`).FindStringSubmatch(page)[1]
	o.pass(12 * time.Minute)
	mustHave(t, alice.get("/"), "Agent gone for ", ">12 min</time>")
	mustHave(t, alice.get("/approvals/"+string(id)), "Agent gone for ", ">12 min</time>", "If it is approved, it runs when the agent asks again.")
	_, page = alice.decideSeeing("/approvals/"+string(id), id, "approve", url.Values{"shown": {digest}})
	mustHave(t, page, "Approved by alice", "It will run when the agent asks again, until ")
	mustLack(t, page, "If it is approved")
}
