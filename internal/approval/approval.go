// Package approval is the desk at which calls wait for people. It holds a call
// as a [task.Task], takes the decisions of approvers, and has an approved call
// made: at most once, as it was shown, and only while its owner is there.
//
// The [Desk] keeps no state of its own that matters: what is pending is in the
// store, and any number of desks may work on one store. A desk has in
// memory which owners are present here: owners that wait in a request of theirs
// ([Desk.Wait]) and owners that asked a moment ago ([Desk.Contact]), each with
// a [Sender] that makes the call in their name. So nobody's credentials are
// ever stored.
//
// A call that the upstream makes a task of runs there, and nothing is done
// about it here until somebody asks: then the upstream is asked, in the name of
// whoever does. No process is at work on it meanwhile, so any replica can go on
// with it. See [task.Execution].
//
// The package knows neither HTTP nor how tasks look in messages to clients; those
// are matters of transports and of package mcptask.
package approval

import (
	"context"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
)

// A Desk holds calls, takes decisions and runs what was approved. It is safe
// for concurrent use. The program must call [Desk.Run], and [Desk.Close] in
// the end.
type Desk struct {
	*core
	*visits
	*decider
	*grants

	contacts    *contacts
	canceller   *canceller
	tasks       *tasks
	cases       *casefile.Viewer
	runner      *runner
	holder      *holder
	housekeeper *housekeeper
}

// New returns a desk.
func New(c Config) (*Desk, error) {
	if c.Store == nil || c.Judge == nil || c.Workflow == nil {
		return nil, errors.New("approval: a desk needs a store, a policy and workflows")
	}
	c.defaults()
	c.Store = recorded{c.Store, c.Log, c.Recorded}
	c.Now = (&clock{read: c.Now, log: c.Log}).now
	d := &Desk{core: newCore(c)}
	if err := d.Configure(c.Settings); err != nil {
		return nil, err
	}
	spools, pace := newSpools(), &pace{}
	d.contacts = newContacts(d.core)
	d.canceller = &canceller{core: d.core, contacts: d.contacts}
	d.tasks = &tasks{core: d.core, contacts: d.contacts, canceller: d.canceller}
	d.cases = casefile.New(casefile.Config{
		Store: c.Store, Get: d.tasks.get, Terms: d.terms, RunsWhen: d.runsWhen, Now: c.Now, Closing: d.work.closing, Log: c.Log,
	})
	d.grants = newGrants(d.core, d.cases)
	d.runner = &runner{core: d.core, contacts: d.contacts, canceller: d.canceller, tasks: d.tasks, spools: spools, grants: d.grants}
	d.holder = &holder{core: d.core, tasks: d.tasks, cases: d.cases, grants: d.grants, pace: pace}
	d.decider = &decider{core: d.core, contacts: d.contacts, tasks: d.tasks, runner: d.runner, cases: d.cases, grants: d.grants}
	d.visits = &visits{core: d.core, contacts: d.contacts, canceller: d.canceller, tasks: d.tasks, runner: d.runner, spools: spools}
	d.housekeeper = &housekeeper{core: d.core, contacts: d.contacts, tasks: d.tasks, runner: d.runner, pace: pace}
	return d, nil
}

// Cases returns what shows the held calls of this desk to people.
func (d *Desk) Cases() *casefile.Viewer { return d.cases }

// Configure replaces the settings. Calls under way go on with the old settings or
// with the new ones.
func (d *Desk) Configure(s Settings) error {
	switch s.Start {
	case "":
		s.Start = StartOnContact
	case StartOnContact, StartOnResult:
	case StartOnApproval:
		if d.cfg.Send == nil {
			return errors.New("approval: to start on approval the gate needs credentials of its own")
		}
	default:
		return errors.New("approval: unknown start " + string(s.Start))
	}
	s.defaults()
	d.current.Store(&s)
	return nil
}

// Close ends the desk's work. Requests that wait are released at once and
// nothing new begins. Calls that run are waited for until ctx ends, and then
// interrupted. With a store that does not outlive the process every pending
// task then fails, for its owner to try again elsewhere; with a durable one
// they stay as they are, and so do tasks that upstreams made of them: another
// process goes on with those. [Desk.Run] is ended by its own context.
func (d *Desk) Close(ctx context.Context) error {
	if !d.work.close() {
		return nil
	}
	d.contacts.close()
	err := d.work.drain(ctx, d.settings().Cancel)
	if d.cfg.Durable {
		brief, stop := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		defer stop()
		d.housekeeper.logHead(brief, loggedHead{})
		return err
	}
	own, stop := context.WithTimeout(context.WithoutCancel(ctx), maxSilence+d.settings().Cancel)
	defer stop()
	d.canceller.cancelAll(own)
	n, failed := d.updater().FailPending(own, d.cfg.Name, d.cfg.Now())
	if n > 0 {
		d.observe(ctx, Event{Step: ShutDown, Count: n})
	}
	return errors.Join(err, failed)
}
