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

func (s *spool) change(what func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what()
	close(s.moved)
	s.moved = make(chan struct{})
}

// arriving is how large a result is said to be that is still being kept.
const arriving = -1

// spooled returns where the chunks of the answer to t are kept, so that those
// who wait for it hear of them. The first one lets them begin.
func (d *Desk) spooled(t task.Task, failed bool) *spooler {
	return &spooler{Blobs: d.cfg.Store, desk: d, id: t.ID, spool: &spool{failed: failed, moved: make(chan struct{})}}
}

// A spooler keeps the chunks of an answer, and tells of them.
type spooler struct {
	task.Blobs

	desk  *Desk
	id    task.ID
	spool *spool
}

// WriteChunk implements [task.Blobs].
func (s *spooler) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	err := s.Blobs.WriteChunk(ctx, ref, n, data)
	if err != nil {
		return err
	}
	if s.spool.kept(n) {
		s.desk.spoolBegins(s.id, s.spool)
	}
	return nil
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

// discard frees the room of an answer that will not be whole, which may be all
// the room there is: how the task ended must be kept as well. What is left of
// the chunks goes with the task.
func (s *spooler) discard(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), s.desk.cfg.Lease)
	defer stop()
	ref := task.AnyOwner().Ref(s.id)
	s.spool.change(func() { s.spool.discarded = true }) // first: somebody may be reading it
	if !s.desk.aloneAt(ctx, ref) {
		return
	}
	for n := s.spool.written - 1; n >= 0; n-- { // nobody else writes it
		if err := s.Blobs.WriteChunk(ctx, ref, n, []byte{0}); err != nil {
			s.desk.cfg.Log.WarnContext(ctx, "part of an answer not discarded", "error", err)
			return
		}
	}
}

// aloneAt reports whether no other replica can be keeping an answer to a task, or
// have kept one, because this one was silent for too long.
func (d *Desk) aloneAt(ctx context.Context, ref task.Ref) bool {
	t, err := d.cfg.Store.Get(ctx, ref)
	if err != nil || t.Result != nil || t.Execution == nil {
		return false
	}
	return t.State.Terminal() || t.Execution.Executor == d.cfg.Name && d.busy(t)
}

// spoolBegins lets those who wait for the answer to a task have what there is of
// it.
func (d *Desk) spoolBegins(id task.ID, s *spool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spools[id] = s
	close(d.begun)
	d.begun = make(chan struct{})
}

// spoolEnds tells those who read the answer to a task that it is whole, if e
// has it, or broke off.
func (d *Desk) spoolEnds(id task.ID, e task.Event) {
	s := d.spool(id)
	if s == nil {
		return
	}
	d.mu.Lock()
	delete(d.spools, id)
	d.mu.Unlock()
	_, whole := e.(task.Complete)
	if fail, failed := e.(task.Fail); failed {
		whole = fail.Result != nil
	}
	err := ErrBrokenOff
	if whole {
		err = nil
	}
	s.change(func() { s.over, s.err = true, err })
}

func (d *Desk) spool(id task.ID) *spool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.spools[id]
}

// beginning returns what is closed when the next answer begins to be kept.
func (d *Desk) beginning() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.begun
}

// asAnswered returns t as it will be if the answer that is being kept, if there
// is one, turns out to be whole.
func (d *Desk) asAnswered(t task.Task) task.Task {
	s := d.spool(t.ID)
	if s == nil || t.State != task.Executing {
		return t
	}
	t = t.Clone()
	t.State, t.Result = task.Completed, &task.Result{Kind: task.ResultOK, Size: arriving}
	if s.failed {
		t.State, t.Result.Kind = task.Failed, task.ResultRPCError
	}
	return t
}

// beingRead reports whether somebody reads the answer to a task while it is
// being kept.
func (d *Desk) beingRead(id task.ID) bool {
	s := d.spool(id)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readers > 0
}

// openArriving returns a reader of an answer that is being kept.
func (d *Desk) openArriving(ctx context.Context, t task.Task) io.Reader {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	s := d.spool(t.ID)
	if s == nil { // all of it has been kept by now, or none will be
		after, err := d.get(ctx, ref)
		if err != nil || after.Result == nil {
			return task.ReadChunks(func() ([]byte, error) { return nil, errors.Join(ErrBrokenOff, err) })
		}
		return task.OpenResult(ctx, d.cfg.Store, after)
	}
	s.change(func() { s.readers++ })
	context.AfterFunc(ctx, func() { s.change(func() { s.readers-- }) })
	n := 0
	return task.ReadChunks(func() ([]byte, error) {
		if err := s.await(ctx, n); err != nil {
			return nil, err
		}
		chunk, err := d.cfg.Store.ReadChunk(ctx, ref, n)
		if again := s.await(ctx, n); again != nil {
			return nil, again // what was read may be what was left of it when it was discarded
		}
		n++
		return chunk, err
	})
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
