package plain_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

// Escape replaces characters that a terminal obeys, that cannot be seen, and that
// change the direction of text.
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
		if got := plain.Escape(text); got != want {
			t.Errorf("Escape(%q) = %s; want %s", text, got, want)
		}
		var written bytes.Buffer
		if n, err := plain.NewWriter(&written).Write([]byte(text)); n != len(text) || err != nil || written.String() != want {
			t.Errorf("a writer makes %s of %q, and says %d, %v; want %s", &written, text, n, err, want)
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
		if got := plain.Name(name, 99); got != want {
			t.Errorf("Name(%q) = %s; want %s", name, got, want)
		}
	}
	if got := plain.Name("delete\u202e\nall", 40); got != `delete\u202e\u000aall` {
		t.Errorf("a name is %s; want what is hidden in it escaped", got)
	}
	if got := plain.Name(strings.Repeat("é", 9), 4); got != "ééé…" {
		t.Errorf("a long name is %s; want 4 characters", got)
	}
}

// Two names that differ look different.
func FuzzName(f *testing.F) {
	f.Add("delete_file", "delete_file ")
	f.Add("a\u202e", `a\u202e`)
	f.Add("a  b", "a b")
	f.Fuzz(func(t *testing.T, one, other string) {
		one, other = strings.ToValidUTF8(one, ""), strings.ToValidUTF8(other, "")
		a, b := plain.Name(one, 1<<20), plain.Name(other, 1<<20)
		if one != other && a == b {
			t.Fatalf("%q and %q look the same: %s", one, other, a)
		}
		if strings.TrimSpace(a) != a || strings.Contains(a, "  ") || strings.ContainsFunc(a, plain.Hidden) {
			t.Fatalf("%q is shown as %q", one, a)
		}
	})
}

func TestText(t *testing.T) {
	if got := plain.Text(" a\u200b\n\tb\x1b \xff", 40); got != "a\n\tb \ufffd" {
		t.Errorf("text is %q; want what is hidden in it left out", got)
	}
	if got := plain.Line(" a\u200b\n\tb\x1b  c ", 40); got != "a b c" {
		t.Errorf("a line is %q; want one of visible characters", got)
	}
	if got := plain.Line("abcdef", 4); got != "abc…" {
		t.Errorf("a long line is %q; want 4 characters", got)
	}
}

func TestWarning(t *testing.T) {
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
		if got := plain.Warning(name); got != want {
			t.Errorf("Warning(%q) = %q; want %q", name, got, want)
		}
	}
}
