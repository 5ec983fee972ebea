package approval_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// correction returns a rejection of a call with corrected arguments, by an approver who has seen it.
func (o *fixture) correction(t testing.TB, id task.ID, arguments string) approval.Ruling {
	t.Helper()
	shown, err := o.views.ShowAll(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return approval.Ruling{Decision: approval.Reject, Reason: "other path", Shown: shown.ShownDigest, Correction: jsontext.Value(arguments)}
}

// correct rejects a call with corrected arguments.
func (o *fixture) correct(t testing.TB, id task.ID, who approval.Approver, arguments string) (task.Task, error) {
	t.Helper()
	return o.Decide(t.Context(), id, who, o.correction(t, id, arguments))
}

// A corrected call runs once without another approval, in the name of the approver: exactly that
// call, by the same agent. The rejected call does not run.
func TestCorrectedCallRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		asked := o.hold(t, toolCall(`{"path":"/a","n":1}`))
		after, err := o.correct(t, asked.ID, alice, ` { "path": "/b", "n": 1.0 } `)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, after, task.Rejected)
		made := after.Approval.Rejection.Correction
		if made == nil || string(made.Arguments) != `{"path":"/b","n":1.0}` {
			t.Fatalf("correction %+v", made)
		}
		for name, other := range map[string]approval.Call{
			"the rejected call": toolCall(`{"path":"/a","n":1}`),
			"another value":     toolCall(`{"path":"/c","n":1.0}`),
			"another number":    toolCall(`{"path":"/b","n":1}`),
			"one argument more": toolCall(`{"path":"/b","n":1.0,"force":true}`),
			"another tool": func() approval.Call {
				c := toolCall("")
				c.Message = message("write_file", `{"path":"/b","n":1.0}`)
				return c
			}(),
			"another server": func() approval.Call { c := toolCall(`{"path":"/b","n":1.0}`); c.Upstream = "mail"; return c }(),
			"another agent": func() approval.Call {
				c := toolCall(`{"path":"/b","n":1.0}`)
				c.Owner, c.Principal.ID = "ben", "ben"
				return c
			}(),
			"an owner like it": func() approval.Call { c := toolCall(`{"path":"/b","n":1.0}`); c.Owner = "ben"; return c }(),
			"more beside": func() approval.Call {
				c := toolCall("")
				c.Message = withMembers("delete_file", `{"path":"/b","n":1.0},"x":1`)
				return c
			}(),
		} {
			held, _, err := o.Hold(t.Context(), other)
			if err != nil || held.State == task.Approved {
				t.Errorf("%s: %s, %v", name, held.State, err)
			}
		}
		second := o.hold(t, toolCall(`{"n":1.0, "path":"\/b"}`))
		mustState(t, second, task.Approved)
		if by := second.Approval.Approvals; len(by) != 1 || by[0].By != "alice" || by[0].Grant != made.Grant {
			t.Errorf("approved by %+v", by)
		}
		mustState(t, o.finish(t, second), task.Completed)
		mustState(t, o.hold(t, toolCall(`{"path":"/b","n":1.0}`)), task.InputRequired)
		if runs := o.upstream.entries(); len(runs) != 1 || !strings.Contains(runs[0], `"\/b"`) {
			t.Errorf("ran %q", runs)
		}
		g, err := o.views.Grant(t.Context(), made.Grant)
		if err != nil || g.State != review.GrantSpent || g.MaxUses != 1 || g.From != asked.ID || !g.Until.Equal(after.ExpiresAt) {
			t.Errorf("grant %+v, %v", g, err)
		}
	})
}

// withMembers returns a request with further members of params.
func withMembers(tool, arguments string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`)
}

// The journal has the correction and the rejection together.
func TestCorrectionIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		asked := o.hold(t, toolCall(`{"path":"/a"}`))
		r := o.correction(t, asked.ID, `{"path":"/b"}`)
		r.Via = gatetask.Via{Kind: gatetask.ViaInbox, Login: "session"}
		after, err := o.Decide(t.Context(), asked.ID, alice, r)
		if err != nil {
			t.Fatal(err)
		}
		all, err := o.views.History(t.Context(), asked.ID)
		if err != nil || len(all) < 2 {
			t.Fatal(all, err)
		}
		granted, decided := all[len(all)-2], all[len(all)-1]
		second := o.hold(t, toolCall(`{"path":"/b"}`))
		if granted.Step != string(approval.Granted) || granted.Grant != after.Approval.Rejection.Correction.Grant || granted.Approver != "alice" ||
			granted.Via != r.Via || granted.ArgumentDigest != second.CallDigest() || granted.To != "" {
			t.Errorf("granted %+v", granted)
		}
		if decided.Step != string(approval.Decided) || decided.Outcome != string(approval.Reject) || decided.To != task.Rejected || decided.ArgumentDigest != asked.CallDigest() {
			t.Errorf("decided %+v", decided)
		}
		if o.count(approval.Granted) != 1 || o.count(approval.Decided) != 1 {
			t.Error("not observed once")
		}
	})
}

// A correction needs all that an approval needs. If something is missing, nothing is decided.
func TestCorrectionIsRefused(t *testing.T) {
	byAgent := gatetask.Via{Kind: gatetask.ViaAPI, Login: "token", FromAgent: gatetask.FromAgentYes}
	var refused *review.NoCorrectionError
	type attempt struct {
		call approval.Call
		who  approval.Approver
		r    approval.Ruling
	}
	for name, tt := range map[string]struct {
		change func(*fixture, *attempt)
		want   error // nil means a NoCorrectionError
	}{
		"by nobody of the workflow": {func(_ *fixture, a *attempt) { a.who = approval.Approver{Name: "eve"} }, approval.ErrForbidden},
		"by a rejecter": {func(o *fixture, a *attempt) {
			o.setWorkflow("ops", approval.Workflow{})
			a.who = approval.Approver{Name: "rob", Roles: []string{"rejecter"}}
		}, approval.ErrOnlyRejects},
		"by the requester":  {func(_ *fixture, a *attempt) { a.call.Owner, a.call.Principal.ID = "alice", "alice" }, lifecycle.ErrSelfApproval},
		"by an agent":       {func(_ *fixture, a *attempt) { a.r.Via = byAgent }, approval.ErrDecidedByAgent},
		"unseen":            {func(_ *fixture, a *attempt) { a.r.Shown = "" }, nil},
		"of another view":   {func(_ *fixture, a *attempt) { a.r.Shown = "0123" }, review.ErrViewChanged},
		"without a passkey": {func(o *fixture, _ *attempt) { o.setWorkflow("ops", approval.Workflow{Passkey: true}) }, approval.ErrPasskeyRequired},
		"with a quorum":     {func(o *fixture, _ *attempt) { o.setWorkflow("ops", approval.Workflow{Quorum: 2}) }, nil},
		"unread":            {func(_ *fixture, a *attempt) { a.r.Unread = 1 }, nil},
		"of a hidden value": {func(_ *fixture, a *attempt) { a.call.Message = message("delete_file", `{"password":"x"}`) }, nil},
		"to a hidden value": {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value(`{"password":"[redacted]"}`) }, nil},
		"of a resource": {func(_ *fixture, a *attempt) {
			a.call.Message = []byte(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a"}}`)
		}, nil},
		"of shared owners":    {func(_ *fixture, a *attempt) { a.call.SharedOwner = true }, nil},
		"to the same call":    {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value(`{ "path": "\u002fa" }`) }, nil},
		"to nothing":          {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value("") }, nil},
		"to null":             {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value("null") }, nil},
		"to a list":           {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value(`["/b"]`) }, nil},
		"to broken JSON":      {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value(`{"path":"/b"`) }, nil},
		"to two objects":      {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value(`{"path":"/b"} {}`) }, nil},
		"to two values":       {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value(`{"path":"/b","path":"/c"}`) }, nil},
		"to other members":    {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value(`{"path":"/b"},"_meta":{"x":1}`) }, nil},
		"to another message":  {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value(`{"path":"/b"}},"z":{"y":{}`) }, nil},
		"to invalid UTF-8":    {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value("{\"path\":\"\xff\"}") }, nil},
		"to half a character": {func(_ *fixture, a *attempt) { a.r.Correction = jsontext.Value(`{"path":"\ud800"}`) }, nil},
		"too long": {func(_ *fixture, a *attempt) {
			a.r.Correction = jsontext.Value(`{"path":"` + strings.Repeat("b", review.MaxCorrection) + `"}`)
		}, nil},
		"too long in escapes": {func(_ *fixture, a *attempt) {
			a.r.Correction = jsontext.Value(`{"path":"` + strings.Repeat("\u202e", review.MaxCorrection/4) + `"}`)
		}, nil},
		"with an approval":   {func(_ *fixture, a *attempt) { a.r.Decision = approval.Approve }, nil},
		"policy denies it":   {func(o *fixture, _ *attempt) { o.rule(policy.Verdict{Action: policy.Deny}) }, nil},
		"policy asks others": {func(o *fixture, _ *attempt) { o.rule(policy.Verdict{Action: policy.Approve, Workflow: "finance"}) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				a := attempt{call: toolCall(`{"path":"/a"}`), who: alice}
				probe := a
				tt.change(o, &probe) // the call and the configuration
				asked := o.hold(t, probe.call)
				a.r = o.correction(t, asked.ID, `{"path":"/b"}`)
				tt.change(o, &a)
				_, err := o.Decide(t.Context(), asked.ID, a.who, a.r)
				switch {
				case name == "unseen":
					mustBe(t, err, review.ErrNotShown)
				case tt.want != nil:
					mustBe(t, err, tt.want)
				case !errors.As(err, &refused):
					t.Errorf("err = %v", err)
				}
				mustState(t, o.now(t, asked.ID), task.InputRequired)
				if all, err := o.views.Grants(t.Context(), true); err != nil || len(all) != 0 {
					t.Errorf("grants %+v, %v", all, err)
				}
				if _, err := o.decide(t.Context(), asked.ID, alice, approval.Reject, "no"); err != nil {
					t.Errorf("reject without a correction: %v", err)
				}
			})
		})
	}
}

// The requester gives a correction where they may approve.
func TestRequesterCorrectsWithSelfApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.setWorkflow("ops", approval.Workflow{SelfApproval: true})
		c := toolCall(`{"path":"/a"}`)
		c.Owner, c.Principal.ID = "alice", "alice"
		asked := o.hold(t, c)
		if _, err := o.correct(t, asked.ID, alice, `{"path":"/b"}`); err != nil {
			t.Fatal(err)
		}
		c.Message = message("delete_file", `{"path":"/b"}`)
		second := o.hold(t, c)
		mustState(t, second, task.Approved)
		o.setWorkflow("ops", approval.Workflow{})
		after, err := o.Contact(t.Context(), mine(second), o.upstream.send)
		if err != nil {
			t.Fatal(err)
		}
		mustState(t, after, task.Failed)
	})
}

// The present policy, workflow and tool count when the corrected call is made and when it runs.
func TestCorrectedCallNeedsCurrentPolicy(t *testing.T) {
	for name, change := range map[string]func(o *fixture){
		"policy denies":    func(o *fixture) { o.rule(policy.Verdict{Action: policy.Deny}) },
		"another workflow": func(o *fixture) { o.rule(policy.Verdict{Action: policy.Approve, Workflow: "brief"}) },
		"higher quorum":    func(o *fixture) { o.setWorkflow("ops", approval.Workflow{Quorum: 2}) },
		"other approvers":  func(o *fixture) { o.setWorkflow("ops", approval.Workflow{Approvers: []string{"bob"}}) },
		"passkeys":         func(o *fixture) { o.setWorkflow("ops", approval.Workflow{Passkey: true}) },
		"the time is over": func(*fixture) { time.Sleep(23 * time.Hour) },
		"it is revoked": func(o *fixture) {
			all, _ := o.views.Grants(context.Background(), true)
			_, _ = o.Revoke(context.Background(), all[0].ID, bob, "")
		},
	} {
		for _, early := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := open(t, nil)
					asked := o.hold(t, toolCall(`{"path":"/a"}`))
					if _, err := o.correct(t, asked.ID, alice, `{"path":"/b"}`); err != nil {
						t.Fatal(err)
					}
					c := toolCall(`{"path":"/b"}`)
					if early {
						change(o)
					}
					second, _, err := o.Hold(t.Context(), c)
					if err != nil {
						t.Fatal(err)
					}
					if !early {
						mustState(t, second, task.Approved)
						change(o)
					}
					if second.State == task.Approved {
						_, _ = o.Contact(t.Context(), mine(second), o.upstream.send)
						synctest.Wait()
					}
					if runs := o.upstream.entries(); len(runs) != 0 {
						t.Errorf("ran %q", runs)
					}
				})
			})
		}
	}
}

// If the tool has changed since the correction, approvers are asked again.
func TestCorrectionIsForOneDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		asked := o.hold(t, toolCall(`{"path":"/a"}`))
		if _, err := o.correct(t, asked.ID, alice, `{"path":"/b"}`); err != nil {
			t.Fatal(err)
		}
		c := toolCall(`{"path":"/b"}`)
		c.Tool.Digest = "v2-0012"
		mustState(t, o.hold(t, c), task.InputRequired)
	})
}

// With a validity of approvals, the corrected call must be made within it.
func TestCorrectionEndsWithValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.setWorkflow("ops", approval.Workflow{Validity: time.Minute})
		asked := o.hold(t, toolCall(`{"path":"/a"}`))
		after, err := o.correct(t, asked.ID, alice, `{"path":"/b"}`)
		if err != nil || !after.Approval.Rejection.NewGrant.Until.Equal(time.Now().Add(time.Minute)) {
			t.Fatalf("%+v, %v", after.Approval, err)
		}
		time.Sleep(time.Minute + time.Second)
		mustState(t, o.hold(t, toolCall(`{"path":"/b"}`)), task.InputRequired)
	})
}

// Of two decisions, one counts. The other leaves no approval.
func TestCorrectionLosesRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			o := open(t, nil)
			asked := o.hold(t, toolCall(`{"path":"/a"}`))
			r := o.correction(t, asked.ID, `{"path":"/b"}`)
			n := together(
				func() error { _, err := o.Decide(t.Context(), asked.ID, alice, r); return err },
				func() error {
					_, err := o.decide(t.Context(), asked.ID, approval.Approver{Name: "carol"}, approval.Reject, "no")
					return err
				},
				func() error {
					_, err := o.Decide(t.Context(), asked.ID, approval.Approver{Name: "carol"}, r)
					return err
				},
			)
			if n != 1 {
				t.Fatalf("%d decisions counted", n)
			}
			corrected := o.now(t, asked.ID).Approval.Rejection.Correction != nil
			if now := o.hold(t, toolCall(`{"path":"/b"}`)); corrected != (now.State == task.Approved) {
				t.Fatalf("corrected %t, the corrected call is %s", corrected, now.State)
			}
			if active, err := o.views.Grants(t.Context(), false); err != nil || len(active) > 0 {
				t.Errorf("grants %+v, %v", active, err)
			}
		}
	})
}

// Repeating a correction whose answer was lost changes nothing.
func TestRepeatedCorrection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		asked := o.hold(t, toolCall(`{"path":"/a"}`))
		r := o.correction(t, asked.ID, `{"path":"/b"}`)
		if _, err := o.Decide(t.Context(), asked.ID, alice, r); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Decide(t.Context(), asked.ID, alice, r); err == nil {
			t.Error("it counted twice")
		}
		if all, err := o.views.Grants(t.Context(), true); err != nil || len(all) != 1 {
			t.Errorf("grants %+v, %v", all, err)
		}
	})
}

// A value that is hidden since the decision is not shown in the correction either.
func TestCorrectionIsRedactedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		asked := o.hold(t, toolCall(`{"pin":"1234"}`))
		if _, err := o.correct(t, asked.ID, alice, `{"pin":"9876"}`); err != nil {
			t.Fatal(err)
		}
		o.setWorkflow("ops", approval.Workflow{Redact: []string{"arguments.pin"}})
		shown, err := o.views.ShowAll(t.Context(), asked.ID)
		if err != nil || string(shown.Rejection.Correction.Arguments) != `{"pin":"[redacted]"}` {
			t.Errorf("shown %+v, %v", shown.Rejection, err)
		}
	})
}

// With passkeys, a correction counts with the approver's signature over the corrected call, and the
// journal shows it without the gate.
func TestPasskeyConfirmsCorrection(t *testing.T) {
	o := openConfirmed(t, approval.Workflow{})
	asked := o.hold(t, toolCall(`{"path":"/a"}`))
	r := o.correction(t, asked.ID, `{"path":"/b"}`)
	r.Site = inbox
	for name, signed := range map[string]approval.Ruling{
		"for the rejected call": o.signed(asked.ID, alice, o.ruling(asked.ID)),
		"for other arguments":   o.signed(asked.ID, alice, o.correction(t, asked.ID, `{"path":"/c"}`)),
		"of another approver":   o.signed(asked.ID, bob, r),
	} {
		wrong := r
		wrong.Signed = signed.Signed
		if _, err := o.Decide(t.Context(), asked.ID, alice, wrong); !errors.Is(err, approval.ErrPasskeyInvalid) {
			t.Errorf("a signature %s: %v", name, err)
		}
	}
	misused := o.ruling(asked.ID)
	misused.Signed = o.signed(asked.ID, alice, r).Signed
	if _, err := o.Decide(t.Context(), asked.ID, alice, misused); !errors.Is(err, approval.ErrPasskeyInvalid) {
		t.Errorf("the signature of a correction approves the call itself: %v", err)
	}
	if _, err := o.Decide(t.Context(), asked.ID, alice, o.signed(asked.ID, alice, r)); err != nil {
		t.Fatal(err)
	}
	second := o.hold(t, toolCall(`{"path":"/b"}`))
	mustState(t, second, task.Approved)
	mustState(t, o.finish(t, second), task.Completed)
	o.verifyJournal(t, 1)
}

// Somebody who edits the store does not let calls run that no approver has signed.
func TestEditedCorrectionDoesNotRun(t *testing.T) {
	for name, change := range map[string]func(*grantstore.Grant){
		"":                func(*grantstore.Grant) {},
		"more uses":       func(g *grantstore.Grant) { g.MaxUses = 2 },
		"more time":       func(g *grantstore.Grant) { g.Until = g.Until.Add(time.Second) },
		"a free argument": func(g *grantstore.Grant) { g.Free = []string{"path"} },
		"by another":      func(g *grantstore.Grant) { g.By[0].By = "bob" },
		"unsigned":        func(g *grantstore.Grant) { g.By[0].Passkey = nil },
		"of another call": func(g *grantstore.Grant) { g.From = "other" },
		"a plain retry":   func(g *grantstore.Grant) { g.Correction = false },
	} {
		t.Run(name, func(t *testing.T) {
			o := openConfirmed(t, approval.Workflow{})
			asked := o.hold(t, toolCall(`{"path":"/a"}`))
			r := o.correction(t, asked.ID, `{"path":"/b"}`)
			r.Site = inbox
			if _, err := o.Decide(t.Context(), asked.ID, alice, o.signed(asked.ID, alice, r)); err != nil {
				t.Fatal(err)
			}
			editGrant(t, o.store, change)
			second := o.hold(t, toolCall(`{"path":"/b"}`))
			if name == "" {
				mustState(t, o.finish(t, second), task.Completed)
				return
			}
			mustState(t, second, task.InputRequired)
		})
	}
}

// verifyJournal verifies the journal, which has the given number of signatures.
func (o *fixture) verifyJournal(t *testing.T, signatures int) {
	t.Helper()
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
	if err != nil || !report.OK() || report.Signatures != signatures {
		t.Errorf("%+v, %v", report, err)
	}
}

// A dyingStore fails from its nth change on, as if its gate had been killed.
type dyingStore struct {
	gatestore.Store

	left atomic.Int64
}

var errKilled = errors.New("killed")

func (s *dyingStore) change(do func() error) error {
	if s.left.Add(-1) < 0 {
		return errKilled
	}
	return do()
}

func (s *dyingStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	return s.change(func() error { return s.Store.Swap(ctx, t, notes...) })
}

func (s *dyingStore) PutRecord(ctx context.Context, r gatestore.Record) error {
	return s.change(func() error { return s.Store.PutRecord(ctx, r) })
}

func (s *dyingStore) Append(ctx context.Context, notes ...task.Note) error {
	return s.change(func() error { return s.Store.Append(ctx, notes...) })
}

// Wherever the gate dies during a correction, no corrected call is approved without a recorded
// rejection, and a call is never approved where the decision failed.
func TestGateDiesDuringCorrection(t *testing.T) {
	for changes := range int64(5) {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Options{})
			defer store.Close()
			dying := &dyingStore{Store: store}
			dying.left.Store(100)
			o := branch(t, dying, nil)
			asked := o.hold(t, toolCall(`{"path":"/a"}`))
			r := o.correction(t, asked.ID, `{"path":"/b"}`)
			dying.left.Store(changes)
			_, err := o.Decide(t.Context(), asked.ID, alice, r)
			if (err == nil) != (changes >= 3) {
				t.Errorf("after %d changes: %v", changes, err)
			}
			other := branch(t, store, nil)
			was := other.now(t, asked.ID)
			if rejected := changes >= 2; rejected != (was.State == task.Rejected) || rejected != (was.Approval.Rejection != nil && was.Approval.Rejection.Correction != nil) {
				t.Errorf("after %d changes the call is %s", changes, was.State)
			}
			history, err := other.views.History(t.Context(), asked.ID)
			granted := slices.ContainsFunc(history, func(e auditlog.Entry) bool { return e.Step == string(approval.Granted) })
			if err != nil || granted != (changes >= 2) {
				t.Errorf("after %d changes the journal has the grant: %t, %v", changes, granted, err)
			}
			now := other.hold(t, toolCall(`{"path":"/b"}`))
			if approved := now.State == task.Approved; approved != (changes >= 3) {
				t.Errorf("after %d changes the corrected call is %s", changes, now.State)
			}
			if was.State == task.InputRequired { // the approver tries again
				if _, err := other.correct(t, asked.ID, alice, `{"path":"/c"}`); err != nil {
					t.Error(err)
				}
				mustState(t, other.hold(t, toolCall(`{"path":"/c"}`)), task.Approved)
			}
		})
	}
}

// A correction counts if the store has recorded it without an answer, and although the approver
// has left.
func TestLostAnswerToCorrection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, func(c *approval.Config) {
			c.Store = &lossyStore{Store: c.Store, loses: func(t task.Task) bool { return t.State == task.Rejected }}
		})
		asked := o.hold(t, toolCall(`{"path":"/a"}`))
		if after, err := o.correct(t, asked.ID, alice, `{"path":"/b"}`); err != nil || after.State != task.Rejected {
			t.Errorf("%s, %v", after.State, err)
		}
		mustState(t, o.hold(t, toolCall(`{"path":"/b"}`)), task.Approved)
	})
}

// A replica of an earlier version does not use the grant of a correction, and does not read its
// rejection.
func TestEarlierVersionRefusesCorrection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		asked := o.hold(t, toolCall(`{"path":"/a"}`))
		after, err := o.correct(t, asked.ID, alice, `{"path":"/b"}`)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := storekit.Encode(after)
		if err != nil || !strings.Contains(string(stored), `"correction":{"arguments":{"path":"/b"}`) {
			t.Errorf("stored %s, %v", stored, err)
		}
		again, err := storekit.Decode(stored)
		if diff := cmp.Diff(after, again); err != nil || diff != "" {
			t.Errorf("%v: %s", err, diff)
		}
		record, err := o.store.GetRecord(t.Context(), "grant/"+string(after.Approval.Rejection.Correction.Grant))
		if err != nil || !strings.Contains(string(record.Value), `"correction":true`) {
			t.Errorf("record %s, %v", record.Value, err)
		}
	})
}
