package approval

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A spool is an answer that is being kept, chunk by chunk. Those who wait for it
// here read what there is, and need not wait for all of it.
type spool struct {
	failed bool // the answer is an error object

	mu      sync.Mutex
	chunks  int              // how many are kept, without a gap
	written int              // how far the chunks go that are kept, be it with gaps
	early   map[int]struct{} // those behind a gap
	readers int
	over    bool          // no more will be kept
	err     error         // why not, if the answer is not whole
	moved   chan struct{} // closed, and replaced, with every change

	discarded bool // none of the chunks is what it was
}

// ErrBrokenOff reports an answer that broke off while it was read. The task has
// not got it, then.
var ErrBrokenOff = errors.New("the answer broke off")

// change makes a change, and wakes those who wait for one.
func (s *spool) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	close(s.moved)
	s.moved = make(chan struct{})
}

// kept takes note of chunk n, and reports whether it was the first that can be
// read. Chunks may be written in any order.
func (s *spool) kept(n int) (first bool) {
	s.change(func() {
		if s.early == nil {
			s.early = make(map[int]struct{})
		}
		s.early[n] = struct{}{}
		s.written = max(s.written, n+1)
		first = n == 0
		for {
			if _, next := s.early[s.chunks]; !next {
				return
			}
			delete(s.early, s.chunks)
			s.chunks++
		}
	})
	return first
}

// beingRead reports whether somebody reads the answer while it is being kept.
func (s *spool) beingRead() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readers > 0
}

// await waits for a chunk. It returns io.EOF if the answer has no more.
func (s *spool) await(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		there, over, err, moved := s.chunks > n && !s.discarded, s.over, s.err, s.moved
		s.mu.Unlock()
		switch {
		case there:
			return nil
		case over && err != nil:
			return err
		case over:
			return io.EOF
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

// Spools are the answers that are being kept here.
type spools struct {
	mu      sync.Mutex
	open    map[task.ID]*spool
	started chan struct{} // closed, and replaced, when an answer begins to be kept
}

func newSpools() *spools {
	return &spools{open: make(map[task.ID]*spool), started: make(chan struct{})}
}

// begin lets those who wait for the answer to a task have what there is of it.
func (s *spools) begin(id task.ID, one *spool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[id] = one
	close(s.started)
	s.started = make(chan struct{})
}

// begun returns a channel that is closed when the next answer begins to be kept.
func (s *spools) begun() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

// of returns the answer to a task that is being kept, or nil.
func (s *spools) of(id task.ID) *spool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

// end ends one answer to a task, which is whole if e has it. Another one may be
// kept at the same time, and may be the one that is open.
func (s *spools) end(id task.ID, one *spool, e task.Event) {
	s.mu.Lock()
	if s.open[id] == one {
		delete(s.open, id)
	}
	s.mu.Unlock()
	_, whole := e.(task.Complete)
	if fail, failed := e.(task.Fail); failed {
		whole = fail.Result != nil
	}
	one.change(func() {
		if one.over = true; !whole {
			one.err = ErrBrokenOff
		}
	})
}

// arriving is the size of a result that is still being kept.
const arriving = -1

// asAnswered returns t as it will be if the answer that is being kept, if there
// is one, turns out to be whole.
func (s *spools) asAnswered(t task.Task) task.Task {
	one := s.of(t.ID)
	if one == nil || t.State != task.Executing {
		return t
	}
	t = t.Clone()
	t.State, t.Result = task.Completed, &task.Result{Kind: task.ResultOK, Size: arriving}
	if one.failed {
		t.State, t.Result.Kind = task.Failed, task.ResultRPCError
	}
	return t
}
