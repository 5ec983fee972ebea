package policy

// A TaskSupport says whether a tool may be called as a task, as in the member
// execution.taskSupport of MCP 2025-11-25.
type TaskSupport string

// The kinds of task support. A tool that says nothing forbids tasks.
const (
	TaskForbidden TaskSupport = "forbidden"
	TaskOptional  TaskSupport = "optional"
	TaskRequired  TaskSupport = "required"
)

// TaskTerms decide, together with policy, whether calls of a tool are tasks. The zero value
// is for resources and prompts, which cannot be tasks.
type TaskTerms struct {
	Declared TaskSupport // by the upstream; may be empty
	Upstream bool        // the upstream supports tasks
	Strict   bool        // a held call must be a task (waiting.mode: tasks-only)
	Forced   bool        // the tool is in tasks.force_required
}

// ofUpstream returns the task support of the upstream.
func (t TaskTerms) ofUpstream() TaskSupport {
	if t.Upstream && (t.Declared == TaskOptional || t.Declared == TaskRequired) {
		return t.Declared
	}
	return TaskForbidden
}

// Published returns the task support of a tool in the gate's list. A call that may be held
// can be a task, because the gate keeps it, and need not be one, because the gate can hold
// the request instead. If it may be forwarded too, and the upstream requires a task, then
// the client must ask for one.
func (t TaskTerms) Published(p Prospect) TaskSupport {
	switch {
	case p.Denied():
		return TaskForbidden
	case t.Forced || p.Hold && t.Strict:
		return TaskRequired
	case p.Hold && p.Forward && t.ofUpstream() == TaskRequired:
		return TaskRequired
	case p.Hold:
		return TaskOptional
	default:
		return t.ofUpstream()
	}
}

// A TaskWish is the way in which the client of a call can wait.
type TaskWish string

// The wishes of clients.
const (
	NoTask      TaskWish = "none"
	WantsTask   TaskWish = "wants"   // it sent params.task and expects a task (2025-11-25)
	AcceptsTask TaskWish = "accepts" // it accepts a task instead of a result (2026-07-28)
)

// A Handling is the way in which the gate handles a call.
type Handling string

// The ways in which the gate handles a call.
const (
	PassOn       Handling = "pass on"       // forward it unchanged; the upstream keeps the task, if any
	OwnTask      Handling = "own task"      // keep a task and ask for approval
	ReadyTask    Handling = "ready task"    // keep a task without approval, because the upstream does not support tasks
	HoldRequest  Handling = "hold request"  // ask for approval while the request waits
	RefuseNoTask Handling = "task required" // refuse it because it must be a task
	RefuseDenied Handling = "denied"        // refuse it because it is denied
)

// Handle returns the handling of a call with the action a, of a client with the wish.
func (t TaskTerms) Handle(a Action, wish TaskWish) Handling {
	switch a {
	case Forward:
		return t.forward(wish)
	case Approve:
		return t.hold(wish)
	default:
		return RefuseDenied
	}
}

func (t TaskTerms) forward(wish TaskWish) Handling {
	switch {
	case wish == NoTask && t.Forced:
		return RefuseNoTask
	case wish == WantsTask && t.ofUpstream() == TaskForbidden:
		return ReadyTask
	default:
		return PassOn
	}
}

func (t TaskTerms) hold(wish TaskWish) Handling {
	switch {
	case wish == WantsTask || wish == AcceptsTask:
		return OwnTask
	case t.Strict || t.Forced:
		return RefuseNoTask
	default:
		return HoldRequest
	}
}
