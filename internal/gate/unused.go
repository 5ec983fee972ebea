package gate

import (
	"context"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// offers are the tools that each upstream was last seen to offer to anybody, so
// that rules which match none of them can be told.
type offers struct {
	mu     sync.Mutex
	tools  map[string][]policy.Named // by upstream
	warned string                    // the snapshot whose rules have been looked at
}

// maxOffers is how many tools of an upstream are looked at for that.
const maxOffers = 10_000

// note takes in a page of tools. It returns all that is offered once, for each
// snapshot, when every upstream has given a whole list.
func (o *offers) note(s *Settings, upstream string, page Page, tools []Tool) []policy.Named {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tools == nil {
		o.tools = make(map[string][]policy.Named)
	}
	if page.Cursor == "" {
		o.tools[upstream] = nil
	}
	for _, t := range tools[:min(len(tools), maxOffers-len(o.tools[upstream]))] {
		o.tools[upstream] = append(o.tools[upstream], policy.Named{Upstream: upstream, Kind: policy.Tool, Name: t.Name})
	}
	if len(o.tools[upstream]) == maxOffers {
		return nil // whether a rule matches any of the rest is not known
	}
	whole := !jsonrpc.Value{Bytes: page.Result}.Member("nextCursor").Present()
	if !whole || o.warned == s.Policy.ID() || len(o.tools) < len(s.Upstreams) {
		return nil
	}
	o.warned = s.Policy.ID()
	var all []policy.Named
	for _, named := range o.tools {
		all = append(all, named...)
	}
	return all
}

// warnUnused logs which rules match nothing of what is offered.
func (g *Gate) warnUnused(ctx context.Context, c Client, page Page, tools []Tool) {
	s := g.settings.Load()
	if s.Policy == nil || page.Method != listTools {
		return
	}
	offered := g.offers.note(s, c.Upstream, page, tools)
	if offered == nil {
		return
	}
	for _, w := range s.Policy.Unused(offered) {
		g.log.WarnContext(ctx, "policy", "warning", w.String())
	}
}
