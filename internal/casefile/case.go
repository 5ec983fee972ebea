package casefile

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
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
	Approvers []string     // who may decide, as in [Terms]
	Objection error        // why the person who looks may not approve it, if so
	Changed   *Precedent   // the last approved call of the tool, if the tool was defined otherwise then, or if that is not known
	Earlier   []Approval   // what this requester wanted of the tool before, newest first
	Offer     *Offer       // the standing approval that can be given with an approval, if one can
	Given     []Grant      // the standing approvals that its approvers gave
}

// A Context is what a person should know of a call besides the call itself.
type Context struct {
	Approvers []string     `json:"approvers,omitempty"` // who may decide
	Objection string       `json:"objection,omitzero"`  // why the person who looks may not approve it, if so
	Changed   *Precedent   `json:"changed,omitzero"`    // the last approved call of the tool, if the tool was defined otherwise then, or if that is not known
	Earlier   []Approval   `json:"earlier,omitempty"`   // what this requester wanted of the tool before, newest first
	Story     []task.Entry `json:"story,omitempty"`     // what happened so far, oldest first
	Offer     *Offer       `json:"grant,omitzero"`      // the standing approval that can be given with an approval, if one can
	Given     []Grant      `json:"given,omitempty"`     // the standing approvals that its approvers gave
}

// Context returns what of the case is not the call. Objection returns an error in
// words.
func (c Case) Context(objection func(error) string) Context {
	x := Context{Approvers: c.Approvers, Changed: c.Changed, Earlier: c.Earlier, Story: c.Story, Offer: c.Offer, Given: c.Given}
	if c.Objection != nil {
		x.Objection = objection(c.Objection)
	}
	return x
}

// How far back calls are looked for that have to do with a case.
const (
	maxEarlier = 5
	lookback   = 100 // tasks
)

// Case returns the case of a held call. The objection is the one that the given
// function has to an approval by the person who looks at it.
func (v *Viewer) Case(ctx context.Context, id task.ID, objection func(task.Task) error) (Case, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return Case{}, err
	}
	defer done()
	t, err := v.cfg.Get(ctx, task.AnyOwner().Ref(id))
	if err != nil {
		return Case{}, err
	}
	terms, _ := v.cfg.Terms(t)
	c := Case{Approval: v.view(t, MaxShown), Approvers: terms.Approvers, Objection: objection(t)}
	c.ShownDigest = v.viewToDecide(t, unbounded).ShownDigest
	c.Result = v.result(ctx, t)
	c.Whole, c.Redacted = whole(t.Call.Arguments, v.redactions(t))
	c.Beside, c.RedactedBeside = whole(t.Call.Also, v.redactionsBeside(t))
	if c.Story, err = v.Story(ctx, id); err != nil && !errors.Is(err, task.ErrNotFound) {
		return Case{}, err
	}
	if c.Earlier, err = v.earlier(ctx, t); err != nil {
		return Case{}, err
	}
	if err := v.addGrants(ctx, t, &c); err != nil {
		return Case{}, err
	}
	c.Changed, err = v.changed(ctx, t)
	return c, err
}

// addGrants adds to the case of t which standing approval its approvers can give, or
// which they gave.
func (v *Viewer) addGrants(ctx context.Context, t task.Task, c *Case) error {
	if t.State == task.InputRequired {
		if offer, err := v.Offer(t); err == nil {
			c.Offer = &offer
		}
		return nil
	}
	if t.Approval == nil || !slices.ContainsFunc(t.Approval.Approvals, func(d task.Decision) bool { return d.Gives != nil }) {
		return nil
	}
	all, err := grantstore.Store{Records: v.cfg.Store}.All(ctx)
	for _, g := range all {
		if g.From == t.ID {
			c.Given = append(c.Given, v.ViewGrant(g))
		}
	}
	return err
}

// earlier returns the calls of the same tool that the owner of t made before t.
func (v *Viewer) earlier(ctx context.Context, t task.Task) ([]Approval, error) {
	var found []Approval
	err := v.lookBack(ctx, task.Query{Scope: task.OwnedBy(t.Owner)}, func(other task.Task) (more bool, err error) {
		if task.Compare(t.Position(), other.Position()) < 0 && sameTool(t, other) {
			one, err := v.item(ctx, other)
			if err != nil {
				return false, err
			}
			if one != nil {
				found = append(found, one.Approval)
			}
		}
		return len(found) < maxEarlier, nil
	})
	return found, err
}

func sameTool(a, b task.Task) bool {
	return a.Call.Upstream == b.Call.Upstream && a.Call.Method == b.Call.Method && a.Call.Name == b.Call.Name
}

// lookBack calls more with the outlines of the tasks that q selects, newest
// first, until it returns false or has been called often enough.
func (v *Viewer) lookBack(ctx context.Context, q task.Query, more func(task.Task) (bool, error)) error {
	q.Outlines = true
	seen := 0
	for t, err := range task.Each(ctx, v.cfg.Store, q) {
		if errors.Is(err, task.ErrUnreadable) {
			continue
		}
		goOn := false
		if err == nil {
			goOn, err = more(t)
		}
		if seen++; err != nil || !goOn || seen == lookback {
			return err
		}
	}
	return nil
}
