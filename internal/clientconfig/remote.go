package clientconfig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/localhost"
)

// A remote is a server that a client reaches by URL. The client starts wrap --url in its place.
type remote struct {
	url     *member
	kind    *member // type; may be nil
	headers *member // may be nil
	token   *member // bearer_token_env_var of Codex: the name of an environment variable; may be nil
}

// The names of members of servers that are reached by URL.
var (
	urlNames    = []string{"url", "httpUrl", "serverUrl"}
	headerNames = []string{"headers", "http_headers"}
)

// onlyForURLs are settings that a program cannot have, or with which the client signs in itself.
var onlyForURLs = []string{
	"oauth", "auth", "authProviderType", "headersHelper", "scopes", "oauth_resource", "env_http_headers", "transport",
	"args", "env", "environment", "env_vars", "envFile",
}

// readRemote reads a server with a URL. It stays as it is if wrap cannot take its place; the warning
// says why.
func (e *entry) readRemote(n *node, c Client) {
	e.Status = Remote
	r := remote{url: findOf(n, urlNames), kind: n.find("type"), headers: findOf(n, headerNames), token: n.find("bearer_token_env_var")}
	if e.Warning = r.obstacle(n, c); e.Warning == "" {
		e.Status, e.remote = Wrapped, &r
	}
}

func findOf(n *node, names []string) *member {
	for _, name := range names {
		if m := n.find(name); m != nil {
			return m
		}
	}
	return nil
}

// obstacle says why wrap cannot take the place of the client's own connection, or nothing.
func (r remote) obstacle(n *node, c Client) string {
	return cmp.Or(r.settingObstacle(n), r.transportObstacle(c), r.urlObstacle(), r.headerObstacle())
}

func (r remote) settingObstacle(n *node) string {
	for _, m := range n.members {
		isOtherURL := m.name != r.url.name && slices.Contains(urlNames, m.name)
		areOtherHeaders := r.headers != nil && m.name != r.headers.name && slices.Contains(headerNames, m.name)
		if isOtherURL || areOtherHeaders || slices.Contains(onlyForURLs, m.name) {
			return "wrap does not know its setting " + m.name
		}
	}
	return ""
}

func (r remote) transportObstacle(c Client) string {
	switch {
	case r.kind != nil && r.kind.value.kind != text:
		return "its type is " + string(r.kind.value.kind)
	case r.isSSE(c):
		return "it uses SSE, the transport of 2024, which wrap does not know"
	default:
		return ""
	}
}

func (r remote) urlObstacle() string {
	if r.urlVaries() {
		return ""
	}
	u, err := url.Parse(r.url.value.value)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return "its URL is not one of http or https without a user"
	}
	if u.Scheme == "http" && !localhost.Is(u.Hostname()) && (r.headers != nil || r.token != nil) {
		return "its headers would be sent without encryption"
	}
	return ""
}

// headerObstacle says why wrap cannot send the headers.
func (r remote) headerObstacle() string {
	if r.token != nil && (r.token.value.kind != text || !plainName.MatchString(r.token.value.value)) {
		return "the name of its token is unusual"
	}
	if r.headers == nil {
		return ""
	}
	if r.headers.value.kind != object || r.headers.value.end == 0 {
		return "its headers are not one table beside the URL"
	}
	for _, h := range r.headers.value.members {
		if !plainName.MatchString(h.name) || h.value.kind != text {
			return "a header of it is unusual"
		}
	}
	return ""
}

// plainName matches names of headers and of environment variables.
var plainName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// isSSE reports whether the client uses the transport of 2024, in which a stream comes first.
func (r remote) isSSE(c Client) bool {
	kind := ""
	if r.kind != nil {
		kind = r.kind.value.value
	}
	path, _, _ := strings.Cut(r.url.value.value, "?")
	return kind == "sse" || strings.HasSuffix(strings.TrimSuffix(path, "/"), "/sse") || c.urlIsSSE && r.url.name == "url" && kind == ""
}

// urlVaries reports whether the client replaces variables in the URL.
func (r remote) urlVaries() bool { return strings.ContainsAny(r.url.value.value, "${}") }

// urlIsSecret reports whether the URL may contain a key. Other users can read arguments of programs.
func (r remote) urlIsSecret() bool {
	u, err := url.Parse(r.url.value.value)
	if err != nil || u.RawQuery != "" || r.urlVaries() {
		return true
	}
	return slices.ContainsFunc(strings.Split(u.Path, "/"), func(part string) bool {
		return len(part) >= 20 && strings.ContainsAny(part, "0123456789")
	})
}

// A variable is an environment variable for wrap, with its value as written in the file.
type variable struct{ name, value string }

const urlVariable = "MCP_URL"

// forSignIn are the environment variables with which wrap finds a browser, the system's keyring and the
// sign-ins of other gates.
var forSignIn = []string{
	"BROWSER", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "SSH_CONNECTION", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_CURRENT_DESKTOP", "XDG_RUNTIME_DIR",
	"XDG_STATE_HOME",
}

// wrapRemote returns the edits by which the client starts wrap --url. Values that may be secrets
// move to the environment of the program.
func (c Client) wrapRemote(content []byte, e entry, w WrapOptions, by string) []Edit {
	r := e.remote
	args := append(w.flags(e.Name), "--url")
	var vars []variable
	if r.urlIsSecret() {
		args, vars = append(args, "env:"+urlVariable), append(vars, variable{urlVariable, r.url.value.in(content)})
	} else {
		args = append(args, r.url.value.value)
	}
	if r.headers != nil {
		for i, h := range r.headers.value.members {
			v := variable{fmt.Sprintf("MCP_HEADER_%d", i+1), h.value.in(content)}
			args, vars = append(args, "--header", h.name+": env:"+v.name), append(vars, v)
		}
	}
	if r.token != nil {
		args = append(args, "--header", "Authorization: Bearer ${"+r.token.value.value+"}")
	}
	members := c.commandMembers(by, args)
	if c.variables != "" && r.token == nil {
		members = append(members, variable{c.variables, c.list(forSignIn)})
	}
	environment := variable{c.environment, c.table(vars)}
	if r.headers == nil && len(vars) > 0 {
		members = append(members, environment)
	}
	edits := []Edit{c.replaceMember(content, e.path, r.url, members...)}
	if r.kind != nil {
		edits = append(edits, c.replaceMember(content, e.path, r.kind, variable{"type", c.language.quote(c.programType)}))
	}
	if r.headers != nil {
		edits = append(edits, c.replaceMember(content, e.path, r.headers, environment))
	}
	if r.token != nil {
		edits = append(edits, c.replaceMember(content, e.path, r.token, variable{c.variables, "[" + r.token.value.in(content) + "]"}))
	}
	return edits
}

// in returns the text of a value.
func (n *node) in(content []byte) string { return string(content[n.start:n.end]) }

// commandMembers returns the members that start a program.
func (c Client) commandMembers(program string, args []string) []variable {
	if c.listsCommand {
		return []variable{{"command", c.list(append([]string{program}, args...))}}
	}
	return []variable{{"command", c.language.quote(program)}, {"args", c.list(args)}}
}

// list returns a list of texts in one line.
func (c Client) list(texts []string) string {
	var quoted []string
	for _, text := range texts {
		quoted = append(quoted, c.language.quote(text))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// table returns a table in one line.
func (c Client) table(vars []variable) string {
	var all []string
	for _, v := range vars {
		all = append(all, c.language.name(v.name)+v.value)
	}
	return "{ " + strings.Join(all, ", ") + " }"
}

// replaceMember returns the edit that puts other members in the place of one.
func (c Client) replaceMember(content []byte, server []string, m *member, by ...variable) Edit {
	var all []string
	for _, v := range by {
		all = append(all, m.prefix+c.language.name(v.name)+v.value)
	}
	return Edit{
		Path: append(slices.Clone(server), m.name), To: append(slices.Clone(server), by[len(by)-1].name), First: by[0].name,
		Before: string(content[m.key:m.value.end]), After: strings.Join(all, m.gap),
	}
}

// isRemote reports whether the patch replaces a URL by a program.
func (p Patch) isRemote() bool {
	return slices.ContainsFunc(p.Edits, func(e Edit) bool { return e.First != "" })
}

// targets returns the paths that the edits of a patch change.
func (p Patch) targets() (paths [][]string) {
	for _, e := range p.Edits {
		paths = append(paths, e.Path, e.after())
		if e.First != "" {
			for _, name := range []string{e.First, "args", "env_vars"} {
				paths = append(paths, append(slices.Clone(p.Server), name))
			}
		}
	}
	return paths
}

// valuesOf returns a digest of the values that a patch has written, whatever their form.
func (p Patch) valuesOf(root *node) string {
	m, err := root.at(p.Server)
	if m == nil || err != nil {
		return ""
	}
	wanted := p.targets()
	hash := sha256.New()
	for _, value := range m.value.members {
		if !slices.ContainsFunc(wanted, func(path []string) bool { return path[len(path)-1] == value.name }) {
			continue
		}
		all := value.value.flatten(nil)
		for _, id := range slices.Sorted(maps.Keys(all)) {
			_, _ = fmt.Fprintf(hash, "%q %q %q\n", value.name, id, all[id])
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// reformatted returns the patch for a file that has the same values in another form, as clients
// write it.
func (p Patch) reformatted(content []byte, root *node) (Patch, error) {
	name := p.Server[len(p.Server)-1]
	if p.valuesOf(root) != p.Values {
		return Patch{}, fmt.Errorf("server %q was changed since it was wrapped: restore it by hand", name)
	}
	again := p
	again.Edits = nil
	for _, e := range p.Edits {
		first, err := root.at(append(slices.Clone(p.Server), e.First))
		last, err2 := root.at(e.after())
		if err != nil || err2 != nil || first == nil || last == nil || first.key > last.value.end || last.value.end == 0 {
			return Patch{}, fmt.Errorf("server %q was rearranged since it was wrapped: restore it by hand", name)
		}
		e.After = string(content[first.key:last.value.end])
		again.Edits = append(again.Edits, e)
	}
	return again, nil
}
