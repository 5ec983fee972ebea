package approval_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

const definition = "v2-0011"

// grantable are the limits of the workflows that give grants in these tests.
var grantable = task.GrantLimits{Longest: time.Hour, Uses: 20}

// allowGrants lets approvers of a workflow give grants.
func (o *office) allowGrants(workflow string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.workflows[workflow]
	w.Grants = grantable
	o.workflows[workflow] = w
}

// toolCall is a call of a tool whose definition is known.
func toolCall(owner, arguments string) approval.Call {
	c := call(owner, "/a")
	c.Message = message("delete_file", arguments)
	c.Tool.Digest = definition
	return c
}

// terms returns terms of a grant that begins now.
func terms(uses int, free ...string) *task.GrantTerms {
	return &task.GrantTerms{Until: time.Now().Add(30 * time.Minute), Uses: uses, Free: free}
}

// rule decides with a grant.
func (o *office) ruleWith(t testing.TB, id task.ID, who approval.Approver, gives *task.GrantTerms) (task.Task, error) {
	t.Helper()
	shown, err := o.ShowAll(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return o.Decide(t.Context(), id, who, approval.Ruling{Decision: approval.Approve, Shown: shown.ShownDigest, Gives: gives})
}

// grant has c held, approved by alice with a grant, and run.
func (o *office) grant(t testing.TB, c approval.Call, gives *task.GrantTerms) casefile.Grant {
	t.Helper()
	asked := o.hold(t, c)
	if _, err := o.ruleWith(t, asked.ID, alice, gives); err != nil {
		t.Fatal(err)
	}
	o.finish(t, asked)
	all, err := o.Grants(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(g casefile.Grant) bool { return g.From == asked.ID })
	if i < 0 {
		t.Fatal("there is no grant")
	}
	return all[i]
}

// finish lets an approved task run to its end, and its owner hear of it.
func (o *office) finish(t testing.TB, asked task.Task) task.Task {
	t.Helper()
	done, err := o.Wait(t.Context(), mine(asked), o.ledger.send)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Delivered(t.Context(), mine(asked)); err != nil {
		t.Fatal(err)
	}
	return done
}

// TestGrantLetsRun: a call that a grant covers runs without anybody being asked, as
// often as the grant says, and the journal names the grant and who gave it.
func TestGrantLetsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall("ann", `{"path":"/a","n":1}`), terms(2, "path"))
		for _, path := range []string{"/b", "/c"} {
			asked := o.hold(t, toolCall("ann", fmt.Sprintf(`{"n":1,"path":%q}`, path)))
			mustState(t, asked, task.Approved)
			mustState(t, o.finish(t, asked), task.Completed)
			checkGrantNotes(t, o, asked.ID, g.ID)
		}
		mustState(t, o.hold(t, toolCall("ann", `{"path":"/d","n":1}`)), task.InputRequired)
		if runs := o.ledger.entries(); len(runs) != 3 || !strings.Contains(runs[2], `"/c"`) {
			t.Errorf("ran %q", runs)
		}
		after, err := o.Grant(t.Context(), g.ID)
		if err != nil || after.State != casefile.GrantSpent || after.Used != 2 || after.Uses[0].Became != "completed" {
			t.Errorf("the grant is %+v, %v", after, err)
		}
		if string(after.Arguments) != `{"n":1}` || !slices.Equal(after.Free, []string{"path"}) {
			t.Errorf("it shows %s and free %q", after.Arguments, after.Free)
		}
		if n := o.count(approval.UsedGrant); n != 2 {
			t.Errorf("%d uses were observed", n)
		}
	})
}

// checkGrantNotes checks what the journal has of a call that a grant approved.
func checkGrantNotes(t *testing.T, o *office, id task.ID, grant task.GrantID) {
	t.Helper()
	story, err := o.Story(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, e := range story {
		steps = append(steps, e.Step)
		if e.Step == string(approval.Decided) && (e.Grant != grant || e.Approver != "alice" || e.To != task.Approved || !strings.HasPrefix(e.Actor, "gate ")) {
			t.Errorf("the decision is recorded as %+v", e.Note)
		}
	}
	if want := []string{"held", "decided", "rechecked", "started", "finished", "delivered"}; !slices.Equal(steps, want) {
		t.Errorf("the journal has %q, want %q", steps, want)
	}
}

// TestGrantIsGiven: the journal has the grant itself.
func TestGrantIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall("ann", `{"path":"/a","password":"hunter2"}`), terms(2, "path"))
		story, err := o.Story(t.Context(), g.From)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(story, func(e task.Entry) bool { return e.Step == string(approval.Granted) })
		if i < 0 || story[i].Grant != g.ID || story[i].Approver != "alice" || !strings.Contains(story[i].Outcome, "uses: 2, free arguments: 1") {
			t.Errorf("the journal has %+v", story)
		}
		kept, err := o.store.GetRecord(t.Context(), "grant/"+string(g.ID))
		if err != nil || strings.Contains(string(kept.Value), "hunter2") || !strings.Contains(string(g.Arguments), "redacted") {
			t.Errorf("the grant keeps %s and shows %s, %v", kept.Value, g.Arguments, err)
		}
		if _, err := o.Revoke(t.Context(), g.ID, bob, "enough"); err != nil {
			t.Fatal(err)
		}
		story, _ = o.Story(t.Context(), g.From)
		if last := story[len(story)-1]; last.Step != string(approval.Revoked) || last.Grant != g.ID || last.Actor != "bob" || last.Reason != "enough" {
			t.Errorf("the revocation is recorded as %+v", last.Note)
		}
		_, err = o.Revoke(t.Context(), g.ID, bob, "")
		mustBe(t, err, task.ErrGrantRevoked)
		_, err = o.Revoke(t.Context(), task.NewGrantID(task.GrantScope{}), bob, "")
		mustBe(t, err, task.ErrNotFound)
	})
}

// TestGrantCoversNothingElse changes everything of a call in turn: what differs from
// the call that the approver saw, in more than a free argument, is held.
func TestGrantCoversNothingElse(t *testing.T) {
	const given = `{"path":"/a","n":1,"deep":{"x":[1,"é"]}}`
	params := func(extra string) []byte {
		return []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_file","arguments":` + given + extra + `}}`)
	}
	change := func(f func(*approval.Call)) approval.Call {
		c := toolCall("ann", given)
		f(&c)
		return c
	}
	args := func(old, replacement string) approval.Call {
		return toolCall("ann", strings.Replace(given, old, replacement, 1))
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
		"no definition":        change(func(c *approval.Call) { c.Tool.Digest = "" }),
		"an early definition":  change(func(c *approval.Call) { c.Tool.Digest = "0011" }),
		"an unknown param":     change(func(c *approval.Call) { c.Message = params(`,"dryRun":false`) }),
		"unknown metadata":     change(func(c *approval.Call) { c.Message = params(`,"_meta":{"tenant":"b"}`) }),
		"metadata as a param":  change(func(c *approval.Call) { c.Message = params(`,"claudecode/toolUseId":"x"`) }),
		"nobody can tell whom": change(func(c *approval.Call) { c.Alone = true }),
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
				g := o.grant(t, toolCall("ann", given), terms(5, "path"))
				mustState(t, o.hold(t, c), task.InputRequired)
				if now, err := o.Grant(t.Context(), g.ID); err != nil || now.Used != 0 {
					t.Errorf("it was used %d times, %v", now.Used, err)
				}
				mustState(t, o.hold(t, toolCall("ann", strings.Replace(given, "/a", "/b", 1))), task.Approved)
			})
		})
	}
}

// TestGrantPassesOverMetadata: members of _meta with which hosts number requests
// do not matter, and reach the upstream only if an approver saw them.
func TestGrantPassesOverMetadata(t *testing.T) {
	numbered := func(number, info string) approval.Call {
		c := toolCall("ann", `{}`)
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
		sent, err := approval.Outgoing(asked)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(sent); strings.Contains(text, "second") || !strings.Contains(text, `"tenant":"b"`) || !strings.Contains(text, `{"name":"host"}`) {
			t.Errorf("it is sent as %s", text)
		}
		mustState(t, o.finish(t, asked), task.Completed)
		asked = o.hold(t, numbered("third", "evil"))
		mustState(t, asked, task.Approved)
		if sent, _ := approval.Outgoing(asked); strings.Contains(string(sent), "evil") || strings.Contains(asked.Call.Message, "evil") {
			t.Errorf("it is sent as %s", sent)
		}
	})
}

// TestGrantRefused: who may not approve may not give a grant, and nobody gives one
// that is wider than the workflow, or the call, allows.
func TestGrantRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*office, *approval.Call)
		who    approval.Approver
		gives  task.GrantTerms
		unread int
		why    string
	}{
		"the workflow":       {func(o *office, _ *approval.Call) { o.setWorkflow("ops", approval.Workflow{}) }, alice, *terms(1), 0, "does not allow"},
		"no uses":            {nil, alice, *terms(0), 0, "1 to 20 uses"},
		"too many uses":      {nil, alice, *terms(21), 0, "1 to 20 uses"},
		"too long":           {nil, alice, task.GrantTerms{Uses: 1, Until: time.Now().Add(1000 * time.Hour)}, 0, "within 1h"},
		"over already":       {nil, alice, task.GrantTerms{Uses: 1, Until: time.Unix(0, 0)}, 0, "within 1h"},
		"an unknown one":     {nil, alice, *terms(1, "force"), 0, "left free"},
		"one twice":          {nil, alice, *terms(1, "path", "path"), 0, "left free"},
		"a redacted one":     {nil, alice, *terms(1, "password"), 0, "left free"},
		"unread":             {nil, alice, *terms(1), 5, "not read"},
		"their own agent":    {nil, approval.Approver{Name: "carol", Aliases: []string{"ANN"}}, *terms(1), 0, "your own agent"},
		"no definition":      {func(_ *office, c *approval.Call) { c.Tool.Digest = "" }, alice, *terms(1), 0, "definition"},
		"nobody in special":  {func(_ *office, c *approval.Call) { c.Alone = true }, alice, *terms(1), 0, "tell the agent"},
		"a batch":            {func(_ *office, c *approval.Call) { c.Message = fmt.Appendf(nil, "[%s]", c.Message) }, alice, *terms(1), 0, "single calls"},
		"somebody else":      {nil, approval.Approver{Name: "mallory"}, *terms(1), 0, "not an approver"},
		"a rejection":        {nil, alice, *terms(1), -1, "rejection"},
		"one of no workflow": {func(o *office, _ *approval.Call) { delete(o.workflows, "ops") }, alice, *terms(1), 0, "not an approver"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				o.setWorkflow("ops", approval.Workflow{
					Approvers: []string{"alice", "carol"}, SelfApproval: true, Grants: grantable, Redact: []string{"arguments.password.x"},
				})
				c := toolCall("ann", `{"path":"/a","password":{"x":1,"y":2}}`)
				if test.gives.Until.After(time.Unix(0, 0)) {
					test.gives.Until = time.Now().Add(time.Until(test.gives.Until)) // the bubble has a clock of its own
				}
				if name != "too long" && test.gives.Until.After(time.Unix(0, 0)) {
					test.gives.Until = time.Now().Add(30 * time.Minute)
				}
				if test.change != nil && name != "one of no workflow" && name != "the workflow" {
					test.change(o, &c)
				}
				asked := o.hold(t, c)
				shown, err := o.ShowAll(t.Context(), asked.ID)
				if err != nil {
					t.Fatal(err)
				}
				if name == "one of no workflow" || name == "the workflow" {
					test.change(o, &c)
					shown, _ = o.ShowAll(t.Context(), asked.ID)
				}
				r := approval.Ruling{Decision: approval.Approve, Shown: shown.ShownDigest, Unread: max(0, test.unread), Gives: &test.gives}
				if test.unread < 0 {
					r.Decision = approval.Reject
				}
				_, err = o.Decide(t.Context(), asked.ID, test.who, r)
				if err == nil || !strings.Contains(err.Error(), test.why) {
					t.Errorf("Decide = %v, want one about %q", err, test.why)
				}
				mustState(t, o.now(t, asked.ID), task.InputRequired)
				if all, err := o.Grants(t.Context(), true); err != nil || len(all) > 0 {
					t.Errorf("there are %d grants, %v", len(all), err)
				}
			})
		})
	}
}

// TestGrantQuorum: where two must approve, two must give a grant, and it goes as far
// as the narrower of the two.
func TestGrantQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("two")
		two := func(arguments string) approval.Call {
			c := toolCall("ann", arguments)
			c.Verdict.Workflow = "two"
			return c
		}
		o.policy = func(policy.Call) policy.Verdict { return two("{}").Verdict }
		decide := func(arguments string, gives ...*task.GrantTerms) int {
			asked := o.hold(t, two(arguments))
			for i, who := range []approval.Approver{alice, carol} {
				if _, err := o.ruleWith(t, asked.ID, who, gives[i]); err != nil {
					t.Fatal(err)
				}
			}
			o.finish(t, asked)
			all, err := o.Grants(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		if n := decide(`{"path":"/a","n":1}`, terms(5, "path"), nil); n != 0 {
			t.Errorf("the first alone gave %d grants", n)
		}
		if n := decide(`{"path":"/a","n":1}`, nil, terms(5, "path")); n != 0 {
			t.Errorf("the second alone gave %d grants", n)
		}
		if n := decide(`{"path":"/a","n":1}`, terms(5, "path", "n"), terms(1, "path")); n != 1 {
			t.Errorf("both gave %d grants", n)
		}
		mustState(t, o.hold(t, two(`{"path":"/a","n":2}`)), task.InputRequired)
		mustState(t, o.hold(t, two(`{"path":"/b","n":1}`)), task.Approved)
		mustState(t, o.hold(t, two(`{"path":"/c","n":1}`)), task.InputRequired)
	})
}

// TestGrantPolicy: what policy and the workflow say now counts, also for a call that a
// grant has let in.
func TestGrantPolicy(t *testing.T) {
	strict := approval.Workflow{Approvers: []string{"alice"}, Quorum: 2, Grants: grantable}
	for name, test := range map[string]struct {
		change func(*office)
		in     task.State // of a call that is made after the change
	}{
		"policy denies":        {func(o *office) { o.rule(policy.Verdict{Action: policy.Deny}) }, ""},
		"policy wants another": {func(o *office) { o.rule(policy.Verdict{Action: policy.Approve, Workflow: "brief"}) }, ""},
		"more must approve":    {func(o *office) { o.setWorkflow("ops", strict) }, task.InputRequired},
		"others must approve": {func(o *office) {
			o.setWorkflow("ops", approval.Workflow{Approvers: []string{"bob"}, Grants: grantable})
		}, task.InputRequired},
		"no grants any more": {func(o *office) { o.setWorkflow("ops", approval.Workflow{}) }, task.InputRequired},
		"shorter grants": {func(o *office) {
			o.setWorkflow("ops", approval.Workflow{Grants: task.GrantLimits{Longest: time.Minute, Uses: 5}})
		}, task.InputRequired},
		"the workflow is not there": {func(o *office) { o.mu.Lock(); delete(o.workflows, "ops"); o.mu.Unlock() }, ""},
		"revoked": {func(o *office) {
			all, _ := o.Grants(context.Background(), false)           //nolint:usetesting // in a table
			_, _ = o.Revoke(context.Background(), all[0].ID, bob, "") //nolint:usetesting // in a table
		}, task.InputRequired},
		"its time is over": {func(*office) { time.Sleep(time.Hour) }, task.InputRequired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, func(c *approval.Config) { c.MaxTTL, c.Retrieval = 24*time.Hour, 3*time.Hour })
				o.allowGrants("ops")
				o.grant(t, toolCall("ann", `{"path":"/a"}`), terms(5, "path"))
				ran := len(o.ledger.entries())
				time.Sleep(2 * time.Minute)
				in := o.hold(t, toolCall("ann", `{"path":"/b"}`)) // it waits for its owner
				mustState(t, in, task.Approved)
				test.change(o)
				after, err := o.Contact(t.Context(), mine(in), o.ledger.send)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				mustState(t, after, task.Failed)
				if test.in != "" {
					mustState(t, o.hold(t, toolCall("ann", `{"path":"/c"}`)), test.in)
				}
				if runs := o.ledger.entries(); len(runs) != ran {
					t.Errorf("ran %q", runs)
				}
			})
		})
	}
}

// TestGrantToolDrift: a tool that changes after a grant has let the call in, and
// before it runs, does not run.
func TestGrantToolDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		o.grant(t, toolCall("ann", `{"path":"/a"}`), terms(5, "path"))
		in := o.hold(t, toolCall("ann", `{"path":"/b"}`))
		after, err := o.Contact(t.Context(), mine(in), definer{o.ledger.send, "v2-0012"})
		if err != nil || after.State != task.Failed || after.Failure.Stage != task.StageToolDrift {
			t.Errorf("it is %s, %+v, %v", after.State, after.Failure, err)
		}
	})
}

// TestGrantShowsTheNewDefinition: approvers who are asked because the tool has changed
// are asked about the tool as it is now.
func TestGrantShowsTheNewDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		o.grant(t, toolCall("ann", `{"path":"/a"}`), terms(5))
		c := toolCall("ann", `{"path":"/a"}`)
		c.Define = func(context.Context) approval.Tool {
			return approval.Tool{Digest: "v2-0012", Description: "deletes more"}
		}
		shown, err := o.Show(t.Context(), o.hold(t, c).ID)
		if err != nil || shown.ToolDigest != "v2-0012" || shown.Description != "deletes more" {
			t.Errorf("approvers see %s %q, %v", shown.ToolDigest, shown.Description, err)
		}
	})
}

// TestGrantLastUse: two gates on one store, many calls, and fewer uses.
func TestGrantLastUse(t *testing.T) {
	o := open(t, nil)
	other := branch(t, o.store, nil)
	o.allowGrants("ops")
	other.allowGrants("ops")
	o.grant(t, toolCall("ann", `{"path":"/a"}`), terms(3, "path"))
	var approved atomic.Int32
	var all []func() error
	for i := range 8 {
		gate := []*office{o, other}[i%2]
		all = append(all, func() error {
			c := toolCall("ann", fmt.Sprintf(`{"path":"/%d"}`, i))
			c.Send = gate.ledger.send
			asked, _, err := gate.Hold(t.Context(), c)
			if err == nil && asked.State != task.InputRequired {
				approved.Add(1)
				_, err = gate.Wait(t.Context(), mine(asked), gate.ledger.send)
			}
			return err
		})
	}
	if n := together(all...); n != len(all) {
		t.Errorf("%d of %d calls were held or run", n, len(all))
	}
	if n := approved.Load(); n != 3 {
		t.Errorf("%d calls used a grant with 3 uses", n)
	}
	if n := len(o.ledger.entries()) + len(other.ledger.entries()); n != 4 {
		t.Errorf("%d calls ran, want the first and 3 more", n)
	}
}

// A cutOff is a store that fails when a task is to be created.
type cutOff struct {
	task.Store
	err atomic.Value
}

func (c *cutOff) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	if err, ok := c.err.Load().(error); ok && !errors.Is(err, errNone) {
		return err
	}
	return c.Store.Create(ctx, t, l, notes...)
}

var errNone = errors.New("none")

// TestGrantCountedButNotMade: a use that was counted before the process ended, and
// whose call was never made, stays counted, and is shown as what it is. One whose
// call was refused is given back.
func TestGrantCountedButNotMade(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		used int
	}{
		"the store broke":  {&task.Error{Kind: task.KindUnavailable}, 1},
		"nobody can tell":  {errors.New("killed"), 1},
		"the disk is full": {&task.Error{Kind: task.KindCapacityExceeded, Err: errors.New("disk")}, 1},
		"too many":         {&task.Error{Kind: task.KindRateLimited}, 0},
		"too many of all":  {&task.Error{Kind: task.KindCapacityExceeded}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := &cutOff{}
				o := open(t, func(c *approval.Config) { broken.Store = c.Store; c.Store = broken })
				o.allowGrants("ops")
				g := o.grant(t, toolCall("ann", `{"path":"/a"}`), terms(2, "path"))
				broken.err.Store(test.err)
				if _, _, err := o.Hold(t.Context(), toolCall("ann", `{"path":"/b"}`)); err == nil {
					t.Fatal("the call was held")
				}
				now, err := o.Grant(t.Context(), g.ID)
				if err != nil || now.Used != test.used {
					t.Fatalf("it was used %d times, want %d: %v", now.Used, test.used, err)
				}
				if test.used > 0 && now.Uses[0].Became != casefile.UseNotMade {
					t.Errorf("the use is shown as %s", now.Uses[0].Became)
				}
			})
		})
	}
}

// TestGrantJoins: a call that joins an identical one needs no use.
func TestGrantJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall("ann", `{"path":"/a"}`), terms(5))
		first := o.hold(t, toolCall("ann", `{"path":"/a"}`))
		second, attached, err := o.Hold(t.Context(), toolCall("ann", `{"path":"/a"}`))
		if err != nil || !attached || second.ID != first.ID {
			t.Errorf("the second call is %s, attached %t, %v", second.ID, attached, err)
		}
		if now, _ := o.Grant(t.Context(), g.ID); now.Used != 1 {
			t.Errorf("it was used %d times", now.Used)
		}
	})
}

// TestGrantForged: a task that claims a grant which does not know it does not run.
func TestGrantForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall("ann", `{"path":"/a"}`), terms(5, "path"))
		in := o.hold(t, toolCall("ann", `{"path":"/b"}`))
		forged := o.now(t, in.ID)
		forged.ID, forged.Version = task.NewID(time.Now()), 1
		if err := o.store.Create(t.Context(), forged, task.Limits{}); err != nil {
			t.Fatal(err)
		}
		after, err := o.Contact(t.Context(), mine(forged), o.ledger.send)
		if err != nil || after.State != task.Failed {
			t.Errorf("it is %s, %v", after.State, err)
		}
		if now, _ := o.Grant(t.Context(), g.ID); now.Used != 1 {
			t.Errorf("it was used %d times", now.Used)
		}
	})
}

// TestGrantRoom: an agent has a limited number of grants for a tool.
func TestGrantRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		for i := range 21 {
			asked := o.hold(t, toolCall("ann", fmt.Sprintf(`{"path":"/%d"}`, i)))
			if _, err := o.ruleWith(t, asked.ID, alice, terms(1)); err != nil {
				t.Fatal(err)
			}
			o.finish(t, asked)
		}
		if all, err := o.Grants(t.Context(), false); err != nil || len(all) != 20 {
			t.Errorf("there are %d grants, %v", len(all), err)
		}
	})
}
