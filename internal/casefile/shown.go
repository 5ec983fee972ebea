package casefile

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
	ErrNotShown    = errors.New("casefile: the decision does not say what the approver was shown")
	ErrViewChanged = errors.New("casefile: the call is not what the approver was shown")
	ErrUnread      = errors.New("casefile: the approver was shown only a part of the arguments")
)

// viewToDecide returns t as an approver sees it before a decision, with at
// most so many bytes of its arguments, and with the digest of that view.
func (v *Viewer) viewToDecide(t task.Task, most int) Approval {
	a := v.view(t, most)
	if a.ArgumentsTruncated {
		a.UnreadBytes = max(1, len(t.Call.Arguments)-most)
	}
	if _, cut := shown(t.Call.Also, v.redactionsBeside(t), most); cut {
		a.UnreadBytes += max(1, len(t.Call.Also)-most)
	}
	a.ShownDigest = shownDigest(a)
	return a
}

// shownDigest returns the digest of everything in a that an approver decides
// on. How the call stands is not part of it: that changes while it waits. Nor are
// the cautions, which follow from the rest, and the exact name, which follows from Tool.
func shownDigest(a Approval) string {
	a.ShownDigest, a.State, a.ExpiresAt, a.Cautions = "", "", time.Time{}, Cautions{}
	a.Approvals, a.Rejection, a.Failure, a.Result = nil, nil, nil, nil
	a.Name, a.Agent, a.Next = "", nil, ""
	text, err := json.Marshal(a, json.Deterministic(true))
	if err != nil {
		return "" // matches no decision
	}
	sum := sha256.Sum256(append([]byte("thoughtgate shown 1\n"), text...))
	return hex.EncodeToString(sum[:])
}

// CheckShown returns nil if shown is the digest of what people are shown of t
// now, with all of its arguments or, if the approver says so, without the last
// unread bytes of them. An approver who was shown everything may say of any part
// that they did not read it. Otherwise the error is [ErrNotShown],
// [ErrViewChanged] or [ErrUnread].
func (v *Viewer) CheckShown(t task.Task, shown string, unread int) error {
	if shown == "" {
		return ErrNotShown
	}
	part := v.viewToDecide(t, MaxShown)
	switch {
	case shown == part.ShownDigest && (unread == part.UnreadBytes || part.UnreadBytes == 0):
		return nil
	case shown == part.ShownDigest:
		return ErrUnread
	case part.UnreadBytes > 0 && shown == v.viewToDecide(t, unbounded).ShownDigest:
		return nil
	default:
		return ErrViewChanged
	}
}
