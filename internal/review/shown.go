package review

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// The errors of a decision whose approver has not seen the call.
var (
	ErrNotShown    = errors.New("review: the decision does not say what the approver was shown")
	ErrViewChanged = errors.New("review: the call is not what the approver was shown")
	ErrUnread      = errors.New("review: the approver was shown only a part of the arguments")
)

// viewToDecide returns t as shown to an approver, with at most the given size of arguments and
// with the digest of the view, but without cautions. It fails only if ctx has ended.
func (v *Viewer) viewToDecide(ctx context.Context, t task.Task, most int) (Approval, error) {
	arguments, also := v.copies(ctx.Err, t, most)
	return v.decidable(t, arguments, also, most), ctx.Err()
}

// decidable implements viewToDecide for redacted arguments.
func (v *Viewer) decidable(t task.Task, arguments, also redactedJSON, most int) Approval {
	p := newPreview(arguments, also, most)
	a := v.facts(t, ReadFacts(t), p, most)
	if p.Truncated && !t.Abridged() {
		a.UnreadBytes = max(1, len(t.Call.Arguments)-most)
	}
	if p.alsoTruncated {
		a.UnreadBytes += max(1, len(t.Call.Also)-most)
	}
	a.ShownDigest = shownDigest(a)
	return a
}

// shownDigest returns the digest of what an approver decides about. It excludes the state of the
// call, which changes while it waits, the cautions, which are derived, and the exact name, which
// Tool shows escaped.
func shownDigest(a Approval) string {
	a.ShownDigest, a.State, a.ExpiresAt, a.Cautions = "", "", time.Time{}, Cautions{}
	a.Approvals, a.Rejection, a.Failure, a.Result = nil, nil, nil, nil
	a.Name, a.Agent, a.Next, a.Requests = "", nil, "", 0
	text, err := json.Marshal(a, json.Deterministic(true))
	if err != nil {
		return "" // matches no decision
	}
	sum := sha256.Sum256(append([]byte("thoughtgate shown 1\n"), text...))
	return hex.EncodeToString(sum[:])
}

// CheckShown returns nil if shown is the digest of the current view of t: with all arguments, or
// without the last unread bytes if the approver accepts that. The error is [ErrNotShown],
// [ErrViewChanged] or [ErrUnread], or that of ctx.
func (v *Viewer) CheckShown(ctx context.Context, t task.Task, shown string, unread int) error {
	if shown == "" {
		return ErrNotShown
	}
	part, err := v.viewToDecide(ctx, t, MaxShown)
	switch {
	case err != nil:
		return err
	case shown == part.ShownDigest && (unread == part.UnreadBytes || part.UnreadBytes == 0):
		return nil
	case shown == part.ShownDigest:
		return ErrUnread
	case part.UnreadBytes == 0:
		return ErrViewChanged
	}
	whole, err := v.viewToDecide(ctx, t, unbounded)
	switch {
	case err != nil:
		return err
	case shown == whole.ShownDigest:
		return nil
	default:
		//mutate:swap "ErrViewChanged" "nil" internal/approval.TestApprovalNamesWhatWasShown an approval counts although the approver saw another view
		return ErrViewChanged
	}
}
