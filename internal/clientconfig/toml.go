package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlLanguage is TOML. Libraries that edit TOML and keep comments (tomledit) reformat the whole
// file; this package changes no other byte.
type tomlLanguage struct{}

// quote returns a JSON string, which is also a TOML string if DEL is escaped.
func (tomlLanguage) quote(text string) string {
	return strings.ReplaceAll(jsonLanguage{}.quote(text), "\x7f", `\u007F`)
}

func (tomlLanguage) name(key string) string { return key + " = " }

func (tomlLanguage) parse(content []byte) (*node, error) {
	var valid map[string]any // the unstable parser accepts duplicate names
	if err := toml.Unmarshal(content, &valid); err != nil {
		return nil, errors.New("not TOML: " + tomlPlace(err) + err.Error())
	}
	r := tomlReader{content: content, root: &node{kind: object}}
	r.table = r.root
	r.parser.Reset(content)
	for r.parser.NextExpression() {
		if err := r.expression(r.parser.Expression()); err != nil {
			return nil, err
		}
	}
	return r.root, r.parser.Error()
}

func tomlPlace(err error) string {
	if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := bad.Position()
		return fmt.Sprintf("line %d, column %d: ", line, column)
	}
	return ""
}

// A tomlReader builds a tree of the expressions of a file.
type tomlReader struct {
	parser  unstable.Parser
	content []byte
	root    *node
	table   *node // the current table
}

func (r *tomlReader) expression(e *unstable.Node) error {
	switch e.Kind {
	case unstable.Table:
		return r.openTable(e)
	case unstable.ArrayTable:
		return r.openElement(e)
	case unstable.KeyValue:
		return r.add(r.table, e, r.lineGap(e))
	default:
		return nil
	}
}

func keys(e *unstable.Node) []*unstable.Node {
	var all []*unstable.Node
	for it := e.Key(); it.Next(); {
		all = append(all, it.Node())
	}
	return all
}

// openTable makes the table of a header current.
func (r *tomlReader) openTable(e *unstable.Node) error {
	var err error
	r.table, err = descend(r.root, keys(e))
	return err
}

// openElement adds an element to an array of tables and makes it current.
func (r *tomlReader) openElement(e *unstable.Node) error {
	path := keys(e)
	parent, err := descend(r.root, path[:len(path)-1])
	if err != nil {
		return err
	}
	list := parent.child(path[len(path)-1], array)
	r.table = &node{kind: object}
	list.items = append(list.items, r.table)
	return nil
}

// descend returns the table at a path, and adds it if necessary. In an array of tables, it descends
// into the last element.
func descend(t *node, path []*unstable.Node) (*node, error) {
	for _, key := range path {
		if t = t.child(key, object); t.kind == array && len(t.items) > 0 {
			t = t.items[len(t.items)-1]
		}
		if t.kind != object {
			return nil, fmt.Errorf("%q is not a table", key.Data)
		}
	}
	return t, nil
}

// child returns the value of a key, and adds it if necessary.
func (n *node) child(key *unstable.Node, k kind) *node {
	if m := n.find(string(key.Data)); m != nil {
		return m.value
	}
	made := &node{kind: k}
	n.members = append(n.members, member{name: string(key.Data), key: int(key.Raw.Offset), value: made})
	return made
}

// lineGap returns the separator between a line before this one and this one.
func (r *tomlReader) lineGap(e *unstable.Node) string {
	start := int(keys(e)[0].Raw.Offset)
	line := bytes.LastIndexByte(r.content[:start], '\n') + 1
	end := "\n"
	if i := bytes.IndexByte(r.content, '\n'); i > 0 && r.content[i-1] == '\r' {
		end = "\r\n"
	}
	return end + string(r.content[line:start])
}

// add adds a value to a table, with the intermediate tables of a dotted key.
func (r *tomlReader) add(t *node, e *unstable.Node, gap string) error {
	path := keys(e)
	last := path[len(path)-1]
	start := int(path[0].Raw.Offset)
	t, err := descend(t, path[:len(path)-1])
	if err != nil {
		return err
	}
	value, err := r.value(e, last)
	if err != nil {
		return err
	}
	t.members = append(t.members, member{
		name: string(last.Data), key: start, prefix: string(r.content[start:last.Raw.Offset]), gap: gap, value: value,
	})
	return nil
}

// value returns the value of a key, which extends from the equals sign to the end of the
// expression.
func (r *tomlReader) value(e, key *unstable.Node) (*node, error) {
	start := int(key.Raw.Offset + key.Raw.Length)
	end := int(e.Raw.Offset + e.Raw.Length)
	start += len(r.content[start:end]) - len(bytes.TrimLeft(r.content[start:end], " \t="))
	end -= len(r.content[start:end]) - len(bytes.TrimRight(r.content[start:end], " \t\r\n"))
	return r.node(e.Value(), start, end)
}

// node returns the value from start to end.
func (r *tomlReader) node(v *unstable.Node, start, end int) (*node, error) {
	n := &node{kind: other, start: start, end: end, value: string(r.content[start:end])}
	switch v.Kind {
	case unstable.String:
		n.kind, n.value = text, string(v.Data)
	case unstable.Array:
		n.kind = array
		for it := v.Children(); it.Next(); {
			item := it.Node()
			// Only the positions of strings are used.
			from := int(item.Raw.Offset)
			child, err := r.node(item, from, from+int(item.Raw.Length))
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, child)
		}
	case unstable.InlineTable:
		n.kind = object
		for it := v.Children(); it.Next(); {
			if it.Node().Kind != unstable.KeyValue {
				continue
			}
			if err := r.add(n, it.Node(), r.inlineGap(it.Node())); err != nil {
				return nil, err
			}
		}
	default:
	}
	return n, nil
}

// inlineGap returns the separator between a member of an inline table and one before it.
func (r *tomlReader) inlineGap(e *unstable.Node) string {
	return "," + lastGap(r.content[:keys(e)[0].Raw.Offset])
}
