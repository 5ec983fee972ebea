package main

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
)

// The smallest terminal on which calls can be decided.
const (
	minWidth  = 40
	minHeight = 10
)

// small reports whether the terminal is too small to show a call.
func (t *tui) small() bool { return t.width < minWidth || t.height < minHeight }

// room returns how many lines there are between the head and the foot.
func (t *tui) room() int {
	if t.small() {
		return 0
	}
	return t.height - 5
}

func (t *tui) paint(c colour, text string) string {
	return (&screen{colours: t.colours}).paint(c, text)
}

// listKey does what a key says while the list is shown.
func (t *tui) listKey(key string) tea.Cmd {
	t.notice = ""
	at := t.index()
	switch key {
	case "q", "esc":
		return tea.Quit
	case "up", "k":
		at--
	case "down", "j":
		at++
	case "home", "g":
		at = 0
	case "end", "G":
		at = len(t.calls) - 1
	case "enter", "right", "l":
		if at < 0 {
			return nil
		}
		t.open = &detail{call: t.calls[at]}
		return t.load(t.selected)
	}
	if len(t.calls) > 0 {
		t.selected = t.calls[min(max(at, 0), len(t.calls)-1)].ID
	}
	return nil
}

// render returns the whole screen: a head, what it is about, and a foot of the
// last notice and the keys.
func (t *tui) render() string {
	if t.width == 0 {
		return "" // its size is not known yet
	}
	if t.small() {
		return ansi.Truncate(fmt.Sprintf("Please enlarge the terminal to %d×%d.", minWidth, minHeight), t.width, "")
	}
	head, body, keys := t.list()
	if t.open != nil {
		head, body, keys = t.detail()
	}
	lines := append([]string{t.title(), head}, body...)
	for len(lines) < t.height-3 {
		lines = append(lines, "")
	}
	lines = append(lines[:t.height-3], t.foot(keys)...)
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], t.width, "…")
	}
	return strings.Join(lines, "\n")
}

func (t *tui) title() string {
	state := t.paint(green, "connected")
	if t.link != "" {
		state = t.paint(red, t.link)
	}
	return fmt.Sprintf("ThoughtGate  %d waiting  %s  %s", len(t.calls), oneLine(t.where, 60), state)
}

// foot returns the last three lines.
func (t *tui) foot(keys string) []string {
	if t.prompt != nil {
		return t.prompt.lines(t)
	}
	return []string{strings.Repeat("─", t.width), t.notice, t.paint(dim, keys)}
}

// list returns the lines of the list.
func (t *tui) list() (head string, body []string, keys string) {
	head = fmt.Sprintf("  %-15s %6s  %-22s %-12s %s", "RISK", "LEFT", "TOOL", "REQUESTER", "ARGUMENTS")
	if len(t.calls) == 0 {
		body = []string{"", "  No calls are waiting for a decision."}
	}
	at, room := t.index(), t.room()
	first := max(0, min(at-room/2, len(t.calls)-room))
	for i := first; i < len(t.calls) && i < first+room; i++ {
		body = append(body, t.row(t.calls[i]))
	}
	return t.paint(dim, head), body, "↑↓ choose  enter look  q quit"
}

// row returns one line of the list.
func (t *tui) row(a casefile.Approval) string {
	mark := "  "
	if a.ID == t.selected {
		mark = "> "
	}
	tool := strings.TrimSpace(markedName(a.Tool, 60) + approvedSoFar(a))
	arguments := strings.TrimSpace(strings.TrimPrefix(callText(a), markedName(a.Tool, 60)))
	return mark + t.risk(a) + fmt.Sprintf(" %6s  %s %s %s", span(a.ExpiresAt.Sub(t.now)), cell(tool, 22), cell(requester(a), 12), arguments)
}

// risk returns the risk of a call in a cell of its own, which a tool's name cannot
// push away.
func (t *tui) risk(a casefile.Approval) string {
	r := a.Hints.Risk()
	text := cell(string(r), 15)
	if r == casefile.RiskDestroys {
		return t.paint(red, text)
	}
	return text
}

// cell returns text in exactly so many columns.
func cell(text string, columns int) string {
	text = ansi.Truncate(text, columns, "…")
	return text + strings.Repeat(" ", max(0, columns-ansi.StringWidth(text)))
}
