// Package highlight finds the tokens of a foreign text for syntax colours: in patches, shell
// commands, SQL, JSON and program code.
//
//	text := `rm -rf "$HOME"`
//	tokens := highlight.Tokens(highlight.Guess("command", text), text)
//
// The package never changes the text, so a wrong guess costs only colour. It does not decide
// how tokens look.
package highlight

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A Language is the language of a text.
type Language string

// The languages.
const (
	Text  Language = ""
	Diff  Language = "diff"
	Shell Language = "shell"
	SQL   Language = "SQL"
	JSON  Language = "JSON"
	Code  Language = "code"
)

// A Class is the kind of a token.
type Class string

// The classes.
const (
	Keyword Class = "keyword"
	String  Class = "string"
	Comment Class = "comment"
	Number  Class = "number"
	Name    Class = "name"    // a member of JSON, or a shell variable
	Added   Class = "added"   // a line of a diff
	Removed Class = "removed" // a line of a diff
	Header  Class = "header"  // a line of a diff that names files or positions
)

// A Token is a part of a text, from one byte offset to another.
type Token struct {
	Start, End int
	Class      Class
}

// Guess returns the probable language of text, the value of an argument called name.
func Guess(name, text string) Language {
	name = strings.ToLower(name)
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "":
		return Text
	case isDiff(trimmed):
		return Diff
	case isJSON(trimmed):
		return JSON
	case isSQL(trimmed):
		return SQL
	case isShell(name, trimmed):
		return Shell
	case hasAny(name, "code", "source", "program", "snippet") || isCode(trimmed):
		return Code
	default:
		return Text
	}
}

func hasAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
}

// isDiff reports whether text has the headers of a patch.
func isDiff(text string) bool {
	lines := "\n" + text
	return hasAny(lines, "\ndiff --git ", "\n*** Begin Patch", "\n@@ -") ||
		strings.Contains(lines, "\n--- ") && strings.Contains(lines, "\n+++ ")
}

func isJSON(text string) bool {
	return (text[0] == '{' || text[0] == '[') && jsontext.Value(text).IsValid()
}

// isSQL reports whether text begins with an SQL statement. Since words such as "select" also
// begin English sentences, another word of the statement must follow.
func isSQL(text string) bool {
	for strings.HasPrefix(text, "--") { // a comment in the first lines
		_, rest, more := strings.Cut(text, "\n")
		if !more {
			return false
		}
		text = strings.TrimSpace(rest)
	}
	words := strings.Fields(strings.ToUpper(text[:min(len(text), 400)]))
	if len(words) < 2 {
		return false
	}
	second, known := sqlStarts[words[0]]
	if !known {
		return false
	}
	rest := " " + strings.Join(words[1:], " ") + " "
	return second == "" || hasAny(rest, strings.Split(second, "|")...)
}

// sqlStarts maps the first words of statements to the words of which one must follow.
var sqlStarts = map[string]string{
	"SELECT": " FROM | 1", "INSERT": " INTO ", "UPDATE": " SET ", "DELETE": " FROM ", "WITH": " AS ",
	"CREATE": " TABLE | INDEX | VIEW | DATABASE | SCHEMA | FUNCTION | USER | ROLE | OR REPLACE ",
	"DROP":   " TABLE | INDEX | VIEW | DATABASE | SCHEMA | FUNCTION | USER | ROLE ",
	"ALTER":  " TABLE | DATABASE | SCHEMA | USER | ROLE ", "TRUNCATE": "", "GRANT": " TO ", "REVOKE": " FROM ",
	"BEGIN;": "", "MERGE": " INTO ", "EXPLAIN": " SELECT | ANALYZE ",
}

func isShell(name, text string) bool {
	if strings.HasPrefix(text, "#!") {
		first, _, _ := strings.Cut(text, "\n")
		return strings.HasSuffix(strings.TrimSpace(first), "sh")
	}
	return hasAny(name, "command", "cmd", "shell", "bash", "script")
}

// isCode reports whether a line begins like a line of a program.
func isCode(text string) bool {
	for line := range strings.Lines(text) {
		if hasPrefix(strings.TrimSpace(line), "func ", "def ", "class ", "import (", "package ", "const ", "function ", "#include", "fn ", "pub fn ",
			"public class ", "export ", "#!/") {
			return true
		}
	}
	return false
}

func hasPrefix(text string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) })
}

// Tokens returns the tokens of text in order. Tokens do not overlap, and may leave gaps.
func Tokens(l Language, text string) []Token {
	switch l {
	case Diff:
		return diff(text)
	case Shell, SQL, JSON, Code:
		s := scanner{text: text, g: grammars[l], l: l}
		return s.scan()
	default:
		return nil
	}
}

// diff returns a token for each line that is added, removed or a header.
func diff(text string) []Token {
	var tokens []Token
	at := 0
	for line := range strings.Lines(text) {
		if c := lineClass(line); c != "" {
			tokens = append(tokens, Token{at, at + len(line), c})
		}
		at += len(line)
	}
	return tokens
}

func lineClass(line string) Class {
	switch {
	case hasPrefix(line, "@@", "diff ", "index ", "--- ", "+++ ", "*** ", "rename ", "new file", "deleted file"):
		return Header
	case strings.HasPrefix(line, "+"):
		return Added
	case strings.HasPrefix(line, "-"):
		return Removed
	default:
		return ""
	}
}
