package casefile

import (
	"bytes"
	"fmt"
	"iter"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

// How much warnings quote, and how many there are of one call at most.
const (
	maxQuoted   = 200
	maxWarnings = 20
	excerpt     = 40 // bytes of a value on either side of the first such letter
)

// Alike says which names and values of a call have characters that may be taken
// for others, and which names have spaces that are easy to overlook: the names of
// the tool, the requester and the arguments, and the values of the arguments and of
// what is sent besides. Hidden characters are not among them: they are escaped
// wherever they are shown.
func Alike(a Approval) []string {
	var all warnings
	all.add("tool", plain.Shown(a.Tool, maxQuoted), plain.Warning(a.Tool))
	if !a.Anonymous {
		all.add("requester", plain.Shown(a.Principal, maxQuoted), plain.Warning(a.Principal))
	}
	for one := range eachText(a.Arguments, a.AlsoSent) {
		if one.name {
			all.add("argument", plain.Name(one.text, maxQuoted), plain.Warning(one.text))
		} else {
			all.addValue(one.text)
		}
	}
	return all.text()
}

// AlikeValues is Alike for the values in texts of JSON alone.
func AlikeValues(parts ...jsontext.Value) []string {
	var all warnings
	for one := range eachText(parts...) {
		if !one.name {
			all.addValue(one.text)
		}
	}
	return all.text()
}

// warnings are collected up to a limit.
type warnings struct {
	lines []string
	more  int // how many are left out
}

// add adds a warning about something, which is quoted as it is shown.
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
	if marks := plain.Mixed(text); len(marks) > 0 {
		w.add("value", plain.Name(around(text, marks[0].At), maxQuoted), plain.MixedWarning(text))
	}
}

func (w *warnings) text() []string {
	if w.more > 0 {
		return append(w.lines, fmt.Sprintf("and %d more", w.more))
	}
	return w.lines
}

// around returns what is near to an offset in a text.
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

// A jsonText is a string in JSON.
type jsonText struct {
	text string
	name bool // of a member
}

// eachText returns each string in texts of JSON once, as far as they can be read.
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
