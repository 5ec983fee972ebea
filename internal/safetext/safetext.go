// Package safetext makes foreign text safe to show. Agents, upstreams and approvers can
// write characters that are invisible, reverse the direction of a line, control a terminal,
// or look like others. Logs, the command line, the inbox and messages to models use this
// package for all foreign text:
//
//	safetext.Escape("\u202egpj.exe") // `\u202egpj.exe`
//	safetext.Name("delete ", 80)     // `delete\u0020`
//	safetext.Confusables("pаypal")   // the Cyrillic а, at offset 1
package safetext

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hidden reports whether r is invisible, or changes the appearance of other characters. A
// space is not hidden.
func Hidden(r rune) bool {
	if ' ' <= r && r < 0x7f {
		return false
	}
	//mutate:swap " || strings.ContainsRune(blank, r)" "" TestHidden a character that is drawn as nothing is shown as it is
	return !unicode.IsPrint(r) || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) || strings.ContainsRune(blank, r)
}

// blank are characters that Unicode counts as visible although fonts show nothing for them: the
// Braille pattern without dots, the joiners of Tifinagh and Brahmi, a narrow space, the object
// replacement character, blanks and fillers of Egyptian and Khitan, a form of shorthand, the
// null notehead, and the modifiers of SignWriting.
const blank = "\u2800\u2d7f\u303f\ufffc\U0001107f\U00013441\U00013442\U00016fe4\U0001bc9d\U0001d159" +
	"\U0001da9b\U0001da9c\U0001da9d\U0001da9e\U0001da9f\U0001daa1\U0001daa2\U0001daa3\U0001daa4\U0001daa5" +
	"\U0001daa6\U0001daa7\U0001daa8\U0001daa9\U0001daaa\U0001daab\U0001daac\U0001daad\U0001daae\U0001daaf"

// Escape replaces every hidden character except line breaks by an escape. The result for JSON
// has the same meaning, since JSON has hidden characters in strings only.
func Escape(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	at := strings.IndexFunc(text, escaped)
	if at < 0 {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:at])
	for _, r := range text[at:] {
		if escaped(r) {
			writeEscape(&b, r)
		} else {
			b.WriteRune(r)
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

// Name returns a name on one line of at most limit characters. It escapes every hidden
// character and every space of [StraySpaces], and every backslash that would begin a false
// escape. So different names look different, unless they are truncated. To shorten a result
// of Name, use [Truncate]: Name would escape it again.
func Name(name string, limit int) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	blanks := StraySpaces(name)
	var b strings.Builder
	for at, r := range name {
		//mutate:swap "blanks[at]" "blanks[at] && false" internal/approval/api.TestNamesDifferInSpaces a space at the end of a name is not shown
		if Hidden(r) || blanks[at] || r == '\\' && looksEscaped(name[at:]) {
			writeEscape(&b, r)
		} else {
			b.WriteRune(r)
		}
	}
	return shorten(b.String(), limit)
}

// Truncate shortens a result of [Name] to at most limit characters on one line. It escapes
// hidden characters that are left.
func Truncate(name string, limit int) string {
	return shorten(strings.ReplaceAll(Escape(name), "\n", `\u000a`), limit)
}

// looksEscaped reports whether text begins like an escape.
func looksEscaped(text string) bool {
	const size = len(`\u0000`)
	return len(text) >= size && text[1] == 'u' && strings.Trim(text[2:size], "0123456789abcdefABCDEF") == ""
}

// StraySpaces returns the byte offsets of the spaces in a name that are easy to overlook: at
// its ends, and after another space.
func StraySpaces(name string) map[int]bool {
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

// Text returns at most limit characters of foreign text. It removes hidden characters except
// line breaks and tabs.
func Text(foreign string, limit int) string {
	return shorten(strings.TrimSpace(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && Hidden(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(foreign, "\uFFFD"))), limit)
}

// Line returns foreign text as one line of at most limit characters. It removes hidden
// characters.
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

// NewWriter returns a writer that escapes text and writes it to w. A call of Write must not
// end inside a character; handlers of package slog write whole records.
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
