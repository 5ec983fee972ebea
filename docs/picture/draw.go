package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// The size of the picture, in pixels, and of text, in characters.
const (
	width    = 960
	margin   = 16
	lineStep = 19
	columns  = 112
	head     = 26
)

// How long things take to appear, in seconds. The picture begins with its end, because some viewers
// show only the beginning.
const (
	atTheStart   = 2.5
	afterCommand = 1.2
	afterOutput  = 1.6
	atTheEnd     = 4.0
)

// A row is a line of a terminal that appears at some time.
type row struct {
	text    string
	at      float64
	command bool
}

// A pane is a terminal in the picture.
type pane struct {
	title       string
	top, height int
	rows        []row
}

// draw returns an SVG of two terminals, the agent's above the approver's. It needs
// no script: each row becomes visible by an animation of its own, and all of them
// begin again together.
func draw(shots []shot) []byte {
	panes := [2]pane{{title: "agent"}, {title: "approver"}}
	at := atTheStart + 0.5
	for _, s := range shots {
		p := &panes[0]
		if s.approver {
			p = &panes[1]
		}
		for i, line := range wrap(s) {
			p.rows = append(p.rows, row{line, at, s.command && i == 0})
		}
		if s.command {
			at += afterCommand
		} else {
			at += afterOutput
		}
	}
	total := at + atTheEnd
	top := margin
	for i := range panes {
		panes[i].top, panes[i].height = top, head+lineStep*len(panes[i].rows)+margin
		top += panes[i].height + margin
	}
	b := new(bytes.Buffer)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13">`+"\n",
		width, top)
	b.WriteString("<title>ThoughtGate holds a call until a person approves it</title>\n<style>text{white-space:pre}.c{fill:#7ee787}.o{fill:#d1d9e0}.t{fill:#9198a1}</style>\n")
	fmt.Fprintf(b, `<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>`+"\n")
	for _, p := range panes {
		p.draw(b, total)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// draw draws the terminal into b. The whole animation takes total seconds.
func (p pane) draw(b *bytes.Buffer, total float64) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="#161b22" stroke="#30363d"/><text class="t" x="%d" y="%d">%s</text>`+"\n",
		margin, p.top, width-2*margin, p.height, 2*margin, p.top+18, p.title)
	for i, r := range p.rows {
		class, begin := "o", r.at/total
		if r.command {
			class = "c"
		}
		fmt.Fprintf(b, `<text class="%s" x="%d" y="%d">%s<animate attributeName="opacity" calcMode="discrete" values="1;0;1" keyTimes="0;%.3f;%.3f" dur="%.1fs" repeatCount="indefinite"/></text>`+"\n",
			class, 2*margin, p.top+head+lineStep*(i+1), html.EscapeString(r.text), atTheStart/total, begin, total)
	}
}

// wrap breaks the text of a shot into lines that fit.
func wrap(s shot) []string {
	text := s.text
	if s.command {
		text = "$ " + text
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		for utf8.RuneCountInString(line) > columns {
			r := []rune(line)
			lines = append(lines, string(r[:columns]))
			line = "  " + string(r[columns:])
		}
		lines = append(lines, line)
	}
	return lines
}
