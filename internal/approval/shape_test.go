package approval_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// readOnlyTools are the read-only tools of the upstream in these tests.
var readOnlyTools = []gatetask.GrantTool{{Name: "list", Digest: "v2-2"}, {Name: "read", Digest: "v2-1"}}

// reading returns a call by ann of a read-only tool.
func reading(tool, digest string) approval.Call {
	c := toolCall(`{}`)
	c.Message = message(tool, `{"x":"`+tool+`"}`)
	c.Tool.Digest, c.Tool.Trusted, c.Tool.ReadOnly = digest, true, true
	c.ReadOnlyTools = func() []gatetask.GrantTool { return readOnlyTools }
	return c
}

// allowReach lets approvers of a workflow give grants with a reach.
func (o *fixture) allowReach(workflow string, reach gatetask.GrantReach) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.workflows[workflow]
	w.Grants = grantable
	w.Grants.Reach = string(reach)
	o.workflows[workflow] = w
}

// shaped returns the terms of a grant with a shape.
func shaped(s gatetask.GrantShape) *gatetask.GrantTerms {
	gives := terms(5)
	gives.GrantShape = s
	return gives
}

// belowTmp allows any value of path below /tmp.
var belowTmp = gatetask.GrantShape{Below: []gatetask.GrantBelow{{Argument: "path", Directory: "/tmp"}}}

// reach returns the shape of a reach.
func reach(r gatetask.GrantReach) gatetask.GrantShape {
	s := gatetask.GrantShape{Reach: r}
	if r == gatetask.ReachReadOnly {
		s.Tools = grantstore.ToolsDigest(readOnlyTools)
	}
	return s
}

func TestPathGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		g := o.grant(t, toolCall(`{"path":"/tmp/a/b","n":1}`), shaped(belowTmp))
		if string(g.Arguments) != `{"n":1}` || len(g.Below) != 1 || g.Below[0].Directory != "/tmp" {
			t.Errorf("grant %+v", g)
		}
		for _, path := range []string{`/tmp/x`, `/tmp/a/c`} {
			asked := o.hold(t, toolCall(fmt.Sprintf(`{"path":%q,"n":1}`, path)))
			mustState(t, asked, task.Approved)
			mustState(t, o.finish(t, asked), task.Completed)
			checkGrantNotes(t, o, asked.ID, g.ID)
		}
		for _, path := range []string{`/tmp/../etc`, `/tmpfoo`, `/tmp`, `//tmp/x`, `/tmp/%2e%2e/etc`, `/tmp/a\\b`} {
			mustState(t, o.hold(t, toolCall(`{"path":"`+path+`","n":1}`)), task.InputRequired)
		}
	})
}

// A grant with a reach covers other tools of the same agent, as long as their definitions are the
// known ones.
func TestWideGrant(t *testing.T) {
	elsewhere := func(c approval.Call) approval.Call {
		c.Owner, c.Upstream = "mail of ann", "mail"
		return c
	}
	with := func(c approval.Call, change func(*approval.Call)) approval.Call {
		change(&c)
		return c
	}
	for name, test := range map[string]struct {
		call   approval.Call
		covers string
	}{
		"the same tool":      {reading("read", "v2-1"), "read_only server agent"},
		"a listed tool":      {reading("list", "v2-2"), "read_only server agent"},
		"a changed tool":     {reading("list", "v2-3"), "server agent"},
		"another tool":       {with(toolCall(`{}`), func(c *approval.Call) { c.Tool.Trusted = true }), "server agent"},
		"an untrusted tool":  {toolCall(`{}`), ""},
		"an unaccepted one":  {with(reading("list", "v2-2"), func(c *approval.Call) { c.Tool.Trusted, c.Tool.ReadOnly = false, false }), ""},
		"another server":     {elsewhere(reading("read", "v2-1")), "agent"},
		"another agent":      {with(reading("read", "v2-1"), func(c *approval.Call) { c.Owner, c.Principal.ID = "eve", "eve" }), ""},
		"an anonymous agent": {with(reading("read", "v2-1"), func(c *approval.Call) { c.Principal = policy.Principal{Anonymous: true} }), ""},
		"another workflow":   {with(reading("read", "v2-1"), func(c *approval.Call) { c.Verdict.Workflow = "brief" }), ""},
		"a secret":           {with(reading("read", "v2-1"), func(c *approval.Call) { c.Verdict.Secret = true }), ""},
	} {
		for _, r := range gatetask.Reaches()[1:] {
			t.Run(name+" "+string(r), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := open(t, nil)
					o.allowReach("ops", gatetask.ReachAgent)
					o.allowReach("brief", gatetask.ReachAgent)
					g := o.grant(t, reading("read", "v2-1"), shaped(reach(r)))
					if len(g.Arguments) > 0 || g.Reach != r || (len(g.ReadOnly) > 0) != (r == gatetask.ReachReadOnly) {
						t.Errorf("grant %+v", g)
					}
					asked := o.hold(t, test.call)
					if covered, want := asked.State == task.Approved, strings.Contains(test.covers, string(r)); covered != want {
						t.Errorf("the call is %s, want covered: %t", asked.State, want)
					}
					if asked.State == task.Approved {
						mustState(t, o.finish(t, asked), task.Completed)
					}
				})
			})
		}
	}
}

// A shape that the workflow or the call does not allow decides nothing.
func TestShapeIsRefused(t *testing.T) {
	wide := func(allowed gatetask.GrantReach, s gatetask.GrantShape, change func(*approval.Call)) func(*testing.T) {
		return func(t *testing.T) {
			o := open(t, nil)
			o.allowReach("ops", allowed)
			c := reading("read", "v2-1")
			c.Message = message("read", `{"path":"/tmp/a/b","n":1,"password":"/tmp/x","rel":"a/b"}`)
			if change != nil {
				change(&c)
			}
			asked := o.hold(t, c)
			_, err := o.ruleWith(t, asked.ID, alice, shaped(s))
			if !isNoGrant(err) && !errors.Is(err, lifecycle.ErrSelfApproval) {
				t.Errorf("the error is %v, want a refusal", err)
			}
			mustState(t, o.now(t, asked.ID), task.InputRequired)
		}
	}
	path := func(argument, directory string) gatetask.GrantShape {
		return gatetask.GrantShape{Below: []gatetask.GrantBelow{{Argument: argument, Directory: directory}}}
	}
	both := belowTmp
	both.Free = []string{"path"}
	conditional := reach(gatetask.ReachServer)
	conditional.Below = belowTmp.Below
	otherList := reach(gatetask.ReachReadOnly)
	otherList.Tools = grantstore.ToolsDigest(nil)
	for name, run := range map[string]func(*testing.T){
		"another directory":         wide("", path("path", "/etc"), nil),
		"the path itself":           wide("", path("path", "/tmp/a/b"), nil),
		"root":                      wide("", path("path", "/"), nil),
		"no directory":              wide("", path("path", ""), nil),
		"a redacted path":           wide("", path("password", "/tmp"), nil),
		"a number":                  wide("", path("n", "/tmp"), nil),
		"a relative path":           wide("", path("rel", "a"), nil),
		"missing":                   wide("", path("x", "/tmp"), nil),
		"free and below":            wide("", both, nil),
		"read-only, not allowed":    wide("", reach(gatetask.ReachReadOnly), nil),
		"server, not allowed":       wide(gatetask.ReachReadOnly, reach(gatetask.ReachServer), nil),
		"agent, not allowed":        wide(gatetask.ReachServer, reach(gatetask.ReachAgent), nil),
		"unknown, not allowed":      wide("all", reach(gatetask.ReachServer), nil),
		"unknown":                   wide(gatetask.ReachAgent, reach("all"), nil),
		"with a condition":          wide(gatetask.ReachAgent, conditional, nil),
		"another list":              wide(gatetask.ReachAgent, otherList, nil),
		"a list for one tool":       wide(gatetask.ReachAgent, gatetask.GrantShape{Tools: "00"}, nil),
		"a list for a server":       wide(gatetask.ReachAgent, gatetask.GrantShape{Reach: gatetask.ReachServer, Tools: "00"}, nil),
		"not read-only":             wide(gatetask.ReachAgent, reach(gatetask.ReachReadOnly), func(c *approval.Call) { c.Tool.ReadOnly = false }),
		"not in the list":           wide(gatetask.ReachAgent, reach(gatetask.ReachReadOnly), func(c *approval.Call) { c.Tool.Digest = "v2-9" }),
		"not trusted":               wide(gatetask.ReachAgent, reach(gatetask.ReachServer), func(c *approval.Call) { c.Tool.Trusted = false }),
		"anonymous at all servers":  wide(gatetask.ReachAgent, reach(gatetask.ReachAgent), func(c *approval.Call) { c.Principal = policy.Principal{Anonymous: true} }),
		"a path of a secret call":   wide("", belowTmp, func(c *approval.Call) { c.Verdict.Secret = true }),
		"a reach of a secret call":  wide(gatetask.ReachAgent, reach(gatetask.ReachServer), func(c *approval.Call) { c.Verdict.Secret = true }),
		"the requester's own agent": wide(gatetask.ReachAgent, reach(gatetask.ReachServer), func(c *approval.Call) { c.Principal.Aliases = []string{"alice"} }),
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
	}
}

// A call with a secret is held, whatever grants there are, except if exactly this call was approved.
func TestSecretIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowReach("ops", gatetask.ReachAgent)
		secret := func(path string) approval.Call {
			c := toolCall(`{"path":"` + path + `","n":1}`)
			c.Verdict.Secret = true
			return c
		}
		o.grant(t, toolCall(`{"path":"/tmp/a","n":1}`), shaped(belowTmp))
		o.grant(t, toolCall(`{"path":"/a","n":1}`), terms(5, "path"))
		o.grant(t, reading("read", "v2-1"), shaped(reach(gatetask.ReachServer)))
		asked := o.hold(t, secret("/tmp/b"))
		mustState(t, asked, task.InputRequired)
		offer, err := o.views.Offer(asked)
		if err != nil || len(offer.Free) > 0 || len(offer.Below) > 0 || len(offer.Reach) > 0 {
			t.Errorf("offered with a secret: %+v", offer)
		}
		if _, err := o.ruleWith(t, asked.ID, alice, terms(1)); err != nil {
			t.Fatal(err)
		}
		o.finish(t, asked)
		mustState(t, o.hold(t, secret("/tmp/c")), task.InputRequired)
		mustState(t, o.hold(t, secret("/tmp/b")), task.Approved)
	})
}

// A rule that looks for secrets and came after the use was counted still stops the call.
func TestSecretRuleStopsApprovedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowGrants("ops")
		o.grant(t, toolCall(`{"path":"/tmp/a","n":1}`), shaped(belowTmp))
		asked := o.hold(t, toolCall(`{"path":"/tmp/b","n":1}`))
		mustState(t, asked, task.Approved)
		o.rule(policy.Verdict{Action: policy.Approve, Workflow: "ops", Secret: true})
		mustState(t, must(o.Wait(t.Context(), mine(asked), o.upstream.send))(t), task.Failed)
		if runs := o.upstream.entries(); len(runs) != 1 {
			t.Errorf("ran %q", runs)
		}
	})
}

// A workflow that no longer allows a reach ends its grants, also for calls that have not begun.
func TestShapeNeedsCurrentPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowReach("ops", gatetask.ReachServer)
		g := o.grant(t, reading("read", "v2-1"), shaped(reach(gatetask.ReachServer)))
		asked := o.hold(t, reading("list", "v2-2"))
		mustState(t, asked, task.Approved)
		o.allowReach("ops", gatetask.ReachReadOnly)
		mustState(t, must(o.Wait(t.Context(), mine(asked), o.upstream.send))(t), task.Failed)
		mustState(t, o.hold(t, reading("list", "v2-2")), task.InputRequired)
		if after, err := o.views.Grant(t.Context(), g.ID); err != nil || after.State != review.GrantExpired {
			t.Errorf("the grant is %s, %v", after.State, err)
		}
	})
}

// Gates with other configurations may identify agents in another way, so a grant for all servers is
// neither given nor used in a store that they share.
func TestGrantForAllServersNeedsOneConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.allowReach("ops", gatetask.ReachAgent)
		o.grant(t, reading("read", "v2-1"), shaped(reach(gatetask.ReachAgent)))
		other := branch(t, o.store, func(c *approval.Config) { c.Mixed = true })
		other.allowReach("ops", gatetask.ReachAgent)
		asked := other.hold(t, reading("list", "v2-2"))
		mustState(t, asked, task.InputRequired)
		_, err := other.ruleWith(t, asked.ID, alice, shaped(reach(gatetask.ReachAgent)))
		if !isNoGrant(err) {
			t.Errorf("the error is %v, want a refusal", err)
		}
	})
}

// The narrowest shape of several approvers counts.
func TestShapeQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := open(t, nil)
		o.setWorkflow("ops", approval.Workflow{Quorum: 2, Timeout: time.Hour, Grants: policy.Grants{Longest: time.Hour, Uses: 20, Reach: "server"}})
		asked := o.hold(t, reading("read", "v2-1"))
		if _, err := o.ruleWith(t, asked.ID, alice, shaped(reach(gatetask.ReachServer))); err != nil {
			t.Fatal(err)
		}
		if _, err := o.ruleWith(t, asked.ID, bob, shaped(reach(gatetask.ReachReadOnly))); err != nil {
			t.Fatal(err)
		}
		o.finish(t, asked)
		mustState(t, o.hold(t, reading("list", "v2-2")), task.Approved)
		write := toolCall(`{}`)
		write.Tool.Trusted = true
		mustState(t, o.hold(t, write), task.InputRequired)
	})
}

func isNoGrant(err error) bool {
	_, refused := errors.AsType[*review.NoGrantError](err)
	return refused
}
