package approval_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A readStore counts how often whole tasks are read, and how many are being
// read at the same time.
type readStore struct {
	task.GateStore

	gets, wholeLists, notAside atomic.Int64
	active, most               atomic.Int64
	gate                       chan struct{} // reads wait until it is closed; nil if they need not
}

func (s *readStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	s.gets.Add(1)
	if !task.IsSlowRead(ctx) {
		s.notAside.Add(1)
	}
	return s.GateStore.Get(ctx, ref)
}

func (s *readStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	if !q.Heads && !q.Outlines {
		s.wholeLists.Add(1)
	}
	if !task.IsSlowRead(ctx) {
		s.notAside.Add(1)
	}
	now := s.active.Add(1)
	defer s.active.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	if s.gate != nil {
		<-s.gate
	}
	return s.GateStore.List(ctx, q)
}

// A list reads no held call, whatever the size of its arguments, and shows how it
// stands all the same.
func TestListReadsPreviews(t *testing.T) {
	watched := &readStore{}
	o := open(t, func(c *approval.Config) {
		watched.GateStore = c.Store
		c.Store = watched
	})
	const calls = 12
	var ids []task.ID
	for i := range calls {
		c := call("session 1", fmt.Sprint(i))
		c.Message = message("delete_file", fmt.Sprintf(`{"path":"/%d","password":"hunter2","text":%q}`, i, strings.Repeat("x", 256<<10)))
		ids = append(ids, o.hold(t, c).ID)
	}
	list := func(f casefile.Filter) (found []casefile.Approval) {
		t.Helper()
		for {
			page, err := o.Pending(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, page.Approvals...)
			if f.Cursor = page.Next; f.Cursor == "" {
				return found
			}
		}
	}
	watched.gets.Store(0)
	watched.wholeLists.Store(0)
	watched.notAside.Store(0)
	for range 3 {
		found := list(casefile.Filter{Limit: 5})
		if len(found) != calls || found[0].ID != ids[calls-1] || !found[0].ArgumentsTruncated || strings.Contains(string(found[0].Arguments), "hunter2") {
			t.Fatalf("%d calls are listed: %.500v", len(found), found[0])
		}
	}
	if n := watched.gets.Load(); n > 0 {
		t.Errorf("%d calls were read to be listed", n)
	}
	if n := watched.wholeLists.Load(); n > 0 {
		t.Errorf("%d lists of whole calls were read", n)
	}
	if n := watched.notAside.Load(); n > 0 {
		t.Errorf("%d reads would be taken for trouble of the store if they were slow", n)
	}

	o.approve(t, ids[3])
	if found := list(casefile.Filter{}); len(found) != calls-1 {
		t.Errorf("%d calls are listed after one was approved", len(found))
	}
	approved := list(casefile.Filter{States: []task.State{task.Approved}})
	if len(approved) != 1 || approved[0].ID != ids[3] || len(approved[0].Approvals) != 1 {
		t.Errorf("approved: %.500v", approved)
	}
	if found := list(casefile.Filter{Tool: "DELETE"}); len(found) != calls-1 {
		t.Errorf("%d calls of the tool are listed", len(found))
	}
	if found := list(casefile.Filter{Tool: "another"}); len(found) != 0 {
		t.Errorf("%d calls of another tool are listed", len(found))
	}
}

// Lists follow a workflow's redactions from the moment that these change.
func TestPreviewFollowsRedaction(t *testing.T) {
	o := open(t, nil)
	c := call("session 1", "/a")
	c.Message = message("delete_file", `{"path":"/a","pin":"1234"}`)
	o.hold(t, c)
	arguments := func() string {
		page, err := o.Pending(t.Context(), casefile.Filter{})
		if err != nil || len(page.Approvals) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		return string(page.Approvals[0].Arguments)
	}
	if got := arguments(); !strings.Contains(got, "1234") {
		t.Errorf("at first: %s", got)
	}
	o.setWorkflow("ops", approval.Workflow{Redact: []string{"arguments.pin"}})
	if got := arguments(); strings.Contains(got, "1234") {
		t.Errorf("after a change: %s", got)
	}
}

// Of many lists at once a few are read at a time, and one whose operator leaves
// gives up its turn.
func TestFewListsAtOnce(t *testing.T) {
	watched := &readStore{gate: make(chan struct{})}
	o := open(t, func(c *approval.Config) {
		watched.GateStore = c.Store
		c.Store = watched
	})
	const operators = 20
	done := make(chan error, operators)
	for range operators {
		go func() {
			_, err := o.Pending(t.Context(), casefile.Filter{})
			done <- err
		}()
	}
	for deadline := time.After(30 * time.Second); watched.active.Load() < 4; {
		select {
		case <-deadline:
			t.Fatal("no lists are read")
		case <-time.After(time.Millisecond):
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := o.Pending(gone, casefile.Filter{}); err == nil {
		t.Error("an operator who has left is given a list")
	}
	close(watched.gate)
	for range operators {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := watched.most.Load(); n > 4 {
		t.Errorf("%d lists were read at once", n)
	}
}
