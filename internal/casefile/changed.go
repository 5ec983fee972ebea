package casefile

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
func (p Precedent) name() string { return plain.Name(p.Tools[0], 60) }

func (p Precedent) date() string { return p.At.UTC().Format("2 January at 15:04 UTC") }

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
// The error is [task.ErrNotFound] if there is no such record, or if it is about t or, once
// t is decided, about a later call.
func (v *Viewer) lastKept(ctx context.Context, t task.Task, d Definition) (precedent.Approved, error) {
	last, err := precedent.Store{Records: v.cfg.Store}.Last(ctx, d.Tool, d.Digest)
	if err == nil && (last.Task == t.ID || t.State != task.InputRequired && last.At.After(t.CreatedAt)) {
		err = task.ErrNotFound
	}
	return last, err
}

// readback is how many entries of the journal are looked through for approved calls that
// have no record.
const readback = 5000

// findApproved adds to last the last approved calls before t of those tools that it has none
// of: from the tasks, or from the journal, which goes back further. An earlier version of
// the gate may have written no record of them.
func (v *Viewer) findApproved(ctx context.Context, t task.Task, all []Definition, last map[Definition]precedent.Approved) error {
	if len(last) == len(all) {
		return nil
	}
	decided := []task.State{task.Approved, task.Executing, task.Completed, task.Failed, task.Expired, task.Cancelled}
	err := v.lookBack(ctx, task.Query{Scope: task.AnyOwner(), States: decided}, func(other task.Task) (more bool, err error) {
		if other.ID == t.ID || other.CreatedAt.After(t.CreatedAt) || !wasApproved(other) {
			return true, nil
		}
		for _, was := range Definitions(other) {
			if d, missing := comparableTo(was, all, last); missing {
				last[d] = precedent.Approved{Task: other.ID, At: other.Approval.DecidedAt(), Digest: was.Digest}
			}
		}
		return len(last) < len(all), nil
	})
	if err != nil || len(last) == len(all) {
		return err
	}
	return v.findRecorded(ctx, t, all, last)
}

// findRecorded does the same with the journal.
func (v *Viewer) findRecorded(ctx context.Context, t task.Task, all []Definition, last map[Definition]precedent.Approved) error {
	ends, err := v.cfg.Store.Ends(ctx)
	if err != nil {
		return err
	}
	found := map[Definition]precedent.Approved{}
	q := task.JournalQuery{After: max(0, ends.Head.Seq-readback), Limit: maxStory}
	for e, err := range task.EachEntry(ctx, v.cfg.Store, q) {
		if err != nil {
			return err
		}
		if !precedent.Approves(&e) || e.Task == t.ID || e.At.After(t.CreatedAt) {
			continue
		}
		was := Definition{precedent.Tool{Upstream: e.Upstream, Method: e.Method, Name: e.Tool}, e.ToolDigest}
		if d, missing := comparableTo(was, all, last); missing {
			found[d] = precedent.Approved{Task: e.Task, At: e.At, Digest: e.ToolDigest}
		}
	}
	maps.Copy(last, found)
	return nil
}

// comparableTo returns that of the definitions which is of the same tool as was, and can be
// compared with it. It reports false if there is none, or if last has one of it.
func comparableTo(was Definition, all []Definition, last map[Definition]precedent.Approved) (Definition, bool) {
	for _, d := range all {
		if _, known := last[d]; !known && d.Tool == was.Tool && precedent.Comparable(d.Digest, was.Digest) {
			return d, true
		}
	}
	return Definition{}, false
}

func wasApproved(t task.Task) bool {
	return t.Approval != nil && t.Approval.Rejection == nil && !t.Approval.DecidedAt().IsZero()
}
