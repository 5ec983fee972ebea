package callrecord

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// NextHeader is the header of an API answer with the cursor after a page.
const NextHeader = "Calls-Next"

// ErrCursor reports a text that is no cursor.
var ErrCursor = errors.New("not a cursor of the call record")

// A Page is a part of the record. Next is a cursor for the entries after it. It is that of the
// request if nothing was written after it.
type Page struct {
	Entries []Entry
	Next    string
}

// A Finder returns the page of the entries that a filter selects, such as [Find] for a store.
type Finder func(context.Context, Filter) (Page, error)

const (
	// late is how long after the time in its name a block may appear. Processes write at the same
	// time, so a block may appear after one with a later name.
	late = 30 * time.Second

	maxScan = 500 // blocks that are read for one page
)

// A cursor is a position in the blocks of all chains.
type cursor struct {
	at   time.Time        // when the newest block that was read was written
	read map[string]int64 // the last blocks that were read of the chains that were written lately
}

// parseCursor reads what String returns. An empty text is the beginning.
func parseCursor(text string) (cursor, error) {
	c := cursor{read: map[string]int64{}}
	if text == "" {
		return c, nil
	}
	at, rest, _ := strings.Cut(text, ",")
	var err error
	if c.at, err = time.Parse(layout, at); err != nil {
		return c, fmt.Errorf("%w: %q", ErrCursor, text)
	}
	for one := range strings.SplitSeq(rest, ",") {
		chain, number, _ := strings.Cut(one, ".")
		if c.read[chain], err = strconv.ParseInt(number, 10, 64); err != nil {
			return c, fmt.Errorf("%w: %q", ErrCursor, text)
		}
	}
	return c, nil
}

// String returns the text of c.
func (c cursor) String() string {
	parts := []string{c.at.UTC().Format(layout)}
	for _, chain := range slices.Sorted(maps.Keys(c.read)) {
		parts = append(parts, chain+"."+strconv.FormatInt(c.read[chain], 10))
	}
	return strings.Join(parts, ",")
}

// Find returns a page of the entries in a store that f selects, in the order in which they were
// written.
func Find(ctx context.Context, s gatestore.Records, f Filter) (Page, error) {
	if f.Ref != "" {
		return findRef(ctx, s, f.Ref)
	}
	return findPage(ctx, s, f)
}

// findPage is [Find] without a reference.
func findPage(ctx context.Context, s gatestore.Records, f Filter) (Page, error) {
	c, err := parseCursor(f.After)
	if err != nil {
		return Page{}, err
	}
	from := f.Since
	if c.at.Add(-late).After(from) {
		from = c.at.Add(-late)
	}
	p, scanned, whole, written := Page{Next: f.After}, 0, true, map[string]time.Time{}
	for b, err := range allBlocks(ctx, s, after(from)) {
		if err != nil {
			return p, err
		}
		at, _ := writtenAt(b.name) // readBlock has checked it
		written[b.Chain] = at
		if b.Seq <= c.read[b.Chain] {
			continue
		}
		if len(p.Entries) >= max(f.Limit, 1) || scanned == maxScan {
			whole = false
			break
		}
		scanned++
		if p.Entries, err = f.appendFrom(p.Entries, &b); err != nil {
			return p, err
		}
		if c.read[b.Chain] = b.Seq; at.After(c.at) {
			c.at = at
		}
	}
	if scanned > 0 {
		if whole { // otherwise blocks of known chains may follow
			maps.DeleteFunc(c.read, func(chain string, _ int64) bool { return written[chain].Before(c.at.Add(-late)) })
		}
		p.Next = c.String()
	}
	return p, nil
}

// appendFrom appends the entries of a block that f selects.
func (f *Filter) appendFrom(all []Entry, b *block) ([]Entry, error) {
	if !f.mayHave(b) {
		return all, nil
	}
	for e, err := range b.entries() {
		if err != nil {
			return all, err
		}
		if f.Selects(&e) {
			all = append(all, e)
		}
	}
	return all, nil
}

// Pages returns all pages after f.After.
func Pages(ctx context.Context, find Finder, f Filter) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		for {
			p, err := find(ctx, f)
			if err == nil && p.Next == f.After {
				return
			}
			if !yield(p, err) || err != nil {
				return
			}
			f.After = p.Next
		}
	}
}
