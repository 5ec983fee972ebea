package approval_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/passkey"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/softkey"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

var inbox = passkey.Site{Origin: "http://localhost:8081", ID: "localhost"}

// A confirmed fixture has a workflow that needs passkeys, and operators who have one.
type confirmed struct {
	*fixture

	t      *testing.T
	edited *editedStore
	keys   map[string]*softkey.Key
}

func openConfirmed(t *testing.T, w approval.Workflow) *confirmed {
	t.Helper()
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	edited := &editedStore{Store: store}
	o := &confirmed{fixture: branch(t, edited, nil), edited: edited, t: t, keys: map[string]*softkey.Key{}}
	w.Passkey = true
	o.setWorkflow("ops", w)
	code, err := o.Passkeys().First(t.Context(), "localhost", time.Minute)
	for _, who := range []approval.Approver{alice, bob} {
		if err != nil {
			t.Fatal(err)
		}
		k := softkey.New(t, inbox.Origin, inbox.ID)
		o.keys[who.Name] = k
		err = o.Passkeys().Add(t.Context(), passkey.Request{
			Operator: who.Name, Site: inbox, Code: code,
			Created: k.Create(t, []byte(`{"challenge":"`+passkey.ToCreate(who.Name, "").String()+`"}`)),
		})
		if err != nil {
			t.Fatal(err)
		}
		i := passkey.Invitation{Operator: "bob", By: "alice", Expires: time.Now().Add(time.Hour)}
		if who.Name == "alice" {
			code, err = o.Passkeys().Invite(t.Context(), i, o.answer("alice", passkey.ToInvite(i)), inbox)
		}
	}
	return o
}

// answer returns the signature of somebody's passkey for a challenge.
func (o *confirmed) answer(who string, c passkey.Challenge) string {
	return o.keys[who].Sign(o.t, []byte(`{"challenge":"`+c.String()+`"}`))
}

// ruling returns an approval of a call without a signature.
func (o *confirmed) ruling(id task.ID) approval.Ruling {
	o.t.Helper()
	shown, err := o.views.ShowAll(o.t.Context(), id)
	if err != nil {
		o.t.Fatal(err)
	}
	return approval.Ruling{Decision: approval.Approve, Shown: shown.ShownDigest, Site: inbox}
}

// signed returns r with the signature of who.
func (o *confirmed) signed(id task.ID, who approval.Approver, r approval.Ruling) approval.Ruling {
	o.t.Helper()
	about, err := o.Statement(o.t.Context(), id, who, r)
	if err != nil {
		o.t.Fatal(err)
	}
	r.Signed = o.answer(who.Name, passkey.ToApprove(about))
	return r
}

// confirm approves a call with a passkey.
func (o *confirmed) confirm(id task.ID, who approval.Approver) task.Task {
	o.t.Helper()
	after, err := o.Decide(o.t.Context(), id, who, o.signed(id, who, o.ruling(id)))
	if err != nil {
		o.t.Fatal(err)
	}
	return after
}

// An editedStore is a store in which somebody has edited a task.
type editedStore struct {
	gatestore.Store

	id     task.ID
	change func(*task.Task) // nil as long as nothing is edited
}

func (s *editedStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := s.Store.Get(ctx, ref)
	if s.change != nil && t.ID == s.id && t.State == task.Approved {
		t.Approval = t.Approval.Clone()
		s.change(&t)
	}
	return t, err
}

func (s *editedStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	if t.ID == s.id { // stores find tasks by their digest
		stored, err := s.Store.Get(ctx, task.AnyOwner().Ref(t.ID))
		if err != nil {
			return err
		}
		t.Digest, t.Call = stored.Digest, stored.Call
	}
	return s.Store.Swap(ctx, t, notes...)
}

// An approval with a passkey runs the call, and the journal shows it without the gate.
func TestPasskeyConfirmsApproval(t *testing.T) {
	o := openConfirmed(t, approval.Workflow{})
	asked := o.hold(t, call("ann", "/a"))
	o.confirm(asked.ID, alice)
	mustState(t, o.finish(t, asked), task.Completed)
	var export []byte
	for e, err := range auditlog.Each(t.Context(), o.store, auditlog.Query{}) {
		if err == nil {
			export, err = audit.AppendLine(export, e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	report, err := audit.VerifyLines(strings.NewReader(string(export)), auditlog.Link{})
	if err != nil || !report.OK() || report.Signatures != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// The gate that approved a call dies, and another one runs it with the stored signature.
func TestConfirmedCallRunsAtAnotherGate(t *testing.T) {
	o := openConfirmed(t, approval.Workflow{})
	asked := o.hold(t, call("ann", "/a"))
	o.confirm(asked.ID, alice)
	other := branch(t, o.store, nil)
	other.setWorkflow("ops", approval.Workflow{Passkey: true})
	mustState(t, other.finish(t, asked), task.Completed)
}

// Without the approver's passkey nobody approves: not with a token, not in a browser, and not by a change of the
// workflow. The journal has each attempt. Everybody can reject.
func TestPasskeyIsNeeded(t *testing.T) {
	for name, change := range map[string]func(o *confirmed) task.Task{
		"from the beginning": func(o *confirmed) task.Task { return o.hold(o.t, call("ann", "/a")) },
		"later": func(o *confirmed) task.Task {
			o.setWorkflow("ops", approval.Workflow{})
			held := o.hold(o.t, call("ann", "/a"))
			o.setWorkflow("ops", approval.Workflow{Passkey: true})
			return held
		},
		"until a change": func(o *confirmed) task.Task {
			held := o.hold(o.t, call("ann", "/a"))
			o.setWorkflow("ops", approval.Workflow{})
			return held
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := openConfirmed(t, approval.Workflow{})
			held := change(o)
			for _, login := range []string{"token", "session", "oidc", ""} {
				r := o.ruling(held.ID)
				r.Via = gatetask.Via{Kind: gatetask.ViaAPI, Login: login}
				_, err := o.Decide(t.Context(), held.ID, alice, r)
				mustBe(t, err, approval.ErrPasskeyRequired)
				if last := o.lastEntry(t); last.Step != string(approval.Refused) || last.Outcome != approval.PasskeyRequired || last.Approver != "alice" || last.Via != r.Via {
					t.Errorf("the journal has %+v", last)
				}
			}
			mustState(t, o.now(t, held.ID), task.InputRequired)
			if _, err := o.decide(t.Context(), held.ID, bob, approval.Reject, ""); err != nil {
				t.Error(err)
			}
		})
	}
}

// A signature counts for one call, one view, one approver and one answer. Other uses are refused and recorded.
func TestMisusedSignature(t *testing.T) {
	for name, use := range map[string]func(o *confirmed, id task.ID, r approval.Ruling) (approval.Approver, approval.Ruling){
		"of another call": func(o *confirmed, _ task.ID, r approval.Ruling) (approval.Approver, approval.Ruling) {
			other := o.hold(o.t, call("ann", "/other"))
			r.Signed = o.signed(other.ID, alice, o.ruling(other.ID)).Signed
			return alice, r
		},
		"of the same call of another agent": func(o *confirmed, _ task.ID, r approval.Ruling) (approval.Approver, approval.Ruling) {
			other := o.hold(o.t, call("ben", "/a"))
			r.Signed = o.signed(other.ID, alice, o.ruling(other.ID)).Signed
			return alice, r
		},
		"for another view": func(o *confirmed, id task.ID, r approval.Ruling) (approval.Approver, approval.Ruling) {
			other := r
			other.Shown = "0123"
			r.Signed = o.signed(id, alice, other).Signed
			return alice, r
		},
		"without the standing approval": func(o *confirmed, id task.ID, r approval.Ruling) (approval.Approver, approval.Ruling) {
			r = o.signed(id, alice, r)
			r.Gives = terms(5)
			return alice, r
		},
		"of another operator": func(o *confirmed, id task.ID, r approval.Ruling) (approval.Approver, approval.Ruling) {
			return bob, o.signed(id, alice, r)
		},
		"of another operator for this one": func(o *confirmed, id task.ID, r approval.Ruling) (approval.Approver, approval.Ruling) {
			o.keys["alice"] = o.keys["bob"]
			return alice, o.signed(id, alice, r)
		},
		"at another site": func(o *confirmed, id task.ID, r approval.Ruling) (approval.Approver, approval.Ruling) {
			o.keys["alice"].Origin = "http://localhost:9999"
			return alice, o.signed(id, alice, r)
		},
		"without verification": func(o *confirmed, id task.ID, r approval.Ruling) (approval.Approver, approval.Ruling) {
			o.keys["alice"].Flags = softkey.Present
			return alice, o.signed(id, alice, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := openConfirmed(t, approval.Workflow{})
			o.allowGrants("ops")
			asked := o.hold(t, toolCall(`{"path":"/a"}`))
			who, r := use(o, asked.ID, o.ruling(asked.ID))
			_, err := o.Decide(t.Context(), asked.ID, who, r)
			mustBe(t, err, approval.ErrPasskeyInvalid)
			if last := o.lastEntry(t); last.Outcome != approval.PasskeyInvalid || last.Approver != who.Name {
				t.Errorf("the journal has %+v", last)
			}
			mustState(t, o.now(t, asked.ID), task.InputRequired)
		})
	}
}

// Somebody who edits the store cannot make another call run with an approval.
func TestEditedStoreDoesNotRun(t *testing.T) {
	edit := func(change func(*task.Task)) func(*confirmed) func(*task.Task) {
		return func(*confirmed) func(*task.Task) { return change }
	}
	for name, change := range map[string]func(*confirmed) func(*task.Task){
		"another call": edit(func(stored *task.Task) {
			c := stored.Call
			c.Message, c.Arguments = strings.ReplaceAll(c.Message, "/a", "/etc"), strings.ReplaceAll(c.Arguments, "/a", "/etc")
			digest, err := c.Digest()
			if err != nil {
				panic(err)
			}
			stored.Call, stored.Digest = c, digest
		}),
		"the approval of another": func(o *confirmed) func(*task.Task) {
			other := o.hold(o.t, call("ben", "/other"))
			made := o.confirm(other.ID, alice).Approval.Approvals[0]
			return func(stored *task.Task) { stored.Approval.Approvals[0] = made }
		},
		"no signature":        edit(func(stored *task.Task) { stored.Approval.Approvals[0].Passkey = nil }),
		"another approver":    edit(func(stored *task.Task) { stored.Approval.Approvals[0].By = "carol" }),
		"everything read":     edit(func(stored *task.Task) { stored.Approval.Approvals[0].UnreadBytes = 7 }),
		"a standing approval": edit(func(stored *task.Task) { stored.Approval.Approvals[0].NewGrant = terms(3) }),
		"one approver twice":  edit(func(stored *task.Task) { stored.Approval.Approvals[1] = stored.Approval.Approvals[0] }),
		"one approver of two": edit(func(stored *task.Task) { stored.Approval.Approvals = stored.Approval.Approvals[:1] }),
		"nobody":              edit(func(stored *task.Task) { stored.Approval.Approvals = nil }),
		"an unknown grant":    edit(func(stored *task.Task) { stored.Approval.Approvals[0].Grant = "g" }),
		"another public key": edit(func(stored *task.Task) {
			signed := *stored.Approval.Approvals[0].Passkey
			signed.Key = stored.Approval.Approvals[1].Passkey.Key
			stored.Approval.Approvals[0].Passkey = &signed
		}),
	} {
		t.Run(name, func(t *testing.T) {
			o := openConfirmed(t, approval.Workflow{Quorum: 2})
			asked := o.hold(t, call("ann", "/a"))
			o.confirm(asked.ID, alice)
			mustState(t, o.confirm(asked.ID, bob), task.Approved)
			o.edited.id, o.edited.change = asked.ID, change(o)
			after, err := o.Wait(t.Context(), mine(asked), o.upstream.send)
			if err == nil && after.State != task.Failed {
				t.Errorf("the task is %s", after.State)
			}
			if runs := o.upstream.entries(); len(runs) > 0 {
				t.Errorf("ran %q", runs)
			}
		})
	}
}

// In a store of gates with different configurations, each call says which gate holds it and what that gate
// asks for. Somebody who edits that cannot make a call run without a passkey.
func TestEditedHoldingGateDoesNotRun(t *testing.T) {
	o := openConfirmed(t, approval.Workflow{})
	asked := o.hold(t, call("ann", "/a"))
	o.confirm(asked.ID, alice)
	o.edited.id, o.edited.change = asked.ID, func(stored *task.Task) {
		stored.Approval.Passkey, stored.Approval.Approvals[0].Passkey = false, nil
		facts := review.ReadFacts(*stored)
		facts.HoldingGate = review.NewHoldingGate("another gate", approval.Workflow{})
		text, err := facts.Text()
		if err != nil {
			panic(err)
		}
		stored.Verdict.Facts = text
	}
	other := branch(t, o.store, func(c *approval.Config) { c.Mixed = true })
	other.setWorkflow("ops", approval.Workflow{Passkey: true})
	mustState(t, must(other.Wait(t.Context(), mine(asked), other.upstream.send))(t), task.Failed)
	if runs := other.upstream.entries(); len(runs) > 0 {
		t.Errorf("ran %q", runs)
	}
}

// The approval does not count any more when the passkey was removed before the call ran.
func TestRemovedPasskeyDoesNotRun(t *testing.T) {
	o := openConfirmed(t, approval.Workflow{})
	asked := o.hold(t, call("ann", "/a"))
	o.confirm(asked.ID, bob)
	own, err := o.Passkeys().Of(t.Context(), "bob")
	if err != nil || len(own) != 1 {
		t.Fatal(own, err)
	}
	name := own[0].Name()
	if err := o.Passkeys().Remove(t.Context(), name, "alice", o.answer("alice", passkey.ToRemove(name, "alice")), inbox); err != nil {
		t.Fatal(err)
	}
	mustState(t, must(o.Wait(t.Context(), mine(asked), o.upstream.send))(t), task.Failed)
	if runs := o.upstream.entries(); len(runs) > 0 {
		t.Errorf("ran %q", runs)
	}
}

func must(v task.Task, err error) func(*testing.T) task.Task {
	return func(t *testing.T) task.Task {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A standing approval with a passkey covers what was signed. Somebody who edits the store cannot widen it.
func TestEditedGrantDoesNotRun(t *testing.T) {
	for name, change := range map[string]func(*grantstore.Grant){
		"":          func(*grantstore.Grant) {},
		"more uses": func(g *grantstore.Grant) { g.MaxUses++ },
		"longer":    func(g *grantstore.Grant) { g.Until = g.Until.Add(time.Minute) },
		"another argument": func(g *grantstore.Grant) {
			g.Free = append(g.Free, "n")
		},
		"of nobody":       func(g *grantstore.Grant) { g.By[0].Passkey = nil },
		"of another":      func(g *grantstore.Grant) { g.By[0].By = "bob" },
		"of another call": func(g *grantstore.Grant) { g.From = "other" },
		"other metadata":  func(g *grantstore.Grant) { g.Meta = map[string]task.Digest{"x": {1}} },
		"for a retry":     func(g *grantstore.Grant) { g.Retry = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := openConfirmed(t, approval.Workflow{Timeout: time.Hour})
				o.allowGrants("ops")
				asked := o.hold(t, toolCall(`{"path":"/a","n":1}`))
				r := o.ruling(asked.ID)
				r.Gives = terms(2, "path")
				if _, err := o.Decide(t.Context(), asked.ID, alice, o.signed(asked.ID, alice, r)); err != nil {
					t.Fatal(err)
				}
				o.finish(t, asked)
				editGrant(t, o.store, change)
				next := o.hold(t, toolCall(`{"path":"/b","n":1}`))
				if name == "" {
					mustState(t, next, task.Approved)
					mustState(t, o.finish(t, next), task.Completed)
					return
				}
				if next.State != task.InputRequired {
					mustState(t, must(o.Wait(t.Context(), mine(next), o.upstream.send))(t), task.Failed)
				}
				if runs := o.upstream.entries(); len(runs) != 1 {
					t.Errorf("ran %q", runs)
				}
			})
		})
	}
}

// The signature names the shape: an edited grant, also with an edited pattern, does not run.
func TestEditedShapeDoesNotRun(t *testing.T) {
	widen := func(to gatetask.GrantReach) func(*grantstore.Grant, grantstore.Scope) {
		return func(g *grantstore.Grant, s grantstore.Scope) { g.GrantShape = reach(to); repattern(g, s) }
	}
	for name, test := range map[string]struct {
		given  gatetask.GrantShape
		change func(*grantstore.Grant, grantstore.Scope)
	}{
		"": {reach(gatetask.ReachReadOnly), func(*grantstore.Grant, grantstore.Scope) {}},
		"another directory": {belowTmp, func(g *grantstore.Grant, s grantstore.Scope) {
			g.Below = []gatetask.GrantBelow{{Argument: "path", Directory: "/home"}}
			repattern(g, s)
		}},
		"free for below": {belowTmp, func(g *grantstore.Grant, s grantstore.Scope) {
			g.Free, g.Below = []string{"path"}, nil
			repattern(g, s)
		}},
		"server for below": {belowTmp, widen(gatetask.ReachServer)},
		"server for list":  {reach(gatetask.ReachReadOnly), widen(gatetask.ReachServer)},
		"agent for server": {reach(gatetask.ReachServer), widen(gatetask.ReachAgent)},
		"another list": {reach(gatetask.ReachReadOnly), func(g *grantstore.Grant, s grantstore.Scope) {
			g.ReadOnly = append(g.ReadOnly, gatetask.GrantTool{Name: "write", Digest: "v2-5"})
			g.Tools = grantstore.ToolsDigest(g.ReadOnly)
			repattern(g, s)
		}},
		"more in the list": {reach(gatetask.ReachReadOnly), func(g *grantstore.Grant, _ grantstore.Scope) {
			g.ReadOnly = append(g.ReadOnly, gatetask.GrantTool{Name: "write", Digest: "v2-5"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := openConfirmed(t, approval.Workflow{Timeout: time.Hour})
				o.allowReach("ops", gatetask.ReachAgent)
				first := reading("read", "v2-1")
				first.Message = message("read", `{"path":"/tmp/a","n":1}`)
				asked := o.hold(t, first)
				r := o.ruling(asked.ID)
				r.Gives = shaped(test.given)
				if _, err := o.Decide(t.Context(), asked.ID, alice, o.signed(asked.ID, alice, r)); err != nil {
					t.Fatal(err)
				}
				o.finish(t, asked)
				next, scope := reading("list", "v2-2"), grantstore.Scope{Owner: "ann", Principal: "named ann", Named: true, Workflow: "ops", ToolDigest: "v2-1", Trusted: true, ReadOnly: true}
				scope.Call = task.Call{Upstream: "files", Method: "tools/call", Name: "read", Arguments: `{"path":"/home/x","n":1}`}
				if test.given.Reach == "" {
					next = reading("read", "v2-1")
					next.Message = message("read", scope.Call.Arguments)
				} else if name != "" {
					next = reading("write", "v2-5")
					scope.Call.Name, scope.ToolDigest = "write", "v2-5"
				}
				editGrant(t, o.store, func(g *grantstore.Grant) { test.change(g, scope) })
				held := o.hold(t, next)
				if name == "" {
					mustState(t, held, task.Approved)
					mustState(t, o.finish(t, held), task.Completed)
					return
				}
				if held.State != task.InputRequired {
					mustState(t, must(o.Wait(t.Context(), mine(held), o.upstream.send))(t), task.Failed)
				}
				if runs := o.upstream.entries(); len(runs) != 1 {
					t.Errorf("ran %q", runs)
				}
			})
		})
	}
}

// repattern changes the pattern of g as somebody would who edits the store so that g covers s.
func repattern(g *grantstore.Grant, s grantstore.Scope) {
	s.GrantShape, s.Tools = g.GrantShape, g.ReadOnly
	pattern, err := s.Digest()
	if err != nil {
		panic(err)
	}
	g.Pattern = pattern
}

// editGrant changes the only grant in a store.
func editGrant(t *testing.T, s gatestore.Store, change func(*grantstore.Grant)) {
	t.Helper()
	found, err := s.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "grant", Limit: 10})
	i := slices.IndexFunc(found, func(r gatestore.Record) bool { return strings.Contains(string(r.Value), `"maxUses"`) })
	if err != nil || i < 0 {
		t.Fatalf("%v, %v", found, err)
	}
	var g grantstore.Grant
	if err := json.Unmarshal(found[i].Value, &g); err != nil {
		t.Fatal(err)
	}
	change(&g)
	r := found[i]
	r.Version++
	if r.Value, err = json.Marshal(g); err != nil {
		t.Fatal(err)
	}
	if err := s.PutRecord(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// The rules about requesters hold with passkeys too.
func TestRequesterCannotConfirm(t *testing.T) {
	o := openConfirmed(t, approval.Workflow{})
	asked := o.hold(t, call("alice", "/a"))
	if _, err := o.Decide(t.Context(), asked.ID, alice, o.signed(asked.ID, alice, o.ruling(asked.ID))); err == nil {
		t.Error("the requester approved")
	}
	mustState(t, o.confirm(asked.ID, bob), task.Approved)
}
