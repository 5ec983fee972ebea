package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

const (
	findChunk = `SELECT owner, account, state, version, size, c.n IS NOT NULL, coalesce(r.bytes, 0) FROM tasks
		LEFT JOIN chunks AS c ON c.task = id AND c.n = $1 LEFT JOIN results AS r ON r.task = id WHERE id = $2`
	dropChunk     = "DELETE FROM chunks WHERE task = $1 AND n = $2"
	findResult    = "SELECT bytes FROM results WHERE task = $1"
	listResults   = "SELECT task FROM results"
	sumResults    = "SELECT coalesce(sum(bytes), 0) FROM results"
	findDirectory = "SELECT name FROM results_directory"
	upsertResult  = `INSERT INTO results (task, bytes) VALUES ($1, $2) ON CONFLICT (task) DO UPDATE SET bytes = excluded.bytes`
)

// reserveMost is the most bytes that a file may reserve in advance. Each reservation takes a
// commit.
const reserveMost = 16 << 20

// headroom is the part of the space that files leave to the database: 1 / headroom.
const headroom = 16

// errNoFileSpace means that the chunk must be written to the database, because files have no
// space.
var errNoFileSpace = &task.Error{Kind: task.ErrCapacityExceeded, Action: action.WriteChunk, Detail: "no space for a file"}

// A foundChunk is the stored state of a chunk before it is written.
type foundChunk struct {
	sqlcore.StoredTask

	inDatabase bool  // the chunk is in the database
	reserved   int64 // the reserved size of the task's file
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	if err := s.db.Usable(ctx, action.WriteChunk); err != nil {
		return err
	}
	c := &sqlcore.Chunk{Ref: ref, N: n, Data: data}
	if s.results.accepts(n, data) {
		err := s.writeToFile(ctx, c)
		if !errors.Is(err, errNoFileSpace) {
			return err
		}
	}
	if err := s.writeToDatabase(ctx, c); err != nil || n < s.results.inDatabase {
		return err
	}
	return s.clearInFile(ctx, c)
}

// ReadChunk implements [task.Blobs].
func (s *Store) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	data, err := s.reader.ReadChunk(ctx, ref, n)
	if !errors.Is(err, task.ErrChunkMissing) || n < s.results.inDatabase {
		return data, err
	}
	data, err = s.results.read(ref, n)
	if _, known := errors.AsType[*task.Error](err); known {
		return nil, err
	}
	return data, s.db.Fault(ctx, action.ReadChunk, err)
}

// found returns the stored state of a chunk.
func (s *Store) found(ctx context.Context, c *sqlcore.Chunk) (f foundChunk, err error) {
	err = s.db.Row(ctx, findChunk, c.N, string(c.Ref.ID)).Scan(append(f.Columns(), &f.inDatabase, &f.reserved)...)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return f, s.db.Fault(ctx, action.WriteChunk, err)
}

// writeToDatabase writes a chunk to the database.
func (s *Store) writeToDatabase(ctx context.Context, c *sqlcore.Chunk) error {
	own := *c
	own.Data = bytes.Clone(c.Data) // the caller may stop waiting, and reuse its buffer, during the write
	return s.write(ctx, action.WriteChunk, &change{
		size: len(c.Data),
		do:   func(ctx context.Context, tx *session) error { return tx.put(ctx, &own) },
	})
}

// writeToFile writes a chunk to a file. The change that ends the task flushes the file; if the
// task has ended already, writeToFile flushes it. It returns [errNoFileSpace] if there is no
// space for files.
func (s *Store) writeToFile(ctx context.Context, c *sqlcore.Chunk) error {
	lock := s.results.lock(resultName(c.Ref.ID))
	lock.Lock()
	defer lock.Unlock()
	old, err := s.found(ctx, c) // under the lock: if the task is deleted after this, its file is removed after the write
	if err != nil {
		return err
	}
	if refusal := c.Refusal(old.StoredTask); refusal != nil {
		return refusal
	}
	if end := s.results.offset(c.N) + slotHead + int64(len(c.Data)); old.reserved < end {
		if err := s.reserve(ctx, c.Ref.ID, end); err != nil {
			return err
		}
	}
	p, err := s.results.slot(c.Ref.ID, c.N)
	if err != nil {
		return s.db.Fault(ctx, action.WriteChunk, explainFull(err))
	}
	return errors.Join(s.writeSlot(ctx, p, c, old), p.file.Close())
}

// writeSlot writes a chunk to its slot. If the slot has a chunk, the database keeps the new
// one until the file is flushed, because a crash must not lose both.
func (s *Store) writeSlot(ctx context.Context, p chunkSlot, c *sqlcore.Chunk, old foundChunk) error {
	head, err := p.head()
	if err == nil && head != [slotHead]byte{} && !old.inDatabase { // the slot has a chunk, complete or not
		if err := s.writeToDatabase(ctx, c); err != nil {
			return err
		}
		old.inDatabase = true
	}
	if err == nil {
		err = p.write(c.Data)
	}
	if err == nil && (old.inDatabase || old.State.Terminal()) {
		_, err = s.results.sync(c.Ref.ID)
	}
	if err != nil || !old.inDatabase {
		return s.db.Fault(ctx, action.WriteChunk, explainFull(err))
	}
	return s.run(ctx, dropChunk, string(c.Ref.ID), c.N)
}

// run runs a statement in the writer.
func (s *Store) run(ctx context.Context, query string, args ...any) error {
	return s.write(ctx, action.WriteChunk, &change{do: func(ctx context.Context, tx *session) error {
		_, err := tx.exec(ctx, query, args...)
		return err
	}})
}

// clearInFile clears the slot of a chunk that is in the database now.
func (s *Store) clearInFile(ctx context.Context, c *sqlcore.Chunk) error {
	lock := s.results.lock(resultName(c.Ref.ID))
	lock.Lock()
	defer lock.Unlock()
	old, err := s.found(ctx, c)
	if err != nil || old.reserved == 0 {
		return err
	}
	p, err := s.results.slot(c.Ref.ID, c.N)
	if err != nil {
		return s.db.Fault(ctx, action.WriteChunk, err)
	}
	size, err := p.clear()
	if err := errors.Join(err, p.file.Close()); err != nil {
		return s.db.Fault(ctx, action.WriteChunk, err)
	}
	return s.write(ctx, action.WriteChunk, &change{do: func(ctx context.Context, tx *session) error {
		now, err := tx.findTask(ctx, c.Ref.ID)
		if err != nil || !now.Exists() {
			return err
		}
		return tx.resize(ctx, c.Ref.ID, size)
	}})
}

// reserve reserves space for the file of a task up to end, and more if there is enough.
func (s *Store) reserve(ctx context.Context, id task.ID, end int64) error {
	return s.write(ctx, action.WriteChunk, &change{do: func(ctx context.Context, tx *session) error {
		return tx.reserve(ctx, id, end)
	}})
}

func (s *session) reserve(ctx context.Context, id task.ID, end int64) error {
	old, err := s.findTask(ctx, id)
	if err != nil {
		return err
	}
	if !old.Exists() {
		return task.AnyOwner().Ref(id).NotFound(action.WriteChunk)
	}
	var size int64
	if err := s.find(ctx, findResult, []any{string(id)}, &size); err != nil || size >= end {
		return err
	}
	for _, wanted := range []int64{max(end, size+min(size, reserveMost)), end} {
		fits, err := s.fits(ctx, wanted-size)
		if err != nil {
			return err
		}
		if fits {
			return s.resize(ctx, id, wanted)
		}
	}
	free, err := s.free(ctx)
	if err != nil {
		return err
	}
	if free > task.ChunkSize+task.ChunkFrame {
		return errNoFileSpace
	}
	return &task.Error{Kind: task.ErrCapacityExceeded, ID: id, Action: action.WriteChunk, Limit: s.maxBytes}
}

// free returns the number of bytes that the database can use without growing.
func (s *session) free(ctx context.Context) (int64, error) {
	var pages int64
	u, err := s.usage(ctx)
	err = errors.Join(err, s.find(ctx, "PRAGMA freelist_count", nil, &pages))
	return pages * u.pageSize, err
}

// resize records the reserved size of the file of a task.
func (s *session) resize(ctx context.Context, id task.ID, size int64) error {
	if _, err := s.exec(ctx, upsertResult, string(id), size); err != nil {
		return err
	}
	return s.setLimit(ctx)
}

// fits reports whether a file may grow by more bytes. Some space stays free: the end of a
// task must be stored even if there is no space for its answer.
func (s *session) fits(ctx context.Context, more int64) (bool, error) {
	if s.maxBytes == 0 {
		return true, nil
	}
	u, err := s.usage(ctx)
	//mutate:swap "u.files+u.pages*u.pageSize+more <= s.maxBytes-s.maxBytes/headroom" "u.pages*u.pageSize+more <= s.maxBytes" TestFilesCountTowardsLimit files of answers do not count towards the limit
	return u.files+u.pages*u.pageSize+more <= s.maxBytes-s.maxBytes/headroom, err
}

// put writes a chunk to the database.
func (s *session) put(ctx context.Context, c *sqlcore.Chunk) error {
	old, err := s.findTask(ctx, c.Ref.ID)
	if err == nil {
		err = c.Refusal(old)
	}
	if err == nil {
		_, err = s.exec(ctx, upsertChunk, string(c.Ref.ID), c.N, c.Data)
	}
	return err
}
