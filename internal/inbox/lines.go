package inbox

import (
	"strings"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/internal/highlight"
)

// How much of a long text is shown without being asked for.
const (
	headLines = 40  // first lines
	tailLines = 10  // last lines
	lineWidth = 120 // bytes of a line that count as one
)

// A line is a line of a text, as it is shown.
type line struct {
	number int // 0 if it goes on with the line before
	runs   []run
}

// A block is a text that is shown with line numbers: its first and its last
// lines, and what is between them when it is unfolded.
type block struct {
	language highlight.Language
	count    int // lines
	head     []line
	fold     []line // nil if all is in head, or there is no room for it
	folded   int    // bytes of the text that are in fold
	left     int    // bytes of the text that are not on the page
	tail     []line
	open     bool // what was searched for is in fold
}

// splitText returns where the first lines of text end and the last ones begin.
// If both are the length of text, all of it is shown.
func splitText(text string) (head, tail int) {
	end, room := walkLines(text, headLines+tailLines)
	if end == len(text) && room >= 0 {
		return end, end
	}
	head, _ = walkLines(text, headLines)
	return head, max(head, tailStart(text))
}

// walkLines returns how far the first lines reach. Long lines count as several.
func walkLines(text string, lines int) (end, room int) {
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

// boundary returns the largest offset up to most at which no character of text
// is cut in two.
func boundary(text string, most int) int {
	most = min(most, len(text))
	for most > 0 && most < len(text) && !utf8.RuneStart(text[most]) {
		most--
	}
	return most
}

// tailStart returns where the last lines of text begin.
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

// block lays out a text that needs more than one line.
func (l *layout) block(text string) *block {
	head, tail := splitText(text)
	start := text[:boundary(text, maxGuess)]
	b := &block{language: highlight.Guess(l.name, start), count: strings.Count(strings.TrimSuffix(text, "\n"), "\n") + 1}
	c := colourist{tokens: highlight.Tokens(b.language, start)}
	before := l.found
	defer func() { l.found = before + count(text, l.find) }() // also where a part ends in the middle of it
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
func (l *layout) lines(c *colourist, text string, from, to int) []line {
	lines := c.lines(text, from, l.mark(text[from:to], nil))
	for _, one := range lines {
		l.bytes -= lineCost + spanCost*len(one.runs)
	}
	return lines
}

// About how many bytes a page grows by for a line, and for a part of it.
const (
	lineCost = 40
	spanCost = 30
)

// maxGuess is how much of a text is looked at for its language and colours.
const maxGuess = 32 << 10

// A colourist gives runs the classes of the tokens that they are in.
type colourist struct{ tokens []highlight.Token }

// lines returns the runs of a part of text that begins at from as lines, with
// colours.
func (c *colourist) lines(text string, from int, runs []run) []line {
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

// split cuts a run after each line, and where tokens begin and end.
func (c *colourist) split(r run) []run {
	if r.kind != plainRun {
		r.class = c.at(r.at)
		return []run{r}
	}
	var pieces []run
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

// at returns the class of what is at an offset, and forgets the tokens before.
func (c *colourist) at(offset int) highlight.Class {
	for len(c.tokens) > 0 && c.tokens[0].End <= offset {
		c.tokens = c.tokens[1:]
	}
	if len(c.tokens) == 0 || offset < c.tokens[0].Start {
		return ""
	}
	return c.tokens[0].Class
}

// next returns where the class of what is at an offset ends.
func (c *colourist) next(offset int) int {
	if len(c.tokens) == 0 {
		return int(^uint(0) >> 1)
	}
	if t := c.tokens[0]; offset < t.Start {
		return t.Start
	}
	return c.tokens[0].End
}
