package main

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A prompt asks for the reason of a decision. Enter confirms it, so that a single key never
// decides.
type prompt struct {
	what   approval.Decision
	title  string
	reason string
	shown  string // the digest of the shown call
	unread int    // bytes that were not on the screen
	since  time.Time
	sent   bool
}

// minAnswerTime is how long enter is ignored after the prompt opens, so that a key that is
// held down decides nothing.
const minAnswerTime = 300 * time.Millisecond

func newPrompt(d *detail, what approval.Decision, title string) *prompt {
	return &prompt{what: what, title: title, reason: d.reason, shown: d.call.ShownDigest, since: time.Now()}
}

// insert adds text to the reason, on one line and of a limited length.
func (p *prompt) insert(text string) {
	text = safetext.Line(text, review.MaxReason)
	if utf8.RuneCountInString(p.reason)+utf8.RuneCountInString(text) <= review.MaxReason {
		p.reason += text
	}
}

// lines returns the foot of the screen while the prompt is open.
func (p *prompt) lines(t *tui) []string {
	call := t.open.call
	question := p.title + " " + markedName(call.Tool, 60) + "?"
	if p.what == approval.Approve && call.Hints.Risk() == review.RiskDestroys {
		question += " It may destroy something."
	}
	reason := "Reason (optional): " + p.reason + "█"
	if over := ansi.StringWidth(reason) - t.width; over > 0 {
		reason = ansi.TruncateLeft(reason, over+1, "…")
	}
	keys := "enter " + strings.ToLower(string(p.what)) + "  esc cancel"
	if p.sent {
		keys = "Sending…"
	}
	return []string{t.paint(yellow, question), reason, t.notice + "  " + t.paint(dim, keys)}
}

// promptKey handles a key while the prompt is open.
func (t *tui) promptKey(k tea.KeyPressMsg) tea.Cmd {
	p := t.prompt
	t.notice = ""
	switch key := k.String(); {
	case p.sent:
		return nil
	case key == "esc":
		t.open.reason, t.prompt = p.reason, nil
	case key == "enter":
		if time.Since(p.since) < minAnswerTime {
			t.notice = "too quick; press enter again"
			return nil
		}
		p.sent = true
		return t.decide(p)
	case key == "backspace" && p.reason != "":
		_, size := utf8.DecodeLastRuneInString(p.reason)
		p.reason = p.reason[:len(p.reason)-size]
	case key == "ctrl+u":
		p.reason = ""
	case k.Text == " ":
		p.reason += " " // insert would trim it
	case k.Text != "":
		p.insert(k.Text)
	}
	return nil
}

// decide sends a decision, with the digest of the shown call.
func (t *tui) decide(p *prompt) tea.Cmd {
	call := t.open.call
	ruling := approval.Ruling{Decision: p.what, Reason: strings.TrimSpace(p.reason), Shown: p.shown, Unread: p.unread}
	return func() tea.Msg {
		after, err := t.gate.Decide(t.ctx, call.ID, ruling)
		return decidedMsg{call.ID, p.what, after, t.problem(call.ID, err)}
	}
}

// problem returns why a decision was not recorded.
func (t *tui) problem(id task.ID, err error) string {
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return ""
	case !ok:
		return "unknown whether the decision was recorded (" + oneLine(err.Error(), maxCell) + "); it is safe to decide again"
	case refused.Type == "view_changed":
		return "not recorded: the call has changed; read it again"
	default:
		return "not recorded: " + decisionError(t.ctx, t.gate, id, err).Error()
	}
}

// decided shows the result of a decision, and loads the call again.
func (t *tui) decided(msg decidedMsg) tea.Cmd {
	if t.prompt != nil && t.open != nil && t.open.call.ID == msg.id {
		t.open.reason, t.prompt = t.prompt.reason, nil
	}
	t.notice = t.paint(red, msg.problem)
	if msg.problem == "" {
		t.notice = strings.TrimSpace(t.outcome(msg))
	}
	return t.reload()
}

// outcome returns the result of a recorded decision in one line.
func (t *tui) outcome(msg decidedMsg) string {
	a := msg.after
	switch {
	case a.State == task.InputRequired:
		return "your approval is recorded" + approvedSoFar(a)
	case msg.what == approval.Reject:
		return t.paint(red, "rejected") + "; the call does not run"
	default:
		return t.paint(green, "approved") + " " + oneLine(a.Next, maxCell)
	}
}
