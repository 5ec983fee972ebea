package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

const (
	journalEnds    = "SELECT anchor_seq, anchor_hash, head_seq, head_hash FROM journal_ends"
	journalPage    = "SELECT seq, task, prev, hash, note FROM journal WHERE seq > $1 ORDER BY seq LIMIT $2"
	journalStory   = "SELECT seq, task, prev, hash, note FROM journal WHERE task = $1 AND seq > $2 ORDER BY seq LIMIT $3"
	insertEntry    = "INSERT INTO journal (seq, task, prev, hash, note) VALUES (?, ?, ?, ?, ?)"
	anotherEntry   = ", (?, ?, ?, ?, ?)"
	updateHead     = "UPDATE journal_ends SET head_seq = $1, head_hash = $2"
	updateAnchor   = "UPDATE journal_ends SET anchor_seq = $1, anchor_hash = $2"
	discardEntries = "DELETE FROM journal WHERE seq <= $1"
)

// A remark is a note and its stored form.
type remark struct {
	task.Note
	document string
}

// newRemarks returns what is stored of notes.
func newRemarks(notes []task.Note, a task.Action) ([]remark, error) {
	notes, err := task.PrepareNotes(notes, a)
	if err != nil || len(notes) == 0 {
		return nil, err
	}
	remarks := make([]remark, len(notes))
	for i, n := range notes {
		document, err := task.EncodeNote(n)
		if err != nil {
			return nil, &task.Error{Kind: task.KindInvalid, ID: n.Task, Action: a, Err: err}
		}
		remarks[i] = remark{n, string(document)}
	}
	return remarks, nil
}

func sizeOf(remarks []remark) int {
	size := 0
	for i := range remarks {
		size += len(remarks[i].document)
	}
	return size
}

// Entries implements [task.Journal].
func (r *reader) Entries(ctx context.Context, q task.JournalQuery) ([]task.Entry, error) {
	if err := r.usable(ctx, task.ActionRead); err != nil {
		return nil, err
	}
	statement, args := journalPage, []any{q.After, q.PageSize()}
	if q.Task != "" {
		statement, args = journalStory, append([]any{string(q.Task)}, args...)
	}
	rows, err := r.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, r.fault(ctx, task.ActionRead, err)
	}
	found, err := entriesOf(rows)
	return found, r.fault(ctx, task.ActionRead, err)
}

// entriesOf returns the entries that rows hold.
func entriesOf(rows *sql.Rows) ([]task.Entry, error) {
	defer rows.Close()
	var found []task.Entry
	for rows.Next() {
		var seq int64
		var id string
		var prev, hash, document []byte
		if err := rows.Scan(&seq, &id, &prev, &hash, &document); err != nil {
			return nil, err
		}
		note, err := task.DecodeNote(document)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", seq, err)
		}
		note.Task = task.ID(id) // by which it is found: a hash must cover that too
		found = append(found, task.Entry{Seq: seq, Note: note, Prev: hashOf(prev), Hash: hashOf(hash)})
	}
	return found, rows.Err()
}

// hashOf returns the hash that was stored, or one that fits nothing if it has
// another length.
func hashOf(stored []byte) (h task.Hash) {
	if len(stored) == len(h) {
		copy(h[:], stored)
	}
	return h
}

// Ends implements [task.Journal].
func (r *reader) Ends(ctx context.Context) (task.Ends, error) {
	if err := r.usable(ctx, task.ActionRead); err != nil {
		return task.Ends{}, err
	}
	var e storedEnds
	err := r.db.QueryRowContext(ctx, journalEnds).Scan(e.columns()...)
	return e.ends(), r.fault(ctx, task.ActionRead, err)
}

// storedEnds are the ends of the journal as they are stored.
type storedEnds struct {
	anchorSeq, headSeq   int64
	anchorHash, headHash []byte
}

func (e *storedEnds) columns() []any {
	return []any{&e.anchorSeq, &e.anchorHash, &e.headSeq, &e.headHash}
}

func (e *storedEnds) ends() task.Ends {
	return task.Ends{
		Anchor: task.Link{Seq: e.anchorSeq, Hash: hashOf(e.anchorHash)},
		Head:   task.Link{Seq: e.headSeq, Hash: hashOf(e.headHash)},
	}
}

// Append implements [task.Journal].
func (s *SQLite) Append(ctx context.Context, notes ...task.Note) error {
	if err := s.usable(ctx, task.ActionAppend); err != nil {
		return err
	}
	remarks, err := newRemarks(notes, task.ActionAppend)
	if err != nil || len(remarks) == 0 {
		return err
	}
	return s.write(ctx, task.ActionAppend, &change{
		size: sizeOf(remarks),
		do:   func(ctx context.Context, tx *session) (outcome, error) { return outcome{}, tx.note(ctx, remarks) },
	})
}

// Trim implements [task.Journal].
func (s *SQLite) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	anchor, err := s.outdated(ctx, before, limit)
	if err != nil || anchor.Seq == 0 {
		return 0, err
	}
	c := &change{do: func(ctx context.Context, tx *session) (outcome, error) { return tx.trim(ctx, anchor) }}
	if err := s.write(ctx, task.ActionTrim, c); err != nil {
		return 0, err
	}
	return c.result.trimmed, nil
}

// outdated returns the last entry that a trim is to remove, or none.
func (r *reader) outdated(ctx context.Context, before time.Time, limit int) (task.Link, error) {
	if err := r.usable(ctx, task.ActionTrim); err != nil || limit <= 0 {
		return task.Link{}, err
	}
	oldest, err := r.Entries(ctx, task.JournalQuery{Limit: limit})
	if err != nil {
		return task.Link{}, err
	}
	n := task.Outdated(oldest, before)
	if n == 0 {
		return task.Link{}, nil
	}
	return oldest[n-1].Link(), nil
}

// A chain is where the journal ends. It is right until a transaction fails, or
// another process writes to the file.
type chain struct {
	known bool
	head  task.Link
	added []any // the columns of the entries that are not written yet
}

func (c *chain) forget() { *c = chain{} }

const (
	entryColumns = 5
	entriesAtOne = 32 // entries that one statement adds; far faster than one by one
)

// insertEntries returns the statement that adds n entries.
func insertEntries(n int) string { return insertEntry + strings.Repeat(anotherEntry, n-1) }

// note adds to the journal. The entries and the head are written once for the
// whole group of changes, by [session.closeJournal].
func (s *session) note(ctx context.Context, remarks []remark) error {
	if len(remarks) == 0 {
		return nil
	}
	if !s.chain.known {
		var e storedEnds
		if err := s.find(ctx, lookup{query: journalEnds}, e.columns()...); err != nil {
			return err
		}
		s.chain.head, s.chain.known = e.ends().Head, true
	}
	for _, r := range remarks {
		e := s.chain.head.Next(r.Note)
		s.chain.added = append(s.chain.added, e.Seq, string(e.Task), e.Prev[:], e.Hash[:], r.document)
		s.chain.head = e.Link()
	}
	return nil
}

// closeJournal writes what was added, and the new head.
func (s *session) closeJournal(ctx context.Context) error {
	if len(s.chain.added) == 0 {
		return nil
	}
	for rest := s.chain.added; len(rest) > 0; {
		n := entriesAtOne
		if len(rest) < n*entryColumns {
			n = 1 << (bits.Len(uint(len(rest)/entryColumns)) - 1) // few different statements, which stay prepared
		}
		if _, err := s.exec(ctx, insertEntries(n), rest[:n*entryColumns]...); err != nil {
			return err
		}
		rest = rest[n*entryColumns:]
	}
	clear(s.chain.added)
	s.chain.added = s.chain.added[:0]
	_, err := s.exec(ctx, updateHead, s.chain.head.Seq, s.chain.head.Hash[:])
	return err
}

// trim removes what has not been removed since it was looked at.
func (s *session) trim(ctx context.Context, anchor task.Link) (outcome, error) {
	result, err := s.exec(ctx, discardEntries, anchor.Seq)
	if err != nil {
		return outcome{}, err
	}
	n, err := result.RowsAffected()
	if err == nil && n > 0 {
		_, err = s.exec(ctx, updateAnchor, anchor.Seq, anchor.Hash[:])
	}
	return outcome{trimmed: int(n)}, err
}
