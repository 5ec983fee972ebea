package callrecord

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Filter selects entries. Its zero value selects all.
type Filter struct {
	Since time.Time // inclusive
	Until time.Time // exclusive; zero means no bound

	ID        string // of a held call, or its beginning
	Upstream  string
	Name      string // of the tool or prompt, or the URI of the resource
	Principal string
	Action    string // forward, approve or deny
	Outcome   string
	Event     Event
	By        string // one of the people who decided
	Text      string // words that must occur in the entry, in any case

	// Match is one more condition; nil means none.
	Match func(*Entry) bool

	Ref string // of one entry; [Find] then returns only that, and ignores the rest

	// Of [Find].
	After string // a cursor: only entries that were written after those before it
	Limit int    // entries of a page; the last block of a page is read to its end

	// Of [Latest], besides Limit.
	Before string // a cursor: only entries that were written before those before it
}

// MaxText is how many bytes a text to search for may have.
const MaxText = 200

// Selects reports whether f selects e.
func (f *Filter) Selects(e *Entry) bool {
	if e.Time.Before(f.Since) || !f.Until.IsZero() && !e.Time.Before(f.Until) {
		return false
	}
	if !strings.HasPrefix(e.ID, f.ID) {
		return false
	}
	for _, of := range [...]struct{ want, has string }{
		{f.Ref, e.Ref}, {f.Upstream, e.Upstream}, {f.Name, e.Name}, {f.Principal, e.Principal}, {f.Action, string(e.Action)}, {f.Outcome, e.Outcome}, {string(f.Event), string(e.Event)},
	} {
		if of.want != "" && of.want != of.has {
			return false
		}
	}
	return (f.By == "" || slices.Contains(e.By, f.By)) && (f.Match == nil || f.Match(e)) && e.hasWords(f.Text)
}

// hasWords reports whether each word of text occurs in e: in a name, in what is recorded of the
// arguments, or in the reason of a decision.
func (e *Entry) hasWords(text string) bool {
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 {
		return true
	}
	parts := append([]string{
		e.ID, e.Upstream, e.Name, e.Principal, e.Client.Name, e.Workflow, e.Rule, e.Outcome, e.Reason, string(e.Shown), string(e.Arguments),
	}, e.By...)
	all := strings.ToLower(strings.Join(parts, "\n"))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(all, word) })
}

// mayHave reports whether a block may have entries that f selects.
func (f *Filter) mayHave(b *block) bool {
	return (f.Event != Ended || b.Ends > 0) && !b.Newest.Before(f.Since) && (f.Until.IsZero() || b.Oldest.Before(f.Until))
}

// All returns the entries in a store that f selects, in the order in which they were written. An
// entry is written when its call has ended, so the order differs from that of their times by the
// duration of the calls. It ends after an error.
func All(ctx context.Context, s gatestore.Records, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for b, err := range allBlocks(ctx, s, after(f.Since)) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !f.mayHave(&b) {
				continue
			}
			for e, err := range b.entries() {
				if (err != nil || f.Selects(&e)) && !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// allBlocks returns the blocks whose names come after a name. It ends after an error.
func allBlocks(ctx context.Context, s gatestore.Records, name string) iter.Seq2[block, error] {
	return func(yield func(block, error) bool) {
		for r, err := range gatestore.EachRecord(ctx, s, blocks(name)) {
			if err != nil {
				yield(block{}, err)
				return
			}
			if b, err := readBlock(r); !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// after returns a name before those of all blocks that were written at or after a time.
func after(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return Prefix + at.UTC().Truncate(time.Microsecond).Format(layout)
}
