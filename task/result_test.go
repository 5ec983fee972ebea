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
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// WriteResult returns the error of its context when it is stopped, rather than an incomplete
// result.
func TestStoppedWriteReturnsContextError(t *testing.T) {
	s := newStore(t)
	store(t, s, task.Executing)
	ctx, cancel := context.WithCancel(t.Context())
	endless := readerFunc(func(p []byte) (int, error) {
		cancel()
		return len(p), nil
	})
	if r, err := storekit.WriteResult(ctx, s, ref, endless); !errors.Is(err, context.Canceled) {
		t.Errorf("WriteResult = %+v, %v; want the context's error", r, err)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Large answers become chunks and small ones are inline. Reading detects damaged chunks.
func TestWriteResultStoresAnswer(t *testing.T) {
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
		got, err := storekit.WriteResult(t.Context(), s, ref, io.TeeReader(strings.NewReader(strings.Repeat("x", size)), &tee))
		if diff := cmp.Diff(want, got, cmp.Transformer("text", func(b []byte) string { return string(b) })); err != nil || diff != "" {
			t.Errorf("%d bytes: %v (-want +got):\n%s", size, err, diff)
		}
		if tee.Len() != size {
			t.Errorf("the reader of the stream got %d of %d bytes", tee.Len(), size)
		}
	}

	broken := errors.New("connection reset")
	for _, before := range []int{0, 10, 2 * task.ChunkSize} {
		_, err := storekit.WriteResult(t.Context(), s, ref, io.MultiReader(strings.NewReader(strings.Repeat("x", before)), failing{broken}))
		mustBe(t, err, broken)
	}
	_, err := storekit.WriteResult(t.Context(), s, task.OwnedBy("bob").Ref("tg_1"), strings.NewReader(strings.Repeat("x", task.ChunkSize)))
	mustBe(t, err, task.ErrOwnerMismatch)
}

// sum returns the checksum of a text of size x.
func sum(size int) uint32 {
	return crc32.Checksum(bytes.Repeat([]byte("x"), size), crc32.MakeTable(crc32.Castagnoli))
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestReadResultDetectsDamage(t *testing.T) {
	s := newStore(t)
	store(t, s, task.Executing)
	result, err := storekit.WriteResult(t.Context(), s, ref, strings.NewReader(strings.Repeat("x", 2*task.ChunkSize)))
	if err != nil {
		t.Fatal(err)
	}
	result.Kind = task.ResultOK
	done := advance(t, s, lifecycle.Complete{By: "gate-1", Result: result}, epoch)
	gone := errors.New("reader has closed the connection")
	mustBe(t, storekit.ReadResult(t.Context(), s, done, failing{gone}), gone)

	done.Result.Size--
	mustBe(t, storekit.ReadResult(t.Context(), s, done, io.Discard), task.ErrChunkMissing)
}

// A run whose lease ended while it was suspended may write one more chunk after another run has
// completed the task. A reader never gets a mixture of the two answers.
func TestMixedAnswersAreDetected(t *testing.T) {
	s := newStore(t)
	store(t, s, task.Executing)
	result, err := storekit.WriteResult(t.Context(), s, ref, strings.NewReader(strings.Repeat("x", 3*task.ChunkSize)))
	if err != nil {
		t.Fatal(err)
	}
	result.Kind = task.ResultOK
	done := advance(t, s, lifecycle.Complete{By: "gate-1", Result: result}, epoch)
	if err := storekit.ReadResult(t.Context(), s, done, io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteChunk(t.Context(), ref, 1, bytes.Repeat([]byte("y"), task.ChunkSize)); err != nil {
		t.Fatal(err)
	}
	mustBe(t, storekit.ReadResult(t.Context(), s, done, io.Discard), task.ErrChunkMissing)

	done.Result.Sum = 0 // as in versions without a checksum
	if err := storekit.ReadResult(t.Context(), s, done, io.Discard); err != nil {
		t.Errorf("an answer without a checksum: %v", err)
	}
}
