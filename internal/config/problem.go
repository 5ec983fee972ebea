package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is an error in a configuration, or a warning of a probable mistake. The text
// never contains a value, which may be a secret.
type Problem struct {
	At      Position
	Setting string // path, such as upstreams[0].url; empty if it is about no setting
	Text    string
}

// String returns the problem on one line.
func (p Problem) String() string {
	parts := []string{p.At.String(), p.Setting, p.Text}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// A Position is the position of a setting in its source. The zero Position is unknown.
type Position struct {
	Source       string // a file, an environment variable or a flag
	Line, Column int    // from 1; 0 if unknown, and outside of files
}

// String returns FILE:LINE:COLUMN, which editors understand.
func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.Source
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.Source, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.Source, p.Line, p.Column)
}

// Origins has the positions of settings by their paths.
type Origins map[string]Position

// Of returns the position of the setting at path, or of the nearest setting around it.
func (o Origins) Of(path string) Position {
	for path != "" {
		if at, ok := o[path]; ok {
			return at
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return o[""]
}

// An Error has all problems of a configuration: those in files in their order, then those
// of variables and flags.
type Error struct {
	Problems []Problem // at least one
}

// NewError returns an error with at least one problem.
func NewError(problems []Problem) *Error { return &Error{sorted(problems)} }

// Error returns all problems, one on each line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted sorts problems by position. The sort is stable.
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
