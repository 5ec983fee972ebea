package gatestoretest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

func blobCases() []testCase {
	return []testCase{
		{"chunks are kept in any order", chunkOrder},
		{"a second write replaces the chunk", chunkReplace},
		{"chunks of unknown tasks are refused", chunkUnknown},
		{"invalid chunks are refused", chunkInvalid},
		{"chunks share no memory with the store", chunkAliasing},
		{"chunks of different tasks are kept apart", chunkApart},
		{"blobs are deleted with their task", blobSwept},
		{"answers of every size are kept", blobSizes},
		{"an incomplete answer is detected", blobTruncated},
		{"blobs are written and read at the same time", blobRace},
	}
}

func read(t reporter, s gatestore.Store, id task.ID, n int) string {
	t.Helper()
	chunk, err := s.ReadChunk(t.Context(), anyone(id), n)
	must(t, err)
	return string(chunk)
}

func chunkOrder(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	order := []int{3, 0, 17, 1, 2, 1000}
	for _, n := range order {
		must(t, s.WriteChunk(t.Context(), task.OwnedBy("ann").Ref("tg_a"), n, []byte(fmt.Sprintf("chunk %d \x00\xff", n))))
	}
	for _, n := range order {
		mustEqual(t, "chunk", read(t, s, "tg_a", n), fmt.Sprintf("chunk %d \x00\xff", n))
	}
	for _, n := range []int{4, 16, -1} {
		_, err := s.ReadChunk(t.Context(), anyone("tg_a"), n)
		mustBe(t, err, task.ErrChunkMissing)
	}
}

func chunkReplace(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	for _, text := range []string{"first", "second, and longer", "3rd"} {
		must(t, s.WriteChunk(t.Context(), anyone("tg_a"), 0, []byte(text)))
		mustEqual(t, "chunk", read(t, s, "tg_a", 0), text)
	}
}

func chunkUnknown(t reporter, s gatestore.Store) {
	mustBe(t, s.WriteChunk(t.Context(), anyone("tg_a"), 0, []byte("x")), task.ErrNotFound)
	_, err := s.ReadChunk(t.Context(), anyone("tg_a"), 0)
	mustBe(t, err, task.ErrNotFound)
}

func chunkInvalid(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	whole := bytes.Repeat([]byte("x"), task.ChunkSize)
	must(t, s.WriteChunk(t.Context(), anyone("tg_a"), 0, whole))
	mustEqual(t, "length of the largest chunk", len(read(t, s, "tg_a", 0)), task.ChunkSize)
	mustBe(t, s.WriteChunk(t.Context(), anyone("tg_a"), 1, append(whole, make([]byte, task.ChunkFrame+1)...)), task.ErrInvalid)
	mustBe(t, s.WriteChunk(t.Context(), anyone("tg_a"), 1, nil), task.ErrInvalid)
	mustBe(t, s.WriteChunk(t.Context(), anyone("tg_a"), -1, whole), task.ErrInvalid)
	mustBe(t, s.WriteChunk(t.Context(), anyone("tg_a"), task.MaxChunks, whole), task.ErrInvalid)
}

func chunkAliasing(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	data := []byte("data")
	must(t, s.WriteChunk(t.Context(), anyone("tg_a"), 0, data))
	data[0] = '!'
	got, err := s.ReadChunk(t.Context(), anyone("tg_a"), 0)
	must(t, err)
	mustEqual(t, "after overwriting the written chunk", string(got), "data")
	got[0] = '!'
	mustEqual(t, "after overwriting the returned chunk", read(t, s, "tg_a", 0), "data")
}

func chunkApart(t reporter, s gatestore.Store) {
	ids := []task.ID{"tg_a", "tg_a:1", "tg_a0", "tg_A"}
	for _, id := range ids {
		add(t, s, id, "ann", epoch)
		for _, n := range []int{0, 1, 10} {
			must(t, s.WriteChunk(t.Context(), anyone(id), n, fmt.Append(nil, id, n)))
		}
	}
	for _, id := range ids {
		for _, n := range []int{0, 1, 10} {
			mustEqual(t, "chunk", read(t, s, id, n), fmt.Sprint(id, n))
		}
	}
}

func blobSwept(t reporter, s gatestore.Store) {
	must(t, s.Create(t.Context(), full(t, "tg_a", "ann"), task.Limits{}))
	add(t, s, "tg_b", "ann", epoch)
	for _, id := range []task.ID{"tg_a", "tg_b"} {
		must(t, s.WriteChunk(t.Context(), anyone(id), 0, []byte("x")))
	}
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 1 task", n, err)
	}
	_, err := s.ReadChunk(t.Context(), anyone("tg_a"), 0)
	mustBe(t, err, task.ErrNotFound)
	mustEqual(t, "chunk of a task that is pending", read(t, s, "tg_b", 0), "x")
}

// run creates a task that "gate" runs.
func run(t reporter, s gatestore.Store, id task.ID) {
	t.Helper()
	add(t, s, id, "ann", epoch)
	advance(t, s, id, epoch, lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)})
}

// answer completes a task with an answer of size bytes, and returns the answer.
func answer(t reporter, s gatestore.Store, id task.ID, size int) []byte {
	t.Helper()
	data := bytes.Repeat([]byte(`{"answer":42,"\x00\xff":[]} `), size/13+1)[:size] // all chunks differ
	result, err := storekit.WriteResult(t.Context(), s, anyone(id), bytes.NewReader(data))
	must(t, err)
	result.Kind = task.ResultOK
	_, err = lifecycle.CompleteWithResult(t.Context(), s, anyone(id), lifecycle.Complete{By: "gate", Result: result}, epoch)
	must(t, err)
	return data
}

func blobSizes(t reporter, s gatestore.Store) {
	for i, size := range []int{0, 1, task.ChunkSize - 1, task.ChunkSize, task.ChunkSize + 1, 3 * task.ChunkSize, 1<<20 + 7} {
		id := task.ID(fmt.Sprint("tg_", i))
		run(t, s, id)
		want := answer(t, s, id, size)
		var got bytes.Buffer
		must(t, storekit.ReadResult(t.Context(), s, get(t, s, id), &got))
		if !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("an answer of %d bytes was returned with %d bytes, or changed", size, got.Len())
		}
	}
}

func blobTruncated(t reporter, s gatestore.Store) {
	run(t, s, "tg_a")
	answer(t, s, "tg_a", 3*task.ChunkSize)
	must(t, s.WriteChunk(t.Context(), anyone("tg_a"), 2, []byte("short")))
	mustBe(t, storekit.ReadResult(t.Context(), s, get(t, s, "tg_a"), io.Discard), task.ErrChunkMissing)

	longer := get(t, s, "tg_a")
	longer.Result.Chunks++
	mustBe(t, storekit.ReadResult(t.Context(), s, longer, io.Discard), task.ErrChunkMissing)
}

func blobRace(t reporter, s gatestore.Store) {
	add(t, s, "tg_a", "ann", epoch)
	const chunks = 20
	must(t, errors.Join(together(2*chunks, func(i int) error {
		want := bytes.Repeat([]byte("abcdefghijklmnopqrst"[i/2:i/2+1]), 1000)
		if i%2 == 0 {
			return s.WriteChunk(t.Context(), anyone("tg_a"), i/2, want)
		}
		got, err := s.ReadChunk(t.Context(), anyone("tg_a"), i/2)
		if errors.Is(err, task.ErrChunkMissing) {
			return nil
		}
		if err == nil && !bytes.Equal(got, want) {
			return fmt.Errorf("chunk %d was only partly written when it was read", i/2)
		}
		return err
	})...))
	for n := range chunks {
		mustEqual(t, "length of a chunk", len(read(t, s, "tg_a", n)), 1000)
	}
}
