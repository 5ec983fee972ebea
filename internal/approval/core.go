package approval

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A core is what all parts of a desk share: the store, the clock, the settings
// and who is informed.
type core struct {
	cfg     Config // without its settings
	current atomic.Pointer[Settings]
	leases  leases
	work    work
}

func newCore(c Config) *core {
	return &core{cfg: c, work: work{closing: make(chan struct{}), kill: make(chan struct{})}}
}

func (c *core) settings() *Settings { return c.current.Load() }

func (c *core) observe(ctx context.Context, e Event) {
	if c.cfg.Observe != nil {
		c.cfg.Observe(ctx, e)
	}
}

// withInterval returns t as its owner sees it: with the poll interval that fits
// the time that is left, or that the upstream wants, within bounds.
func (c *core) withInterval(t task.Task) task.Task {
	t.PollInterval = c.settings().Polling.Interval(t.Remaining(c.cfg.Now()))
	if nested(t) && t.Execution.PollInterval > 0 {
		t.PollInterval = c.settings().Polling.Clamp(t.Execution.PollInterval)
	}
	return t
}

// updater returns what changes tasks and records each change in the journal.
func (c *core) updater() task.Updater {
	return task.Updater{Store: c.cfg.Store, Notes: notesOf, Alive: c.alive}
}

// rechecker is updater for a task that was judged again.
func (c *core) rechecker(v policy.Verdict) task.Updater {
	return task.Updater{Store: c.cfg.Store, Notes: func(before, after task.Task, e task.Event) []task.Note {
		notes := notesOf(before, after, e)
		for i := range notes {
			if v.Snapshot != "" {
				notes[i].PolicySnapshot, notes[i].Verdict = v.Snapshot, plain.Text(v.Reason, casefile.MaxReason)
			}
		}
		return notes
	}}
}

// report logs why housekeeping was not done. A store that is in trouble is logged
// elsewhere.
func (c *core) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, task.ErrUnavailable) {
		c.cfg.Log.ErrorContext(ctx, "housekeeping", "error", err)
	}
}

// busy reports whether somebody is at work on t.
func (c *core) busy(t task.Task) bool {
	return !t.Execution.Detached() && !c.cfg.Now().After(t.Execution.LeaseUntil)
}

// alive reports whether this desk is at work on t, so that its executor is not
// dead, even if a clock that was set forward, or a store that was out of reach,
// makes it seem so.
func (c *core) alive(t task.Task) bool {
	return t.Execution != nil && c.leases.held(t.Execution.Executor)
}

// newExecutor returns the name of one more run of this desk. No other run has it, so
// what an earlier run stores late is not taken for what the present one does.
func (c *core) newExecutor() string { return c.cfg.Name + executorMark + rand.Text() }

// executorMark is between the name of a replica and that of its run.
const executorMark = "#"

// runs reports whether executor is a run of this desk, be it over.
func (c *core) runs(executor string) bool {
	return strings.HasPrefix(executor, c.cfg.Name+executorMark)
}

// stale reports whether t was approved too long ago. A task past its own time
// expires instead.
func (c *core) stale(t task.Task, now time.Time) bool {
	w, _ := c.workflow(t)
	until := casefile.ValidUntil(t, w.Validity)
	return until.Before(t.ExpiresAt) && now.After(until)
}

// workflow returns the workflow of t: as it is configured now, or, if a gate with
// another configuration holds t, as that gate had it then.
func (c *core) workflow(t task.Task) (Workflow, bool) {
	home := casefile.ReadFacts(t).Home
	if c.isHome(home) {
		return c.cfg.Workflow(t.Workflow)
	}
	return Workflow{
		Approvers: home.Approvers, SelfApproval: home.SelfApproval, Redact: home.Redact,
		Validity:   time.Duration(home.ValidSeconds * float64(time.Second)),
		Escalation: Escalation{After: home.EscalateAfter, Approvers: home.EscalateTo},
		Grants:     grantstore.Limits{Longest: time.Duration(home.GrantSeconds * float64(time.Second)), Uses: home.GrantUses},
	}, true
}

func (c *core) isHome(h *casefile.Home) bool { return h == nil || h.Gate == c.cfg.Name }

// Holds reports whether t, of which an outline is enough, was held by this gate or by
// one with the same configuration.
func (d *Desk) Holds(t task.Task) bool { return d.isHome(casefile.ReadFacts(t).Home) }

// home returns what this gate says of itself in a call that it holds for w, or nil
// if all gates that share the store have the same configuration.
func (c *core) home(w Workflow) *casefile.Home {
	if !c.cfg.Mixed {
		return nil
	}
	return &casefile.Home{
		Gate: c.cfg.Name, Approvers: w.Approvers, Redact: w.Redact, SelfApproval: w.SelfApproval, ValidSeconds: w.Validity.Seconds(),
		EscalateAfter: w.Escalation.After, EscalateTo: w.Escalation.Approvers,
		GrantSeconds: w.Grants.Longest.Seconds(), GrantUses: w.Grants.Uses,
	}
}

// terms returns what the workflow of t says about showing it.
func (c *core) terms(t task.Task) (casefile.Terms, bool) {
	w, known := c.workflow(t)
	w = w.escalated(t, c.cfg.Now())
	return casefile.Terms{Approvers: w.Approvers, Redact: w.Redact, Validity: w.Validity, Grants: w.Grants}, known
}

// runsWhen returns what approved calls need in order to run.
func (c *core) runsWhen() casefile.RunsWhen {
	switch c.settings().Start {
	case StartOnApproval:
		return casefile.RunsAtOnce
	case StartOnResult:
		return casefile.RunsWhenFetched
	default:
		return casefile.RunsWhenPresent
	}
}

func (c *core) notReady(id task.ID, t task.Task, cause error) error {
	return &task.Error{
		Kind: task.KindNotReady, ID: id, State: t.State, Action: task.ActionWatch, Err: cause,
		RetryAfter: c.withInterval(t).PollInterval,
	}
}

func closedError(id task.ID, a task.Action) error {
	return &task.Error{Kind: task.KindClosed, ID: id, Action: a, Suggest: "try again in a moment"}
}

// overtaken reports whether err means that somebody else was faster.
func overtaken(err error) bool {
	return errors.Is(err, task.ErrConcurrentModification) || errors.Is(err, task.ErrInvalidTransition) ||
		errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired)
}
