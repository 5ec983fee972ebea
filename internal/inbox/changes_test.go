package inbox_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// TestOnlyAdminAcceptsChangedTool checks that the page of a call reports a changed tool, that
// only an admin can accept the change, and that the journal records the admin's name.
func TestOnlyAdminAcceptsChangedTool(t *testing.T) {
	o := open(t)
	files, before, after := toolhistory.Source{Upstream: "files"}, toolhistory.Definition{Shape: "a", Hints: "----"}, toolhistory.Definition{Shape: "a", Hints: "tf--"}
	const tool = "wipe<b>\u202e"
	tools := toolhistory.Store{Records: o.store}
	if _, err := tools.Observe(t.Context(), files, map[string]toolhistory.Definition{tool: before}); err != nil {
		t.Fatal(err)
	}
	if _, err := tools.RecordChange(t.Context(), files, tool, after, task.Note{At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	changes, err := tools.Changes(t.Context(), 10)
	if err != nil || len(changes) != 1 {
		t.Fatal(changes, err)
	}
	call := "/approvals/" + string(o.hold(t, held{tool: tool, change: &changes[0]}))
	alice, ada := o.signIn(t, "alice"), o.signIn(t, "ada")
	mustHave(t, alice.get(call), "The tool has changed", "its server now says that it only reads", "only this call runs")
	mustLack(t, alice.get(call), `href="/changes">Accept`)
	mustHave(t, ada.get(call), `href="/changes">Accept`)

	accept := "/changes/" + changes[0].ID + "/accept"
	mustHave(t, alice.get("/changes"), "wipe&lt;b&gt;", `\u202e`, "its server now says that it only reads")
	mustLack(t, alice.get("/changes"), accept, "<b>", "\u202e")
	if status, _ := alice.send(call, accept, url.Values{}); status != http.StatusForbidden {
		t.Errorf("an approver accepts a change: status %d, want 403", status)
	}
	if status, _ := ada.post(accept, url.Values{}); status != http.StatusForbidden {
		t.Errorf("a form of another site accepts a change: status %d, want 403", status)
	}
	status, page := ada.send("/changes", accept, url.Values{"reason": {"new <release>"}})
	if status != http.StatusOK {
		t.Fatalf("accept: %d\n%s", status, page)
	}
	mustHave(t, page, "The changed tool was accepted", "No changed tools.")
	if status, page = ada.send(call, accept, url.Values{}); status != http.StatusNotFound {
		t.Errorf("accept again: status %d, want 404", status)
	}
	mustHave(t, page, "This change is no longer pending")
	journal, err := o.store.Entries(t.Context(), auditlog.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for _, e := range journal {
		if e.Step == "tool_accepted" && e.Approver == "ada" && e.Reason == "new <release>" {
			accepted++
		}
	}
	if accepted != 1 {
		t.Errorf("the journal has %d entries for the accepted change, want 1: %+v", accepted, journal)
	}
}

// TestDifferenceFromLockFileIsShown checks that the page of a call and the list of changed tools
// show how a tool differs from the lock file, and that an accepted change is gone.
func TestDifferenceFromLockFileIsShown(t *testing.T) {
	o := open(t)
	files, tools := toolhistory.Source{Upstream: "files"}, toolhistory.Store{Records: o.store}
	if _, err := tools.Observe(t.Context(), files, map[string]toolhistory.Definition{"read": {Shape: "a", Hints: "----"}}); err != nil {
		t.Fatal(err)
	}
	change := toolhistory.UnpinnedChange{Digest: "v2-a", What: "differs from the lock file in description", Diff: "-  <b>old</b>\n+  re\u0430d \u202e"}
	if _, err := tools.RecordUnpinned(t.Context(), files, "read", change, task.Note{At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	changes, err := tools.Changes(t.Context(), 10)
	if err != nil || len(changes) != 1 {
		t.Fatal(changes, err)
	}
	call := "/approvals/" + string(o.hold(t, held{tool: "read", change: &changes[0]}))
	ada := o.signIn(t, "ada")
	for _, path := range []string{call, "/changes"} {
		mustHave(t, ada.get(path), "differs from the lock file in description", "&lt;b&gt;old&lt;/b&gt;", `\u202e`)
		mustLack(t, ada.get(path), "\u202e", "<b>old", "by the earlier definition")
	}
	if status, _ := ada.send("/changes", "/changes/"+changes[0].ID+"/accept", url.Values{}); status != http.StatusOK {
		t.Fatalf("accept: %d", status)
	}
	mustHave(t, ada.get("/changes"), "No changed tools.")
}
