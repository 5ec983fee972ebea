// Package doctest compares pages of the documentation with the code. It is not part of
// testenv, whose dependencies the users of package mcptask should not need.
package doctest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var literal = regexp.MustCompile(`"[^"]*"`)

// Generated checks the part of a page between two comments against the code. If WRITE_DOCS is
// set, as in make generate, it writes that part.
func Generated(t *testing.T, page, part, want string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- generated: "+part+" -->\n", "<!-- end -->\n"
	before, rest, found := strings.Cut(string(text), begin)
	got, after, ended := strings.Cut(rest, end)
	switch {
	case !found || !ended:
		t.Fatalf("%s has no part %q", page, part)
	case got == want:
	case os.Getenv("WRITE_DOCS") != "":
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s: the part %q differs from the code; run make generate. It lacks\n%s", page, part, missing(got, want))
	}
}

// missing returns the lines of want that are not in got.
func missing(got, want string) (lines string) {
	for line := range strings.Lines(want) {
		if !strings.Contains(got, line) {
			lines += line
		}
	}
	return lines
}

// Notes returns the comments at the ends of lines of a Go file that have string literals,
// by the first and the last literal of the line.
func Notes(t *testing.T, file string) map[[2]string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	notes := map[[2]string]string{}
	for line := range strings.Lines(string(text)) {
		code, note, found := strings.Cut(line, " // ")
		if literals := literal.FindAllString(code, -1); found && len(literals) > 0 {
			notes[[2]string{strings.Trim(literals[0], `"`), strings.Trim(literals[len(literals)-1], `"`)}] = strings.TrimSpace(note)
		}
	}
	return notes
}

// Codes returns the codes of an error for legacy and modern clients.
func Codes(legacy, modern int) string {
	if legacy == modern {
		return strconv.Itoa(legacy)
	}
	return fmt.Sprintf("%d/%d", legacy, modern)
}

// Sentence returns a text as one sentence, followed by a note.
func Sentence(text, note string) string {
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return strings.TrimSpace(text + " " + note)
}
