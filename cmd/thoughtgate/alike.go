package main

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
)

// alikeMark follows a name on the screen that has characters which may be taken
// for others.
const alikeMark = " (!)"

// markedName returns a name as one line of at most limit characters, marked if it
// may be taken for another one.
func markedName(name string, limit int) string {
	text := oneLine(name, limit)
	if plain.Warning(name) != "" {
		text += alikeMark
	}
	return text
}

// nameWarnings says which names of a call may be taken for others, and why: those
// of the tool, the requester and the arguments.
func nameWarnings(a casefile.Approval) []string {
	var warnings []string
	warn := func(what, name string) {
		if warning := plain.Warning(name); warning != "" {
			warnings = append(warnings, what+" "+oneLine(name, maxCell)+": "+warning)
		}
	}
	warn("tool", a.Tool)
	if !a.Anonymous {
		warn("requester", a.Principal)
	}
	for _, name := range memberNames(a.Arguments) {
		warn("argument", name)
	}
	return warnings
}

// memberNames returns the names of all members of objects in a text of JSON, each
// once, as far as it can be read.
func memberNames(text jsontext.Value) []string {
	var names []string
	seen := make(map[string]bool)
	d := jsontext.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return names
		}
		kind, length := d.StackIndex(d.StackDepth())
		if token.Kind() != '"' || kind != '{' || length%2 == 0 {
			continue
		}
		if name := token.String(); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
}

// warningText returns warnings as lines, or nothing if there are none.
func (s *screen) warningText(a casefile.Approval) string {
	return s.paint(yellow, strings.Join(nameWarnings(a), "\n"))
}
