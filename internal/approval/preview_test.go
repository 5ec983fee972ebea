package approval_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A readStore counts reads of whole tasks, and how many run at the same time.
type readStore struct {
	gatestore.Store

	gets, wholeLists, notAside atomic.Int64
	active, most               atomic.Int64
	gate                       chan struct{} // reads wait until it is closed; nil if they do not wait
	records                    string        // reads of records with this prefix wait too
}

func (s *readStore) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	if s.records != "" && strings.HasPrefix(q.Prefix, s.records) {
		defer s.wait()()
	}
	return s.Store.ListRecords(ctx, q)
}

// wait counts a read, and waits until it may go on. The caller must call the result when it ends.
func (s *readStore) wait() (end func()) {
	now := s.active.Add(1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
	}
	if s.gate != nil {
		<-s.gate
	}
	return func() { s.active.Add(-1) }
}

func (s *readStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	s.gets.Add(1)
	if !storekit.IsSlowRead(ctx) {
		s.notAside.Add(1)
	}
	return s.Store.Get(ctx, ref)
}

func (s *readStore) List(ctx context.Context, q task.Query) (task.Page, error) {
	if !q.Heads && !q.Outlines {
		s.wholeLists.Add(1)
	}
	if !storekit.IsSlowRead(ctx) {
		s.notAside.Add(1)
	}
	defer s.wait()()
	return s.Store.List(ctx, q)
}

// A list reads previews only, however large the arguments of its calls are, and shows the
// current states.
func TestListReadsPreviews(t *testing.T) {
	watched := &readStore{}
	o := open(t, func(c *approval.Config) {
		watched.Store = c.Store
		c.Store = watched
	})
	const calls = 12
	var ids []task.ID
	for i := range calls {
		c := call("session 1", fmt.Sprint(i))
		c.Message = message("delete_file", fmt.Sprintf(`{"path":"/%d","password":"hunter2","text":%q}`, i, strings.Repeat("x", 256<<10)))
		ids = append(ids, o.hold(t, c).ID)
	}
	list := func(f review.Filter) (found []review.Approval) {
		t.Helper()
		for {
			page, err := o.views.Pending(t.Context(), f)
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
		found := list(review.Filter{Limit: 5})
		if len(found) != calls || found[0].ID != ids[calls-1] || !found[0].ArgumentsTruncated || strings.Contains(string(found[0].Arguments), "hunter2") {
			t.Fatalf("%d listed calls: %.500v", len(found), found[0])
		}
	}
	if n := watched.gets.Load(); n > 0 {
		t.Errorf("%d calls read for the list", n)
	}
	if n := watched.wholeLists.Load(); n > 0 {
		t.Errorf("%d lists of whole calls read", n)
	}
	if n := watched.notAside.Load(); n > 0 {
		t.Errorf("%d reads count as trouble of the store if they are slow", n)
	}

	o.approve(t, ids[3])
	if found := list(review.Filter{}); len(found) != calls-1 {
		t.Errorf("%d listed calls after one approval", len(found))
	}
	approved := list(review.Filter{States: []task.State{task.Approved}})
	if len(approved) != 1 || approved[0].ID != ids[3] || len(approved[0].Approvals) != 1 {
		t.Errorf("approved: %.500v", approved)
	}
	if found := list(review.Filter{Tool: "DELETE"}); len(found) != calls-1 {
		t.Errorf("%d listed calls of the tool", len(found))
	}
	if found := list(review.Filter{Tool: "another"}); len(found) != 0 {
		t.Errorf("%d listed calls of another tool", len(found))
	}
}

// Lists apply a workflow's new redactions as soon as these change.
func TestPreviewFollowsRedaction(t *testing.T) {
	o := open(t, nil)
	c := call("session 1", "/a")
	c.Message = message("delete_file", `{"path":"/a","pin":"1234"}`)
	o.hold(t, c)
	arguments := func() string {
		page, err := o.views.Pending(t.Context(), review.Filter{})
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

// Few lists are read at the same time. A list whose operator has disconnected is not read.
func TestConcurrentListsAreLimited(t *testing.T) {
	watched := &readStore{gate: make(chan struct{})}
	o := open(t, func(c *approval.Config) {
		watched.Store = c.Store
		c.Store = watched
	})
	const operators = 20
	done := make(chan error, operators)
	for n := range operators {
		go func() {
			ctx := admission.WithClient(t.Context(), admission.Principal(strconv.Itoa(n)))
			_, err := o.views.Pending(ctx, review.Filter{})
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
	if _, err := o.views.Pending(gone, review.Filter{}); err == nil {
		t.Error("an operator who disconnected got a list")
	}
	close(watched.gate)
	for range operators {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := watched.most.Load(); n > 4 {
		t.Errorf("%d concurrent reads of lists", n)
	}
}

// An operator reads the record for two standing approvals at the same time, not for any number.
func TestConcurrentCoverageIsLimited(t *testing.T) {
	watched := &readStore{records: callrecord.Prefix}
	o := open(t, func(c *approval.Config) {
		watched.Store = c.Store
		c.Store = watched
	})
	o.allowGrants("ops")
	id := o.hold(t, toolCall(`{"path":"/a"}`)).ID
	watched.gate = make(chan struct{})
	ctx := admission.WithClient(t.Context(), admission.Principal("alice"))
	const previews = 10
	begun, done := make(chan struct{}, previews), make(chan error, previews)
	for range previews {
		go func() {
			begun <- struct{}{}
			_, err := o.Coverage(ctx, id, alice, *terms(1))
			done <- err
		}()
	}
	for range previews {
		<-begun
	}
	for deadline := time.After(30 * time.Second); watched.active.Load() < 2; {
		select {
		case <-deadline:
			t.Fatal("no record is read")
		case <-time.After(time.Millisecond):
		}
	}
	close(watched.gate)
	for range previews {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := watched.most.Load(); n > 2 {
		t.Errorf("%d concurrent reads of the record", n)
	}
}
