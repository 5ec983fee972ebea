package main

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A detail is one call on the screen, and how much of it the approver has seen.
type detail struct {
	call   casefile.Approval // as the gate has shown it
	around casefile.Context  // what is to be known besides
	loaded bool              // with all of its arguments
	text   string            // everything that is shown of it
	lines  []string          // the same, for the width of the screen
	seen   []bool            // which lines have been on the screen
	whole  bool              // all of them have, at some width
	top    int               // the first line that is on the screen
	reason string            // what the approver has typed before
}

// show makes a the call that is shown. If it is another view than before, nothing
// of it has been seen.
func (d *detail) show(a casefile.Approval, around casefile.Context, colours bool) {
	s, now := &screen{colours: colours}, time.Now()
	text := s.cautions(around) + s.record(a, now) + background(around, now)
	if a.ShownDigest != d.call.ShownDigest || a.State != d.call.State {
		d.whole, d.top = false, 0
	}
	d.call, d.around, d.text, d.loaded = a, around, strings.TrimRight(text, "\n"), true
}

// progress notes what has changed about a call that is still pending.
func (d *detail) progress(a casefile.Approval) {
	d.call.Approvals, d.call.Agent, d.call.ExpiresAt = a.Approvals, a.Agent, a.ExpiresAt
}

// layOut breaks the text into lines. Which of them have been seen is not known any
// more, unless it was all.
func (d *detail) layOut(width int) {
	d.lines = breakLines(d.text, width)
	d.seen = make([]bool, len(d.lines))
	d.top = max(0, min(d.top, len(d.lines)-1))
}

// see notes what is on the screen.
func (d *detail) see(room int) {
	if !d.loaded || room == 0 {
		return
	}
	d.top = max(0, min(d.top, len(d.lines)-room))
	for i := d.top; i < min(d.top+room, len(d.lines)); i++ {
		d.seen[i] = true
	}
	lines, _ := d.unseen()
	d.whole = d.whole || lines == 0
}

// unseen returns how many lines have not been on the screen, and their bytes.
func (d *detail) unseen() (lines, bytes int) {
	if d.whole {
		return 0, 0
	}
	for i, seen := range d.seen {
		if !seen {
			lines, bytes = lines+1, bytes+len(ansi.Strip(d.lines[i]))
		}
	}
	return lines, bytes
}

// detail returns the lines of the call that is open.
func (t *tui) detail() (head string, body []string, keys string) {
	d := t.open
	a := d.call
	head = t.risk(a) + " " + t.paint(yellow, stateName(a)+approvedSoFar(a))
	if a.State == task.InputRequired {
		head += fmt.Sprintf("  %s left", span(a.ExpiresAt.Sub(t.now)))
	}
	head += "  " + markedName(a.Tool, 60)
	if !d.loaded {
		return head, []string{"", "  Asking the gate…"}, "esc back"
	}
	end := min(d.top+t.room(), len(d.lines))
	body = d.lines[d.top:end]
	keys = fmt.Sprintf("lines %d-%d of %d  space ↑↓ scroll  esc back", d.top+1, end, len(d.lines))
	if a.State == task.InputRequired {
		keys = fmt.Sprintf("lines %d-%d of %d  space ↑↓ scroll  a approve  r reject  esc back", d.top+1, end, len(d.lines))
		if unseen, _ := d.unseen(); unseen > 0 {
			keys = fmt.Sprintf("lines %d-%d of %d, %d not seen  space ↑↓ scroll  r reject  esc back", d.top+1, end, len(d.lines), unseen)
		}
	}
	return head, body, keys
}

// detailKey does what a key says while a call is shown.
func (t *tui) detailKey(key string) tea.Cmd {
	d := t.open
	notice := t.notice
	t.notice = ""
	switch key {
	case "esc", "q", "left", "h":
		t.open = nil
	case "up", "k":
		d.top--
	case "down", "j":
		d.top++
	case "pgup", "b":
		d.top -= t.room()
	case "pgdown", "space", "f":
		d.top += t.room()
	case "home", "g":
		d.top = 0
	case "end", "G":
		d.top = len(d.lines)
	case "a", "w", "r":
		t.ask(key)
	default:
		t.notice = notice // of a decision for which enter was pressed twice, for example
	}
	return nil
}

// ask begins a decision, unless there is none to make or too little was seen.
func (t *tui) ask(key string) {
	d := t.open
	lines, bytes := d.unseen()
	switch {
	case !d.loaded:
		t.notice = "the call is not loaded yet"
	case d.call.State != task.InputRequired:
		t.notice = "there is nothing to decide"
	case key == "r":
		t.prompt = newPrompt(d, approval.Reject, "Reject")
	case d.around.Objection != "":
		t.notice = t.paint(yellow, "you may not approve this: "+oneLine(d.around.Objection, maxCell))
	case lines == 0:
		t.prompt = newPrompt(d, approval.Approve, "Approve")
	case key == "a":
		t.notice = t.paint(yellow, fmt.Sprintf("%d lines not seen yet: read on with space, or press w to approve without reading them", lines))
	default:
		t.prompt = newPrompt(d, approval.Approve, fmt.Sprintf("Approve WITHOUT READING %d lines", lines))
		t.prompt.unread = bytes
	}
}
