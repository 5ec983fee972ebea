// Package storetest checks that a [task.Store] keeps its contract.
//
// Every store runs the same cases; none can be skipped:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) task.Store { return open(t) })
//	}
package storetest

import (
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
)

// Run checks a store. It runs each case against an empty store from open, which should close the
// store with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) task.Store) {
	t.Helper()
	gatestoretest.RunTasks(t, open)
}

// RunReopen checks that stored tasks are still there after the store is opened again. Open returns
// a new handle on the same store each time. The store is empty at first. RunReopen closes each
// handle before it opens the next.
func RunReopen(t *testing.T, open func() task.Store) {
	t.Helper()
	gatestoretest.RunReopen(t, open)
}
