package several

import (
	"slices"
	"strings"
)

// prefixEnd ends the prefix of a name. No prefix contains it, or an underscore at all, so a name
// begins with at most one prefix.
const prefixEnd = "__"

// A target is a name of one server.
type target struct {
	server *Server
	own    string
}

// Tool returns the server of a tool, and the server's own name of it. Only configuration decides,
// never what servers list, so that no server can take the names of another one.
func (e *Endpoint) Tool(public string) (s *Server, own string, ok bool) {
	if e.Search && isOwn(public) {
		return nil, "", false
	}
	if t, renamed := e.renamed[public]; renamed {
		return t.server, t.own, t.server.offers(t.own)
	}
	s, own, ok = e.Prompt(public)
	if s == nil || !ok {
		return nil, "", false
	}
	if s == e.plain && e.Search {
		if rest, prefixed := strings.CutPrefix(own, s.Name()+prefixEnd); prefixed && isOwn(rest) {
			own = rest
		}
	}
	_, renamed := s.Rename[own] // only the new name counts
	return s, own, !renamed && s.offers(own)
}

// Prompt returns the server of a prompt, and the server's own name of it.
func (e *Endpoint) Prompt(public string) (s *Server, own string, ok bool) {
	prefix, rest, prefixed := strings.Cut(public, prefixEnd)
	if s = e.byPrefix[prefix]; prefixed && s != nil {
		return s, rest, rest != ""
	}
	return e.plain, public, e.plain != nil && public != ""
}

// offers reports whether clients reach a tool of the server.
func (s *Server) offers(own string) bool {
	matched := func(pattern string) bool { return matches(pattern, own) }
	return (s.Include == nil || slices.ContainsFunc(s.Include, matched)) && !slices.ContainsFunc(s.Exclude, matched)
}

// publicTool returns the name of a tool for clients. A tool with the name of one of the gate gets a prefix.
func (e *Endpoint) publicTool(s *Server, own string) string {
	if public, renamed := s.Rename[own]; renamed {
		return public
	}
	if public := s.publicPrompt(own); !e.Search || !isOwn(public) {
		return public
	}
	public := s.Name() + prefixEnd + own
	e.prefixed.Do(func() {
		e.log.Warn("a server has a tool with the name of a tool of the gate: agents see it with a prefix", "upstream", s.Name(), "tool", own, "name", public)
	})
	return public
}

// publicPrompt returns the name of a prompt for clients.
func (s *Server) publicPrompt(own string) string {
	if s.Prefix == "" {
		return own
	}
	return s.Prefix + prefixEnd + own
}

// matches reports whether a name matches a pattern, in which * matches any text.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok || len(parts) == 1 {
		return ok && rest == ""
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		if _, rest, ok = strings.Cut(rest, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[last])
}
