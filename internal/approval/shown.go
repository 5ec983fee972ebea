package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// The errors of an approver who has not seen what would be approved.
var (
	ErrNotShown    = errors.New("approval: the decision does not say what the approver was shown")
	ErrViewChanged = errors.New("approval: the call is not what the approver was shown")
	ErrUnread      = errors.New("approval: the approver was shown only a part of the arguments")
)

// viewToDecide returns t as an approver sees it before a decision, with at
// most so many bytes of its arguments, and with the digest of that view.
func (d *Desk) viewToDecide(t task.Task, most int) Approval {
	a := d.view(t, most)
	if a.ArgumentsTruncated {
		a.UnreadBytes = max(1, len(t.Call.Arguments)-most)
	}
	if _, cut := shown(t.Call.Also, d.redactionsBeside(t), most); cut {
		a.UnreadBytes += max(1, len(t.Call.Also)-most)
	}
	a.ShownDigest = shownDigest(a)
	return a
}

// shownDigest returns the digest of everything in a that an approver decides
// on. How the call stands is not part of it: that changes while it waits.
func shownDigest(a Approval) string {
	a.ShownDigest, a.State, a.ExpiresAt = "", "", time.Time{}
	a.Approvals, a.Rejection, a.Failure, a.Result = nil, nil, nil, nil
	text, err := json.Marshal(a, json.Deterministic(true))
	if err != nil {
		return "" // matches no ruling
	}
	sum := sha256.Sum256(append([]byte("thoughtgate shown 1\n"), text...))
	return hex.EncodeToString(sum[:])
}

// checkShown returns nil if r may be made by who, who saw what r says. A ruling
// that cannot count, because it is too late or the second one, is not checked.
func (d *Desk) checkShown(t task.Task, who Approver, r Ruling) error {
	if !d.counts(t, who) || r.Decision != Approve && r.Shown == "" {
		return nil
	}
	if r.Shown == "" {
		return ErrNotShown
	}
	part := d.viewToDecide(t, maxShown)
	switch {
	case r.Shown == part.ShownDigest && (r.Decision == Reject || r.Unread == part.UnreadBytes):
		return nil
	case r.Shown == part.ShownDigest:
		return ErrUnread
	case part.UnreadBytes > 0 && r.Shown == d.viewToDecide(t, unbounded).ShownDigest:
		return nil
	default:
		return ErrViewChanged
	}
}

// counts reports whether a ruling by who on t can still count.
func (d *Desk) counts(t task.Task, who Approver) bool {
	inTime := t.Approval == nil || d.cfg.Now().Before(t.Approval.Deadline)
	return t.State == task.InputRequired && inTime && !errors.Is(d.objection(t, who), task.ErrAlreadyDecided)
}
