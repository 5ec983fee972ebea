package gate

import (
	"context"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A census holds the tools of each upstream that clients are shown, with their
// task support, for metrics and logs.
type census struct {
	mu        sync.Mutex
	upstreams map[string]*listing
}

// A listing is what a census knows of one upstream.
type listing struct {
	tools map[string]annotated
	whole bool // a client has been shown a whole list
}

// annotated is how a tool was last shown.
type annotated struct {
	support policy.TaskSupport
	at      time.Time
	logged  supports
}

// supports are the task supports with which the log has a tool, under a snapshot of
// the policy. Clients with different rights may be shown different ones in turn.
type supports struct {
	snapshot                      string
	required, optional, forbidden bool
}

// add notes a support, and reports whether it is new.
func (s *supports) add(snapshot string, support policy.TaskSupport) bool {
	if s.snapshot != snapshot {
		*s = supports{snapshot: snapshot}
	}
	mark := &s.forbidden
	switch support {
	case policy.TaskRequired:
		mark = &s.required
	case policy.TaskOptional:
		mark = &s.optional
	case policy.TaskForbidden:
	}
	added := !*mark
	*mark = true
	return added
}

// A sighting is a tool as a client is shown it.
type sighting struct {
	name     string
	support  policy.TaskSupport
	prospect policy.Prospect
	added    bool // nobody was shown it before, though there was a whole list
}

// forgetAfter is how long a tool counts that no client is shown any more.
const forgetAfter = time.Hour

// note takes in a page of a list, the last one or not, as a client is shown it
// under a snapshot of the policy. It returns how many tools there are by their
// support, and those of the page that the log does not have yet.
func (c *census) note(upstream, snapshot string, page []sighting, last bool, now time.Time) (map[string]int, []sighting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.upstreams == nil {
		c.upstreams = make(map[string]*listing)
	}
	l := c.upstreams[upstream]
	if l == nil {
		l = &listing{tools: make(map[string]annotated)}
		c.upstreams[upstream] = l
	}
	var added []sighting
	for _, s := range page {
		if l.see(&s, snapshot, now) {
			added = append(added, s)
		}
	}
	l.whole = l.whole || last
	return l.count(now), added
}

// see takes in one tool, and reports whether the log does not have it yet.
func (l *listing) see(s *sighting, snapshot string, now time.Time) bool {
	was, known := l.tools[s.name]
	if !known && len(l.tools) >= maxOffers {
		return false
	}
	s.added = !known && l.whole
	was.support, was.at = s.support, now
	added := was.logged.add(snapshot, s.support)
	l.tools[s.name] = was
	return added
}

// count returns how many tools there are by their support, and forgets those
// that nobody is shown any more.
func (l *listing) count(now time.Time) map[string]int {
	counts := make(map[string]int)
	for name, t := range l.tools {
		if now.Sub(t.at) > forgetAfter {
			delete(l.tools, name)
			continue
		}
		counts[string(t.support)]++
	}
	return counts
}

// Done counts and logs what the client was shown. Last says whether it was the
// last page of the list.
func (v *View) Done(ctx context.Context, last bool) {
	if v.kind != policy.Tool || v.settings.Policy == nil {
		return
	}
	g, upstream := v.gate, v.client.Upstream
	counts, added := g.census.note(upstream, v.settings.Policy.ID(), v.seen, last, g.now())
	g.metrics.ToolsListed(upstream, counts)
	for _, s := range added {
		if s.added {
			g.log.WarnContext(ctx, "New tool discovered", "upstream", upstream, "tool", shortened(s.name), "task_support", string(s.support))
		}
		g.log.InfoContext(ctx, "tool annotation", "upstream", upstream, "tool", shortened(s.name),
			"task_support", string(s.support), "yaml_action", s.prospect.String())
	}
}
