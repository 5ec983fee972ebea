package pgstore

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

const (
	chainMost = 500                   // notes to chain in one transaction
	gathering = 50 * time.Millisecond // how long notes may wait for others

	lockEnds  = sqlcore.JournalEnds + " FOR UPDATE"
	takeNotes = `WITH taken AS (DELETE FROM journal_inbox WHERE id = ANY (ARRAY
		(SELECT id FROM journal_inbox ORDER BY id LIMIT $1)) RETURNING id, note)
		SELECT note FROM taken ORDER BY id`
	addEntries = `INSERT INTO journal (seq, task, prev, hash, note)
		SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[], $5::text[])`
	trimJournal = `WITH gone AS (DELETE FROM journal WHERE seq <= $1 RETURNING seq),
		moved AS (UPDATE journal_ends SET anchor_seq = $1, anchor_hash = $2 WHERE anchor_seq < $1)
		SELECT count(*) FROM gone`
)

// A chaining gives notes their place in the journal. A change leaves its notes
// in the inbox, in its own transaction, where they are as durable as the
// change itself. Chaining them there as well would have all writers wait for
// the one who has the head until that one has committed. So it is done after
// the fact and for many at a time, by any replica, and whenever somebody reads.
//
// The inbox is emptied in the order of its numbers. A note that was committed
// before another was begun has the lower number and is there when the other
// is, so that it comes first in the journal too.
type chaining struct {
	pool    *pgxpool.Pool
	waiting chan struct{} // holds a token when there may be something to do
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newChaining(ctx context.Context, pool *pgxpool.Pool) *chaining {
	c := &chaining{pool: pool, waiting: make(chan struct{}, 1)}
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.running.Go(func() { c.run(ctx) })
	return c
}

// close chains what is waiting.
func (c *chaining) close() {
	c.stop()
	c.running.Wait()
}

// wake has notes chained, if there are any.
func (c *chaining) wake(notes int) {
	if notes == 0 {
		return
	}
	select {
	case c.waiting <- struct{}{}:
	default:
	}
}

func (c *chaining) run(ctx context.Context) {
	for {
		select {
		case <-c.waiting:
			pause.For(ctx, gathering)
		case <-ctx.Done():
			c.finish(ctx)
			return
		}
		c.finish(ctx)
	}
}

// finish empties the inbox. What it cannot chain is chained by whoever comes
// next.
func (c *chaining) finish(ctx context.Context) {
	bounded, cancel := finishing(ctx)
	defer cancel()
	_ = c.empty(bounded) // a database that is down tells so to those who wait for it
}

// empty chains all that is in the inbox.
func (c *chaining) empty(ctx context.Context) error {
	for {
		var n int
		err := c.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			var err error
			n, err = chainSome(ctx, conn.Conn())
			return err
		})
		if err != nil || n < chainMost {
			return err
		}
	}
}

// chainSome chains the first notes of the inbox and returns how many.
func chainSome(ctx context.Context, conn *pgx.Conn) (int, error) {
	head, remarks, err := takeSome(ctx, conn)
	if err == nil {
		var b pgx.Batch
		if len(remarks) > 0 {
			queueEntries(&b, head, remarks)
		}
		b.Queue("COMMIT")
		err = conn.SendBatch(ctx, &b).Close()
	}
	if err != nil && !conn.IsClosed() {
		bounded, cancel := finishing(ctx)
		defer cancel()
		_, _ = conn.Exec(bounded, "ROLLBACK") // if it fails the pool gives up the connection
	}
	return len(remarks), err
}

// takeSome begins a transaction, locks the head and takes notes from the inbox.
func takeSome(ctx context.Context, conn *pgx.Conn) (task.Link, []sqlcore.Remark, error) {
	var e sqlcore.StoredEnds
	var taken []sqlcore.Remark
	var b pgx.Batch
	b.Queue("BEGIN")
	b.Queue(lockEnds).QueryRow(func(row pgx.Row) error { return row.Scan(e.Columns()...) })
	b.Queue(takeNotes, chainMost).Query(func(rows pgx.Rows) error {
		var err error
		taken, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r sqlcore.Remark, err error) {
			if err = row.Scan(&r.Document); err == nil {
				r.Note, err = task.DecodeNote([]byte(r.Document))
			}
			return r, err
		})
		return err
	})
	if err := conn.SendBatch(ctx, &b).Close(); err != nil {
		return task.Link{}, nil, err
	}
	return e.Ends().Head, taken, nil
}

// queueEntries adds the statements that chain remarks to the head.
func queueEntries(b *pgx.Batch, head task.Link, remarks []sqlcore.Remark) {
	n := len(remarks)
	seqs, tasks := make([]int64, n), make([]string, n)
	prevs, hashes := make([][]byte, n), make([][]byte, n)
	for i, r := range remarks {
		e := head.Next(r.Note)
		seqs[i], tasks[i], prevs[i], hashes[i] = e.Seq, string(e.Task), e.Prev[:], e.Hash[:]
		head = e.Link()
	}
	b.Queue(addEntries, seqs, tasks, prevs, hashes, documents(remarks))
	b.Queue(sqlcore.UpdateHead, head.Seq, head.Hash[:])
}

func documents(remarks []sqlcore.Remark) []string {
	texts := make([]string, len(remarks))
	for i := range remarks {
		texts[i] = remarks[i].Document
	}
	return texts
}

// Append implements [task.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	if err := s.db.Usable(ctx, task.ActionAppend); err != nil {
		return err
	}
	remarks, err := sqlcore.NewRemarks(notes, task.ActionAppend)
	if err != nil || len(remarks) == 0 {
		return err
	}
	err = s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, addNotes, documents(remarks))
		return err
	})
	if err != nil {
		return s.db.Fault(ctx, task.ActionAppend, err)
	}
	s.chaining.wake(len(remarks))
	return nil
}

// Entries implements [task.Journal].
func (s *Store) Entries(ctx context.Context, q task.JournalQuery) ([]task.Entry, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	return s.reader.Entries(ctx, q)
}

// Ends implements [task.Journal].
func (s *Store) Ends(ctx context.Context) (task.Ends, error) {
	if err := s.settle(ctx); err != nil {
		return task.Ends{}, err
	}
	return s.reader.Ends(ctx)
}

// settle chains what was written before the journal is read.
func (s *Store) settle(ctx context.Context) error {
	if err := s.db.Usable(ctx, task.ActionRead); err != nil {
		return err
	}
	waiting := false
	err := s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM journal_inbox)").Scan(&waiting)
	if err == nil && waiting {
		err = s.chaining.empty(ctx)
	}
	return s.db.Fault(ctx, task.ActionRead, err)
}

// Trim implements [task.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.settle(ctx); err != nil {
		return 0, err
	}
	anchor, err := sqlcore.LastOutdated(ctx, s.reader, before, limit)
	if err != nil || anchor.Seq == 0 {
		return 0, err
	}
	n := 0
	err = s.change(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, trimJournal, anchor.Seq, anchor.Hash[:]).Scan(&n)
	})
	return n, s.db.Fault(ctx, task.ActionTrim, err)
}
