package approval_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// Only approvers of the workflow may decide. Requesters may decide only with self-approval.
func TestDecideWho(t *testing.T) {
	tests := map[string]struct {
		workflow string
		who      approval.Approver
		want     error
	}{
		"named":                          {"ops", alice, nil},
		"in a group":                     {"ops", bob, nil},
		"not named":                      {"ops", approval.Approver{Name: "mallory"}, approval.ErrForbidden},
		"in another group":               {"ops", approval.Approver{Name: "mallory", Groups: []string{"alice", "ops"}}, approval.ErrForbidden},
		"named like a group":             {"ops", approval.Approver{Name: "group:oncall"}, approval.ErrForbidden},
		"in a group named like an entry": {"ops", approval.Approver{Name: "mallory", Groups: []string{"group:oncall"}}, approval.ErrForbidden},
		"in a role":                      {"admins", approval.Approver{Name: "mallory", Roles: []string{"approver", "admin"}}, nil},
		"in another role":                {"admins", approval.Approver{Name: "mallory", Roles: []string{"approver"}, Groups: []string{"admin"}}, approval.ErrForbidden},
		"named like a role":              {"admins", approval.Approver{Name: "role:admin"}, approval.ErrForbidden},
		"no name":                        {"ops", approval.Approver{Groups: []string{"oncall"}}, approval.ErrForbidden},
		"no name, open workflow":         {"two", approval.Approver{}, approval.ErrForbidden},
		"open workflow":                  {"two", approval.Approver{Name: "mallory"}, nil},
		"requester":                      {"ops", approval.Approver{Name: "requester"}, lifecycle.ErrSelfApproval},
		"owner of the task":              {"two", approval.Approver{Name: "session 1"}, lifecycle.ErrSelfApproval},
		"requester in another case":      {"two", approval.Approver{Name: "Requester"}, lifecycle.ErrSelfApproval},
		"requester as alias":             {"two", approval.Approver{Name: "rita", Aliases: []string{"Requester"}}, lifecycle.ErrSelfApproval},
		"alias of the requester":         {"two", approval.Approver{Name: "r@example.com"}, lifecycle.ErrSelfApproval},
		"alias on both sides":            {"two", approval.Approver{Name: "rita", Aliases: []string{"R@example.com"}}, lifecycle.ErrSelfApproval},
		"empty alias on both sides":      {"two", approval.Approver{Name: "mallory", Aliases: []string{""}}, nil},
		"requester with self-approval":   {"self", approval.Approver{Name: "requester"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := open(t, nil)
			c := call("session 1", "/a")
			c.Principal = policy.Principal{ID: "requester", Aliases: []string{"r@example.com", ""}}
			c.Verdict.Workflow = tt.workflow
			got := o.hold(t, c)
			_, err := o.decide(t.Context(), got.ID, tt.who, approval.Approve, "")
			if tt.want == nil && err != nil {
				t.Fatal(err)
			}
			if tt.want != nil {
				mustBe(t, err, tt.want)
				mustState(t, o.now(t, got.ID), task.InputRequired)
			}
		})
	}
}

// A rejecter rejects where approvers decide, unless the workflow names others, and never approves.
func TestRejecterOnlyRejects(t *testing.T) {
	bot := approval.Approver{Name: "bot", Roles: []string{"viewer", "rejecter"}}
	for workflow, mayReject := range map[string]bool{"two": true, "approvers": true, "ops": false, "admins": false} {
		t.Run(workflow, func(t *testing.T) {
			o := open(t, nil)
			o.setWorkflow("approvers", approval.Workflow{Approvers: []string{"role:approver"}})
			c := call("session 1", "/a")
			c.Verdict.Workflow = workflow
			got := o.hold(t, c)
			_, err := o.decide(t.Context(), got.ID, bot, approval.Approve, "")
			mustBe(t, err, approval.ErrForbidden)
			mustState(t, o.now(t, got.ID), task.InputRequired)
			if errors.Is(err, approval.ErrOnlyRejects) != mayReject {
				t.Errorf("approve: %v", err)
			}
			if _, err = o.decide(t.Context(), got.ID, bot, approval.Reject, ""); !mayReject {
				mustBe(t, err, approval.ErrForbidden)
				return
			}
			mustBe(t, err, nil)
			mustState(t, o.now(t, got.ID), task.Rejected)
		})
	}
}

// Requesters may approve their own calls if self-approval was allowed when the call was held
// and is allowed now.
func TestDecideSelfApprovalWithdrawn(t *testing.T) {
	o := open(t, nil)
	c := call("ann", "/a")
	c.Verdict.Workflow = "self"
	held := o.hold(t, c)
	for _, w := range []approval.Workflow{{}, {SelfApproval: true}} {
		o.setWorkflow("self", w)
		_, err := o.decide(t.Context(), held.ID, approval.Approver{Name: "ann"}, approval.Approve, "")
		if w.SelfApproval != (err == nil) {
			t.Errorf("with %+v: %v", w, err)
		}
	}
}

// A removed workflow has no approvers.
func TestDecideWithoutWorkflow(t *testing.T) {
	o := open(t, nil)
	got := o.hold(t, call("ann", "/a"))
	o.mu.Lock()
	delete(o.workflows, "ops")
	o.mu.Unlock()
	_, err := o.decide(t.Context(), got.ID, alice, approval.Approve, "")
	mustBe(t, err, approval.ErrForbidden)
}

// Two approvers who may be the same person count once, in any order of their credentials.
func TestDecideQuorumOfDistinctPeople(t *testing.T) {
	login := approval.Approver{Name: "alice@example.com", Aliases: []string{"00u1", "alice"}}
	for name, both := range map[string][2]approval.Approver{
		"in another case":                {alice, {Name: "Alice"}},
		"a token and a login":            {alice, login},
		"a login and a token":            {login, alice},
		"aliases in common":              {login, {Name: "a.smith", Aliases: []string{"00U1"}}},
		"name among the other's aliases": {{Name: "ALICE@example.com"}, login},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, nil)
			c := call("ann", "/a")
			c.Verdict.Workflow = "two"
			held := o.hold(t, c)
			if _, err := o.decide(t.Context(), held.ID, both[0], approval.Approve, ""); err != nil {
				t.Fatal(err)
			}
			_, err := o.decide(t.Context(), held.ID, both[1], approval.Approve, "")
			mustBe(t, err, lifecycle.ErrAlreadyDecided)
			mustState(t, o.now(t, held.ID), task.InputRequired)
			seen, err := o.views.Details(t.Context(), held.ID, o.Objection(both[1]))
			if err != nil {
				t.Fatal(err)
			}
			mustBe(t, seen.Objection, lifecycle.ErrAlreadyDecided)
		})
	}
}

// A quorum needs different approvers, and one rejection is final.
func TestDecideQuorum(t *testing.T) {
	o := open(t, nil)
	c := call("ann", "/a")
	c.Verdict.Workflow = "two"
	got := o.hold(t, c)
	after, err := o.decide(t.Context(), got.ID, alice, approval.Approve, "")
	if err != nil {
		t.Fatal(err)
	}
	mustState(t, after, task.InputRequired)
	_, err = o.decide(t.Context(), got.ID, alice, approval.Approve, "again")
	mustBe(t, err, lifecycle.ErrAlreadyDecided)
	after, err = o.decide(t.Context(), got.ID, bob, approval.Approve, "")
	if err != nil {
		t.Fatal(err)
	}
	mustState(t, after, task.Approved)

	c.Message = message("delete_file", `{"path":"/b"}`)
	got = o.hold(t, c)
	o.approve(t, got.ID)
	after, err = o.decide(t.Context(), got.ID, bob, approval.Reject, "no")
	if err != nil {
		t.Fatal(err)
	}
	mustState(t, after, task.Rejected) // one rejection is enough
}

// A decision that comes too late fails with the reason and changes nothing. A rejected call
// stays rejected.
func TestLateDecisionChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		again := func(held task.Task, want error, state task.State) {
			t.Helper()
			for _, what := range []approval.Decision{approval.Approve, approval.Reject} {
				_, err := o.decide(t.Context(), held.ID, carol, what, "")
				mustBe(t, err, want)
			}
			o.Contact(t.Context(), mine(held), o.upstream.send)
			synctest.Wait()
			mustState(t, o.now(t, held.ID), state)
		}
		rejected := o.hold(t, call("ann", "/rejected"))
		o.decide(t.Context(), rejected.ID, alice, approval.Reject, "no")
		again(rejected, task.ErrAlreadyTerminal, task.Rejected)

		cancelled := o.hold(t, call("ann", "/cancelled"))
		o.Cancel(t.Context(), mine(cancelled), approval.Withdrawal{By: "ann"})
		again(cancelled, task.ErrAlreadyTerminal, task.Cancelled)

		overdue := o.hold(t, call("ann", "/overdue"))
		pass(15*time.Minute + time.Second)
		again(overdue, task.ErrExpired, task.Expired)
		if runs := o.upstream.entries(); len(runs) != 0 {
			t.Errorf("ran %v", runs)
		}

		approved := o.hold(t, call("ann", "/approved"))
		o.approve(t, approved.ID)
		for _, what := range []approval.Decision{approval.Approve, approval.Reject} {
			_, err := o.decide(t.Context(), approved.ID, carol, what, "")
			mustBe(t, err, task.ErrInvalidTransition)
		}
		mustState(t, o.now(t, approved.ID), task.Approved)
	})
}

func TestDecideRefusesInvalidRuling(t *testing.T) {
	o := open(t, nil)
	got := o.hold(t, call("ann", "/a"))
	_, err := o.decide(t.Context(), got.ID, alice, "maybe", "")
	mustBe(t, err, task.ErrInvalid)
	_, err = o.decide(t.Context(), task.NewID(time.Now()), alice, approval.Approve, "")
	mustBe(t, err, task.ErrNotFound)
	mustState(t, o.now(t, got.ID), task.InputRequired)
}

// Only a limited number of visible characters of an approver's reason is stored.
func TestDecideReason(t *testing.T) {
	o := open(t, nil)
	got := o.hold(t, call("ann", "/a"))
	reason := " no\x1b[31m\u202e \xff way\n" + strings.Repeat("ü", 1000)
	after, err := o.decide(t.Context(), got.ID, alice, approval.Reject, reason)
	if err != nil {
		t.Fatal(err)
	}
	want := "no[31m \uFFFD way\n" + strings.Repeat("ü", 486) + "…"
	if diff := cmp.Diff(want, after.Approval.Rejection.Reason); diff != "" {
		t.Error(diff)
	}
}

// lastEntry returns the last entry of the journal.
func (o *fixture) lastEntry(t *testing.T) auditlog.Entry {
	t.Helper()
	all, err := o.store.Entries(t.Context(), auditlog.Query{Limit: 1000})
	if err != nil || len(all) == 0 {
		t.Fatalf("the journal has %d entries: %v", len(all), err)
	}
	return all[len(all)-1]
}

// A program that an agent has started cannot approve with a token, and neither can one that does
// not wait to be identified. It can reject. The journal has every attempt. A browser that an agent
// has started can belong to a person.
func TestAgentCannotApproveByToken(t *testing.T) {
	for name, tt := range map[string]struct {
		login   string
		from    gatetask.FromAgent
		gone    bool
		allowed bool // by the workflow
		refused bool
	}{
		"of an agent":                 {"token", gatetask.FromAgentYes, false, false, true},
		"of an agent, allowed":        {"token", gatetask.FromAgentYes, false, true, false},
		"of an agent, in a browser":   {"session", gatetask.FromAgentYes, false, false, false},
		"of a person":                 {"token", gatetask.FromAgentNo, false, false, false},
		"unknown":                     {"token", gatetask.FromAgentUnknown, false, false, false},
		"does not wait":               {"token", gatetask.FromAgentUnknown, true, false, true},
		"does not wait, allowed":      {"token", gatetask.FromAgentUnknown, true, true, false},
		"does not wait, in a browser": {"session", gatetask.FromAgentUnknown, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, nil)
			o.setWorkflow("ops", approval.Workflow{AgentApproval: tt.allowed})
			held := o.hold(t, call("ann", "/a"))
			r := approval.Ruling{Decision: approval.Approve, Via: gatetask.Via{Kind: gatetask.ViaAPI, Login: tt.login, PID: 7, FromAgent: tt.from}, SenderGone: tt.gone}
			shown, err := o.views.ShowAll(t.Context(), held.ID)
			if err != nil {
				t.Fatal(err)
			}
			r.Shown = shown.ShownDigest
			_, err = o.Decide(t.Context(), held.ID, alice, r)
			if !tt.refused {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustBe(t, err, approval.ErrDecidedByAgent)
			mustState(t, o.now(t, held.ID), task.InputRequired)
			if last := o.lastEntry(t); last.Step != string(approval.Refused) || last.Outcome != approval.DecidedByAgent || last.Approver != "alice" || last.Via != r.Via {
				t.Errorf("the journal has %+v", last)
			}
			r.Decision = approval.Reject
			if _, err := o.Decide(t.Context(), held.ID, alice, r); err != nil {
				t.Errorf("reject: %v", err)
			}
		})
	}
}

// An agent cannot make policy trust a changed tool.
func TestAgentCannotAcceptChange(t *testing.T) {
	o := open(t, nil)
	r := approval.Ruling{Via: gatetask.Via{Kind: gatetask.ViaAPI, Login: "token", FromAgent: gatetask.FromAgentYes}}
	_, err := o.AcceptChange(t.Context(), "0123", alice, r)
	mustBe(t, err, approval.ErrDecidedByAgent)
	if last := o.lastEntry(t); last.Step != string(approval.Refused) || !strings.Contains(last.Reason, "0123") || last.Via != r.Via {
		t.Errorf("the journal has %+v", last)
	}
}

// Only an authenticated approver can approve. The task id and everything else that an agent
// knows are not enough, even for the owner of the task.
func TestAgentCannotDecide(t *testing.T) {
	o := open(t, nil)
	c := call("alice", "/a") // an agent with the name of an approver
	got := o.hold(t, c)
	for _, name := range []string{"alice", string(got.ID), "", "group:oncall"} {
		if _, err := o.decide(t.Context(), got.ID, approval.Approver{Name: name}, approval.Approve, ""); err == nil {
			t.Errorf("%q approved", name)
		}
	}
	if _, err := o.SetVariables(t.Context(), mine(got), task.Variables{"server.approval": []byte(`{"state":"approved"}`)}); err == nil {
		t.Error("the agent set a variable of the gate")
	}
	mustState(t, o.now(t, got.ID), task.InputRequired)
}

// The policy at the time of the run decides.
func TestRecheck(t *testing.T) {
	approve := func(workflow string) policy.Verdict {
		return policy.Verdict{Action: policy.Approve, Workflow: workflow}
	}
	tests := map[string]struct {
		change    func(*fixture)
		runs      bool
		stage     task.Stage
		retriable bool
	}{
		"unchanged":        {func(*fixture) {}, true, "", false},
		"now forwarded":    {func(o *fixture) { o.rule(policy.Verdict{Action: policy.Forward}) }, true, "", false},
		"now denied":       {func(o *fixture) { o.rule(policy.Verdict{Action: policy.Deny}) }, false, lifecycle.StagePolicyDrift, false},
		"no verdict":       {func(o *fixture) { o.rule(policy.Verdict{}) }, false, lifecycle.StagePolicyDrift, false},
		"another workflow": {func(o *fixture) { o.rule(approve("self")) }, false, lifecycle.StagePolicyDrift, true},
		"unknown workflow": {func(o *fixture) { o.rule(approve("nobody")) }, false, lifecycle.StagePolicyDrift, true},
		"a higher quorum":  {func(o *fixture) { o.setWorkflow("ops", approval.Workflow{Quorum: 2}) }, false, lifecycle.StagePolicyDrift, true},
		"no longer valid": {func(o *fixture) {
			o.setWorkflow("ops", approval.Workflow{Validity: time.Minute})
			pass(2 * time.Minute)
		}, false, lifecycle.StageUncollected, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				got := o.hold(t, call("ann", "/a"))
				o.approve(t, got.ID)
				tt.change(o)
				if _, err := o.Contact(t.Context(), mine(got), o.upstream.send); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if ran := len(o.upstream.entries()) == 1; ran != tt.runs {
					t.Fatalf("ran: %t; want %t", ran, tt.runs)
				}
				after := o.now(t, got.ID)
				if tt.runs {
					mustState(t, after, task.Completed)
					return
				}
				want := &task.Failure{Stage: tt.stage, Reason: after.Failure.Reason, Ran: task.RanNo, Retriable: tt.retriable}
				if diff := cmp.Diff(want, after.Failure); diff != "" {
					t.Error(diff)
				}
				_, attached, err := o.Hold(t.Context(), call("ann", "/a"))
				if err != nil || attached == tt.retriable {
					t.Errorf("repeated call: attached %t, %v", attached, err)
				}
			})
		})
	}
}

// A call that was forwarded as a task does not run once policy requires approval. A call that
// its requester approved does not run once self-approval is no longer allowed.
func TestRecheckStricter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		free := call("ann", "/a")
		free.Verdict = policy.Verdict{Action: policy.Forward}
		admitted := o.hold(t, free)
		mustState(t, admitted, task.Approved)

		own := call("ann", "/b")
		own.Verdict.Workflow = "self"
		approved := o.hold(t, own)
		if _, err := o.decide(t.Context(), approved.ID, approval.Approver{Name: "ann"}, approval.Approve, ""); err != nil {
			t.Fatal(err)
		}
		o.setWorkflow("self", approval.Workflow{})
		for _, held := range []task.Task{admitted, approved} {
			o.rule(policy.Verdict{Action: policy.Approve, Workflow: held.Workflow})
			after, err := o.Contact(t.Context(), mine(held), o.upstream.send)
			if err != nil {
				t.Fatal(err)
			}
			mustState(t, after, task.Failed)
		}
		synctest.Wait()
		if runs := o.upstream.entries(); len(runs) != 0 {
			t.Errorf("ran %v", runs)
		}
		if o.count(approval.NotRun) != 2 {
			t.Error("the step was not reported")
		}
	})
}

// An approval does not count if its approver is no longer one; the call does not run. Approvers
// count with the groups and roles that they had when they approved.
func TestRecheckApprovers(t *testing.T) {
	carol := approval.Approver{Name: "carol", Groups: []string{"night"}, Roles: []string{"viewer", "approver"}}
	for name, tt := range map[string]struct {
		approvers []string
		want      task.State
	}{
		"still an approver": {[]string{"carol", "dave"}, task.Completed},
		"open workflow":     {nil, task.Completed},
		"same group":        {[]string{"dave", "group:night"}, task.Completed},
		"same role":         {[]string{"role:approver"}, task.Completed},
		"another group":     {[]string{"dave", "group:oncall"}, task.Failed},
		"another role":      {[]string{"dave", "role:admin"}, task.Failed},
		"removed":           {[]string{"dave", "carol2"}, task.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				held := o.hold(t, call("ann", "/a"))
				if _, err := o.decide(t.Context(), held.ID, carol, approval.Approve, ""); err != nil {
					t.Fatal(err)
				}
				o.setWorkflow("ops", approval.Workflow{Approvers: tt.approvers})
				o.Contact(t.Context(), mine(held), o.upstream.send)
				synctest.Wait()
				mustState(t, o.now(t, held.ID), tt.want)
			})
		})
	}
}

// An approval by another name of the requester is a self-approval, also if self-approval is
// forbidden later.
func TestRecheckSelfApprovalUnderAlias(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		c := call("session 1", "/a")
		c.Principal, c.Verdict.Workflow = policy.Principal{ID: "sub-1"}, "self"
		held := o.hold(t, c)
		rita := approval.Approver{Name: "rita", Aliases: []string{"sub-1"}}
		if _, err := o.decide(t.Context(), held.ID, rita, approval.Approve, ""); err != nil {
			t.Fatal(err)
		}
		o.setWorkflow("self", approval.Workflow{})
		o.rule(policy.Verdict{Action: policy.Approve, Workflow: "self"})
		o.Contact(t.Context(), mine(held), o.upstream.send)
		synctest.Wait()
		mustState(t, o.now(t, held.ID), task.Failed)
	})
}

// Before the run, policy is asked about the held call and its requester.
func TestRecheckAsksAboutHeldCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		yes := true
		c := call("session 1", "/a")
		c.Principal = policy.Principal{ID: "ann", Groups: []string{"devs"}}
		c.Tool.Annotations = policy.Annotations{Destructive: &yes, Title: "Delete"}
		c.Session = policy.Session{Client: "agent", Version: "1", Protocol: "2025-11-25"}
		got := o.hold(t, c)
		o.approve(t, got.ID)
		var asked policy.Call
		o.policy = func(c policy.Call) policy.Verdict {
			asked = c
			return held
		}
		o.Contact(t.Context(), mine(got), o.upstream.send)
		synctest.Wait()
		want := policy.Call{
			Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: []byte(`{"path":"/a"}`),
			Principal: c.Principal, Annotations: c.Tool.Annotations, Session: c.Session, Time: asked.Time,
		}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Error(diff)
		}
	})
}

// A call whose stored message differs from the approved one does not run.
func TestRecheckTamperedMessage(t *testing.T) {
	for name, tamper := range map[string]func(*task.Task){
		"message":   func(x *task.Task) { x.Call.Message = strings.Replace(x.Call.Message, "/a", "/etc", 1) },
		"arguments": func(x *task.Task) { x.Call.Arguments = `{"path":"/etc"}` },
		"both": func(x *task.Task) {
			x.Call.Message = strings.Replace(x.Call.Message, "/a", "/etc", 1)
			x.Call.Arguments = `{"path":"/etc"}`
		},
		"tool":      func(x *task.Task) { x.Call.Name = "read_file" },
		"requester": func(x *task.Task) { x.Verdict.Facts = "{" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := open(t, nil)
				o.policy = func(c policy.Call) policy.Verdict {
					if c.Principal.ID == "" {
						return policy.Verdict{Action: policy.Deny}
					}
					return held
				}
				got := o.hold(t, call("ann", "/a"))
				stored := o.approve(t, got.ID)
				tamper(&stored)
				stored.Version++
				if err := o.store.Swap(t.Context(), stored); err != nil {
					t.Fatal(err)
				}
				after, err := o.Contact(t.Context(), mine(got), o.upstream.send)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				mustState(t, after, task.Failed)
				if runs := o.upstream.entries(); len(runs) != 0 {
					t.Errorf("ran %v", runs)
				}
			})
		})
	}
}

// With the real policy: if it becomes stricter while a call is pending, the call does not run;
// if it is relaxed, the call runs.
func TestRecheckWithSnapshots(t *testing.T) {
	snapshot := func(action policy.Action) *policy.Snapshot {
		t.Helper()
		workflow := ""
		if action == policy.Approve {
			workflow = "ops"
		}
		s, _, err := policy.Compile(policy.Config{
			Rules:     []policy.Rule{{Match: "delete_*", Action: action, Workflow: workflow, Principals: []string{"ann"}}},
			Default:   policy.Rule{Action: policy.Deny},
			Workflows: map[string]policy.Workflow{"ops": {Quorum: 1, Timeout: time.Minute}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for action, want := range map[policy.Action]task.State{
		policy.Approve: task.Completed, policy.Forward: task.Completed, policy.Deny: task.Failed,
	} {
		before, after := snapshot(policy.Approve), snapshot(action)
		synctest.Test(t, func(t *testing.T) {
			o := open(t, nil)
			o.policy = before.Judge
			c := call("ann", "/a")
			c.Verdict = o.policy(policy.Call{Upstream: "files", Method: "tools/call", Name: "delete_file", Principal: c.Principal})
			held := o.hold(t, c)
			o.approve(t, held.ID)
			o.policy = after.Judge
			if _, err := o.Contact(t.Context(), mine(held), o.upstream.send); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			mustState(t, o.now(t, held.ID), want)
			if ran := len(o.upstream.entries()) == 1; ran != (want == task.Completed) {
				t.Errorf("%s: ran %t", action, ran)
			}
		})
	}
}

// After a share of the time, the approvers of another workflow may decide too. Their earlier
// decisions do not count. If the configuration no longer has the escalation, their decisions do
// not count either.
func TestEscalation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.workflows["ops"] = approval.Workflow{
			Approvers: []string{"alice"}, Timeout: 10 * time.Minute,
			Escalate: policy.Escalation{After: 0.5, Approvers: []string{"group:managers"}},
		}
		manager := approval.Approver{Name: "mona", Groups: []string{"managers"}}
		got := o.hold(t, call("session 1", "/a"))
		time.Sleep(5*time.Minute - time.Second)
		_, err := o.decide(t.Context(), got.ID, manager, approval.Approve, "")
		mustBe(t, err, approval.ErrForbidden)
		time.Sleep(time.Second)
		for _, who := range []approval.Approver{{Name: "mallory"}, {Name: "managers"}, {Name: "session 1", Groups: []string{"managers"}}} {
			if _, err := o.decide(t.Context(), got.ID, who, approval.Approve, ""); err == nil {
				t.Errorf("%s may decide", who.Name)
			}
		}
		if c, err := o.views.Details(t.Context(), got.ID, o.Objection(manager)); err != nil || c.Objection != nil || !slices.Contains(c.Approvers, "group:managers") {
			t.Errorf("Show: %v, objection %v, approvers %v", err, c.Objection, c.Approvers)
		}
		if _, err := o.decide(t.Context(), got.ID, manager, approval.Approve, ""); err != nil {
			t.Fatal(err)
		}
		mustState(t, o.now(t, got.ID), task.Approved)
		after, err := o.Contact(t.Context(), mine(o.now(t, got.ID)), o.upstream.send)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if mustState(t, o.now(t, got.ID), task.Completed); after.ID != got.ID {
			t.Errorf("contact with %s", after.ID)
		}
	})
}

// An approval by an escalation approver does not count once the configuration no longer has
// that escalation.
func TestRecheckEscalation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		ops := approval.Workflow{Approvers: []string{"alice"}, Timeout: 10 * time.Minute, Escalate: policy.Escalation{After: 0.5, Approvers: []string{"mona"}}}
		o.setWorkflow("ops", ops)
		got := o.hold(t, call("session 1", "/a"))
		time.Sleep(6 * time.Minute)
		if _, err := o.decide(t.Context(), got.ID, approval.Approver{Name: "mona"}, approval.Approve, ""); err != nil {
			t.Fatal(err)
		}
		ops.Escalate.After = 0.9 // when she approved, the call was not escalated
		o.setWorkflow("ops", ops)
		if _, err := o.Contact(t.Context(), mine(o.now(t, got.ID)), o.upstream.send); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mustState(t, o.now(t, got.ID), task.Failed)
	})
}
