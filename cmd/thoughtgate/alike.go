package main

import (
	"fmt"
	"strings"

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

// warningText returns warnings as lines, or nothing if there are none.
func (s *screen) warningText(a casefile.Approval) string {
	return s.paint(yellow, strings.Join(casefile.Alike(a), "\n"))
}

// shortWarning returns the first of these warnings, and how many more there are.
func (s *screen) shortWarning(a casefile.Approval) string {
	all := casefile.Alike(a)
	if len(all) == 0 {
		return ""
	}
	text := oneLine(all[0], maxCell)
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return s.paint(yellow, text)
}
