package sqlstore

import (
	"bytes"
	"context"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/task"
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

// A chunk is to be written.
type chunk struct {
	ref  task.Ref
	n    int
	data []byte
}

// A foundChunk is what there is of a chunk before it is written.
type foundChunk struct {
	row

	inside   bool  // the database has it
	reserved int64 // how large the file of its task may be
}

// refusal says why the chunk cannot be kept beside what is there.
func (c *chunk) refusal(old row) error {
	if !old.there() {
		return c.ref.NotFound(task.ActionWriteChunk)
	}
	if err := c.ref.Check(old.owner, task.ActionWriteChunk); err != nil {
		return err
	}
	return c.ref.CheckChunk(c.n, c.data)
}

// WriteChunk implements [task.Blobs].
func (s *SQLite) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if err := s.usable(ctx, task.ActionWriteChunk); err != nil {
		return err
	}
	c := &chunk{ref: ref, n: n, data: data}
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
func (s *SQLite) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	data, err := s.reader.ReadChunk(ctx, ref, n)
	if !errors.Is(err, task.ErrChunkMissing) || n < s.results.inside {
		return data, err
	}
	data, err = s.results.read(ref, n)
	if _, known := errors.AsType[*task.Error](err); known {
		return nil, err
	}
	return data, s.fault(ctx, task.ActionReadChunk, err)
}

// found returns what there is of a chunk.
func (s *SQLite) found(ctx context.Context, c *chunk) (f foundChunk, err error) {
	rows, err := s.prepared[findChunk].QueryContext(ctx, c.n, string(c.ref.ID))
	if err != nil {
		return f, s.fault(ctx, task.ActionWriteChunk, err)
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(&f.owner, &f.state, &f.version, &f.inside, &f.reserved)
	}
	return f, s.fault(ctx, task.ActionWriteChunk, errors.Join(err, rows.Err()))
}

// writeInside keeps a chunk in the database.
func (s *SQLite) writeInside(ctx context.Context, c *chunk) error {
	own := *c
	own.data = bytes.Clone(c.data) // the caller may give up while it is written
	return s.write(ctx, task.ActionWriteChunk, &change{
		size: len(c.data),
		do:   func(ctx context.Context, tx *session) (outcome, error) { return tx.put(ctx, &own) },
	})
}

// writeOutside keeps a chunk in a file. It is on disk when its task has ended, or at
// once if that is so already. It returns [errNoRoom] if there is none.
func (s *SQLite) writeOutside(ctx context.Context, c *chunk) error {
	lock := s.results.lock(resultName(c.ref.ID))
	lock.Lock()
	defer lock.Unlock()
	old, err := s.found(ctx, c) // under the lock: if the task is deleted after this, its file is removed after the write
	if err != nil {
		return err
	}
	if refusal := c.refusal(old.row); refusal != nil {
		return refusal
	}
	if end := s.results.offset(c.n) + slotHead + int64(len(c.data)); old.reserved < end {
		if err := s.reserve(ctx, c.ref.ID, end); err != nil {
			return err
		}
	}
	p, err := s.results.place(c.ref.ID, c.n)
	if err != nil {
		return s.fault(ctx, task.ActionWriteChunk, full(err))
	}
	return errors.Join(s.fill(ctx, p, c, old), p.file.Close())
}

// fill writes a chunk to its place. A chunk that is written again is kept in the
// database until that is on disk: what was there before must not be lost.
func (s *SQLite) fill(ctx context.Context, p place, c *chunk, old foundChunk) error {
	head, err := p.head()
	if err == nil && head != [slotHead]byte{} && !old.inside { // there is a chunk, whole or not
		if err := s.writeInside(ctx, c); err != nil {
			return err
		}
		old.inside = true
	}
	if err == nil {
		err = p.write(c.data)
	}
	if err == nil && (old.inside || old.state.Terminal()) {
		_, err = s.results.sync(c.ref.ID)
	}
	if err != nil || !old.inside {
		return s.fault(ctx, task.ActionWriteChunk, full(err))
	}
	return s.run(ctx, dropChunk, string(c.ref.ID), c.n)
}

// run has the writer run a statement.
func (s *SQLite) run(ctx context.Context, query string, args ...any) error {
	return s.write(ctx, task.ActionWriteChunk, &change{do: func(ctx context.Context, tx *session) (outcome, error) {
		_, err := tx.exec(ctx, query, args...)
		return outcome{}, err
	}})
}

// clearOutside frees the room in a file of a chunk that the database has now.
func (s *SQLite) clearOutside(ctx context.Context, c *chunk) error {
	lock := s.results.lock(resultName(c.ref.ID))
	lock.Lock()
	defer lock.Unlock()
	old, err := s.found(ctx, c)
	if err != nil || old.reserved == 0 {
		return err
	}
	p, err := s.results.place(c.ref.ID, c.n)
	if err != nil {
		return s.fault(ctx, task.ActionWriteChunk, err)
	}
	size, err := p.clear()
	if err := errors.Join(err, p.file.Close()); err != nil {
		return s.fault(ctx, task.ActionWriteChunk, err)
	}
	return s.write(ctx, task.ActionWriteChunk, &change{do: func(ctx context.Context, tx *session) (outcome, error) {
		now, err := tx.present(ctx, c.ref.ID)
		if err != nil || !now.there() {
			return outcome{}, err
		}
		return outcome{}, tx.resize(ctx, c.ref.ID, size)
	}})
}

// reserve gives the file of a task room up to end, and to more if there is enough.
func (s *SQLite) reserve(ctx context.Context, id task.ID, end int64) error {
	return s.write(ctx, task.ActionWriteChunk, &change{do: func(ctx context.Context, tx *session) (outcome, error) {
		return tx.reserve(ctx, id, end)
	}})
}

func (s *session) reserve(ctx context.Context, id task.ID, end int64) (outcome, error) {
	old, err := s.present(ctx, id)
	if err != nil || !old.there() {
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
func (s *session) put(ctx context.Context, c *chunk) (outcome, error) {
	old, err := s.present(ctx, c.ref.ID)
	if err != nil {
		return outcome{}, err
	}
	refusal := c.refusal(old)
	if refusal == nil {
		_, err = s.exec(ctx, putChunk, string(c.ref.ID), c.n, c.data)
	}
	return outcome{refused: refusal}, err
}
