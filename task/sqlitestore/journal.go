package sqlitestore

import (
	"context"
	"math/bits"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

const (
	insertEntry    = "INSERT INTO journal (seq, task, prev, hash, note) VALUES (?, ?, ?, ?, ?)"
	anotherEntry   = ", (?, ?, ?, ?, ?)"
	updateAnchor   = "UPDATE journal_ends SET anchor_seq = $1, anchor_hash = $2"
	discardEntries = "DELETE FROM journal WHERE seq <= $1"
)

// Append implements [task.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	if err := s.db.Usable(ctx, task.ActionAppend); err != nil {
		return err
	}
	remarks, err := sqlcore.NewRemarks(notes, task.ActionAppend)
	if err != nil || len(remarks) == 0 {
		return err
	}
	return s.write(ctx, task.ActionAppend, &change{
		size: sqlcore.SizeOf(remarks),
		do:   func(ctx context.Context, tx *session) (outcome, error) { return outcome{}, tx.note(ctx, remarks) },
	})
}

// Trim implements [task.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	anchor, err := sqlcore.LastOutdated(ctx, s.reader, before, limit)
	if err != nil || anchor.Seq == 0 {
		return 0, err
	}
	c := &change{do: func(ctx context.Context, tx *session) (outcome, error) { return tx.trim(ctx, anchor) }}
	if err := s.write(ctx, task.ActionTrim, c); err != nil {
		return 0, err
	}
	return c.result.trimmed, nil
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
func (s *session) note(ctx context.Context, remarks []sqlcore.Remark) error {
	if len(remarks) == 0 {
		return nil
	}
	if !s.chain.known {
		var e sqlcore.StoredEnds
		if err := s.find(ctx, lookup{query: sqlcore.JournalEnds}, e.Columns()...); err != nil {
			return err
		}
		s.chain.head, s.chain.known = e.Ends().Head, true
	}
	for _, r := range remarks {
		e := s.chain.head.Next(r.Note)
		s.chain.added = append(s.chain.added, e.Seq, string(e.Task), e.Prev[:], e.Hash[:], r.Document)
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
	_, err := s.exec(ctx, sqlcore.UpdateHead, s.chain.head.Seq, s.chain.head.Hash[:])
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
