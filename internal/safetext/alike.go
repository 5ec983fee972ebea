package safetext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsNonASCII reports whether r is not an ASCII character. In a name, such a character may
// look like another one.
func IsNonASCII(r rune) bool { return r >= utf8.RuneSelf }

// CodePoint returns the code point of a character in the notation of Unicode: U+0041.
func CodePoint(r rune) string { return fmt.Sprintf("U+%04X", r) }

// maxOdd is the maximum number of characters in a warning.
const maxOdd = 12

// NameWarning returns a warning about characters of a name that are not ASCII, and about
// spaces that are easy to overlook, or "". The name may be a result of [Name]. The warning
// does not mention hidden characters, since names are shown with these escaped.
func NameWarning(name string) string {
	var parts []string
	if odd := oddOf(name); len(odd) > 0 {
		parts = append(parts, "Not plain Latin letters: "+spelled(odd))
	}
	if len(StraySpaces(name)) > 0 || strings.Contains(name, `\u0020`) {
		parts = append(parts, "Spaces at an end, or several in a row")
	}
	return strings.Join(parts, ". ")
}

// oddOf returns the visible characters of a name that are not ASCII.
func oddOf(name string) (odd []rune) {
	for _, r := range name {
		//mutate:swap "!Hidden(r)" "r == 0" cmd/thoughtgate.TestLookalikeNamesAreMarked a name that looks like another is not marked
		if IsNonASCII(r) && !Hidden(r) {
			odd = append(odd, r)
		}
	}
	return odd
}

// Script returns the name of the script of r, or "other".
func Script(r rune) string {
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) && name != "Common" && name != "Inherited" {
			return strings.ReplaceAll(name, "_", " ")
		}
	}
	return "other"
}
