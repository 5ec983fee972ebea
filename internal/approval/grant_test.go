package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

const definition = "v2-0011"

// grantable are the limits of the workflows that allow grants in these tests.
var grantable = policy.Grants{Longest: time.Hour, Uses: 20}

// allowGrants lets approvers of a workflow give grants.
func (o *fixture) allowGrants(workflow string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.workflows[workflow]
	w.Grants = grantable
	o.workflows[workflow] = w
}

// toolCall returns a call by ann of a tool with a known definition.
func toolCall(arguments string) approval.Call {
	c := call("ann", "/a")
	c.Message = message("delete_file", arguments)
	c.Tool.Digest = definition
	return c
}

// terms returns the terms of a grant that begins now.
func terms(uses int, free ...string) *gatetask.GrantTerms {
	return &gatetask.GrantTerms{Until: time.Now().Add(30 * time.Minute), Uses: uses, GrantShape: gatetask.GrantShape{Free: free}}
}

// ruleWith approves a call and gives a grant.
func (o *fixture) ruleWith(t testing.TB, id task.ID, who approval.Approver, gives *gatetask.GrantTerms) (task.Task, error) {
	t.Helper()
	shown, err := o.views.ShowAll(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return o.Decide(t.Context(), id, who, approval.Ruling{Decision: approval.Approve, Shown: shown.ShownDigest, Gives: gives})
}

// grant holds c, has alice approve it with a grant, runs it, and returns the grant.
func (o *fixture) grant(t testing.TB, c approval.Call, gives *gatetask.GrantTerms) review.Grant {
	t.Helper()
	asked := o.hold(t, c)
	if _, err := o.ruleWith(t, asked.ID, alice, gives); err != nil {
		t.Fatal(err)
	}
	o.finish(t, asked)
	all, err := o.views.Grants(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(g review.Grant) bool { return g.From == asked.ID })
	if i < 0 {
		t.Fatal("no grant was stored")
	}
	return all[i]
}

// finish runs an approved task to its end and delivers the result to its owner.
func (o *fixture) finish(t testing.TB, asked task.Task) task.Task {
	t.Helper()
	done, err := o.Wait(t.Context(), mine(asked), o.upstream.send)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Delivered(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	return done
}

// A call that a grant covers runs without another approval, as often as the grant allows. The
// journal names the grant and its approver.
func TestGrantRunsCoveredCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall(`{"path":"/a","n":1}`), terms(2, "path"))
		for _, path := range []string{"/b", "/c"} {
			asked := o.hold(t, toolCall(fmt.Sprintf(`{"n":1,"path":%q}`, path)))
			mustState(t, asked, task.Approved)
			mustState(t, o.finish(t, asked), task.Completed)
			checkGrantNotes(t, o, asked.ID, g.ID)
		}
		mustState(t, o.hold(t, toolCall(`{"path":"/d","n":1}`)), task.InputRequired)
		if runs := o.upstream.entries(); len(runs) != 3 || !strings.Contains(runs[2], `"/c"`) {
			t.Errorf("ran %q", runs)
		}
		after, err := o.views.Grant(t.Context(), g.ID)
		if err != nil || after.State != review.GrantSpent || after.Used != 2 || after.Uses[0].Outcome != "completed" {
			t.Errorf("grant %+v, %v", after, err)
		}
		if string(after.Arguments) != `{"n":1}` || !slices.Equal(after.Free, []string{"path"}) {
			t.Errorf("arguments %s, free %q", after.Arguments, after.Free)
		}
		if n := o.count(approval.UsedGrant); n != 2 {
			t.Errorf("%d reported uses", n)
		}
	})
}

// checkGrantNotes checks the journal entries about a call that a grant approved.
func checkGrantNotes(t *testing.T, o *fixture, id task.ID, grant gatetask.GrantID) {
	t.Helper()
	history, err := o.views.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, e := range history {
		steps = append(steps, e.Step)
		if e.Step == string(approval.Decided) && (e.Grant != grant || e.Approver != "alice" || e.To != task.Approved || !strings.HasPrefix(e.Actor, "gate ")) {
			t.Errorf("journal entry of the decision: %+v", e.Note)
		}
	}
	if want := []string{"held", "decided", "rechecked", "started", "finished", "delivered"}; !slices.Equal(steps, want) {
		t.Errorf("journal %q, want %q", steps, want)
	}
}

// The journal has an entry about the grant itself.
func TestGrantIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall(`{"path":"/a","password":"hunter2"}`), terms(2, "path"))
		history, err := o.views.History(t.Context(), g.From)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(history, func(e auditlog.Entry) bool { return e.Step == string(approval.Granted) })
		if i < 0 || history[i].Grant != g.ID || history[i].Approver != "alice" || !strings.Contains(history[i].Outcome, "uses: 2, free arguments: 1") {
			t.Errorf("journal %+v", history)
		}
		kept, err := o.store.GetRecord(t.Context(), "grant/"+string(g.ID))
		if err != nil || strings.Contains(string(kept.Value), "hunter2") || !strings.Contains(string(g.Arguments), "redacted") {
			t.Errorf("stored %s, shown %s, %v", kept.Value, g.Arguments, err)
		}
		if _, err := o.Revoke(t.Context(), g.ID, bob, "enough"); err != nil {
			t.Fatal(err)
		}
		history, _ = o.views.History(t.Context(), g.From)
		if last := history[len(history)-1]; last.Step != string(approval.Revoked) || last.Grant != g.ID || last.Actor != "bob" || last.Reason != "enough" {
			t.Errorf("journal entry of the revocation: %+v", last.Note)
		}
		_, err = o.Revoke(t.Context(), g.ID, bob, "")
		mustBe(t, err, grantstore.ErrRevoked)
		_, err = o.Revoke(t.Context(), grantstore.NewID(grantstore.Scope{}), bob, "")
		mustBe(t, err, task.ErrNotFound)
	})
}

// A call that differs from the approved one in anything but a free argument is held. The test
// changes each part in turn.
func TestGrantCoversNothingElse(t *testing.T) {
	const given = `{"path":"/a","n":1,"deep":{"x":[1,"é"]}}`
	params := func(extra string) []byte {
		return []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_file","arguments":` + given + extra + `}}`)
	}
	change := func(f func(*approval.Call)) approval.Call {
		c := toolCall(given)
		f(&c)
		return c
	}
	args := func(old, replacement string) approval.Call {
		return toolCall(strings.Replace(given, old, replacement, 1))
	}
	for name, c := range map[string]approval.Call{
		"a pinned value":       args(`"n":1`, `"n":2`),
		"1.0 for 1":            args(`"n":1`, `"n":1.0`),
		"1e0 for 1":            args(`"n":1`, `"n":1e0`),
		"1 as a text":          args(`"n":1`, `"n":"1"`),
		"deep inside":          args(`[1,`, `[2,`),
		"a Unicode form":       args(`é`, "e\u0301"),
		"an argument more":     args(`{"path"`, `{"force":true,"path"`),
		"an argument less":     args(`,"n":1`, ``),
		"a case variant more":  args(`{"path"`, `{"Path":"/etc","path"`),
		"a renamed argument":   args(`"n"`, `"N"`),
		"a list for a text":    args(`"/a"`, `["/a"]`),
		"null for a text":      args(`"/a"`, `null`),
		"a free one missing":   args(`"path":"/a",`, ``),
		"no arguments":         change(func(c *approval.Call) { c.Message = message("delete_file", `{}`) }),
		"another tool":         change(func(c *approval.Call) { c.Message = message("delete_files", given) }),
		"another case of it":   change(func(c *approval.Call) { c.Message = message("Delete_file", given) }),
		"another owner":        change(func(c *approval.Call) { c.Owner = "ann2" }),
		"another principal":    change(func(c *approval.Call) { c.Principal.ID = "eve" }),
		"an anonymous one":     change(func(c *approval.Call) { c.Principal.Anonymous = true }),
		"another upstream":     change(func(c *approval.Call) { c.Upstream = "files2" }),
		"another workflow":     change(func(c *approval.Call) { c.Verdict.Workflow = "brief" }),
		"another definition":   change(func(c *approval.Call) { c.Tool.Digest = "v2-0012" }),
		"unknown definition":   change(func(c *approval.Call) { c.Tool.Digest = "" }),
		"an early definition":  change(func(c *approval.Call) { c.Tool.Digest = "0011" }),
		"an unknown param":     change(func(c *approval.Call) { c.Message = params(`,"dryRun":false`) }),
		"unknown metadata":     change(func(c *approval.Call) { c.Message = params(`,"_meta":{"tenant":"b"}`) }),
		"metadata as a param":  change(func(c *approval.Call) { c.Message = params(`,"claudecode/toolUseId":"x"`) }),
		"nobody can tell whom": change(func(c *approval.Call) { c.SharedOwner = true }),
		"a resource": change(func(c *approval.Call) {
			c.Message = []byte(`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"delete_file"}}`)
		}),
		"a batch": change(func(c *approval.Call) { c.Message = fmt.Appendf(nil, "[%s]", message("delete_file", given)) }),
		"asked again, another definition": change(func(c *approval.Call) {
			c.Define = func(context.Context) approval.Tool { return approval.Tool{Digest: "v2-0012"} }
		}),
		"asked again, no definition": change(func(c *approval.Call) {
			c.Define = func(context.Context) approval.Tool { return approval.Tool{} }
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				o.allowGrants("ops")
				o.allowGrants("brief")
				g := o.grant(t, toolCall(given), terms(5, "path"))
				mustState(t, o.hold(t, c), task.InputRequired)
				if now, err := o.views.Grant(t.Context(), g.ID); err != nil || now.Used != 0 {
					t.Errorf("%d uses, %v", now.Used, err)
				}
				mustState(t, o.hold(t, toolCall(strings.Replace(given, "/a", "/b", 1))), task.Approved)
			})
		})
	}
}

// Request metadata that hosts change with each call does not matter. Metadata reaches the
// upstream only if an approver saw it.
func TestGrantIgnoresRequestMetadata(t *testing.T) {
	numbered := func(number, info string) approval.Call {
		c := toolCall(`{}`)
		c.Message = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/a"},`+
			`"_meta":{"claudecode/toolUseId":%q,"tenant":"b","io.modelcontextprotocol/clientInfo":{"name":%q}}}}`, number, info)
		return c
	}
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		o.grant(t, numbered("first", "host"), terms(5))
		asked := o.hold(t, numbered("second", "host"))
		mustState(t, asked, task.Approved)
		sent, err := approval.NewUpstreamRequest(asked)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(sent.Text); strings.Contains(text, "second") || !strings.Contains(text, `"tenant":"b"`) || !strings.Contains(text, `{"name":"host"}`) {
			t.Errorf("sent as %s", text)
		}
		mustState(t, o.finish(t, asked), task.Completed)
		asked = o.hold(t, numbered("third", "evil"))
		mustState(t, asked, task.Approved)
		if sent, _ := approval.NewUpstreamRequest(asked); strings.Contains(string(sent.Text), "evil") || strings.Contains(asked.Call.Message, "evil") {
			t.Errorf("sent as %s", sent.Text)
		}
	})
}

// An operator who may not approve may not give a grant. A grant cannot be wider than the
// workflow or the call allows.
func TestGrantIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fixture, *approval.Call)
		who    approval.Approver
		gives  gatetask.GrantTerms
		unread int
		why    string
	}{
		"workflow without grants": {func(o *fixture, _ *approval.Call) { o.setWorkflow("ops", approval.Workflow{}) }, alice, *terms(1), 0, "does not allow"},
		"no uses":                 {nil, alice, *terms(0), 0, "1 to 20 uses"},
		"too many uses":           {nil, alice, *terms(21), 0, "1 to 20 uses"},
		"too long":                {nil, alice, gatetask.GrantTerms{Uses: 1, Until: time.Now().Add(1000 * time.Hour)}, 0, "within 1 hour"},
		"already expired":         {nil, alice, gatetask.GrantTerms{Uses: 1, Until: time.Unix(0, 0)}, 0, "within 1 hour"},
		"unknown argument":        {nil, alice, *terms(1, "force"), 0, "left free"},
		"duplicate argument":      {nil, alice, *terms(1, "path", "path"), 0, "left free"},
		"redacted argument":       {nil, alice, *terms(1, "password"), 0, "left free"},
		"unread":                  {nil, alice, *terms(1), 5, "not read"},
		"their own agent":         {nil, approval.Approver{Name: "carol", Aliases: []string{"ANN"}}, *terms(1), 0, "your own agent"},
		"unknown definition":      {func(_ *fixture, c *approval.Call) { c.Tool.Digest = "" }, alice, *terms(1), 0, "definition"},
		"shared owner":            {func(_ *fixture, c *approval.Call) { c.SharedOwner = true }, alice, *terms(1), 0, "distinguish the agent"},
		"a batch":                 {func(_ *fixture, c *approval.Call) { c.Message = fmt.Appendf(nil, "[%s]", c.Message) }, alice, *terms(1), 0, "single calls"},
		"not an approver":         {nil, approval.Approver{Name: "mallory"}, *terms(1), 0, "not an approver"},
		"a rejection":             {nil, alice, *terms(1), -1, "rejection"},
		"missing workflow":        {func(o *fixture, _ *approval.Call) { delete(o.workflows, "ops") }, alice, *terms(1), 0, "not an approver"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				o.setWorkflow("ops", approval.Workflow{
					Approvers: []string{"alice", "carol"}, SelfApproval: true, Grants: grantable, Redact: []string{"arguments.password.x"},
				})
				c := toolCall(`{"path":"/a","password":{"x":1,"y":2}}`)
				if test.gives.Until.After(time.Unix(0, 0)) {
					test.gives.Until = time.Now().Add(time.Until(test.gives.Until)) // the bubble has its own clock
				}
				if name != "too long" && test.gives.Until.After(time.Unix(0, 0)) {
					test.gives.Until = time.Now().Add(30 * time.Minute)
				}
				if test.change != nil && name != "missing workflow" && name != "workflow without grants" {
					test.change(o, &c)
				}
				asked := o.hold(t, c)
				shown, err := o.views.ShowAll(t.Context(), asked.ID)
				if err != nil {
					t.Fatal(err)
				}
				if name == "missing workflow" || name == "workflow without grants" {
					test.change(o, &c)
					shown, _ = o.views.ShowAll(t.Context(), asked.ID)
				}
				r := approval.Ruling{Decision: approval.Approve, Shown: shown.ShownDigest, Unread: max(0, test.unread), Gives: &test.gives}
				if test.unread < 0 {
					r.Decision = approval.Reject
				}
				_, err = o.Decide(t.Context(), asked.ID, test.who, r)
				if err == nil || !strings.Contains(err.Error(), test.why) {
					t.Errorf("Decide = %v, want an error about %q", err, test.why)
				}
				mustState(t, o.now(t, asked.ID), task.InputRequired)
				if all, err := o.views.Grants(t.Context(), true); err != nil || len(all) > 0 {
					t.Errorf("%d grants, %v", len(all), err)
				}
			})
		})
	}
}

// If two approvals are needed, both approvers must give a grant, and the narrower terms count.
func TestGrantQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("two")
		two := func(arguments string) approval.Call {
			c := toolCall(arguments)
			c.Verdict.Workflow = "two"
			return c
		}
		o.policy = func(policy.Call) policy.Verdict { return two("{}").Verdict }
		decide := func(arguments string, gives ...*gatetask.GrantTerms) int {
			asked := o.hold(t, two(arguments))
			for i, who := range []approval.Approver{alice, carol} {
				if _, err := o.ruleWith(t, asked.ID, who, gives[i]); err != nil {
					t.Fatal(err)
				}
			}
			o.finish(t, asked)
			all, err := o.views.Grants(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		if n := decide(`{"path":"/a","n":1}`, terms(5, "path"), nil); n != 0 {
			t.Errorf("%d grants after the first approval", n)
		}
		if n := decide(`{"path":"/a","n":1}`, nil, terms(5, "path")); n != 0 {
			t.Errorf("%d grants given by the second approver alone", n)
		}
		if n := decide(`{"path":"/a","n":1}`, terms(5, "path", "n"), terms(1, "path")); n != 1 {
			t.Errorf("%d grants given by both approvers", n)
		}
		mustState(t, o.hold(t, two(`{"path":"/a","n":2}`)), task.InputRequired)
		mustState(t, o.hold(t, two(`{"path":"/b","n":1}`)), task.Approved)
		mustState(t, o.hold(t, two(`{"path":"/c","n":1}`)), task.InputRequired)
	})
}

// An approver is told if the grant could not be stored; the call is approved anyway. The
// journal mentions no grant without a record, and no grant is in force that the journal does
// not have.
func TestFailedGrantIsReported(t *testing.T) {
	for name, tt := range map[string]struct {
		fail func(*grantlessStore)
		kept int      // the number of grant records
		said []string // the journal steps of the grant
	}{
		"not stored":    {func(s *grantlessStore) { s.puts = 1 }, 0, nil},
		"not recorded":  {func(s *grantlessStore) { s.appends = 1 }, 1, nil},
		"not activated": {func(s *grantlessStore) { s.puts = 2 }, 1, []string{"granted", "revoked"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &grantlessStore{}
				o := open(t, func(c *approval.Config) { store.Store, c.Store = c.Store, store })
				o.allowGrants("ops")
				asked := o.hold(t, toolCall(`{"path":"/a"}`))
				tt.fail(store)
				after, err := o.ruleWith(t, asked.ID, alice, terms(2))
				mustState(t, after, task.Approved)
				if lost, ok := errors.AsType[*approval.GrantFailedError](err); !ok || !strings.Contains(lost.Error(), "the gate could not keep it") {
					t.Errorf("Decide = %v; want a GrantFailedError", err)
				}
				mustState(t, o.finish(t, asked), task.Completed)
				all, err := o.views.Grants(t.Context(), true)
				if err != nil || len(all) != tt.kept || len(all) == 1 && all[0].State != review.GrantRevoked {
					t.Errorf("grants %+v, %v; want %d, not in force", all, err, tt.kept)
				}
				history, err := o.views.History(t.Context(), asked.ID)
				var said []string
				for _, e := range history {
					if e.Grant != "" {
						said = append(said, e.Step)
					}
				}
				if err != nil || !slices.Equal(said, tt.said) {
					t.Errorf("journal of the grant %q, %v; want %q", said, err, tt.said)
				}
				mustState(t, o.hold(t, toolCall(`{"path":"/a"}`)), task.InputRequired)
				if n := o.count(approval.Granted); n != 0 {
					t.Errorf("%d reported grants", n)
				}
			})
		})
	}
}

// A grantlessStore fails to store a grant, or to record it in the journal.
type grantlessStore struct {
	gatestore.Store

	puts, appends int // the number of the call that fails, from 1; 0 for none
}

// PutRecord implements [gatestore.Records].
func (s *grantlessStore) PutRecord(ctx context.Context, r gatestore.Record) error {
	if strings.HasPrefix(r.Name, "grant/") {
		if s.puts--; s.puts == 0 {
			return &task.Error{Kind: task.ErrUnavailable}
		}
	}
	return s.Store.PutRecord(ctx, r)
}

// Append implements [auditlog.Journal].
func (s *grantlessStore) Append(ctx context.Context, notes ...task.Note) error {
	if notes[0].Step == string(approval.Granted) {
		if s.appends--; s.appends == 0 {
			return &task.Error{Kind: task.ErrUnavailable}
		}
	}
	return s.Store.Append(ctx, notes...)
}
