// Package audit reads the journal of held calls. [Find] and [All] select entries,
// [AppendLine] and [Lines] convert them to and from lines of JSON, and [Verify] checks the
// hash chain:
//
//	report, err := audit.Verify(ctx, store, auditlog.Link{})
//	if err == nil && !report.OK() {
//		fmt.Println(report.Problems)
//	}
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

	"github.com/thoughtgate/thoughtgate-go/internal/passkey"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// A Source is a readable journal.
type Source interface {
	// Entries and Ends are those of [auditlog.Journal].
	Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error)
	Ends(ctx context.Context) (auditlog.Ends, error)
}

// A Filter selects entries. Zero fields select everything.
type Filter struct {
	Task         task.ID // an ID, or the beginning of an ID
	Tool         string  // as in the entries, or as the agent sent it
	Requester    string  // as in the entries, or as the agent sent it
	Approver     string
	Grant        gatetask.GrantID // an ID, or the beginning of an ID
	Suspicious   bool             // only decisions that an agent may have made by itself; see [IsSuspicious]
	Since, Until time.Time        // excluding Until
	After        int64            // selects entries with larger sequence numbers
	Limit        int              // the maximum number of entries; 100 by default, at most 1000
}

// SelectsAll reports whether f selects every entry after a number.
func (f *Filter) SelectsAll() bool {
	return f.Task == "" && f.Tool == "" && f.Requester == "" && f.Approver == "" && f.Grant == "" && !f.Suspicious && f.Since.IsZero() && f.Until.IsZero()
}

// A matcher is a filter with its names converted to the form that entries have.
type matcher struct {
	Filter
	tool, requester string
}

// maxName is the maximum length of a name in an entry.
const maxName = 4 << 10

func newMatcher(f Filter) matcher {
	return matcher{f, safetext.Name(f.Tool, maxName), safetext.Name(f.Requester, maxName)}
}

func (f *matcher) matches(e *auditlog.Entry) bool {
	return strings.HasPrefix(string(e.Task), string(f.Task)) &&
		isOneOf(e.Tool, f.Tool, f.tool) && isOneOf(e.Requester, f.Requester, f.requester) &&
		(f.Approver == "" || f.Approver == e.Approver) &&
		strings.HasPrefix(string(e.Grant), string(f.Grant)) &&
		(!f.Suspicious || IsSuspicious(e.Note)) &&
		!e.At.Before(f.Since) && (f.Until.IsZero() || e.At.Before(f.Until))
}

// IsSuspicious reports whether an agent may have made a decision by itself: a program that an agent
// has started sent it, its passkey did not count, or it is an approval by token that is not known to
// come from elsewhere.
func IsSuspicious(n task.Note) bool {
	switch {
	case n.Via.Kind == "":
		return false // no decision of a person
	case n.Via.FromAgent == gatetask.FromAgentYes, n.Outcome == passkeyInvalid:
		return true
	default:
		return n.Via.IsToken() && n.Via.FromAgent != gatetask.FromAgentNo && n.Outcome != rejected
	}
}

// Outcomes in entries.
const (
	rejected       = "reject"
	passkeyInvalid = "passkey_invalid"
)

// isOneOf reports whether the name of an entry has one of the two forms of the name in the
// filter. An empty name in the filter matches all entries.
func isOneOf(name, sent, shown string) bool { return sent == "" || name == sent || name == shown }

// A Page has some of the entries that a filter selects, oldest first.
type Page struct {
	Entries []auditlog.Entry
	Next    int64 // Filter.After of the next page; 0 if this is the last
}

// NextHeader is the HTTP header with Page.Next. The last page does not have it.
const NextHeader = "Audit-Next"

// maxRead is the maximum number of entries that are read for one page.
const maxRead = 10_000

// Find returns the first page of the entries that f selects. A page can be short or empty
// although it is not the last, because Find reads a limited number of entries. If there are
// no entries for a task with the ID of f, Find selects tasks whose IDs begin with it.
func Find(ctx context.Context, s Source, f Filter) (Page, error) {
	if f.Task == "" {
		return search(ctx, s, f, auditlog.Query{After: f.After})
	}
	page, err := search(ctx, s, f, auditlog.Query{Task: f.Task, After: f.After})
	if err != nil || len(page.Entries) > 0 || page.Next > 0 {
		return page, err
	}
	return search(ctx, s, f, auditlog.Query{After: f.After})
}

// search returns a page of the entries that match q and f.
func search(ctx context.Context, s Source, f Filter, q auditlog.Query) (Page, error) {
	size := auditlog.Query{Limit: f.Limit}.PageSize()
	if q.Limit = size; !f.SelectsAll() && q.Task == "" {
		q.Limit = 1000
	}
	var page Page
	m, read := newMatcher(f), 0
	for e, err := range auditlog.Each(ctx, s, q) {
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

// A Finder returns a page of the entries that a filter selects.
type Finder func(ctx context.Context, f Filter) (Page, error)

// All returns all entries that f selects. It reads them in pages.
func All(ctx context.Context, find Finder, f Filter) iter.Seq2[auditlog.Entry, error] {
	return func(yield func(auditlog.Entry, error) bool) {
		for {
			page, err := find(ctx, f)
			if err != nil {
				yield(auditlog.Entry{}, err)
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
func AppendLine(b []byte, e auditlog.Entry) ([]byte, error) {
	text, err := json.Marshal(&e, json.Deterministic(true))
	if err != nil {
		return b, err
	}
	return append(append(b, text...), '\n'), nil
}

// maxLine is the maximum length of a line, in bytes.
const maxLine = 1 << 20

// Lines reads entries from lines of JSON. It stops with an error at an invalid line.
func Lines(r io.Reader) iter.Seq2[auditlog.Entry, error] {
	return func(yield func(auditlog.Entry, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		for n := 1; lines.Scan(); n++ {
			text := bytes.TrimSpace(lines.Bytes())
			if len(text) == 0 {
				continue
			}
			var e auditlog.Entry
			err := json.Unmarshal(text, &e, json.RejectUnknownMembers(true))
			if err != nil {
				err = fmt.Errorf("line %d is not an entry of an audit log: %w", n, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(auditlog.Entry{}, err)
		}
	}
}

// A Report is the result of verifying a journal.
type Report struct {
	Entries  int           // the number of verified entries
	After    auditlog.Link // the entry before the first one; zero at the beginning of the journal
	Head     auditlog.Link // the last entry, or After if there are no entries
	Problems []string      // empty if the journal is intact

	Signatures int // the number of approvals with the signature of a passkey
	Unknown    int // how many of them are by passkeys that were added before the first entry, so that nobody knows whose they are
	More       int // the number of problems that Problems leaves out
}

// OK reports whether the journal is intact.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

const maxProblems = 20

func (r *Report) addProblem(problem string) {
	if len(r.Problems) == maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, problem)
}

// A verifier checks entries one after the other.
type verifier struct {
	report    Report
	known     auditlog.Link // a head that was noted elsewhere, or zero
	started   bool
	knownSeen bool // whether known was compared
	passkeys  map[string]*registered
}

// A registered passkey is one that the journal has.
type registered struct {
	operator string
	key      []byte
	removed  time.Time // zero if it was not removed
}

// removalDelay is how much later than the removal of its passkey an approval may be: the approver had signed it
// before, and clocks differ.
const removalDelay = time.Minute

// newVerifier returns a verifier. Known is zero, or a head that was noted elsewhere and that
// the journal must contain.
func newVerifier(known auditlog.Link) *verifier {
	return &verifier{known: known, knownSeen: known.Seq == 0}
}

// startAfter sets the entry before the first one. Without it, add takes it from the first
// entry.
func (v *verifier) startAfter(anchor auditlog.Link) {
	v.report.After, v.report.Head, v.started = anchor, anchor, true
	v.compareKnown(anchor)
}

// add checks the next entry.
func (v *verifier) add(e auditlog.Entry) {
	if !v.started {
		v.startAfter(auditlog.Link{Seq: e.Seq - 1, Hash: e.Prev})
	}
	if err := v.report.Head.Verify(e); err != nil {
		v.report.addProblem(strings.TrimPrefix(err.Error(), "journal: "))
	}
	if wrong := v.checkPasskey(e); wrong != "" {
		v.report.addProblem(fmt.Sprintf("entry %d: %s", e.Seq, wrong))
	}
	v.report.Entries++
	v.report.Head = e.Link()
	v.compareKnown(e.Link())
}

// checkPasskey remembers the passkey in an entry, or returns what is wrong with the signature in it, or "".
func (v *verifier) checkPasskey(e auditlog.Entry) string {
	if e.Passkey == nil {
		return ""
	}
	known := v.passkeys[string(e.Passkey.Credential)]
	if e.Step != auditlog.PasskeyAdded && e.Step != auditlog.PasskeyRemoved {
		v.report.Signatures++
		return v.checkSignature(e, *e.Passkey, known)
	}
	now := registered{operator: e.Approver, key: e.Passkey.Key}
	if e.Step == auditlog.PasskeyRemoved {
		now.removed = e.At
	}
	//mutate:swap "known != nil" "false" TestVerifyPasskeys an entry gives the passkey of an operator to another one
	if known != nil && (!known.removed.IsZero() || known.operator != now.operator || !bytes.Equal(known.key, now.key)) {
		return "this passkey was removed before, or another operator has added it"
	}
	if v.passkeys == nil {
		v.passkeys = map[string]*registered{}
	}
	v.passkeys[string(e.Passkey.Credential)] = &now
	return ""
}

// checkSignature returns what is wrong with the signature in an entry, by a passkey that may be known, or "".
func (v *verifier) checkSignature(e auditlog.Entry, signed gatetask.Signature, known *registered) string {
	about := signed.Statement
	wants := gatetask.Statement{
		Task: string(e.Task), Call: e.ArgumentDigest.String(), Approver: e.Approver, Unread: e.UnreadBytes,
		Shown: about.Shown, Scope: about.Scope, Grant: about.Grant,
	}
	switch {
	//mutate:false TestVerifySignatures the signature of another call counts
	case about != wants:
		return "the approver has signed something else"
	case known == nil && v.report.After.Seq == 0:
		return "nobody has added the passkey that signed it"
	case known == nil:
		v.report.Unknown++
	case known.operator != e.Approver || !bytes.Equal(known.key, signed.Key):
		return "another operator has added the passkey that signed it"
	case !known.removed.IsZero() && e.At.Sub(known.removed) > removalDelay:
		return "the passkey that signed it was removed before"
	}
	//mutate:swap "passkey.Check(signed)" "error(nil)" TestVerifySignatures a forged signature counts
	if err := passkey.Check(signed); err != nil {
		return err.Error()
	}
	return ""
}

// compareKnown compares an entry with the known head, if it has the same number.
func (v *verifier) compareKnown(at auditlog.Link) {
	if v.knownSeen || at.Seq != v.known.Seq {
		return
	}
	v.knownSeen = true
	if at.Hash != v.known.Hash {
		v.report.addProblem(fmt.Sprintf("entry %d: its hash is %s, expected %s: the log up to here was rewritten", at.Seq, at.Hash, v.known.Hash))
	}
}

// checkHead checks that the last entry is the head that the journal has stored.
func (v *verifier) checkHead(head auditlog.Link) {
	last := v.report.Head
	switch {
	case last.Seq < head.Seq:
		v.report.addProblem(fmt.Sprintf("entry %d is the last one, but the audit log ends with %d: the end was removed", last.Seq, head.Seq))
	case last.Seq > head.Seq:
		v.report.addProblem(fmt.Sprintf("entry %d was added later: the audit log ends with %d", head.Seq+1, head.Seq))
	case last.Hash != head.Hash:
		v.report.addProblem(fmt.Sprintf("entry %d differs from the last entry of the audit log", last.Seq))
	}
}

// result returns the report.
func (v *verifier) result() Report {
	r := v.report
	switch {
	case v.knownSeen:
	case v.known.Seq < r.After.Seq:
		r.addProblem(fmt.Sprintf("entry %d cannot be compared with the given head: it was trimmed", v.known.Seq))
	default:
		r.addProblem(fmt.Sprintf("entry %d, the given head, is missing: the end was removed", v.known.Seq))
	}
	return r
}

// Verify checks the hash chain of a journal, also while entries are added or trimmed. Known
// is zero, or a head that was noted elsewhere and that the journal must contain.
func Verify(ctx context.Context, s Source, known auditlog.Link) (Report, error) {
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
		v.checkHead(after.Head)
		if r := v.result(); r.OK() || after.Anchor == before.Anchor {
			return r, nil
		}
		// The journal was trimmed meanwhile, perhaps beyond the entries that were read: start again.
	}
}

// readAll checks all entries, and returns the ends of the journal afterwards. It begins before
// the anchor, to detect entries that should not exist there.
func (v *verifier) readAll(ctx context.Context, s Source) (auditlog.Ends, error) {
	at, end := int64(0), int64(-1)
	for {
		for e, err := range auditlog.Each(ctx, s, auditlog.Query{After: at, Limit: 1000}) {
			if err != nil {
				return auditlog.Ends{}, err
			}
			v.add(e)
			at = e.Seq
		}
		// An entry and the head are written together, so this head is not older than any
		// entry that was read.
		ends, err := s.Ends(ctx)
		if err != nil || ends.Head.Seq <= max(at, ends.Anchor.Seq) || end == at {
			return ends, err
		}
		end = at // entries may have been added between the two reads: read once more
	}
}

// VerifyLines checks entries in the form of lines of JSON. The lines do not show where the
// journal begins and ends, so missing entries at both ends are detected only with known.
func VerifyLines(r io.Reader, known auditlog.Link) (Report, error) {
	v := newVerifier(known)
	for e, err := range Lines(r) {
		if err != nil {
			return Report{}, err
		}
		v.add(e)
	}
	if !v.started {
		return Report{}, errors.New("no entries")
	}
	return v.result(), nil
}
