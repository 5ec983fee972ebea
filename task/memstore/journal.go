package memstore

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A journal holds the latest entries. Its lock is taken after every other.
type journal struct {
	mu      sync.RWMutex
	ends    task.Ends
	entries []task.Entry // without gaps, up to the head
}

// add chains notes to the end. Those that were there longest make room.
func (j *journal) add(notes []task.Note, most int) {
	if len(notes) == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, n := range notes {
		e := j.ends.Head.Next(n)
		j.entries = append(j.entries, e)
		j.ends.Head = e.Link()
	}
	j.drop(len(j.entries) - most)
}

// drop removes the first n entries.
func (j *journal) drop(n int) {
	if n <= 0 {
		return
	}
	j.ends.Anchor = j.entries[n-1].Link()
	clear(j.entries[:n]) // what they refer to is not needed any more
	j.entries = j.entries[n:]
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
	all := s.journal.entries
	all = all[sort.Search(len(all), func(i int) bool { return all[i].Seq > q.After }):]
	if q.Task == "" {
		return slices.Clone(all[:min(len(all), q.PageSize())]), nil
	}
	var found []task.Entry
	for i := range all {
		if all[i].Task == q.Task && len(found) < q.PageSize() {
			found = append(found, all[i])
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
	n := task.Outdated(j.entries[:min(len(j.entries), max(0, limit))], before)
	j.drop(n)
	return n, nil
}
