package gatestoretest

import (
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// Exports for the tests of the suite, which run single cases and expect them to fail.
type (
	Reporter = reporter
	Case     = testCase
)

func (c testCase) Name() string { return c.name }

func (c testCase) Run(t Reporter, s gatestore.Store) { c.run(t, s) }

var Cases = cases

// Reopen is RunReopen for a reporter.
func Reopen(t Reporter, open func() task.Store) { reopen(t, open) }
