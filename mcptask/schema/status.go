package schema

import "slices"

// A Status is the state of a task as a client sees it. Both eras have
// the same five.
type Status string

// The statuses of a task. The last three are terminal.
const (
	Working       Status = "working"
	InputRequired Status = "input_required" // the client must answer a question
	Completed     Status = "completed"
	Failed        Status = "failed"
	Cancelled     Status = "cancelled"
)

// Valid reports whether s is a status of the protocol.
func (s Status) Valid() bool { return s.Terminal() || s == Working || s == InputRequired }

// Terminal reports whether a task in status s can no longer change.
func (s Status) Terminal() bool { return s == Completed || s == Failed || s == Cancelled }

// CanBecome reports whether a task may change from s to next. A status never changes to itself,
// and a terminal status never changes.
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

// A ResultType tells how to read a 2026-07-28 result.
type ResultType string

// The result types that task messages use.
const (
	Complete   ResultType = "complete" // the result itself; older servers omit this value
	TaskResult ResultType = "task"     // a task in place of the result
)

// A TaskSupport tells whether a tool may be called as a task. It is the member taskSupport of a
// tool's execution object, which only 2025-11-25 has.
type TaskSupport string

// The kinds of task support.
const (
	SupportForbidden TaskSupport = "forbidden"
	SupportOptional  TaskSupport = "optional"
	SupportRequired  TaskSupport = "required"
)

// Effective returns s, or the value for "must not be called as a task" if s is absent or
// unknown.
func (s TaskSupport) Effective() TaskSupport {
	if s == SupportOptional || s == SupportRequired {
		return s
	}
	return SupportForbidden
}
