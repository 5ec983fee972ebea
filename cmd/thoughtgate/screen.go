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

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// How many characters of foreign text are shown, at most.
const (
	maxCell      = 200
	maxText      = 4000
	maxArguments = 64 << 10
)

// A screen is where approvals are shown. Text of agents and upstreams reaches it
// only through [plain.Escape].
type screen struct {
	w              io.Writer
	colours        bool
	columns, lines int // of a terminal; 0 if it is none, which breaks no line
}

// newScreen returns a screen with colours if w is a terminal, unless the
// environment says that none are wanted.
func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	s.columns, s.lines = terminalSize(w)
	s.colours = s.columns > 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// A colour is what the terminal draws text in.
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

// print writes lines, on a terminal so that it need not break any of them.
func (s *screen) print(text string) error {
	if s.columns > 0 && text != "" {
		text = strings.Join(breakLines(text, s.columns), "\n") + "\n"
	}
	_, err := io.WriteString(s.w, text)
	return err
}

func (s *screen) line(format string, values ...any) error {
	return s.print(fmt.Sprintf(format, values...) + "\n")
}

// json prints a value in a form that means the same, without a character that
// does something to a terminal.
func (s *screen) json(v any) error {
	text, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.w, plain.Escape(string(text))) // whole lines: a program may read them
	return err
}

// table prints one line for each approval.
func (s *screen) table(listed []casefile.Approval, now time.Time) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "ID\tTOOL\tRISK\tREQUESTER\tWORKFLOW\tAGE\tLEFT\tSTATE\tAGENT\tWHY HELD")
	n := distinct(listed)
	for _, a := range listed {
		left := span(a.ExpiresAt.Sub(now))
		if a.State.Terminal() {
			left = "-"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			a.ID[:min(n, len(a.ID))], markedName(a.Tool, 60), a.Hints.Risk(), requester(a), oneLine(a.Workflow, 60),
			span(now.Sub(a.CreatedAt)), left, stateName(a), agentCell(a, now), oneLine(a.Reason, maxCell))
	}
	_ = t.Flush() // a builder does not fail
	if err := s.print(b.String()); err != nil {
		return err
	}
	return s.warnings(listed, n)
}

// warnings says below a table what of it may be taken for something else.
func (s *screen) warnings(listed []casefile.Approval, n int) error {
	for _, a := range listed {
		for _, warning := range casefile.Alike(a) {
			if err := s.line("%s", s.paint(yellow, "(!) "+string(a.ID[:min(n, len(a.ID))])+" "+warning)); err != nil {
				return err
			}
		}
	}
	return nil
}

// distinct returns how many characters distinguish the ids.
func distinct(listed []casefile.Approval) int {
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

// row returns lines of a value with its name at the left, or nothing if there is no
// value.
func row(name, value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf("%-11s %s\n", name, strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", 12)))
}

// record returns everything about one approval.
func (s *screen) record(a casefile.Approval, now time.Time) string {
	var b strings.Builder
	row := func(name, value string) { b.WriteString(row(name, value)) }
	row("id", string(a.ID))
	row("state", s.standing(a))
	row("tool", markedName(a.Tool, len(a.Tool))+" ("+oneLine(a.Method, maxCell)+" on upstream "+oneLine(a.Upstream, maxCell)+")")
	row("warning", s.warningText(a))
	row("description", paragraph(a.Description))
	row("risk", s.riskText(a.Hints.Risk()))
	row("hints", hintText(a.Hints))
	row("requester", requester(a))
	row("agent", agentText(a))
	row("held", oneLine(a.Reason, maxText))
	row("workflow", oneLine(a.Workflow, maxCell)+quorumText(a))
	row("age", span(now.Sub(a.CreatedAt)))
	if !a.State.Terminal() {
		row("left", span(a.ExpiresAt.Sub(now)))
	}
	for _, d := range a.Approvals {
		row("approved", decisionText(d, now))
	}
	row("next", oneLine(a.Next, maxCell))
	if a.ClientReason != nil {
		row("agent says", s.paint(yellow, "(untrusted: written by the agent)")+"\n"+paragraph(a.ClientReason.Text))
	}
	row("digest", oneLine(fmt.Sprint(a.Digest), maxCell))
	row("shown", oneLine(a.ShownDigest, maxCell)) // for approve --shown
	row("arguments", argumentText(a))
	if len(a.AlsoSent) > 0 {
		row("also sent", argumentText(casefile.Approval{Arguments: a.AlsoSent, ArgumentsTruncated: a.AlsoSent.Kind() == '"'}))
	}
	row("result", resultText(a.Result))
	return b.String()
}

// summary returns what matters most of one approval, in a few lines whatever an
// agent has written.
func (s *screen) summary(a casefile.Approval) string {
	return row("id", string(a.ID)) +
		row("tool", markedName(a.Tool, 60)+" ("+oneLine(a.Method, 60)+" on upstream "+oneLine(a.Upstream, 60)+")") +
		row("risk", s.riskText(a.Hints.Risk())) + row("requester", requester(a))
}

// agentCell says in few words whether the agent is there for its call.
func agentCell(a casefile.Approval, now time.Time) string {
	switch {
	case a.Agent == nil:
		return "-"
	case a.Agent.Presence == task.OwnerGone:
		return "gone " + span(now.Sub(a.Agent.LastContact))
	default:
		return oneLine(string(a.Agent.Presence), maxCell)
	}
}

// agentText says whether the agent is there, and what that means for an approval.
func agentText(a casefile.Approval) string {
	if a.Agent == nil {
		return ""
	}
	text := oneLine(a.Agent.Text, maxCell)
	if a.State == task.InputRequired && a.Agent.Presence == task.OwnerGone {
		text += "; if it is approved, it runs when the agent asks again"
	}
	return text
}

// riskText returns a risk in red if it is the worst.
func (s *screen) riskText(r casefile.Risk) string {
	if r == casefile.RiskDestroys {
		return s.paint(red, string(r))
	}
	return string(r)
}

// resultText returns what the tool answered, or nothing if there is no answer.
func resultText(r *casefile.Result) string {
	if r == nil {
		return ""
	}
	kind := map[task.ResultKind]string{
		task.ResultOK: "", task.ResultToolError: ", the tool reports an error", task.ResultRPCError: ", the tool's server reports an error",
	}[r.Kind]
	text := fmt.Sprintf("%d bytes%s (written by the tool's server)", r.Size, kind)
	if r.Value == nil {
		return text + "\nit cannot be read any more"
	}
	if r.Truncated {
		text += "\n(this is only the beginning)"
	}
	return text + "\n" + argumentText(casefile.Approval{Arguments: r.Value})
}

// standing says how far a call is, in colour.
func (s *screen) standing(a casefile.Approval) string {
	switch a.State {
	case task.InputRequired:
		return s.paint(yellow, stateName(a)+approvedSoFar(a))
	case task.Approved, task.Executing, task.Completed:
		return s.paint(green, fate(a, time.Now()))
	default:
		return s.paint(red, fate(a, time.Now()))
	}
}

func approvedSoFar(a casefile.Approval) string {
	if len(a.Approvals) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of %d approvals)", len(a.Approvals), a.Quorum)
}

// stateName returns the state in an approver's word for it.
func stateName(a casefile.Approval) string {
	if a.State == task.InputRequired {
		return "pending"
	}
	return oneLine(string(a.State), maxCell)
}

// fate says what became of a call, and through whom.
func fate(a casefile.Approval, now time.Time) string {
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
		ran := map[task.Ran]string{task.RanNo: "it did not run", task.RanYes: "it ran"}
		text += ": " + cmp.Or(oneLine(f.Reason, maxCell), oneLine(string(f.Stage), maxCell)) +
			"; " + cmp.Or(ran[f.Ran], "outcome unknown: it may have run")
	}
	return text
}

func decisionText(d task.Decision, now time.Time) string {
	text := oneLine(d.By, maxCell) + " " + span(now.Sub(d.At)) + " ago"
	if d.Grant != "" {
		text = oneLine(d.By, maxCell) + ", by standing approval " + oneLine(string(d.Grant), maxCell)
	}
	if d.UnreadBytes > 0 {
		text += fmt.Sprintf(", without reading everything (%d bytes not read)", d.UnreadBytes)
	}
	if d.Reason != "" {
		text += " (" + oneLine(d.Reason, maxCell) + ")"
	}
	return text
}

func quorumText(a casefile.Approval) string {
	if a.Quorum < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d must approve)", a.Quorum)
}

func requester(a casefile.Approval) string {
	if a.Anonymous {
		return "anonymous"
	}
	return markedName(a.Principal, maxCell)
}

// hintText returns what the upstream says of its tool.
func hintText(h *casefile.Hints) string {
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

// argumentText returns the arguments over as many lines as they need.
func argumentText(a casefile.Approval) string {
	if len(a.Arguments) == 0 {
		return "none"
	}
	if a.ArgumentsTruncated {
		return argumentStart(a, maxArguments) + "\n(truncated)" // a gate of another version
	}
	text := a.Arguments.Clone()
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		return "unreadable"
	}
	return plain.Escape(string(text))
}

// argumentStart returns the text of arguments that are too long to be sent whole.
func argumentStart(a casefile.Approval, most int) string {
	text, err := jsontext.AppendUnquote(nil, a.Arguments)
	if err != nil {
		return "unreadable"
	}
	return oneLine(string(text), most)
}

// callText returns the tool and its arguments on one line.
func callText(a casefile.Approval) string {
	arguments := oneLine(string(a.Arguments), maxCell)
	if a.ArgumentsTruncated {
		arguments = argumentStart(a, maxCell)
	}
	return strings.TrimSpace(markedName(a.Tool, 60) + " " + arguments)
}

// span returns a length of time as people say it.
func span(d time.Duration) string {
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
	return shorten(strings.ReplaceAll(plain.Escape(text), "\n", `\n`), limit)
}

// paragraph returns foreign text with its lines.
func paragraph(text string) string { return shorten(plain.Escape(text), maxText) }

func shorten(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit]) + "…"
}
