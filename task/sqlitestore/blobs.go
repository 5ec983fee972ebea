package sqlitestore

import (
	"bytes"
	"context"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

const (
	findChunk = `SELECT owner, state, version, c.n IS NOT NULL, coalesce(r.bytes, 0) FROM tasks
		LEFT JOIN chunks AS c ON c.task = id AND c.n = $1 LEFT JOIN results AS r ON r.task = id WHERE id = $2`
	dropChunk     = "DELETE FROM chunks WHERE task = $1 AND n = $2"
	findResult    = "SELECT bytes FROM results WHERE task = $1"
	listResults   = "SELECT task FROM results"
	sumResults    = "SELECT coalesce(sum(bytes), 0) FROM results"
	findDirectory = "SELECT name FROM results_directory"
	putResult     = `INSERT INTO results (task, bytes) VALUES ($1, $2) ON CONFLICT (task) DO UPDATE SET bytes = excluded.bytes`
)

// reserveMost is how much room a file may be given before it needs it: each time
// that it is given some takes a commit.
const reserveMost = 16 << 20

// headroom is the share of the room that files leave to the database: one part in so
// many.
const headroom = 16

// errNoRoom is why a chunk is not kept in a file: there is room in the database alone.
var errNoRoom = errors.New("no room for a file")

// A foundChunk is what there is of a chunk before it is written.
type foundChunk struct {
	sqlcore.Found

	inside   bool  // the database has it
	reserved int64 // how large the file of its task may be
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if err := s.db.Usable(ctx, task.ActionWriteChunk); err != nil {
		return err
	}
	c := &sqlcore.Chunk{Ref: ref, N: n, Data: data}
	if s.results.takes(n, data) {
		err := s.writeOutside(ctx, c)
		if !errors.Is(err, errNoRoom) {
			return err
		}
	}
	if err := s.writeInside(ctx, c); err != nil || n < s.results.inside {
		return err
	}
	return s.clearOutside(ctx, c)
}

// ReadChunk implements [task.Blobs].
func (s *Store) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	data, err := s.reader.ReadChunk(ctx, ref, n)
	if !errors.Is(err, task.ErrChunkMissing) || n < s.results.inside {
		return data, err
	}
	data, err = s.results.read(ref, n)
	if _, known := errors.AsType[*task.Error](err); known {
		return nil, err
	}
	return data, s.db.Fault(ctx, task.ActionReadChunk, err)
}

// found returns what there is of a chunk.
func (s *Store) found(ctx context.Context, c *sqlcore.Chunk) (f foundChunk, err error) {
	rows, err := s.db.Prepared[findChunk].QueryContext(ctx, c.N, string(c.Ref.ID))
	if err != nil {
		return f, s.db.Fault(ctx, task.ActionWriteChunk, err)
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(append(f.Columns(), &f.inside, &f.reserved)...)
	}
	return f, s.db.Fault(ctx, task.ActionWriteChunk, errors.Join(err, rows.Err()))
}

// writeInside keeps a chunk in the database.
func (s *Store) writeInside(ctx context.Context, c *sqlcore.Chunk) error {
	own := *c
	own.Data = bytes.Clone(c.Data) // the caller may give up while it is written
	return s.write(ctx, task.ActionWriteChunk, &change{
		size: len(c.Data),
		do:   func(ctx context.Context, tx *session) (outcome, error) { return tx.put(ctx, &own) },
	})
}

// writeOutside keeps a chunk in a file. It is on disk when its task has ended, or at
// once if that is so already. It returns [errNoRoom] if there is none.
func (s *Store) writeOutside(ctx context.Context, c *sqlcore.Chunk) error {
	lock := s.results.lock(resultName(c.Ref.ID))
	lock.Lock()
	defer lock.Unlock()
	old, err := s.found(ctx, c) // under the lock: if the task is deleted after this, its file is removed after the write
	if err != nil {
		return err
	}
	if refusal := c.Refusal(old.Found); refusal != nil {
		return refusal
	}
	if end := s.results.offset(c.N) + slotHead + int64(len(c.Data)); old.reserved < end {
		if err := s.reserve(ctx, c.Ref.ID, end); err != nil {
			return err
		}
	}
	p, err := s.results.place(c.Ref.ID, c.N)
	if err != nil {
		return s.db.Fault(ctx, task.ActionWriteChunk, full(err))
	}
	return errors.Join(s.fill(ctx, p, c, old), p.file.Close())
}

// fill writes a chunk to its place. A chunk that is written again is kept in the
// database until that is on disk: what was there before must not be lost.
func (s *Store) fill(ctx context.Context, p place, c *sqlcore.Chunk, old foundChunk) error {
	head, err := p.head()
	if err == nil && head != [slotHead]byte{} && !old.inside { // there is a chunk, whole or not
		if err := s.writeInside(ctx, c); err != nil {
			return err
		}
		old.inside = true
	}
	if err == nil {
		err = p.write(c.Data)
	}
	if err == nil && (old.inside || old.State.Terminal()) {
		_, err = s.results.sync(c.Ref.ID)
	}
	if err != nil || !old.inside {
		return s.db.Fault(ctx, task.ActionWriteChunk, full(err))
	}
	return s.run(ctx, dropChunk, string(c.Ref.ID), c.N)
}

// run has the writer run a statement.
func (s *Store) run(ctx context.Context, query string, args ...any) error {
	return s.write(ctx, task.ActionWriteChunk, &change{do: func(ctx context.Context, tx *session) (outcome, error) {
		_, err := tx.exec(ctx, query, args...)
		return outcome{}, err
	}})
}

// clearOutside frees the room in a file of a chunk that the database has now.
func (s *Store) clearOutside(ctx context.Context, c *sqlcore.Chunk) error {
	lock := s.results.lock(resultName(c.Ref.ID))
	lock.Lock()
	defer lock.Unlock()
	old, err := s.found(ctx, c)
	if err != nil || old.reserved == 0 {
		return err
	}
	p, err := s.results.place(c.Ref.ID, c.N)
	if err != nil {
		return s.db.Fault(ctx, task.ActionWriteChunk, err)
	}
	size, err := p.clear()
	if err := errors.Join(err, p.file.Close()); err != nil {
		return s.db.Fault(ctx, task.ActionWriteChunk, err)
	}
	return s.write(ctx, task.ActionWriteChunk, &change{do: func(ctx context.Context, tx *session) (outcome, error) {
		now, err := tx.present(ctx, c.Ref.ID)
		if err != nil || !now.There() {
			return outcome{}, err
		}
		return outcome{}, tx.resize(ctx, c.Ref.ID, size)
	}})
}

// reserve gives the file of a task room up to end, and to more if there is enough.
func (s *Store) reserve(ctx context.Context, id task.ID, end int64) error {
	return s.write(ctx, task.ActionWriteChunk, &change{do: func(ctx context.Context, tx *session) (outcome, error) {
		return tx.reserve(ctx, id, end)
	}})
}

func (s *session) reserve(ctx context.Context, id task.ID, end int64) (outcome, error) {
	old, err := s.present(ctx, id)
	if err != nil || !old.There() {
		return outcome{refused: task.AnyOwner().Ref(id).NotFound(task.ActionWriteChunk)}, err
	}
	var size int64
	if err := s.find(ctx, lookup{findResult, []any{string(id)}}, &size); err != nil || size >= end {
		return outcome{}, err
	}
	for _, wanted := range []int64{max(end, size+min(size, reserveMost)), end} {
		fits, err := s.fits(ctx, wanted-size)
		if err != nil {
			return outcome{}, err
		}
		if fits {
			return outcome{}, s.resize(ctx, id, wanted)
		}
	}
	free, err := s.free(ctx)
	if free > task.ChunkSize+task.ChunkFrame {
		return outcome{refused: errNoRoom}, err
	}
	return outcome{refused: &task.Error{
		Kind: task.KindCapacityExceeded, ID: id, Action: task.ActionWriteChunk, Limit: s.maxBytes,
	}}, err
}

// free returns how many bytes the database can use without becoming larger.
func (s *session) free(ctx context.Context) (int64, error) {
	var pages int64
	u, err := s.use(ctx)
	err = errors.Join(err, s.find(ctx, lookup{query: "PRAGMA freelist_count"}, &pages))
	return pages * u.pageSize, err
}

// resize notes how large the file of a task may be.
func (s *session) resize(ctx context.Context, id task.ID, size int64) error {
	if _, err := s.exec(ctx, putResult, string(id), size); err != nil {
		return err
	}
	return s.limit(ctx)
}

// fits reports whether a file may have so many bytes more. Some room is left: how a
// task has ended must be kept even if its answer has found no room.
func (s *session) fits(ctx context.Context, more int64) (bool, error) {
	if s.maxBytes == 0 {
		return true, nil
	}
	u, err := s.use(ctx)
	return u.files+u.pages*u.pageSize+more <= s.maxBytes-s.maxBytes/headroom, err
}

// put keeps a chunk in the database.
func (s *session) put(ctx context.Context, c *sqlcore.Chunk) (outcome, error) {
	old, err := s.present(ctx, c.Ref.ID)
	if err != nil {
		return outcome{}, err
	}
	refusal := c.Refusal(old)
	if refusal == nil {
		_, err = s.exec(ctx, sqlcore.PutChunk, string(c.Ref.ID), c.N, c.Data)
	}
	return outcome{refused: refusal}, err
}
