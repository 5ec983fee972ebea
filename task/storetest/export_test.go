package storetest

import "github.com/thoughtgate/thoughtgate-go/task"

// Exports for the suite's own test, which runs single cases and expects them to
// fail.
type (
	Reporter = reporter
	Case     = testCase
)

func (c testCase) Name() string { return c.name }

func (c testCase) Run(t Reporter, s task.GateStore) { c.run(t, s) }

var Cases = cases

// Reopen is RunReopen for a reporter.
func Reopen(t Reporter, open func() task.Store) { reopen(t, open) }
