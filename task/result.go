package task

import (
	"context"
	"errors"
	"io"
	"slices"
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

// WriteResult reads an answer to its end. One that is shorter than a chunk is
// returned as it is; of a longer one every chunk is kept in s as soon as it is
// read, so that one chunk is all that is ever in memory. The result becomes
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
	for ; err == nil && n > 0; n, err = fill(chunk, answer) {
		if err := s.WriteChunk(ctx, ref, r.Chunks, chunk[:n]); err != nil {
			return Result{}, err
		}
		r.Chunks, r.Size = r.Chunks+1, r.Size+int64(n)
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

// ReadResult writes t's answer to w, chunk by chunk. It returns [ErrNotReady]
// if t is not terminal, and [ErrChunkMissing] if t has no answer or the store
// does not have it whole.
func ReadResult(ctx context.Context, s Blobs, t Task, w io.Writer) error {
	if !t.State.Terminal() {
		return t.refuse(&Error{Kind: KindNotReady}, ActionReadChunk)
	}
	if t.Result == nil {
		return t.refuse(&Error{Kind: KindChunkMissing, Detail: "there is no answer"}, ActionReadChunk)
	}
	if t.Result.Chunks == 0 {
		_, err := w.Write(t.Result.Inline)
		return err
	}
	ref, size := OwnedBy(t.Owner).Ref(t.ID), int64(0)
	for n := range t.Result.Chunks {
		chunk, err := s.ReadChunk(ctx, ref, n)
		if err != nil {
			return err
		}
		if _, err := w.Write(chunk); err != nil {
			return err
		}
		size += int64(len(chunk))
	}
	if size != t.Result.Size {
		return t.refuse(&Error{Kind: KindChunkMissing, Size: size, Limit: t.Result.Size, Detail: "the answer is not whole"}, ActionReadChunk)
	}
	return nil
}
