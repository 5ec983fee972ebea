package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is one thing that is wrong with a configuration, or, as a warning,
// one that is allowed and probably not meant. Neither ever tells a value: it
// may be a secret, or stand in a place where a secret was meant to be.
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
	Line, Column int    // from 1 in a file, 0 elsewhere
}

// String returns the position in the form that editors and terminals understand.
func (p Position) String() string {
	if p.Line == 0 {
		return p.Source
	}
	return fmt.Sprintf("%s:%d:%d", p.Source, p.Line, p.Column)
}

// An Error holds everything that is wrong with a configuration, in the order
// of the file, followed by variables and flags.
type Error struct {
	Problems []Problem // at least one
}

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
			cmp.Compare(a.At.Line, b.At.Line),
			cmp.Compare(a.At.Column, b.At.Column),
			cmp.Compare(a.At.Source, b.At.Source),
		)
	})
	return problems
}

func inFile(p Problem) int {
	return min(p.At.Line, 1)
}
