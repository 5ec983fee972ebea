package approval

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

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
	Store   task.GateStore
	Durable bool // tasks outlive the process, so they need not end with it
	Mixed   bool // gates with other configurations and upstreams share the store

	// Judge asks the policy that is in force now. Workflow returns the
	// settings of a workflow as they are now.
	Judge    func(policy.Call) policy.Verdict
	Workflow func(name string) (Workflow, bool)

	// Send returns a sender with the gate's own credentials. It must be given
	// for StartOnApproval; it is also used to cancel what an upstream still does
	// for a task whose owner is not there when it ends. It returns nil for a task
	// of an upstream that this gate does not have, if the store is Mixed.
	Send func(task.Task) Sender

	Settings

	Lease time.Duration // after which a silent executor counts as dead; 30 s

	Name    string           // of this replica; must not be another's; random
	Now     func() time.Time // the clock; the desk makes sure that it never goes back
	Log     *slog.Logger
	Observe func(context.Context, Event) // is called with every step; must not block

	// Recorded is called with the notes that were added to the journal, or with the
	// error because of which they could not be.
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
	Cancel    time.Duration // how long it may take to accept a cancellation; 5 s
	MaxResult int64         // how large an answer may be that is kept, in bytes; 1 GiB
	Polling   task.Polling
	Variables task.VariableLimits

	// RequestMeta names members of _meta, besides those that the gate knows, that
	// name a request and say nothing of what is asked for; * stands for all.
	RequestMeta []string

	Sweep     time.Duration // how often housekeeping is done; 10 s
	Keep      time.Duration // how long a terminal task is kept after its time; 1 h
	Retention time.Duration // how long the journal is kept; 0 means for good
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
