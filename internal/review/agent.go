package review

import (
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// An Agent describes the presence of the agent that made a call.
type Agent struct {
	Presence    gatetask.Presence `json:"presence"`
	LastContact time.Time         `json:"lastContact"`
	PollSeconds int               `json:"pollSeconds,omitzero"` // poll interval of a polling agent
	Text        string            `json:"text"`                 // the same in words
}

// agentOf returns the presence of the agent of t, or nil once it no longer matters.
func agentOf(t task.Task, now time.Time) *Agent {
	if t.State != task.InputRequired && t.State != task.Approved {
		return nil
	}
	a := &Agent{Presence: t.Presence(now), LastContact: t.ContactAt}
	switch a.Presence {
	case gatetask.OwnerWaits:
		a.Text = "Agent is waiting"
	case gatetask.OwnerPolls:
		a.PollSeconds = max(1, int(t.PollInterval.Round(time.Second)/time.Second))
		a.Text = fmt.Sprintf("Agent asks every %d s", a.PollSeconds)
	case gatetask.OwnerGone:
		a.Text = "Agent gone for " + span(now.Sub(t.ContactAt))
	}
	return a
}

// span returns a length of time in its largest unit.
func span(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	default:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	}
}

// A RunsWhen says what starts an approved call.
type RunsWhen string

// When an approved call runs.
const (
	RunsAtOnce      RunsWhen = "at once"
	RunsWhenPresent RunsWhen = "present" // its agent waits or polls
	RunsWhenFetched RunsWhen = "fetched" // its agent asks for the result
)

// nextOf describes what happens next to the approved call t. It returns "" in other states.
func (v *Viewer) nextOf(t task.Task, agent *Agent, until time.Time) string {
	if t.State != task.Approved {
		return ""
	}
	when := v.cfg.RunsWhen()
	limit := ", until " + clockText(until, v.cfg.Now()) + "."
	switch {
	case when == RunsAtOnce:
		return "It runs now."
	case agent.Presence == gatetask.OwnerWaits:
		return "It runs now: the agent is waiting."
	case when == RunsWhenFetched:
		return "It will run when the agent asks for the result" + limit
	case agent.Presence == gatetask.OwnerPolls:
		return fmt.Sprintf("It will run when the agent asks again, which it does every %d s", agent.PollSeconds) + limit
	default:
		return "It will run when the agent asks again" + limit
	}
}

// clockText returns a time of day, with the date unless it is today.
func clockText(at, now time.Time) string {
	at, now = at.UTC(), now.UTC()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format("15:04 UTC")
	}
	return at.Format("2 January 15:04 UTC")
}
