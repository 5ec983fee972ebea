package gatestoretest_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// everOpen is a store whose Close has no effect.
type everOpen struct{ gatestore.Store }

// Close implements [gatestore.Store].
func (everOpen) Close() error { return nil }

// A store without storage fails RunReopen, and a store with storage passes.
func TestReopenDetectsLostTasks(t *testing.T) {
	memory := memstore.New(memstore.Options{})
	defer memory.Close()
	gatestoretest.RunReopen(t, func() task.Store { return everOpen{memory} })

	r := recorder{ctx: t.Context()}
	var done sync.WaitGroup
	done.Go(func() {
		gatestoretest.Reopen(&r, func() task.Store { return memstore.New(memstore.Options{}) })
	})
	done.Wait()
	if !strings.Contains(r.failure, "not found") {
		t.Errorf("a store without storage fails with %q", r.failure)
	}
}

// The cases of Run need a store without optional parts.
func TestRunNeedsOnlyTasks(t *testing.T) {
	gatestoretest.RunTasks(t, func(t *testing.T) task.Store {
		s := memstore.New(memstore.Options{})
		t.Cleanup(func() { s.Close() })
		return struct{ task.Store }{s}
	})
}
