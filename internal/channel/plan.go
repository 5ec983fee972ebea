package channel

import (
	"cmp"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Plan says where people are asked about a call, and when they are asked again. The
// zero Plan asks nobody.
type Plan struct {
	Channels []string
	Remind   []float64 // shares, between 0 and 1, of the time that people have
	Escalate Escalation
	Quiet    Quiet
}

// An Escalation is when others are asked too. The zero Escalation is never.
type Escalation struct {
	After    float64 // the share of the time
	Workflow string  // whose approvers may decide then as well
	Channels []string
}

// Quiet are the hours of the day in which nobody is reminded. The zero Quiet has none.
// From and To are counted from midnight; From may be after To.
type Quiet struct {
	From, To time.Duration
	Zone     *time.Location
}

// until returns the end of the quiet hours in which t is, or t if it is in none.
func (q Quiet) until(t time.Time) time.Time {
	if q.From == q.To {
		return t
	}
	local := t.In(q.Zone)
	year, month, day := local.Date()
	clock := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute
	at := func(day int) time.Time {
		return time.Date(year, month, day, 0, int(q.To/time.Minute), 0, 0, q.Zone)
	}
	switch {
	case q.From < q.To && clock >= q.From && clock < q.To, q.From > q.To && clock < q.To:
		return at(day)
	case q.From > q.To && clock >= q.From:
		return at(day + 1)
	default:
		return t
	}
}

// A nudge is a reminder, or the note that a call was escalated.
type nudge struct {
	at         time.Time
	escalation bool // the approvers of another workflow may decide from then on
}

// share returns when a share of the time is over that people have to decide t.
func share(t task.Task, part float64) time.Time {
	return t.CreatedAt.Add(time.Duration(part * float64(t.Approval.Deadline.Sub(t.CreatedAt))))
}

// nudges returns the nudges about t on a channel, in their order. A nudge of quiet hours
// comes at their end, if there is still time then. An escalation waits for no quiet hours
// on a channel of the workflow to which t is escalated: there it is the question.
func (p Plan) nudges(t task.Task, channel string) (all []nudge) {
	if t.Approval == nil {
		return nil
	}
	add := func(at time.Time, escalation bool) {
		if at.Before(t.Approval.Deadline) {
			all = append(all, nudge{at, escalation})
		}
	}
	for _, part := range p.Remind {
		add(p.Quiet.until(share(t, part)), false)
	}
	if p.Escalate.After > 0 {
		at := share(t, p.Escalate.After)
		if !slices.Contains(p.Escalate.Channels, channel) {
			at = p.Quiet.until(at)
		}
		add(at, true)
	}
	slices.SortStableFunc(all, func(a, b nudge) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	return all
}

// asks returns when t is to be asked about on a channel; never if ok is false.
func (p Plan) asks(t task.Task, channel string) (at time.Time, ok bool) {
	if t.State != task.InputRequired || t.Approval == nil {
		return time.Time{}, false
	}
	if slices.Contains(p.Channels, channel) {
		return t.CreatedAt, true
	}
	if p.Escalate.After > 0 && slices.Contains(p.Escalate.Channels, channel) {
		return share(t, p.Escalate.After), true
	}
	return time.Time{}, false
}

// escalated returns the workflow whose approvers may decide about t too by now, if
// there is one.
func (p Plan) escalated(t task.Task, now time.Time) string {
	if p.Escalate.After > 0 && !now.Before(share(t, p.Escalate.After)) {
		return p.Escalate.Workflow
	}
	return ""
}
