package approval

import (
	"context"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// An Assurance says how far the owner of a call is known.
type Assurance int

// The assurances, the best one first.
const (
	Identified Assurance = iota // the gate knows who it is
	Proven                      // it has a session that the upstream gave it
	Claimed                     // it shows credentials that only the upstream can check
	Unknown                     // it shows nothing, or a session that it may have made up
)

// Shares bound what owners that are not identified may have pending, so that
// there is always room for those that are. Zero fields limit nothing.
type Shares struct {
	PerRoom int // all that share a room
	Unknown int // all of unknown owners that share a room; those of owners that are known better count too
	All     int // all, in every room
	Strange int // all, if the owner is not proven: the rest is for those that are
}

// limits returns the limits for a call. Owners that share a name because they cannot
// be distinguished are bounded by their room instead.
func (h *holder) limits(c Call) task.Limits {
	l, shares := h.settings().Limits, h.settings().Shares
	l.Unique = !c.Alone
	if c.Room == "" || c.Assurance == Identified {
		return l
	}
	if c.Alone {
		l.PerOwner = 0
	}
	l.PerRoom, l.Rooms = shares.PerRoom, shares.All
	if c.Assurance != Proven {
		l.Rooms = shares.Strange
	}
	if c.Assurance == Unknown {
		l.PerRoom = shares.Unknown
	}
	return l
}

// admitCall stores the task of c. An owner that is unknown is asked to prove
// itself when there is no room for the unknown, and not before.
func (h *holder) admitCall(ctx context.Context, c Call, t task.Task) (task.Task, bool, error) {
	held, attached, err := h.admit(ctx, t, h.limits(c))
	full := errors.Is(err, task.ErrRateLimited) || errors.Is(err, task.ErrCapacityExceeded)
	if full && c.Assurance == Unknown && c.Prove != nil && c.Prove(ctx) {
		c.Assurance = Proven
		return h.admit(ctx, t, h.limits(c))
	}
	return held, attached, err
}
