//go:build !failpoints

package storage

import "github.com/thoughtgate/thoughtgate-go/task/gatestore"

// withFailpoint returns s: only programs for tests have failpoints.
func withFailpoint(s gatestore.Store) (gatestore.Store, error) { return s, nil }
