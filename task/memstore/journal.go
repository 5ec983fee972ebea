package memstore

import (
	"context"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// A journal has the latest entries.
type journal struct {
	ends    auditlog.Ends
	entries []*auditlog.Entry // without gaps, from the anchor to the head
}

// add chains notes to the end, and drops the oldest entries beyond most.
func (j *journal) add(notes []task.Note, most int) {
	for _, n := range notes {
		e := j.ends.Head.Next(n)
		j.entries = append(j.entries, &e)
		j.ends.Head = e.Link()
	}
	for len(j.entries) > most {
		j.drop()
	}
}

// drop removes the first entry.
func (j *journal) drop() {
	j.ends.Anchor = j.entries[0].Link()
	j.entries[0] = nil
	j.entries = j.entries[1:]
}

// after returns the entries with a number larger than seq.
func (j *journal) after(seq int64) []*auditlog.Entry {
	skip := min(max(0, seq-j.ends.Anchor.Seq), int64(len(j.entries)))
	return j.entries[skip:]
}

// Append implements [auditlog.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	if err := s.check(ctx, action.Append); err != nil {
		return err
	}
	notes, err := auditlog.Prepare(notes, action.Append)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal.add(notes, s.options.MaxEntries)
	return nil
}

// Entries implements [auditlog.Journal].
func (s *Store) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	if err := s.check(ctx, action.Read); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []auditlog.Entry
	for _, e := range s.journal.after(q.After) {
		if len(found) == q.PageSize() {
			break
		}
		if q.Task == "" || e.Task == q.Task {
			found = append(found, *e)
		}
	}
	return found, nil
}

// Ends implements [auditlog.Journal].
func (s *Store) Ends(ctx context.Context) (auditlog.Ends, error) {
	if err := s.check(ctx, action.Read); err != nil {
		return auditlog.Ends{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.journal.ends, nil
}

// Trim implements [auditlog.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.check(ctx, action.Trim); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for ; n < limit && len(s.journal.entries) > 0 && s.journal.entries[0].At.Before(before); n++ {
		s.journal.drop()
	}
	return n, nil
}
