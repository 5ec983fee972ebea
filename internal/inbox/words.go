package inbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A detail is what the page of a held call shows.
type detail struct {
	casefile.Case

	args   outline
	also   outline  // what is sent besides
	answer outline  // what the tool answered
	whole  []line   // the arguments as one text, if everything is to be shown
	beside []line   // and what is sent besides
	alike  []string // which values have letters that may be taken for others
	find   string
	reason string // that was typed with a decision that does not count
}

// maxFind is how long what is searched for may be.
const maxFind = 200

// newDetail lays out a call, looking for find in its arguments.
func newDetail(c casefile.Case, find string) (detail, error) {
	d := detail{
		Case: c, find: strings.ToValidUTF8(find[:min(len(find), maxFind)], ""), alike: casefile.AlikeValues(c.Whole, c.Beside),
	}
	var err error
	if d.args, err = newOutline(c, d.find); err != nil {
		return d, err
	}
	if d.also, err = newOutline(casefile.Case{Whole: c.Beside, Redacted: c.RedactedBeside}, ""); err != nil {
		return d, err
	}
	if r := c.Result; r != nil {
		d.answer, err = newOutline(casefile.Case{Whole: r.Value, Redacted: r.Redacted}, "")
	}
	return d, err
}

// changedTitle says which tools have changed.
func changedTitle(since casefile.Precedent) string {
	switch len(since.Tools) {
	case 0:
		return "The tool has changed since it was last approved"
	case 1:
		return "The tool " + since.Tools[0] + " has changed since it was last approved"
	default:
		return "The tools " + strings.Join(since.Tools, ", ") + " have changed since they were last approved"
	}
}

// changedTool says of which tool the last approved call was.
func changedTool(since casefile.Precedent) string {
	if len(since.Tools) > 0 {
		return "The server now describes " + since.Tools[0]
	}
	return "Its server now describes it"
}

func resultTitle(d detail) string {
	switch d.Result.Kind {
	case task.ResultToolError:
		return "Result: the tool reports an error"
	case task.ResultRPCError:
		return "Result: the tool’s server reports an error"
	default:
		return "Result"
	}
}

// resultText says how much of the result is shown.
func resultText(d detail) string {
	size := bytesText(int(d.Result.Size))
	switch {
	case d.Result.Value == nil:
		return size + ". It cannot be read any more."
	case d.Result.Truncated:
		return "The first part of " + size + ". The tool’s server wrote it."
	default:
		return size + ". The tool’s server wrote it."
	}
}

// unread returns how many bytes of the call the page does not show at once.
func (d detail) unread() int {
	if d.whole != nil {
		return 0
	}
	return d.args.unread() + d.also.unread()
}

// left returns how many bytes of the call are not on the page.
func (d detail) left() int {
	if d.whole != nil {
		return 0
	}
	return d.args.left + d.also.left
}

// readValue says in a form that everything was shown.
func (d detail) readValue() string {
	if d.unread() == 0 {
		return readAll
	}
	return ""
}

// title returns the name of what is called.
func (d detail) title() []run {
	if d.whole != nil {
		return nameUpTo(d.Name, 0).runs
	}
	return nameUpTo(d.Name, maxTitle).runs
}

// A risk is how pages show what may come of a call: in the list, and at its
// button.
type risk struct {
	label  string
	button string
	tone   string
}

func riskOf(a casefile.Approval) risk {
	r := risk{label: string(a.Hints.Risk()), button: "Approve"}
	switch a.Hints.Risk() {
	case casefile.RiskDestroys:
		r.button, r.tone = "Approve: may destroy", "bad"
	case casefile.RiskReads:
		r.tone = "good"
	case casefile.RiskChanges:
		r.tone = "calm" // only what changes nothing looks harmless
	case casefile.RiskUnknown:
		r.tone = "waiting"
	}
	return r
}

// A status is the state of a held call, in words.
type status struct {
	label string // one or two words
	text  string // a sentence or two
	tone  string // waiting, good, bad or calm: for the eye
}

// statusOf returns the state of a in words.
func statusOf(a casefile.Approval, now time.Time) status {
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
		return status{"Rejected", rejectedBy(a, now) + " It did not run.", "bad"}
	case task.Cancelled:
		return status{"Withdrawn", "The agent withdrew it. " + ranText(a), "calm"}
	case task.Expired:
		return status{"Expired", expiredText(a), "calm"}
	case task.Failed:
		return status{"Failed", failedText(a, now), "bad"}
	default:
		return status{"Accepted", "It is being processed.", "calm"}
	}
}

// goneText says what an approval comes to while the agent is gone.
func goneText(a casefile.Approval) string {
	if a.State != task.InputRequired || a.Agent == nil || a.Agent.Presence != task.OwnerGone {
		return ""
	}
	return "If it is approved, it runs when the agent asks again."
}

// approvedLabel says why a call may run.
func approvedLabel(a casefile.Approval) string {
	if a.NoApprovalNeeded {
		return "No approval needed"
	}
	return "Approved"
}

// decided reports whether a call was approved or rejected.
func decided(a casefile.Approval) bool {
	return a.Rejection != nil || len(a.Approvals) >= max(1, a.Quorum)
}

func expiredText(a casefile.Approval) string {
	if a.NoApprovalNeeded {
		return "It needed no approval, but the agent did not come back in time. " + ranText(a)
	}
	if a.Failure != nil && a.Failure.Stage == task.StageExecutionTimeout {
		return "It was approved, and had not ended when its time was over. " + ranText(a)
	}
	if decided(a) {
		return "It was approved, but the agent did not come back in time. " + ranText(a)
	}
	return "Nobody decided in time. " + ranText(a)
}

func failedText(a casefile.Approval, now time.Time) string {
	text := approvedBy(a, now) + " "
	if a.Failure == nil {
		return text + "It failed."
	}
	if a.Failure.Stage == task.StageShutdown {
		return "The gate stopped and could not keep it. " + ranText(a)
	}
	if outcome, ok := fixedOutcomes[a.Failure.Stage]; ok {
		return text + outcome
	}
	if cause, ok := failureCauses[a.Failure.Stage]; ok {
		return text + cause + " " + ranText(a)
	}
	return text + ranText(a)
}

// fixedOutcomes describe failures that leave no doubt whether the call ran.
var fixedOutcomes = map[task.Stage]string{
	task.StageToolDrift:     "By then the tool had changed. It did not run, and needs a new approval.",
	task.StagePolicyDrift:   "By then policy no longer allowed it. It did not run.",
	task.StageArgumentDrift: "The call was no longer the one that was shown. It did not run.",
	task.StageUncollected:   "The agent did not come back for it. It did not run.",
	task.StageUpstreamError: "It ran, and the tool’s server answered with an error.",
}

// failureCauses describe failures after which the call may have run.
var failureCauses = map[task.Stage]string{
	task.StageUpstreamUnreachable: "The tool’s server could not be reached.",
	task.StageUpstreamTimeout:     "It took too long.",
	task.StageExecutionTimeout:    "It took too long.",
	task.StageUpstreamInvalid:     "The tool’s server sent an invalid answer.",
	task.StageExecutorLost:        "The gate was interrupted while it ran.",
}

// ranText says whether the call reached the tool.
func ranText(a casefile.Approval) string {
	if a.Failure == nil {
		return "It did not run."
	}
	switch a.Failure.Ran {
	case task.RanYes:
		return "It did run."
	case task.RanUnknown:
		return "Outcome unknown: it may have run."
	default:
		return "It did not run."
	}
}

func approvedBy(a casefile.Approval, now time.Time) string {
	if len(a.Approvals) == 0 {
		return "It needed no approval."
	}
	names := make([]string, 0, len(a.Approvals))
	for _, d := range a.Approvals {
		names = append(names, d.By)
	}
	last := a.Approvals[len(a.Approvals)-1]
	if last.Grant != "" {
		return "Allowed by the standing approval of " + listed(names, "and") + "."
	}
	return "Approved by " + listed(names, "and") + " " + ago(now.Sub(last.At)) + said(last.Reason)
}

func rejectedBy(a casefile.Approval, now time.Time) string {
	if a.Rejection == nil {
		return "It was rejected."
	}
	return "Rejected by " + a.Rejection.By + " " + ago(now.Sub(a.Rejection.At)) + said(a.Rejection.Reason)
}

func said(reason string) string {
	if reason == "" {
		return "."
	}
	return ": “" + visible(strings.ReplaceAll(reason, "\n", " ")) + "”."
}

// quorumText says what a pending call still needs.
func quorumText(a casefile.Approval) string {
	need, have := max(1, a.Quorum), len(a.Approvals)
	if need == 1 {
		return "One approval lets it run."
	}
	names := make([]string, 0, have)
	for _, d := range a.Approvals {
		names = append(names, d.By)
	}
	text := fmt.Sprintf("%d of %d approvals", have, need)
	if have > 0 {
		text += ", by " + listed(names, "and")
	}
	return text + fmt.Sprintf(". It needs %s.", countedPeople(need-have))
}

func countedPeople(n int) string {
	if n == 1 {
		return "one more person"
	}
	return fmt.Sprintf("%d more people", n)
}

// approversText says who decides.
func approversText(approvers []string) string {
	if len(approvers) == 0 {
		return "Any approver may decide."
	}
	names := make([]string, 0, len(approvers))
	for _, a := range approvers {
		if group, ok := strings.CutPrefix(a, "group:"); ok {
			a = "the group " + group
		}
		if role, ok := strings.CutPrefix(a, "role:"); ok {
			a = "anybody with the role " + role
		}
		names = append(names, a)
	}
	return "Only " + listed(names, "or") + " can decide."
}

// whyText says what held a call.
func whyText(a casefile.Approval) string {
	w := a.Why
	switch {
	case w == nil:
		return a.Reason
	case len(w.Policies) == 1:
		return "The Cedar policy " + w.Policies[0] + " allows this only with approval."
	case len(w.Policies) > 1:
		return "The Cedar policies " + listed(w.Policies, "and") + " allow this only with approval."
	case w.Label == "":
		return "No rule matches this " + subject(a) + ", and calls without a matching rule need approval."
	case a.Method == casefile.MethodBatch:
		return fmt.Sprintf("%s wants approval for what matches %s, and something in this batch does.", ruleName(w), w.Match)
	default:
		return fmt.Sprintf("%s wants approval for every %s that matches %s.", ruleName(w), subject(a), w.Match)
	}
}

// ruleName returns what begins a sentence about a rule.
func ruleName(w *casefile.Why) string {
	return "The rule " + strings.TrimPrefix(w.Label, "rule ")
}

// subject says what kind of thing a call is about.
func subject(a casefile.Approval) string {
	switch a.Method {
	case "resources/read", "resources/subscribe":
		return "resource"
	case "prompts/get":
		return "prompt"
	case casefile.MethodBatch:
		return "batch"
	default:
		return "tool"
	}
}

// requester says who wants a call made.
func requester(a casefile.Approval) string {
	if a.Anonymous {
		return "an anonymous agent"
	}
	return a.Principal
}

// A hint is what a tool’s server says of it, in words.
type hint struct{ text, tone string }

func hintsOf(a casefile.Approval) []hint {
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

// ago returns how long something is past.
func ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return span(d) + " ago"
}

// span returns a duration for people: its largest unit, or two while that is
// small.
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

// listed joins names as a sentence does.
func listed(names []string, conjunction string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + conjunction + " " + names[len(names)-1]
}

// objectionText says why the one who looks cannot approve.
func objectionText(d detail) string {
	switch {
	case d.Objection == nil:
		return ""
	case errors.Is(d.Objection, task.ErrSelfApproval):
		return "You cannot approve a call from your own agent. You can reject it."
	case errors.Is(d.Objection, task.ErrAlreadyDecided):
		return "You have approved this. " + quorumText(d.Approval)
	default:
		return "You are not one of the approvers of this workflow. " + approversText(d.Approvers)
	}
}
