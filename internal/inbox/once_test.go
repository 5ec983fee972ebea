package inbox_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A countingStore counts how often tasks are read one by one.
type countingStore struct {
	task.GateStore

	gets      *atomic.Int64
	noRecords atomic.Bool // whether records cannot be kept
}

func (s *countingStore) PutRecord(ctx context.Context, r task.Record) error {
	if s.noRecords.Load() {
		return &task.Error{Kind: task.KindUnavailable}
	}
	return s.GateStore.PutRecord(ctx, r)
}

func (s *countingStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	s.gets.Add(1)
	return s.GateStore.Get(ctx, ref)
}

// A page loads the call that it shows once. A decision that is refused reads the
// call to judge it, and once more to show it as it is then.
func TestPageLoadsCaseOnce(t *testing.T) {
	o := open(t)
	alice := o.visit(t, "alice")
	id := o.hold(t, held{})
	path := "/approvals/" + string(id)
	reads := func(do func()) int64 {
		before := o.gets.Load()
		do()
		return o.gets.Load() - before
	}
	if n := reads(func() { alice.get(path) }); n != 1 {
		t.Errorf("a page reads its call %d times", n)
	}
	refused := func() {
		status, _ := alice.decideSeeing(path, id, "approve", url.Values{"read": {"all"}, "shown": {strings.Repeat("0", 64)}})
		if status != http.StatusConflict {
			t.Errorf("status = %d", status)
		}
	}
	if n := reads(refused); n != 4 { // with the page that is seen and the one that has the form
		t.Errorf("two pages and a refused decision read the call %d times; want 4", n)
	}
}
