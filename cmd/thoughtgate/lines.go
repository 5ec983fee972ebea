package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// continuation begins each continuation line. Only labels begin at the left margin, so that
// part of a value cannot look like a label.
const continuation = "            ↪ "

// narrowContinuation replaces continuation on narrow terminals.
const narrowContinuation = "↪ "

// breakLines breaks text into lines of at most this many columns. If the terminal broke a
// line itself, the rest would begin at the left margin.
func breakLines(text string, columns int) []string {
	next := continuation
	if columns < minWidth {
		next = narrowContinuation
	}
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		size := fittingBytes(line, columns)
		//mutate:swap "next+" "" TestContinuationLinesAreIndented the rest of a long line begins at the left margin
		for lines = append(lines, line[:size]); size < len(line); lines = append(lines, next+line[:size]) {
			line = line[size:]
			size = fittingBytes(line, columns-ansi.StringWidth(next))
		}
	}
	return lines
}

// fittingBytes returns how many bytes of a line fit into this many columns, but at least
// one character, so that breakLines ends.
func fittingBytes(line string, columns int) int {
	width, colour := 0, false
	for at, r := range line {
		if r == '\x1b' || colour { // ESC [ 3 1 m
			colour = r != 'm'
			continue
		}
		wide := mostColumns(r)
		if width > 0 && width+wide > columns {
			return at
		}
		width += wide
	}
	return len(line)
}

// mostColumns returns how many columns r takes at most. Terminals differ in the width of
// combining characters.
func mostColumns(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	return max(1, ansi.StringWidth(string(r)), ansi.StringWidthWc(string(r)))
}

// terminalSize returns the size of the terminal w, or zeros if w is not a terminal.
func terminalSize(w io.Writer) (columns, lines int) {
	file, ok := w.(*os.File)
	if !ok || !isTerminal(w) {
		return 0, 0
	}
	columns, lines, err := term.GetSize(file.Fd())
	if err != nil || columns <= 0 || lines <= 0 {
		return 80, 24 // the terminal does not report its size
	}
	return columns, lines
}

// lookalikeMark follows a name with characters that look like others.
const lookalikeMark = " (!)"

// markedName returns a name as one line of at most limit characters, with a mark if the
// name can be confused with another one.
func markedName(name string, limit int) string {
	text := oneLine(name, limit)
	if safetext.NameWarning(name) != "" {
		text += lookalikeMark
	}
	return text
}

// warningText returns the warnings about names, one per line.
func (s *screen) warningText(a review.Approval) string {
	return s.paint(yellow, strings.Join(review.LookalikeWarnings(a), "\n"))
}

// shortWarning returns the first warning about names, and the number of others.
func (s *screen) shortWarning(a review.Approval) string {
	all := review.LookalikeWarnings(a)
	if len(all) == 0 {
		return ""
	}
	text := oneLine(all[0], maxCell)
	if more := len(all) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return s.paint(yellow, text)
}
