package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A callView is the content of the page of a held call.
type callView struct {
	review.Details

	args   valueTree
	also   valueTree // the content besides the arguments
	answer valueTree // the result
	whole  *fullText // the arguments in the view of everything
	beside *fullText // the other content in that view
	alike  []string  // warnings about values with characters that look like others
	find   string
	reason string // from the form of a decision that did not count

	correction string // the arguments in the form of a rejection with a correction

	confirm confirmation

	list  selection         // the list that the page was opened from
	place review.Place      // the place of a pending call in that list
	same  []review.Approval // other calls that the form can decide together with this one
}

// mayCorrect reports whether the operator can reject the call with a correction. The form has all arguments.
func (d callView) mayCorrect() bool {
	return d.Objection == nil && d.confirm.problem == "" && d.Correction != nil
}

// corrects reports whether the operator has typed a correction that did not count.
func (d callView) corrects() bool { return d.correction != string(d.Correction) }

// maxRows is the height of the largest field for corrected arguments, in lines.
const maxRows = 16

// correctionRows returns the height of the field for corrected arguments.
func (d callView) correctionRows() string {
	return strconv.Itoa(min(maxRows, 2+strings.Count(d.correction, "\n")))
}

// correctedLines returns the arguments that were approved instead of those of the call.
func (d callView) correctedLines() []line {
	return newFullText(jsontext.Value(d.Rejection.Correction.Arguments)).lines
}

// maxFind is the length of the longest search text.
const maxFind = 200

// viewAll is the view of a call that shows everything.
const viewAll = "all"

// newCallView prepares a call for a view, and searches its arguments for find. It stops
// when ctx ends.
func newCallView(ctx context.Context, c review.Details, view, find string) (callView, error) {
	d := callView{
		Details: c, find: strings.ToValidUTF8(find[:min(len(find), maxFind)], ""), alike: review.ValueWarnings(c.AllArguments, c.AllAlsoSent),
	}
	var err error
	if d.args, err = newValueTree(ctx, c, d.find); err != nil {
		return d, err
	}
	if d.also, err = newValueTree(ctx, review.Details{AllArguments: c.AllAlsoSent, RedactedArguments: c.RedactedAlsoSent}, ""); err != nil {
		return d, err
	}
	if r := c.Result; r != nil {
		d.answer, err = newValueTree(ctx, review.Details{AllArguments: r.Value, RedactedArguments: r.Redacted}, "")
	}
	if view == viewAll {
		d.whole, d.beside = newFullText(c.AllArguments), newFullText(c.AllAlsoSent)
	}
	return d, cmp.Or(err, ctx.Err())
}

// judgedText says by which definition policy judged a call of a changed tool.
func judgedText(c toolhistory.Change) string {
	if c.Hints == "" { // the tool differs from the lock file
		return ""
	}
	return "Policy judged this call by the earlier definition. "
}

// changedTitle says which tools have changed.
func changedTitle(since review.ToolChange) string {
	switch len(since.Tools) {
	case 0:
		return "The tool has changed since it was last approved"
	case 1:
		return "The tool " + since.Tools[0] + " has changed since it was last approved"
	default:
		return "The tools " + strings.Join(since.Tools, ", ") + " have changed since they were last approved"
	}
}

// changedTool begins a sentence about the changed tool.
func changedTool(since review.ToolChange) string {
	if len(since.Tools) > 0 {
		return "The server now describes " + since.Tools[0]
	}
	return "Its server now describes it"
}

func resultTitle(d callView) string {
	switch d.Result.Kind {
	case task.ResultToolError:
		return "Result: the tool reports an error"
	case task.ResultRPCError:
		return "Result: the tool’s server reports an error"
	default:
		return "Result"
	}
}

// resultText describes how much of the result is shown.
func resultText(d callView) string {
	size := bytesText(int(d.Result.Size))
	switch {
	case d.Result.Value == nil:
		return size + ". It can no longer be read."
	case d.Result.Truncated:
		return "The first part of " + size + ". The tool’s server wrote it."
	default:
		return size + ". The tool’s server wrote it."
	}
}

// unread returns the number of bytes of the call that are folded or not on the page.
func (d callView) unread() int {
	if d.whole != nil {
		return d.left()
	}
	return d.args.unread() + d.also.unread()
}

// left returns the number of bytes of the call that are not on the page.
func (d callView) left() int {
	if d.whole != nil {
		return d.whole.left + d.beside.left
	}
	return d.args.left + d.also.left
}

// readValue returns the form value for a page that shows everything, or "".
func (d callView) readValue() string {
	if d.unread() == 0 {
		return readAll
	}
	return ""
}

// view returns the view for a form.
func (d callView) view() string {
	if d.whole != nil {
		return viewAll
	}
	return ""
}

// wholeTitle says what the page with everything shows of the arguments.
func wholeTitle(d callView) string {
	if d.whole.left > 0 {
		return "The first part of what will be sent, as JSON."
	}
	return "Everything that will be sent, as JSON."
}

// noArguments reports whether the arguments are an empty object or list.
func (d callView) noArguments() bool {
	root := d.args.root
	return d.whole == nil && len(root.inner) == 0 && (root.kind == "object" || root.kind == "array")
}

// title returns the name of the called object.
func (d callView) title() []textRun {
	if d.whole != nil {
		return nameUpTo(d.Name, 0).runs
	}
	return nameUpTo(d.Name, maxTitle).runs
}

// A risk is the presentation of a call's risk.
type risk struct {
	label string
	tone  string
}

func riskOf(a review.Approval) risk {
	r := risk{label: string(a.Hints.Risk())}
	switch a.Hints.Risk() {
	case review.RiskDestroys:
		r.tone = "bad"
	case review.RiskReads:
		r.tone = "good"
	case review.RiskChanges:
		r.tone = "calm" // not good, which is for calls that only read
	case review.RiskUnknown:
		r.tone = "waiting"
	}
	return r
}

// A status is the state of a held call, in words.
type status struct {
	label string // one or two words
	text  string // a sentence or two
	tone  string // the colour: waiting, good, bad or calm
}

// statusOf returns the state of a in words.
func statusOf(a review.Approval, now time.Time) status {
	switch a.State {
	case task.InputRequired:
		return status{"Waiting", quorumText(a), "waiting"}
	case task.Approved:
		return status{approvedLabel(a), approvedBy(a, now) + " " + a.Next, "good"}
	case task.Executing:
		return status{"Running", approvedBy(a, now) + " It runs now.", "good"}
	case task.Completed:
		return status{approvedLabel(a), approvedBy(a, now) + " It ran, and the agent can fetch the result.", "good"}
	case task.Rejected:
		return status{"Rejected", rejectedBy(a, now) + " " + lifecycle.RanText(task.RanNo), "bad"}
	case task.Cancelled:
		return status{"Withdrawn", endText(a, lifecycle.StageCancelled), "calm"}
	case task.Expired:
		return status{"Expired", expiredText(a), "calm"}
	case task.Failed:
		return status{"Failed", failedText(a, now), "bad"}
	default:
		return status{"Accepted", "It is being processed.", "calm"}
	}
}

// gone reports whether the agent of a call is not present.
func gone(a review.Approval) bool {
	return a.Agent != nil && a.Agent.Presence == gatetask.OwnerGone
}

// goneText explains the effect of an approval if the agent is gone, or returns "".
func goneText(a review.Approval) string {
	if a.State != task.InputRequired || !gone(a) {
		return ""
	}
	return "If it is approved, it runs when the agent asks again."
}

// approvedLabel returns the label of a call that may run.
func approvedLabel(a review.Approval) string {
	if a.NoApprovalNeeded {
		return "No approval needed"
	}
	return "Approved"
}

// decided reports whether a call was approved or rejected.
func decided(a review.Approval) bool {
	return a.Rejection != nil || len(a.Approvals) >= max(1, a.Quorum)
}

func expiredText(a review.Approval) string {
	switch {
	case a.NoApprovalNeeded:
		return "It needed no approval. " + endText(a, lifecycle.StageUncollected)
	case decided(a):
		return "It was approved. " + endText(a, lifecycle.StageUncollected)
	default:
		return endText(a, lifecycle.StageApprovalTimeout)
	}
}

func failedText(a review.Approval, now time.Time) string {
	text := endText(a, lifecycle.StageUpstreamError)
	if a.Failure != nil && a.Failure.Stage == lifecycle.StageShutdown {
		return text
	}
	return approvedBy(a, now) + " " + text
}

// endText says why a call ended without a result, and whether it reached the tool. The usual
// stage is for calls without a stored failure.
func endText(a review.Approval, usual task.Stage) string {
	f := cmp.Or(a.Failure, &task.Failure{Stage: usual, Ran: task.RanNo})
	return strings.TrimSpace(lifecycle.WordsOf(f.Stage).Approver + " " + lifecycle.RanText(f.Ran))
}

func approvedBy(a review.Approval, now time.Time) string {
	if len(a.Approvals) == 0 {
		return "It needed no approval."
	}
	last := a.Approvals[len(a.Approvals)-1]
	if last.Grant != "" {
		return "Allowed by the standing approval of " + approversOf(a) + "."
	}
	return "Approved by " + approversOf(a) + " " + ago(now.Sub(last.At)) + said(last.Reason)
}

// approversOf lists the people who have approved a call.
func approversOf(a review.Approval) string {
	names := make([]string, 0, len(a.Approvals))
	for _, d := range a.Approvals {
		names = append(names, d.By)
	}
	return listed(names, "and")
}

func rejectedBy(a review.Approval, now time.Time) string {
	if a.Rejection == nil {
		return "It was rejected."
	}
	text := "Rejected by " + a.Rejection.By + " " + ago(now.Sub(a.Rejection.At)) + said(a.Rejection.Reason)
	if a.Rejection.Correction != nil {
		text += " With a correction: one call with other arguments was approved instead."
	}
	return text
}

func said(reason string) string {
	if reason == "" {
		return "."
	}
	return ": “" + visible(strings.ReplaceAll(reason, "\n", " ")) + "”."
}

// quorumText says how many approvals a pending call has and needs.
func quorumText(a review.Approval) string {
	need, have := max(1, a.Quorum), len(a.Approvals)
	if need == 1 {
		return "1 approval is needed."
	}
	text := fmt.Sprintf("%d of %d approvals", have, need)
	if have > 0 {
		text += ", by " + approversOf(a)
	}
	return text + fmt.Sprintf(". %s needed.", counted(need-have, "more approval"))
}

// approversText lists the people who may decide.
func approversText(approvers []string) string {
	if len(approvers) == 0 {
		return "Any approver may decide."
	}
	names := make([]string, 0, len(approvers))
	for _, a := range approvers {
		if group, ok := policy.Group(a); ok {
			a = "the group " + group
		}
		if role, ok := policy.Role(a); ok {
			a = "users with the role " + role
		}
		names = append(names, a)
	}
	return "Only " + listed(names, "or") + " can decide."
}

// whyText returns the reason for holding a call.
func whyText(a review.Approval) string {
	w := a.HeldBy
	switch {
	case w == nil:
		return a.Reason
	case len(w.Policies) == 1:
		return "The Cedar policy " + w.Policies[0] + " allows this only with approval."
	case len(w.Policies) > 1:
		return "The Cedar policies " + listed(w.Policies, "and") + " allow this only with approval."
	case w.Label == "":
		return "No rule matches this " + subject(a) + ", and calls without a matching rule need approval."
	case a.Method == review.MethodBatch:
		return fmt.Sprintf("Held by %s (%s), which matches a call in this batch.", w.Label, w.Match)
	default:
		return fmt.Sprintf("Held by %s (%s).", w.Label, w.Match)
	}
}

// requests are the requests other than the call of a tool, by method.
var requests = map[string]struct{ subject, verb string }{
	mcpname.ResourcesRead:      {"resource", "read this resource"},
	mcpname.ResourcesSubscribe: {"resource", "follow this resource"},
	mcpname.PromptsGet:         {"prompt", "use this prompt"},
	review.MethodBatch:         {"batch", "make all of these calls"},
}

// subject returns the kind of the called object.
func subject(a review.Approval) string { return cmp.Or(requests[a.Method].subject, "tool") }

// verb returns the request as a verb with its object.
func verb(a review.Approval) string { return cmp.Or(requests[a.Method].verb, "run this tool") }

// requester returns the name of the requester.
func requester(a review.Approval) string {
	if a.Anonymous {
		return "an anonymous agent"
	}
	return a.Principal
}

// A hint is an annotation of a tool by its server.
type hint struct{ text, tone string }

func hintsOf(a review.Approval) []hint {
	h := a.Hints
	if h == nil {
		return nil
	}
	var hints []hint
	add := func(flag *bool, text, tone string) {
		if flag != nil && *flag {
			hints = append(hints, hint{text, tone})
		}
	}
	add(h.Destructive, "may destroy something", "bad")
	add(h.ReadOnly, "only reads", "good")
	add(h.OpenWorld, "reaches the outside world", "waiting")
	add(h.Idempotent, "safe to repeat", "calm")
	return hints
}

// ago returns a past duration in words.
func ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return span(d) + " ago"
}

// span returns a duration rounded for people, in one or two units.
func span(d time.Duration) string {
	d = max(0, d)
	h, m, s := int(d/time.Hour), int(d/time.Minute)%60, int(d/time.Second)%60
	switch {
	case h >= 48:
		return fmt.Sprintf("%d d", h/24)
	case h > 0:
		return fmt.Sprintf("%d h %02d min", h, m)
	case m >= 10:
		return fmt.Sprintf("%d min", m)
	case m > 0:
		return fmt.Sprintf("%d min %02d s", m, s)
	default:
		return fmt.Sprintf("%d s", s)
	}
}

// listed joins names with commas and a conjunction.
func listed(names []string, conjunction string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + conjunction + " " + names[len(names)-1]
}

// objectionText says why the reader cannot approve.
func objectionText(d callView) string {
	switch {
	case d.Objection == nil:
		return ""
	case errors.Is(d.Objection, lifecycle.ErrSelfApproval):
		return "You cannot approve a call from your own agent. You can reject it."
	case errors.Is(d.Objection, approval.ErrOnlyRejects):
		return "Your role lets you reject this call, but not approve it. To approve, sign in as an approver; for the inbox of your own gates, thoughtgate desk link prints the link."
	case errors.Is(d.Objection, lifecycle.ErrAlreadyDecided):
		return "You have approved this. " + quorumText(d.Approval)
	default:
		return "You are not one of the approvers of this workflow. " + approversText(d.Approvers)
	}
}
