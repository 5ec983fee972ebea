package review

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// Details has a held call and everything that helps an approver to decide about it.
type Details struct {
	Approval // with the ShownDigest for all arguments

	// AllArguments are the arguments of any size, redacted but otherwise as they will be sent.
	// RedactedArguments are the ends of redacted values in them.
	AllArguments      jsontext.Value
	RedactedArguments Offsets

	// AllAlsoSent are the other members that are sent, in the same form.
	AllAlsoSent      jsontext.Value
	RedactedAlsoSent Offsets

	History    []auditlog.Entry // journal entries, oldest first
	Approvers  []string         // who may decide, as in [policy.Workflow]
	Objection  error            // why the viewing operator may not approve it
	ToolChange *ToolChange      // see [ToolChange]; nil if the tool has not changed
	Earlier    []Approval       // earlier calls of the tool by this requester, newest first
	GrantOffer *Offer           // the standing approval that can be given with an approval
	Grants     []Grant          // the standing approvals given with the decisions
	Correction jsontext.Value   // the arguments for a rejection with a correction; nil if the call cannot have one
}

// A Context has the details of a call without the call itself.
type Context struct {
	Approvers  []string         `json:"approvers,omitempty"` // who may decide
	Objection  string           `json:"objection,omitzero"`  // why the viewing operator may not approve it
	ToolChange *ToolChange      `json:"changed,omitzero"`    // see [ToolChange]; absent if the tool has not changed
	Earlier    []Approval       `json:"earlier,omitempty"`   // earlier calls of the tool by this requester, newest first
	History    []auditlog.Entry `json:"story,omitempty"`     // journal entries, oldest first
	GrantOffer *Offer           `json:"grant,omitzero"`      // the standing approval that can be given with an approval
	Grants     []Grant          `json:"given,omitempty"`     // the standing approvals given with the approvals
}

// Context returns the details without the call. Objection describes an error in words.
func (c Details) Context(objection func(error) string) Context {
	x := Context{Approvers: c.Approvers, ToolChange: c.ToolChange, Earlier: c.Earlier, History: c.History, GrantOffer: c.GrantOffer, Grants: c.Grants}
	if c.Objection != nil {
		x.Objection = objection(c.Objection)
	}
	return x
}

// Limits on the search for related calls.
const (
	maxEarlier = 5
	lookback   = 100 // tasks
)

// Details returns the details of a held call. Objection returns why the viewing operator may
// not approve it.
func (v *Viewer) Details(ctx context.Context, id task.ID, objection func(task.Task) error) (c Details, err error) {
	err = v.read(ctx, id, func(ctx context.Context, t task.Task) error {
		c, err = v.details(ctx, t, objection(t))
		return err
	})
	return c, err
}

func (v *Viewer) details(ctx context.Context, t task.Task, objection error) (Details, error) {
	w, _ := v.cfg.Workflow(t)
	arguments, also := v.copies(ctx.Err, t, 0)
	c := Details{Approval: v.describe(t, ReadFacts(t), newPreview(arguments, also, MaxShown), MaxShown), Approvers: w.Approvers, Objection: objection}
	c.ShownDigest = v.decidable(t, arguments, also, unbounded).ShownDigest
	c.Result = v.result(ctx, t)
	c.AllArguments, c.RedactedArguments = arguments.whole()
	c.AllAlsoSent, c.RedactedAlsoSent = also.whole()
	if err := ctx.Err(); err != nil {
		return Details{}, err
	}
	var err error
	if c.History, err = v.History(ctx, t.ID); err != nil && !errors.Is(err, task.ErrNotFound) {
		return Details{}, err
	}
	if c.Earlier, err = v.earlier(ctx, t); err != nil {
		return Details{}, err
	}
	if err := v.addGrants(ctx, t, &c); err != nil {
		return Details{}, err
	}
	c.ToolChange, err = v.changed(ctx, t)
	return c, err
}

// addGrants adds the standing approval that can be given for t, or those that were given.
func (v *Viewer) addGrants(ctx context.Context, t task.Task, c *Details) error {
	if t.State == task.InputRequired {
		if offer, err := v.Offer(t); err == nil {
			c.GrantOffer = &offer
		}
		c.Correction = v.correctionForm(t)
		return nil
	}
	if !gaveGrant(t) {
		return nil
	}
	all, err := grantstore.Store{Records: v.cfg.Store}.All(ctx)
	for _, g := range all {
		if g.From == t.ID {
			c.Grants = append(c.Grants, v.ViewGrant(g))
		}
	}
	return err
}

// gaveGrant reports whether an approver of t gave a standing approval.
func gaveGrant(t task.Task) bool {
	if t.Approval == nil {
		return false
	}
	all := t.Approval.Approvals
	if t.Approval.Rejection != nil {
		all = []gatetask.Decision{*t.Approval.Rejection}
	}
	return slices.ContainsFunc(all, func(d gatetask.Decision) bool { return d.NewGrant != nil })
}

// earlier returns earlier calls of the same tool by the owner of t.
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

// lookBack calls more with outlines of tasks, newest first, until it returns false or lookback is
// reached.
func (v *Viewer) lookBack(ctx context.Context, q task.Query, more func(task.Task) (bool, error)) error {
	q.Outlines = true
	seen := 0
	for t, err := range storekit.Each(ctx, v.cfg.Store, q) {
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
