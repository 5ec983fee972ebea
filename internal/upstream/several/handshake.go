package several

import (
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// capabilities are those that an endpoint can offer for its servers. Others, such as extensions of a
// server, are not declared, because their messages could not be assigned to a server.
var capabilities = []string{"tools", "prompts", "resources", "completions", "logging", "tasks"}

// Initialized returns the result of initialize for a client that asks for a protocol version.
func (e *Endpoint) Initialized(version string, parts []Part) []byte {
	if i := slices.Index(mcp.Versions(), version); i < 0 || version >= mcp.Version20260728 {
		version = mcp.Version20251125
	}
	return e.handshake(parts, offered(parts), about(parts, nil), jsonrpc.Member{Name: "protocolVersion", JSON: jsonrpc.AppendString(nil, version)}, jsonrpc.Member{Name: "serverInfo", JSON: serverInfo})
}

// Discovered returns the result of server/discover.
func (e *Endpoint) Discovered(parts []Part) []byte {
	return e.handshake(parts, offered(parts), about(parts, nil, identified), jsonrpc.Member{Name: "resultType", JSON: []byte(`"complete"`)},
		jsonrpc.Member{Name: "supportedVersions", JSON: []byte(`["` + mcp.Version20260728 + `"]`)},
		jsonrpc.Member{Name: "ttlMs", JSON: []byte("0")}, jsonrpc.Member{Name: "cacheScope", JSON: []byte(`"private"`)})
}

// serverInfo names the endpoint for clients.
var serverInfo = []byte(`{"name":"thoughtgate","version":"1"}`)

// identified is the metadata that results of the modern era have.
var identified = jsonrpc.Member{Name: mcpname.MetaServerInfo, JSON: serverInfo}

func (e *Endpoint) handshake(parts []Part, offers []jsonrpc.Member, meta []byte, members ...jsonrpc.Member) []byte {
	var instructions strings.Builder
	if e.Search {
		instructions.WriteString("Find tools with " + FindTools + " and call them with " + CallTool + ".\n\n")
	}
	for _, p := range parts {
		for _, result := range p.Results {
			if text, _ := result.Member("instructions").Text(); text != "" {
				instructions.WriteString(p.Server.introduction() + "\n" + strings.TrimSpace(text) + "\n\n")
			}
		}
	}
	members = append(members, jsonrpc.Member{Name: "capabilities", JSON: jsonrpc.AppendObject(nil, offers...)})
	if text := strings.TrimSpace(instructions.String()); text != "" {
		members = append(members, jsonrpc.Member{Name: "instructions", JSON: jsonrpc.AppendString(nil, text)})
	}
	if meta != nil {
		members = append(members, jsonrpc.Member{Name: "_meta", JSON: meta})
	}
	return jsonrpc.AppendObject(nil, members...)
}

// offered returns the capabilities of all servers together.
func offered(parts []Part) []jsonrpc.Member {
	all := make(map[string]jsonrpc.Value)
	missing := false
	for _, p := range parts {
		missing = missing || p.Results == nil
		for _, result := range p.Results {
			declared := result.Member("capabilities")
			for _, name := range capabilities {
				all[name] = union(all[name], declared.Member(name))
			}
			if declared.Member("extensions").Member(mcpname.ExtensionTasks).Present() {
				all["extensions"] = jsonrpc.Value{Bytes: []byte(`{"` + mcpname.ExtensionTasks + `":{}}`)}
			}
		}
	}
	var members []jsonrpc.Member
	for _, name := range append(slices.Clone(capabilities), "extensions") {
		value := all[name]
		if missing && !value.Present() && name != "tasks" && name != "extensions" {
			value = jsonrpc.Value{Bytes: []byte("{}")} // the missing server may return with it
		}
		if value.Present() {
			members = append(members, jsonrpc.Member{Name: name, JSON: value.Bytes})
		}
	}
	return members
}

// introduction returns the heading of the server's part of the instructions.
func (s *Server) introduction() string {
	if s.Prefix == "" {
		return "# " + s.Name()
	}
	return "# " + s.Name() + " (tools and prompts beginning with " + s.Prefix + prefixEnd + ")"
}

// union returns an object with the members of two. Of a member of both, true wins, and objects are
// merged.
func union(a, b jsonrpc.Value) jsonrpc.Value {
	switch {
	case !b.IsObject():
		return a
	case !a.IsObject():
		return b
	}
	var members []jsonrpc.Member
	for name, value := range a.Members() {
		other := b.Member(name)
		switch {
		case value.IsObject():
			value = union(value, other)
		case other.IsTrue():
			value = other
		}
		members = append(members, jsonrpc.Member{Name: name, JSON: value.Bytes})
	}
	for name, value := range b.Members() {
		if !a.Member(name).Present() {
			members = append(members, jsonrpc.Member{Name: name, JSON: value.Bytes})
		}
	}
	return jsonrpc.Value{Bytes: jsonrpc.AppendObject(nil, members...)}
}
