package sqlitestore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// TestSQLiteWithFiles runs the suite with every chunk in a file.
func TestSQLiteWithFiles(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		gatestoretest.Run(t, func(t *testing.T) gatestore.Store { return open(t, inDir(t).Outside()) })
	})
	t.Run("shared", func(t *testing.T) {
		gatestoretest.Run(t, func(t *testing.T) gatestore.Store {
			o := sharedOptions(t).Outside()
			return &alternating{handles: []*sqlitestore.Store{open(t, o), open(t, o), open(t, o)}}
		})
	})
}

// executing creates a task with the given id that "gate" runs.
func executing(t testing.TB, s gatestore.Store, id task.ID) task.Ref {
	t.Helper()
	d := sqltest.Draft(1)
	d.ID = id
	made, err := task.New(d, sqltest.Epoch)
	sqltest.Must(t, err)
	sqltest.Must(t, s.Create(t.Context(), made, task.Limits{}))
	ref := task.AnyOwner().Ref(id)
	for _, e := range []lifecycle.Event{lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate", LeaseUntil: sqltest.Epoch.Add(time.Minute)}} {
		_, err := lifecycle.Advance(t.Context(), s, ref, e, sqltest.Epoch)
		sqltest.Must(t, err)
	}
	return ref
}

// complete ends a task with an answer.
func complete(ctx context.Context, s gatestore.Store, ref task.Ref, answer []byte) error {
	result, err := storekit.WriteResult(ctx, s, ref, bytes.NewReader(answer))
	if err != nil {
		return err
	}
	result.Kind = task.ResultOK
	_, err = lifecycle.CompleteWithResult(ctx, s, ref, lifecycle.Complete{By: "gate", Result: result}, sqltest.Epoch)
	return err
}

// answerOf returns an answer in which all chunks differ.
func answerOf(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "secret %d, ", i)
	}
	return b.Bytes()[:size]
}

// mustRead checks the answer to a task.
func mustRead(t *testing.T, s gatestore.Store, ref task.Ref, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), ref)
	sqltest.Must(t, err)
	var answer bytes.Buffer
	sqltest.Must(t, storekit.ReadResult(t.Context(), s, got, &answer))
	if !bytes.Equal(answer.Bytes(), want) {
		t.Fatalf("an answer of %d bytes was returned with %d bytes, or changed", len(want), answer.Len())
	}
}

// files returns the files with answers, and checks that only their owner can read them.
func files(t *testing.T, o sqlitestore.Options) map[string]fs.FileInfo {
	t.Helper()
	found := make(map[string]fs.FileInfo)
	err := filepath.WalkDir(o.File+".results", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if err == nil && !d.IsDir() {
			found[path] = info
		}
		return err
	})
	if !errors.Is(err, fs.ErrNotExist) {
		sqltest.Must(t, err)
	}
	return found
}

const large = 3<<20 + 7

// TestLargeAnswersArePrivateFiles checks that a large answer is in a private file until its task is deleted,
// and a small one in the database.
func TestLargeAnswersArePrivateFiles(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	ids := []task.ID{"tg_small", "tg_large", "tg_LARGE", "tg_../../up", "tg_/etc/passwd", `tg_\..\x`, task.ID("tg_" + string(bytes.Repeat([]byte("long"), 100)))}
	for i, id := range ids {
		size := large + i
		if i == 0 {
			size = 1 << 20
		}
		ref := executing(t, s, id)
		sqltest.Must(t, complete(t.Context(), s, ref, answerOf(size)))
		mustRead(t, s, ref, answerOf(size))
		if found := files(t, o); len(found) != i {
			t.Fatalf("after %q there are %d files; want %d", id, len(found), i)
		}
	}
	for _, info := range files(t, o) {
		if info.Size() < large-1<<20 || info.Size() > large {
			t.Errorf("a file has %d bytes", info.Size())
		}
	}
	sqltest.Must(t, s.Close())
	s = open(t, o)
	mustRead(t, s, task.AnyOwner().Ref("tg_large"), answerOf(large+1))
	n, err := s.Sweep(t.Context(), sqltest.Epoch.Add(3*sqltest.TTL), 100)
	if found := files(t, o); n != len(ids) || err != nil || len(found) != 0 {
		t.Errorf("swept %d tasks, %v; %d files are left", n, err, len(found))
	}
	entries, err := os.ReadDir(filepath.Dir(filepath.Dir(o.File)))
	if err != nil || len(entries) != 1 {
		t.Errorf("files in the directory of the database: %v, %v", entries, err)
	}
}

// TestOpenDeletesOrphanedFiles checks that opening a database deletes exactly the files whose task does
// not exist.
func TestOpenDeletesOrphanedFiles(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	for _, id := range []task.ID{"tg_stays", "tg_goes"} {
		sqltest.Must(t, complete(t.Context(), s, executing(t, s, id), answerOf(large)))
	}
	sqltest.Must(t, s.Close())
	forget(t, o, "tg_goes") // like a crash after the commit
	var dir string
	for path := range files(t, o) {
		dir = filepath.Dir(path)
	}
	foreign := filepath.Join(dir, "README")
	sqltest.Must(t, os.WriteFile(foreign, []byte("keep"), 0o600))
	s = open(t, o)
	found := files(t, o)
	if len(found) != 2 || found[foreign] == nil || found[filepath.Join(dir, sqlitestore.ResultName("tg_stays"))] == nil {
		t.Errorf("remaining files: %v", found)
	}
	mustRead(t, s, task.AnyOwner().Ref("tg_stays"), answerOf(large))
	sqltest.Must(t, s.Close())

	sqltest.Must(t, os.Rename(o.File, o.File+".old")) // the operator starts with a new database, and then restores the old one
	sqltest.Must(t, open(t, o).Close())
	sqltest.Must(t, os.Rename(o.File+".old", o.File))
	mustRead(t, open(t, o), task.AnyOwner().Ref("tg_stays"), answerOf(large))
}

// forget deletes a task without the store.
func forget(t *testing.T, o sqlitestore.Options, id task.ID) {
	t.Helper()
	db := raw(t, o)
	_, err := db.Exec("PRAGMA foreign_keys = on; DELETE FROM tasks WHERE id = '" + string(id) + "'")
	sqltest.Must(t, err)
	sqltest.Must(t, db.Close())
}

// TestSweptAnswerLeavesNoFile checks that no file remains of a task that was deleted while
// chunks of its answer were written.
func TestSweptAnswerLeavesNoFile(t *testing.T) {
	o := inDir(t).Outside()
	s := open(t, o)
	chunk := answerOf(8 << 10)
	for round := range 40 {
		ref := executing(t, s, task.ID(fmt.Sprintf("swept-%d", round)))
		sqltest.Must(t, complete(t.Context(), s, ref, chunk))
		var begun, writing sync.WaitGroup
		begun.Add(8)
		for n := range 8 {
			writing.Go(func() {
				if err := s.WriteChunk(t.Context(), ref, n, chunk); err != nil {
					t.Error(err)
				}
				begun.Done()
				for s.WriteChunk(t.Context(), ref, n, chunk) == nil { // repeatedly, into its reserved space
				}
			})
		}
		begun.Wait()
		_, err := s.Sweep(t.Context(), sqltest.Epoch.Add(1000*time.Hour), 10)
		sqltest.Must(t, err)
		writing.Wait()
	}
	if left := files(t, o); len(left) > 0 {
		t.Errorf("%d files of deleted tasks are left", len(left))
	}
}

// TestFilesCountTowardsLimit checks that answers in files count towards the limit, and that deleting them
// frees space.
func TestFilesCountTowardsLimit(t *testing.T) {
	o := inDir(t)
	o.MaxBytes = 8 << 20
	s := open(t, o)
	sqltest.Must(t, complete(t.Context(), s, executing(t, s, "tg_a"), answerOf(4<<20)))
	ref := executing(t, s, "tg_b")
	sqltest.MustBe(t, complete(t.Context(), s, ref, answerOf(6<<20)), task.ErrCapacityExceeded)
	total := int64(0)
	for _, info := range files(t, o) {
		total += info.Size()
	}
	info, err := os.Stat(o.File)
	sqltest.Must(t, err)
	if total+info.Size() > o.MaxBytes || total+info.Size() < o.MaxBytes/2 {
		t.Errorf("the files have %d bytes and the database %d; the limit is %d", total, info.Size(), o.MaxBytes)
	}
	for n := 95; n >= 0; n-- { // like a gate that discards an answer
		sqltest.Must(t, s.WriteChunk(t.Context(), ref, n, []byte{0}))
	}
	if info := files(t, o)[fileOf(t, o, "tg_b")]; info != nil && info.Size() > 0 {
		t.Errorf("%d bytes of a discarded answer remain", info.Size())
	}
	sqltest.Must(t, complete(t.Context(), s, ref, answerOf(3<<20)))
	mustRead(t, s, ref, answerOf(3<<20))
	if n, err := s.Sweep(t.Context(), sqltest.Epoch.Add(3*sqltest.TTL), 100); n != 2 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	sqltest.Must(t, complete(t.Context(), s, executing(t, s, "tg_c"), answerOf(5<<20)))
}

func fileOf(t *testing.T, o sqlitestore.Options, id task.ID) string {
	t.Helper()
	for path := range files(t, o) {
		if filepath.Base(path) == sqlitestore.ResultName(id) {
			return path
		}
	}
	return ""
}

// TestDamagedFileIsDetected checks that a damaged file is detected, and that other answers stay
// readable.
func TestDamagedFileIsDetected(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	ref := executing(t, s, "tg_a")
	sqltest.Must(t, complete(t.Context(), s, ref, answerOf(large)))
	file, err := os.OpenFile(fileOf(t, o, "tg_a"), os.O_RDWR, 0)
	sqltest.Must(t, err)
	_, err = file.WriteAt([]byte("X"), 100_000)
	sqltest.Must(t, err)
	sqltest.Must(t, file.Close())
	_, err = s.ReadChunk(t.Context(), ref, 16)
	sqltest.Must(t, err)
	_, err = s.ReadChunk(t.Context(), ref, 17)
	sqltest.MustBe(t, err, task.ErrUnreadable)
	sqltest.Must(t, os.Remove(file.Name()))
	_, err = s.ReadChunk(t.Context(), ref, 16)
	sqltest.MustBe(t, err, task.ErrChunkMissing)
}

// TestTaskCompletesAfterFlush checks that a task only completes after its answer is on disk, and never
// with an answer whose flush has failed.
func TestTaskCompletesAfterFlush(t *testing.T) {
	s := open(t, inDir(t))
	ref := executing(t, s, "tg_a")
	broken := errors.New("the disk is broken")
	flushed := 0
	s.OnFlush(func(*os.File) error {
		if flushed++; flushed == 1 {
			return broken
		}
		return nil // the operating system has dropped the data
	})
	for range 2 {
		sqltest.MustBe(t, complete(t.Context(), s, ref, answerOf(large)), broken)
	}
	got, err := s.Get(t.Context(), ref)
	if err != nil || got.State != task.Executing || flushed < 2 {
		t.Fatalf("the task is %s, %v; flushed %d times", got.State, err, flushed)
	}
	_, err = lifecycle.Advance(t.Context(), s, ref, lifecycle.Fail{By: "gate", Failure: task.Failure{Stage: lifecycle.StageExecutorLost, Ran: task.RanYes}}, sqltest.Epoch)
	sqltest.Must(t, err)
}

// TestReplacedChunkIsNeverLost writes a chunk again that is in a file. The store never loses it, and
// keeps no part of the old one.
func TestReplacedChunkIsNeverLost(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	ref := executing(t, s, "tg_a")
	sqltest.Must(t, complete(t.Context(), s, ref, answerOf(large)))
	s.OnFlush(func(*os.File) error { return errors.New("the disk is broken") })
	fresh := bytes.Repeat([]byte("fresh"), task.ChunkSize/5)
	if err := s.WriteChunk(t.Context(), ref, 20, fresh); err == nil {
		t.Error("a chunk was replaced although the disk is broken")
	}
	for _, want := range [][]byte{fresh, []byte("short"), fresh} {
		got, err := s.ReadChunk(t.Context(), ref, 20) // it is in the database
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("chunk 20 is %d bytes, %v; want %d", len(got), err, len(want))
		}
		sqltest.Must(t, s.Close())
		s = open(t, o)
		next := fresh
		if len(want) > 10 {
			next = []byte("short")
		}
		sqltest.Must(t, s.WriteChunk(t.Context(), ref, 20, next))
	}
	sqltest.Must(t, s.WriteChunk(t.Context(), ref, 20, fresh))
	kept, err := os.ReadFile(fileOf(t, o, "tg_a"))
	sqltest.Must(t, err)
	if gone := answerOf(large)[20*task.ChunkSize : 20*task.ChunkSize+100]; bytes.Contains(kept, gone) {
		t.Error("the replaced chunk is still in the file")
	}
}

// answerUntilKilled completes tasks with large answers, and writes out their ids.
func answerUntilKilled(o sqlitestore.Options) {
	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, o)
	for i := 0; err == nil; i++ {
		var made task.Task
		d := sqltest.Draft(i)
		ref := task.AnyOwner().Ref(d.ID)
		if made, err = task.New(d, sqltest.Epoch); err == nil {
			err = s.Create(ctx, made, task.Limits{})
		}
		for _, e := range []lifecycle.Event{lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate", LeaseUntil: sqltest.Epoch.Add(time.Minute)}} {
			if err == nil {
				_, err = lifecycle.Advance(ctx, s, ref, e, sqltest.Epoch)
			}
		}
		if err == nil {
			err = complete(ctx, s, ref, answerOf(large))
		}
		if err == nil {
			_, _ = os.Stdout.WriteString(string(d.ID) + "\n")
		}
	}
	fmt.Fprintln(os.Stderr, err)
}

// TestKillLosesNoAcknowledgedAnswer kills a process that stores answers, many times, and checks every
// acknowledged answer, and that no orphaned files remain.
func TestKillLosesNoAcknowledgedAnswer(t *testing.T) {
	o := sqlitestore.Options{File: filepath.Join(t.TempDir(), "tasks.db")}
	var acknowledged []task.ID
	for range 4 {
		acknowledged = append(acknowledged, killed(t, o.File, 3, answersFile)...)
		s := open(t, o)
		for _, id := range acknowledged {
			mustRead(t, s, task.AnyOwner().Ref(id), answerOf(large))
		}
		running := 0
		for got, err := range storekit.Each(t.Context(), s, task.Query{Scope: task.AnyOwner(), States: task.Pending()}) {
			sqltest.Must(t, err)
			sqltest.MustBe(t, storekit.ReadResult(t.Context(), s, got, io.Discard), task.ErrNotReady)
			running++
		}
		if n := len(files(t, o)); n < len(acknowledged) || n > len(acknowledged)+running+4 {
			t.Errorf("found %d files for %d answers and %d unfinished answers", n, len(acknowledged), running)
		}
		sqltest.Must(t, s.Close())
	}
}
