package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
)

// TestSQLiteTrouble breaks the disk under a store that is open. What was not
// written is refused, what was can be read, and the store is as good as new
// once the disk is.
func TestSQLiteTrouble(t *testing.T) {
	for name, trouble := range map[string]struct {
		code  error
		where func(*disk) *atomic.Pointer[func() error]
		full  bool
	}{
		"write error": {code: sqlite3.IOERR_WRITE, where: writing},
		"flush error": {code: sqlite3.IOERR_FSYNC, where: flushing},
		"full":        {code: sqlite3.FULL, where: writing, full: true},
		"read only":   {code: sqlite3.READONLY, where: writing},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			o := inDir(t)
			s := open(t, o.On(t.Name()))
			first := sqltest.Add(t, s, 1)
			limits := task.Limits{Total: 3, PerOwner: 3}
			sqltest.Must(t, s.Create(t.Context(), sqltest.Build(t, 2), limits))

			repair := fails(trouble.where(d), trouble.code)
			third := sqltest.Build(t, 3)
			for range 3 {
				err := s.Create(t.Context(), third, limits)
				if err == nil || !strings.Contains(err.Error(), o.File) {
					t.Fatalf("err = %v; want one with the name of the file", err)
				}
				if full := errors.Is(err, task.ErrCapacityExceeded); full != trouble.full {
					t.Fatalf("err = %v", err)
				}
				sqltest.MustHave(t, s, first)
				sqltest.MustNotHave(t, s, third.ID)
			}

			repair()
			sqltest.Must(t, s.Create(t.Context(), third, limits))
			sqltest.MustBe(t, s.Create(t.Context(), sqltest.Build(t, 4), limits), task.ErrCapacityExceeded)
			sqltest.Must(t, s.Close())
			s = open(t, o)
			sqltest.MustHave(t, s, third)
			sqltest.Must(t, s.Check(t.Context()))
		})
	}
}

// TestSQLiteMaxBytes fills a store. What does not fit is refused alone, and
// deleting makes room.
func TestSQLiteMaxBytes(t *testing.T) {
	o := inDir(t)
	o.MaxBytes = 4 << 20
	s := open(t, o)
	ended, err := task.Advance(t.Context(), s, task.AnyOwner().Ref(sqltest.Add(t, s, 0).ID), task.Cancel{By: "ann"}, sqltest.Epoch)
	sqltest.Must(t, err)
	ref := task.AnyOwner().Ref(ended.ID)
	chunk := make([]byte, task.ChunkSize)
	n := 0
	for err = nil; err == nil; n++ {
		err = s.WriteChunk(t.Context(), ref, n, chunk)
	}
	sqltest.MustBe(t, err, task.ErrCapacityExceeded)
	if n < 50 {
		t.Errorf("%d chunks fill 4 MiB", n)
	}

	// There is room for a few small tasks beside chunks that find none.
	errs := make([]error, 20)
	var done sync.WaitGroup
	for i := range errs {
		done.Go(func() {
			if i%2 == 0 {
				errs[i] = s.WriteChunk(t.Context(), ref, n+i, chunk)
			} else {
				errs[i] = s.Create(t.Context(), sqltest.Build(t, i), task.Limits{})
			}
		})
	}
	done.Wait()
	for i, err := range errs {
		if i%2 == 0 {
			sqltest.MustBe(t, err, task.ErrCapacityExceeded)
		} else {
			sqltest.Must(t, err)
		}
	}

	if swept, err := s.Sweep(t.Context(), sqltest.Epoch.Add(2*sqltest.TTL), 10); swept != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v", swept, err)
	}
	last := sqltest.Add(t, s, 99)
	sqltest.Must(t, s.WriteChunk(t.Context(), task.AnyOwner().Ref(last.ID), 0, chunk))
}

// TestSQLiteFullOfTasks fills a store with tasks, again and again. Each time there is
// room for the ends of some, so that those can be deleted before the others end.
func TestSQLiteFullOfTasks(t *testing.T) {
	o := inDir(t)
	o.MaxBytes = 1 << 20
	s := open(t, o)
	for range 3 {
		var held []task.ID
		for next := sqltest.Build(t, 0); s.Create(t.Context(), next, task.Limits{}) == nil; next = sqltest.Build(t, len(held)) {
			held = append(held, next.ID)
		}
		for len(held) > 0 {
			ended := 0
			for ended < len(held) {
				if _, err := task.Advance(t.Context(), s, task.AnyOwner().Ref(held[ended]), task.Cancel{By: "ann"}, sqltest.Epoch); err != nil {
					sqltest.MustBe(t, err, task.ErrCapacityExceeded)
					break
				}
				ended++
			}
			if ended < len(held) { // SQLite may need some pages to delete
				sqltest.Must(t, s.Take(t.Context(), task.ActionSweep, 4<<12))
			}
			swept, err := s.Sweep(t.Context(), sqltest.Epoch.Add(2*sqltest.TTL), len(held))
			if swept != ended || swept == 0 || err != nil {
				t.Fatalf("%d tasks: %d ended, %d deleted, %v", len(held), ended, swept, err)
			}
			held = held[ended:]
		}
	}
}

// TestSQLiteGivenUp ends contexts while the disk takes its time. What has not
// begun never does; what has is told truly.
func TestSQLiteGivenUp(t *testing.T) {
	d := newDisk(t)
	s := open(t, inDir(t).On(t.Name()))
	stuck, goOn := make(chan struct{}), make(chan struct{})
	slow := sync.OnceFunc(func() { close(stuck); <-goOn })
	d.sync.Store(new(func() error {
		slow()
		return t.Context().Err()
	}))

	begun, queued := sqltest.Build(t, 1), sqltest.Build(t, 2)
	beginCtx, giveUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- s.Create(beginCtx, begun, task.Limits{}) }()
	<-stuck
	queueCtx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	sqltest.MustBe(t, s.Create(queueCtx, queued, task.Limits{}), context.DeadlineExceeded)

	giveUp()
	close(goOn)
	sqltest.Must(t, <-first)
	sqltest.MustHave(t, s, begun)
	sqltest.Add(t, s, 3)
	sqltest.MustNotHave(t, s, queued.ID)
}

// TestSQLiteCloseUnderLoad closes a store that is being written to. Whatever
// was acknowledged is there afterwards.
func TestSQLiteCloseUnderLoad(t *testing.T) {
	o := inDir(t)
	s := open(t, o)
	var done sync.WaitGroup
	var started sync.WaitGroup
	acknowledged := make([][]task.ID, 16)
	started.Add(len(acknowledged))
	for w := range acknowledged {
		done.Go(func() {
			for i := 0; ; i++ {
				made := sqltest.Build(t, i)
				err := s.Create(t.Context(), made, task.Limits{})
				if err != nil {
					if !errors.Is(err, task.ErrClosed) {
						t.Error(err)
					}
					return
				}
				acknowledged[w] = append(acknowledged[w], made.ID)
				if i == 0 {
					started.Done()
				}
			}
		})
	}
	started.Wait()
	sqltest.Must(t, s.Close())
	done.Wait()
	s = open(t, o)
	for _, ids := range acknowledged {
		for _, id := range ids {
			if _, err := s.Get(t.Context(), task.AnyOwner().Ref(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSQLiteOwners has more owners than are counted in memory.
func TestSQLiteOwners(t *testing.T) {
	s := open(t, inDir(t))
	limits := task.Limits{PerOwner: 1}
	create := func(i int) error {
		d := sqltest.Draft(i)
		d.Owner = fmt.Sprint("somebody", i)
		made, err := task.New(d, sqltest.Epoch)
		sqltest.Must(t, err)
		return s.Create(t.Context(), made, limits)
	}
	const owners = 1100
	var done sync.WaitGroup
	for w := range 50 {
		done.Go(func() {
			for i := w; i < owners; i += 50 {
				if err := create(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done.Wait()
	for _, i := range []int{0, owners / 2, owners - 1} {
		sqltest.MustBe(t, create(i), task.ErrRateLimited)
	}
}
