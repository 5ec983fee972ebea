package inbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/highlight"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// Limits of the arguments on the page of a call. The view of everything shows the rest.
const (
	maxNodes   = 2000      // values
	maxTop     = 300       // outermost values that are shown even if another limit is reached
	maxPage    = 192 << 10 // approximate bytes of text
	minInline  = 80        // approximate bytes of a string that are shown even if maxPage is reached
	maxNesting = 16        // levels of nesting
	longText   = 200       // bytes of a string that is shown beside its name
	reserve    = 8         // each value leaves 1/reserve of the limits for the values after it
	maxFound   = 8         // excerpts of one string
	excerpt    = 60        // bytes before and after a match
)

// A valueNode is the presentation of a JSON value.
type valueNode struct {
	named  bool
	name   []textRun // the name of a member
	kind   string    // object, array, string, number, literal, redacted, deep, more
	text   []textRun // a scalar that fits beside its name
	block  *block    // a longer scalar
	quoted bool      // text is ambiguous without quotes
	count  int       // members or elements
	size   int       // bytes
	note   string    // the kind of content, if it is binary
	cut    int       // bytes of a scalar that are not on the page
	inner  []valueNode
	found  [][]textRun // excerpts around the matches in a long text
}

// A valueTree is the presentation of the arguments of a call.
type valueTree struct {
	root   valueNode
	found  int // number of matches of the search
	size   int
	folded int // bytes in folded parts of the page
	left   int // bytes that are not on the page
}

// unread returns the number of bytes that are folded or not on the page.
func (o valueTree) unread() int { return o.folded + o.left }

// newValueTree prepares the arguments of c for a page, and searches them for find. It stops
// when ctx ends.
func newValueTree(ctx context.Context, c review.Details, find string) (valueTree, error) {
	cut := nameUpTo(c.Name, maxTitle).cut
	if len(c.AllArguments) == 0 {
		return valueTree{root: valueNode{kind: "object"}, left: cut}, nil
	}
	l := layouter{
		from: jsontext.NewDecoder(strings.NewReader(string(c.AllArguments))), redacted: c.RedactedArguments, find: find,
		nodes: maxNodes, bytes: maxPage, ended: ctx.Err,
	}
	root, err := l.value(0)
	return valueTree{root: root, found: l.found, size: len(c.AllArguments), folded: l.folded, left: l.left + cut}, err
}

// A layouter turns JSON into nodes, up to the limits of a page.
type layouter struct {
	from     *jsontext.Decoder
	redacted review.Offsets
	find     string
	found    int
	name     string // the name of the present member
	nodes    int    // how many more nodes fit on the page
	bytes    int    // how many more bytes fit on the page, approximately
	folded   int    // see valueTree
	left     int
	ended    func() error // returns an error to stop
}

// value lays out the next value.
func (l *layouter) value(depth int) (valueNode, error) {
	start := l.from.InputOffset()
	left := l.left
	l.nodes--
	var n valueNode
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
func (l *layouter) inside(kind string, depth int) (valueNode, error) {
	n := valueNode{kind: kind}
	if _, err := l.from.ReadToken(); err != nil {
		return n, err
	}
	rest, left := 0, int64(0)
	for l.more() {
		if err := l.ended(); err != nil {
			return n, err
		}
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
		n.inner = append(n.inner, valueNode{kind: "more", count: rest, size: int(left)})
		l.left += int(left)
	}
	_, err := l.from.ReadToken()
	return n, err
}

// more reports whether the present object or array has another element.
func (l *layouter) more() bool {
	k := l.from.PeekKind()
	return k != '}' && k != ']'
}

// full reports whether a limit was reached.
func (l *layouter) full() bool { return l.nodes <= 0 || l.bytes <= 0 }

// member lays out a member of an object, or an element of an array. It keeps a part of
// the limits for later elements, so that a large one cannot hide them.
func (l *layouter) member(of string, depth int) (valueNode, error) {
	nodes, size := l.nodes/reserve, l.bytes/reserve
	l.nodes, l.bytes = l.nodes-nodes, l.bytes-size
	defer func() { l.nodes, l.bytes = l.nodes+nodes, l.bytes+size }()
	var name []textRun
	named := of == "object"
	if named {
		token, err := l.from.ReadToken()
		if err != nil {
			return valueNode{}, err
		}
		l.name = token.String()
		name = l.label(l.name)
	}
	n, err := l.value(depth + 1)
	n.named, n.name = named, name
	return n, err
}

// pass skips a member or element that does not fit, and counts the matches in it.
func (l *layouter) pass(of string) error {
	for range map[string]int{"object": 2, "array": 1}[of] {
		v, err := l.from.ReadValue()
		if err != nil {
			return err
		}
		l.found += count(string(v), l.find)
	}
	return nil
}

// deep lays out a value at the maximum nesting as text.
func (l *layouter) deep(kind jsontext.Kind) (valueNode, error) {
	v, err := l.from.ReadValue()
	if err != nil {
		return valueNode{}, err
	}
	return valueNode{
		kind: "deep", note: "deeply nested " + map[bool]string{true: "object", false: "array"}[kind == '{'], block: l.block(string(v)),
	}, nil
}

func (l *layouter) scalar(kind jsontext.Kind) (valueNode, error) {
	v, err := l.from.ReadValue()
	if err != nil {
		return valueNode{}, err
	}
	n := valueNode{kind: "literal"}
	if kind == '0' {
		n.kind = "number"
	}
	n.text = l.mark(string(v), nil)
	return n, nil
}

// text lays out a string.
func (l *layouter) text() (valueNode, error) {
	token, err := l.from.ReadToken()
	if err != nil {
		return valueNode{}, err
	}
	if l.redacted.Has(l.from.InputOffset()) {
		return valueNode{kind: "redacted"}, nil
	}
	s := token.String()
	n := valueNode{kind: "string", size: len(s), note: binary(s), quoted: unclear(s) || pretends(s)}
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

// coloured lays out a text that fits beside its name, with syntax colours.
func (l *layouter) coloured(text string) []textRun {
	c := tokenCursor{tokens: highlight.Tokens(highlight.Guess(l.name, text), text)}
	var runs []textRun
	for _, r := range l.mark(text, nil) {
		runs = append(runs, c.split(r)...)
	}
	return runs
}

// pretends reports whether s has line breaks, tabs or several spaces in a row, so that a
// part of s could look like text outside of it.
func pretends(s string) bool { return strings.ContainsAny(s, "\n\t") || strings.Contains(s, "  ") }

// mark returns foreign text as runs, up to the limit. For a name, odd reports which
// characters look like others; for other text it is nil.
func (l *layouter) mark(text string, odd func(rune) bool) []textRun {
	most := l.bytes
	if odd != nil {
		most = min(most, maxName)
	}
	m := runSplitter{find: l.find, odd: odd, most: max(minInline, most)}
	if odd != nil {
		m.blank = safetext.StraySpaces(text)
	} else {
		//mutate:drop TestConfusableValuesMarked a letter of another script in a value is not marked
		m.mixed = mixedAt(text[:boundary(text, m.most+longText)]) // the rest is not shown
	}
	runs, whole := m.runs(text)
	if !whole {
		m.found = count(text, l.find)
		l.left += len(text) - shownBytes(runs)
		runs = append(runs, textRun{text: "…", at: len(text)})
	}
	l.found += m.found
	for _, r := range runs {
		l.bytes -= r.cost()
	}
	return runs
}

// shownBytes returns how many bytes of a text its runs show.
func shownBytes(runs []textRun) int {
	if len(runs) == 0 {
		return 0
	}
	last := runs[len(runs)-1]
	return last.at + last.size
}

// cut is mark for the list, which shows only the beginning of a text.
func (l *layouter) cut(text string) []textRun {
	space := min(maxPreview, l.bytes)
	rest := layouter{bytes: space}
	runs := rest.mark(text, nil)
	l.bytes -= space - rest.bytes
	return runs
}

// label returns the name of a member in a form in which no two names look alike. It marks
// letters that look like others, shows the code points of spaces that are easy to overlook,
// and adds quotes to a name that is empty or consists of quotes.
func (l *layouter) label(name string) []textRun {
	if strings.Trim(name, `"`) == "" {
		name = `"` + name + `"`
	}
	return l.mark(name, safetext.IsNonASCII)
}

func count(text, part string) int {
	n := 0
	for at := indexASCIIFold(text, part); at >= 0; at = indexASCIIFold(text, part) {
		n++
		text = text[at+len(part):]
	}
	return n
}

// excerpts returns the matches of part in text, each with the text around it.
func excerpts(text, part string) [][]textRun {
	var found [][]textRun
	for rest, past := text, 0; len(found) < maxFound; {
		at := indexASCIIFold(rest, part)
		if at < 0 {
			break
		}
		from, to := max(0, past+at-excerpt), min(len(text), past+at+len(part)+excerpt)
		around := "…" + strings.ToValidUTF8(text[from:to], "") + "…"
		m := runSplitter{find: part, mixed: mixedAt(around)}
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
	maxControls = 10 // a string is binary if one of maxControls characters is a control character
)

// binary describes the content of s if it looks binary, and returns "" otherwise.
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

// isDataURL reports whether the texts before and after the first comma form a data URL. Data
// URLs contain no spaces.
func isDataURL(head, data string) bool {
	return strings.HasPrefix(head, "data:") && len(head) < 100 && !strings.ContainsAny(head+data, " \t\n")
}

// describe returns the media type of content that begins with head, or "".
func describe(head []byte) string {
	kind, _, _ := strings.Cut(http.DetectContentType(head), ";")
	if kind == "application/octet-stream" {
		return ""
	}
	return ", looks like " + kind
}

// decodeStart decodes the beginning of s if s is base64 in one of the two alphabets, and
// not a long word or number.
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

// bytesText returns a size with a unit.
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

// maxWhole is the approximate limit for one text in the view of everything, in bytes.
const maxWhole = 4 << 20

// A fullText is a value as one text with line numbers.
type fullText struct {
	lines []line
	left  int // bytes of the text that are not on the page
}

func newFullText(v jsontext.Value) *fullText { return fullTextOf(asText(v)) }

func fullTextOf(text string) *fullText {
	m := runSplitter{mixed: mixedAt(text), most: maxWhole}
	runs, _ := m.runs(text)
	var colours tokenCursor
	if len(text) <= maxGuess {
		colours.tokens = highlight.Tokens(highlight.JSON, text)
	}
	return &fullText{lines: colours.lines(text, 0, runs), left: len(text) - shownBytes(runs)}
}

// diffLines returns the lines of a difference between definitions.
func diffLines(text string) []line {
	text = safetext.Escape(text)
	m := runSplitter{mixed: mixedAt(text), most: maxWhole}
	runs, _ := m.runs(text)
	var colours tokenCursor
	return colours.lines(text, 0, runs)
}

// asText returns a value as JSON in which every character is visible. It is indented
// unless the lines would exceed maxWhole.
func asText(v jsontext.Value) string {
	if len(v) == 0 {
		return "{}\n"
	}
	text, err := indented(v)
	switch {
	case errors.Is(err, errLimit):
		text = string(v) + "\n"
	case err != nil:
		return "The arguments cannot be shown.\n"
	}
	return safetext.Escape(text)
}

// indented returns a value as indented JSON. The error is errLimit if it exceeds maxWhole.
func indented(v jsontext.Value) (string, error) {
	var b strings.Builder
	from, to := jsontext.NewDecoder(bytes.NewReader(v)), jsontext.NewEncoder(&b, jsontext.WithIndent("  "), jsontext.PreserveRawStrings(true))
	for space := maxWhole; ; space -= lineCost {
		token, err := from.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return b.String(), nil
		case err != nil:
			return "", err
		case int(to.OutputOffset()) > space:
			return "", errLimit
		}
		if err := to.WriteToken(token); err != nil {
			return "", err
		}
	}
}

// Limits of the unfolded part of a long text.
const (
	headLines = 40  // first lines
	tailLines = 10  // last lines
	lineWidth = 120 // a line counts once for each lineWidth bytes
)

// A line is the presentation of a line of text.
type line struct {
	number int // 0 if it continues the previous line
	runs   []textRun
}

// A block is a text with line numbers. Its first and last lines are always visible. The
// lines between them are folded.
type block struct {
	language highlight.Language
	count    int // lines
	head     []line
	fold     []line // nil if head has the whole text, or if the lines do not fit on the page
	folded   int    // bytes of the text in fold
	left     int    // bytes of the text that are not on the page
	tail     []line
	open     bool // fold has a match of the search
}

// splitText returns the end of the first lines of text and the start of the last ones. If
// both are the length of text, nothing is folded.
func splitText(text string) (head, tail int) {
	end, space := walkLines(text, headLines+tailLines)
	if end == len(text) && space >= 0 {
		return end, end
	}
	head, _ = walkLines(text, headLines)
	return head, max(head, tailStart(text))
}

// walkLines returns the end of the first lines, and how many lines remain of the limit.
// Long lines count as several.
func walkLines(text string, lines int) (end, space int) {
	for l := range strings.Lines(text) {
		cost := 1 + len(l)/lineWidth
		if cost > lines {
			return end + boundary(l, lines*lineWidth), lines
		}
		lines -= cost
		end += len(l)
	}
	return end, lines
}

// boundary returns the largest offset up to most that is not inside a character of text.
func boundary(text string, most int) int {
	most = min(most, len(text))
	for most > 0 && most < len(text) && !utf8.RuneStart(text[most]) {
		most--
	}
	return most
}

// tailStart returns the start of the last lines of text.
func tailStart(text string) int {
	start := len(text)
	for lines := tailLines; lines > 0 && start > 0; {
		from := strings.LastIndexByte(text[:start-1], '\n') + 1
		cost := 1 + (start-from)/lineWidth
		if cost > lines {
			from = start - lines*lineWidth
			for from < start && !utf8.RuneStart(text[from]) {
				from++
			}
		}
		lines -= cost
		start = from
	}
	return start
}

// block lays out a long text.
func (l *layouter) block(text string) *block {
	head, tail := splitText(text)
	start := text[:boundary(text, maxGuess)]
	b := &block{language: highlight.Guess(l.name, start), count: strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1}
	c := tokenCursor{tokens: highlight.Tokens(b.language, start)}
	before := l.found
	defer func() { l.found = before + count(text, l.find) }() // with the matches that cross the end of a part
	b.head = l.lines(&c, text, 0, head)
	if head == len(text) {
		return b
	}
	if tail-head <= l.bytes/2 {
		inHead := l.found
		b.fold, b.folded = l.lines(&c, text, head, tail), tail-head
		b.open = l.found > inHead
		l.folded += b.folded
	} else {
		b.left = tail - head
		l.left += b.left
	}
	b.tail = l.lines(&c, text, tail, len(text))
	return b
}

// lines lays out a part of a text.
func (l *layouter) lines(c *tokenCursor, text string, from, to int) []line {
	lines := c.lines(text, from, l.mark(text[from:to], nil))
	for _, one := range lines {
		l.bytes -= lineCost + spanCost*len(one.runs)
	}
	return lines
}

// The approximate size of the markup for a line and for a run, in bytes.
const (
	lineCost = 40
	spanCost = 30
)

// maxGuess limits the part of a text that is searched for its language and tokens, in bytes.
const maxGuess = 32 << 10

// A tokenCursor gives runs the classes of their tokens. It moves forward only.
type tokenCursor struct{ tokens []highlight.Token }

// lines returns the runs of the part of text that begins at from as lines, with the
// classes of their tokens.
func (c *tokenCursor) lines(text string, from int, runs []textRun) []line {
	number := strings.Count(text[:from], "\n") + 1
	current := line{number: number}
	if from > 0 && text[from-1] != '\n' {
		current.number = 0
	}
	var lines []line
	for _, r := range runs {
		r.at += from
		for _, piece := range c.split(r) {
			current.runs = append(current.runs, piece)
			if strings.HasSuffix(piece.text, "\n") {
				lines = append(lines, current)
				number++
				current = line{number: number}
			}
		}
	}
	if len(current.runs) > 0 {
		lines = append(lines, current)
	}
	return lines
}

// split cuts a run after each line break, and at the start and end of each token.
func (c *tokenCursor) split(r textRun) []textRun {
	if r.kind != plainRun {
		r.class = c.at(r.at)
		return []textRun{r}
	}
	var pieces []textRun
	for r.text != "" {
		piece := r
		end := len(r.text)
		if n := strings.IndexByte(r.text, '\n'); n >= 0 {
			end = n + 1
		}
		piece.class = c.at(r.at)
		end = min(end, c.next(r.at)-r.at)
		piece.text = r.text[:end]
		pieces = append(pieces, piece)
		r.text, r.at = r.text[end:], r.at+end
	}
	return pieces
}

// at returns the class at an offset, and drops the tokens before it.
func (c *tokenCursor) at(offset int) highlight.Class {
	for len(c.tokens) > 0 && c.tokens[0].End <= offset {
		c.tokens = c.tokens[1:]
	}
	if len(c.tokens) == 0 || offset < c.tokens[0].Start {
		return ""
	}
	return c.tokens[0].Class
}

// next returns the offset at which the class at an offset ends.
func (c *tokenCursor) next(offset int) int {
	if len(c.tokens) == 0 {
		return math.MaxInt
	}
	if t := c.tokens[0]; offset < t.Start {
		return t.Start
	}
	return c.tokens[0].End
}
