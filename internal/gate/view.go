package gate

import (
	"context"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Meet takes note of what a client and an upstream said when they met.
func (g *Gate) Meet(ctx context.Context, c Client, facts Facts) {
	g.log.InfoContext(ctx, "upstream capabilities", "upstream", c.Upstream, "tasks", facts.Tasks, "sse", facts.Notifies)
	for _, said := range []*string{&facts.Session.Client, &facts.Session.Version, &facts.Session.Protocol} {
		*said = shortened(*said)
	}
	facts.Known = true
	g.catalog.learnFacts(c, g.shelfBudget(), facts)
}

// NoteTasks takes note of whether the upstream does tasks for a client. What
// was known of the two besides stays.
func (g *Gate) NoteTasks(c Client, tasks bool) { g.catalog.learnTasks(c, g.shelfBudget(), tasks) }

// maxSaid is how many bytes of each thing that a client says of itself are kept:
// with the client, and with each of its calls that is held.
const maxSaid = 256

// shortened returns the beginning of text, in memory of its own.
func shortened(text string) string { return strings.Clone(beginning(text)) }

// beginning returns the beginning of text.
func beginning(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxSaid)], "") }

// About returns what a client and its upstream said when they met.
func (g *Gate) About(c Client) Facts { return g.catalog.about(c) }

// Tool returns what the upstream listed of a tool for the client, if it did.
func (g *Gate) Tool(c Client, name string) (Tool, bool) { return g.catalog.tool(c, name) }

// shelfBudget returns how much is remembered of each upstream.
func (g *Gate) shelfBudget() int {
	return max(minShelf, maxCatalog/max(1, len(g.settings.Load().Upstreams)))
}

// Learn takes note of a page of a list, as the upstream gave it, and of the
// tools on it. It keeps no part of the page's memory.
func (g *Gate) Learn(ctx context.Context, c Client, page Page, entries jsonrpc.Value) {
	var tools []Tool
	if page.Method == listTools {
		for entry := range entries.Elements() {
			tools = append(tools, ReadTool(entry))
		}
	}
	for _, what := range g.catalog.learnPage(c, g.shelfBudget(), page, tools) {
		g.overflowed(ctx, c.Upstream, what)
	}
	g.warnUnused(ctx, c, page, tools)
}

// overflowed reports that the catalog had no room for what an upstream listed: in
// the log the first time, and in the metrics always.
func (g *Gate) overflowed(ctx context.Context, upstream string, what overflow) {
	g.metrics.CatalogOverflowed(upstream, string(what))
	if _, logged := g.overflows.LoadOrStore(upstream+" "+string(what), true); logged {
		return
	}
	g.log.WarnContext(ctx, "an upstream lists more tools than the gate keeps: the rest are unknown, and policy assumes the worst about them",
		"upstream", upstream, "limit", string(what))
}

// Remembered returns the result that a list had when it was last given.
func (g *Gate) Remembered(c Client, method, cursor string) ([]byte, bool) {
	return g.catalog.page(c, method, cursor)
}

// kinds says what the lists are about.
var kinds = map[string]policy.Kind{
	listTools:                  policy.Tool,
	"prompts/list":             policy.Prompt,
	"resources/list":           policy.Resource,
	"resources/templates/list": policy.Resource,
}

// A View is how one client sees the entries of one list.
type View struct {
	gate     *Gate
	settings *Settings
	client   Client
	kind     policy.Kind
	facts    Facts
	seen     []sighting // the tools on the page
}

// View returns how a client sees the list that method gives.
func (g *Gate) View(c Client, method string) *View {
	return &View{
		gate: g, settings: g.settings.Load(), client: c, kind: kinds[method],
		facts: g.catalog.about(c),
	}
}

// See returns whether an entry is hidden from the client and, for a tool, which
// task support it is shown with; empty means that nothing is to be changed. A
// template of resources is hidden only if it is denied by its own text.
func (v *View) See(name, uri string, entry jsonrpc.Value) (hidden bool, support string) {
	if v.settings.Policy == nil {
		return false, "" // it was taken away since the list was asked for
	}
	named := policy.Named{Upstream: v.client.Upstream, Kind: v.kind, Name: name}
	if v.kind == policy.Resource {
		named.Name = uri
	}
	prospect := v.settings.Policy.Prospect(named, v.client.Principal)
	if prospect.Denied() && v.settings.HideDenied {
		return true, ""
	}
	if v.kind != policy.Tool {
		return false, ""
	}
	tool := readTool(entry)
	published := v.settings.terms(policy.Tool, tool, v.facts).Published(prospect)
	v.seen = append(v.seen, sighting{name: name, support: published, prospect: prospect})
	if published == policy.TaskForbidden && tool.TaskSupport == "" {
		return false, "" // that is what saying nothing means
	}
	return false, string(published)
}
