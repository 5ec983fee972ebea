package callrecord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// ErrNoCall means that the record has no call with a reference or an id.
var ErrNoCall = errors.New("no such call in the record")

const (
	idPrefix   = "tg_"
	leastID    = len(idPrefix) + 8 // of an id
	idAccuracy = time.Minute       // between the time in an id and that of the entry
	maxLookup  = 1000              // entries of one call, which may be a batch
)

// Lookup returns the entry with a reference, or the entries of a held call with an id, which may be
// shortened. A batch has several.
func Lookup(ctx context.Context, find Finder, text string) ([]Entry, error) {
	start := strings.ToLower(text)
	switch {
	case strings.HasPrefix(start, RefPrefix):
		p, err := find(ctx, Filter{Ref: start, Limit: 1})
		if err == nil && len(p.Entries) == 0 {
			err = fmt.Errorf("%w: %q", ErrNoCall, text)
		}
		return p.Entries, err
	case !strings.HasPrefix(start, idPrefix):
		start = idPrefix + start
	}
	if len(start) < leastID {
		return nil, fmt.Errorf("%w: %q is too short", ErrNoCall, text)
	}
	f := Filter{ID: start, Limit: maxLookup}
	if at, ok := task.ID(start).Time(); ok {
		f.Since, f.Until = at.Add(-idAccuracy), at.Add(idAccuracy)
	}
	all, err := judgedIn(ctx, find, f)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, fmt.Errorf("%w: %q", ErrNoCall, text)
	case slices.ContainsFunc(all, func(e Entry) bool { return e.ID != all[0].ID }):
		return nil, fmt.Errorf("%w: %q is the beginning of several ids", ErrNoCall, text)
	default:
		return all, nil
	}
}

// judgedIn returns the first selected entries of calls that were judged.
func judgedIn(ctx context.Context, find Finder, f Filter) ([]Entry, error) {
	var all []Entry
	for p, err := range Pages(ctx, find, f) {
		if err != nil {
			return nil, err
		}
		for _, e := range p.Entries {
			if e.Event == Judged && e.Outcome != Attached && len(all) < maxLookup {
				all = append(all, e)
			}
		}
	}
	return all, nil
}
