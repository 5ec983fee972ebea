package catalog

import (
	"context"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// offeredTools are the last listed tools of each upstream. They serve to find rules that match no
// tool.
type offeredTools struct {
	mu     sync.Mutex
	tools  map[string][]policy.Named // by upstream
	warned string                    // the policy snapshot whose rules were checked
}

// maxToolsPerUpstream is how many tools of an upstream are counted and compared with rules.
const maxToolsPerUpstream = 10_000

// add adds a page of tools. When every upstream has returned a complete list, it returns all
// tools, once for each policy snapshot.
func (o *offeredTools) add(s *Settings, upstream string, page Page, tools []Tool) []policy.Named {
	o.mu.Lock()
	defer o.mu.Unlock()
	if page.Cursor == "" {
		o.tools[upstream] = nil
	}
	for _, t := range tools[:min(len(tools), maxToolsPerUpstream-len(o.tools[upstream]))] {
		if policy.TooLong(policy.Tool, t.Name) {
			continue // calls of it are always refused
		}
		o.tools[upstream] = append(o.tools[upstream], policy.Named{Upstream: upstream, Kind: policy.Tool, Name: t.Name})
	}
	if len(o.tools[upstream]) == maxToolsPerUpstream {
		return nil // a rule may match one of the other tools
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

// warnUnused logs the rules that match no listed tool.
func (g *Catalog) warnUnused(ctx context.Context, c Client, page Page, tools []Tool) {
	s := g.settings.Load()
	if s.Policy == nil || page.Method != mcpname.ToolsList {
		return
	}
	offered := g.offered.add(s, c.Upstream, page, tools)
	if offered == nil {
		return
	}
	for _, w := range s.Policy.Unused(offered) {
		g.log.WarnContext(ctx, "policy", "warning", w.String())
	}
}
