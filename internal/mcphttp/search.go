package mcphttp

import (
	"context"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/several"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// call answers a call of a tool of a server, or of one of the gate.
func (c *combined) call() error {
	name, _ := c.m.Params.Name.Text()
	switch {
	case c.endpoint.Search && name == several.FindTools:
		return c.findTools()
	case c.endpoint.Search && name == several.CallTool:
		return c.callTool()
	default:
		return c.named(c.m.Params.Name, c.endpoint.Tool, "tool")
	}
}

// findTools answers with the tools that match a query, in the lists that the client would get.
func (c *combined) findTools() error {
	given := c.m.Params.Arguments
	if other := unknownMember(given, "query", "limit"); other != "" {
		return c.wrong(other)
	}
	query, ok := given.Member("query").Text()
	if !ok {
		return c.wrong("query must be a text that says what the tool should do")
	}
	limit, whole := given.Member("limit").Int()
	if given.Member("limit").Present() && !whole {
		return c.wrong("limit must be an integer")
	}
	if !whole {
		limit = several.DefaultFound
	}
	c.x.delegated = true
	found := c.endpoint.Found(c.x.client.era, query, int(min(max(limit, 1), several.MaxFound)), c.lists(mcpname.ToolsList))
	return c.answer(found)
}

// callTool forwards the call that a call of [several.CallTool] asks for. All other members of the
// message, such as the token for progress, stay, so the server and policy see a call as any other.
func (c *combined) callTool() error {
	given := c.m.Params.Arguments
	if other := unknownMember(given, "name", "arguments"); other != "" {
		return c.wrong(other)
	}
	public, _ := given.Member("name").Text()
	s, own, ok := c.endpoint.Tool(public)
	if !ok {
		return c.wrong("name must be the name of a tool, as " + several.FindTools + " returns it")
	}
	arguments := given.Member("arguments")
	if !arguments.Present() {
		arguments.Bytes = []byte("{}")
	}
	if !arguments.IsObject() {
		return c.wrong("arguments must be an object")
	}
	var patch jsonrpc.Patch
	patch.Replace(c.m.Params.Name, jsonrpc.AppendString(nil, own))
	patch.Replace(given, arguments.Bytes)
	return c.route(s, patch.Apply(c.m.Raw), own)
}

// unknownMember says that an object has a member with another name than these, or returns "".
func unknownMember(object jsonrpc.Value, names ...string) string {
	for name := range object.Members() {
		if !slices.Contains(names, name) {
			return "the only arguments are " + names[0] + " and " + names[1]
		}
	}
	return ""
}

// wrong answers a call of a tool of the gate with wrong arguments. Models see only results.
func (c *combined) wrong(why string) error {
	return c.answer(several.ToolError(c.x.client.era, why))
}

// mirror sets the headers that repeat arguments of a forwarded call. A client of an endpoint with search
// does not know of them, because its list does not have the tool.
func (x *exchange) mirror(ctx context.Context, m *jsonrpc.Message) {
	if !x.unlisted || x.client.era != mcp.Modern || x.client.down != nil || m.Method != mcpname.ToolsCall || mcp.HasMirrors(x.r.Header) {
		return
	}
	name, _ := m.Params.Name.Text()
	tool, known := x.h.cfg.Catalog.Tool(x.client.Identity(), name)
	if !known {
		tool, _ = x.client.Caller().Definition(ctx, m) // without it, the server says what is missing
	}
	if tool.Mirrored != nil {
		_ = mcp.MirrorArguments(x.r.Header, jsonrpc.Value{Bytes: tool.Mirrored}, m.Params.Arguments)
	}
}
