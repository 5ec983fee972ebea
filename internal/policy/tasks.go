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

// TaskTerms is what decides whether calls of a tool are tasks, besides policy.
// Resources and prompts cannot be tasks: for them the zero value is right.
type TaskTerms struct {
	Declared TaskSupport // what the upstream says of the tool; empty if nothing
	Upstream bool        // whether the upstream can do tasks at all
	Strict   bool        // whether a held call must be a task (waiting: tasks-only)
	Forced   bool        // whether the tool is in tasks.force_required
}

// own returns what the upstream really supports.
func (t TaskTerms) own() TaskSupport {
	if t.Upstream && (t.Declared == TaskOptional || t.Declared == TaskRequired) {
		return t.Declared
	}
	return TaskForbidden
}

// Published returns the task support of a tool that clients are shown. It is
// the truth about the gate and the upstream together: what may be held can be
// a task, because the gate keeps it, and need not be one, because the gate can
// hold the request instead. If such a call may as well be forwarded, and the
// upstream then insists on a task, so must the client from the start.
func (t TaskTerms) Published(p Prospect) TaskSupport {
	switch {
	case p.Denied():
		return TaskForbidden
	case t.Forced || p.Hold && t.Strict:
		return TaskRequired
	case p.Hold && p.Forward && t.own() == TaskRequired:
		return TaskRequired
	case p.Hold:
		return TaskOptional
	default:
		return t.own()
	}
}

// A TaskWish says how the client of a call can wait for it.
type TaskWish string

// The wishes of clients.
const (
	NoTask      TaskWish = "none"
	WantsTask   TaskWish = "wants"   // it sent params.task and expects a task, as in 2025-11-25
	AcceptsTask TaskWish = "accepts" // it understands a task in place of a result, as in 2026-07-28
)

// A Handling says who keeps the task of a call, if there is one.
type Handling string

// The ways in which a judged call is handled.
const (
	PassOn       Handling = "pass on"       // send it upstream as it is; a task is the upstream's
	OwnTask      Handling = "own task"      // keep a task and ask for approval
	ReadyTask    Handling = "ready task"    // keep a task that needs no approval: the upstream has none to offer
	HoldRequest  Handling = "hold request"  // ask for approval while the request waits
	RefuseNoTask Handling = "task required" // refuse it because it is no task
	RefuseDenied Handling = "denied"        // refuse it because of its verdict
)

// Handle returns what is done with a call that was judged to be a, by a client
// with the given wish.
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
	case wish == WantsTask && t.own() == TaskForbidden:
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
