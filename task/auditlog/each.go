package auditlog

import (
	"context"
	"iter"
)

// A Reader reads entries of a journal, like [Journal].
type Reader interface {
	Entries(ctx context.Context, q Query) ([]Entry, error)
}

// Each returns the entries that q finds in a journal, in their order, page
// by page. It ends after an error.
func Each(ctx context.Context, j Reader, q Query) iter.Seq2[Entry, error] {
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
