package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An Endpoint is a path at which agents reach one upstream, or several as one server.
type Endpoint struct {
	Path    string
	Scopes  []string // that the JWT of an agent needs
	Search  bool     // agents see tools that find and call the tools of the servers
	Servers []EndpointServer
}

// IsPlain reports whether the endpoint is another path of one upstream, whose names it leaves alone.
func (e Endpoint) IsPlain() bool {
	s := e.Servers
	return !e.Search && len(s) == 1 && s[0].Prefix == "" && len(s[0].Rename)+len(s[0].Include)+len(s[0].Exclude) == 0
}

// An EndpointServer is an upstream of an [Endpoint], and how agents see its tools.
type EndpointServer struct {
	Upstream string
	Prefix   string            // of the names of tools and prompts; empty means none
	Rename   map[string]string // other names of some tools, without a prefix
	Include  []string          // patterns of the tools that agents see; nil means all
	Exclude  []string          // patterns of tools that agents do not see
}

func (e *Endpoint) settings() Group {
	return Group{
		{"path", Read(&e.Path, wantPath, func(s string) (string, bool) { return s, isPath(s) })},
		{"scopes", texts(&e.Scopes, "the name of a scope", isScope)},
		{"search", Bool(&e.Search)},
		{"servers", Required(listOf(&e.Servers, EndpointServer{}, (*EndpointServer).settings))},
	}
}

func (s *EndpointServer) settings() Group {
	return Group{
		{"upstream", Required(name(&s.Upstream))},
		{"prefix", Optional(Read(&s.Prefix, "letters, digits and hyphens", func(text string) (string, bool) {
			return text, len(text) <= 63 && only(text, letters+digits+"-")
		}))},
		{"rename", renames(&s.Rename)},
		{"include", texts(&s.Include, "the name of a tool, in which * matches any text", isLineOfText)},
		{"exclude", texts(&s.Exclude, "the name of a tool, in which * matches any text", isLineOfText)},
	}
}

// renames parses other names of tools.
func renames(p *map[string]string) Dict {
	return func(key string) (Setting, string) {
		if !isLineOfText(key) {
			return nil, "is not the name of a tool"
		}
		if *p == nil {
			*p = map[string]string{}
		}
		(*p)[key] = ""
		set := func(text string) bool {
			(*p)[key] = text
			return isLineOfText(text)
		}
		return Leaf{want: "the name of a tool", kinds: isText, set: set}.called("text"), ""
	}
}

// PrefixEnd ends the prefix of a name. No prefix contains it.
const PrefixEnd = "__"

// checkEndpoints checks the endpoints, and sets their default paths and prefixes. The keys of paths
// are those of the upstreams.
func (l *loader) checkEndpoints(paths map[string]int) {
	own := map[string]int{}
	for i := range l.cfg.Endpoints {
		e, at := &l.cfg.Endpoints[i], fmt.Sprintf("endpoints[%d]", i)
		switch {
		case e.Path != "" || l.given(at+".path"):
		case len(l.cfg.Endpoints) == 1:
			e.Path = "/mcp"
		default:
			l.report(l.origin(at), at+".path", "is required when there are several endpoints")
		}
		if _, taken := paths[e.Path]; taken {
			l.rejectNew(at+".path", "is the path of an upstream")
		}
		l.checkUnique("endpoints", ".path", own, i, e.Path)
		if len(e.Servers) == 0 && !l.faulty(at) {
			l.rejectNew(at+".servers", "needs at least one upstream")
		}
		l.checkEndpointServers(at, e)
	}
}

// checkEndpointServers checks the servers of the endpoint at a path. The first one has no prefix by
// default, so that an endpoint keeps its names when another server is added.
func (l *loader) checkEndpointServers(at string, e *Endpoint) {
	upstreams, prefixes := map[string]int{}, map[string]int{}
	unprefixed := -1
	for i := range e.Servers {
		s, each := &e.Servers[i], fmt.Sprintf("%s.servers[%d]", at, i)
		known := func(u Upstream) bool { return u.Name == s.Upstream }
		if s.Upstream != "" && !slices.ContainsFunc(l.cfg.Upstreams, known) {
			l.rejectNew(each+".upstream", fmt.Sprintf("no upstream %q", s.Upstream))
		}
		l.checkUnique(at+".servers", ".upstream", upstreams, i, s.Upstream)
		if len(e.Servers) > 1 {
			l.translateByDefault(s.Upstream)
		}
		if i > 0 && !l.given(each+".prefix") {
			s.Prefix = s.Upstream
		}
		l.checkUnique(at+".servers", ".prefix", prefixes, i, s.Prefix)
		if s.Prefix != "" || s.Upstream == "" {
			continue
		}
		if unprefixed >= 0 {
			l.rejectNew(each+".prefix", fmt.Sprintf("is needed: %s.servers[%d] has none either, so a name would not tell the server", at, unprefixed))
		}
		unprefixed = i
	}
	l.checkRenames(at, e, prefixes)
}

// translateByDefault lets clients of any era use a server of an endpoint of several. It leaves programs alone:
// many speak to clients of both eras, and asking one what it speaks starts a process.
func (l *loader) translateByDefault(name string) {
	for i := range l.cfg.Upstreams {
		if u := &l.cfg.Upstreams[i]; u.Name == name && u.URL != nil && !l.given(fmt.Sprintf("upstreams[%d].translate", i)) {
			u.Translate = true
		}
	}
}

// checkRenames rejects new names of tools that could mean another tool.
func (l *loader) checkRenames(at string, e *Endpoint, prefixes map[string]int) {
	taken := map[string]string{}
	for i, s := range e.Servers {
		for _, tool := range slices.Sorted(maps.Keys(s.Rename)) {
			setting, to := fmt.Sprintf("%s.servers[%d].rename.%s", at, i, tool), s.Rename[tool]
			prefix, _, prefixed := strings.Cut(to, PrefixEnd)
			owner, known := prefixes[prefix]
			switch {
			case e.Search && (to == "find_tools" || to == "call_tool"):
				l.rejectNew(setting, "is the name of a tool that search offers")
			case taken[to] != "":
				l.rejectNew(setting, "is the same name as that of "+taken[to])
			case prefixed && known && prefix != "":
				l.rejectNew(setting, fmt.Sprintf("begins with the prefix of %s.servers[%d]", at, owner))
			}
			taken[to] = setting
		}
	}
}
