package clientconfig

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/secrets"
)

// MergedName is the name of the server that takes the place of merged ones.
const MergedName = "thoughtgate"

// MergeOptions select the servers to merge into one.
type MergeOptions struct {
	WrapOptions        // Config has the merged servers
	Endpoint    string // its path in Config

	known *Merged // an earlier merge of the same file; nil if there was none
}

// A MergedServer is a server for the configuration of the gate. In its texts, ${NAME} stands for an
// environment variable.
type MergedServer struct {
	Name             string
	Command          []string // nil if URL is given
	Dir, URL         string
	Env, Headers     []Pair
	Include, Exclude []string // names of tools
}

// A Pair is a name with a value.
type Pair struct{ Name, Value string }

// A Merge is the result of [Client.Merge].
type Merge struct {
	Servers []Server
	Added   []MergedServer // in their order in the file; empty if nothing changes
	Text    []byte         // the new text of the file

	merged Merged
}

// A merger collects the servers to merge.
type merger struct {
	client  Client
	content []byte
	section []string
	merge   *Merge
	known   *Merged // the earlier merge that is in the file; nil if there is none

	entries []entry    // that are merged now
	env     []variable // of the program that takes their place
	passed  []string   // environment variables that the client passes to the program
	members map[string]bool
}

// Merge returns the file of a client with one server, the gate, in place of those of one list. Values that
// may be secrets, and those in which the client replaces variables, become environment variables of that
// server. A server that an endpoint cannot have stays, with a warning that says why.
func (c Client) Merge(content []byte, o MergeOptions) (m Merge, err error) {
	root, err := parse(c.language, content)
	if err != nil {
		return m, err
	}
	entries, err := c.entries(root, o.WrapOptions)
	if err != nil {
		return m, err
	}
	g := &merger{client: c, content: content, merge: &m, members: map[string]bool{}}
	if present := o.known.in(root); present != nil {
		g.known, g.section = o.known, o.known.Section
		g.keep(present.value)
	}
	for _, e := range entries {
		if err := g.add(root, e); err != nil {
			return m, err
		}
	}
	if len(g.entries) == 0 {
		return m, nil
	}
	if err := g.checkNames(root); err != nil {
		return m, err
	}
	m.merged = Merged{Section: g.section, Program: g.entries[0].program(o.WrapOptions)}
	list, err := root.at(g.section)
	if err != nil {
		return m, err
	}
	return m, g.write(root, list.value, o)
}

// add adds a server, or says why it stays.
func (g *merger) add(root *node, e entry) error {
	section := e.path[:len(e.path)-1]
	n, err := root.at(e.path)
	if err != nil {
		return err
	}
	switch {
	case g.known != nil && e.Name == MergedName && slices.Equal(section, g.section):
		e.Status, e.Warning = Unchanged, ""
	case e.Status == Unchanged:
		return fmt.Errorf("server %q is wrapped already: undo that first with thoughtgate init --undo --for %s", e.Name, g.client.Name)
	case e.Status == Remote:
		e.Status = NotMerged
	case e.Status == Wrapped && g.section != nil && !slices.Equal(section, g.section):
		e.Status, e.Warning = NotMerged, "it is in another list"
	case e.Status == Wrapped:
		e.Status = Merging
		if why := g.server(&e, n.value); why != "" {
			e.Status, e.Warning = NotMerged, why
		} else {
			g.section, g.entries = section, append(g.entries, e)
		}
	}
	g.merge.Servers = append(g.merge.Servers, e.Server)
	return nil
}

// checkNames refuses names that two servers would have.
func (g *merger) checkNames(root *node) error {
	taken := map[string]string{}
	if g.known != nil {
		for _, server := range g.known.Servers {
			taken[gateName(server)] = server
		}
	}
	for _, e := range g.entries {
		name := gateName(e.Name)
		if other := taken[name]; other != "" {
			return fmt.Errorf("servers %q and %q would both have the name %s behind the gate: rename one, or choose others with --server", other, e.Name, name)
		}
		taken[name] = e.Name
	}
	list, err := root.at(g.section)
	if err != nil {
		return err
	}
	if other := list.value.find(MergedName); other != nil && g.known == nil && !slices.ContainsFunc(g.entries, func(e entry) bool { return e.Name == MergedName }) {
		return fmt.Errorf("there is another server with the name %s: rename it", MergedName)
	}
	return nil
}

// Settings that an endpoint has not, and that only make a client ask more often or give up later.
var withoutEffect = []string{
	"timeout", "trust", "autoApprove", "alwaysAllow", "description", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", "gallery", "version",
}

// server adds the server of e to the merge, or says why it stays.
func (g *merger) server(e *entry, n *node) (why string) {
	s := MergedServer{Name: gateName(e.Name)}
	before := *g
	defer func() {
		if why != "" {
			g.env, g.passed = before.env, before.passed
			return
		}
		g.merge.Added = append(g.merge.Added, s)
	}()
	var lost []string
	for _, m := range n.members {
		known, problem := g.setting(&s, m)
		if why = cmp.Or(why, problem); !known {
			lost = append(lost, m.name)
		}
	}
	if len(lost) > 0 {
		e.Warning = "an endpoint has no setting " + strings.Join(lost, ", ")
	}
	if e.remote != nil {
		return cmp.Or(why, g.remote(&s, e.remote))
	}
	return cmp.Or(why, g.program(&s, e, n))
}

// setting adds a setting of a server. It returns whether an endpoint has such a setting, and why the server
// cannot be merged.
func (g *merger) setting(s *MergedServer, m member) (known bool, why string) {
	switch m.name {
	case "type", "source":
		g.members[m.name] = true
	case "command", "args", "url", "httpUrl", "serverUrl", "headers", "http_headers", "bearer_token_env_var", "cwd":
	case "env", "environment":
		why = g.environment(s, m.value)
	case "env_vars":
		why = g.pass(s, m.value)
	case "disabled", "enabled":
		if (m.value.value == "true") == (m.name == "disabled") {
			why = "it is switched off"
		}
	case "includeTools", "enabled_tools":
		s.Include, why = tools(m.value)
	case "excludeTools", "disabled_tools":
		s.Exclude, why = tools(m.value)
	default:
		if !slices.Contains(withoutEffect, m.name) {
			why = "an endpoint has no setting " + m.name
		}
		return false, why
	}
	return true, why
}

// tools returns a list of names of tools.
func tools(n *node) (names []string, why string) {
	for _, item := range n.items {
		if item.kind != text || strings.ContainsAny(item.value, "*(") {
			return nil, "its list of tools is unusual"
		}
		names = append(names, item.value)
	}
	if n.kind != array || len(names) == 0 {
		return nil, "its list of tools is unusual"
	}
	return names, ""
}

// program adds how to start a server.
func (g *merger) program(s *MergedServer, e *entry, n *node) string {
	if n.find("command").value.kind == object {
		return "its command is a table"
	}
	if e.ownPath && !strings.ContainsAny(e.argv[0].value, `/\`) {
		return "it sets PATH"
	}
	for i, a := range e.argv {
		flag := ""
		if i > 0 {
			flag = strings.TrimLeft(e.argv[i-1].value, "-")
		}
		s.Command = append(s.Command, g.value(s, fmt.Sprintf("ARGUMENT_%d", i), flag, a))
	}
	if dir := n.find("cwd"); dir != nil {
		if dir.value.kind != text {
			return "its cwd is " + string(dir.value.kind)
		}
		s.Dir = g.value(s, "DIR", "", dir.value)
	}
	return ""
}

// environment adds the environment variables of a server.
func (g *merger) environment(s *MergedServer, n *node) string {
	if n.kind != object {
		return "its variables are not a table"
	}
	for _, v := range n.members {
		if v.value.kind != text && v.value.kind != other {
			return "its variable " + v.name + " is " + string(v.value.kind)
		}
		s.Env = append(s.Env, Pair{v.name, g.secret(s, v.name, v.value.in(g.content))})
	}
	return ""
}

// pass adds variables that the client passes to a server.
func (g *merger) pass(s *MergedServer, n *node) string {
	for _, item := range n.items {
		if item.kind != text || !plainName.MatchString(item.value) || changesGate(strings.ToUpper(item.value)) {
			return "a variable that it is passed is unusual"
		}
		g.passed = append(g.passed, item.value)
		s.Env = append(s.Env, Pair{item.value, "${" + item.value + ":-}"})
	}
	return ""
}

// remote adds how to reach a server.
func (g *merger) remote(s *MergedServer, r *remote) string {
	if r.urlIsSecret() {
		s.URL = g.secret(s, "URL", r.url.value.in(g.content))
	} else {
		s.URL = g.value(s, "URL", "", r.url.value)
	}
	if r.headers != nil {
		for _, h := range r.headers.value.members {
			s.Headers = append(s.Headers, Pair{h.name, g.secret(s, h.name, h.value.in(g.content))})
		}
	}
	if r.token != nil {
		g.passed = append(g.passed, r.token.value.value)
		s.Headers = append(s.Headers, Pair{"Authorization", "Bearer ${" + r.token.value.value + "}"})
	}
	return ""
}

// value returns a text of the file for the configuration. The client must replace its variables, and keeps
// what looks like a secret, by itself or after a flag.
func (g *merger) value(s *MergedServer, name, flag string, n *node) string {
	header, value, _ := strings.Cut(n.value, ":")
	isSecret := secrets.Standard().InText
	if isSecret(flag, n.value) || isSecret(header, value) || strings.ContainsAny(n.value, "$") || strings.Contains(n.value, "{env:") || strings.Contains(n.value, "{file:") {
		return g.secret(s, name, g.client.language.quote(n.value))
	}
	return n.value
}

// secret moves a value, as written in the file, to an environment variable.
func (g *merger) secret(s *MergedServer, name, value string) string {
	plain := func(r rune) rune {
		if r < 'A' || r > 'Z' {
			if r < '0' || r > '9' {
				return '_'
			}
		}
		return r
	}
	base := "MCP_" + strings.Map(plain, strings.ToUpper(s.Name+"_"+name))
	unique := base
	for i := 2; slices.ContainsFunc(g.env, func(v variable) bool { return v.name == unique }); i++ {
		unique = fmt.Sprintf("%s_%d", base, i)
	}
	g.env = append(g.env, variable{unique, value})
	return "${" + unique + "}"
}

// keep keeps what the merged server has already.
func (g *merger) keep(n *node) {
	if env := n.find(g.client.environment); env != nil {
		for _, v := range env.value.members {
			g.env = append(g.env, variable{v.name, v.value.in(g.content)})
		}
	}
	if passed := n.find(g.client.variables); passed != nil {
		for _, item := range passed.value.items {
			g.passed = append(g.passed, item.value)
		}
	}
	for _, name := range []string{"type", "source"} {
		g.members[name] = n.find(name) != nil
	}
}

// settings returns the members of the merged server.
func (g *merger) settings(o MergeOptions) (all []variable) {
	c := g.client
	if g.members["type"] || c.listsCommand {
		all = append(all, variable{"type", c.language.quote(c.programType)})
	}
	if g.members["source"] {
		all = append(all, variable{"source", c.language.quote("custom")})
	}
	all = append(all, c.commandMembers(g.merge.merged.Program, []string{"wrap", "--config", o.Config, "--endpoint", o.Endpoint})...)
	if c.variables != "" {
		passed := append(slices.Clone(forSignIn), g.passed...)
		slices.Sort(passed)
		all = append(all, variable{c.variables, c.list(slices.Compact(passed))})
	}
	if len(g.env) > 0 {
		all = append(all, variable{c.environment, c.table(g.env)})
	}
	return all
}

// write sets the new text of the file, and how to undo the change.
func (g *merger) write(root, list *node, o MergeOptions) error {
	var gone [][]span
	names := []string{}
	if g.known != nil {
		names = append(names, MergedName)
	}
	for _, e := range g.entries {
		names = append(names, e.Name)
	}
	for _, name := range names {
		spans, err := g.client.language.spans(g.content, list, append(slices.Clone(g.section), name))
		if err != nil {
			return fmt.Errorf("server %q: %w", name, err)
		}
		gone = append(gone, spans)
	}
	merged := &g.merge.merged
	l, section := g.client.language, list
	merged.Original = l.join(g.content, section, gone)
	if g.known != nil {
		merged.Servers = slices.Clone(g.known.Servers)
		merged.Original = l.append(g.known.Original, l.join(g.content, section, gone[1:]))
	}
	for _, e := range g.entries {
		merged.Servers = append(merged.Servers, e.Name)
	}
	g.merge.Text = replaceSpans(g.content, l.replace(g.content, section, gone, l.server(g.section, MergedName, g.settings(o))))
	targets := [][]string{append(slices.Clone(g.section), MergedName)}
	for _, name := range names {
		targets = append(targets, append(slices.Clone(g.section), name))
	}
	after, err := g.client.verify(root, g.merge.Text, targets)
	if err != nil {
		return err
	}
	m, err := after.at(targets[0])
	if err != nil || m == nil {
		return errors.Join(err, errors.New("the changed file would not have the server (this is a bug in thoughtgate)"))
	}
	merged.Values = m.value.digest()
	merged.Written = digestOf(g.merge.Text)
	return nil
}
