package task

import (
	"context"
	"errors"
	"iter"
)

// Each returns the tasks that q selects, the newest first, page by page. A page
// with tasks that cannot be read yields [ErrUnreadable] and then the others;
// after any other error there is nothing more.
func Each(ctx context.Context, s Store, q Query) iter.Seq2[Task, error] {
	return func(yield func(Task, error) bool) {
		for {
			page, err := s.List(ctx, q)
			if err != nil && (!yield(Task{}, err) || !errors.Is(err, ErrUnreadable)) {
				return
			}
			for _, t := range page.Tasks {
				if !yield(t, nil) {
					return
				}
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return
			}
		}
	}
}

// An EntryReader reads entries of a journal, like [Journal].
type EntryReader interface {
	Entries(ctx context.Context, q JournalQuery) ([]Entry, error)
}

// EachEntry returns the entries that q finds in a journal, in their order, page
// by page. After an error there is nothing more.
func EachEntry(ctx context.Context, j EntryReader, q JournalQuery) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for {
			entries, err := j.Entries(ctx, q)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
				q.After = e.Seq
			}
			if len(entries) == 0 {
				return
			}
		}
	}
}
