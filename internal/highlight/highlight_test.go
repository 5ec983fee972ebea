package highlight_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/highlight"
)

func TestGuess(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       highlight.Language
	}{
		{"patch", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", highlight.Diff},
		{"input", "*** Begin Patch\n*** Update File: x\n", highlight.Diff},
		{"query", "DROP TABLE users", highlight.SQL},
		{"q", "-- tidy up\nselect *\nfrom users", highlight.SQL},
		{"note", "Select one of these options", highlight.Text},
		{"note", "Update me when it is done", highlight.Text},
		{"command", "rm -rf /", highlight.Shell},
		{"text", "#!/bin/sh\nls", highlight.Shell},
		{"body", `{"a": [1, 2]}`, highlight.JSON},
		{"body", `{"a": [1, 2}`, highlight.Text},
		{"file", "package main\n\nfunc main() {}\n", highlight.Code},
		{"source", "x = 1", highlight.Code},
		{"path", "/etc/passwd", highlight.Text},
		{"empty", " \n", highlight.Text},
	} {
		if got := highlight.Guess(tt.name, tt.text); got != tt.want {
			t.Errorf("Guess(%q, %q) = %q, want %q", tt.name, tt.text, got, tt.want)
		}
	}
}

func TestTokens(t *testing.T) {
	for _, tt := range []struct {
		l    highlight.Language
		text string
		want []string
	}{
		{highlight.Diff, "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same\n", []string{"header --- a\n", "header +++ b\n", "header @@ -1 +1 @@\n", "removed -old\n", "added +new\n"}},
		{highlight.SQL, "DELETE FROM t WHERE x='a--b' -- all", []string{"keyword DELETE", "keyword FROM", "keyword WHERE", "string 'a--b'", "comment -- all"}},
		{highlight.Shell, `echo 'a\' "$HOME/x" $x #done`, []string{`string 'a\'`, `string "$HOME/x"`, "name $x", "comment #done"}},
		{highlight.Shell, "curl http://x/#top don't", nil},
		{highlight.JSON, `{"a": "b", "n": -1.5, "t": true}`, []string{`name "a"`, `string "b"`, `name "n"`, "number 1.5", `name "t"`, "keyword true"}},
		{highlight.Code, "if x { return 'a' } // no\n/* open", []string{"keyword if", "keyword return", "string 'a'", "comment // no", "comment /* open"}},
		{highlight.Text, "if x", nil},
	} {
		var got []string
		for _, token := range highlight.Tokens(tt.l, tt.text) {
			got = append(got, string(token.Class)+" "+tt.text[token.Start:token.End])
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s %q (-want +got):\n%s", tt.l, tt.text, diff)
		}
	}
}

// FuzzTokens checks that tokens are in order, do not overlap and are inside the text.
func FuzzTokens(f *testing.F) {
	f.Add("--- a\n+++ b\n", `echo "a`)
	f.Add("select '", "/* \x00 é \u202e")
	f.Fuzz(func(t *testing.T, a, b string) {
		text := a + strings.Repeat(b, 2)
		for _, l := range []highlight.Language{highlight.Guess(a, b), highlight.Diff, highlight.Shell, highlight.SQL, highlight.JSON, highlight.Code} {
			at := 0
			for _, token := range highlight.Tokens(l, text) {
				if token.Start < at || token.End <= token.Start || token.End > len(text) || token.Class == "" {
					t.Fatalf("%s %q: %+v after %d", l, text, token, at)
				}
				at = token.End
			}
		}
	})
}
