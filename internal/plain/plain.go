// Package plain makes text that somebody else wrote harmless to look at. Agents,
// upstreams and approvers can write characters that are invisible, that reverse
// the direction of a line, that a terminal obeys, or that look like others. Every
// place that shows foreign text uses this package: logs, the command line, the
// inbox, and messages to models.
package plain

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden reports whether r is something that a reader cannot see, or that
// changes how other characters are seen. A space is not hidden.
func Hidden(r rune) bool {
	if ' ' <= r && r < 0x7f {
		return false
	}
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point, blank)
}

// blank are characters that Unicode counts as visible, and that are drawn as nothing.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // a Braille pattern without dots
		{Lo: 0x2d7f, Hi: 0x2d7f, Stride: 1}, // a joiner of Tifinagh consonants
		{Lo: 0x303f, Hi: 0x303f, Stride: 1}, // a space of half the width
		{Lo: 0xfffc, Hi: 0xfffc, Stride: 1}, // stands for an object that is not there
	},
	R32: []unicode.Range32{
		{Lo: 0x1107f, Hi: 0x1107f, Stride: 1}, // a joiner of Brahmi numbers
		{Lo: 0x13441, Hi: 0x13442, Stride: 1}, // blanks of Egyptian hieroglyphs
		{Lo: 0x16fe4, Hi: 0x16fe4, Stride: 1}, // a filler of Khitan script
		{Lo: 0x1bc9d, Hi: 0x1bc9d, Stride: 1}, // selects a form of shorthand
		{Lo: 0x1d159, Hi: 0x1d159, Stride: 1}, // a head of a note that is not drawn
		{Lo: 0x1da9b, Hi: 0x1da9f, Stride: 1}, // change signs of SignWriting
		{Lo: 0x1daa1, Hi: 0x1daaf, Stride: 1},
	},
}

// Escape returns text with an escape in the place of every hidden character
// except line breaks. JSON means the same afterwards: there such characters can
// only stand in strings.
func Escape(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	at := strings.IndexFunc(text, escaped)
	if at < 0 {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:at])
	for _, r := range text[at:] {
		switch {
		case !escaped(r):
			b.WriteRune(r)
		default:
			writeEscape(&b, r)
		}
	}
	return b.String()
}

func writeEscape(b *strings.Builder, r rune) {
	if r > 0xFFFF {
		r -= 0x10000
		fmt.Fprintf(b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		return
	}
	fmt.Fprintf(b, `\u%04x`, r)
}

func escaped(r rune) bool { return r != '\n' && Hidden(r) }

// Name returns a name on one line of at most limit characters, with an escape in
// the place of every hidden character and of every space that [Blanks] finds. A
// backslash that would make other characters look like an escape is one too. So two
// names that differ look different, unless they are cut. A name is escaped once: [Shown]
// makes what Name returned shorter.
func Name(name string, limit int) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	blanks := Blanks(name)
	var b strings.Builder
	for at, r := range name {
		if Hidden(r) || blanks[at] || r == '\\' && looksEscaped(name[at:]) {
			writeEscape(&b, r)
		} else {
			b.WriteRune(r)
		}
	}
	return shorten(b.String(), limit)
}

// Shown returns a name that [Name] has returned as at most limit characters on one
// line. If anything in it is still hidden, there is an escape in its place.
func Shown(name string, limit int) string {
	return shorten(strings.ReplaceAll(Escape(name), "\n", `\u000a`), limit)
}

// looksEscaped reports whether text begins with what looks like an escape.
func looksEscaped(text string) bool {
	const size = len(`\u0000`)
	return len(text) >= size && text[1] == 'u' && strings.Trim(text[2:size], "0123456789abcdefABCDEF") == ""
}

// Blanks returns where in a name there are spaces that are easy to overlook: at its
// ends, and after another space.
func Blanks(name string) map[int]bool {
	var at map[int]bool
	for i := range len(name) {
		if name[i] == ' ' && (i == 0 || i == len(name)-1 || name[i-1] == ' ') {
			if at == nil {
				at = make(map[int]bool)
			}
			at[i] = true
		}
	}
	return at
}

// Text returns foreign text as at most limit visible characters, line breaks and
// tabs. Hidden characters are left out.
func Text(foreign string, limit int) string {
	return shorten(strings.TrimSpace(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && Hidden(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(foreign, "\uFFFD"))), limit)
}

// Line returns foreign text as one line of at most limit visible characters.
// Hidden characters are left out.
func Line(foreign string, limit int) string {
	visible := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case Hidden(r):
			return -1
		default:
			return r
		}
	}, foreign)
	return shorten(strings.Join(strings.Fields(visible), " "), limit)
}

func shorten(text string, limit int) string {
	if len(text) <= limit || utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit-1]) + "…"
}

// NewWriter returns a writer that escapes what is written before it goes to w.
// Each call of Write must have whole characters, as each record of a log has.
func NewWriter(w io.Writer) io.Writer { return writer{w} }

type writer struct{ w io.Writer }

// Write implements [io.Writer].
func (w writer) Write(p []byte) (int, error) {
	if isPlainASCII(p) {
		return w.w.Write(p)
	}
	if _, err := io.WriteString(w.w, Escape(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func isPlainASCII(p []byte) bool {
	for _, c := range p {
		if c != '\n' && (c < ' ' || c >= 0x7f) {
			return false
		}
	}
	return true
}
