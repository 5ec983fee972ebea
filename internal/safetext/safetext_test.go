package safetext_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// TestEscape checks that Escape and its writer replace control characters, invisible
// characters, and characters that change the direction of text.
func TestEscape(t *testing.T) {
	tests := map[string]string{
		"plain, ünïcödé, 夜, 🙂":  "plain, ünïcödé, 夜, 🙂",
		"two\nlines":            "two\nlines",
		"\x1b[2J\x07\b\r\t\x7f": `\u001b[2J\u0007\u0008\u000d\u0009\u007f`,
		"\u009b2J":              `\u009b2J`,
		"\u202egpj\u2066x":      `\u202egpj\u2066x`,
		"a\u200bb\u00adc\ufeff": `a\u200bb\u00adc\ufeff`,
		"\u3164\u034f\ufe0f":    `\u3164\u034f\ufe0f`,
		"\U000e0041\U000e0101":  `\udb40\udc41\udb40\udd01`,
		"\u00a0\u2028":          `\u00a0\u2028`,
		"\xff":                  "\ufffd",
	}
	for text, want := range tests {
		if got := safetext.Escape(text); got != want {
			t.Errorf("Escape(%q) = %s; want %s", text, got, want)
		}
		var written bytes.Buffer
		if n, err := safetext.NewWriter(&written).Write([]byte(text)); n != len(text) || err != nil || written.String() != want {
			t.Errorf("a writer given %q writes %s and returns %d, %v; want %s", text, &written, n, err, want)
		}
	}
}

func TestName(t *testing.T) {
	tests := map[string]string{
		"delete_file":         "delete_file",
		"delete file":         "delete file",
		"delete_file ":        `delete_file\u0020`,
		" delete_file":        `\u0020delete_file`,
		"delete  file":        `delete \u0020file`,
		"   ":                 `\u0020\u0020\u0020`,
		"delete\t":            `delete\u0009`,
		`delete\u0020`:        `delete\u005cu0020`,
		`delete\u005cu0020`:   `delete\u005cu005cu0020`,
		`C:\users\u00`:        `C:\users\u00`,
		"file:///a\U000e0041": `file:///a\udb40\udc41`,
	}
	for name, want := range tests {
		if got := safetext.Name(name, 99); got != want {
			t.Errorf("Name(%q) = %s; want %s", name, got, want)
		}
	}
	if got := safetext.Name("delete\u202e\nall", 40); got != `delete\u202e\u000aall` {
		t.Errorf("the name is %s; want hidden characters escaped", got)
	}
	if got := safetext.Name(strings.Repeat("é", 9), 4); got != "ééé…" {
		t.Errorf("the long name is %s; want 4 characters", got)
	}
}

// FuzzName checks that different names look different.
func FuzzName(f *testing.F) {
	f.Add("delete_file", "delete_file ")
	f.Add("a\u202e", `a\u202e`)
	f.Add("a  b", "a b")
	f.Fuzz(func(t *testing.T, one, other string) {
		one, other = strings.ToValidUTF8(one, ""), strings.ToValidUTF8(other, "")
		a, b := safetext.Name(one, 1<<20), safetext.Name(other, 1<<20)
		if one != other && a == b {
			t.Fatalf("%q and %q look the same: %s", one, other, a)
		}
		if strings.TrimSpace(a) != a || strings.Contains(a, "  ") || strings.ContainsFunc(a, safetext.Hidden) {
			t.Fatalf("%q is shown as %q", one, a)
		}
	})
}

func TestText(t *testing.T) {
	if got := safetext.Text(" a\u200b\n\tb\x1b \xff", 40); got != "a\n\tb \ufffd" {
		t.Errorf("the text is %q; want it without hidden characters", got)
	}
	if got := safetext.Line(" a\u200b\n\tb\x1b  c ", 40); got != "a b c" {
		t.Errorf("the line is %q; want visible characters only", got)
	}
	if got := safetext.Line("abcdef", 4); got != "abc…" {
		t.Errorf("the long line is %q; want 4 characters", got)
	}
}

func TestNameWarning(t *testing.T) {
	tests := map[string]string{
		"delete_file":            "",
		"tab\tand\u200bnothing":  "",
		"p\u0430yp\u0430l\u03bf": "Not plain Latin letters: \u0430 is U+0430 Cyrillic, \u03bf is U+03BF Greek",
		"caf\u00e9":              "Not plain Latin letters: é is U+00E9 Latin",
		"абвгдежзийклмн":         "Not plain Latin letters: а is U+0430 Cyrillic, б is U+0431 Cyrillic, в is U+0432 Cyrillic, г is U+0433 Cyrillic, д is U+0434 Cyrillic, е is U+0435 Cyrillic, ж is U+0436 Cyrillic, з is U+0437 Cyrillic, и is U+0438 Cyrillic, й is U+0439 Cyrillic, к is U+043A Cyrillic, л is U+043B Cyrillic, and 2 more",
		"delete file":            "",
		"delete_file ":           "Spaces at an end, or several in a row",
		`delete_file\u0020`:      "Spaces at an end, or several in a row", // as Name returns it
		"caf\u00e9  au lait":     "Not plain Latin letters: é is U+00E9 Latin. Spaces at an end, or several in a row",
		"x\u2215y":               "Not plain Latin letters: \u2215 is U+2215 other",
	}
	for name, want := range tests {
		if got := safetext.NameWarning(name); got != want {
			t.Errorf("NameWarning(%q) = %q; want %q", name, got, want)
		}
	}
}
