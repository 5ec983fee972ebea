package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

const (
	maxChained = 500                   // the most notes that are chained in one transaction
	chainDelay = 50 * time.Millisecond // how long notes wait for further notes

	// readInbox returns the head of the journal with each note in the inbox.
	readInbox = `SELECT head_seq, head_hash, waiting.id, note FROM journal_ends,
		(SELECT id, note FROM journal_inbox ORDER BY id LIMIT $1) AS waiting ORDER BY waiting.id`
	// moveNotes moves notes from the inbox to the journal, if its head is unchanged.
	moveNotes = `WITH head AS (UPDATE journal_ends SET head_seq = $2, head_hash = $3 WHERE head_seq = $1 RETURNING head_seq),
		taken AS (DELETE FROM journal_inbox WHERE id = ANY ($4::bigint[]) AND EXISTS (SELECT FROM head)),
		added AS (INSERT INTO journal (seq, task, prev, hash, note)
			SELECT * FROM unnest($5::bigint[], $6::text[], $7::bytea[], $8::bytea[], $9::text[]) WHERE EXISTS (SELECT FROM head))
		SELECT EXISTS (SELECT FROM head)`
	trimJournal = `WITH gone AS (DELETE FROM journal WHERE seq <= $1 RETURNING seq),
		moved AS (UPDATE journal_ends SET anchor_seq = $1, anchor_hash = $2 WHERE anchor_seq < $1)
		SELECT count(*) FROM gone`
)

// A change writes its notes to the inbox in its transaction, so they are as durable as the
// change. If it also chained them, all writers would wait for the lock on the head. Instead,
// any replica chains many notes at a time, a moment later or when the journal is read.
//
// A replica reads the head and the notes, and moves them only if the head is unchanged. So each
// note is chained once.
//
// The inbox is emptied in the order of its numbers. A note that was committed before another
// transaction began has a lower number than that transaction's notes, so it is earlier in the
// journal.

// chainNotes chains all notes in the inbox.
func (s *Store) chainNotes(ctx context.Context) error {
	for {
		head, waiting, err := s.waitingNotes(ctx)
		if err != nil || len(waiting) == 0 {
			return err
		}
		chained, err := s.chain(ctx, head, waiting)
		if err != nil || chained && len(waiting) < maxChained {
			return err
		}
	}
}

// A waitingNote is a note in the inbox.
type waitingNote struct {
	id int64
	storekit.StoredNote
}

// waitingNotes returns the oldest notes in the inbox, at most maxChained, and the head of the
// journal. The head is zero if the inbox is empty.
func (s *Store) waitingNotes(ctx context.Context) (head auditlog.Link, waiting []waitingNote, err error) {
	rows, err := s.pool.Query(ctx, readInbox, maxChained)
	if err != nil {
		return head, nil, err
	}
	var hash []byte // of the head: the same in every row
	waiting, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n waitingNote, err error) {
		if err = row.Scan(&head.Seq, &hash, &n.id, &n.Document); err == nil {
			n.Note, err = auditlog.Decode([]byte(n.Document))
		}
		return n, err
	})
	copy(head.Hash[:], hash)
	return head, waiting, err
}

// chain chains notes to the head. It reports false, and changes nothing, if another replica
// has moved the head.
func (s *Store) chain(ctx context.Context, head auditlog.Link, waiting []waitingNote) (chained bool, err error) {
	n, last := len(waiting), head
	ids, seqs, tasks := make([]int64, n), make([]int64, n), make([]string, n)
	prevs, hashes, notes := make([][]byte, n), make([][]byte, n), make([]string, n)
	for i, w := range waiting {
		e := last.Next(w.Note)
		ids[i], seqs[i], tasks[i], prevs[i], hashes[i], notes[i] = w.id, e.Seq, string(e.Task), e.Prev[:], e.Hash[:], w.Document
		last = e.Link()
	}
	err = s.pool.QueryRow(ctx, moveNotes, head.Seq, last.Seq, last.Hash[:], ids, seqs, tasks, prevs, hashes, notes).Scan(&chained)
	return chained, err
}

// Append implements [auditlog.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	remarks, err := storekit.NewStoredNotes(notes, action.Append)
	if err != nil || len(remarks) == 0 {
		return err
	}
	if _, err = s.exec(ctx, action.Append, addNotes, storekit.Documents(remarks)); err == nil {
		s.chaining.Schedule()
	}
	return err
}

// Entries implements [auditlog.Journal].
func (s *Store) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	if err := s.chainPending(ctx); err != nil {
		return nil, err
	}
	return s.reader.Entries(ctx, q)
}

// Ends implements [auditlog.Journal].
func (s *Store) Ends(ctx context.Context) (auditlog.Ends, error) {
	if err := s.chainPending(ctx); err != nil {
		return auditlog.Ends{}, err
	}
	return s.reader.Ends(ctx)
}

// chainPending chains the notes in the inbox before the journal is read.
func (s *Store) chainPending(ctx context.Context) error {
	if err := s.db.Usable(ctx, action.Read); err != nil {
		return err
	}
	return s.db.Fault(ctx, action.Read, s.chainNotes(ctx))
}

// Trim implements [auditlog.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.chainPending(ctx); err != nil {
		return 0, err
	}
	anchor, err := sqlcore.LastOutdated(ctx, s.reader, before, limit)
	if err != nil || anchor.Seq == 0 {
		return 0, err
	}
	n := 0
	err = s.change(ctx, action.Trim, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, trimJournal, anchor.Seq, anchor.Hash[:]).Scan(&n)
	})
	return n, err
}
