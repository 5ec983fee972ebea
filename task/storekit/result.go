package storekit

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// checksumTable is for the checksum of a blob. Two runs may write chunks of one task: a
// process that was suspended until its lease ended may write once more. The checksum
// detects a mixture of two answers.
var checksumTable = crc32.MakeTable(crc32.Castagnoli)

// parallelWrites is the number of chunks that are written at the same time. Stores that flush
// each write are much faster with concurrent writes.
const parallelWrites = 4

// WriteResult reads an answer to its end. An answer that is shorter than a chunk becomes
// an inline result. Of a longer one, every chunk is written to s as soon as it is read, so
// that only a few chunks are in memory. To complete the task with the result, set its Kind
// and pass it to [lifecycle.CompleteWithResult].
func WriteResult(ctx context.Context, s task.Blobs, ref task.Ref, answer io.Reader) (task.Result, error) {
	chunk, n, err := firstChunk(answer)
	if err == nil && n < len(chunk) {
		return task.Result{Inline: slices.Clone(chunk[:n]), Size: int64(n)}, nil
	}
	var r task.Result
	var writers sync.WaitGroup
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	free := make(chan []byte, parallelWrites)
	for range parallelWrites - 1 {
		free <- nil // allocated on demand
	}
	for ; err == nil && n > 0 && ctx.Err() == nil; n, err = fill(chunk, answer) {
		data, place := chunk[:n], r.Chunks
		writers.Go(func() {
			defer func() { free <- data[:cap(data)] }()
			if err := s.WriteChunk(ctx, ref, place, data); err != nil {
				stop(err)
			}
		})
		r.Chunks, r.Size, r.Sum = r.Chunks+1, r.Size+int64(n), crc32.Update(r.Sum, checksumTable, data)
		if chunk = <-free; chunk == nil {
			chunk = make([]byte, task.ChunkSize)
		}
	}
	writers.Wait()
	if err == nil {
		err = context.Cause(ctx) // which also ends the reading
	}
	if err != nil {
		return task.Result{}, err
	}
	return r, nil
}

// smallAnswer is the number of bytes that are read before a whole chunk is allocated. Most
// answers are smaller.
const smallAnswer = 4 << 10

// firstChunk reads the first chunk of an answer, of n bytes. The chunk is full unless the
// answer ends in it.
func firstChunk(answer io.Reader) (chunk []byte, n int, err error) {
	chunk = make([]byte, smallAnswer)
	if n, err = fill(chunk, answer); err != nil || n < smallAnswer {
		return chunk, n, err
	}
	chunk = append(make([]byte, 0, task.ChunkSize), chunk...)[:task.ChunkSize]
	more, err := fill(chunk[n:], answer)
	return chunk, n + more, err
}

// fill reads from r until chunk is full or r ends.
func fill(chunk []byte, r io.Reader) (int, error) {
	n, err := io.ReadFull(r, chunk)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

// OpenResult returns a reader of t's answer that buffers one chunk. Reading fails with
// [task.ErrNotReady] if t is not terminal, and with [task.ErrChunkMissing] if t has no
// answer or the stored answer is incomplete.
func OpenResult(ctx context.Context, s task.Blobs, t task.Task) io.Reader {
	switch {
	case !t.State.Terminal():
		return &chunkReader{err: t.Refuse(&task.Error{Kind: task.ErrNotReady}, action.ReadChunk)}
	case t.Result == nil:
		return &chunkReader{err: t.Refuse(&task.Error{Kind: task.ErrChunkMissing, Detail: "there is no answer"}, action.ReadChunk)}
	case t.Result.Chunks == 0:
		return &chunkReader{rest: t.Result.Inline, err: io.EOF}
	}
	ref, n, size, sum := task.OwnedBy(t.Owner).Ref(t.ID), 0, int64(0), uint32(0)
	return ReadChunks(func() ([]byte, error) {
		switch {
		case n < t.Result.Chunks:
			chunk, err := s.ReadChunk(ctx, ref, n)
			n, size, sum = n+1, size+int64(len(chunk)), crc32.Update(sum, checksumTable, chunk)
			return chunk, err
		case size != t.Result.Size:
			return nil, t.Refuse(&task.Error{Kind: task.ErrChunkMissing, Size: size, Limit: t.Result.Size, Detail: "the answer is not whole"}, action.ReadChunk)
		case t.Result.Sum != 0 && sum != t.Result.Sum:
			return nil, t.Refuse(&task.Error{Kind: task.ErrChunkMissing, Detail: "another run has overwritten a part of the answer"}, action.ReadChunk)
		default:
			return nil, io.EOF
		}
	})
}

// chunkBuffers reuses the buffers of chunks. Without it, reading a large answer would leave
// garbage of the same size.
var chunkBuffers = sync.Pool{New: func() any { return new([task.ChunkSize + task.ChunkFrame]byte) }}

// ChunkBuffer returns a buffer into which a store can read a chunk. [ReadChunks] takes it back.
func ChunkBuffer() []byte {
	buffer, _ := chunkBuffers.Get().(*[task.ChunkSize + task.ChunkFrame]byte)
	return buffer[:]
}

// ReadChunks returns a reader of the chunks that next returns, until next returns an
// error. The reader owns the chunks.
func ReadChunks(next func() ([]byte, error)) io.Reader { return &chunkReader{next: next} }

// A chunkReader reads one chunk after the other.
type chunkReader struct {
	next  func() ([]byte, error)
	chunk []byte // the last chunk
	rest  []byte // the unread part of chunk
	err   error  // the error after rest
}

// Read implements [io.Reader].
func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.release()
		r.chunk, r.err = r.next()
		r.rest = r.chunk
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, r.err
}

// release returns the buffer of the last chunk to the pool.
func (r *chunkReader) release() {
	if cap(r.chunk) == task.ChunkSize+task.ChunkFrame {
		chunkBuffers.Put((*[task.ChunkSize + task.ChunkFrame]byte)(r.chunk[:cap(r.chunk)]))
	}
	r.chunk = nil
}

// ReadResult writes t's answer to w. It fails like a reader from [OpenResult].
func ReadResult(ctx context.Context, s task.Blobs, t task.Task, w io.Writer) error {
	_, err := io.CopyBuffer(w, OpenResult(ctx, s, t), make([]byte, task.ChunkSize))
	return err
}
