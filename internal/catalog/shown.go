package catalog

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// shownTools counts the tools of each upstream that clients see, by task support, for metrics and
// logs.
type shownTools struct {
	mu        sync.Mutex
	upstreams map[string]*shownList
}

// A shownList has the tools of one upstream.
type shownList struct {
	tools map[string]shownTool
	whole bool // a client has seen a complete list
}

// A shownTool is the last view of a tool.
type shownTool struct {
	support policy.TaskSupport
	at      time.Time
	logged  string // the policy snapshot, and all task supports with which the log has the tool; they may differ by client
}

// A toolView is a tool as one client sees it.
type toolView struct {
	name     string
	support  policy.TaskSupport
	prospect policy.Prospect
	added    bool // the tool is new: earlier complete lists did not have it
}

// forgetAfter is how long a tool counts after a client has last seen it.
const forgetAfter = time.Hour

// add adds a page of a list as a client sees it. It returns the number of tools by task support,
// and the tools of the page that must be logged.
func (c *shownTools) add(upstream, snapshot string, page []toolView, last bool, now time.Time) (map[string]int, []toolView) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.upstreams[upstream]
	if l == nil {
		l = &shownList{tools: make(map[string]shownTool)}
		c.upstreams[upstream] = l
	}
	var added []toolView
	for _, s := range page {
		if l.add(&s, snapshot, now) {
			added = append(added, s)
		}
	}
	l.whole = l.whole || last
	return l.count(now), added
}

// add adds one tool, and reports whether it must be logged.
func (l *shownList) add(s *toolView, snapshot string, now time.Time) bool {
	was, known := l.tools[s.name]
	if !known && len(l.tools) >= maxToolsPerUpstream {
		return false
	}
	s.added = !known && l.whole
	was.support, was.at = s.support, now
	if !strings.HasPrefix(was.logged, snapshot) {
		was.logged = snapshot
	}
	added := !strings.Contains(was.logged[len(snapshot):], string(s.support))
	if added {
		was.logged += " " + string(s.support)
	}
	l.tools[s.name] = was
	return added
}

// count returns the number of tools by task support. It removes old ones.
func (l *shownList) count(now time.Time) map[string]int {
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

// Record counts and logs the entries that the client has seen. The parameter last says whether
// this is the last page.
func (v *View) Record(ctx context.Context, last bool) {
	if v.kind != policy.Tool || v.settings.Policy == nil {
		return
	}
	g, upstream := v.catalog, v.client.Upstream
	counts, added := g.shown.add(upstream, v.settings.Policy.ID(), v.seen, last, g.now())
	g.metrics.ToolsListed(upstream, counts)
	for _, s := range added {
		if s.added {
			g.log.WarnContext(ctx, "New tool discovered", "upstream", upstream, "tool", truncateCopy(s.name), "task_support", string(s.support))
		}
		g.log.InfoContext(ctx, "tool annotation", "upstream", upstream, "tool", truncateCopy(s.name),
			"task_support", string(s.support), "upstream_tasks", g.Handshake(v.client).Tasks, "yaml_action", s.prospect.String())
	}
}
