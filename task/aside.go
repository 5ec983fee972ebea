package task

import "context"

type asideKey struct{}

// Aside returns a context for reads on behalf of people who look at many tasks.
// Such a read may take long without anything being wrong with the store: whoever
// watches over a store must not take it to be in trouble for that.
func Aside(ctx context.Context) context.Context { return context.WithValue(ctx, asideKey{}, true) }

// IsAside reports whether ctx comes from [Aside].
func IsAside(ctx context.Context) bool { return ctx.Value(asideKey{}) != nil }
