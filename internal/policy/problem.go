package policy

import (
	"fmt"
	"strings"
)

// A Place says where in a [Config] something stands: in a setting or in a Cedar
// source.
type Place struct {
	Setting      string // such as rules[3].match; empty if it is in a Cedar source
	Source       string // the name of a [Source]
	Line, Column int    // in Source, from 1; 0 if not known
}

// String returns the place in one word.
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

// A Problem is one thing that is wrong with a [Config], or, as a warning, one
// that is allowed and probably not meant.
type Problem struct {
	Place Place
	Text  string // on one line
}

// String returns the problem on one line.
func (p Problem) String() string { return p.Place.String() + ": " + p.Text }

// An Error holds everything that is wrong with a [Config].
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

// problems collects what is wrong.
type problems []Problem

// add notes that err, if it is one, is wrong at a place.
func (p *problems) add(at Place, err error) {
	if err != nil {
		p.addText(at, err.Error())
	}
}

func (p *problems) addText(at Place, text string) {
	*p = append(*p, Problem{at, strings.ReplaceAll(text, "\n", "; ")})
}
