package inbox_test

import (
	"net/url"
	"regexp"
	"testing"
	"time"
)

// TestAgentPresenceShown checks that the list and the page show whether the agent still
// waits. A call that is approved after the agent left runs when the agent asks again. The
// approver need not reload the page when the agent leaves.
func TestAgentPresenceShown(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{})
	page := alice.get("/approvals/" + string(id))
	for _, shown := range []string{page, alice.get("/")} {
		mustHave(t, shown, "Agent is waiting")
	}
	digest := regexp.MustCompile(`name="shown" value="([^"]*)"`).FindStringSubmatch(page)[1]
	o.pass(12 * time.Minute)
	mustHave(t, alice.get("/"), "Agent gone for ", ">12 min</time>")
	mustHave(t, alice.get("/approvals/"+string(id)), "Agent gone for ", ">12 min</time>", "If it is approved, it runs when the agent asks again.")
	_, page = alice.decideSeeing("/approvals/"+string(id), id, "approve", url.Values{"shown": {digest}})
	mustHave(t, page, "Approved by alice", "It will run when the agent asks again, until ")
	mustLack(t, page, "If it is approved")
}
