package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// A Wrapping says which servers are to be started through the gate, and how.
type Wrapping struct {
	Command string   // the program to start
	Config  string   // its configuration file, if it is given one
	Servers []string // the names of the servers to change; all if there are none
}

// A Status is what becomes of a server of a client.
type Status string

// The changes that a server can get.
const (
	Wrapped   Status = "wrapped"         // it will be wrapped
	Unchanged Status = "already wrapped" // it needs no change
	Remote    Status = "remote"          // the client reaches it by URL
	Elsewhere Status = "elsewhere"       // an extension or another file says how it is started
	NotChosen Status = "not chosen"
)

// A Server is one entry of a client's configuration.
type Server struct {
	Name   string
	Place  string // where it is, if servers of this name may be in several places
	Status Status
}

// An Edit replaces the text that ends where the value at a path ends.
type Edit struct {
	Path   []string `json:"path"`
	Before string   `json:"before"`
	After  string   `json:"after"`
}

// A Patch is the edits that wrap one server.
type Patch struct {
	Server []string `json:"server"` // path of its entry
	Edits  []Edit   `json:"edits"`
}

// A Change is what a file becomes.
type Change struct {
	Servers []Server
	Text    []byte  // the new text
	Patches []Patch // that made it; none if nothing changes
}

// An entry is a server and where its parts are in the file.
type entry struct {
	Server
	path    []string   // of the entry
	argv    []*node    // the command and its arguments
	command []string   // path of the command
	args    []string   // path of the arguments
	targets [][]string // paths of the values that wrapping changes
}

// Wrap returns the file of a client with its servers wrapped. A file that does
// not look as the client's files do is an error.
func (c Client) Wrap(content []byte, w Wrapping) (Change, error) {
	root, err := parse(c.language, content)
	if err != nil {
		return Change{}, err
	}
	entries, err := c.entries(root, w)
	if err != nil {
		return Change{}, err
	}
	var change Change
	var all []Edit
	var targets [][]string
	for _, e := range entries {
		change.Servers = append(change.Servers, e.Server)
		if e.Status != Wrapped {
			continue
		}
		edits, err := c.wrap(content, root, e, w)
		if err != nil {
			return Change{}, err
		}
		change.Patches = append(change.Patches, Patch{e.path, edits})
		all, targets = append(all, edits...), append(targets, e.targets...)
	}
	if change.Text, err = apply(content, root, all); err != nil {
		return Change{}, err
	}
	after, err := c.verify(root, change.Text, targets)
	if err != nil {
		return Change{}, err
	}
	return change, c.finished(after, w)
}

// verify makes sure that a new text is valid and says the same as before but for
// the targets.
func (c Client) verify(before *node, content []byte, targets [][]string) (*node, error) {
	after, err := parse(c.language, content)
	if err != nil {
		return nil, fmt.Errorf("the changed file would be broken (this is a fault of thoughtgate): %w", err)
	}
	if !maps.Equal(before.flatten(targets), after.flatten(targets)) {
		return nil, errors.New("the changed file would say something else (this is a fault of thoughtgate)")
	}
	return after, nil
}

// finished makes sure that nothing is left to wrap.
func (c Client) finished(after *node, w Wrapping) error {
	entries, err := c.entries(after, w)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Status == Wrapped {
			return fmt.Errorf("server %q would not be wrapped (this is a fault of thoughtgate)", e.Name)
		}
	}
	return nil
}

// entries returns the servers of a file. A chosen one that is not there or has
// an unknown form is an error.
func (c Client) entries(root *node, w Wrapping) ([]entry, error) {
	var all []entry
	var problems []error
	for _, section := range c.sections {
		found, err := c.section(root, nil, section, w)
		all, problems = append(all, found...), append(problems, err)
	}
	for _, name := range w.Servers {
		if !slices.ContainsFunc(all, func(e entry) bool { return e.Name == name }) {
			problems = append(problems, fmt.Errorf("there is no server %q", name))
		}
	}
	return all, errors.Join(problems...)
}

// section returns the servers below a path, in which * is any name.
func (c Client) section(n *node, path, rest []string, w Wrapping) ([]entry, error) {
	if n.kind != object {
		return nil, fmt.Errorf("%s must be a table, and is %s", dotted(path), n.kind)
	}
	if len(rest) == 0 {
		n, path = c.innermost(n, path)
	}
	var all []entry
	var problems []error
	for _, m := range n.members {
		below := append(slices.Clone(path), m.name)
		var found []entry
		var err error
		switch {
		case len(rest) == 0:
			found, err = c.server(n, m, below, w)
		case rest[0] == "*" || rest[0] == m.name:
			found, err = c.inside(n, m, below, rest, w)
		}
		all, problems = append(all, found...), append(problems, err)
	}
	return all, errors.Join(problems...)
}

// innermost returns the table that has the servers of a section: the section, or
// a table in it, in which later versions of a client have them.
func (c Client) innermost(n *node, path []string) (*node, []string) {
	m, err := n.find(c.nested)
	if c.nested == "" || m == nil || err != nil || m.value.kind != object || isServer(m.value) {
		return n, path
	}
	return m.value, append(slices.Clone(path), m.name)
}

// inside goes on with the section in a member of n.
func (c Client) inside(n *node, m member, path, rest []string, w Wrapping) ([]entry, error) {
	if _, err := n.find(m.name); err != nil {
		return nil, err
	}
	if m.value.kind != object && rest[0] == "*" {
		return nil, nil // nothing that could have servers
	}
	return c.section(m.value, path, rest[1:], w)
}

// isServer reports whether a value is a server and not a table of servers.
func isServer(n *node) bool {
	for _, name := range []string{"type", "command", "url"} {
		if m, _ := n.find(name); m != nil && m.value.kind != object {
			return true
		}
	}
	return false
}

// server returns the entry of a server.
func (c Client) server(n *node, m member, path []string, w Wrapping) ([]entry, error) {
	e := entry{Server: Server{Name: m.name, Place: place(path)}, path: path}
	if len(w.Servers) > 0 && !slices.Contains(w.Servers, m.name) {
		e.Status = NotChosen
		return []entry{e}, nil
	}
	_, err := n.find(m.name)
	if err == nil {
		err = e.read(m.value)
	}
	if err != nil {
		return nil, fmt.Errorf("server %q has a form that is not known: %w (choose others with --server)", m.name, err)
	}
	return []entry{e}, nil
}

// place returns what distinguishes servers of the same name.
func place(path []string) string {
	if len(path) < 3 {
		return ""
	}
	return path[len(path)-3]
}

// read finds out how a server is started.
func (e *entry) read(n *node) error {
	if n.kind != object {
		return fmt.Errorf("it must be a table, and is %s", n.kind)
	}
	command, err := n.find("command")
	if err != nil {
		return err
	}
	url, err := findURL(n)
	switch {
	case err != nil:
		return err
	case command != nil && url != nil:
		return errors.New("it has a command and a URL")
	case command != nil:
		return e.readCommand(n, command.value)
	case url != nil:
		e.Status = Remote
		return nil
	default:
		return e.readOther(n)
	}
}

func findURL(n *node) (*node, error) {
	for _, name := range []string{"url", "httpUrl", "serverUrl"} {
		if m, err := n.find(name); err != nil || m != nil {
			if err == nil && m.value.kind != text {
				err = fmt.Errorf("%s must be a string, and is %s", name, m.value.kind)
			}
			if err != nil {
				return nil, err
			}
			return m.value, nil
		}
	}
	return nil, nil
}

// readOther accepts entries without a command: settings of extensions, and an
// entry that only turns a server of another file on or off.
func (e *entry) readOther(n *node) error {
	for _, m := range n.members {
		switch m.name {
		case "source", "settings", "enabled", "disabled", "remote":
		default:
			return errors.New("it has neither a command nor a URL")
		}
	}
	e.Status = Elsewhere
	return nil
}

// readCommand reads the three forms of a command: a program with args beside it,
// a list of program and arguments, or a table of path and args.
func (e *entry) readCommand(n, command *node) error {
	e.command = append(slices.Clone(e.path), "command")
	e.args = append(slices.Clone(e.path), "args")
	switch command.kind {
	case text:
		return e.readArgs(n, command)
	case array:
		e.args, e.argv = nil, command.items
		e.targets = [][]string{e.command}
		return e.judge()
	case object:
		program, err := command.find("path")
		if err != nil {
			return err
		}
		if program == nil {
			return errors.New("its command has no path")
		}
		e.args = append(slices.Clone(e.command), "args")
		e.command = append(e.command, "path")
		return e.readArgs(command, program.value)
	default:
		return fmt.Errorf("its command is %s", command.kind)
	}
}

// readArgs reads the arguments beside a command.
func (e *entry) readArgs(n, command *node) error {
	e.targets = [][]string{e.command, e.args}
	e.argv = []*node{command}
	args, err := n.find("args")
	if err != nil {
		return err
	}
	if args != nil {
		if args.value.kind != array {
			return fmt.Errorf("its args must be an array, and are %s", args.value.kind)
		}
		e.argv = append(e.argv, args.value.items...)
	}
	return e.judge()
}

// judge reports whether the entry is wrapped.
func (e *entry) judge() error {
	for _, a := range e.argv {
		if a.kind != text {
			return fmt.Errorf("its command line has %s in it", a.kind)
		}
	}
	if len(e.argv) == 0 || e.argv[0].value == "" {
		return errors.New("its command is empty")
	}
	e.Status = Wrapped
	if len(e.argv) > 1 && IsGate(e.argv[0].value) && e.argv[1].value == "wrap" {
		e.Status = Unchanged
	}
	return nil
}

// IsGate reports whether a program is thoughtgate, in any version.
func IsGate(program string) bool {
	base := strings.ToLower(filepath.Base(strings.ReplaceAll(program, `\`, "/")))
	return strings.HasPrefix(base, "thoughtgate")
}

// wrap returns the edits that wrap a server.
func (c Client) wrap(content []byte, root *node, e entry, w Wrapping) ([]Edit, error) {
	before := []string{"wrap"}
	if w.Config != "" {
		before = append(before, "--config", w.Config)
	}
	before = append(before, "--name", gateName(e.Name), "--")
	for i := range before {
		before[i] = c.language.quote(before[i])
	}
	program := c.language.quote(w.Command)
	if e.args == nil {
		list, err := root.at(e.command)
		if err != nil {
			return nil, err
		}
		return []Edit{prepend(content, e.command, list.value, append([]string{program}, before...))}, nil
	}
	command, err := root.at(e.command)
	if err != nil {
		return nil, err
	}
	args, err := root.at(e.args)
	if err != nil {
		return nil, err
	}
	original := string(content[command.value.start:command.value.end])
	before = append(before, original)
	if args != nil {
		return []Edit{{e.command, original, program}, prepend(content, e.args, args.value, before)}, nil
	}
	named := string(content[command.key:command.value.start])
	added := command.prefix + c.language.name("args") + "[" + strings.Join(before, ", ") + "]" + command.gap
	return []Edit{{e.command, named + original, added + named + program}}, nil
}

// prepend returns the edit that puts elements before those of a list.
func prepend(content []byte, path []string, list *node, elements []string) Edit {
	first, gap := list.start+1, ""
	if len(list.items) > 0 {
		first = list.items[0].start
		gap = "," + lastGap(content[list.start+1:first])
	}
	return Edit{
		Path:   path,
		Before: string(content[list.start:list.end]),
		After:  string(content[list.start:first]) + strings.Join(elements, ", ") + gap + string(content[first:list.end]),
	}
}

// gateName makes the name of an upstream of the name of a server: at most 63
// lower-case letters, digits and hyphens.
func gateName(server string) string {
	words := strings.FieldsFunc(strings.ToLower(server), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	name := strings.Join(words, "-")
	if name == "" {
		return "server"
	}
	return strings.TrimSuffix(name[:min(len(name), 63)], "-")
}

// apply returns the text with all edits made.
func apply(content []byte, root *node, edits []Edit) ([]byte, error) {
	type span struct {
		start, end int
		text       string
	}
	var spans []span
	for _, e := range edits {
		m, err := root.at(e.Path)
		if err != nil {
			return nil, err
		}
		if m == nil || !bytes.HasSuffix(content[:m.value.end], []byte(e.Before)) {
			return nil, fmt.Errorf("%s is not as it was", dotted(e.Path))
		}
		spans = append(spans, span{m.value.end - len(e.Before), m.value.end, e.After})
	}
	slices.SortStableFunc(spans, func(a, b span) int { return a.start - b.start })
	var out []byte
	done := 0
	for _, s := range spans {
		if s.start < done {
			return nil, errors.New("changes overlap")
		}
		out = append(append(out, content[done:s.start]...), s.text...)
		done = s.end
	}
	return append(out, content[done:]...), nil
}

// dotted returns a path for people.
func dotted(path []string) string {
	if len(path) == 0 {
		return "the file"
	}
	return strings.Join(path, ".")
}
