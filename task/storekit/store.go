package storekit

import (
	"context"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// BlobsOf returns s as a [task.Blobs]. If s cannot keep blobs, writing to the result fails
// with [task.ErrCapacityExceeded].
func BlobsOf(s task.Store) task.Blobs {
	if b, ok := s.(task.Blobs); ok {
		return b
	}
	return noBlobs{}
}

type noBlobs struct{}

// WriteChunk implements [task.Blobs].
func (noBlobs) WriteChunk(_ context.Context, ref task.Ref, _ int, _ []byte) error {
	return &task.Error{Kind: task.ErrCapacityExceeded, ID: ref.ID, Action: action.WriteChunk, Limit: task.ChunkSize, Detail: "the store keeps small answers only"}
}

// ReadChunk implements [task.Blobs].
func (noBlobs) ReadChunk(_ context.Context, ref task.Ref, n int) ([]byte, error) {
	return nil, ref.ChunkMissing(n)
}

// IsExclusive reports whether no other process can use s while it is open: s then has a method
// Exclusive that returns true. A run in s that another process began has ended with that process.
func IsExclusive(s task.Store) bool {
	e, ok := s.(interface{ Exclusive() bool })
	return ok && e.Exclusive()
}
