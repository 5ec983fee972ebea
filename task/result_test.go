package task_test

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// An answer that nobody waits for any more is not taken for whole.
func TestWriteResultStopped(t *testing.T) {
	s := newStore(t)
	store(t, s, task.Executing)
	ctx, cancel := context.WithCancel(t.Context())
	endless := readerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})
	if r, err := task.WriteResult(ctx, s, ref, endless); !errors.Is(err, context.Canceled) {
		t.Errorf("WriteResult = %+v, %v; want the context's error", r, err)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestWriteResult checks what is kept where, and that broken parts are noticed.
func TestWriteResult(t *testing.T) {
	s := newStore(t)
	store(t, s, task.Executing)
	for size, want := range map[int]task.Result{
		0:                     {},
		10:                    {Inline: []byte("xxxxxxxxxx"), Size: 10},
		task.ChunkSize - 1:    {Inline: bytes.Repeat([]byte("x"), task.ChunkSize-1), Size: task.ChunkSize - 1},
		task.ChunkSize:        {Chunks: 1, Size: task.ChunkSize, Sum: sum(task.ChunkSize)},
		3*task.ChunkSize + 10: {Chunks: 4, Size: 3*task.ChunkSize + 10, Sum: sum(3*task.ChunkSize + 10)},
	} {
		var tee bytes.Buffer
		got, err := task.WriteResult(t.Context(), s, ref, io.TeeReader(strings.NewReader(strings.Repeat("x", size)), &tee))
		if diff := cmp.Diff(want, got, cmp.Transformer("text", func(b []byte) string { return string(b) })); err != nil || diff != "" {
			t.Errorf("%d bytes: %v (-want +got):\n%s", size, err, diff)
		}
		if tee.Len() != size {
			t.Errorf("the first reader got %d of %d bytes", tee.Len(), size)
		}
	}

	broken := errors.New("connection reset")
	for _, before := range []int{0, 10, 2 * task.ChunkSize} {
		_, err := task.WriteResult(t.Context(), s, ref, io.MultiReader(strings.NewReader(strings.Repeat("x", before)), failing{broken}))
		mustBe(t, err, broken)
	}
	_, err := task.WriteResult(t.Context(), s, task.OwnedBy("bob").Ref("tg_1"), strings.NewReader(strings.Repeat("x", task.ChunkSize)))
	mustBe(t, err, task.ErrOwnerMismatch)
}

// sum returns the checksum of a text of that many x.
func sum(size int) uint32 {
	return crc32.Checksum(bytes.Repeat([]byte("x"), size), crc32.MakeTable(crc32.Castagnoli))
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestReadResultFails(t *testing.T) {
	s := newStore(t)
	store(t, s, task.Executing)
	result, err := task.WriteResult(t.Context(), s, ref, strings.NewReader(strings.Repeat("x", 2*task.ChunkSize)))
	if err != nil {
		t.Fatal(err)
	}
	result.Kind = task.ResultOK
	done := advance(t, s, task.Complete{By: "gate-1", Result: result}, epoch)
	gone := errors.New("reader gone")
	mustBe(t, task.ReadResult(t.Context(), s, done, failing{gone}), gone)

	done.Result.Size--
	mustBe(t, task.ReadResult(t.Context(), s, done, io.Discard), task.ErrChunkMissing)
}

// A run whose lease ended while it was suspended may write one more chunk when another run
// has completed the task. Nobody gets a mixture of the two answers.
func TestMixedAnswers(t *testing.T) {
	s := newStore(t)
	store(t, s, task.Executing)
	result, err := task.WriteResult(t.Context(), s, ref, strings.NewReader(strings.Repeat("x", 3*task.ChunkSize)))
	if err != nil {
		t.Fatal(err)
	}
	result.Kind = task.ResultOK
	done := advance(t, s, task.Complete{By: "gate-1", Result: result}, epoch)
	if err := task.ReadResult(t.Context(), s, done, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteChunk(t.Context(), ref, 1, bytes.Repeat([]byte("y"), task.ChunkSize)); err != nil {
		t.Fatal(err)
	}
	mustBe(t, task.ReadResult(t.Context(), s, done, io.Discard), task.ErrChunkMissing)

	done.Result.Sum = 0 // of a version that kept none
	if err := task.ReadResult(t.Context(), s, done, io.Discard); err != nil {
		t.Errorf("an answer without a checksum: %v", err)
	}
}
