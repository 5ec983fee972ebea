package inbox_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A countingStore counts how often tasks are read one by one.
type countingStore struct {
	gatestore.Store

	gets      *atomic.Int64
	stuck     atomic.Pointer[task.ID] // reads of this task block until their context ends; may be nil
	noRecords atomic.Bool             // PutRecord fails
}

func (s *countingStore) PutRecord(ctx context.Context, r gatestore.Record) error {
	if s.noRecords.Load() {
		return &task.Error{Kind: task.ErrUnavailable}
	}
	return s.Store.PutRecord(ctx, r)
}

func (s *countingStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	s.gets.Add(1)
	if id := s.stuck.Load(); id != nil && ref.ID == *id {
		<-ctx.Done()
	}
	return s.Store.Get(ctx, ref)
}

// TestPageLoadsCallOnce checks that a page reads its call once. A refused decision reads the
// call twice: to judge the decision, and to show the present state.
func TestPageLoadsCallOnce(t *testing.T) {
	o := open(t)
	alice := o.signIn(t, "alice")
	id := o.hold(t, held{})
	path := "/approvals/" + string(id)
	reads := func(do func()) int64 {
		before := o.gets.Load()
		do()
		return o.gets.Load() - before
	}
	if n := reads(func() { alice.get(path) }); n != 1 {
		t.Errorf("a page reads its call %d times, want once", n)
	}
	refused := func() {
		status, _ := alice.decideSeeing(path, id, "approve", url.Values{"read": {"all"}, "shown": {strings.Repeat("0", 64)}})
		if status != http.StatusConflict {
			t.Errorf("status %d, want 409", status)
		}
	}
	if n := reads(refused); n != 4 { // including two page loads of the test
		t.Errorf("two pages and a refused decision read the call %d times; want 4", n)
	}
}
