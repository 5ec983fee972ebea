package approval

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

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
	ShutDown   Step = "shut_down"   // pending tasks ended with the desk; Count has their number
	SweptAway  Step = "swept_away"  // terminal tasks were deleted; Count has their number
	TTLLimited Step = "ttl_limited" // the owner asked for more time than there is
	Granted    Step = "granted"     // a standing approval was given
	UsedGrant  Step = "used_grant"  // a call became a task that a standing approval let run
	Revoked    Step = "revoked"     // a standing approval was revoked
	Counted    Step = "counted"     // Pending has how many tasks there are
	Looked     Step = "looked"      // an approver looked at a pending call for the first time, or decided without that
)

// An Event describes a [Step].
type Event struct {
	Step  Step
	Task  task.Task // as it is after the step, if it is about one
	By    string    // the approver of Decided
	Count int
	Err   error // of Refused

	Pending map[task.State]int // of Counted: every state that does not end a task
	Oldest  time.Time          // of Counted: when the oldest task was made that awaits a decision; zero if none does
	Asked   map[string]int     // of Counted: how many tasks await a decision, by workflow
}
