package sqlcore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// The statements that read the journal.
const (
	JournalEnds   = "SELECT anchor_seq, anchor_hash, head_seq, head_hash FROM journal_ends"
	JournalPage   = "SELECT seq, task, prev, hash, note FROM journal WHERE seq > $1 ORDER BY seq LIMIT $2"
	JournalOfTask = "SELECT seq, task, prev, hash, note FROM journal WHERE task = $1 AND seq > $2 ORDER BY seq LIMIT $3"
)

// Entries implements [auditlog.Journal].
func (r Reader) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	return request(ctx, r.db, action.Read, func() ([]auditlog.Entry, error) {
		if q.Task == "" {
			return Select(ctx, r.db, scanEntry, JournalPage, q.After, q.PageSize())
		}
		return Select(ctx, r.db, scanEntry, JournalOfTask, string(q.Task), q.After, q.PageSize())
	})
}

func scanEntry(rows *sql.Rows) (e auditlog.Entry, err error) {
	var id task.ID
	var prev, hash, document []byte
	if err := rows.Scan(&e.Seq, &id, &prev, &hash, &document); err != nil {
		return e, err
	}
	if e.Note, err = auditlog.Decode(document); err != nil {
		return e, fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	e.Task = id // the column by which it is found: the hash must cover it too
	e.Prev, e.Hash = hashOf(prev), hashOf(hash)
	return e, nil
}

// hashOf returns a stored hash, or the zero hash if it has a wrong length.
func hashOf(stored []byte) (h auditlog.Hash) {
	if len(stored) == len(h) {
		copy(h[:], stored)
	}
	return h
}

// Ends implements [auditlog.Journal].
func (r Reader) Ends(ctx context.Context) (auditlog.Ends, error) {
	return request(ctx, r.db, action.Read, func() (auditlog.Ends, error) {
		var e StoredEnds
		err := r.db.DB.QueryRowContext(ctx, JournalEnds).Scan(e.Columns()...)
		return e.Ends(), err
	})
}

// StoredEnds are the ends of the journal as they are stored.
type StoredEnds struct {
	anchorSeq, headSeq   int64
	anchorHash, headHash []byte
}

// Columns returns the destinations of the columns of [JournalEnds].
func (e *StoredEnds) Columns() []any {
	return []any{&e.anchorSeq, &e.anchorHash, &e.headSeq, &e.headHash}
}

// Ends returns the ends.
func (e *StoredEnds) Ends() auditlog.Ends {
	return auditlog.Ends{
		Anchor: auditlog.Link{Seq: e.anchorSeq, Hash: hashOf(e.anchorHash)},
		Head:   auditlog.Link{Seq: e.headSeq, Hash: hashOf(e.headHash)},
	}
}

// LastOutdated returns the last entry that a trim removes, or the zero Link.
func LastOutdated(ctx context.Context, r Reader, before time.Time, limit int) (auditlog.Link, error) {
	if err := r.db.Usable(ctx, action.Trim); err != nil || limit <= 0 {
		return auditlog.Link{}, err
	}
	oldest, err := r.Entries(ctx, auditlog.Query{Limit: limit})
	if err != nil {
		return auditlog.Link{}, err
	}
	n := auditlog.Outdated(oldest, before)
	if n == 0 {
		return auditlog.Link{}, nil
	}
	return oldest[n-1].Link(), nil
}
