package safetext_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// blanks are characters that Unicode counts as letters, marks or symbols although fonts show
// nothing for them.
var blanks = []rune{
	0x2800, 0x2d7f, 0x303f, 0xfffc, 0x1107f, 0x13441, 0x13442, 0x16fe4, 0x1bc9d, 0x1d159,
	0x1da9b, 0x1da9c, 0x1da9d, 0x1da9e, 0x1da9f,
	0x1daa1, 0x1daa2, 0x1daa3, 0x1daa4, 0x1daa5, 0x1daa6, 0x1daa7, 0x1daa8, 0x1daa9, 0x1daaa, 0x1daab, 0x1daac, 0x1daad, 0x1daae, 0x1daaf,
}

// assigned reports whether Unicode assigns a character to the code point.
func assigned(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.C)
}

// invisible reports whether a character is invisible according to the tables of Unicode.
func invisible(r rune) bool {
	return r != ' ' && (!assigned(r) || unicode.In(r, unicode.C, unicode.Z, // controls, formats, private use; spaces and separators
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector))
}

// step returns the distance to the next character to test. Most planes are empty, and all
// characters of the last two are of the same kind.
func step(r rune) rune {
	if r < 0x40000 || 0xE0000 <= r && r < 0xE1000 {
		return 1
	}
	return 0x100
}

// TestHidden checks that exactly the invisible characters are hidden, and that Escape replaces
// them.
func TestHidden(t *testing.T) {
	known := make(map[rune]bool)
	for _, r := range blanks {
		known[r] = true
	}
	for r := rune(0); r <= unicode.MaxRune; r += step(r) {
		want := invisible(r) || known[r]
		if safetext.Hidden(r) != want {
			t.Errorf("Hidden(%U) = %t", r, !want)
		}
		if want && assigned(r) && !unicode.In(r, unicode.Cs, unicode.Co) && r != '\n' {
			if text := safetext.Escape(string(r)); strings.ContainsRune(text, r) || !strings.HasPrefix(text, `\u`) {
				t.Errorf("%U is shown as %q", r, text)
			}
		}
	}
}

// TestVisibleTextUnchanged checks that Escape does not change visible text in any script.
func TestVisibleTextUnchanged(t *testing.T) {
	for _, text := range []string{
		"grüße, naïve, Đặng, żółć, ığdır", "при́вет", "γειά σου", "こんにちは、世界", "你好。", "안녕", "שָׁלוֹם", "مُحَمَّد", "नमस्ते", "สวัสดีครับ", "⠓⠑⠇⠇⠕", "🙂🇩🇪", "𝄞",
	} {
		if got := safetext.Escape(text); got != text {
			t.Errorf("Escape(%s) = %s", fmt.Sprintf("%+q", text), got)
		}
	}
}
