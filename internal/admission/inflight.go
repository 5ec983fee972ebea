package admission

import (
	"context"
	"sync"
)

// InFlight counts operations that are under way. Unlike with a [sync.WaitGroup], an
// operation may begin while Wait waits for all of them to end.
type InFlight struct {
	mu    sync.Mutex
	count int
	ended chan struct{} // closed when count becomes 0; nil without callers of Wait
}

// Begin counts one more operation and returns true, unless there are as many as the
// limit. The limit 0 means no limit.
func (f *InFlight) Begin(limit int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if limit > 0 && f.count >= limit {
		return false
	}
	f.count++
	return true
}

// End counts one operation less.
func (f *InFlight) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count--; f.count == 0 && f.ended != nil {
		close(f.ended)
		f.ended = nil
	}
}

// Go runs do in a goroutine, and counts it until it returns.
func (f *InFlight) Go(do func()) {
	f.Begin(0)
	go func() {
		defer f.End()
		do()
	}()
}

// Wait waits until the count is 0. It returns an error if ctx ends before that.
func (f *InFlight) Wait(ctx context.Context) error {
	f.mu.Lock()
	if f.count == 0 {
		f.mu.Unlock()
		return nil
	}
	if f.ended == nil {
		f.ended = make(chan struct{})
	}
	ended := f.ended
	f.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
