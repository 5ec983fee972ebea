package catalog

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// histories caches the stored histories of tools, so that a forwarded call does not read the
// store. Policy uses the hints of a tool only as far as its history allows; a tool without a
// history has the worst hints.
type histories struct {
	store toolhistory.Store // without records, histories are only in memory

	mu    sync.RWMutex
	tools map[toolhistory.Source]map[string]cachedHistory
}

// A cachedHistory is the history of a tool at the time of its last read.
type cachedHistory struct {
	history toolhistory.History
	at      time.Time // of the read
}

const (
	// historyMaxAge is the age after which listed tools are read again, because another replica may
	// have seen stricter hints.
	historyMaxAge = time.Minute

	// historyTimeout bounds calls of the store.
	historyTimeout = 5 * time.Second
)

// UseHistory sets the store for histories of tools. It is called before the first message is
// judged.
func (g *Catalog) UseHistory(store toolhistory.Store) { g.histories.store = store }

func (m *histories) get(from toolhistory.Source, tool string) (cachedHistory, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, known := m.tools[from][tool]
	return r, known
}

// set caches the history of a tool. The stricter hints win, because a concurrent call may have
// cached a newer history.
func (m *histories) set(from toolhistory.Source, tool string, h toolhistory.History, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tools[from] == nil {
		m.tools[from] = make(map[string]cachedHistory)
	}
	if before, known := m.tools[from][tool]; known {
		//mutate:drop TestStrictestDefinitionCounts an older answer of the store loosens the hints of a tool
		h.First.Hints = h.First.Hints.Strictest(before.history.First.Hints)
	}
	m.tools[from][tool] = cachedHistory{h, now}
}

func (c Client) source() toolhistory.Source {
	return toolhistory.Source{Upstream: c.Upstream, Server: c.Server}
}

// updateHistories adds the current definitions of tools to their histories. If the store fails,
// the cache stays unchanged.
func (g *Catalog) updateHistories(ctx context.Context, c Client, tools []Tool) {
	from, now := c.source(), g.now()
	asked := g.histories.take(from, tools, now)
	if len(asked) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, historyTimeout)
	defer stop()
	all, err := g.histories.store.Observe(ctx, from, asked)
	if err != nil {
		g.log.WarnContext(logging.Limited(ctx, "definitions not kept", c.Upstream),
			"cannot store the definitions of tools; policy ignores the hints of new tools", "upstream", c.Upstream, "err", err)
	}
	for name, d := range asked {
		if h, ok := all[name]; ok {
			g.histories.set(from, name, h, now)
			continue
		}
		if known, ok := g.histories.get(from, name); ok { // stricter hints count also without the store
			h, _ := known.history.Observe(d)
			g.histories.set(from, name, h, known.at)
		}
		if err == nil {
			g.overflowed(ctx, c.Upstream, overflowHistory)
		}
	}
}

// take caches definitions that need no store. It returns those that the store must be asked
// about, with the strictest known hints.
func (m *histories) take(from toolhistory.Source, tools []Tool, now time.Time) map[string]toolhistory.Definition {
	asked := map[string]toolhistory.Definition{}
	for i := range tools {
		t := &tools[i]
		if !t.Complete() {
			continue
		}
		known, ok := m.get(from, t.Name)
		after, changed := known.history.Observe(t.defined)
		switch {
		case m.store.Records == nil:
			if !ok {
				after.First = t.defined
			}
			m.set(from, t.Name, after, now)
		case !ok || changed || now.Sub(known.at) > historyMaxAge || len(known.history.Unpinned) > 0: // an operator may have accepted it
			d := t.defined
			if ok { // the store may have lost the history
				//mutate:drop TestStrictestDefinitionCounts a store that has lost its records gets the looser hints
				d.Hints = d.Hints.Strictest(known.history.First.Hints)
			}
			if other, twice := asked[t.Name]; twice {
				//mutate:drop TestStrictestDefinitionCounts the last of two definitions of a tool in a list counts
				d.Hints = d.Hints.Strictest(other.Hints)
			}
			asked[t.Name] = d
		}
	}
	return asked
}

// trusted returns t with the hints that policy may use. If t has changed and no operator has accepted
// that, t.Change describes the change. The result known reports whether the cache has a history of t.
func (g *Catalog) trusted(c Client, t Tool) (_ Tool, known bool) {
	if t.DigestText() == "" { // t was never listed
		return t, false
	}
	if g.isPinned(c, t) {
		return t, true
	}
	r, known := g.histories.get(c.source(), t.Name)
	if !known {
		//mutate:swap ".Strictest(policy.NoHints)" "" TestUnknownHintsDoNotCountWithoutStore policy uses hints of tools without a cached history
		t.Annotations = t.Annotations.WithHints(t.defined.Hints.Strictest(policy.NoHints))
		return t, false
	}
	hints, changed := r.history.TrustedHints(t.defined)
	if hints != t.defined.Hints {
		//mutate:drop internal/app.TestLooserDefinitionIsHeld policy uses hints that have loosened
		t.Annotations = t.Annotations.WithHints(hints)
	}
	if changed {
		change := r.history.Change(c.source(), t.Name, t.defined)
		t.Change = &change
	}
	return t, true
}

// Trust reports whether the definition of a tool is the first known one, or one that an operator has
// accepted, and whether it says that the tool is read-only. With a lock file, the definition must be
// in it or accepted.
func (g *Catalog) Trust(c Client, listed Tool) (trusted, readOnly bool) {
	t, known := g.trusted(c, listed)
	//mutate:swap "t.Change != nil || " "" internal/app.TestReadOnlyGrantAtTheWire a changed tool is trusted
	if !known || t.Change != nil || listed.several || g.settings.Load().Policy.HasPins() && !g.isPinned(c, listed) {
		return false, false
	}
	a := t.Annotations
	return true, a.ReadOnly != nil && *a.ReadOnly && (a.Destructive == nil || !*a.Destructive)
}

// ReadOnlyTools returns the tools that the client has listed and that [Catalog.Trust] reports as
// read-only, sorted by name.
func (g *Catalog) ReadOnlyTools(c Client) []gatetask.GrantTool {
	var all []gatetask.GrantTool
	for _, t := range g.cache.tools(c) {
		if _, readOnly := g.Trust(c, t); readOnly {
			all = append(all, gatetask.GrantTool{Name: t.Name, Digest: t.DigestText()})
		}
	}
	slices.SortFunc(all, func(a, b gatetask.GrantTool) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// changed reports whether a tool, as last listed for the client, has a change that no operator
// has accepted.
func (g *Catalog) changed(c Client, listed Tool) bool {
	t, _ := g.trusted(c, listed)
	return t.Change != nil
}

// Trusted returns a tool with the hints that policy may use.
func (g *Catalog) Trusted(c Client, t Tool) Tool {
	t, _ = g.trusted(c, t)
	t.Change = nil
	return t
}

// consult asks the store about a tool if that may change the verdict v: the tool has no cached
// history, or an operator may have accepted its change, on this or another replica. It reports
// whether the cache has changed.
func (g *Catalog) consult(ctx context.Context, c Client, t Tool, known bool, v policy.Verdict) bool {
	switch {
	case t.DigestText() == "":
		return false
	case !known:
		if v.Action == policy.Forward {
			return false
		}
		g.updateHistories(ctx, c, []Tool{t})
		_, known = g.histories.get(c.source(), t.Name)
		return known
	case !v.Changed || g.histories.store.Records == nil:
		return false
	case v.Unpinned:
		return g.consultPin(ctx, c, t, v)
	}
	before, _ := g.histories.get(c.source(), t.Name)
	if v.Action == policy.Forward && before.history.HasChange(t.defined) {
		return false // the change is recorded already
	}
	ctx, stop := context.WithTimeout(ctx, historyTimeout)
	defer stop()
	now := g.now()
	h, err := g.histories.store.RecordChange(ctx, c.source(), t.Name, t.defined, task.Note{
		At: now, Step: auditlog.ToolChanged, Actor: "gate", Method: mcpname.ToolsCall, ToolDigest: t.DigestText(), PolicySnapshot: v.Snapshot,
	})
	if err != nil {
		g.log.WarnContext(logging.Limited(ctx, "change not noted", c.Upstream), "cannot record that a tool has changed",
			"upstream", c.Upstream, "tool", truncateCopy(t.Name), "err", err)
		return false
	}
	g.log.WarnContext(logging.Limited(ctx, "tool has changed", c.Upstream+" "+truncateCopy(t.Name)), "a tool has changed; an operator must accept the change",
		"upstream", c.Upstream, "tool", truncateCopy(t.Name))
	g.histories.set(c.source(), t.Name, h, now)
	return true
}
