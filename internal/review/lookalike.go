package review

import (
	"bytes"
	"fmt"
	"iter"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// Limits on warnings.
const (
	maxQuoted   = 200
	maxWarnings = 20
	excerpt     = 40 // bytes on either side of the first suspicious letter
)

// LookalikeWarnings returns warnings about names and values of a call with characters that look
// like others, and about names with spaces that are easy to miss. Hidden characters need no
// warning: they are always shown escaped.
func LookalikeWarnings(a Approval) []string {
	var all warnings
	all.add("tool", safetext.Truncate(a.Tool, maxQuoted), safetext.NameWarning(a.Tool))
	if !a.Anonymous {
		all.add("requester", safetext.Truncate(a.Principal, maxQuoted), safetext.NameWarning(a.Principal))
	}
	for one := range eachText(a.Arguments, a.AlsoSent) {
		if one.name {
			all.add("argument", safetext.Name(one.text, maxQuoted), safetext.NameWarning(one.text))
		} else {
			all.addValue(one.text)
		}
	}
	return all.text()
}

// ValueWarnings returns the warnings about values in the given JSON texts.
func ValueWarnings(parts ...jsontext.Value) []string {
	var all warnings
	for one := range eachText(parts...) {
		if !one.name {
			all.addValue(one.text)
		}
	}
	return all.text()
}

// warnings is a list of warnings with a maximum length.
type warnings struct {
	lines []string
	more  int // number of omitted warnings
}

// add adds a warning about the quoted text.
func (w *warnings) add(what, quoted, warning string) {
	switch {
	case warning == "":
	case len(w.lines) == maxWarnings:
		w.more++
	default:
		w.lines = append(w.lines, what+" "+quoted+": "+warning)
	}
}

func (w *warnings) addValue(text string) {
	if marks := safetext.Confusables(text); len(marks) > 0 {
		w.add("value", safetext.Name(around(text, marks[0].At), maxQuoted), safetext.ConfusablesWarning(marks))
	}
}

func (w *warnings) text() []string {
	if w.more > 0 {
		return append(w.lines, fmt.Sprintf("and %d more", w.more))
	}
	return w.lines
}

// around returns the part of text around an offset.
func around(text string, at int) string {
	from, to := max(0, at-excerpt), min(len(text), at+excerpt)
	part := strings.ToValidUTF8(text[from:to], "")
	if from > 0 {
		part = "…" + part
	}
	if to < len(text) {
		part += "…"
	}
	return part
}

// A jsonText is a string in a JSON text.
type jsonText struct {
	text string
	name bool // the string is a member name
}

// eachText returns every distinct string in JSON texts, as far as they can be parsed.
func eachText(parts ...jsontext.Value) iter.Seq[jsonText] {
	return func(yield func(jsonText) bool) {
		seen := make(map[jsonText]bool)
		for _, part := range parts {
			d := jsontext.NewDecoder(bytes.NewReader(part))
			for token, err := d.ReadToken(); err == nil; token, err = d.ReadToken() {
				if token.Kind() != '"' {
					continue
				}
				kind, length := d.StackIndex(d.StackDepth())
				t := jsonText{text: token.String(), name: kind == '{' && length%2 == 1}
				if !seen[t] && !yield(t) {
					return
				}
				seen[t] = true
			}
		}
	}
}
