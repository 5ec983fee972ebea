package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// A kind is what a value of a file is.
type kind string

const (
	object kind = "a table"
	array  kind = "an array"
	text   kind = "a string"
	other  kind = "a number, true, false, null or a date"
)

// A node is a value of a file and its place there. A table of TOML that is
// spread over the file has no place.
type node struct {
	kind       kind
	start, end int
	value      string // of a string without quotes and escapes, otherwise as it is written
	members    []member
	items      []*node
}

// A member is a named value of an object.
type member struct {
	name   string
	key    int    // where its name begins
	prefix string // what stands before the last part of its name, in a dotted key
	gap    string // what separates it from a member that is put before it
	value  *node
}

// find returns the value with a name, or nil. Programs differ in which of two
// equal names counts, so those are an error.
func (n *node) find(name string) (*member, error) {
	var found *member
	if n == nil || n.kind != object {
		return nil, nil
	}
	for i := range n.members {
		if n.members[i].name != name {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("there are two values with the name %q", name)
		}
		found = &n.members[i]
	}
	return found, nil
}

// at returns the member at a path, or nil.
func (n *node) at(path []string) (*member, error) {
	var found *member
	for _, name := range path {
		m, err := n.find(name)
		if m == nil || err != nil {
			return nil, err
		}
		found, n = m, m.value
	}
	return found, nil
}

// flatten describes every value below n but those at the paths in except, by
// their paths.
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
		id += "again" // a name that is there twice, where nothing is changed
	}
	all[id] = string(n.kind) + ": " + value
	for _, m := range n.members {
		m.value.describe(append(slices.Clone(path), m.name), except, all)
	}
	for i, item := range n.items {
		item.describe(append(slices.Clone(path), fmt.Sprint(i)), except, all)
	}
}

// A language is how a file is written.
type language interface {
	parse(text []byte) (*node, error)
	quote(text string) string
	name(key string) string // with what stands between a name and its value
}

// limits on what is read. Files of clients hold histories of many megabytes.
const (
	maxSize  = 256 << 20
	maxDepth = 10_000
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// parse reads a file.
func parse(l language, content []byte) (*node, error) {
	switch {
	case len(content) > maxSize:
		return nil, errors.New("the file is too large")
	case !utf8.Valid(content):
		return nil, errors.New("the file is not UTF-8")
	case deep(content):
		return nil, errors.New("the file is nested too deeply")
	}
	blank := slices.Clone(content)
	if bytes.HasPrefix(blank, byteOrderMark) {
		copy(blank, "   ") // so that places stay the same
	}
	return l.parse(blank)
}

// deep reports whether a text may be nested so deeply that parsers give up.
func deep(content []byte) bool {
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

// lastGap returns the white space at the end of what stands before a value: from
// the last line break on, or a single space.
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
