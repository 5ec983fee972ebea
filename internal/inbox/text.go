package inbox

import (
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/a-h/templ"

	"github.com/thoughtgate/thoughtgate-go/internal/highlight"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

// A run is a piece of foreign text that is shown in one way.
type run struct {
	kind  runKind
	text  string          // what is shown
	note  string          // what it is, if that needs words
	at    int             // where in the text it begins
	size  int             // how many bytes of the text it shows
	class highlight.Class // what it is in the language of the text, if that is known
}

// A runKind says how a run is shown.
type runKind int

const (
	plainRun  runKind = iota
	hiddenRun         // the code point of a character that cannot be seen
	oddRun            // a character that may be taken for another one
	foundRun          // what was searched for
)

// cost is about how many bytes a page grows by for a run.
func (r run) cost() int {
	if r.kind == plainRun {
		return len(r.text)
	}
	return len(r.text) + len(r.note) + markupCost
}

const markupCost = 60

// foreign shows text that somebody else wrote, with nothing added between its
// characters that is not marked.
func foreign(runs []run) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		var b strings.Builder
		writeRuns(&b, runs)
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// numbered shows lines of foreign text, each with its number. The number is not
// part of the text: it is not copied with it.
func numbered(lines []line) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		var b strings.Builder
		for _, l := range lines {
			if l.number > 0 {
				fmt.Fprintf(&b, `<span class="line" data-n="%d">`, l.number)
			} else {
				b.WriteString(`<span class="line" data-n="">`)
			}
			writeRuns(&b, l.runs)
			b.WriteString("</span>")
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}

func writeRuns(b *strings.Builder, runs []run) {
	for _, r := range runs {
		text, note := templ.EscapeString(r.text), templ.EscapeString(r.note)
		switch r.kind {
		case hiddenRun:
			fmt.Fprintf(b, `<span class="code-point" title="%s">%s<span class="unseen"> (%s) </span></span>`, note, text, note)
		case oddRun:
			fmt.Fprintf(b, `<span class="odd" title="%s">%s</span>`, note, text)
		case foundRun:
			b.WriteString("<mark>" + text + "</mark>")
		default:
			if r.class != "" {
				text = `<span class="t-` + string(r.class) + `">` + text + "</span>"
			}
			b.WriteString(text)
		}
	}
}

// A marker splits foreign text into runs.
type marker struct {
	find  string            // what to mark as found
	found int               // how often it was
	odd   func(r rune) bool // what may be taken for something else, in a name
	mixed map[int]bool      // where letters are that may be, in a text
	blank map[int]bool      // where spaces are that are easy to overlook, in a name
	most  int               // about how many bytes may be shown; 0 means no limit
}

// mixedAt returns where letters of a text are that may be taken for others.
func mixedAt(text string) map[int]bool {
	var at map[int]bool
	for _, m := range plain.Mixed(text) {
		if at == nil {
			at = make(map[int]bool)
		}
		at[m.At] = true
	}
	return at
}

// runs returns text as runs, and whether that is all of it.
func (m *marker) runs(text string) (split []run, whole bool) {
	b := builder{odd: m.odd, mixed: m.mixed, blank: m.blank, most: m.most}
	for text != "" && !b.full() {
		at := indexFold(text, m.find)
		if at < 0 {
			break
		}
		m.found++
		b.write(text[:at])
		b.add(run{kind: foundRun, text: visible(text[at : at+len(m.find)]), at: b.at, size: len(m.find)})
		b.at += len(m.find)
		text = text[at+len(m.find):]
	}
	b.write(text)
	return b.runs, !b.cut
}

// visible returns text that is short with its hidden characters spelled out.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if isHidden(r) {
			b.WriteString(plain.CodePoint(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// A builder collects runs up to a limit.
type builder struct {
	runs  []run
	odd   func(rune) bool
	mixed map[int]bool
	blank map[int]bool
	most  int
	spent int
	cut   bool
	at    int // how much of the text was written
}

func (b *builder) full() bool { return b.cut || b.most > 0 && b.spent >= b.most }

func (b *builder) add(r run) {
	if b.full() {
		b.cut = true
		return
	}
	b.runs, b.spent = append(b.runs, r), b.spent+r.cost()
}

// write adds text, with what is hidden or odd in runs of its own.
func (b *builder) write(text string) {
	start, before := 0, b.at
	defer func() { b.at = before + len(text) }()
	for at, r := range text {
		if b.most > 0 && b.spent+at-start >= b.most {
			b.plain(text[start:at])
			b.cut = true
			return
		}
		b.at = before + start
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(text[at:])
		}
		switch {
		case isHidden(r) || b.blank[before+at] || b.odd != nil && unicode.IsControl(r): // a name has no lines
			b.plain(text[start:at])
			b.add(run{kind: hiddenRun, text: plain.CodePoint(r), note: hiddenName(r), at: before + at, size: size})
		case b.odd != nil && b.odd(r), b.mixed[before+at]:
			b.plain(text[start:at])
			b.add(run{kind: oddRun, text: string(r), note: plain.CodePoint(r) + " " + plain.Script(r), at: before + at, size: size})
		default:
			continue
		}
		start = at + size
	}
	b.at = before + start
	b.plain(text[start:])
}

func (b *builder) plain(text string) {
	if text != "" {
		b.add(run{text: text, at: b.at, size: len(text)})
	}
}

// isHidden reports whether r has to be spelled out. Line breaks and tabs are
// shown as what they are.
func isHidden(r rune) bool { return r != '\n' && r != '\t' && plain.Hidden(r) }

// effects says what characters do that cannot be seen. The first that fits
// counts.
var effects = []struct {
	fits func(rune) bool
	name string
}{
	{oneOf(" "), "is a space"},
	{oneOf("\u202d\u202e"), "overrides the direction of what follows"},
	{oneOf("\u061c\u200e\u200f\u202a\u202b\u202c\u2066\u2067\u2068\u2069"), "changes the direction of text"},
	{oneOf("\u200b\u200c\u200d\u2060\ufeff"), "has no width"},
	{of(unicode.Variation_Selector), "changes how the character before it looks"},
	{func(r rune) bool { return 0xE0000 <= r && r <= 0xE007F }, "is a tag, invisible everywhere"},
	{of(unicode.Zs), "is an unusual space"},
	{unicode.IsControl, "is a control character"},
	{of(unicode.Co), "is a private-use character"},
}

func oneOf(chars string) func(rune) bool {
	return func(r rune) bool { return strings.ContainsRune(chars, r) }
}

func of(table *unicode.RangeTable) func(rune) bool {
	return func(r rune) bool { return unicode.Is(table, r) }
}

// hiddenName says what a character does that cannot be seen.
func hiddenName(r rune) string {
	for _, e := range effects {
		if e.fits(r) {
			return e.name
		}
	}
	return "cannot be seen"
}

// A name is the name of something that matters, shown so that it cannot be
// taken for another one.
type name struct {
	runs    []run
	warning string // says what in it is not what it looks like; may be empty
	cut     int    // bytes of it that are not shown
}

// maxName is about how many bytes are shown of a name.
const maxName = 400

func newName(text string) name { return nameUpTo(text, maxName) }

// maxTitle is about how many bytes the name of a call that is to be decided on takes on
// its page. Every name that the gate accepts for approval fits, also one of characters
// that are all spelled out.
const maxTitle = 256 << 10

func nameUpTo(text string, most int) name {
	m := marker{odd: plain.Odd, blank: plain.Blanks(text), most: most}
	runs, whole := m.runs(text)
	n := name{runs: runs, warning: plain.Warning(text)}
	if !whole {
		n.cut = len(text) - shownBytes(runs)
		n.runs = append(n.runs, run{text: "…"})
	}
	return n
}

// indexFold is strings.Index that takes ASCII letters for the same in either
// case. There is nothing to be found of an empty part.
func indexFold(text, part string) int {
	if part == "" {
		return -1
	}
	first := lower(part[0])
	for i := 0; i+len(part) <= len(text); i++ {
		if lower(text[i]) == first && equalFold(text[i:i+len(part)], part) {
			return i
		}
	}
	return -1
}

func equalFold(a, b string) bool {
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
