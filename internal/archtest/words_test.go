package archtest

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// synonyms are words that shipped code must not have in identifiers and comments, and the words
// to use instead: terms of the glossary, or the words that Go developers expect.
var synonyms = map[string]string{
	"bell":      "signal",
	"casefile":  "review",
	"census":    "count",
	"clerk":     "updater",
	"guest":     "client",
	"lane":      "queue",
	"precedent": "toolhistory",
	"room":      "space, limit or group",
	"seat":      "permit",
	"shelf":     "cache",
	"spool":     "partial answer",
	"tally":     "count",
}

var (
	glossaryRow   = regexp.MustCompile(`(?m)^\| ([^|]+) \| [^|]+ \|$`)
	wordInComment = regexp.MustCompile(`[A-Za-z]+`)
	wordInName    = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
)

// TestGlossary checks that the glossary stays short enough to be learned.
func TestGlossary(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Words\n")
	section, _, _ = strings.Cut(section, "\n## ")
	terms := glossaryRow.FindAllStringSubmatch(section, -1)
	if n := len(terms) - 2; n < 1 || n > 25 { // without the head of the table
		t.Errorf("the glossary has %d terms, want 1 to 25", n)
	}
}

// TestSynonyms checks that shipped code does not use synonyms.
func TestSynonyms(t *testing.T) {
	for _, name := range shippedFiles(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if head, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly|parser.ParseComments); err != nil || ast.IsGenerated(head) {
			continue
		}
		fset := token.NewFileSet()
		file := fset.AddFile(name, -1, len(text))
		var s scanner.Scanner
		s.Init(file, text, nil, scanner.ScanComments)
		for pos, tok, literal := s.Scan(); tok != token.EOF; pos, tok, literal = s.Scan() {
			pattern := wordInName
			switch tok {
			case token.COMMENT:
				pattern = wordInComment
			case token.IDENT:
			default:
				continue
			}
			for _, word := range pattern.FindAllString(literal, -1) {
				if instead, ok := synonymOf(word); ok {
					t.Errorf("%s: %q: use %q or another word of the glossary in ARCHITECTURE.md", fset.Position(pos), word, instead)
				}
			}
		}
	}
}

// synonymOf returns the word to use instead of a synonym, which may be in the plural.
func synonymOf(word string) (instead string, ok bool) {
	word = strings.ToLower(word)
	if instead, ok = synonyms[word]; !ok {
		instead, ok = synonyms[strings.TrimSuffix(word, "s")]
	}
	return instead, ok
}

// shippedFiles returns the Go files of this module that cmd/thoughtgate is built of.
func shippedFiles(t *testing.T) []string {
	t.Helper()
	const format = `{{with .Module}}{{if .Main}}{{range $.GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "./cmd/thoughtgate")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}
