// Package catalog puts messages to policy. It caches the tool definitions of upstreams,
// because policy uses it, and decides what clients see of lists. It knows messages, but neither
// transports nor eras of MCP.
//
//	judgement, err := catalog.Judge(ctx, client, message, catalog.RequestInfo{})
//	if err == nil && judgement.Handling == policy.PassOn {
//		// forward the message
//	}
package catalog

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/internal/toolpin"
)

// Settings can be replaced while the gate runs. They are immutable: a call uses those with which
// it began.
type Settings struct {
	Policy        *policy.Snapshot // nil forwards everything
	HideDenied    bool             // leave entries out of lists that are always denied
	TasksOnly     bool             // calls that need approval must ask for a task
	ForceRequired []string         // tools, by name, that must be called as a task
	Upstreams     []string         // all upstreams
	Pins          toolpin.File     // of Policy, to show how a tool differs
}

// A Catalog judges messages.
type Catalog struct {
	settings  atomic.Pointer[Settings]
	cache     cache
	histories histories
	offered   offeredTools
	shown     shownTools
	overflows sync.Map // those that the log has
	log       *slog.Logger
	metrics   *metrics.Metrics
	now       func() time.Time
}

// New returns a catalog with the given settings and clock.
func New(s *Settings, now func() time.Time, log *slog.Logger, m *metrics.Metrics) *Catalog {
	g := &Catalog{
		cache:     cache{upstreams: make(map[string]*upstreamCache)},
		histories: histories{tools: make(map[toolhistory.Source]map[string]cachedHistory)},
		offered:   offeredTools{tools: make(map[string][]policy.Named)},
		shown:     shownTools{upstreams: make(map[string]*shownList)},
		log:       log, metrics: m, now: now,
	}
	g.settings.Store(s)
	return g
}

// Governs reports whether there is any policy. Without one, all messages and lists pass
// unchanged.
func (g *Catalog) Governs() bool { return g.settings.Load().Policy != nil }

// Policy returns the current policy, or nil without a policy.
func (g *Catalog) Policy() *policy.Snapshot { return g.settings.Load().Policy }

// PolicyID returns the id of the current policy, or "" without a policy.
func (g *Catalog) PolicyID() string {
	if p := g.settings.Load().Policy; p != nil {
		return p.ID()
	}
	return ""
}

// Configure replaces the settings. It reports whether the lists that clients see may have
// changed.
func (g *Catalog) Configure(s *Settings) (seenOtherwise bool) {
	old := g.settings.Swap(s)
	return !old.sameView(s)
}

func (s *Settings) sameView(o *Settings) bool {
	if s.HideDenied != o.HideDenied || s.TasksOnly != o.TasksOnly || !slices.Equal(s.ForceRequired, o.ForceRequired) {
		return false
	}
	if s.Policy == nil || o.Policy == nil {
		return s.Policy == o.Policy
	}
	return s.Policy.ID() == o.Policy.ID()
}
