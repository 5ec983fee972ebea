package gatestore

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// A Store is a [task.Store] with all parts that a gateway needs.
type Store interface {
	task.Store
	task.Blobs
	task.Watcher
	auditlog.Journal
	Records
	Reclaimer
}

// Reclaimer is the part of a store that deletes tasks early when the store is full.
type Reclaimer interface {
	// Reclaim deletes up to limit tasks of an account, or of all if account is empty, that
	// are [task.Task.Disposable], those that are due first, with their blobs, and reports
	// how many. If several do so at once, each deletion is reported to one of them.
	Reclaim(ctx context.Context, account string, limit int) (int, error)
}
