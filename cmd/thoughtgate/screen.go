package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// The lengths to which foreign text is cut, in characters.
const (
	maxCell      = 200
	maxText      = 4000
	maxArguments = 64 << 10
)

// A screen prints approvals. Text of agents and upstreams must pass [safetext.Escape]
// before it is printed.
type screen struct {
	w              io.Writer
	colours        bool
	columns, lines int // of the terminal; 0 without one
}

// newScreen returns a screen for w. It uses colours on a terminal, unless NO_COLOR or
// TERM=dumb is set.
func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	s.columns, s.lines = terminalSize(w)
	s.colours = s.columns > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// A colour is an ANSI colour code.
type colour string

const (
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
)

func (s *screen) paint(c colour, text string) string {
	if !s.colours || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// print writes text. On a terminal, it breaks long lines.
func (s *screen) print(text string) error {
	//mutate:swap `> 0 && text != ""` "< 0" TestQuestionNamesTheCall a terminal breaks the lines of a call
	if s.columns > 0 && text != "" {
		text = strings.Join(breakLines(text, s.columns), "\n") + "\n"
	}
	_, err := io.WriteString(s.w, text)
	return err
}

func (s *screen) line(format string, values ...any) error {
	return s.print(fmt.Sprintf(format, values...) + "\n")
}

// json prints a value as JSON without control characters.
func (s *screen) json(v any) error {
	text, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.w, safetext.Escape(string(text))) // not broken: programs read it
	return err
}

// A table aligns its columns.
type table struct {
	b strings.Builder
	w *tabwriter.Writer
}

func newTable(heads ...string) *table {
	t := new(table)
	t.w = tabwriter.NewWriter(&t.b, 0, 0, 2, ' ', 0)
	t.add(heads...)
	return t
}

func (t *table) add(cells ...string) { _, _ = fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t *table) text() string {
	_ = t.w.Flush() // cannot fail
	return t.b.String()
}

// table prints two lines for each approval. The second one has its arguments.
func (s *screen) table(listed []review.Approval, now time.Time) error {
	t := newTable("ID", "TOOL", "RISK", "REQUESTER", "WORKFLOW", "AGE", "LEFT", "STATE", "AGENT", "WHY HELD")
	n := distinctLength(listed)
	for _, a := range listed {
		left := formatDuration(a.ExpiresAt.Sub(now))
		if a.State.Terminal() {
			left = "-"
		}
		t.add(string(a.ID[:min(n, len(a.ID))]), markedName(a.Tool, 60), string(a.Hints.Risk()), requester(a), oneLine(a.Workflow, 60),
			formatDuration(now.Sub(a.CreatedAt)), left, stateName(a), agentCell(a, now), oneLine(a.Reason, maxCell))
	}
	var b strings.Builder
	heads, rows, _ := strings.Cut(t.text(), "\n")
	b.WriteString(s.cutReason(heads, heads) + "\n")
	for _, a := range listed {
		var first string
		first, rows, _ = strings.Cut(rows, "\n")
		b.WriteString(s.cutReason(heads, first) + "\n" + s.argumentLine(a))
	}
	for _, a := range listed {
		for _, warning := range review.LookalikeWarnings(a) {
			b.WriteString(s.paint(yellow, "(!) "+string(a.ID[:min(n, len(a.ID))])+" "+warning) + "\n")
		}
	}
	return s.print(b.String())
}

// cutReason returns a row of the table that fits on the terminal, if only its last column, the reason, has to be cut for that.
func (s *screen) cutReason(heads, row string) string {
	reason := strings.LastIndex(heads, "WHY HELD")
	if s.columns < reason || ansi.StringWidth(row) != utf8.RuneCountInString(row) { // the columns are aligned by characters
		return row
	}
	return ansi.Truncate(row, s.columns, "…")
}

// argumentLine returns the arguments of a call on an indented line that fits on the terminal.
// It is empty without arguments.
func (s *screen) argumentLine(a review.Approval) string {
	const indent = "    "
	text := argumentCell(a)
	if text == "" {
		return ""
	}
	if most := s.columns - len(indent); s.columns > 0 && fittingBytes(text, most) < len(text) {
		text = text[:fittingBytes(text, most-1)] + "…"
	}
	return indent + text + "\n"
}

// distinctLength returns how many characters are needed to distinguish the ids.
func distinctLength(listed []review.Approval) int {
	least := 0
	for _, a := range listed {
		least = max(least, len(a.ID.Short()))
	}
	for n := least; ; n++ {
		seen, long := make(map[task.ID]bool), false
		for _, a := range listed {
			long = long || len(a.ID) > n
			seen[a.ID[:min(n, len(a.ID))]] = true
		}
		if len(seen) == len(listed) || !long {
			return n
		}
	}
}

// row returns a value with its label at the left, or nothing for an empty value.
func row(name, value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf("%-11s %s\n", name, strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", 12)))
}

// details returns everything about one approval.
func (s *screen) details(a review.Approval, now time.Time) string {
	var b strings.Builder
	row := func(name, value string) { b.WriteString(row(name, value)) }
	row("id", string(a.ID))
	row("state", s.status(a))
	row("tool", markedName(a.Tool, len(a.Tool))+" ("+oneLine(a.Method, maxCell)+" on upstream "+oneLine(a.Upstream, maxCell)+")")
	row("warning", s.warningText(a))
	row("description", paragraph(a.Description))
	row("risk", s.riskText(a.Hints.Risk()))
	row("hints", hintText(a.Hints))
	row("requester", requester(a))
	row("agent", agentText(a))
	if a.Requests > 1 {
		row("requests", fmt.Sprintf("%d identical requests wait; the call runs once for all of them", a.Requests))
	}
	row("held", oneLine(a.Reason, maxText))
	row("workflow", oneLine(a.Workflow, maxCell)+quorumText(a))
	row("age", formatDuration(now.Sub(a.CreatedAt)))
	if !a.State.Terminal() {
		row("left", formatDuration(a.ExpiresAt.Sub(now)))
	}
	for _, d := range a.Approvals {
		row("approved", decisionText(d, now))
	}
	row("next", oneLine(a.Next, maxCell))
	if a.ClientReason != nil {
		row("agent says", s.paint(yellow, "(untrusted: written by the agent)")+"\n"+paragraph(a.ClientReason.Text))
	}
	row("call digest", oneLine(fmt.Sprint(a.Digest), maxCell))
	row("shown", oneLine(a.ShownDigest, maxCell)) // for approve --shown
	row("arguments", argumentText(a))
	if len(a.AlsoSent) > 0 {
		row("also sent", argumentText(review.Approval{Arguments: a.AlsoSent, ArgumentsTruncated: a.AlsoSent.Kind() == '"'}))
	}
	row("result", resultText(a.Result))
	return b.String()
}

// summary returns the most important facts about an approval in four short lines.
func (s *screen) summary(a review.Approval) string {
	return row("id", string(a.ID)) +
		row("tool", markedName(a.Tool, 60)+" ("+oneLine(a.Method, 60)+" on upstream "+oneLine(a.Upstream, 60)+")") +
		row("risk", s.riskText(a.Hints.Risk())) + row("requester", requester(a))
}

// agentCell returns whether the agent is connected, in a few words.
func agentCell(a review.Approval, now time.Time) string {
	switch {
	case a.Agent == nil:
		return "-"
	case a.Agent.Presence == gatetask.OwnerGone:
		return "gone " + formatDuration(now.Sub(a.Agent.LastContact))
	default:
		return oneLine(string(a.Agent.Presence), maxCell)
	}
}

// agentText returns whether the agent is connected, and what that means for an approval.
func agentText(a review.Approval) string {
	if a.Agent == nil {
		return ""
	}
	text := oneLine(a.Agent.Text, maxCell)
	if a.State == task.InputRequired && a.Agent.Presence == gatetask.OwnerGone {
		text += "; if it is approved, it runs when the agent asks again"
	}
	return text
}

// riskText returns a risk, the worst one in red.
func (s *screen) riskText(r review.Risk) string {
	if r == review.RiskDestroys {
		return s.paint(red, string(r))
	}
	return string(r)
}

// resultText returns the result of a call, or nothing without one.
func resultText(r *review.Result) string {
	if r == nil {
		return ""
	}
	kind := map[task.ResultKind]string{
		task.ResultOK: "", task.ResultToolError: ", the tool reports an error", task.ResultRPCError: ", the tool's server reports an error",
	}[r.Kind]
	text := fmt.Sprintf("%d bytes%s (written by the tool's server)", r.Size, kind)
	if r.Value == nil {
		return text + "\nthe result is no longer available"
	}
	if r.Truncated {
		text += "\n(this is only the beginning)"
	}
	return text + "\n" + argumentText(review.Approval{Arguments: r.Value})
}

// status returns the state of a call, in colour.
func (s *screen) status(a review.Approval) string {
	switch a.State {
	case task.InputRequired:
		return s.paint(yellow, stateName(a)+approvedSoFar(a))
	case task.Approved, task.Executing, task.Completed:
		return s.paint(green, stateText(a, time.Now()))
	default:
		return s.paint(red, stateText(a, time.Now()))
	}
}

func approvedSoFar(a review.Approval) string {
	if len(a.Approvals) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of %d approvals)", len(a.Approvals), a.Quorum)
}

// stateName returns the name of the state for approvers.
func stateName(a review.Approval) string {
	if a.State == task.InputRequired {
		return "pending"
	}
	return oneLine(string(a.State), maxCell)
}

// stateText returns the state of a call, with the approver and the failure.
func stateText(a review.Approval, now time.Time) string {
	text := stateName(a)
	if a.Rejection != nil {
		return text + " by " + decisionText(*a.Rejection, now)
	}
	after, approved := map[task.State]string{
		task.Approved: "", task.Executing: ", running", task.Completed: ", completed",
	}[a.State]
	if approved && len(a.Approvals) > 0 {
		return "approved by " + decisionText(a.Approvals[len(a.Approvals)-1], now) + after
	}
	if approved && a.NoApprovalNeeded {
		return "no approval needed" + after
	}
	if f := a.Failure; f != nil {
		ran := strings.TrimSuffix(lifecycle.RanText(f.Ran), ".")
		text += ": " + cmp.Or(oneLine(f.Reason, maxCell), oneLine(string(f.Stage), maxCell)) + "; " + strings.ToLower(ran[:1]) + ran[1:]
	}
	return text
}

func decisionText(d gatetask.Decision, now time.Time) string {
	text := oneLine(d.By, maxCell) + " " + formatDuration(now.Sub(d.At)) + " ago"
	if d.Grant != "" {
		text = oneLine(d.By, maxCell) + ", by standing approval " + oneLine(string(d.Grant), maxCell)
	}
	if d.Via.Kind != "" {
		text += ", via " + oneLine(d.Via.String(), maxCell)
	}
	if d.UnreadBytes > 0 {
		text += fmt.Sprintf(", without reading everything (%d bytes not read)", d.UnreadBytes)
	}
	if d.Reason != "" {
		text += " (" + oneLine(d.Reason, maxCell) + ")"
	}
	return text
}

func quorumText(a review.Approval) string {
	if a.Quorum < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d must approve)", a.Quorum)
}

func requester(a review.Approval) string {
	if a.Anonymous {
		return "anonymous"
	}
	return markedName(a.Principal, maxCell)
}

// hintText returns the upstream's hints about its tool.
func hintText(h *review.Hints) string {
	if h == nil {
		return ""
	}
	var said []string
	for _, hint := range []struct {
		value   *bool
		yes, no string
	}{
		{h.ReadOnly, "read-only", "not read-only"},
		{h.Destructive, "destructive", "not destructive"},
		{h.Idempotent, "safe to repeat", "not safe to repeat"},
		{h.OpenWorld, "open-world", "closed-world"},
	} {
		switch {
		case hint.value == nil:
		case *hint.value:
			said = append(said, hint.yes)
		default:
			said = append(said, hint.no)
		}
	}
	if len(said) == 0 {
		return ""
	}
	return strings.Join(said, ", ") + " (according to the upstream)"
}

// argumentText returns the arguments as indented JSON.
func argumentText(a review.Approval) string {
	if len(a.Arguments) == 0 {
		return "none"
	}
	if a.ArgumentsTruncated {
		return argumentStart(a, maxArguments) + "\n(truncated)" // only gates of other versions truncate
	}
	text := a.Arguments.Clone()
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		return "unreadable"
	}
	return safetext.Escape(string(text))
}

// argumentStart returns the beginning of truncated arguments.
func argumentStart(a review.Approval, most int) string {
	text, err := jsontext.AppendUnquote(nil, a.Arguments)
	if err != nil {
		return "unreadable"
	}
	return oneLine(string(text), most)
}

// callText returns the tool and its arguments on one line.
func callText(a review.Approval) string {
	return strings.TrimSpace(markedName(a.Tool, 60) + " " + argumentCell(a))
}

// argumentCell returns the arguments, or their beginning, on one line.
func argumentCell(a review.Approval) string {
	if a.ArgumentsTruncated {
		return argumentStart(a, maxCell)
	}
	return oneLine(string(a.Arguments), maxCell)
}

// formatDuration returns a short text for a duration, such as 5m30s or 3h0m.
func formatDuration(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// oneLine returns foreign text as one line of at most limit characters.
func oneLine(text string, limit int) string {
	return shorten(strings.ReplaceAll(safetext.Escape(text), "\n", `\n`), limit)
}

// paragraph returns foreign text with its lines.
func paragraph(text string) string { return shorten(safetext.Escape(text), maxText) }

func shorten(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit]) + "…"
}
