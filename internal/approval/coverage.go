package approval

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Coverage says which of the recorded calls a standing approval would have covered, had it been
// given before them.
type Coverage struct {
	Since    time.Time        `json:"since"`              // the record was read from there
	Recorded int              `json:"recorded"`           // calls of all agents in the record
	Covered  int              `json:"covered"`            // held calls that it would have let run
	Rejected int              `json:"rejected,omitzero"`  // those of them that people have rejected
	Unknown  int              `json:"unknown,omitzero"`   // held calls of which the arguments are not recorded in full
	Waiting  int              `json:"waiting,omitzero"`   // calls like these that wait now; they stay held
	Examples []CoveredExample `json:"examples,omitempty"` // the latest covered calls, the latest first
}

// A CoveredExample is a recorded call that a standing approval would have covered.
type CoveredExample struct {
	ID      task.ID   `json:"id,omitzero"`
	Time    time.Time `json:"time"`
	Server  string    `json:"server"`
	Tool    string    `json:"tool"`
	Paths   []string  `json:"paths,omitempty"` // the arguments that may have any path below a directory
	Outcome string    `json:"outcome,omitzero"`
}

const (
	maxCoverage = 50_000 // entries of the record that are read for one answer
	maxExamples = 5
)

// coveragePeriods are the times of which the record is read: the first one with not too many entries.
var coveragePeriods = []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute}

// Coverage returns what a standing approval on the given terms would have covered. The error is
// [*review.NoGrantError] or that of a decision if who cannot give it.
func (s *Service) Coverage(ctx context.Context, id task.ID, who Approver, gives gatetask.GrantTerms) (Coverage, error) {
	t, err := s.env.store.Get(ctx, task.AnyOwner().Ref(id))
	if err != nil {
		return Coverage{}, err
	}
	if err := s.decider.mayDecide(t, who, Approve); err != nil {
		return Coverage{}, err
	}
	if err := s.grants.mayGive(t, who, Ruling{Decision: Approve, Gives: &gives}); err != nil {
		return Coverage{}, err
	}
	c, err := s.grants.newCoverage(t, gives.GrantShape)
	if err != nil {
		return Coverage{}, err
	}
	ctx, done, err := s.grants.viewer.Begin(ctx)
	if err != nil {
		return Coverage{}, err
	}
	defer done()
	now := s.env.now()
	for _, period := range coveragePeriods {
		if err = c.read(ctx, now.Add(-period)); !errors.Is(err, errTooManyCalls) {
			break
		}
	}
	if err != nil && !errors.Is(err, errTooManyCalls) {
		return Coverage{}, err
	}
	slices.Reverse(c.Examples)
	return c.Coverage, c.countWaiting(ctx)
}

var errTooManyCalls = errors.New("too many recorded calls")

// A coverage is a [Coverage] in the making.
type coverage struct {
	Coverage

	grants *grants
	t      task.Task
	facts  review.Facts
	grant  grantstore.Grant // as it would be given
	scope  grantstore.Scope
	ids    map[task.ID]bool // of covered calls
}

func (gs *grants) newCoverage(t task.Task, shape gatetask.GrantShape) (*coverage, error) {
	c := &coverage{grants: gs, t: t, facts: review.ReadFacts(t)}
	c.grant = grantstore.Grant{Workflow: t.Workflow, GrantShape: shape, ReadOnly: c.facts.ReadOnlyTools}
	var err error
	if c.scope, _, err = scopeOf(t, shape, c.facts.ReadOnlyTools); err != nil {
		return nil, err
	}
	c.grant.Pattern, err = c.scope.Digest()
	return c, err
}

// read reads the record from the given time. The error is errTooManyCalls if it was not read to
// its end.
func (c *coverage) read(ctx context.Context, since time.Time) error {
	c.Coverage, c.ids = Coverage{Since: since.UTC()}, map[task.ID]bool{}
	n := 0
	for e, err := range callrecord.All(ctx, c.grants.env.store, callrecord.Filter{Since: since}) {
		if err != nil {
			return err
		}
		if n++; n > maxCoverage {
			return errTooManyCalls
		}
		c.add(&e)
	}
	return nil
}

// add counts an entry.
func (c *coverage) add(e *callrecord.Entry) {
	switch {
	case e.Event == callrecord.Ended:
		if c.ids[task.ID(e.ID)] && e.Outcome == string(task.Rejected) {
			c.Rejected++
		}
		return
	case e.Outcome == callrecord.Attached:
		return // the call is counted already
	}
	if c.Recorded++; c.mayCover(e) {
		c.compare(e)
	}
}

// compare counts the entry of a held call if the standing approval covers it.
func (c *coverage) compare(e *callrecord.Entry) {
	s := c.scope
	s.Call.Upstream, s.Call.Method, s.Call.Name, s.Call.Arguments, s.Trusted, s.ReadOnly = e.Upstream, e.Method, e.Name, string(e.Arguments), !e.Changed, true
	if s.ToolDigest = c.definition(e); s.ToolDigest == "" {
		return
	}
	unread := e.Redacted || len(e.Arguments) == 0 && e.Digest != ""
	if unread && s.Reach == gatetask.ReachTool {
		c.Unknown++
		return
	}
	if pattern, err := s.Digest(); err != nil || pattern != c.grant.Pattern || !unread && !c.isHeldNow(e) {
		return
	}
	c.Covered++
	c.ids[task.ID(e.ID)] = e.ID != ""
	c.Examples = append(c.Examples, c.example(e))
	c.Examples = c.Examples[max(0, len(c.Examples)-maxExamples):]
}

// mayCover reports whether e is a held call by the agent for the workflow, of a tool in reach.
func (c *coverage) mayCover(e *callrecord.Entry) bool {
	if e.Action != policy.Approve || e.Observed != "" || e.Workflow != c.t.Workflow || e.Principal != c.facts.Principal.ID {
		return false
	}
	if c.facts.Principal.Anonymous && e.Client.Name != c.facts.Session.Client {
		return false
	}
	switch c.scope.Reach {
	case gatetask.ReachTool:
		return e.Upstream == c.t.Call.Upstream && e.Method == c.t.Call.Method && e.Name == c.t.Call.Name
	case gatetask.ReachAgent:
		return true
	default:
		return e.Upstream == c.t.Call.Upstream
	}
}

// definition returns the digest of the definition of the tool of e in the scope. The record has it
// only with a lock file, so it may be taken for the same.
func (c *coverage) definition(e *callrecord.Entry) string {
	known := ""
	switch c.scope.Reach {
	case gatetask.ReachTool:
		known = c.scope.ToolDigest
	case gatetask.ReachReadOnly:
		for _, tool := range c.scope.Tools {
			if tool.Name == e.Name {
				known = tool.Digest
			}
		}
	default:
		return c.scope.ToolDigest // does not matter
	}
	if e.ToolDigest != "" && e.ToolDigest != known {
		return ""
	}
	return known
}

// isHeldNow reports whether policy would hold the recorded call again, and not because of a secret.
func (c *coverage) isHeldNow(e *callrecord.Entry) bool {
	v := c.grants.env.judge(e.Call())
	return v.Action == policy.Approve && v.Workflow == c.t.Workflow && (exact(c.grant) || !v.Secret)
}

func (c *coverage) example(e *callrecord.Entry) CoveredExample {
	x := CoveredExample{ID: task.ID(e.ID), Time: e.Time, Server: e.Upstream, Tool: review.JournalName(e.Name), Outcome: e.Outcome}
	var members map[string]any
	if len(c.grant.Below) > 0 && json.Unmarshal(e.Arguments, &members) == nil {
		for _, b := range c.grant.Below {
			path, _ := members[b.Argument].(string)
			x.Paths = append(x.Paths, safetext.Name(path, maxExamplePath))
		}
	}
	return x
}

// maxExamplePath is the most characters of a shown path.
const maxExamplePath = 300

// countWaiting counts the calls of the owner that wait and are like the covered ones.
func (c *coverage) countWaiting(ctx context.Context) error {
	q := task.Query{Scope: task.OwnedBy(c.t.Owner), States: []task.State{task.InputRequired}, Limit: maxWaitingRead}
	page, err := c.grants.env.store.List(ctx, q)
	if err != nil {
		return err
	}
	for _, other := range page.Tasks {
		if other.ID != c.t.ID && c.grants.covers(c.grant, other) {
			c.Waiting++
		}
	}
	return nil
}

// maxWaitingRead is how many waiting calls are compared.
const maxWaitingRead = 50
