package several

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// MaxList is how many bytes of one server's list clients get.
const MaxList = 8 << 20

// A Part is what one server has answered to a request that goes to all.
type Part struct {
	Server  *Server
	Results []jsonrpc.Value // of each page; nil if the server has not answered
	Why     string          // what is missing; empty if nothing is
	Stale   bool            // these are earlier answers
}

// lists are the members of results that have the lists.
var lists = map[string]string{
	mcpname.ToolsList: "tools", mcpname.PromptsList: "prompts", mcpname.ResourcesList: "resources",
	mcpname.ResourcesTemplatesList: "resourceTemplates", mcpname.TasksList: "tasks",
}

// MergeLists returns the list of all servers for a client, in the order of the servers. It learns its URIs.
func (e *Endpoint) MergeLists(client, method string, era mcp.Era, parts []Part) []byte {
	e.LearnURIs(client, method, parts)
	m := e.merge(client, method, parts)
	members, named := []jsonrpc.Member{{Name: lists[method], JSON: jsonrpc.Array(m.entries)}}, []jsonrpc.Member(nil)
	if era == mcp.Modern {
		members = append(members, jsonrpc.Member{Name: "resultType", JSON: []byte(`"complete"`)})
		members, named = append(members, m.caching(parts)...), []jsonrpc.Member{identified}
	}
	if meta := about(parts, m.collisions, named...); meta != nil {
		members = append(members, jsonrpc.Member{Name: "_meta", JSON: meta})
	}
	return jsonrpc.AppendObject(nil, members...)
}

func (e *Endpoint) merge(client, method string, parts []Part) merged {
	m := merged{endpoint: e, client: client, method: method, ttl: -1, public: true}
	for _, p := range parts {
		for _, result := range p.Results {
			m.add(p.Server, result)
		}
	}
	return m
}

// merged collects the entries of a list.
type merged struct {
	endpoint   *Endpoint
	method     string
	client     string
	entries    [][]byte
	collisions []string
	ttl        int64 // the shortest; -1 if none is known
	public     bool
}

// add adds one page of a server.
func (m *merged) add(s *Server, result jsonrpc.Value) {
	if ttl, ok := result.Member("ttlMs").Int(); ok && (m.ttl < 0 || ttl < m.ttl) {
		m.ttl = ttl
	}
	if scope, _ := result.Member("cacheScope").Text(); scope != "public" {
		m.public = false
	}
	for entry := range result.Member(lists[m.method]).Elements() {
		if shown := m.shown(s, entry); shown != nil {
			m.entries = append(m.entries, shown)
		}
	}
}

// shown returns an entry as clients see it, or nil if they do not.
func (m *merged) shown(s *Server, entry jsonrpc.Value) []byte {
	name := entry.Member("name")
	own, named := name.Text()
	var public string
	var to target
	switch m.method {
	case mcpname.ToolsList:
		if !named || !s.offers(own) {
			return nil
		}
		public = m.endpoint.publicTool(s, own)
		to.server, to.own, _ = m.endpoint.Tool(public)
	case mcpname.PromptsList:
		if !named {
			return nil
		}
		public = s.publicPrompt(own)
		to.server, to.own, _ = m.endpoint.Prompt(public)
	case mcpname.ResourcesList, mcpname.ResourcesTemplatesList:
		return m.resource(s, entry)
	default:
		return entry.Bytes
	}
	if to != (target{s, own}) {
		m.collided(public, s, to.server)
		return nil
	}
	if public == own {
		return entry.Bytes
	}
	name.Offset -= entry.Offset
	var patch jsonrpc.Patch
	patch.Replace(name, jsonrpc.AppendString(nil, public))
	return patch.Apply(entry.Bytes)
}

const maxCollisions = 100

// collided notes that an entry of a server is left out, because its name means something of another
// server, or of none.
func (m *merged) collided(name string, s, means *Server) {
	if len(m.collisions) >= maxCollisions || slices.Contains(m.collisions, name) {
		return
	}
	m.collisions = append(m.collisions, name)
	other := ""
	if means != nil {
		other = means.Name()
	}
	m.endpoint.log.Warn("a name means something of another server: left out of the list", "method", m.method, "name", name, "upstream", s.Name(), "means_upstream", other)
}

// resource returns a resource or template, or nil if another server has it.
func (m *merged) resource(s *Server, entry jsonrpc.Value) []byte {
	uri := uriOf(entry)
	owner, _ := m.endpoint.templates.get(m.client, uri)
	if m.method == mcpname.ResourcesList {
		owner = m.endpoint.Owner(m.client, uri)
	}
	if owner != nil && owner != s {
		m.collided(uri, s, owner)
		return nil
	}
	return entry.Bytes
}

// caching returns how long clients of the modern era may keep the list.
func (m *merged) caching(parts []Part) []jsonrpc.Member {
	ttl, scope := max(m.ttl, 0), `"private"`
	if m.public {
		scope = `"public"`
	}
	if slices.ContainsFunc(parts, func(p Part) bool { return p.Why != "" }) {
		ttl = 0
	}
	return []jsonrpc.Member{{Name: "ttlMs", JSON: strconv.AppendInt(nil, ttl, 10)}, {Name: "cacheScope", JSON: []byte(scope)}}
}

// uriOf returns the URI of a resource, or the template of a template.
func uriOf(entry jsonrpc.Value) string {
	uri, ok := entry.Member("uri").Text()
	if !ok {
		uri, _ = entry.Member("uriTemplate").Text()
	}
	return uri
}

// about returns the metadata of an answer of all servers: which of them are missing or have
// answered earlier only, names that several use, and more. It returns nil if there is nothing to say.
func about(parts []Part, collisions []string, members ...jsonrpc.Member) []byte {
	var missing, stale, collided [][]byte
	for _, p := range parts {
		name := jsonrpc.AppendString(nil, p.Server.Name())
		switch {
		case p.Why == "":
		case p.Stale:
			stale = append(stale, name)
		default:
			missing = append(missing, jsonrpc.AppendObject(nil,
				jsonrpc.Member{Name: "server", JSON: name}, jsonrpc.Member{Name: "reason", JSON: jsonrpc.AppendString(nil, p.Why)}))
		}
	}
	for _, name := range collisions {
		collided = append(collided, jsonrpc.AppendString(nil, name))
	}
	for _, m := range []struct {
		name string
		list [][]byte
	}{{"unavailable", missing}, {"stale", stale}, {"collisions", collided}} {
		if m.list != nil {
			members = append(members, jsonrpc.Member{Name: mcp.Vendor + m.name, JSON: jsonrpc.Array(m.list)})
		}
	}
	if members == nil {
		return nil
	}
	return jsonrpc.AppendObject(nil, members...)
}

// Copy returns a result that does not refer to the message that it came with.
func Copy(result jsonrpc.Value) jsonrpc.Value { return jsonrpc.Value{Bytes: bytes.Clone(result.Bytes)} }
