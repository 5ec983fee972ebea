package plain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Odd reports whether r, in a name, may be taken for another character.
func Odd(r rune) bool { return r >= utf8.RuneSelf }

// CodePoint returns the number of a character as Unicode writes it.
func CodePoint(r rune) string { return fmt.Sprintf("U+%04X", r) }

// maxOdd is how many characters a warning names.
const maxOdd = 12

// Warning says what in a name, as it came or as [Name] returns it, is not what a
// reader might take it for: characters that are not ASCII, and spaces that are easy to
// overlook. It is empty for all other names. Hidden characters are not named: they are
// escaped wherever the name is shown.
func Warning(name string) string {
	var parts []string
	if odd := oddOf(name); len(odd) > 0 {
		parts = append(parts, "Not plain Latin letters: "+spelled(odd))
	}
	if len(Blanks(name)) > 0 || strings.Contains(name, `\u0020`) {
		parts = append(parts, "Spaces at an end, or several in a row")
	}
	return strings.Join(parts, ". ")
}

// oddOf returns the characters of a name that may be taken for others.
func oddOf(name string) (odd []rune) {
	for _, r := range name {
		if Odd(r) && !Hidden(r) {
			odd = append(odd, r)
		}
	}
	return odd
}

// scripts are those that are looked for first.
var scripts = []struct {
	name  string
	table *unicode.RangeTable
}{
	{"Latin", unicode.Latin},
	{"Cyrillic", unicode.Cyrillic},
	{"Greek", unicode.Greek},
	{"Armenian", unicode.Armenian},
	{"Cherokee", unicode.Cherokee},
	{"Georgian", unicode.Georgian},
	{"Hebrew", unicode.Hebrew},
	{"Arabic", unicode.Arabic},
	{"Devanagari", unicode.Devanagari},
	{"Han", unicode.Han},
	{"Hiragana", unicode.Hiragana},
	{"Katakana", unicode.Katakana},
	{"Hangul", unicode.Hangul},
}

// Script returns the name of the script that r belongs to, or "other" if that is none.
func Script(r rune) string {
	for _, s := range scripts {
		if unicode.Is(s.table, r) {
			return s.name
		}
	}
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) && name != "Common" && name != "Inherited" {
			return strings.ReplaceAll(name, "_", " ")
		}
	}
	return "other"
}
