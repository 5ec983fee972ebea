package inbox

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

const (
	pageSize = 30          // calls on a page of the history
	oneWait  = time.Second // for the store to take the calls that were not written yet
)

// A search selects calls of the history.
type search struct {
	outcome                         outcome
	text, tool, requester, approver string
	from, to                        time.Time // the beginning, inclusive, and the end, exclusive; may be zero
	cursor                          string
}

// An outcome is a filter of the history.
type outcome struct {
	name, label string
	event       callrecord.Event
	has         func(pastCall) bool
}

// forAdmins reports whether only administrators may see the calls of o.
func (o outcome) forAdmins() bool { return o.event == callrecord.Judged }

var outcomes = []outcome{
	{"", "All decided or ended", callrecord.Ended, func(pastCall) bool { return true }},
	{"approved", "Approved", callrecord.Ended, func(c pastCall) bool {
		return !c.NoApprovalNeeded && slices.Contains([]task.State{task.Approved, task.Executing, task.Completed, task.Failed}, c.State) && decided(c.Approval)
	}},
	{"rejected", "Rejected", callrecord.Ended, func(c pastCall) bool { return c.State == task.Rejected }},
	{"expired", "Expired", callrecord.Ended, func(c pastCall) bool { return c.State == task.Expired }},
	{"withdrawn", "Withdrawn by the agent", callrecord.Ended, func(c pastCall) bool { return c.State == task.Cancelled }},
	{"unasked", "No approval needed", callrecord.Ended, func(c pastCall) bool { return c.NoApprovalNeeded }},
	{"forwarded", "Forwarded, not held", callrecord.Judged, func(c pastCall) bool { return c.entry.Action == policy.Forward }},
	{"denied", "Denied or refused", callrecord.Judged, func(c pastCall) bool {
		return c.entry.Action == policy.Deny || c.entry.Outcome == callrecord.Refused
	}},
}

// outcomesFor returns the outcomes that an operator may ask for.
func outcomesFor(who operator.Operator) []outcome {
	return slices.DeleteFunc(slices.Clone(outcomes), func(o outcome) bool {
		//mutate:false TestHistoryOfOtherCalls a viewer sees the calls that were forwarded
		return o.forAdmins() && !who.Role.Includes(operator.Admin)
	})
}

// readSearch reads the search of a request.
func readSearch(q url.Values, who operator.Operator) search {
	get := func(name string) string {
		text := strings.TrimSpace(q.Get(name))
		return strings.ToValidUTF8(text[:min(len(text), callrecord.MaxText)], "")
	}
	known := outcomesFor(who)
	at := max(0, slices.IndexFunc(known, func(o outcome) bool { return o.name == q.Get("outcome") }))
	return search{
		outcome: known[at], text: get("q"), tool: get("tool"), requester: get("requester"), approver: get("approver"),
		from: readDay(q.Get("from"), 0), to: readDay(q.Get("to"), 1), cursor: q.Get("cursor"),
	}
}

// readDay reads a time, or a day in UTC, to which it adds days. Other text is the zero time.
func readDay(text string, days int) time.Time {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at
	}
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at.AddDate(0, 0, days)
	}
	return time.Time{}
}

// link returns the address of the page after a cursor.
func (s *search) link(cursor string) string {
	return withValues("/history", map[string]string{
		"outcome": s.outcome.name, "q": s.text, "tool": s.tool, "requester": s.requester, "approver": s.approver,
		"from": atText(s.from), "to": atText(s.to), "cursor": cursor,
	})
}

// atText returns a time for a link. The zero time is empty.
func atText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// dayText returns a time as a day in UTC, for a field. The zero time is empty.
func dayText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.DateOnly)
}

// lastDay returns a time in the day before the end of a range.
func lastDay(end time.Time) time.Time {
	if end.IsZero() {
		return end
	}
	return end.Add(-time.Nanosecond)
}

// narrow reports whether s leaves out calls.
func (s *search) narrow() bool { return s.link("") != "/history" }

// detailed reports whether s leaves out calls other than by their text.
func (s search) detailed() bool {
	s.text = ""
	return s.narrow()
}

// selects reports whether s selects c. The text and the time are checked elsewhere.
func (s *search) selects(c pastCall) bool {
	return s.outcome.has(c) && hasPart(s.tool, c.Name) && hasPart(s.requester, requester(c.Approval)) && (s.approver == "" || hasPart(s.approver, c.deciders()...))
}

// hasPart reports whether one of the texts contains part, in any case.
func hasPart(part string, texts ...string) bool {
	return part == "" || slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(part))
	})
}

// A pastCall is a call of the history: a recorded one, or one that was approved and has not ended.
type pastCall struct {
	review.Approval

	entry *callrecord.Entry // nil if it has not ended
}

// newPastCall returns a recorded call.
func newPastCall(e *callrecord.Entry) pastCall {
	a := review.Approval{
		ID: task.ID(e.ID), Tool: safetext.Name(e.Name, maxName), Name: e.Name, Method: e.Method, Upstream: e.Upstream,
		Principal: safetext.Name(e.Principal, maxName), Anonymous: e.Principal == "",
		Arguments: e.Arguments, CreatedAt: e.Time, NoApprovalNeeded: e.Action == policy.Forward, Explanation: review.Explanation{Workflow: e.Workflow},
	}
	if e.Event == callrecord.Ended {
		a.State, a.Arguments, a.ArgumentsTruncated, a.CreatedAt, a.Decisions = task.State(e.Outcome), e.Shown, e.Cut, e.Time.Add(-e.Took), decisionsIn(e)
	}
	if e.Stage != "" {
		a.Failure = &task.Failure{Stage: e.Stage, Ran: e.Ran}
	}
	return pastCall{a, e}
}

// decisionsIn returns the recorded decisions.
func decisionsIn(e *callrecord.Entry) (d review.Decisions) {
	for _, by := range e.By {
		d.Approvals = append(d.Approvals, gatetask.Decision{By: by, At: e.Decided, Grant: gatetask.GrantID(e.Grant)})
	}
	if d.Quorum = len(e.By); e.Decided.IsZero() {
		d.Quorum++
	}
	if len(e.By) == 0 {
		return d
	}
	last := &d.Approvals[len(e.By)-1]
	if last.Reason = e.Reason; e.Outcome == string(task.Rejected) {
		d.Rejection, d.Approvals = last, d.Approvals[:len(e.By)-1]
	}
	return d
}

// deciders returns the people who decided.
func (c pastCall) deciders() (names []string) {
	for _, d := range c.Approvals {
		names = append(names, d.By)
	}
	if c.Rejection != nil {
		names = append(names, c.Rejection.By)
	}
	return names
}

// at returns when c was decided, or when it ended.
func (c pastCall) at() time.Time {
	switch {
	case c.Rejection != nil:
		return c.Rejection.At
	case decided(c.Approval) && len(c.Approvals) > 0:
		return c.Approvals[len(c.Approvals)-1].At
	case c.entry != nil:
		return c.entry.Time
	default:
		return c.CreatedAt
	}
}

// link returns the address of the page of c.
func (c pastCall) link() string {
	path := "/approvals/" + url.PathEscape(string(c.ID))
	if c.entry != nil && c.entry.Event == callrecord.Judged {
		path = "/history/call"
	}
	ref := ""
	if c.entry != nil {
		ref = c.entry.Ref
	}
	return withValues(path, map[string]string{"entry": ref})
}

// status returns what became of c, in words.
func (c pastCall) status(now time.Time) status {
	s := statusOf(c.Approval, now)
	switch {
	case c.entry != nil && c.entry.Event == callrecord.Judged:
		return judgedStatus(c.entry)
	case c.State == task.Completed: // the result may be gone
		s.text = approvedBy(c.Approval, now) + " It ran."
	}
	return s
}

// judgedStatus returns what became of a call that was not held.
func judgedStatus(e *callrecord.Entry) status {
	by := " by " + e.Rule + "."
	if e.Rule == callrecord.ByDefault {
		by = ", because no rule matched."
	}
	if e.Observed != "" {
		by = ", but " + e.Rule + " would have said " + string(e.Observed) + "."
	}
	switch {
	case e.Outcome == callrecord.Refused:
		return status{"Refused", "It did not run.", "bad"}
	case e.Action == policy.Deny:
		return status{"Denied", "Denied" + by, "bad"}
	default:
		return status{"Forwarded", "Forwarded" + by + " Outcome: " + e.Outcome + ".", "calm"}
	}
}

// history shows the calls that were decided or have ended.
func (i *Inbox) history(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	v := historyView{search: readSearch(r.URL.Query(), who), outcomes: outcomesFor(who), off: !i.cfg.Record.Records()}
	err := i.findPast(r.Context(), &v)
	if err == nil && !v.search.narrow() && v.search.cursor == "" {
		v.changes, err = i.cfg.Changes(r.Context())
	}
	if err != nil {
		return err
	}
	return i.page(w, r, who, page{section: "history", title: "History"}, func(f frame) templ.Component { return historyPage(f, v) })
}

// A historyView is the content of the history.
type historyView struct {
	search search

	outcomes   []outcome // that the operator may ask for
	calls      []pastCall
	next       string // cursor of the next page
	off        bool   // nothing is recorded
	unreadable int    // blocks of the record that could not be read
	changes    []task.Note
}

// findPast adds the calls that v selects: first those that have not ended, then recorded ones.
func (i *Inbox) findPast(ctx context.Context, v *historyView) error {
	s := &v.search
	if s.cursor == "" && !s.outcome.forAdmins() {
		if err := i.findLive(ctx, v); err != nil {
			return err
		}
	}
	i.flushRecord(ctx)
	found, err := i.cfg.Viewer.Recorded(ctx, callrecord.Filter{
		Since: s.from, Until: s.to, Event: s.outcome.event, Text: s.text, Before: s.cursor, Limit: max(1, pageSize-len(v.calls)),
		Match: func(e *callrecord.Entry) bool { return s.selects(newPastCall(e)) },
	})
	if err != nil {
		return err
	}
	for _, e := range found.Entries {
		v.calls = slices.DeleteFunc(v.calls, func(c pastCall) bool { return string(c.ID) == e.ID }) // it has ended now
		v.calls = append(v.calls, newPastCall(&e))
	}
	v.next, v.unreadable = found.Next, found.Unreadable
	return nil
}

// flushRecord makes the store have the calls that have ended, if it takes them in time.
func (i *Inbox) flushRecord(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, oneWait)
	defer stop()
	i.cfg.Record.Flush(ctx)
}

// findLive adds the calls that were approved, but have not ended.
func (i *Inbox) findLive(ctx context.Context, v *historyView) error {
	s := &v.search
	live, err := i.cfg.Viewer.Pending(ctx, review.Filter{States: []task.State{task.Approved, task.Executing}, Text: s.text, Limit: pageSize})
	for _, a := range live.Approvals {
		c := pastCall{Approval: a}
		if at := c.at(); s.selects(c) && !at.Before(s.from) && (s.to.IsZero() || at.Before(s.to)) {
			v.calls = append(v.calls, c)
		}
	}
	return err
}

// A storyView is what was recorded of a call.
type storyView struct {
	call  *pastCall        // nil if the record does not have it
	story []auditlog.Entry // from the journal
}

// showStory shows what was recorded of a held call that was deleted.
func (i *Inbox) showStory(w http.ResponseWriter, r *http.Request, who operator.Operator, id task.ID) error {
	story, err := i.cfg.Viewer.History(r.Context(), id)
	if err != nil && !errors.Is(err, task.ErrNotFound) {
		return err
	}
	v := storyView{story: story}
	if v.call = i.recordedEnd(r, id, story); v.call == nil && len(story) == 0 {
		return err
	}
	return i.page(w, r, who, page{title: v.tool(), self: r.URL.RequestURI()}, func(f frame) templ.Component { return storyPage(f, v) })
}

// recordedEnd returns the recorded end of a held call, or nil if it is not found: at the reference that
// the request names, or at the time that the journal has.
func (i *Inbox) recordedEnd(r *http.Request, id task.ID, story []auditlog.Entry) *pastCall {
	if ref := r.URL.Query().Get("entry"); ref != "" {
		e, err := callrecord.At(r.Context(), i.cfg.Viewer.Records(), ref)
		if err == nil && e.ID == string(id) && e.Event == callrecord.Ended {
			c := newPastCall(&e)
			return &c
		}
	}
	at := slices.IndexFunc(story, func(e auditlog.Entry) bool { return e.To.Terminal() })
	if at < 0 {
		return nil
	}
	i.flushRecord(r.Context())
	p, err := callrecord.Find(r.Context(), i.cfg.Viewer.Records(), callrecord.Filter{ID: string(id), Event: callrecord.Ended, Since: story[at].At.Add(-time.Second), Limit: 1})
	if err != nil || len(p.Entries) == 0 {
		i.cfg.Log.DebugContext(r.Context(), "a call is not in the record", "err", err)
		return nil
	}
	c := newPastCall(&p.Entries[0])
	return &c
}

// recordedCall shows the entry of a call that was not held.
func (i *Inbox) recordedCall(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	ref := r.URL.Query().Get("entry")
	e, err := callrecord.At(r.Context(), i.cfg.Viewer.Records(), ref)
	if err != nil {
		return err
	}
	c := newPastCall(&e)
	v := storyView{call: &c}
	return i.page(w, r, who, page{title: v.tool()}, func(f frame) templ.Component { return storyPage(f, v) })
}

// tool returns the escaped name of the tool.
func (v storyView) tool() string {
	if v.call != nil {
		return v.call.Tool
	}
	return v.story[0].Tool
}

// arguments returns what was recorded of the arguments as text with line numbers, or nil.
func (v storyView) arguments() *fullText {
	if v.call == nil || len(v.call.Arguments) == 0 {
		return nil
	}
	if v.call.ArgumentsTruncated {
		return fullTextOf(plainValue(v.call.Arguments))
	}
	return newFullText(v.call.Arguments)
}

// A fact is a line of the details of a call.
type fact struct{ name, value string }

// facts returns the details of a call.
func (v storyView) facts() []fact {
	if len(v.story) > 0 {
		e := v.story[0]
		return []fact{
			{"Why it was held", e.Verdict},
			{"Workflow", e.Workflow},
			{"Policy snapshot", e.PolicySnapshot},
			{"Digest of the call", short(e.ArgumentDigest.String())},
			{"Digest of the definition", short(e.ToolDigest)},
			{"Request", string(e.Task)},
		}
	}
	e := v.call.entry
	return slices.DeleteFunc([]fact{
		{"Request", e.ID},
		{"Kind of request", e.Method},
		{"Decided by", e.Rule},
		{"Cedar policies", strings.Join(e.Policies, ", ")},
		{"Workflow", e.Workflow},
		{"Outcome", e.Outcome},
		{"Time until then", tookText(e.Took)},
		{"Policy snapshot", e.Snapshot},
		{"Keyed digest of the arguments", e.Digest},
	}, func(f fact) bool { return f.value == "" })
}

// tookText returns a duration in words. That of 0 is empty.
func tookText(d time.Duration) string {
	if 0 < d && d < time.Second {
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	if d <= 0 {
		return ""
	}
	return span(d)
}

// olderText is the text of the link to older calls.
func olderText(v historyView) string {
	if len(v.calls) == 0 {
		return "Look further back"
	}
	return "Older"
}
