package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// A ToolChange says how the tool of a call has changed since it was last approved, or that no
// operator has accepted the change.
type ToolChange struct {
	ID task.ID   `json:"id,omitzero"`
	At time.Time `json:"at,omitzero"`

	// Tools are the changed tools of a batch. ID and At are those of the last approved call of the
	// first one.
	Tools []string `json:"tools,omitempty"`

	// Unaccepted are the changes that no operator has accepted. The call is held because of them.
	Unaccepted []toolhistory.Change `json:"unaccepted,omitempty"`

	// Unknown means that the record of the last approved call is unreadable. ID and At are then
	// empty.
	Unknown bool `json:"unknown,omitzero"`
}

// Text describes the change in words.
func (p ToolChange) Text() string {
	switch {
	case len(p.Unaccepted) == 1:
		return p.Unaccepted[0].String()
	case len(p.Unaccepted) > 1:
		return fmt.Sprintf("the tool %s and %d more have changed: %s", safetext.Truncate(p.Unaccepted[0].Tool, 60), len(p.Unaccepted)-1, p.Unaccepted[0].What)
	case p.Unknown:
		return "it is not known whether the tool has changed since it was last approved"
	case len(p.Tools) > 1:
		return fmt.Sprintf("the tool %s and %d more have changed since they were last approved", p.name(), len(p.Tools)-1)
	case len(p.Tools) == 1:
		return "the tool " + p.name() + " has changed since it was last approved, on " + p.date()
	default:
		return "the tool has changed since it was last approved, on " + p.date()
	}
}

// name returns the shortened name of the first tool.
func (p ToolChange) name() string { return safetext.Truncate(p.Tools[0], 60) }

func (p ToolChange) date() string { return p.At.UTC().Format("2 January 2006 at 15:04 UTC") }

// A Definition is a tool of a call and the digest of its definition.
type Definition struct {
	Tool   toolhistory.Tool
	Digest string
}

// Definitions returns the tools of the call of t as they were defined when t was held, except
// unknown ones. An outline of t is enough.
func Definitions(t task.Task) []Definition {
	if t.Call.Method != MethodBatch {
		if t.Verdict.ToolDigest == "" {
			return nil
		}
		return []Definition{{toolhistory.Tool{Upstream: t.Call.Upstream, Method: t.Call.Method, Name: ToolName(t)}, t.Verdict.ToolDigest}}
	}
	f := ReadFacts(t)
	var all []Definition
	seen := map[Definition]bool{}
	//mutate:swap "ToolsInBatch" "ToolsInBatch[:0]" internal/approval.TestBatchChanged a tool in a batch is not compared
	for i, m := range f.ToolsInBatch {
		if i >= len(f.DigestsInBatch) || f.DigestsInBatch[i] == "" || m.Name == "" {
			continue
		}
		d := Definition{toolhistory.Tool{Upstream: t.Call.Upstream, Method: m.Method, Name: m.Name}, f.DigestsInBatch[i]}
		if !seen[d] {
			all = append(all, d)
		}
		seen[d] = true
	}
	return all
}

// changed returns the changes of t's tools: unaccepted ones, and those since the last approved
// call.
func (v *Viewer) changed(ctx context.Context, t task.Task) (*ToolChange, error) {
	since, err := v.changedSince(ctx, t)
	f := ReadFacts(t)
	for _, c := range append(f.ChangesInBatch, f.Change) {
		if since == nil && c != nil {
			since = &ToolChange{}
		}
		if c == nil || slices.ContainsFunc(since.Unaccepted, func(other toolhistory.Change) bool { return other.ID == c.ID }) {
			continue
		}
		since.Unaccepted = append(since.Unaccepted, *c)
	}
	return since, err
}

// changedSince returns the change since the last approved call of t's tool before t, or that it is
// unknown.
func (v *Viewer) changedSince(ctx context.Context, t task.Task) (*ToolChange, error) {
	all := Definitions(t)
	last := map[Definition]toolhistory.ApprovedCall{}
	unknown := false
	for _, d := range all {
		kept, err := v.lastKept(ctx, t, d)
		switch {
		case err == nil:
			last[d] = kept
		case errors.Is(err, task.ErrUnreadable):
			v.cfg.Log.ErrorContext(ctx, "it is not known whether a tool has changed", "task_id", t.ID, "err", err)
			//mutate:swap "true" "false" internal/approval.TestChangedUnknown an unreadable record counts as missing
			unknown = true
		case !errors.Is(err, task.ErrNotFound):
			return nil, err
		}
	}
	if err := v.findApproved(ctx, t, all, last); err != nil {
		return nil, err
	}
	if since := redefined(t, all, last); since != nil || !unknown {
		return since, nil
	}
	return &ToolChange{Unknown: true}, nil
}

// redefined returns the change of those tools whose definitions differ from the last approved
// ones, or nil.
func redefined(t task.Task, all []Definition, last map[Definition]toolhistory.ApprovedCall) *ToolChange {
	var since *ToolChange
	for _, d := range all {
		if !Redefined(last[d].Digest, d.Digest) {
			continue
		}
		if since == nil {
			since = &ToolChange{ID: last[d].Task, At: last[d].At}
		}
		if t.Call.Method == MethodBatch {
			since.Tools = append(since.Tools, d.Tool.Name)
		}
	}
	return since
}

// lastKept returns the recorded last approved call of a tool of t. The error is [task.ErrNotFound]
// if there is no record, or if the call does not precede t.
func (v *Viewer) lastKept(ctx context.Context, t task.Task, d Definition) (toolhistory.ApprovedCall, error) {
	last, err := toolhistory.Store{Records: v.cfg.Store}.LastApproval(ctx, d.Tool, d.Digest)
	if err == nil && !precedes(last, t) {
		err = task.ErrNotFound
	}
	return last, err
}

// precedes reports whether an approved call can be compared with t. For a pending call every other
// call counts; afterwards only those approved before the decision, or before t was held if there
// was no decision.
func precedes(a toolhistory.ApprovedCall, t task.Task) bool {
	return a.Task != t.ID && (t.State == task.InputRequired || !a.At.After(cmp.Or(t.Approval.DecidedAt(), t.CreatedAt)))
}

// readback is how many journal entries are searched for approved calls without a record.
const readback = 5000

// findApproved adds later approved calls among the last tasks to last. They may have no record: an
// earlier version wrote none, and a gate may die before it writes one. Tools that are still
// missing are searched in the journal, which goes back further.
func (v *Viewer) findApproved(ctx context.Context, t task.Task, all []Definition, last map[Definition]toolhistory.ApprovedCall) error {
	if len(all) == 0 {
		return nil
	}
	decided := []task.State{task.Approved, task.Executing, task.Completed, task.Failed, task.Expired, task.Cancelled}
	err := v.lookBack(ctx, task.Query{Scope: task.AnyOwner(), States: decided}, func(other task.Task) (more bool, err error) {
		if wasApproved(other) {
			for _, was := range Definitions(other) {
				addLater(last, all, t, was.Tool, toolhistory.ApprovedCall{Task: other.ID, At: other.Approval.DecidedAt(), Digest: was.Digest})
			}
		}
		return true, nil
	})
	if err != nil || len(last) == len(all) {
		return err
	}
	return v.findRecorded(ctx, t, all, last)
}

// findRecorded adds the last approved calls of missing tools from the journal.
func (v *Viewer) findRecorded(ctx context.Context, t task.Task, all []Definition, last map[Definition]toolhistory.ApprovedCall) error {
	ends, err := v.cfg.Store.Ends(ctx)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(all), func(d Definition) bool { _, known := last[d]; return known })
	q := auditlog.Query{After: max(0, ends.Head.Seq-readback), Limit: maxHistory}
	for e, err := range auditlog.Each(ctx, v.cfg.Store, q) {
		if err != nil {
			return err
		}
		if toolhistory.IsApproval(&e) {
			tool := toolhistory.Tool{Upstream: e.Upstream, Method: e.Method, Name: e.Tool}
			addLater(last, missing, t, tool, toolhistory.ApprovedCall{Task: e.Task, At: e.At, Digest: e.ToolDigest})
		}
	}
	return nil
}

// addLater adds an approved call to last for the comparable definitions of its tool, unless last
// has a later call or the call does not precede t.
func addLater(last map[Definition]toolhistory.ApprovedCall, all []Definition, t task.Task, tool toolhistory.Tool, a toolhistory.ApprovedCall) {
	for _, d := range all {
		//mutate:swap "a.At.After(last[d].At)" "last[d].At.IsZero()" internal/approval.TestChangedSinceApprovalWithoutRecord an earlier approval with a record hides a later one without
		if d.Tool == tool && toolhistory.Comparable(d.Digest, a.Digest) && precedes(a, t) && a.At.After(last[d].At) {
			last[d] = a
		}
	}
}

// wasApproved reports whether people have approved t. Calls approved by a grant do not count: no
// person saw them.
func wasApproved(t task.Task) bool {
	//mutate:swap `t.Approval.Grant() == "" && ` "" internal/approval.TestChangedDespiteStandingApproval a call approved by a grant counts as an approval of the definition
	return t.Approval != nil && t.Approval.Rejection == nil && t.Approval.Grant() == "" && !t.Approval.DecidedAt().IsZero()
}
