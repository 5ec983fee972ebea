package approval

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Case is all that an approver may want to know of a held call before, and
// after, it is decided.
type Case struct {
	Approval // with the ShownDigest of the call with all of its arguments

	// Whole is the arguments whatever their size, without what Redacted names
	// but otherwise as they will be sent.
	Whole    jsontext.Value
	Redacted map[jsontext.Pointer]bool

	// Beside is what is sent besides the arguments, without what RedactedBeside
	// names.
	Beside         jsontext.Value
	RedactedBeside map[jsontext.Pointer]bool

	Story     []task.Entry // what happened so far, oldest first
	Approvers []string     // who may decide, as in [Workflow]
	Objection error        // why the one who looks may not approve it, if so
	Changed   *Precedent   // the last approved call of the tool, if the tool was defined otherwise then
	Earlier   []Approval   // what this requester wanted of the tool before, newest first
}

// A Precedent is a call of the same tool that was approved before.
type Precedent struct {
	ID task.ID
	At time.Time
}

// How far back calls are looked for that have to do with a case.
const (
	maxEarlier = 5
	lookback   = 5    // pages of tasks
	readback   = 5000 // entries of the journal
)

// Case returns the case of a held call for somebody who looks at it.
func (d *Desk) Case(ctx context.Context, id task.ID, who Approver) (Case, error) {
	ctx, done, err := d.aside(ctx)
	if err != nil {
		return Case{}, err
	}
	defer done()
	t, err := d.get(ctx, task.AnyOwner().Ref(id))
	if err != nil {
		return Case{}, err
	}
	w, known := d.cfg.Workflow(t.Workflow)
	c := Case{Approval: d.view(t, maxShown), Objection: d.objection(t, who)}
	c.ShownDigest = d.viewToDecide(t, unbounded).ShownDigest
	c.Result = d.result(ctx, t)
	if known {
		c.Approvers = w.Approvers
	}
	c.Whole, c.Redacted = whole(t.Call.Arguments, d.redactions(t))
	c.Beside, c.RedactedBeside = whole(t.Call.Also, d.redactionsBeside(t))
	if c.Story, err = d.Story(ctx, id); err != nil && !errors.Is(err, task.ErrNotFound) {
		return Case{}, err
	}
	if c.Earlier, err = d.earlier(ctx, t); err != nil {
		return Case{}, err
	}
	c.Changed, err = d.changed(ctx, t)
	return c, err
}

// objection returns why who may not approve t, or nil.
func (d *Desk) objection(t task.Task, who Approver) error {
	if err := d.mayDecide(t, who, Approve); err != nil || t.Approval == nil {
		return err
	}
	for _, a := range t.Approval.Approvals {
		if a.IsBy(append([]string{who.Name}, who.Aliases...)...) {
			return task.ErrAlreadyDecided
		}
	}
	return nil
}

// whole returns JSON without what paths name, and what of it is redacted.
func whole(value string, paths []path) (jsontext.Value, map[jsontext.Pointer]bool) {
	text, hidden, err := withoutRedacted(value, paths, 0)
	if err != nil {
		return jsontext.Value(`"[unreadable]"`), nil
	}
	return text, hidden
}

// redactions returns the paths that nobody is shown of the arguments of t.
func (d *Desk) redactions(t task.Task) []path {
	paths := parsePaths(d.redactedPaths(t.Workflow))
	if t.Call.Method == MethodBatch {
		paths = pathsInBatch(paths)
	}
	return paths
}

// redactionsBeside returns the paths that nobody is shown of what is sent
// besides the arguments: what is secret there has the same name here.
func (d *Desk) redactionsBeside(t task.Task) []path {
	var beside []path
	for _, p := range d.redactions(t) {
		beside = append(beside, append(path{"*"}, p...))
	}
	return beside
}

// earlier returns the calls of the same tool that the owner of t made before t.
func (d *Desk) earlier(ctx context.Context, t task.Task) ([]Approval, error) {
	var found []Approval
	err := d.lookBack(ctx, task.Query{Scope: task.OwnedBy(t.Owner)}, func(other task.Task) bool {
		if task.Compare(t.Position(), other.Position()) < 0 && sameTool(t, other) {
			found = append(found, d.view(other, maxListed))
		}
		return len(found) < maxEarlier
	})
	return found, err
}

// changed returns the last approved call of the tool of t before t if the tool
// was defined otherwise then.
func (d *Desk) changed(ctx context.Context, t task.Task) (*Precedent, error) {
	if t.Verdict.ToolDigest == "" {
		return nil, nil // nobody can tell
	}
	last, err := d.lastApproved(ctx, t)
	if err != nil || last == nil || !redefined(last.digest, t.Verdict.ToolDigest) {
		return nil, err
	}
	return &last.Precedent, nil
}

// An approvedCall is a precedent, with the digest of the tool's definition.
type approvedCall struct {
	Precedent

	digest string
}

// lastApproved returns the last approved call of the tool of t before t whose
// digest of the tool's definition can be compared with that of t, or nil if there
// is none: from the tasks, or from the journal, which goes back further.
func (d *Desk) lastApproved(ctx context.Context, t task.Task) (*approvedCall, error) {
	var last *approvedCall
	decided := []task.State{task.Approved, task.Executing, task.Completed, task.Failed, task.Expired, task.Cancelled}
	err := d.lookBack(ctx, task.Query{Scope: task.AnyOwner(), States: decided}, func(other task.Task) bool {
		if other.ID != t.ID && sameTool(t, other) && !other.CreatedAt.After(t.CreatedAt) && wasApproved(other) && comparableDigests(other.Verdict.ToolDigest, t.Verdict.ToolDigest) {
			last = &approvedCall{Precedent{other.ID, other.Approval.DecidedAt()}, other.Verdict.ToolDigest}
		}
		return last == nil
	})
	if err != nil || last != nil {
		return last, err
	}
	return d.lastTold(ctx, t)
}

// lastTold is lastApproved by what the journal tells.
func (d *Desk) lastTold(ctx context.Context, t task.Task) (*approvedCall, error) {
	ends, err := d.cfg.Store.Ends(ctx)
	if err != nil {
		return nil, err
	}
	var last *approvedCall
	for q := (task.JournalQuery{After: max(0, ends.Head.Seq-readback), Limit: maxStory}); ; {
		entries, err := d.cfg.Store.Entries(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range entries {
			if e := &entries[i]; approves(e) && e.Task != t.ID && comparableDigests(e.ToolDigest, t.Verdict.ToolDigest) && tellsOf(e, t) {
				last = &approvedCall{Precedent{e.Task, e.At}, e.ToolDigest}
			}
			q.After = entries[i].Seq
		}
		if len(entries) < q.PageSize() {
			return last, nil
		}
	}
}

// approves reports whether e is the approval that let a call run.
func approves(e *task.Entry) bool {
	return e.Step == string(Decided) && e.Outcome == string(Approve) && e.To == task.Approved
}

// tellsOf reports whether e is about the tool of t, at a time before t.
func tellsOf(e *task.Entry, t task.Task) bool {
	return e.Upstream == t.Call.Upstream && e.Method == t.Call.Method && e.Tool == plain.Name(t.Call.Name, maxListed) && !e.At.After(t.CreatedAt)
}

func sameTool(a, b task.Task) bool {
	return a.Call.Upstream == b.Call.Upstream && a.Call.Method == b.Call.Method && a.Call.Name == b.Call.Name
}

func wasApproved(t task.Task) bool {
	return t.Approval != nil && t.Approval.Rejection == nil && !t.Approval.DecidedAt().IsZero()
}

// lookBack goes through tasks that q selects, newest first, as long as more
// says so and it is not too far.
func (d *Desk) lookBack(ctx context.Context, q task.Query, more func(task.Task) bool) error {
	for range lookback {
		page, err := d.cfg.Store.List(ctx, q)
		if err != nil {
			return err
		}
		for _, t := range page.Tasks {
			if !more(t) {
				return nil
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
	return nil
}

func contains(text, part string) bool {
	return part == "" || strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
