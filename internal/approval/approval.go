// Package approval is the desk at which calls wait for people. It holds a call
// as a [task.Task], takes the decisions of approvers, and has an approved call
// made: at most once, as it was shown, and only while its owner is there.
//
// The [Desk] keeps no state of its own that matters: what is pending is in the
// store, and any number of desks may work on one store. What a desk has in
// memory is who is present here: owners that wait in a request of theirs
// ([Desk.Wait]) and owners that asked a moment ago ([Desk.Contact]), each with
// a [Sender] that makes the call in their name. So nobody's credentials are
// ever stored.
//
// A call that the upstream makes a task of runs there, and nothing is done
// about it here until somebody asks: then the upstream is asked, in the name of
// whoever does. No process is at work on it meanwhile, so any replica can go on
// with it. See [task.Execution].
//
// The package knows neither HTTP nor the messages in which clients are told of
// tasks; those are the business of transports and of package mcptask.
package approval

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Start says what lets an approved call begin.
type Start string

// The ways in which an approved call begins.
const (
	StartOnContact  Start = "contact"  // its owner is there: waits, asks, or asked a moment ago
	StartOnApproval Start = "approval" // at once, with the gate's own credentials
	StartOnResult   Start = "result"   // its owner asks for the outcome; asking how it stands is not enough
)

// A Config is what a [Desk] is made of. Store, Judge and Workflow must be
// given; other zero fields mean their defaults.
type Config struct {
	Store   task.Store
	Durable bool // tasks outlive the process, so they need not end with it

	// Judge asks the policy that is in force now. Workflow returns the
	// settings of a workflow as they are now.
	Judge    func(policy.Call) policy.Verdict
	Workflow func(name string) (Workflow, bool)

	// Send returns a sender with the gate's own credentials. It must be given
	// for StartOnApproval; it is also used to cancel what an upstream still does
	// for a task whose owner is not there when it ends.
	Send func(task.Task) Sender

	Settings

	Lease time.Duration // after which a silent executor counts as dead; 30 s

	Name    string           // of this replica; must not be another's; random
	Now     func() time.Time // the clock; the desk makes sure that it never goes back
	Log     *slog.Logger
	Observe func(context.Context, Event) // is told of every step; must not block

	// Recorded is told of what was added to the journal, or could not be.
	Recorded func(notes []task.Note, err error)
}

// Settings are the part of a [Config] that can change while the desk runs. Zero
// fields mean their defaults.
type Settings struct {
	Start     Start       // StartOnContact
	Limits    task.Limits // on pending tasks; Unique and those of rooms are the desk's to set
	Shares    Shares
	Retrieval time.Duration
	MaxTTL    time.Duration // see [task.TTLRules] for this and Retrieval
	Execution time.Duration // how long a call may run, and an outcome take to be fetched; 60 s
	Poll      time.Duration // how long an upstream may take to say how its task stands; 10 s
	Cancel    time.Duration // how long it may take to be told that nobody wants it any more; 5 s
	MaxResult int64         // how large an answer may be that is kept, in bytes; 1 GiB
	Polling   task.Polling
	Variables task.VariableLimits

	Sweep     time.Duration // how often housekeeping is done; 10 s
	Keep      time.Duration // how long a terminal task is kept after its time; 1 h
	Retention time.Duration // how long the journal is kept; 0 means for good
}

// A Desk holds calls, takes decisions and runs what was approved. It is safe
// for concurrent use. Whoever has a desk must call [Desk.Run], and
// [Desk.Close] in the end.
type Desk struct {
	cfg     Config // without its settings
	current atomic.Pointer[Settings]

	closing chan struct{}  // closed when the desk is
	kill    chan struct{}  // closed when runs must end
	running sync.WaitGroup // the runs of calls
	pace    pace

	cases *casefile.Viewer

	mu      sync.Mutex
	closed  bool
	present map[task.ID]presence // owners that asked a moment ago
	waiting map[task.ID]int      // how many requests wait here for a task
	leases  map[task.ID]int      // how much work is under way here on tasks that this desk has a lease of
	spools  map[task.ID]*spool   // answers that are being kept
	begun   chan struct{}        // closed, and replaced, when one begins to be
}

// New returns a desk.
func New(c Config) (*Desk, error) {
	if c.Store == nil || c.Judge == nil || c.Workflow == nil {
		return nil, errors.New("approval: a desk needs a store, a policy and workflows")
	}
	c.defaults()
	c.Store = recorded{c.Store, c.Log, c.Recorded}
	c.Now = (&clock{read: c.Now, log: c.Log}).now
	d := &Desk{
		cfg: c, closing: make(chan struct{}), kill: make(chan struct{}),
		present: make(map[task.ID]presence), waiting: make(map[task.ID]int),
		leases: make(map[task.ID]int), spools: make(map[task.ID]*spool), begun: make(chan struct{}),
	}
	d.cases = casefile.New(casefile.Config{Store: c.Store, Get: d.get, Terms: d.terms, Closing: d.closing, Log: c.Log})
	if err := d.Configure(c.Settings); err != nil {
		return nil, err
	}
	return d, nil
}

// Cases returns what shows the held calls of this desk to people.
func (d *Desk) Cases() *casefile.Viewer { return d.cases }

// terms returns what a workflow says about showing a call.
func (d *Desk) terms(workflow string) (casefile.Terms, bool) {
	w, known := d.cfg.Workflow(workflow)
	return casefile.Terms{Approvers: w.Approvers, Redact: w.Redact, Validity: w.Validity}, known
}

// Configure replaces the settings. What is under way goes on with those that it
// began with, or with the new ones.
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

func (d *Desk) settings() *Settings { return d.current.Load() }

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
		c.Name = "gate " + string(task.NewID())
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// A Step is something that happened at the desk.
type Step string

// The steps.
const (
	Held       Step = "held"        // a call became a task
	Attached   Step = "attached"    // a call joined the task of an identical one
	Refused    Step = "refused"     // a call could not become a task
	Decided    Step = "decided"     // an approver approved or rejected
	Abandoned  Step = "abandoned"   // approved, but not run because its owner is not there
	NotRun     Step = "not_run"     // approved, but not allowed to run any more
	Started    Step = "started"     // the call is being made
	Reported   Step = "reported"    // the upstream said how far it is; the state is as before
	Finished   Step = "finished"    // the call has ended
	Delivered  Step = "delivered"   // the owner has the outcome
	Cancelled  Step = "cancelled"   // the owner withdrew it
	Overdue    Step = "overdue"     // its time ran out, or its executor died
	ShutDown   Step = "shut_down"   // pending tasks ended with the desk; Count tells how many
	SweptAway  Step = "swept_away"  // terminal tasks were deleted; Count tells how many
	TTLLimited Step = "ttl_limited" // the owner asked for more time than there is
	Counted    Step = "counted"     // Pending tells how many tasks there are
)

// An Event tells of a [Step].
type Event struct {
	Step  Step
	Task  task.Task // as it is after the step, if it is about one
	By    string    // the approver of Decided
	Count int
	Err   error // of Refused

	Pending map[task.State]int // of Counted: every state that does not end a task
	Oldest  time.Time          // of Counted: when the oldest task was made that awaits a decision; zero if none does
}

func (d *Desk) tell(ctx context.Context, e Event) {
	if d.cfg.Observe != nil {
		d.cfg.Observe(ctx, e)
	}
}

// told returns t as its owner is told of it: with the poll interval that fits
// the time that is left, or that the upstream wants, within bounds.
func (d *Desk) told(t task.Task) task.Task {
	t.PollInterval = d.settings().Polling.Interval(t.Remaining(d.cfg.Now()))
	if nested(t) && t.Execution.PollInterval > 0 {
		t.PollInterval = d.settings().Polling.Clamp(t.Execution.PollInterval)
	}
	return t
}

func closedError(id task.ID, a task.Action) error {
	return &task.Error{Kind: task.KindClosed, ID: id, Action: a, Suggest: "try again in a moment"}
}

func (d *Desk) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}
