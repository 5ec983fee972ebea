package casefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/internal/precedent"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Precedent is a call of the same tool that was approved before, when the tool was
// defined otherwise.
type Precedent struct {
	ID task.ID   `json:"id,omitzero"`
	At time.Time `json:"at,omitzero"`

	// Tools names the tools of a batch that have changed. The call is the last approved
	// one of the first of them.
	Tools []string `json:"tools,omitempty"`

	// Unknown says that the gate has a record of the last approved call and cannot read
	// it. Then there is no call.
	Unknown bool `json:"unknown,omitzero"`
}

// Caution says in words what an approver should know.
func (p Precedent) Caution() string {
	switch {
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

// name returns the name of the first of the tools, so short that it pushes nothing away.
func (p Precedent) name() string { return plain.Shown(p.Tools[0], 60) }

func (p Precedent) date() string { return p.At.UTC().Format("2 January 2006 at 15:04 UTC") }

// A Definition is a tool that a call uses, and the digest of what its server said of it.
type Definition struct {
	Tool   precedent.Tool
	Digest string
}

// Definitions returns the tools that the call of t, of which an outline is enough, uses, as
// they were defined when t was held. Tools whose definitions were not known are left out.
func Definitions(t task.Task) []Definition {
	if t.Call.Method != MethodBatch {
		if t.Verdict.ToolDigest == "" {
			return nil
		}
		return []Definition{{precedent.Tool{Upstream: t.Call.Upstream, Method: t.Call.Method, Name: ToolName(t)}, t.Verdict.ToolDigest}}
	}
	f := ReadFacts(t)
	var all []Definition
	seen := map[Definition]bool{}
	for i, m := range f.ToolsInBatch {
		if i >= len(f.DigestsInBatch) || f.DigestsInBatch[i] == "" || m.Name == "" {
			continue
		}
		d := Definition{precedent.Tool{Upstream: t.Call.Upstream, Method: m.Method, Name: m.Name}, f.DigestsInBatch[i]}
		if !seen[d] {
			all = append(all, d)
		}
		seen[d] = true
	}
	return all
}

// changed returns the last approved call of the tool of t before t if the tool was defined
// otherwise then, or if the gate cannot say that.
func (v *Viewer) changed(ctx context.Context, t task.Task) (*Precedent, error) {
	all := Definitions(t)
	last := map[Definition]precedent.Approved{}
	unknown := false
	for _, d := range all {
		kept, err := v.lastKept(ctx, t, d)
		switch {
		case err == nil:
			last[d] = kept
		case errors.Is(err, task.ErrUnreadable):
			v.cfg.Log.ErrorContext(ctx, "it is not known whether a tool has changed", "task_id", t.ID, "error", err)
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
	return &Precedent{Unknown: true}, nil
}

// redefined returns the precedent of those of the tools that have changed since their last
// approved calls, or nil.
func redefined(t task.Task, all []Definition, last map[Definition]precedent.Approved) *Precedent {
	var since *Precedent
	for _, d := range all {
		if !Redefined(last[d].Digest, d.Digest) {
			continue
		}
		if since == nil {
			since = &Precedent{ID: last[d].Task, At: last[d].At}
		}
		if t.Call.Method == MethodBatch {
			since.Tools = append(since.Tools, d.Tool.Name)
		}
	}
	return since
}

// lastKept returns the last approved call of a tool of t that the store has a record of.
// The error is [task.ErrNotFound] if there is no such record, or if its call cannot be the
// precedent of t.
func (v *Viewer) lastKept(ctx context.Context, t task.Task, d Definition) (precedent.Approved, error) {
	last, err := precedent.Store{Records: v.cfg.Store}.Last(ctx, d.Tool, d.Digest)
	if err == nil && !precedes(last, t) {
		err = task.ErrNotFound
	}
	return last, err
}

// precedes reports whether an approved call can be the precedent of t. While t waits for a
// decision, that is every other one; then it is what was approved before the decision, or
// before t was held if there was none.
func precedes(a precedent.Approved, t task.Task) bool {
	return a.Task != t.ID && (t.State == task.InputRequired || !a.At.After(cmp.Or(t.Approval.DecidedAt(), t.CreatedAt)))
}

// readback is how many entries of the journal are looked through for approved calls that
// have no record.
const readback = 5000

// findApproved adds to last, in the place of earlier ones, the approved calls among the last
// tasks. There may be no record of them: an earlier version of the gate has written none, and
// a gate may die after an approval, before it writes one. Tools of which last then still has
// no call are looked for in the journal, which goes back further.
func (v *Viewer) findApproved(ctx context.Context, t task.Task, all []Definition, last map[Definition]precedent.Approved) error {
	if len(all) == 0 {
		return nil
	}
	decided := []task.State{task.Approved, task.Executing, task.Completed, task.Failed, task.Expired, task.Cancelled}
	err := v.lookBack(ctx, task.Query{Scope: task.AnyOwner(), States: decided}, func(other task.Task) (more bool, err error) {
		if wasApproved(other) {
			for _, was := range Definitions(other) {
				addLater(last, all, t, was.Tool, precedent.Approved{Task: other.ID, At: other.Approval.DecidedAt(), Digest: was.Digest})
			}
		}
		return true, nil
	})
	if err != nil || len(last) == len(all) {
		return err
	}
	return v.findRecorded(ctx, t, all, last)
}

// findRecorded adds to last the last approved calls in the journal of those tools that it
// has none of.
func (v *Viewer) findRecorded(ctx context.Context, t task.Task, all []Definition, last map[Definition]precedent.Approved) error {
	ends, err := v.cfg.Store.Ends(ctx)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(all), func(d Definition) bool { _, known := last[d]; return known })
	q := task.JournalQuery{After: max(0, ends.Head.Seq-readback), Limit: maxStory}
	for e, err := range task.EachEntry(ctx, v.cfg.Store, q) {
		if err != nil {
			return err
		}
		if precedent.Approves(&e) {
			tool := precedent.Tool{Upstream: e.Upstream, Method: e.Method, Name: e.Tool}
			addLater(last, missing, t, tool, precedent.Approved{Task: e.Task, At: e.At, Digest: e.ToolDigest})
		}
	}
	return nil
}

// addLater adds an approved call of a tool to last, for those definitions of the tool that
// can be compared with it, unless last has a later one or the call cannot be a precedent of t.
func addLater(last map[Definition]precedent.Approved, all []Definition, t task.Task, tool precedent.Tool, a precedent.Approved) {
	for _, d := range all {
		if d.Tool == tool && precedent.Comparable(d.Digest, a.Digest) && precedes(a, t) && a.At.After(last[d].At) {
			last[d] = a
		}
	}
}

// wasApproved reports whether people have approved t. A standing approval does not count:
// nobody looked at the call.
func wasApproved(t task.Task) bool {
	return t.Approval != nil && t.Approval.Rejection == nil && t.Approval.Grant() == "" && !t.Approval.DecidedAt().IsZero()
}
