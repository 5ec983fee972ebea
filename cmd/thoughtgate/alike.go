package main

import (
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
