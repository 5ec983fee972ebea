package clientconfig

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// A kind is the type of a value.
type kind string

const (
	object kind = "a table"
	array  kind = "an array"
	text   kind = "a string"
	other  kind = "a number, true, false, null or a date"
)

// A node is a value of a file with its position. A TOML table that is spread over the file has no
// position.
type node struct {
	kind       kind
	start, end int
	value      string // unquoted for strings, and otherwise as written
	members    []member
	items      []*node
}

// A member is a named value of an object.
type member struct {
	name   string
	key    int    // position of its name
	prefix string // the parts before the last one of a dotted key
	gap    string // the separator for a member that is inserted before it
	value  *node
}

// find returns the first member with a name, or nil.
func (n *node) find(name string) *member {
	i := slices.IndexFunc(n.members, func(m member) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return &n.members[i]
}

// countNames counts the members of n by name.
func (n *node) countNames() nameCounts {
	count := nameCounts{}
	for _, m := range n.members {
		count[m.name]++
	}
	return count
}

// nameCounts is the number of members by name.
type nameCounts map[string]int

// once returns an error for a duplicate name: programs differ in which of the two they use.
func (n nameCounts) once(name string) error {
	if n[name] > 1 {
		return fmt.Errorf("duplicate name %q", name)
	}
	return nil
}

// distinct returns an error if any table in n has a duplicate name.
func (n *node) distinct() error {
	count := n.countNames()
	for _, m := range n.members {
		if err := cmp.Or(count.once(m.name), m.value.distinct()); err != nil {
			return err
		}
	}
	return nil
}

// at returns the member at a path, or nil.
func (n *node) at(path []string) (found *member, err error) {
	for _, name := range path {
		if found = n.find(name); found == nil {
			return nil, nil
		}
		if err := n.countNames().once(name); err != nil {
			return nil, err
		}
		n = found.value
	}
	return found, nil
}

// flatten returns descriptions of all values below n by path, without the paths in except.
func (n *node) flatten(except [][]string) map[string]string {
	all := map[string]string{}
	n.describe(nil, except, all)
	return all
}

func (n *node) describe(path []string, except [][]string, all map[string]string) {
	if slices.ContainsFunc(except, func(e []string) bool { return slices.Equal(e, path) }) {
		return
	}
	value := n.value
	if n.kind == object || n.kind == array {
		value = ""
	}
	id := fmt.Sprintf("%q", path)
	for all[id] != "" {
		id += "again" // a duplicate name in a part that is not changed
	}
	all[id] = string(n.kind) + ": " + value
	for _, m := range n.members {
		m.value.describe(append(slices.Clone(path), m.name), except, all)
	}
	for i, item := range n.items {
		item.describe(append(slices.Clone(path), fmt.Sprint(i)), except, all)
	}
}

// A language is a syntax of configuration files.
type language interface {
	parse(text []byte) (*node, error)
	quote(text string) string
	name(key string) string // with the separator between name and value

	lists
}

// lists moves the servers of a list.
type lists interface {
	spans(content []byte, list *node, path []string) ([]span, error)                // the parts of the file with a server
	join(content []byte, list *node, parts [][]span) string                         // the text of several servers
	append(before, after string) string                                             // joins such texts
	server(section []string, name string, settings []variable) string               // the text of a new server
	replace(content []byte, list *node, parts [][]span, by string) (changes []span) // puts a text in place of the first server, and removes the others
}

// Limits of files. Some clients keep histories of many megabytes in theirs.
const (
	maxSize  = 256 << 20
	maxDepth = 10_000
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// parse parses a file.
func parse(l language, content []byte) (*node, error) {
	switch {
	case len(content) > maxSize:
		return nil, errors.New("the file is too large")
	case !utf8.Valid(content):
		return nil, errors.New("the file is not UTF-8")
	case tooDeep(content):
		return nil, errors.New("the file is nested too deeply")
	}
	blank := slices.Clone(content)
	if bytes.HasPrefix(blank, byteOrderMark) {
		copy(blank, "   ") // keep positions
	}
	return l.parse(blank)
}

// tooDeep reports whether the nesting may be too deep for the parsers.
func tooDeep(content []byte) bool {
	depth := 0
	for _, c := range content {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if depth > maxDepth {
			return true
		}
	}
	return false
}

// lastGap returns the white space before a value: from the last line break on, or a single space.
func lastGap(before []byte) string {
	tail := before[len(bytes.TrimRight(before, " \t\r\n")):]
	i := bytes.LastIndexByte(tail, '\n')
	if i < 0 {
		return " "
	}
	if i > 0 && tail[i-1] == '\r' {
		i--
	}
	return string(tail[i:])
}
