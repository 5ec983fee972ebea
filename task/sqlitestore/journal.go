package sqlitestore

import (
	"context"
	"math/bits"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

const (
	insertEntry    = "INSERT INTO journal (seq, task, prev, hash, note) VALUES (?, ?, ?, ?, ?)"
	anotherEntry   = ", (?, ?, ?, ?, ?)"
	updateHead     = "UPDATE journal_ends SET head_seq = $1, head_hash = $2"
	updateAnchor   = "UPDATE journal_ends SET anchor_seq = $1, anchor_hash = $2"
	discardEntries = "DELETE FROM journal WHERE seq <= $1"
)

// Append implements [auditlog.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	remarks, err := storekit.NewStoredNotes(notes, action.Append)
	if err != nil || len(remarks) == 0 {
		return err
	}
	return s.write(ctx, action.Append, &change{
		size: storekit.SizeOf(remarks),
		do:   func(ctx context.Context, tx *session) error { return tx.addNotes(ctx, remarks) },
	})
}

// Trim implements [auditlog.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	anchor, err := sqlcore.LastOutdated(ctx, s.reader, before, limit)
	if err != nil || anchor.Seq == 0 {
		return 0, err
	}
	trimmed := 0
	err = s.write(ctx, action.Trim, &change{do: func(ctx context.Context, tx *session) (err error) {
		trimmed, err = tx.exec(ctx, discardEntries, anchor.Seq)
		if err == nil && trimmed > 0 { // another process may have trimmed it already
			_, err = tx.exec(ctx, updateAnchor, anchor.Seq, anchor.Hash[:])
		}
		return err
	}})
	if err != nil {
		return 0, err
	}
	return trimmed, nil
}

// A journalTail caches the head of the journal. It is valid until a transaction fails or
// another process writes to the file.
type journalTail struct {
	known     bool
	head      auditlog.Link
	unwritten []any // the columns of the unwritten entries
}

func (c *journalTail) forget() { *c = journalTail{} }

const (
	entryColumns = 5
	entriesAtOne = 32 // entries in one statement, which is far faster than single entries
)

// insertEntries returns the statement that adds n entries.
func insertEntries(n int) string { return insertEntry + strings.Repeat(anotherEntry, n-1) }

// addNotes chains notes. [session.writeJournal] writes the entries and the head once for
// the whole group of changes.
func (s *session) addNotes(ctx context.Context, remarks []storekit.StoredNote) error {
	if len(remarks) == 0 {
		return nil
	}
	if !s.tail.known {
		var e sqlcore.StoredEnds
		if err := s.find(ctx, sqlcore.JournalEnds, nil, e.Columns()...); err != nil {
			return err
		}
		s.tail.head, s.tail.known = e.Ends().Head, true
	}
	for _, r := range remarks {
		e := s.tail.head.Next(r.Note)
		s.tail.unwritten = append(s.tail.unwritten, e.Seq, string(e.Task), e.Prev[:], e.Hash[:], r.Document)
		s.tail.head = e.Link()
	}
	return nil
}

// writeJournal writes the unwritten entries, and the new head.
func (s *session) writeJournal(ctx context.Context) error {
	if len(s.tail.unwritten) == 0 {
		return nil
	}
	for rest := s.tail.unwritten; len(rest) > 0; {
		n := entriesAtOne
		if len(rest) < n*entryColumns {
			n = 1 << (bits.Len(uint(len(rest)/entryColumns)) - 1) // only few different statements occur, and they stay prepared
		}
		if _, err := s.exec(ctx, insertEntries(n), rest[:n*entryColumns]...); err != nil {
			return err
		}
		rest = rest[n*entryColumns:]
	}
	clear(s.tail.unwritten)
	s.tail.unwritten = s.tail.unwritten[:0]
	_, err := s.exec(ctx, updateHead, s.tail.head.Seq, s.tail.head.Hash[:])
	return err
}
