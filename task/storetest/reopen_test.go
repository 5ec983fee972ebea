package storetest_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/storetest"
)

// open is a store that ignores being closed.
type everOpen struct{ task.GateStore }

// Close implements [task.GateStore].
func (everOpen) Close() error { return nil }

// A store that keeps nothing beyond its process fails, and one that does passes.
func TestReopen(t *testing.T) {
	memory := memstore.New(memstore.Options{})
	defer memory.Close()
	storetest.RunReopen(t, func() task.Store { return everOpen{memory} })

	r := recorder{ctx: t.Context()}
	var done sync.WaitGroup
	done.Go(func() {
		storetest.Reopen(&r, func() task.Store { return memstore.New(memstore.Options{}) })
	})
	done.Wait()
	if !strings.Contains(r.failure, "not found") {
		t.Errorf("a store that forgets everything fails with %q", r.failure)
	}
}

// The cases about tasks need nothing else of a store.
func TestRun(t *testing.T) {
	storetest.Run(t, func(t *testing.T) task.Store {
		s := memstore.New(memstore.Options{})
		t.Cleanup(func() { s.Close() })
		return struct{ task.Store }{s}
	})
}
