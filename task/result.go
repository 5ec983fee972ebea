package task

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"sync"
)

// keep makes a copy of r the result of t, unless r makes no sense.
func (t *Task) keep(r Result) *Error {
	inline := r.Chunks == 0 && int64(len(r.Inline)) == r.Size && len(r.Inline) <= ChunkSize
	blob := r.Chunks > 0 && len(r.Inline) == 0 && r.Size > 0
	if !inline && !blob {
		return &Error{Kind: KindInvalid, Detail: "the result is neither inline nor a blob"}
	}
	if r.Inline = slices.Clone(r.Inline); len(r.Inline) == 0 {
		r.Inline = nil // one way to store nothing
	}
	t.Result = &r
	return nil
}

// castagnoli is the table of the checksum of a blob. Two runs may write chunks of one task:
// one whose lease ended while it was suspended may write once more when it goes on. With
// the checksum a mixture of two answers is noticed.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writing is how many chunks of an answer are written at a time: a store that
// makes every write durable is far faster at several than at one by one.
const writing = 4

// WriteResult reads an answer to its end. One that is shorter than a chunk is
// returned as it is; of a longer one every chunk is kept in s as soon as it is
// read, so that a few chunks are all that is ever in memory. The result becomes
// the task's only when the task is completed with it: give it a Kind and pass
// it to [CompleteWithResult].
//
// To hand the answer to a first reader while it is kept, pass an
// [io.TeeReader].
func WriteResult(ctx context.Context, s Blobs, ref Ref, answer io.Reader) (Result, error) {
	chunk := make([]byte, ChunkSize)
	n, err := fill(chunk, answer)
	if err == nil && n < len(chunk) {
		return Result{Inline: slices.Clone(chunk[:n]), Size: int64(n)}, nil
	}
	var r Result
	var writers sync.WaitGroup
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	free := make(chan []byte, writing)
	for range writing - 1 {
		free <- nil // made when it is needed
	}
	for ; err == nil && n > 0 && ctx.Err() == nil; n, err = fill(chunk, answer) {
		data, place := chunk[:n], r.Chunks
		writers.Go(func() {
			defer func() { free <- data[:cap(data)] }()
			if err := s.WriteChunk(ctx, ref, place, data); err != nil {
				stop(err)
			}
		})
		r.Chunks, r.Size, r.Sum = r.Chunks+1, r.Size+int64(n), crc32.Update(r.Sum, castagnoli, data)
		if chunk = <-free; chunk == nil {
			chunk = make([]byte, ChunkSize)
		}
	}
	writers.Wait()
	if err == nil {
		err = context.Cause(ctx) // which also ends the reading
	}
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

// fill reads from r until chunk is full or r ends.
func fill(chunk []byte, r io.Reader) (int, error) {
	n, err := io.ReadFull(r, chunk)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

// OpenResult returns a reader of t's answer that holds no more of it than a
// chunk. Reading fails with [ErrNotReady] if t is not terminal, and with
// [ErrChunkMissing] if t has no answer or the store does not have it whole.
func OpenResult(ctx context.Context, s Blobs, t Task) io.Reader {
	switch {
	case !t.State.Terminal():
		return &chunkReader{err: t.refuse(&Error{Kind: KindNotReady}, ActionReadChunk)}
	case t.Result == nil:
		return &chunkReader{err: t.refuse(&Error{Kind: KindChunkMissing, Detail: "there is no answer"}, ActionReadChunk)}
	case t.Result.Chunks == 0:
		return &chunkReader{rest: t.Result.Inline, err: io.EOF}
	}
	ref, n, size, sum := OwnedBy(t.Owner).Ref(t.ID), 0, int64(0), uint32(0)
	return ReadChunks(func() ([]byte, error) {
		switch {
		case n < t.Result.Chunks:
			chunk, err := s.ReadChunk(ctx, ref, n)
			n, size, sum = n+1, size+int64(len(chunk)), crc32.Update(sum, castagnoli, chunk)
			return chunk, err
		case size != t.Result.Size:
			return nil, t.refuse(&Error{Kind: KindChunkMissing, Size: size, Limit: t.Result.Size, Detail: "the answer is not whole"}, ActionReadChunk)
		case t.Result.Sum != 0 && sum != t.Result.Sum:
			return nil, t.refuse(&Error{Kind: KindChunkMissing, Detail: "another run has overwritten a part of the answer"}, ActionReadChunk)
		default:
			return nil, io.EOF
		}
	})
}

// chunkBuffers has buffers of chunks that were read. Without it a large answer would
// leave as much garbage as it has bytes.
var chunkBuffers = sync.Pool{New: func() any { return new([ChunkSize + ChunkFrame]byte) }}

// ChunkBuffer returns a buffer with room for a chunk, for a store to read one into.
// [ReadChunks] takes it back.
func ChunkBuffer() []byte {
	buffer, _ := chunkBuffers.Get().(*[ChunkSize + ChunkFrame]byte)
	return buffer[:]
}

// ReadChunks returns a reader of the chunks that next returns, one after the
// other, until it returns an error. The chunks are the reader's own.
func ReadChunks(next func() ([]byte, error)) io.Reader { return &chunkReader{next: next} }

// A chunkReader reads one chunk after the other.
type chunkReader struct {
	next  func() ([]byte, error)
	chunk []byte // the last one
	rest  []byte // of it
	err   error  // what comes after rest
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

// release gives back the buffer of a chunk that was read.
func (r *chunkReader) release() {
	if cap(r.chunk) == ChunkSize+ChunkFrame {
		chunkBuffers.Put((*[ChunkSize + ChunkFrame]byte)(r.chunk[:cap(r.chunk)]))
	}
	r.chunk = nil
}

// ReadResult writes t's answer to w. It fails like a reader from [OpenResult].
func ReadResult(ctx context.Context, s Blobs, t Task, w io.Writer) error {
	_, err := io.CopyBuffer(w, OpenResult(ctx, s, t), make([]byte, ChunkSize))
	return err
}
