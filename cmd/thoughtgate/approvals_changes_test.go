package main

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// On the command line, an admin can list and accept changes of tools. An approver sees them,
// also for one call, but cannot accept them.
func TestChangedToolsOnTheCommandLine(t *testing.T) {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	files, tools := toolhistory.Source{Upstream: "files"}, toolhistory.Store{Records: store}
	if _, err := tools.Observe(t.Context(), files, map[string]toolhistory.Definition{"wipe": {Shape: "a", Hints: "----"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := tools.RecordChange(t.Context(), files, "wipe", toolhistory.Definition{Shape: "b", Hints: "----"}, task.Note{At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	changes, err := tools.Changes(t.Context(), 10)
	if err != nil || len(changes) != 1 {
		t.Fatal(changes, err)
	}
	desk, err := approval.New(approval.Config{
		Store: store, Judge: func(policy.Call) policy.Verdict { return policy.Verdict{Action: policy.Deny} },
		Workflow: func(string) (approval.Workflow, bool) { return approval.Workflow{Timeout: time.Hour}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	held, _, err := desk.Hold(t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files", Verdict: policy.Verdict{Action: policy.Approve, Workflow: "default"},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wipe"}}`), Tool: approval.Tool{Change: &changes[0]},
	})
	if err != nil {
		t.Fatal(err)
	}
	auth, err := operator.New(operator.Config{
		Tokens: []operator.Token{
			{Hash: operator.HashOf("alice's own long token"), Name: "alice", Role: operator.Approver},
			{Hash: operator.HashOf("ada's own long token"), Name: "ada", Role: operator.Admin},
		},
		Records: memstore.New(memstore.Options{}), Ring: keyring.Ephemeral(), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{Approvals: desk, Viewer: desk.Viewer(), Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	t.Setenv(urlVariable, server.URL)
	run := func(who string, args ...string) (string, error) {
		t.Setenv(tokenVariable, who+"'s own long token")
		var out strings.Builder
		cmd := newApprovals()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}

	short := changes[0].ID[:12]
	steps := []struct {
		who           string
		args          []string
		out, problems string // patterns
	}{
		{"alice", []string{"show", string(held.ID)}, `caution +the tool has changed: its title or schema is another one`, ""},
		{"alice", []string{"changes"}, `^` + changes[0].ID + ` +files +wipe +\S+ ago +its title or schema is another one`, ""},
		{"alice", []string{"changes", "--json"}, changes[0].ID, ""},
		{"alice", []string{"accept", short}, "", "needs the role admin, and yours is approver"},
		{"ada", []string{"accept", "000000000000"}, "", `no changed tool "000000000000"`},
		{"ada", []string{"accept", short, "--reason", "new release"}, "accepted the tool wipe of files: its title or schema is another one", ""},
		{"ada", []string{"changes"}, `^No tool has changed\.$`, ""},
	}
	for _, step := range steps {
		out, err := run(step.who, step.args...)
		if step.problems != "" {
			if err == nil || !regexp.MustCompile(step.problems).MatchString(err.Error()) {
				t.Errorf("%s, %q: %v", step.who, step.args, err)
			}
		} else if err != nil || !regexp.MustCompile(`(?m)`+step.out).MatchString(out) {
			t.Errorf("%s, %q: %v, and\n%s", step.who, step.args, err, out)
		}
	}
	differs := toolhistory.UnpinnedChange{Digest: "v2-a", What: "it is not in the lock file", Diff: "+  \"name\": \"wipe\"\n+  \u001b[2J"}
	if _, err := tools.RecordUnpinned(t.Context(), files, "wipe", differs, task.Note{At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if out, err := run("ada", "changes"); err != nil || !strings.Contains(out, "\n+  \"name\": \"wipe\"\n+  \\u001b[2J\n") {
		t.Errorf("%v, and\n%s", err, out)
	}
}
