package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is one thing that is wrong with a configuration, or, as a warning,
// one that is allowed and probably not meant. Those of this package never tell
// a value: it may be a secret, or stand in a place where a secret was meant to
// be.
type Problem struct {
	At      Position
	Setting string // path of the setting, such as upstreams[0].url; empty if it concerns none
	Text    string
}

// String returns the problem on one line.
func (p Problem) String() string {
	parts := []string{p.At.String(), p.Setting, p.Text}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// A Position says where a setting was given. The zero Position means nowhere.
type Position struct {
	Source       string // a file, an environment variable or a flag
	Line, Column int    // from 1 in a file; 0 if not known, or elsewhere
}

// String returns the position in the form that editors and terminals understand.
func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.Source
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.Source, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.Source, p.Line, p.Column)
}

// Origins says where settings were given, by their paths.
type Origins map[string]Position

// Of returns where the setting at path was given, or else the nearest setting
// around it.
func (o Origins) Of(path string) Position {
	for path != "" {
		if at, ok := o[path]; ok {
			return at
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return o[""]
}

// An Error holds everything that is wrong with a configuration, in the order
// of the files, followed by variables and flags.
type Error struct {
	Problems []Problem // at least one
}

// NewError returns an error with the given problems, of which there must be one.
func NewError(problems []Problem) *Error { return &Error{sorted(problems)} }

// Error returns all problems, one on each line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders problems by place and keeps the order of those at the same.
func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(inFile(b), inFile(a)),
			cmp.Compare(a.At.Source, b.At.Source),
			cmp.Compare(a.At.Line, b.At.Line),
			cmp.Compare(a.At.Column, b.At.Column),
		)
	})
	return problems
}

func inFile(p Problem) int {
	return min(p.At.Line, 1)
}
