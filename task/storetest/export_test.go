package storetest

import "github.com/thoughtgate/thoughtgate-go/task"

// What the suite's own test needs to run single cases and to see them fail.
type (
	Reporter = reporter
	Case     = testCase
)

func (c testCase) Name() string { return c.name }

func (c testCase) Run(t Reporter, s task.Store) { c.run(t, s) }

var Cases = cases
