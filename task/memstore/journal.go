package memstore

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A journal holds the latest entries, in blocks: there may be many, and they
// are large. Its lock is taken after every other.
type journal struct {
	mu     sync.RWMutex
	ends   task.Ends
	blocks [][]task.Entry // without gaps, from the anchor to the head
}

// blockSize is how many entries a block has room for: 32 KB are handed out
// without waste.
const blockSize = 80

// add chains notes to the end. Those that were there longest make room.
func (j *journal) add(notes []task.Note, most int) {
	if len(notes) == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range notes {
		e := j.ends.Head.Next(n)
		if last := len(j.blocks) - 1; last >= 0 && len(j.blocks[last]) < cap(j.blocks[last]) {
			j.blocks[last] = append(j.blocks[last], e)
		} else {
			j.blocks = append(j.blocks, append(make([]task.Entry, 0, blockSize), e))
		}
		j.ends.Head = e.Link()
	}
	for j.ends.Head.Seq-j.ends.Anchor.Seq > int64(most) {
		j.drop()
	}
}

// drop removes the first entry.
func (j *journal) drop() {
	first := &j.blocks[0]
	j.ends.Anchor = (*first)[0].Link()
	(*first)[0] = task.Entry{} // what it refers to is not needed any more
	if *first = (*first)[1:]; len(*first) == 0 {
		j.blocks[0] = nil
		j.blocks = j.blocks[1:]
	}
}

// after returns the entries with a number larger than seq.
func (j *journal) after(seq int64) iter.Seq[*task.Entry] {
	return func(yield func(*task.Entry) bool) {
		for _, block := range j.blocks {
			if block[len(block)-1].Seq <= seq {
				continue
			}
			for i := range block {
				if block[i].Seq > seq && !yield(&block[i]) {
					return
				}
			}
		}
	}
}

// Append implements [task.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	if err := s.usable(ctx, task.ActionAppend); err != nil {
		return err
	}
	notes, err := task.PrepareNotes(notes, task.ActionAppend)
	if err != nil {
		return err
	}
	s.journal.add(notes, s.options.MaxEntries)
	return nil
}

// Entries implements [task.Journal].
func (s *Store) Entries(ctx context.Context, q task.JournalQuery) ([]task.Entry, error) {
	if err := s.usable(ctx, task.ActionRead); err != nil {
		return nil, err
	}
	s.journal.mu.RLock()
	defer s.journal.mu.RUnlock()
	var found []task.Entry
	for e := range s.journal.after(q.After) {
		if len(found) == q.PageSize() {
			break
		}
		if q.Task == "" || e.Task == q.Task {
			found = append(found, *e)
		}
	}
	return found, nil
}

// Ends implements [task.Journal].
func (s *Store) Ends(ctx context.Context) (task.Ends, error) {
	if err := s.usable(ctx, task.ActionRead); err != nil {
		return task.Ends{}, err
	}
	s.journal.mu.RLock()
	defer s.journal.mu.RUnlock()
	return s.journal.ends, nil
}

// Trim implements [task.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.usable(ctx, task.ActionTrim); err != nil {
		return 0, err
	}
	j := &s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for ; n < limit && len(j.blocks) > 0 && j.blocks[0][0].At.Before(before); n++ {
		j.drop()
	}
	return n, nil
}
