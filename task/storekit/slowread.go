package storekit

import "context"

type slowReadKey struct{}

// SlowRead returns a context for reads of many tasks, such as those for a list that a
// person looks at. Such a read may take long although the store is healthy, so a wrapper
// with a time limit must not count it as a failure of the store.
func SlowRead(ctx context.Context) context.Context {
	return context.WithValue(ctx, slowReadKey{}, true)
}

// IsSlowRead reports whether ctx comes from [SlowRead].
func IsSlowRead(ctx context.Context) bool { return ctx.Value(slowReadKey{}) != nil }
