//go:build failpoints

package storage

import (
	"github.com/thoughtgate/thoughtgate-go/internal/failpoint"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// withFailpoint returns a store with one call that fails on purpose.
func withFailpoint(s gatestore.Store) (gatestore.Store, error) { return failpoint.Wrap(s) }
