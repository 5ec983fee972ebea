package catalog

import (
	"context"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// LearnHandshake stores the handshake of a client with its upstream.
func (g *Catalog) LearnHandshake(ctx context.Context, c Client, handshake Handshake) {
	g.log.InfoContext(ctx, "upstream capabilities", "upstream", c.Upstream, "tasks", handshake.Tasks, "sse", handshake.Notifies)
	for _, said := range []*string{&handshake.Session.Client, &handshake.Session.Version, &handshake.Session.Protocol} {
		*said = truncateCopy(*said)
	}
	handshake.Known = true
	g.cache.setHandshake(c, g.upstreamBudget(), handshake)
}

// LearnTaskSupport stores whether the upstream supports tasks for a client. The rest of the
// handshake stays.
func (g *Catalog) LearnTaskSupport(c Client, tasks bool) {
	g.cache.setTasks(c, g.upstreamBudget(), tasks)
}

// maxInfo is how many bytes of each text about a client are kept, in the cache and with held
// calls.
const maxInfo = 256

// truncateCopy returns the first bytes of text, in memory of its own.
func truncateCopy(text string) string { return strings.Clone(truncate(text)) }

// truncate returns the first bytes of text.
func truncate(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxInfo)], "") }

// Handshake returns the handshake of a client with its upstream.
func (g *Catalog) Handshake(c Client) Handshake {
	handshake, _, _ := g.cache.lookup(c, "")
	return handshake
}

// Tool returns a tool as it was last listed for the client.
func (g *Catalog) Tool(c Client, name string) (Tool, bool) {
	_, t, known := g.cache.lookup(c, name)
	return t, known
}

// upstreamBudget returns the size of the cache for one upstream.
func (g *Catalog) upstreamBudget() int {
	return max(minUpstreamCache, maxCache/max(1, len(g.settings.Load().Upstreams)))
}

// LearnPage stores a page of an upstream's list, and the tools on it. It keeps no reference to
// the page's memory.
func (g *Catalog) LearnPage(ctx context.Context, c Client, page Page, entries jsonrpc.Value) {
	var tools []Tool
	if page.Method == mcpname.ToolsList {
		for entry := range entries.Elements() {
			tools = append(tools, ReadTool(entry))
		}
	}
	if g.Governs() {
		g.updateHistories(ctx, c, tools) // before the cache has them and calls of them are judged
	}
	for _, what := range g.cache.addPage(c, g.upstreamBudget(), page, tools) {
		g.overflowed(ctx, c.Upstream, what)
	}
	g.warnUnused(ctx, c, page, tools)
}

// overflowed counts that a list of an upstream did not fit into the cache, and logs it the first
// time.
func (g *Catalog) overflowed(ctx context.Context, upstream string, what overflow) {
	g.metrics.CatalogOverflowed(upstream, string(what))
	if _, logged := g.overflows.LoadOrStore(upstream+" "+string(what), true); logged {
		return
	}
	g.log.WarnContext(ctx, "upstream lists more tools than the gate keeps; policy assumes the worst hints for the others",
		"upstream", upstream, "limit", string(what))
}

// CachedPage returns the last known result of a list.
func (g *Catalog) CachedPage(c Client, method, cursor string) ([]byte, bool) {
	return g.cache.page(c, method, cursor)
}

// kinds are the kinds of entries by list method.
var kinds = map[string]policy.Kind{
	mcpname.ToolsList:              policy.Tool,
	mcpname.PromptsList:            policy.Prompt,
	mcpname.ResourcesList:          policy.Resource,
	mcpname.ResourcesTemplatesList: policy.Resource,
}

// A View decides what one client sees of one list.
type View struct {
	catalog   *Catalog
	settings  *Settings
	client    Client
	kind      policy.Kind
	handshake Handshake
	seen      []toolView // the tools on the page
}

// View returns the view of a client on the list that method returns.
func (g *Catalog) View(c Client, method string) *View {
	return &View{catalog: g, settings: g.settings.Load(), client: c, kind: kinds[method], handshake: g.Handshake(c)}
}

// Entry returns whether an entry is hidden and, for a tool, the task support that the client
// sees; empty leaves the entry unchanged. A template of resources is hidden only if its own text
// is denied.
func (v *View) Entry(name, uri string, entry jsonrpc.Value) (hidden bool, support string) {
	if v.settings.Policy == nil {
		return false, "" // the policy was removed after the request for the list
	}
	named := policy.Named{Upstream: v.client.Upstream, Kind: v.kind, Name: name}
	if v.kind == policy.Resource {
		named.Name = uri
	}
	if v.kind == policy.Tool {
		listed, _ := v.catalog.Tool(v.client, name)
		named.Changed = v.catalog.changed(v.client, listed)
		named.Digest, named.Accepted = v.catalog.pin(v.settings.Policy, v.client, listed)
	}
	prospect := v.settings.Policy.Prospect(named, v.client.Principal)
	//mutate:false internal/app.TestUnpinnedToolsAreCaught agents see the poisoned description of a denied tool
	if prospect.Denied() && v.settings.Policy.Withholds(named) {
		return true, ""
	}
	return v.show(name, prospect, entry)
}

// show returns how the client sees an entry, given the possible verdicts on it.
func (v *View) show(name string, prospect policy.Prospect, entry jsonrpc.Value) (hidden bool, support string) {
	if prospect.Denied() && v.settings.HideDenied {
		return true, ""
	}
	if v.kind != policy.Tool {
		return false, ""
	}
	tool := readTool(entry)
	published := v.settings.terms(policy.Tool, tool, v.handshake).Published(prospect)
	v.seen = append(v.seen, toolView{name: name, support: published, prospect: prospect})
	if published == policy.TaskForbidden && tool.TaskSupport == "" {
		return false, "" // forbidden is the default
	}
	return false, string(published)
}
