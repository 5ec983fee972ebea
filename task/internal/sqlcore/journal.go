package sqlcore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// The statements that read the journal, and the one that moves its end.
const (
	JournalEnds  = "SELECT anchor_seq, anchor_hash, head_seq, head_hash FROM journal_ends"
	JournalPage  = "SELECT seq, task, prev, hash, note FROM journal WHERE seq > $1 ORDER BY seq LIMIT $2"
	JournalStory = "SELECT seq, task, prev, hash, note FROM journal WHERE task = $1 AND seq > $2 ORDER BY seq LIMIT $3"
	UpdateHead   = "UPDATE journal_ends SET head_seq = $1, head_hash = $2"
)

// A Remark is a note and its stored form.
type Remark struct {
	task.Note

	Document string
}

// NewRemarks returns what is stored of notes.
func NewRemarks(notes []task.Note, a task.Action) ([]Remark, error) {
	notes, err := task.PrepareNotes(notes, a)
	if err != nil || len(notes) == 0 {
		return nil, err
	}
	remarks := make([]Remark, len(notes))
	for i, n := range notes {
		document, err := task.EncodeNote(n)
		if err != nil {
			return nil, &task.Error{Kind: task.KindInvalid, ID: n.Task, Action: a, Err: err}
		}
		remarks[i] = Remark{n, string(document)}
	}
	return remarks, nil
}

// SizeOf returns how many bytes remarks have.
func SizeOf(remarks []Remark) int {
	size := 0
	for i := range remarks {
		size += len(remarks[i].Document)
	}
	return size
}

// Entries implements [task.Journal].
func (r Reader) Entries(ctx context.Context, q task.JournalQuery) ([]task.Entry, error) {
	if err := r.db.Usable(ctx, task.ActionRead); err != nil {
		return nil, err
	}
	statement, args := JournalPage, []any{q.After, q.PageSize()}
	if q.Task != "" {
		statement, args = JournalStory, append([]any{string(q.Task)}, args...)
	}
	rows, err := r.db.DB.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, r.db.Fault(ctx, task.ActionRead, err)
	}
	found, err := entriesOf(rows)
	return found, r.db.Fault(ctx, task.ActionRead, err)
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
func (r Reader) Ends(ctx context.Context) (task.Ends, error) {
	if err := r.db.Usable(ctx, task.ActionRead); err != nil {
		return task.Ends{}, err
	}
	var e StoredEnds
	err := r.db.DB.QueryRowContext(ctx, JournalEnds).Scan(e.Columns()...)
	return e.Ends(), r.db.Fault(ctx, task.ActionRead, err)
}

// StoredEnds are the ends of the journal as they are stored.
type StoredEnds struct {
	anchorSeq, headSeq   int64
	anchorHash, headHash []byte
}

// Columns returns where the columns of [JournalEnds] are read into.
func (e *StoredEnds) Columns() []any {
	return []any{&e.anchorSeq, &e.anchorHash, &e.headSeq, &e.headHash}
}

// Ends returns the ends.
func (e *StoredEnds) Ends() task.Ends {
	return task.Ends{
		Anchor: task.Link{Seq: e.anchorSeq, Hash: hashOf(e.anchorHash)},
		Head:   task.Link{Seq: e.headSeq, Hash: hashOf(e.headHash)},
	}
}

// LastOutdated returns the last entry that a trim is to remove, or none.
func LastOutdated(ctx context.Context, r Reader, before time.Time, limit int) (task.Link, error) {
	if err := r.db.Usable(ctx, task.ActionTrim); err != nil || limit <= 0 {
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
