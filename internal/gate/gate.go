// Package gate is the core of the gateway. It puts each governed message to
// policy, remembers what upstreams say of their tools, and decides what clients
// see of it. It knows messages, and neither transports nor eras of MCP.
package gate

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

const listTools = "tools/list"

// Settings are what can change while the gate runs. They are never changed in
// place: a call lives with those it began with.
type Settings struct {
	Policy        *policy.Snapshot // nil forwards everything
	HideDenied    bool             // leave out of lists what is denied outright
	TasksOnly     bool             // whoever needs approval must ask for a task
	ForceRequired []string         // tools, by name, that must be called as a task
	Upstreams     []string         // all there are
}

// A Gate judges messages.
type Gate struct {
	settings  atomic.Pointer[Settings]
	catalog   catalog
	offers    offers
	census    census
	overflows sync.Map // what has been logged of them
	log       *slog.Logger
	metrics   *metrics.Metrics
	now       func() time.Time
}

// New returns a gate with the given settings and clock.
func New(s *Settings, now func() time.Time, log *slog.Logger, m *metrics.Metrics) *Gate {
	g := &Gate{log: log, metrics: m, now: now}
	g.settings.Store(s)
	return g
}

// Governs reports whether there is any policy. A gate without one leaves every
// message and every list alone.
func (g *Gate) Governs() bool { return g.settings.Load().Policy != nil }

// Swap replaces the settings. It reports whether clients may now see other
// tools, or see them otherwise.
func (g *Gate) Swap(s *Settings) (seenOtherwise bool) {
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
