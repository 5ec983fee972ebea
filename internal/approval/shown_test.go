package approval_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An approval names the view that the approver saw, and counts for that view only.
func TestApprovalNamesWhatWasShown(t *testing.T) {
	o := open(t, nil)
	c := call("ann", "/shown")
	c.Message = []byte(strings.Replace(string(c.Message), `"path":`, `"text":"`+strings.Repeat("x", 100_000)+`","path":`, 1))
	held := o.hold(t, c)
	approve := func(shown string, unread int) error {
		_, err := o.Decide(t.Context(), held.ID, alice, approval.Ruling{Decision: approval.Approve, Shown: shown, Unread: unread})
		return err
	}
	must := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", what, err, want)
		}
	}
	part, err := o.views.Show(t.Context(), held.ID)
	if err != nil || !part.ArgumentsTruncated || part.UnreadBytes == 0 {
		t.Fatalf("%+v, %v", part, err)
	}
	whole, err := o.views.ShowAll(t.Context(), held.ID)
	if err != nil || whole.ArgumentsTruncated || whole.UnreadBytes != 0 || whole.ShownDigest == part.ShownDigest {
		t.Fatalf("%+v, %v", whole, err)
	}
	must("no digest", approve("", 0), review.ErrNotShown)
	must("another digest", approve(strings.Repeat("0", 64), 0), review.ErrViewChanged)
	must("a part", approve(part.ShownDigest, 0), review.ErrUnread)
	must("a part, and less unread than there is", approve(part.ShownDigest, 1), review.ErrUnread)

	// The agent changes its reason meanwhile.
	if _, err := o.SetVariables(t.Context(), mine(held), task.Variables{review.ClientReason: json.RawMessage(`"trust me"`)}); err != nil {
		t.Fatal(err)
	}
	must("before the agent spoke", approve(whole.ShownDigest, 0), review.ErrViewChanged)
	if whole, err = o.views.ShowAll(t.Context(), held.ID); err != nil {
		t.Fatal(err)
	}
	if err := approve(whole.ShownDigest, 0); err != nil {
		t.Errorf("complete view: %v", err)
	}
	must("after it was decided", approve("", 0), task.ErrInvalidTransition)
}

// Until the last moment at which an approval counts, it must name the view. Tasks store times
// in microseconds.
func TestApprovalAtTheDeadline(t *testing.T) {
	for late, want := range map[time.Duration]error{
		0: review.ErrNotShown, 999 * time.Nanosecond: review.ErrNotShown, time.Microsecond: task.ErrExpired,
	} {
		var now atomic.Pointer[time.Time]
		began := time.Now()
		now.Store(&began)
		o := open(t, func(c *approval.Config) { c.Now = func() time.Time { return *now.Load() } })
		held := o.hold(t, call("ann", "/a"))
		at := held.Approval.Deadline.Add(late)
		now.Store(&at)
		after, err := o.Decide(t.Context(), held.ID, alice, approval.Ruling{Decision: approval.Approve})
		if !errors.Is(err, want) {
			t.Errorf("%v after the deadline: %v, %s; want %v", late, err, after.State, want)
		}
		mustState(t, o.now(t, held.ID), task.InputRequired)
	}
}
