package channel

import (
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Text is a question in plain text, which channels must send without interpreting markup.
type Text struct {
	Title    string   // the headline and the tool
	Facts    []string // such as the requester and the reason for holding
	Cautions []string
	Content  string // everything that the agent sent: JSON, and "no arguments" or "Also sent:" on a line
	Outcome  string // the decisions and the failure, on lines; may be empty
	Hint     string // why the pending call cannot be approved where this text is shown; "" if it can
}

// NotWhole is the [Text.Hint] of a text that does not show the whole call.
const NotWhole = "This does not show the whole call. Open it to read and approve it."

// Lines returns the text without the title and the content.
func (t Text) Lines() []string {
	all := slices.Concat(t.Facts, t.Cautions, []string{t.Outcome, t.Hint})
	return slices.DeleteFunc(all, func(line string) bool { return line == "" })
}

// Limits are the greatest lengths of the parts of a [Text], for [Cut].
type Limits struct {
	Title   int
	Fact    int // each
	Note    int // each caution, and the outcome
	Content int
}

// ChatLimits are limits with which a text has at most 4,000 characters, or 6,000 if all
// punctuation outside of the content is escaped with one character.
var ChatLimits = Limits{Title: 140, Fact: 160, Note: 300, Content: 1600}

// maxLabel is the length of a label before a name.
const maxLabel = 40

// Text returns q as text within limits. A text that does not show the whole call has a
// [Text.Hint]: the message must have no button to approve the call.
func (q Question) Text(l Limits) Text {
	a := q.Approval
	t := Text{Title: Cut(q.Headline()+": "+a.Tool, l.Title), Facts: q.facts(l.Fact), Outcome: Cut(outcome(a), l.Note)}
	if len(a.Warnings) > 0 {
		t.Cautions = append(t.Cautions, Cut("Caution: "+strings.Join(a.Warnings, " "), l.Note))
	}
	if q.Changed != nil {
		t.Cautions = append(t.Cautions, Cut("Caution: "+q.Changed.Text()+".", l.Note))
	}
	content := contentOf(a)
	t.Content = Cut(content, l.Content)
	whole := t.Content == content && !a.ArgumentsTruncated && a.UnreadBytes == 0
	//mutate:swap " && q.Changed == nil" "" internal/channel/slack.TestChangedToolNotApprovedInSlack a call of a changed tool is approved in a chat
	//mutate:swap "fits(a, l)" "(fits(a, l) || whole)" internal/channel/slack.TestLongNameNotApprovedInSlack a call with a truncated name is approved in a chat
	whole = whole && fits(a, l) && q.Changed == nil // the inbox shows the new description
	switch {
	case q.Stage != Pending:
	case a.Confirm != "":
		t.Hint = "Approving needs your passkey. Open the call to approve it."
	//mutate:swap "!whole" "!whole && false" internal/channel/slack.TestHostileTextStaysText a call that was not shown as a whole is approved in a chat
	case !whole:
		t.Hint = NotWhole
	}
	return t
}

// Summary returns the text of a notification, without arguments.
func (q Question) Summary(limit int) string {
	return Cut(q.Headline()+": "+q.Approval.Tool+" for "+q.Approval.Principal, limit)
}

// ReminderText returns the text of a reminder, without arguments. The limit is that of each
// name.
func (q Question) ReminderText(limit int) string {
	a := q.Approval
	call := Cut(a.Tool, limit) + " for " + Cut(a.Principal, limit) + "."
	text := "Still waiting for a decision: " + call
	if q.NewlyEscalated {
		text = "Still waiting, and escalated: " + call + " The approvers of the workflow " + q.Escalated + " may now decide as well."
	}
	return text + " Decide before " + a.ExpiresAt.UTC().Format("2 January 15:04 UTC") + "."
}

// fits reports whether a text shows the names and warnings of a call without truncating
// them.
func fits(a review.Approval, l Limits) bool {
	short := func(text string, limit int) bool { return length(text) <= limit-maxLabel }
	return short(a.Tool, l.Title) && short(a.Principal, l.Fact) && short(a.Upstream, l.Fact) && short(a.Method, l.Fact) &&
		short(strings.Join(a.Warnings, " "), l.Note)
}

// facts returns facts about a call, each within the limit.
func (q Question) facts(limit int) []string {
	a := q.Approval
	all := []string{"Requested by: " + a.Principal, "Server: " + a.Upstream, "Request: " + a.Method, "Held because: " + a.Reason}
	if a.Risk != "" {
		all = append(all, "Risk: "+string(a.Risk))
	}
	if q.Stage == Pending && !a.ExpiresAt.IsZero() {
		all = append(all, "Decide before "+a.ExpiresAt.UTC().Format("2 January 15:04 UTC"))
	}
	if q.Escalated != "" && q.Stage == Pending {
		all = append(all, "Escalated to: "+q.Escalated)
	}
	if a.ClientReason != nil {
		all = append(all, "The agent says (not verified): "+a.ClientReason.Text)
	}
	for i := range all {
		all[i] = Cut(oneLine(all[i]), limit)
	}
	return all
}

// contentOf returns the arguments and the other content of a call.
func contentOf(a review.Approval) string {
	text := indented(a.Arguments)
	if len(a.AlsoSent) > 0 {
		text += "\nAlso sent:\n" + indented(a.AlsoSent)
	}
	if text == "" {
		return "no arguments"
	}
	return text
}

// indented returns JSON on several lines. Many spaces in a string would look like empty lines
// in a chat, so they are escaped.
func indented(v jsontext.Value) string {
	v = v.Clone()
	_ = v.Indent(jsontext.WithIndent("  ")) // a value that is not JSON stays as it is
	return manySpaces.ReplaceAllStringFunc(string(v), func(text string) string {
		before := strings.TrimRight(text, " ")
		return before + strings.Repeat(`\u0020`, len(text)-len(before))
	})
}

// manySpaces matches many spaces that are not the indentation of a line, and what is before them.
var manySpaces = regexp.MustCompile(`[^ \n] {20,}`)

// outcome returns the decisions and the failure of a call.
func outcome(a review.Approval) string {
	var lines []string
	for _, d := range a.Approvals {
		lines = append(lines, "Approved by "+d.ByText())
	}
	if a.Rejection != nil {
		lines = append(lines, strings.TrimSuffix("Rejected by "+Rejector(*a.Rejection)+": "+a.Rejection.Reason, ": "))
	}
	if a.Failure != nil && isFailure(a) {
		lines = append(lines, "It failed: "+a.Failure.Reason)
	}
	for i := range lines {
		lines[i] = oneLine(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Rejector returns the name of the approver who rejected a call, and whether they approved another
// one instead.
func Rejector(d gatetask.Decision) string {
	if d.Correction == nil {
		return d.ByText()
	}
	return d.ByText() + " with a correction (one call with other arguments was approved instead)"
}

// oneLine returns text without line breaks, after which an agent could write a fact of its own.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

// isFailure reports whether an approved call failed or did not run in time. Rejected and
// withdrawn calls have a Failure too.
func isFailure(a review.Approval) bool {
	approved := len(a.Approvals) >= max(1, a.Quorum)
	return a.State == task.Failed || a.State == task.Expired && approved
}

// units returns the length of r in UTF-16. The limits of some services are in UTF-16, those
// of others in characters.
func units(r rune) int {
	if r > 0xFFFF {
		return 2
	}
	return 1
}

func length(text string) (n int) {
	for _, r := range text {
		n += units(r)
	}
	return n
}

// Cut returns a text of at most the given length in UTF-16, with an ellipsis if it was
// truncated.
func Cut(text string, limit int) string {
	n, end := 0, 0
	for i, r := range text {
		if n += units(r); n > limit {
			return text[:end] + "…"
		}
		if n < limit {
			end = i + len(string(r))
		}
	}
	return text
}
