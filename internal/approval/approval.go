// Package approval holds tool calls until a person approves them. A held call is a [task.Task]:
// [Service.Hold] creates it, [Service.Decide] records the decisions of approvers, and an approved
// call runs at most once, exactly as its approvers saw it, and only while its owner is present.
//
// The store has all pending work, so any number of services can share one store. A [Service] keeps
// in memory only which owners are present: those that wait in a request ([Service.Wait]) and those
// that polled recently ([Service.Contact]), each with a [Sender] that makes the call with the
// owner's credentials. Credentials are never stored.
//
// When the upstream makes a task of a call, the call runs there. The service asks the upstream
// about that task when the owner asks about the held call, so any replica can continue with it.
// See [task.Execution].
//
// The package does not know HTTP or the wire format of tasks. Transports and package mcptask do.
package approval

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/passkey"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Service holds calls, takes decisions and runs approved calls. It is safe for concurrent use.
// The program must call [Service.Run], and [Service.Close] at the end.
type Service struct {
	env         *env
	workflows   *workflows
	leases      *leases
	background  *background
	contacts    *contacts
	canceller   *canceller
	tasks       *tasks
	viewer      *review.Viewer
	grants      *grants
	confirmer   *confirmer
	runner      *runner
	holder      *holder
	decider     *decider
	waiter      *waiter
	housekeeper *housekeeper
}

// New returns a service.
func New(c Config) (*Service, error) {
	if c.Store == nil || c.Judge == nil || c.Workflow == nil {
		return nil, errors.New("approval: Config needs Store, Judge and Workflow")
	}
	c.defaults()
	c.Store = recorded{c.Store, c.Log, c.Recorded, c.Ended}
	c.Now = (&clock{read: c.Now, log: c.Log}).now
	leases := &leases{gate: c.Name, now: c.Now}
	s := &Service{env: newEnv(c, leases), leases: leases, background: newBackground()}
	if err := s.Configure(c.Settings); err != nil {
		return nil, err
	}
	s.workflows = &workflows{named: c.Workflow, gate: c.Name, mixed: c.Mixed, now: c.Now}
	answers, pace := newPartialAnswers(), &ownerRates{}
	s.contacts = newContacts(s.env)
	s.canceller = &canceller{env: s.env, leases: leases, background: s.background, contacts: s.contacts}
	s.tasks = &tasks{env: s.env, contacts: s.contacts, canceller: s.canceller}
	s.viewer = review.New(review.Config{
		Store: c.Store, Get: s.tasks.get, Workflow: s.workflows.shown, RunsWhen: s.env.runsWhen, Now: c.Now, Closing: s.background.closing, Log: c.Log,
	})
	stored := grantstore.Store{Records: c.Store}
	s.confirmer = &confirmer{
		env: s.env, workflows: s.workflows, passkeys: passkey.Store{Records: c.Store, Journal: c.Store, Now: c.Now}, grants: stored,
	}
	s.grants = &grants{env: s.env, workflows: s.workflows, viewer: s.viewer, confirmer: s.confirmer, stored: stored}
	s.runner = &runner{
		env: s.env, workflows: s.workflows, leases: leases, background: s.background,
		contacts: s.contacts, canceller: s.canceller, tasks: s.tasks, answers: answers, grants: s.grants, confirmer: s.confirmer,
	}
	s.holder = &holder{
		env: s.env, workflows: s.workflows, background: s.background,
		contacts: s.contacts, tasks: s.tasks, viewer: s.viewer, grants: s.grants, rates: pace,
	}
	s.decider = &decider{
		env: s.env, workflows: s.workflows,
		contacts: s.contacts, tasks: s.tasks, runner: s.runner, viewer: s.viewer, grants: s.grants, confirmer: s.confirmer,
	}
	s.waiter = &waiter{env: s.env, background: s.background, contacts: s.contacts, canceller: s.canceller, tasks: s.tasks, runner: s.runner, answers: answers}
	s.housekeeper = &housekeeper{env: s.env, workflows: s.workflows, contacts: s.contacts, tasks: s.tasks, runner: s.runner, rates: pace}
	return s, nil
}

// Viewer returns the viewer that shows held calls to operators.
func (s *Service) Viewer() *review.Viewer { return s.viewer }

// Configure replaces the settings. Calls that are running may use the old or the new settings.
func (s *Service) Configure(c Settings) error {
	switch c.Start {
	case "":
		c.Start = StartOnContact
	case StartOnContact, StartOnResult:
	case StartOnApproval:
		if s.env.send == nil {
			return errors.New("approval: execution.start: approval needs credentials of the gate")
		}
	default:
		return errors.New("approval: unknown start " + string(c.Start))
	}
	c.defaults()
	s.env.current.Store(&c)
	return nil
}

// Close stops the service. It releases waiting requests at once and starts nothing new. It waits
// for running calls until ctx ends, and then interrupts them. If the store does not outlive the
// process, every pending task fails as retriable. With a durable store pending tasks and upstream
// tasks stay as they are, and another process continues with them. Close does not end
// [Service.Run]: its context does.
func (s *Service) Close(ctx context.Context) error {
	if !s.background.close() {
		return nil
	}
	s.contacts.close()
	err := s.background.drain(ctx, s.env.settings().Cancel)
	if s.env.durable {
		brief, stop := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		defer stop()
		s.housekeeper.logHead(brief, journalHead{})
		return err
	}
	own, stop := context.WithTimeout(context.WithoutCancel(ctx), waitPoll+s.env.settings().Cancel)
	defer stop()
	s.canceller.cancelAll(own)
	n, failed := s.env.updater.FailPending(own, s.env.name, s.env.now())
	if n > 0 {
		s.env.observe(ctx, Event{Step: ShutDown, Count: n})
	}
	return errors.Join(err, failed)
}

// A Start says when an approved call starts.
type Start string

// When an approved call starts.
const (
	StartOnContact  Start = "contact"  // when its owner waits, polls, or polled recently
	StartOnApproval Start = "approval" // at once, with the gate's configured credentials
	StartOnResult   Start = "result"   // when its owner asks for the result; asking for the status is not enough
)

// A Config configures a [Service]. Store, Judge and Workflow are required; other zero fields have
// defaults.
type Config struct {
	Store   gatestore.Store
	Durable bool // tasks outlive the process
	Mixed   bool // gates with other configurations and upstreams share the store

	// Judge asks the current policy. Workflow returns the current settings of a workflow.
	Judge    func(policy.Call) policy.Verdict
	Workflow func(name string) (Workflow, bool)

	// Send returns a sender with the gate's configured credentials. StartOnApproval requires
	// it. It also cancels upstream work for a task whose owner is absent. If the store is
	// Mixed, Send returns nil for an upstream that this gate does not have.
	Send func(task.Task) Sender

	Settings

	Lease time.Duration // an executor that is silent for longer counts as dead; 30 s

	Name    string           // of this replica; must be unique; random by default
	Now     func() time.Time // the clock; the service never lets it go back
	Log     *slog.Logger
	Observe func(context.Context, Event) // called with every step; must not block

	// Recorded is called after every write to the journal, with the notes and the error, if any.
	Recorded func(notes []task.Note, err error)

	// Ended is called with every task that has ended; may be nil. It must not block for long.
	Ended func(task.Task)
}

// Settings are the part of a [Config] that can change while the service runs. Zero fields have
// defaults.
type Settings struct {
	Start     Start       // StartOnContact
	Limits    task.Limits // on pending tasks; the service sets Unique and the limits of groups
	Shares    Shares
	Retrieval time.Duration
	MaxTTL    time.Duration // see [task.TTLRules] for MaxTTL and Retrieval
	Execution time.Duration // limits the run of a call, and the fetch of a result; 60 s
	Poll      time.Duration // limits asking an upstream for the status of its task; 10 s
	Cancel    time.Duration // limits sending a cancellation; 5 s
	MaxResult int64         // the largest result that is stored, in bytes; 1 GiB
	Polling   task.Polling
	Variables task.VariableLimits

	Sweep     time.Duration // interval of housekeeping; 10 s
	Keep      time.Duration // how long an ended task is kept after its expiry; 1 h
	Retention time.Duration // how long journal entries are kept; 0 keeps them forever
}

func (s *Settings) defaults() {
	for _, d := range []struct {
		field    *time.Duration
		fallback time.Duration
	}{
		{&s.Execution, time.Minute},
		{&s.Poll, 10 * time.Second},
		{&s.Cancel, 5 * time.Second},
		{&s.Sweep, 10 * time.Second},
		{&s.Keep, time.Hour},
		{&s.Limits.RetryAfter, time.Minute},
	} {
		if *d.field <= 0 {
			*d.field = d.fallback
		}
	}
	if s.MaxResult <= 0 {
		s.MaxResult = 1 << 30
	}
}

func (c *Config) defaults() {
	if c.Lease <= 0 {
		c.Lease = 30 * time.Second
	}
	if c.Name == "" {
		c.Name = "gate " + rand.Text()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}
