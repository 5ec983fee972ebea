package inbox

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/a-h/templ"

	"github.com/thoughtgate/thoughtgate-go/internal/highlight"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// A textRun is a piece of foreign text with one presentation.
type textRun struct {
	kind  runKind
	text  string          // the text on the page
	note  string          // an explanation; may be empty
	at    int             // offset in the foreign text
	size  int             // bytes of the foreign text that the run shows
	class highlight.Class // the class of the token; may be empty
}

// A runKind is the presentation of a run.
type runKind int

const (
	plainRun  runKind = iota
	hiddenRun         // the code point of an invisible character
	oddRun            // a character that looks like another one
	foundRun          // a match of the search
	spaceRun          // many spaces or tabs
)

// cost returns the approximate size of a run on a page, in bytes.
func (r textRun) cost() int {
	if r.kind == plainRun {
		return len(r.text)
	}
	return len(r.text) + len(r.note) + markupCost
}

const markupCost = 60

// foreign shows runs as text. The page marks every addition to the foreign text.
func foreign(runs []textRun) templ.Component {
	var b strings.Builder
	writeRuns(&b, runs)
	return templ.Raw(b.String())
}

// prose shows a foreign text that is not part of a value.
func prose(text string) templ.Component {
	var m runSplitter
	runs, _ := m.runs(text)
	return foreign(runs)
}

// numbered shows lines with their numbers. The style sheet adds the numbers, so that
// they are not copied with the text.
func numbered(lines []line) templ.Component {
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
	return templ.Raw(b.String())
}

func writeRuns(b *strings.Builder, runs []textRun) {
	for _, r := range runs {
		text, note := templ.EscapeString(r.text), templ.EscapeString(r.note)
		switch r.kind {
		case hiddenRun:
			fmt.Fprintf(b, `<span class="code-point" title="%s">%s<span class="unseen"> (%s) </span></span>`, note, text, note)
		case oddRun:
			fmt.Fprintf(b, `<span class="odd" title="%s">%s</span>`, note, text)
		case foundRun:
			b.WriteString("<mark>" + text + "</mark>")
		case spaceRun: // the style sheet shows the note, so that the text is copied as it is
			fmt.Fprintf(b, `<span class="spaces" data-note="%s">%s</span>`, note, text)
		default:
			if r.class != "" {
				text = `<span class="t-` + string(r.class) + `">` + text + "</span>"
			}
			b.WriteString(text)
		}
	}
}

// A runSplitter splits foreign text into runs, up to a limit.
type runSplitter struct {
	find  string            // the text to mark as found
	odd   func(r rune) bool // whether a character of a name looks like another one; nil for other text
	mixed map[int]bool      // offsets of characters that look like others, in text that is not a name
	blank map[int]bool      // offsets of spaces in a name that are easy to overlook
	most  int               // approximate limit in bytes; 0 means no limit

	found int // number of matches of find
	split []textRun
	spent int  // approximate size of split in bytes
	cut   bool // the limit was reached before the end of the text
	at    int  // bytes of the text that were split
}

// mixedAt returns the offsets of the characters of a text that look like others.
func mixedAt(text string) map[int]bool {
	at := map[int]bool{}
	for _, m := range safetext.Confusables(text) {
		at[m.At] = true
	}
	return at
}

// runs returns text as runs, and whether they show all of it.
func (m *runSplitter) runs(text string) (split []textRun, whole bool) {
	for text != "" && !m.full() {
		at := indexASCIIFold(text, m.find)
		if at < 0 {
			break
		}
		m.found++
		m.write(text[:at])
		m.add(textRun{kind: foundRun, text: visible(text[at : at+len(m.find)]), at: m.at, size: len(m.find)})
		m.at += len(m.find)
		text = text[at+len(m.find):]
	}
	m.write(text)
	return m.split, !m.cut
}

// visible returns a short text with code points in the place of invisible characters.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if isHidden(r) {
			b.WriteString(safetext.CodePoint(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func (m *runSplitter) full() bool { return m.cut || m.most > 0 && m.spent >= m.most }

func (m *runSplitter) add(r textRun) {
	if m.full() {
		m.cut = true
		return
	}
	m.split, m.spent = append(m.split, r), m.spent+r.cost()
}

// write adds text. Each invisible or confusable character, and each wide space, becomes a separate run.
func (m *runSplitter) write(text string) {
	start, before := 0, m.at
	defer func() { m.at = before + len(text) }()
	for at, r := range text {
		if at < start {
			continue
		}
		if m.most > 0 && m.spent+at-start >= m.most {
			m.plain(text[start:at])
			m.cut = true
			return
		}
		m.at = before + start
		if run, ok := m.special(text[at:], r, before+at); ok {
			m.plain(text[start:at])
			m.add(run)
			start = at + run.size
		}
	}
	m.at = before + start
	m.plain(text[start:])
}

// special returns the run for the character r at the beginning of text. It returns false for a plain character.
func (m *runSplitter) special(text string, r rune, at int) (textRun, bool) {
	size := utf8.RuneLen(r)
	if r == utf8.RuneError {
		_, size = utf8.DecodeRuneInString(text)
	}
	switch {
	//mutate:swap "|| m.blank[at] " "" TestSpacesInNamesShown the inbox hides a space at the end of a name
	case isHidden(r) || m.blank[at] || m.odd != nil && unicode.IsControl(r): // line breaks do not belong in a name
		return textRun{kind: hiddenRun, text: safetext.CodePoint(r), note: hiddenName(r), at: at, size: size}, true
	case m.odd != nil && m.odd(r), m.mixed[at]:
		return textRun{kind: oddRun, text: string(r), note: safetext.CodePoint(r) + " " + safetext.Script(r), at: at, size: size}, true
	case r == ' ' || r == '\t':
		return m.spaces(text, at)
	default:
		return textRun{}, false
	}
}

// wide is the number of columns from which spaces are shown with their number: so many look
// like an empty line, and hide what follows them.
const wide = 40

// tabWidth is the width of a tab in the style sheet.
const tabWidth = 4

// spaces returns the run for the spaces and tabs at the beginning of text. It returns false if they are not wide.
func (m *runSplitter) spaces(text string, at int) (textRun, bool) {
	text = text[:len(text)-len(strings.TrimLeft(text, " \t"))]
	tabs := strings.Count(text, "\t")
	//mutate:true TestWideSpacesMarked a command behind many spaces looks like an empty line
	if len(text)+(tabWidth-1)*tabs < wide {
		return textRun{}, false
	}
	r := textRun{kind: spaceRun, text: text, note: counted(len(text)-tabs, "space"), at: at, size: len(text)}
	switch {
	case tabs == len(text):
		r.note = counted(tabs, "tab")
	case tabs > 0:
		r.note += " and " + counted(tabs, "tab")
	}
	if m.most > 0 {
		r.size = min(r.size, m.most-m.spent)
		r.text = text[:r.size]
	}
	return r, true
}

func (m *runSplitter) plain(text string) {
	if text != "" {
		m.add(textRun{text: text, at: m.at, size: len(text)})
	}
}

// isHidden reports whether r is shown as its code point. Line breaks and tabs are not.
func isHidden(r rune) bool { return r != '\n' && r != '\t' && safetext.Hidden(r) }

// effects describe invisible characters. The first entry that matches applies.
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

// hiddenName describes an invisible character.
func hiddenName(r rune) string {
	for _, e := range effects {
		if e.fits(r) {
			return e.name
		}
	}
	return "cannot be seen"
}

// A name is a name in a form in which no two names look alike.
type name struct {
	runs    []textRun
	warning string // about confusable characters and spaces; may be empty
	cut     int    // bytes of the name that are not shown
}

// maxName is the approximate limit for a name on a page, in bytes.
const maxName = 400

func newName(text string) name { return nameUpTo(text, maxName) }

// maxTitle is the approximate limit for the name of a call on the page where approvers
// decide, in bytes. Every name that the gate accepts for approval fits, even if all its
// characters are invisible.
const maxTitle = 256 << 10

func nameUpTo(text string, most int) name {
	m := runSplitter{odd: safetext.IsNonASCII, blank: safetext.StraySpaces(text), most: most}
	runs, whole := m.runs(text)
	n := name{runs: runs, warning: safetext.NameWarning(text)}
	if !whole {
		//mutate:swap "len(text) - shownBytes(runs)" "0" TestLongNamesShownWhole a name is cut without a warning
		n.cut = len(text) - shownBytes(runs)
		n.runs = append(n.runs, textRun{text: "…"})
	}
	return n
}

// indexASCIIFold is strings.Index, but ignores the case of ASCII letters. An empty part is never
// found: callers go on after the match, and would not end.
func indexASCIIFold(text, part string) int {
	if part == "" {
		return -1
	}
	first := lower(part[0])
	for i := 0; i+len(part) <= len(text); i++ {
		if lower(text[i]) == first && equalASCIIFold(text[i:i+len(part)], part) {
			return i
		}
	}
	return -1
}

// equalASCIIFold compares texts of the same length.
func equalASCIIFold(a, b string) bool {
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
