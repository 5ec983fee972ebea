// Package pause waits for a time or for the end of a context.
package pause

import (
	"context"
	"time"
)

// For waits until d has passed or ctx has ended. It reports whether d has passed.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
