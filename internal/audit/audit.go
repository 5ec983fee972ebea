// Package audit reads the journal of held calls: it finds entries, writes and
// reads them as lines of JSON, and verifies that they are as they were written.
package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/plain"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Source is what a journal is read from.
type Source interface {
	// Entries and Ends are those of [task.Journal].
	Entries(ctx context.Context, q task.JournalQuery) ([]task.Entry, error)
	Ends(ctx context.Context) (task.Ends, error)
}

// A Filter selects entries. Zero fields select everything.
type Filter struct {
	Task         task.ID // or the beginning of one
	Tool         string  // as the entries have it, or as the agent sent it
	Requester    string  // likewise
	Approver     string
	Grant        task.GrantID // or the beginning of one
	Since, Until time.Time    // Until is not included
	After        int64        // only entries with a larger number
	Limit        int          // how many; 100 if zero, at most 1000
}

// Whole reports whether f selects every entry after a number.
func (f *Filter) Whole() bool {
	return f.Task == "" && f.Tool == "" && f.Requester == "" && f.Approver == "" && f.Grant == "" && f.Since.IsZero() && f.Until.IsZero()
}

// A matcher is a filter with the names that entries have for those in the filter.
type matcher struct {
	Filter
	tool, requester string
}

// maxName is how long a name is in an entry.
const maxName = 4 << 10

func newMatcher(f Filter) matcher {
	return matcher{f, plain.Name(f.Tool, maxName), plain.Name(f.Requester, maxName)}
}

func (f *matcher) matches(e *task.Entry) bool {
	return strings.HasPrefix(string(e.Task), string(f.Task)) &&
		isOneOf(e.Tool, f.Tool, f.tool) && isOneOf(e.Requester, f.Requester, f.requester) &&
		(f.Approver == "" || f.Approver == e.Approver) &&
		strings.HasPrefix(string(e.Grant), string(f.Grant)) &&
		!e.At.Before(f.Since) && (f.Until.IsZero() || e.At.Before(f.Until))
}

// isOneOf reports whether an entry has one of two forms of a name. It has any name if none
// is asked for.
func isOneOf(name, sent, shown string) bool { return sent == "" || name == sent || name == shown }

// A Page is a part of what a filter selects, oldest first.
type Page struct {
	Entries []task.Entry
	Next    int64 // Filter.After of the next page; 0 if this is the last
}

// NextHeader is the HTTP header that has Page.Next. The last page has none.
const NextHeader = "Audit-Next"

// maxRead is how many entries are looked at for one page.
const maxRead = 10_000

// Find returns the first page of what f selects. It can be short, or empty,
// and not the last: whoever asks is not kept waiting while others are read. If no
// entry is about a task with the ID of f, entries are selected about tasks whose
// IDs begin with it.
func Find(ctx context.Context, s Source, f Filter) (Page, error) {
	if f.Task == "" {
		return search(ctx, s, f, task.JournalQuery{After: f.After})
	}
	page, err := search(ctx, s, f, task.JournalQuery{Task: f.Task, After: f.After})
	if err != nil || len(page.Entries) > 0 || page.Next > 0 {
		return page, err
	}
	return search(ctx, s, f, task.JournalQuery{After: f.After})
}

// search returns the entries that q finds and f selects.
func search(ctx context.Context, s Source, f Filter, q task.JournalQuery) (Page, error) {
	size := task.JournalQuery{Limit: f.Limit}.PageSize()
	if q.Limit = size; !f.Whole() && q.Task == "" {
		q.Limit = 1000
	}
	var page Page
	m, read := newMatcher(f), 0
	for e, err := range task.EachEntry(ctx, s, q) {
		if err != nil {
			return Page{}, err
		}
		if m.matches(&e) {
			page.Entries = append(page.Entries, e)
		}
		if read++; len(page.Entries) == size || read == maxRead {
			page.Next = e.Seq
			break
		}
	}
	return page, nil
}

// A Finder returns a page of what a filter selects.
type Finder func(ctx context.Context, f Filter) (Page, error)

// All returns everything that f selects, page by page.
func All(ctx context.Context, find Finder, f Filter) iter.Seq2[task.Entry, error] {
	return func(yield func(task.Entry, error) bool) {
		for {
			page, err := find(ctx, f)
			if err != nil {
				yield(task.Entry{}, err)
				return
			}
			for _, e := range page.Entries {
				if !yield(e, nil) {
					return
				}
			}
			if page.Next == 0 {
				return
			}
			f.After = page.Next
		}
	}
}

// AppendLine appends e as a line of JSON.
func AppendLine(b []byte, e task.Entry) ([]byte, error) {
	text, err := json.Marshal(&e, json.Deterministic(true))
	if err != nil {
		return b, err
	}
	return append(append(b, text...), '\n'), nil
}

// maxLine is the length of the longest line that is read.
const maxLine = 1 << 20

// Lines reads entries from lines of JSON. A line that is none is an error, and
// the last one.
func Lines(r io.Reader) iter.Seq2[task.Entry, error] {
	return func(yield func(task.Entry, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		for n := 1; lines.Scan(); n++ {
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			var e task.Entry
			err := json.Unmarshal(text, &e, json.RejectUnknownMembers(true))
			if err != nil {
				err = fmt.Errorf("line %d is not an entry of an audit log: %w", n, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(task.Entry{}, err)
		}
	}
}

// A Report is what verifying a journal came to.
type Report struct {
	Entries  int       // how many there are
	After    task.Link // the place that they follow: zero if they begin at the beginning
	Head     task.Link // the last of them, or After if there are none
	Problems []string  // what is wrong, and where; none if all is well
	More     int       // problems beyond those
}

// OK reports whether nothing is wrong.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

const maxProblems = 20

func (r *Report) blame(problem string) {
	if len(r.Problems) == maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, problem)
}

// A verifier checks entries one after the other.
type verifier struct {
	report Report
	known  task.Link // a head that somebody else has seen; zero if there is none
	begun  bool
	seen   bool // known has been passed
}

// newVerifier returns a verifier. Known is a head that was noted elsewhere,
// which the journal must have, or zero.
func newVerifier(known task.Link) *verifier { return &verifier{known: known, seen: known.Seq == 0} }

// startAfter says what the entries must follow. Without it, the first one says so.
func (v *verifier) startAfter(anchor task.Link) {
	v.report.After, v.report.Head, v.begun = anchor, anchor, true
	v.pass(anchor)
}

// add checks the next entry.
func (v *verifier) add(e task.Entry) {
	if !v.begun {
		v.startAfter(task.Link{Seq: e.Seq - 1, Hash: e.Prev})
	}
	if err := v.report.Head.Follow(e); err != nil {
		v.report.blame(strings.TrimPrefix(err.Error(), "journal: "))
	}
	v.report.Entries++
	v.report.Head = e.Link()
	v.pass(e.Link())
}

// pass compares a place with the one that is known.
func (v *verifier) pass(at task.Link) {
	if v.seen || at.Seq != v.known.Seq {
		return
	}
	v.seen = true
	if at.Hash != v.known.Hash {
		v.report.blame(fmt.Sprintf("entry %d: its hash is %s, expected %s: the log up to here was rewritten", at.Seq, at.Hash, v.known.Hash))
	}
}

// end checks that head, which is what the journal says of itself, is the last
// entry. See [verifier.Report] for a journal that says nothing.
func (v *verifier) end(head task.Link) {
	last := v.report.Head
	switch {
	case last.Seq < head.Seq:
		v.report.blame(fmt.Sprintf("entry %d is the last one, but the audit log ends with %d: the end was removed", last.Seq, head.Seq))
	case last.Seq > head.Seq:
		v.report.blame(fmt.Sprintf("entry %d was added later: the audit log ends with %d", head.Seq+1, head.Seq))
	case last.Hash != head.Hash:
		v.report.blame(fmt.Sprintf("entry %d differs from the last entry of the audit log", last.Seq))
	}
}

// result returns what was found.
func (v *verifier) result() Report {
	r := v.report
	switch {
	case v.seen:
	case v.known.Seq < r.After.Seq:
		r.blame(fmt.Sprintf("entry %d cannot be compared with the given head: it was trimmed", v.known.Seq))
	default:
		r.blame(fmt.Sprintf("entry %d, the given head, is missing: the end was removed", v.known.Seq))
	}
	return r
}

// Verify checks a journal from end to end. Known is a head that was noted
// elsewhere, or zero.
func Verify(ctx context.Context, s Source, known task.Link) (Report, error) {
	for {
		before, err := s.Ends(ctx)
		if err != nil {
			return Report{}, err
		}
		v := newVerifier(known)
		v.startAfter(before.Anchor)
		after, err := v.readAll(ctx, s)
		if err != nil {
			return Report{}, err
		}
		v.end(after.Head)
		if r := v.result(); r.OK() || after.Anchor == before.Anchor {
			return r, nil
		}
		// It was trimmed meanwhile, perhaps faster than it was read.
	}
}

// readAll checks entries until the end, which it returns. It may move on
// meanwhile. It begins before the anchor, where nothing may be any more.
func (v *verifier) readAll(ctx context.Context, s Source) (task.Ends, error) {
	at, end := int64(0), int64(-1)
	for {
		for e, err := range task.EachEntry(ctx, s, task.JournalQuery{After: at, Limit: 1000}) {
			if err != nil {
				return task.Ends{}, err
			}
			v.add(e)
			at = e.Seq
		}
		// Entries are written together with the head: none that was read can
		// be beyond a head that is read now.
		ends, err := s.Ends(ctx)
		if err != nil || ends.Head.Seq <= max(at, ends.Anchor.Seq) || end == at {
			return ends, err
		}
		end = at // something may have come in between: look once more
	}
}

// VerifyLines checks entries that were written as lines of JSON. They say of
// themselves neither where the journal began nor where it ended: that is known
// from elsewhere or not at all.
func VerifyLines(r io.Reader, known task.Link) (Report, error) {
	v := newVerifier(known)
	for e, err := range Lines(r) {
		if err != nil {
			return Report{}, err
		}
		v.add(e)
	}
	if !v.begun {
		return Report{}, errors.New("no entries")
	}
	return v.result(), nil
}
