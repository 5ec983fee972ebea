package review

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// An approver may view a call on one replica and decide on another with another version, so the
// digest of the view must stay the same.
func TestShownDigestIsStable(t *testing.T) {
	yes, at := true, time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	var a Approval
	a.ID, a.State, a.Tool, a.Method, a.Upstream, a.Name = "tg_1", task.InputRequired, "delete", "tools/call", "files", "delete"
	a.Arguments, a.ArgumentsTruncated, a.AlsoSent, a.UnreadBytes = jsontext.Value(`{"path":"/a"}`), true, jsontext.Value(`{"_meta":{}}`), 7
	a.Principal, a.Anonymous, a.Client = "ann", true, "agent 1"
	a.Workflow, a.Reason, a.Description = "ops", "rules[1]", "Deletes a file."
	a.HeldBy = &HeldBy{Label: "rules[1]", Match: "delete_*", Policies: []string{"p"}, Reasons: []string{"s"}}
	a.Hints = &Hints{Title: "Delete", Destructive: &yes}
	a.ClientReason = &Untrusted{Text: "trust me", Untrusted: true}
	a.Digest, a.ShownDigest, a.ToolDigest, a.Policy = task.Digest{1}, "x", "d1", "s1"
	a.CreatedAt, a.ExpiresAt, a.ValidUntil, a.Quorum = at, at.Add(time.Hour), at.Add(time.Minute), 2
	const want = "c8223338e1bdc7c6e233594bfb42524275871e9a7c94cfbf815c2d2eb3396f1f"
	if got := shownDigest(a); got != want {
		t.Errorf("digest = %s; want %s", got, want)
	}
}
