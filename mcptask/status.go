package mcptask

import "slices"

// A Status is the state of a task as a client sees it. Both generations have
// the same five.
type Status string

// The statuses of a task. The last three are terminal.
const (
	Working       Status = "working"
	InputRequired Status = "input_required" // the client itself must answer something
	Completed     Status = "completed"
	Failed        Status = "failed"
	Cancelled     Status = "cancelled"
)

// Valid reports whether s is one of the five statuses of the protocol.
func (s Status) Valid() bool { return s.Terminal() || s == Working || s == InputRequired }

// Terminal reports whether a task in status s can no longer change.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Cancelled }

// CanBecome reports whether a task may go from s to next. A status never
// becomes itself, and nothing follows a terminal one.
func (s Status) CanBecome(next Status) bool {
	return slices.Contains(following(s), next)
}

func following(s Status) []Status {
	switch s {
	case Working:
		return []Status{InputRequired, Completed, Failed, Cancelled}
	case InputRequired:
		return []Status{Working, Completed, Failed, Cancelled}
	default:
		return nil
	}
}

// A ResultType says of a 2026-07-28 result how to read it.
type ResultType string

// The result types that task messages use.
const (
	Complete   ResultType = "complete" // the answer itself; also meant where an older server sends none
	TaskResult ResultType = "task"     // a task instead of the answer
)

// A TaskSupport says whether a tool may be called as a task. It is the member
// taskSupport of a tool's execution object, which only 2025-11-25 has.
type TaskSupport string

// The kinds of task support.
const (
	SupportForbidden TaskSupport = "forbidden"
	SupportOptional  TaskSupport = "optional"
	SupportRequired  TaskSupport = "required"
)

// Effective returns what s amounts to: a tool that says nothing, or something
// unknown, must not be called as a task.
func (s TaskSupport) Effective() TaskSupport {
	if s == SupportOptional || s == SupportRequired {
		return s
	}
	return SupportForbidden
}
