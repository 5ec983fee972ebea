package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// turnover begins each line that goes on with the one before. Only the names of
// what is shown begin at the left, so that no value can pass for another one.
const turnover = "            ↪ "

// narrowTurnover is turnover on a terminal that is too narrow for it.
const narrowTurnover = "↪ "

// breakLines returns text as lines that fit a terminal with so many columns. If the
// terminal broke a line itself, the rest of it would begin at the left.
func breakLines(text string, columns int) []string {
	next := turnover
	if columns < minWidth {
		next = narrowTurnover
	}
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		size := fitting(line, columns)
		for lines = append(lines, line[:size]); size < len(line); lines = append(lines, next+line[:size]) {
			line = line[size:]
			size = fitting(line, columns-ansi.StringWidth(next))
		}
	}
	return lines
}

// fitting returns how many bytes of a line fit into so many columns: at least one
// character, so that there is an end.
func fitting(line string, columns int) int {
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

// mostColumns returns how many columns of a terminal r takes at most. Terminals
// differ in marks, and in whether they draw some characters as one with the next.
func mostColumns(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	return max(1, ansi.StringWidth(string(r)), ansi.StringWidthWc(string(r)))
}

// terminalSize returns the size of the terminal that w is, or zeros if it is none.
func terminalSize(w io.Writer) (columns, lines int) {
	file, ok := w.(*os.File)
	if !ok || !isTerminal(w) {
		return 0, 0
	}
	columns, lines, err := term.GetSize(file.Fd())
	if err != nil || columns <= 0 || lines <= 0 {
		return 80, 24 // some do not know their size
	}
	return columns, lines
}
