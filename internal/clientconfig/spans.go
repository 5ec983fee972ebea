package clientconfig

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// A span is a part of a file.
type span struct {
	start, end int
	text       string // its new text
}

// replaceSpans returns the content with new texts of parts that do not overlap.
func replaceSpans(content []byte, spans []span) []byte {
	slices.SortStableFunc(spans, func(a, b span) int { return a.start - b.start })
	var out []byte
	done := 0
	for _, s := range spans {
		out = append(append(out, content[done:s.start]...), s.text...)
		done = s.end
	}
	return append(out, content[done:]...)
}

// inOrder returns all parts in their order in the file.
func inOrder(parts [][]span) []span {
	return slices.SortedFunc(slices.Values(slices.Concat(parts...)), func(a, b span) int { return a.start - b.start })
}

// spans returns the place of a member of a list: from its name to the end of its value.
func (jsonLanguage) spans(_ []byte, list *node, path []string) ([]span, error) {
	m := list.find(path[len(path)-1])
	return []span{{start: m.key, end: m.value.end}}, nil
}

// join returns the texts of members of a list, as neighbours.
func (l jsonLanguage) join(content []byte, list *node, parts [][]span) string {
	gap := ", "
	if len(list.members) > 1 {
		gap = list.members[1].gap
	}
	var all []string
	for _, p := range parts {
		all = append(all, string(content[p[0].start:p[0].end]))
	}
	return strings.Join(all, gap)
}

func (jsonLanguage) append(before, after string) string { return before + ", " + after }

// server returns the text of a server.
func (l jsonLanguage) server(_ []string, name string, settings []variable) string {
	var all []string
	for _, s := range settings {
		all = append(all, l.name(s.name)+s.value)
	}
	return l.name(name) + "{ " + strings.Join(all, ", ") + " }"
}

// replace returns the changes that put a text in the place of the first member, and remove the others.
func (jsonLanguage) replace(_ []byte, list *node, parts [][]span, by string) (changes []span) {
	for i, p := range inOrder(parts) {
		if i == 0 {
			changes = append(changes, span{p.start, p.end, by})
			continue
		}
		at := slices.IndexFunc(list.members, func(m member) bool { return m.key == p.start })
		changes = append(changes, span{list.members[at-1].value.end, p.end, ""}) // with the comma before it
	}
	return changes
}

// spans returns the lines of the tables of a server.
func (tomlLanguage) spans(content []byte, _ *node, path []string) (spans []span, err error) {
	var p unstable.Parser
	p.Reset(content)
	inside := false
	for p.NextExpression() {
		e := p.Expression()
		path := slices.Clone(path)
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			header := keys(e)
			inside = len(header) >= len(path)
			for i := range path {
				inside = inside && string(header[i].Data) == path[i]
			}
			if inside {
				first := int(header[0].Raw.Offset)
				start := bytes.LastIndexByte(content[:first], '\n') + 1
				spans = append(spans, span{start: start, end: lineEnd(content, first)})
			}
		case unstable.KeyValue:
			if inside {
				spans[len(spans)-1].end = lineEnd(content, int(e.Raw.Offset+e.Raw.Length)-1)
			}
		default:
		}
	}
	if len(spans) == 0 {
		return nil, errors.New("it is not a table with a header of its own: choose others with --server")
	}
	return spans, p.Error()
}

// lineEnd returns the end of the line that contains a position.
func lineEnd(content []byte, at int) int {
	if i := bytes.IndexByte(content[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(content)
}

// join returns the tables of servers.
func (tomlLanguage) join(content []byte, _ *node, parts [][]span) string {
	var all strings.Builder
	for _, p := range slices.Concat(parts...) {
		all.WriteString(strings.TrimRight(string(content[p.start:p.end]), "\r\n") + "\n")
	}
	return all.String()
}

func (tomlLanguage) append(before, after string) string { return before + after }

// server returns the table of a server.
func (l tomlLanguage) server(section []string, name string, settings []variable) string {
	var b strings.Builder
	b.WriteString("[" + strings.Join(section, ".") + "." + name + "]\n")
	for _, s := range settings {
		b.WriteString(l.name(s.name) + s.value + "\n")
	}
	return b.String()
}

// replace returns the changes that put a text in the place of the first table, and remove the others.
func (tomlLanguage) replace(_ []byte, _ *node, parts [][]span, by string) (changes []span) {
	for _, p := range inOrder(parts) {
		changes = append(changes, span{p.start, p.end, by})
		by = ""
	}
	return changes
}
