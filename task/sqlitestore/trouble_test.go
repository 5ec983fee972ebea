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
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// TestStoreWorksAfterDiskIsRepaired breaks the disk of an open store. Failed writes return errors, stored data
// can be read, and the store works again after the disk is repaired.
func TestStoreWorksAfterDiskIsRepaired(t *testing.T) {
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
					t.Fatalf("err = %v; want the name of the file in it", err)
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

// TestFullStoreRefusesOnlyWhatDoesNotFit fills a store. Only changes that do not fit are refused, and deleting
// frees space.
func TestFullStoreRefusesOnlyWhatDoesNotFit(t *testing.T) {
	o := inDir(t)
	o.MaxBytes = 4 << 20
	s := open(t, o)
	ended, err := lifecycle.Advance(t.Context(), s, task.AnyOwner().Ref(sqltest.Add(t, s, 0).ID), lifecycle.Cancel{By: "ann"}, sqltest.Epoch)
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

	// A few small tasks fit even when chunks do not.
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

// TestTasksInFullStoreCanEnd fills a store with tasks, many times. Each time some tasks can end, so
// that they can be deleted before the others end.
func TestTasksInFullStoreCanEnd(t *testing.T) {
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
				if _, err := lifecycle.Advance(t.Context(), s, task.AnyOwner().Ref(held[ended]), lifecycle.Cancel{By: "ann"}, sqltest.Epoch); err != nil {
					sqltest.MustBe(t, err, task.ErrCapacityExceeded)
					break
				}
				ended++
			}
			if ended < len(held) { // SQLite may need some pages for the deletion
				sqltest.Must(t, s.Take(t.Context(), action.Sweep, 4<<12))
			}
			swept, err := s.Sweep(t.Context(), sqltest.Epoch.Add(2*sqltest.TTL), len(held))
			if swept != ended || swept == 0 || err != nil {
				t.Fatalf("%d tasks: %d ended, %d deleted, %v", len(held), ended, swept, err)
			}
			held = held[ended:]
		}
	}
}

// TestTaskInFullStoreCanBeApproved fills a store with tasks. A task from before can be approved,
// run and completed.
func TestTaskInFullStoreCanBeApproved(t *testing.T) {
	o := inDir(t)
	o.MaxBytes = 1 << 20
	s := open(t, o)
	ref := task.AnyOwner().Ref(sqltest.Add(t, s, 0).ID)
	advance := func(e lifecycle.Event) {
		t.Helper()
		_, err := lifecycle.Advance(t.Context(), s, ref, e, sqltest.Epoch)
		sqltest.Must(t, err)
	}
	advance(lifecycle.Submit{By: "gate", Quorum: 1, Deadline: sqltest.Epoch.Add(time.Minute)})
	for i := 1; s.Create(t.Context(), sqltest.Build(t, i), task.Limits{}) == nil; i++ {
	}
	advance(lifecycle.Approve{By: "bob", Reason: strings.Repeat("fine ", 1000)})
	advance(lifecycle.Claim{By: "gate", LeaseUntil: sqltest.Epoch.Add(time.Minute)})
	advance(lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK, Inline: []byte("{}"), Size: 2}})
}

// TestEndedContextReportsOutcome ends contexts while the disk is slow. Changes that have not begun are never
// made, and the outcome of the others is reported correctly.
func TestEndedContextReportsOutcome(t *testing.T) {
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

// TestCloseKeepsAcknowledgedChanges closes a store during writes. All acknowledged changes are stored.
func TestCloseKeepsAcknowledgedChanges(t *testing.T) {
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

// TestLimitsHoldForUncachedOwners has more owners than the cache of loads.
func TestLimitsHoldForUncachedOwners(t *testing.T) {
	s := open(t, inDir(t))
	limits := task.Limits{PerOwner: 1}
	create := func(i int) error {
		d := sqltest.Draft(i)
		d.Owner = fmt.Sprint("owner", i)
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
