package callrecord

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Summary counts the calls in a record.
type Summary struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	Total Counts    `json:"total"`

	Periods   []Period  `json:"periods"`       // of equal length, the oldest first
	Workflows []Group   `json:"workflows"`     // of held calls
	Tools     []Group   `json:"tools"`         // the busiest, and prompts and resources
	Agents    []Group   `json:"agents"`        // the busiest
	Observed  []Notice  `json:"observed"`      // what would have been held or denied, the most frequent first
	Decisions Durations `json:"decisions"`     // from the call to the decision
	Left      int       `json:"left,omitzero"` // calls of further tools, agents and notices, which are not listed
}

// Counts are numbers of calls.
type Counts struct {
	Forwarded int `json:"forwarded"`
	Denied    int `json:"denied"`
	Held      int `json:"held"`
	Observed  int `json:"observed"` // forwarded only because policy was observed

	// Of the held calls that have ended.
	Approved int `json:"approved"`
	Rejected int `json:"rejected"`
	Expired  int `json:"expired"` // nobody decided in time
	Other    int `json:"other"`   // withdrawn, or failed before a decision
}

// Calls returns how many calls were judged.
func (c *Counts) Calls() int { return c.Forwarded + c.Denied + c.Held }

// A Period is a part of the time of a summary.
type Period struct {
	From time.Time `json:"from"`
	Counts
}

// A Group has the calls of a workflow, a tool or an agent.
type Group struct {
	Name     string `json:"name"`              // empty for anonymous agents
	Upstream string `json:"upstream,omitzero"` // of a tool
	Counts
}

// A Notice says how often a rule would have held or denied the calls of a tool by an agent.
type Notice struct {
	Action    policy.Action `json:"action"`
	Rule      string        `json:"rule"`
	Upstream  string        `json:"upstream"`
	Name      string        `json:"name"`
	Principal string        `json:"principal,omitzero"`
	Calls     int           `json:"calls"`
}

// Durations describes how long things took.
type Durations struct {
	Count  int           `json:"count"`
	Median time.Duration `json:"median,format:sec"`
	Ninety time.Duration `json:"ninety,format:sec"` // nine of ten took at most that long
}

const (
	maxGroups  = 2000 // that are counted: agents can make up names
	maxListed  = 10   // groups in a summary
	maxNotices = 100
	maxPending = 100_000 // held calls whose time is remembered
)

// Summarize counts the calls from since until until, in the given number of periods.
func Summarize(entries iter.Seq2[Entry, error], since, until time.Time, periods int) (Summary, error) {
	s := summing{
		Summary:   Summary{Since: since, Until: until, Periods: make([]Period, periods)},
		length:    max(until.Sub(since)/time.Duration(periods), 1),
		workflows: map[string]*Group{}, tools: map[[2]string]*Group{}, agents: map[string]*Group{}, notices: map[Notice]int{}, held: map[string]time.Time{},
	}
	for i := range s.Periods {
		s.Periods[i].From = since.Add(time.Duration(i) * s.length)
	}
	for e, err := range entries {
		if err != nil {
			return Summary{}, err
		}
		if !e.Time.Before(since) && e.Time.Before(until) && e.Outcome != Attached { // the call is counted already
			s.add(&e)
		}
	}
	return s.result(), nil
}

// A summing is a summary in the making.
type summing struct {
	Summary

	length    time.Duration // of a period
	workflows map[string]*Group
	tools     map[[2]string]*Group
	agents    map[string]*Group
	notices   map[Notice]int
	held      map[string]time.Time
	waited    []time.Duration
}

func (s *summing) add(e *Entry) {
	period := &s.Periods[min(int(e.Time.Sub(s.Since)/s.length), len(s.Periods)-1)]
	groups := []*Counts{&s.Total, &period.Counts}
	groups = s.count(groups, groupOf(s.tools, [2]string{e.Upstream, e.Name}, Group{Name: e.Name, Upstream: e.Upstream}))
	groups = s.count(groups, groupOf(s.agents, e.Principal, Group{Name: e.Principal}))
	if e.Workflow != "" && e.Observed == "" {
		groups = s.count(groups, groupOf(s.workflows, e.Workflow, Group{Name: e.Workflow}))
	}
	for _, c := range groups {
		c.add(e)
	}
	s.observe(e)
	s.time(e)
}

// count adds the counts of a group to those that change.
func (s *summing) count(changing []*Counts, g *Group) []*Counts {
	if g == nil {
		s.Left++
		return changing
	}
	return append(changing, &g.Counts)
}

// groupOf returns the group with a key, or nil if there are too many.
func groupOf[K comparable](groups map[K]*Group, key K, empty Group) *Group {
	g := groups[key]
	if g == nil && len(groups) < maxGroups {
		g = &empty
		groups[key] = g
	}
	return g
}

// add counts one entry.
func (c *Counts) add(e *Entry) {
	switch {
	case e.Event == Ended:
		c.end(e)
	case e.Observed != "":
		c.Forwarded++
		c.Observed++
	case e.Action == policy.Forward:
		c.Forwarded++
	case e.Action == policy.Approve:
		c.Held++
	default:
		c.Denied++
	}
}

func (c *Counts) end(e *Entry) {
	switch {
	case e.Outcome == string(task.Rejected):
		c.Rejected++
	case e.Outcome == string(task.Expired) && len(e.By) == 0:
		c.Expired++
	case len(e.By) > 0:
		c.Approved++
	default:
		c.Other++
	}
}

// observe counts what observing replaced.
func (s *summing) observe(e *Entry) {
	if e.Event != Judged || e.Observed == "" {
		return
	}
	n := Notice{Action: e.Observed, Rule: e.Rule, Upstream: e.Upstream, Name: e.Name, Principal: e.Principal}
	if s.notices[n] == 0 && len(s.notices) >= maxGroups {
		s.Left++
		return
	}
	s.notices[n]++
}

// time measures how long people took to decide.
func (s *summing) time(e *Entry) {
	switch {
	case e.ID == "":
	case e.Event == Judged && len(s.held) < maxPending:
		s.held[e.ID] = e.Time
	case e.Event == Ended:
		at, known := s.held[e.ID]
		if delete(s.held, e.ID); known && !e.Decided.IsZero() {
			s.waited = append(s.waited, e.Decided.Sub(at))
		}
	}
}

func (s *summing) result() Summary {
	s.Workflows = busiest(maps.Values(s.workflows))
	s.Tools = busiest(maps.Values(s.tools))
	s.Agents = busiest(maps.Values(s.agents))
	for n, calls := range s.notices {
		n.Calls = calls
		s.Observed = append(s.Observed, n)
	}
	slices.SortFunc(s.Observed, func(a, b Notice) int {
		return cmp.Or(b.Calls-a.Calls, cmp.Compare(a.Name, b.Name), cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Upstream, b.Upstream))
	})
	if len(s.Observed) > maxNotices {
		s.Observed = s.Observed[:maxNotices]
	}
	if slices.Sort(s.waited); len(s.waited) > 0 {
		s.Decisions = Durations{len(s.waited), s.waited[len(s.waited)/2], s.waited[len(s.waited)*9/10]}
	}
	return s.Summary
}

// busiest returns the groups with the most calls.
func busiest(groups iter.Seq[*Group]) []Group {
	all := slices.SortedFunc(groups, func(a, b *Group) int {
		return cmp.Or(b.Calls()-a.Calls(), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Upstream, b.Upstream))
	})
	var listed []Group
	for _, g := range all[:min(len(all), maxListed)] {
		listed = append(listed, *g)
	}
	return listed
}
