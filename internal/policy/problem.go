package policy

import (
	"fmt"
	"strings"
)

// A Place is a setting of a [Config] or a position in a Cedar source.
type Place struct {
	Setting      string // such as rules[3].match; empty in a Cedar source
	Source       string // the name of a [Source]
	Line, Column int    // in Source, from 1; 0 if unknown
}

// String returns the setting, or SOURCE:LINE:COLUMN.
func (p Place) String() string {
	switch {
	case p.Setting != "":
		return p.Setting
	case p.Line == 0:
		return p.Source
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.Source, p.Line)
	default:
		return fmt.Sprintf("%s:%d:%d", p.Source, p.Line, p.Column)
	}
}

// member returns the place of a member of the setting at p.
func (p Place) member(name string) Place {
	p.Setting += "." + name
	return p
}

// A Problem is an error in a [Config], or a warning of a probable mistake.
type Problem struct {
	Place Place
	Text  string // on one line
}

// String returns the problem on one line.
func (p Problem) String() string { return p.Place.String() + ": " + p.Text }

// An Error has all problems of a [Config].
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

// problems is a list of problems that grows.
type problems []Problem

// add adds err, unless it is nil.
func (p *problems) add(at Place, err error) {
	if err != nil {
		p.addText(at, err.Error())
	}
}

func (p *problems) addText(at Place, text string) {
	*p = append(*p, Problem{at, strings.ReplaceAll(text, "\n", "; ")})
}
