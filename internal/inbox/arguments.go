package inbox

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
)

// How much of arguments a page shows. All of them can be had as text.
const (
	maxNodes   = 2000      // values
	maxTop     = 300       // of the outermost values, whatever room there is
	maxPage    = 192 << 10 // about how many bytes of text in all
	maxInline  = 16 << 10  // about how many bytes of one string
	minInline  = 80        // and if there is no room
	maxNesting = 16        // values inside of values
	openDepth  = 3         // how deep values are unfolded
	openItems  = 40        // how many a value may have that is unfolded
	longText   = 300       // bytes of a string that is not folded
	longLines  = 8         // lines of one
	maxFound   = 8         // excerpts of one string
	excerpt    = 60        // bytes on either side of what was found
)

// A node is a value in arguments, as it is shown.
type node struct {
	named  bool
	name   []run  // of a member
	kind   string // object, array, string, number, literal, redacted, more
	text   []run  // of a scalar, or its beginning
	whole  bool   // text is all there is of it
	quoted bool   // text needs quotes to be told from something else
	count  int    // members or elements
	size   int    // bytes
	note   string // what it looks like, if it is binary
	fold   bool   // show it only when asked
	inner  []node
	found  [][]run // what was found in a long text, with what is around it
}

// An outline is arguments as they are shown.
type outline struct {
	root  node
	found int // how often what was searched for is in them
	size  int
}

// newOutline lays out the arguments of c, looking for find.
func newOutline(c approval.Case, find string) (outline, error) {
	if len(c.Whole) == 0 {
		return outline{root: node{kind: "object", whole: true}}, nil
	}
	l := layout{
		from: jsontext.NewDecoder(strings.NewReader(string(c.Whole))), redacted: c.Redacted, find: find,
		nodes: maxNodes, bytes: maxPage,
	}
	root, err := l.value(0)
	return outline{root: root, found: l.found, size: len(c.Whole)}, err
}

// A layout turns JSON into nodes, of which it makes a limited number.
type layout struct {
	from     *jsontext.Decoder
	redacted map[jsontext.Pointer]bool
	find     string
	found    int
	nodes    int // how many may still be made
	bytes    int // how much they may still hold
}

// value lays out the next value.
func (l *layout) value(depth int) (node, error) {
	start := l.from.InputOffset()
	before := l.found
	l.nodes--
	var n node
	var err error
	switch kind := l.from.PeekKind(); {
	case depth >= maxNesting && (kind == '{' || kind == '['):
		n, err = l.deep(kind)
	case kind == '{':
		n, err = l.inside("object", depth)
	case kind == '[':
		n, err = l.inside("array", depth)
	case kind == '"':
		n, err = l.text()
	default:
		n, err = l.scalar(kind)
	}
	if n.size == 0 {
		n.size = int(l.from.InputOffset() - start)
	}
	if l.found > before {
		n.fold = false
	}
	n.fold = n.fold || !n.whole // what is cut says so where it is unfolded
	return n, err
}

// inside lays out an object or array.
func (l *layout) inside(kind string, depth int) (node, error) {
	n := node{kind: kind, whole: true}
	if _, err := l.from.ReadToken(); err != nil {
		return n, err
	}
	rest, left := 0, int64(0)
	for l.more() {
		n.count++
		if l.full() && (depth > 0 || n.count > maxTop) {
			start := l.from.InputOffset()
			if err := l.pass(kind); err != nil {
				return n, err
			}
			rest, left = rest+1, left+l.from.InputOffset()-start
			continue
		}
		inner, err := l.member(kind, depth)
		if err != nil {
			return n, err
		}
		n.inner = append(n.inner, inner)
	}
	if rest > 0 {
		n.inner = append(n.inner, node{kind: "more", count: rest, size: int(left)})
	}
	n.fold = depth > openDepth || n.count > openItems && depth > 0
	_, err := l.from.ReadToken()
	return n, err
}

// more reports whether the value that is being read goes on.
func (l *layout) more() bool {
	k := l.from.PeekKind()
	return k != '}' && k != ']'
}

// full reports whether there is no room for more.
func (l *layout) full() bool { return l.nodes <= 0 || l.bytes <= 0 }

// member lays out a member of an object, or an element of an array. It may take
// half of the room that is left, so that a large one cannot hide the others.
func (l *layout) member(of string, depth int) (node, error) {
	nodes, bytes := l.nodes/2, l.bytes/2
	l.nodes, l.bytes = l.nodes-nodes, l.bytes-bytes
	defer func() { l.nodes, l.bytes = l.nodes+nodes, l.bytes+bytes }()
	var name []run
	named := of == "object"
	if named {
		token, err := l.from.ReadToken()
		if err != nil {
			return node{}, err
		}
		name = l.label(token.String())
	}
	n, err := l.value(depth + 1)
	n.named, n.name = named, name
	return n, err
}

// pass goes past a member or element of which nothing is shown, but in which
// something may be found.
func (l *layout) pass(of string) error {
	for range map[string]int{"object": 2, "array": 1}[of] {
		v, err := l.from.ReadValue()
		if err != nil {
			return err
		}
		l.found += count(string(v), l.find)
	}
	return nil
}

// deep lays out a value that is too deep to be unfolded step by step.
func (l *layout) deep(kind jsontext.Kind) (node, error) {
	v, err := l.from.ReadValue()
	if err != nil {
		return node{}, err
	}
	n := node{kind: "deep", fold: true, note: "deeply nested " + map[bool]string{true: "object", false: "array"}[kind == '{']}
	n.text, n.whole = l.runs(string(v), maxInline)
	return n, nil
}

func (l *layout) scalar(kind jsontext.Kind) (node, error) {
	v, err := l.from.ReadValue()
	if err != nil {
		return node{}, err
	}
	n := node{kind: "literal"}
	if kind == '0' {
		n.kind = "number"
	}
	n.text, n.whole = l.runs(string(v), maxInline)
	return n, nil
}

// text lays out a string.
func (l *layout) text() (node, error) {
	token, err := l.from.ReadToken()
	if err != nil {
		return node{}, err
	}
	if l.redacted[l.from.StackPointer()] {
		return node{kind: "redacted", whole: true}, nil
	}
	s := token.String()
	n := node{kind: "string", size: len(s), note: binary(s), quoted: unclear(s) || pretends(s)}
	n.fold = n.note != "" || len(s) > longText || strings.Count(s, "\n") >= longLines
	n.text, n.whole = l.runs(s, maxInline)
	if !n.whole {
		n.found = excerpts(s, l.find)
	}
	return n, nil
}

// pretends reports whether s has blanks by which a part of it could look like
// something beside it.
func pretends(s string) bool { return strings.ContainsAny(s, "\n\t") || strings.Contains(s, "  ") }

// runs returns foreign text as runs of at most so many bytes.
func (l *layout) runs(text string, most int) ([]run, bool) { return l.mark(text, most, nil) }

// mark is runs for text in which some characters are odd.
func (l *layout) mark(text string, most int, odd func(rune) bool) ([]run, bool) {
	m := marker{find: l.find, odd: odd, most: max(minInline, min(most, l.bytes))}
	runs, whole := m.runs(text)
	if !whole {
		m.found = count(text, l.find)
	}
	l.found += m.found
	for _, r := range runs {
		l.bytes -= r.cost()
	}
	return runs, whole
}

// cut is runs for text of which the end does not matter much.
func (l *layout) cut(text string, most int) []run {
	runs, whole := l.runs(text, most)
	if !whole {
		runs = append(runs, run{text: "…"})
	}
	return runs
}

// label returns the name of a member so that it looks like no other: with
// letters marked that may be taken for others, and in quotes if its ends are blank.
func (l *layout) label(name string) []run {
	if name == "" || strings.TrimSpace(name) != name {
		name = `"` + name + `"`
	}
	runs, whole := l.mark(name, maxName, notASCII)
	if !whole {
		runs = append(runs, run{text: "…"})
	}
	return runs
}

func count(text, part string) int {
	n := 0
	for at := indexFold(text, part); at >= 0; at = indexFold(text, part) {
		n++
		text = text[at+len(part):]
	}
	return n
}

// excerpts returns where part is in text, with a little of what is around it.
func excerpts(text, part string) [][]run {
	var found [][]run
	for rest, past := text, 0; len(found) < maxFound; {
		at := indexFold(rest, part)
		if at < 0 {
			break
		}
		from, to := max(0, past+at-excerpt), min(len(text), past+at+len(part)+excerpt)
		m := marker{find: part}
		runs, _ := m.runs("…" + strings.ToValidUTF8(text[from:to], "") + "…")
		found = append(found, runs)
		past += at + len(part)
		rest = text[past:]
	}
	return found
}

// What makes a string look binary.
const (
	minBase64   = 120
	sniffed     = 512
	maxControls = 10 // one in so many characters
)

// binary says what the content of s looks like, or nothing if it looks like
// text.
func binary(s string) string {
	if head, data, ok := strings.Cut(s, ","); ok && isDataURL(head, data) {
		return "data URL, about " + bytesText(len(data))
	}
	if len(s) >= minBase64 {
		if head, ok := decodeStart(s); ok {
			return "base64, about " + bytesText(len(s)/4*3) + describe(head)
		}
	}
	controls, all := 0, 0
	for _, r := range s[:min(len(s), sniffed)] {
		all++
		if isHidden(r) && r < 0x20 || r == utf8.RuneError {
			controls++
		}
	}
	if controls > 2 && controls*maxControls > all {
		return "binary, " + bytesText(len(s))
	}
	return ""
}

// isDataURL reports whether what stands before and after a comma is one. None has
// blanks.
func isDataURL(head, data string) bool {
	return strings.HasPrefix(head, "data:") && len(head) < 100 && !strings.ContainsAny(head+data, " \t\n")
}

// describe names the kind of content that begins with head, if that is known.
func describe(head []byte) string {
	kind, _, _ := strings.Cut(http.DetectContentType(head), ";")
	if kind == "application/octet-stream" {
		return ""
	}
	return ", looks like " + kind
}

// decodeStart decodes the beginning of s if all of s is base64 of either
// alphabet, and not just a long word.
func decodeStart(s string) ([]byte, bool) {
	if strings.Trim(s, lowers) == "" || strings.Trim(s, uppers) == "" || strings.Trim(s, digits) == "" {
		return nil, false
	}
	if strings.Trim(s, lowers+uppers+digits+"+/-_=\r\n") != "" {
		return nil, false
	}
	std := strings.NewReplacer("-", "+", "_", "/", "\r", "", "\n", "", "=", "").Replace(s[:min(len(s), 2*sniffed)])
	head, err := io.ReadAll(base64.NewDecoder(base64.RawStdEncoding, strings.NewReader(std)))
	return head, err == nil || errors.Is(err, io.ErrUnexpectedEOF)
}

// The kinds of characters in base64.
const (
	lowers = "abcdefghijklmnopqrstuvwxyz"
	uppers = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// bytesText returns a size for people.
func bytesText(n int) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d bytes", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.1f KB", float64(n)/1000)
	default:
		return fmt.Sprintf("%.1f MB", float64(n)/1000/1000)
	}
}

// asText returns the arguments of c as indented JSON in which every character
// can be seen.
func asText(c approval.Case) string {
	text := c.Whole.Clone()
	if len(text) == 0 {
		return "{}\n"
	}
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		return "The arguments cannot be shown.\n"
	}
	return approval.Visible(string(text)) + "\n"
}
