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

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/highlight"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

// How much of arguments a page shows. The page with everything shows the rest.
const (
	maxNodes   = 2000      // values
	maxTop     = 300       // of the outermost values, whatever room there is
	maxPage    = 192 << 10 // about how many bytes of text in all
	minInline  = 80        // about how many bytes of one string if there is no room
	maxNesting = 16        // values inside of values
	longText   = 200       // bytes of a string that is shown beside its name
	reserve    = 8         // the part of the room that a value leaves for those after it
	maxFound   = 8         // excerpts of one string
	excerpt    = 60        // bytes on either side of what was found
)

// A node is a value in arguments, as it is shown.
type node struct {
	named  bool
	name   []run  // of a member
	kind   string // object, array, string, number, literal, redacted, more
	text   []run  // of a scalar that fits beside its name
	block  *block // of one that does not
	quoted bool   // text needs quotes so that it is not taken for something else
	count  int    // members or elements
	size   int    // bytes
	note   string // what it looks like, if it is binary
	cut    int    // bytes of a scalar that are not on the page
	inner  []node
	found  [][]run // what was found in a long text, with what is around it
}

// An outline is arguments as they are shown.
type outline struct {
	root   node
	found  int // how often what was searched for is in them
	size   int
	folded int // bytes that are on the page, but not unfolded
	left   int // bytes that are not on the page
}

// unread returns how many bytes an approver does not see without asking.
func (o outline) unread() int { return o.folded + o.left }

// newOutline lays out the arguments of c, looking for find.
func newOutline(c casefile.Case, find string) (outline, error) {
	cut := nameUpTo(c.Name, maxTitle).cut
	if len(c.Whole) == 0 {
		return outline{root: node{kind: "object"}, left: cut}, nil
	}
	l := layout{
		from: jsontext.NewDecoder(strings.NewReader(string(c.Whole))), redacted: c.Redacted, find: find,
		nodes: maxNodes, bytes: maxPage,
	}
	root, err := l.value(0)
	return outline{root: root, found: l.found, size: len(c.Whole), folded: l.folded, left: l.left + cut}, err
}

// A layout turns JSON into nodes, of which it makes a limited number.
type layout struct {
	from     *jsontext.Decoder
	redacted map[jsontext.Pointer]bool
	find     string
	found    int
	name     string // of the member that is being laid out
	nodes    int    // how many may still be made
	bytes    int    // how much they may still hold
	folded   int    // see outline
	left     int
}

// value lays out the next value.
func (l *layout) value(depth int) (node, error) {
	start := l.from.InputOffset()
	left := l.left
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
	if n.inner == nil {
		n.cut = l.left - left
	}
	if n.size == 0 {
		n.size = int(l.from.InputOffset() - start)
	}
	return n, err
}

// inside lays out an object or array.
func (l *layout) inside(kind string, depth int) (node, error) {
	n := node{kind: kind}
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
		l.left += int(left)
	}
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

// member lays out a member of an object, or an element of an array. It leaves
// some of the room, so that a large one cannot hide the others.
func (l *layout) member(of string, depth int) (node, error) {
	nodes, bytes := l.nodes/reserve, l.bytes/reserve
	l.nodes, l.bytes = l.nodes-nodes, l.bytes-bytes
	defer func() { l.nodes, l.bytes = l.nodes+nodes, l.bytes+bytes }()
	var name []run
	named := of == "object"
	if named {
		token, err := l.from.ReadToken()
		if err != nil {
			return node{}, err
		}
		l.name = token.String()
		name = l.label(l.name)
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
	return node{
		kind: "deep", note: "deeply nested " + map[bool]string{true: "object", false: "array"}[kind == '{'], block: l.block(string(v)),
	}, nil
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
	n.text = l.mark(string(v), nil)
	return n, nil
}

// text lays out a string.
func (l *layout) text() (node, error) {
	token, err := l.from.ReadToken()
	if err != nil {
		return node{}, err
	}
	if l.redacted[l.from.StackPointer()] {
		return node{kind: "redacted"}, nil
	}
	s := token.String()
	n := node{kind: "string", size: len(s), note: binary(s), quoted: unclear(s) || pretends(s)}
	if len(s) <= longText && !strings.Contains(s, "\n") {
		n.text = l.coloured(s)
		return n, nil
	}
	n.block = l.block(s)
	if n.block.left > 0 {
		n.found = excerpts(s, l.find)
	}
	return n, nil
}

// coloured lays out a text that fits beside its name.
func (l *layout) coloured(text string) []run {
	c := colourist{tokens: highlight.Tokens(highlight.Guess(l.name, text), text)}
	var runs []run
	for _, r := range l.mark(text, nil) {
		runs = append(runs, c.split(r)...)
	}
	return runs
}

// pretends reports whether s has blanks by which a part of it could look like
// something beside it.
func pretends(s string) bool { return strings.ContainsAny(s, "\n\t") || strings.Contains(s, "  ") }

// mark returns foreign text as runs, as far as there is room. If odd is given,
// it says which characters may be taken for others.
func (l *layout) mark(text string, odd func(rune) bool) []run {
	most := l.bytes
	if odd != nil {
		most = min(most, maxName)
	}
	m := marker{find: l.find, odd: odd, most: max(minInline, most)}
	if odd != nil {
		m.blank = plain.Blanks(text)
	} else {
		m.mixed = mixedAt(text[:boundary(text, m.most+longText)]) // more is not shown
	}
	runs, whole := m.runs(text)
	if !whole {
		m.found = count(text, l.find)
		l.left += len(text) - shownBytes(runs)
		runs = append(runs, run{text: "…", at: len(text)})
	}
	l.found += m.found
	for _, r := range runs {
		l.bytes -= r.cost()
	}
	return runs
}

// shownBytes returns how much of a text its runs show.
func shownBytes(runs []run) int {
	if len(runs) == 0 {
		return 0
	}
	last := runs[len(runs)-1]
	return last.at + last.size
}

// cut is mark for text in a list, of which the end does not matter much.
func (l *layout) cut(text string, most int) []run {
	m := marker{most: max(minInline, min(most, l.bytes))}
	m.mixed = mixedAt(text[:boundary(text, m.most+longText)])
	runs, whole := m.runs(text)
	if !whole {
		runs = append(runs, run{text: "…"})
	}
	for _, r := range runs {
		l.bytes -= r.cost()
	}
	return runs
}

// label returns the name of a member so that it looks like no other: with
// letters marked that may be taken for others, with the spaces spelled out that are easy
// to overlook, and in quotes if it is empty or nothing but quotes.
func (l *layout) label(name string) []run {
	if strings.Trim(name, `"`) == "" {
		name = `"` + name + `"`
	}
	return l.mark(name, plain.Odd)
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
		around := "…" + strings.ToValidUTF8(text[from:to], "") + "…"
		m := marker{find: part, mixed: mixedAt(around)}
		runs, _ := m.runs(around)
		found = append(found, runs)
		past += at + len(part)
		rest = text[past:]
	}
	return found
}

// Signs that a string is binary.
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

// wholeText returns a value as one text with line numbers, whatever its size.
func wholeText(v jsontext.Value) []line {
	text := asText(v)
	m := marker{mixed: mixedAt(text)}
	runs, _ := m.runs(text)
	var colours colourist
	if len(text) <= maxGuess {
		colours.tokens = highlight.Tokens(highlight.JSON, text)
	}
	return colours.lines(text, 0, runs)
}

// asText returns a value as indented JSON in which every character can be seen.
func asText(v jsontext.Value) string {
	text := v.Clone()
	if len(text) == 0 {
		return "{}\n"
	}
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		return "The arguments cannot be shown.\n"
	}
	return plain.Escape(string(text)) + "\n"
}
