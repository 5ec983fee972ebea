package callrecord

import (
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// Rules of an entry that are no rules of the configuration.
const (
	ByDefault = "default" // no rule matched
	ByGate    = "gate"    // the call could not be put to rules
)

// SetVerdict records the verdict on the call of e.
func (e *Entry) SetVerdict(v *policy.Verdict) {
	e.Action, e.Observed, e.Workflow = v.Action, "", v.Workflow
	if v.Would != nil {
		e.Observed, e.Workflow = v.Would.Action, v.Would.Workflow
	}
	switch v.Rule {
	case policy.ByDefault:
		e.Rule = ByDefault
	case policy.ByGate:
		e.Rule = ByGate
	default:
		e.Rule = v.Label
	}
	e.Policies, e.Snapshot = v.Policies, v.Snapshot
}

// HasArguments reports whether e has all arguments of its call. An entry without arguments and
// digest may be about a call with arguments, whose digest could not be made. Resources have none.
func (e *Entry) HasArguments() bool {
	kind, _ := policy.Governed(e.Method)
	return !e.Redacted && len(e.Arguments) > 0 || kind == policy.Resource && e.Digest == ""
}

// Asked reports whether approvers were asked about the call of e. They are not if it was attached
// to an identical held call, or if it was refused.
func (e *Entry) Asked() bool {
	return e.Action == policy.Approve && !slices.Contains([]string{Attached, Refused, Gone}, e.Outcome)
}
