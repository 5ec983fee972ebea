package review

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Place is the position of a pending call among those that a filter selects, the earliest
// deadline first.
type Place struct {
	Pending        int // number of pending calls
	Matching       int // number of calls that the filter selects
	At             int // the position of the call, from 1; 0 if the filter does not select it
	Previous, Next task.ID
	Identical      []task.ID // the other calls of its [Group]
}

// Place returns the place of the call with the given id. It ignores the states and the cursor in f.
func (v *Viewer) Place(ctx context.Context, f Filter, id task.ID) (Place, error) {
	calls, err := v.pendingItems(ctx)
	if err != nil {
		return Place{}, err
	}
	slices.SortFunc(calls, byDeadline)
	p := Place{Pending: len(calls)}
	isCall := func(i *item) bool { return i.ID == id }
	if at := slices.IndexFunc(calls, isCall); at >= 0 {
		p.Identical = identical(calls, calls[at])
	}
	f.States = pendingStates
	calls = slices.DeleteFunc(calls, func(i *item) bool { return !f.selects(i) })
	p.Matching = len(calls)
	at := slices.IndexFunc(calls, isCall)
	p.At = at + 1
	if at > 0 {
		p.Previous = calls[at-1].ID
	}
	if at >= 0 && at+1 < len(calls) {
		p.Next = calls[at+1].ID
	}
	return p, nil
}

func byDeadline(a, b *item) int {
	return comparePositions(positionOf(a.Approval), positionOf(b.Approval))
}

// identical returns the ids of the other calls in the group of a call.
func identical(calls []*item, call *item) (others []task.ID) {
	for _, i := range calls {
		if i.ID != call.ID && keyOf(i) == keyOf(call) {
			others = append(others, i.ID)
		}
	}
	return others
}

// Following returns the pending call that comes after a call, which may have been decided, among
// those that f selects and fits accepts. After the last call comes the first. It returns "" if no
// other call is left.
func (v *Viewer) Following(ctx context.Context, f Filter, id task.ID, fits func(task.Task) bool) (task.ID, error) {
	after, err := v.lastPosition(ctx, id)
	if err != nil {
		return "", err
	}
	f.States = pendingStates
	var calls []*item
	err = v.eachPending(ctx, func(t task.Task, i *item) {
		if i.ID != id && f.selects(i) && fits(t) {
			calls = append(calls, i)
		}
	})
	if err != nil || len(calls) == 0 {
		return "", err
	}
	slices.SortFunc(calls, byDeadline)
	next := slices.IndexFunc(calls, func(i *item) bool { return comparePositions(positionOf(i.Approval), after) > 0 })
	return calls[max(0, next)].ID, nil
}

// lastPosition returns the position that a call has, or had, in the queue. A call that is gone has
// the first one.
func (v *Viewer) lastPosition(ctx context.Context, id task.ID) (at queuePosition, err error) {
	err = v.read(ctx, id, func(_ context.Context, t task.Task) error {
		if t.Approval != nil {
			at = queuePosition{t.Approval.Deadline, t.ID}
		}
		return nil
	})
	if errors.Is(err, task.ErrNotFound) {
		err = nil
	}
	return at, err
}

// Alike returns those of other calls whose view is that of the call, apart from its id and its
// time, with the digests of their views. So an approver who sees the call sees all of them. Calls
// with more than [MaxShown] bytes of arguments are like no other.
func (v *Viewer) Alike(ctx context.Context, id task.ID, others []task.ID) ([]Approval, error) {
	var want string
	var all []Approval
	for n, id := range append([]task.ID{id}, others...) {
		var a Approval
		err := v.read(ctx, id, func(ctx context.Context, t task.Task) (err error) {
			a, err = v.viewToDecide(ctx, t, MaxShown)
			return err
		})
		switch {
		case n > 0 && errors.Is(err, task.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		case n == 0 && a.UnreadBytes > 0:
			return nil, nil
		case n == 0:
			want = withoutID(a)
		//mutate:swap "withoutID(a) == want" "want != \"\"" internal/inbox.TestGroupHasOnlyCallsThatLookAlike a person approves a call whose description, reason or caution was not shown
		case a.State == task.InputRequired && a.UnreadBytes == 0 && withoutID(a) == want:
			all = append(all, a)
		}
	}
	return all, nil
}

// withoutID returns the digest of a view without its id and its time.
func withoutID(a Approval) string {
	a.ID, a.CreatedAt = "", time.Time{}
	return shownDigest(a)
}

// eachPending calls do with the outline and the item of each pending call.
func (v *Viewer) eachPending(ctx context.Context, do func(task.Task, *item)) error {
	ctx, done, err := v.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	for t, err := range storekit.Each(ctx, v.cfg.Store, task.Query{Scope: task.AnyOwner(), States: pendingStates, Limit: listSize, Outlines: true}) {
		if errors.Is(err, task.ErrUnreadable) {
			v.logUnreadable(ctx, err)
			continue
		}
		var one *item
		if err == nil {
			one, err = v.item(ctx, t)
		}
		if err != nil {
			return err
		}
		if one != nil && one.State == task.InputRequired {
			do(t, one)
		}
	}
	return nil
}
