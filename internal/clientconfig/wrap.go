package clientconfig

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// WrapOptions select the servers to wrap and the program to wrap them with.
type WrapOptions struct {
	Command string                    // the gate's program
	Path    string                    // its absolute path, for servers for which Command may be another program
	Config  string                    // the gate's configuration file; may be empty
	Servers []string                  // names of the servers to wrap; all if empty
	IsGate  func(program string) bool // reports whether another program is also the gate; may be nil
}

// isGate reports whether a program is the gate, and not only one with its name.
func (w WrapOptions) isGate(program string) bool {
	//mutate:swap "program == w.Command" "LooksLikeGate(program)" TestFileCannotDisableGate any program with the name of the gate is the gate
	return program == w.Command || program != "" && program == w.Path || w.IsGate != nil && w.IsGate(program)
}

// A Status says what Wrap does with a server.
type Status string

// The statuses.
const (
	Wrapped             Status = "wrapped"         // to be wrapped
	Unchanged           Status = "already wrapped" // unchanged
	Remote              Status = "remote"          // the client reaches it by URL
	ConfiguredElsewhere Status = "elsewhere"       // configured by an extension or another file
	NotChosen           Status = "not chosen"
	Merging             Status = "merging"    // to be merged with others
	NotMerged           Status = "not merged" // an endpoint cannot have it
)

// A Server is an entry of a client's configuration.
type Server struct {
	Name    string
	Place   string // distinguishes servers of the same name; may be empty
	Status  Status
	Warning string // for people; may be empty
}

// An Edit replaces text that ends at the end of the value at a path.
type Edit struct {
	Path   []string `json:"path"`
	Before string   `json:"before"`
	After  string   `json:"after"`
	To     []string `json:"to,omitempty"`    // the path of that value afterwards, if it differs
	First  string   `json:"first,omitempty"` // the name of the first member of After, if After is a list of members
}

// after returns the path of the value afterwards.
func (e Edit) after() []string {
	if e.To == nil {
		return e.Path
	}
	return e.To
}

// A Patch is the list of edits that wrap one server.
type Patch struct {
	Server  []string `json:"server"`            // path of the server
	Program string   `json:"program,omitempty"` // the gate's program; empty in records of older versions
	Edits   []Edit   `json:"edits"`
	Values  string   `json:"values,omitempty"` // a digest of the new values; empty if the server had a command
}

// A Change is the result of Wrap.
type Change struct {
	Servers []Server
	Text    []byte  // the new text
	Patches []Patch // empty if nothing changes
}

// An entry is a server and the positions of its parts.
type entry struct {
	Server
	path    []string   // of the server
	ownPath bool       // its environment sets PATH
	argv    []*node    // the command and its arguments
	command []string   // path of the command
	args    []string   // path of the arguments
	targets [][]string // paths of the values that wrapping changes
	remote  *remote    // nil if the server has a command
}

// Wrap returns the file of a client with its servers wrapped. It returns an error if the file does
// not have the form of the client's files.
func (c Client) Wrap(content []byte, w WrapOptions) (Change, error) {
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
		program := e.program(w)
		edits, err := c.wrap(content, root, e, w, program)
		if err != nil {
			return Change{}, err
		}
		patch := Patch{Server: e.path, Program: program, Edits: edits}
		change.Patches = append(change.Patches, patch)
		all, targets = append(all, edits...), append(append(targets, e.targets...), patch.targets()...)
	}
	if change.Text, err = apply(content, root, all); err != nil {
		return Change{}, err
	}
	after, err := c.verify(root, change.Text, targets)
	if err != nil {
		return Change{}, err
	}
	for i := range change.Patches {
		if p := &change.Patches[i]; p.isRemote() {
			p.Values = p.valuesOf(after)
		}
	}
	return change, c.checkAllWrapped(after, w)
}

// verify checks that the new content is valid and differs only at the targets.
func (c Client) verify(before *node, content []byte, targets [][]string) (*node, error) {
	after, err := parse(c.language, content)
	if err != nil {
		return nil, fmt.Errorf("the changed file would not be valid (this is a bug in thoughtgate): %w", err)
	}
	if !maps.Equal(before.flatten(targets), after.flatten(targets)) {
		return nil, errors.New("the changed file would have other changes (this is a bug in thoughtgate)")
	}
	return after, nil
}

// checkAllWrapped checks that no server is left to wrap.
func (c Client) checkAllWrapped(after *node, w WrapOptions) error {
	entries, err := c.entries(after, w)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Status == Wrapped {
			return fmt.Errorf("server %q would not be wrapped (this is a bug in thoughtgate)", e.Name)
		}
	}
	return nil
}

// entries returns the servers of a file. It returns an error for a selected server that is missing
// or has an unknown form.
func (c Client) entries(root *node, w WrapOptions) ([]entry, error) {
	var all []entry
	var problems []error
	for _, section := range c.sections {
		found, err := c.section(root, nil, section, w)
		all, problems = append(all, found...), append(problems, err)
	}
	for _, name := range w.Servers {
		if !slices.ContainsFunc(all, func(e entry) bool { return e.Name == name }) {
			problems = append(problems, fmt.Errorf("no server %q in the file", name))
		}
	}
	return all, errors.Join(problems...)
}

// section returns the servers below a path, in which * is any name.
func (c Client) section(n *node, path, rest []string, w WrapOptions) ([]entry, error) {
	if n.kind != object {
		return nil, fmt.Errorf("%s must be a table, and is %s", dotted(path), n.kind)
	}
	if len(rest) == 0 {
		n, path = c.nestedSection(n, path)
	}
	var all []entry
	var problems []error
	count := n.countNames()
	for _, m := range n.members {
		below := append(slices.Clone(path), m.name)
		var found []entry
		var err error
		switch {
		case len(rest) == 0:
			found, err = c.server(count, m, below, w)
		case rest[0] == "*" || rest[0] == m.name:
			found, err = c.subsection(count, m, below, rest, w)
		}
		all, problems = append(all, found...), append(problems, err)
	}
	return all, errors.Join(problems...)
}

// nestedSection returns the table with the servers of a section: the section, or a table in it in
// later versions of a client.
func (c Client) nestedSection(n *node, path []string) (*node, []string) {
	m := n.find(c.nested)
	if c.nested == "" || m == nil || n.countNames()[c.nested] > 1 || m.value.kind != object || isServer(m.value) {
		return n, path
	}
	return m.value, append(slices.Clone(path), m.name)
}

// subsection continues section in a member of a table.
func (c Client) subsection(count nameCounts, m member, path, rest []string, w WrapOptions) ([]entry, error) {
	if err := count.once(m.name); err != nil {
		return nil, err
	}
	if m.value.kind != object && rest[0] == "*" {
		return nil, nil // cannot have servers
	}
	return c.section(m.value, path, rest[1:], w)
}

// isServer reports whether a value is a server and not a table of servers.
func isServer(n *node) bool {
	for _, name := range []string{"type", "command", "url"} {
		if m := n.find(name); m != nil && m.value.kind != object {
			return true
		}
	}
	return false
}

// server returns the entry of a server.
func (c Client) server(count nameCounts, m member, path []string, w WrapOptions) ([]entry, error) {
	e := entry{Server: Server{Name: m.name, Place: place(path)}, path: path}
	if len(w.Servers) > 0 && !slices.Contains(w.Servers, m.name) {
		e.Status = NotChosen
		return []entry{e}, nil
	}
	err := count.once(m.name)
	if err == nil {
		err = e.read(m.value, c)
	}
	if err != nil {
		return nil, fmt.Errorf("server %q has an unknown form: %w (choose others with --server)", m.name, err)
	}
	if err := e.checkWrapping(m.value, w); err != nil {
		return nil, fmt.Errorf("server %q: %w (choose others with --server)", m.name, err)
	}
	return []entry{e}, nil
}

// place returns the part of a path that distinguishes servers of the same name.
func place(path []string) string {
	if len(path) < 3 {
		return ""
	}
	return path[len(path)-3]
}

// read finds out how a server is started.
func (e *entry) read(n *node, c Client) error {
	if n.kind != object {
		return fmt.Errorf("it must be a table, and is %s", n.kind)
	}
	if err := n.distinct(); err != nil {
		return err
	}
	command := n.find("command")
	url, err := findURL(n)
	switch {
	case err != nil:
		return err
	case command != nil && url != nil:
		return errors.New("it has a command and a URL")
	case command != nil:
		return e.readCommand(n, command.value)
	case url != nil:
		e.readRemote(n, c)
		return nil
	default:
		return e.readOther(n)
	}
}

func findURL(n *node) (*node, error) {
	for _, name := range urlNames {
		m := n.find(name)
		switch {
		case m == nil:
		case m.value.kind != text:
			return nil, fmt.Errorf("%s must be a string, and is %s", name, m.value.kind)
		default:
			return m.value, nil
		}
	}
	return nil, nil
}

// readOther accepts entries without a command: settings of extensions, and entries that only enable
// or disable a server of another file.
func (e *entry) readOther(n *node) error {
	for _, m := range n.members {
		switch m.name {
		case "source", "settings", "enabled", "disabled", "remote":
		default:
			return errors.New("it has neither a command nor a URL")
		}
	}
	e.Status = ConfiguredElsewhere
	return nil
}

// readCommand reads the three forms of a command: a program with args beside it, a list of program
// and arguments, or a table with path and args.
func (e *entry) readCommand(n, command *node) error {
	e.command = append(slices.Clone(e.path), "command")
	e.args = append(slices.Clone(e.path), "args")
	switch command.kind {
	case text:
		return e.readArgs(n, command)
	case array:
		e.args, e.argv = nil, command.items
		e.targets = [][]string{e.command}
		return e.checkArgv()
	case object:
		program := command.find("path")
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
	if args := n.find("args"); args != nil {
		if args.value.kind != array {
			return fmt.Errorf("its args must be an array, and are %s", args.value.kind)
		}
		e.argv = append(e.argv, args.value.items...)
	}
	return e.checkArgv()
}

// checkArgv checks that the entry has a command line.
func (e *entry) checkArgv() error {
	for _, a := range e.argv {
		if a.kind != text {
			return fmt.Errorf("its command line has %s in it", a.kind)
		}
	}
	if len(e.argv) == 0 || e.argv[0].value == "" {
		return errors.New("its command is empty")
	}
	e.Status = Wrapped
	return nil
}

// isWrappedBy reports whether the command line is that of a wrap by a gate.
func (e *entry) isWrappedBy(isGate func(program string) bool) bool {
	return len(e.argv) > 1 && e.argv[1].value == "wrap" && isGate(e.argv[0].value)
}

// LooksLikeGate reports whether a program has the name of the gate, in any version.
func LooksLikeGate(program string) bool {
	base := strings.ToLower(filepath.Base(strings.ReplaceAll(program, `\`, "/")))
	return strings.HasPrefix(base, "thoughtgate")
}

// flags returns the arguments of wrap for a server, without those that say how to reach it.
func (w WrapOptions) flags(server string) []string {
	flags := []string{"wrap"}
	if w.Config != "" {
		flags = append(flags, "--config", w.Config)
	}
	return append(flags, "--name", gateName(server))
}

// wrap returns the edits that wrap a server.
func (c Client) wrap(content []byte, root *node, e entry, w WrapOptions, by string) ([]Edit, error) {
	if e.remote != nil {
		return c.wrapRemote(content, e, w, by), nil
	}
	before := append(w.flags(e.Name), "--")
	for i := range before {
		before[i] = c.language.quote(before[i])
	}
	program := c.language.quote(by)
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
		return []Edit{{Path: e.command, Before: original, After: program}, prepend(content, e.args, args.value, before)}, nil
	}
	named := string(content[command.key:command.value.start])
	added := command.prefix + c.language.name("args") + "[" + strings.Join(before, ", ") + "]" + command.gap
	return []Edit{{Path: e.command, Before: named + original, After: added + named + program}}, nil
}

// prepend returns the edit that inserts elements at the beginning of a list.
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

// maxName is the maximum length of an upstream name.
const maxName = 63

// gateName returns an upstream name for a server: at most 63 lower-case letters, digits and
// hyphens. If more than punctuation and case is lost, a digest keeps names distinct.
func gateName(server string) string {
	words := strings.FieldsFunc(strings.ToLower(server), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	name := strings.Join(words, "-")
	isForeign := func(r rune) bool { return r > unicode.MaxASCII }
	if name != "" && len(name) <= maxName && !strings.ContainsFunc(server, isForeign) {
		return name
	}
	sum := sha256.Sum256([]byte(server))
	digest := "-" + hex.EncodeToString(sum[:4])
	name = strings.TrimSuffix(name[:min(len(name), maxName-len(digest))], "-")
	return cmp.Or(name, "server") + digest
}

// apply returns the content with all edits made.
func apply(content []byte, root *node, edits []Edit) ([]byte, error) {
	var spans []span
	for _, e := range edits {
		m, err := root.at(e.Path)
		if err != nil {
			return nil, err
		}
		if m == nil || !bytes.HasSuffix(content[:m.value.end], []byte(e.Before)) {
			return nil, fmt.Errorf("%s has changed", dotted(e.Path))
		}
		spans = append(spans, span{m.value.end - len(e.Before), m.value.end, e.After})
	}
	slices.SortStableFunc(spans, func(a, b span) int { return a.start - b.start })
	for i := 1; i < len(spans); i++ {
		if spans[i].start < spans[i-1].end {
			return nil, errors.New("changes overlap")
		}
	}
	return replaceSpans(content, spans), nil
}

// dotted returns a path for people.
func dotted(path []string) string {
	if len(path) == 0 {
		return "the file"
	}
	return strings.Join(path, ".")
}
