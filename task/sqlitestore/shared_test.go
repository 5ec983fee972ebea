package sqlitestore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// sharedOptions returns options with which several handles share one file. Each handle acts
// like another process: it has its own locks and connections.
func sharedOptions(t testing.TB) sqlitestore.Options {
	t.Helper()
	return sqlitestore.Options{File: filepath.Join(t.TempDir(), "desk.db"), Shared: true}
}

// An alternating store takes turns between several handles.
type alternating struct {
	handles []*sqlitestore.Store
	turn    atomic.Int64
}

func (a *alternating) next() *sqlitestore.Store {
	return a.handles[int(a.turn.Add(1))%len(a.handles)]
}

func (a *alternating) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	return a.next().Create(ctx, t, limits, notes...)
}

func (a *alternating) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	return a.next().Get(ctx, ref)
}

func (a *alternating) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	return a.next().Swap(ctx, t, notes...)
}

func (a *alternating) List(ctx context.Context, q task.Query) (task.Page, error) {
	return a.next().List(ctx, q)
}

func (a *alternating) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	return a.next().Overdue(ctx, at, limit)
}

func (a *alternating) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	return a.next().Sweep(ctx, before, limit)
}

func (a *alternating) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	return a.next().WriteChunk(ctx, ref, n, data)
}

func (a *alternating) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	return a.next().ReadChunk(ctx, ref, n)
}

func (a *alternating) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	return a.next().Watch(ctx, ref)
}

func (a *alternating) Append(ctx context.Context, notes ...task.Note) error {
	return a.next().Append(ctx, notes...)
}

func (a *alternating) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	return a.next().Entries(ctx, q)
}

func (a *alternating) Ends(ctx context.Context) (auditlog.Ends, error) { return a.next().Ends(ctx) }

func (a *alternating) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	return a.next().Trim(ctx, before, limit)
}

func (a *alternating) PutRecord(ctx context.Context, r gatestore.Record) error {
	return a.next().PutRecord(ctx, r)
}

func (a *alternating) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	return a.next().GetRecord(ctx, name)
}

func (a *alternating) DeleteRecord(ctx context.Context, name string) error {
	return a.next().DeleteRecord(ctx, name)
}

func (a *alternating) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	return a.next().ListRecords(ctx, q)
}

func (a *alternating) Reclaim(ctx context.Context, account string, limit int) (int, error) {
	return a.next().Reclaim(ctx, account, limit)
}

func (a *alternating) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	return a.next().SweepRecords(ctx, before, limit)
}

func (a *alternating) SizeRecords(ctx context.Context, prefix string) (int64, error) {
	return a.next().SizeRecords(ctx, prefix)
}

func (a *alternating) Close() error {
	var errs []error
	for _, s := range a.handles {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// TestSharedSQLite runs the suite on two handles of one file, in turns.
func TestSharedSQLite(t *testing.T) {
	gatestoretest.Run(t, func(t *testing.T) gatestore.Store {
		o := sharedOptions(t)
		return &alternating{handles: []*sqlitestore.Store{open(t, o), open(t, o)}}
	})
}

// TestHandlesShareLimitsAndJournal checks that handles write one journal, share limits and notify each
// other.
func TestHandlesShareLimitsAndJournal(t *testing.T) {
	o := sharedOptions(t)
	handles := []*sqlitestore.Store{open(t, o), open(t, o), open(t, o)}
	t.Run("journal", func(t *testing.T) { gatestoretest.RunReplicas(t, handles[0], handles[1], handles[2]) })
	if n, err := handles[0].Sweep(t.Context(), sqltest.Epoch.Add(1000*sqltest.TTL), 1000); n == 0 || err != nil {
		t.Fatalf("Sweep = %d, %v", n, err)
	}
	t.Run("watch", func(t *testing.T) {
		first := sqltest.Build(t, 1)
		changed, err := handles[2].Watch(t.Context(), task.OwnedBy(first.Owner).Ref(first.ID))
		sqltest.Must(t, err)
		sqltest.Must(t, handles[0].Create(t.Context(), first, task.Limits{}))
		sqltest.MustWake(t, changed)
		_, err = lifecycle.Advance(t.Context(), handles[1], task.AnyOwner().Ref(first.ID), lifecycle.Cancel{By: "ann"}, sqltest.Epoch)
		sqltest.Must(t, err)
		sqltest.MustWake(t, changed)
	})
	t.Run("limit", func(t *testing.T) {
		const total, writers, each = 100, 24, 10
		var created, refused atomic.Int64
		var done sync.WaitGroup
		for w := range writers {
			done.Go(func() {
				for i := range each {
					err := handles[w%3].Create(t.Context(), sqltest.Build(t, 1000+w*each+i), task.Limits{Total: total, PerOwner: 50})
					switch {
					case err == nil:
						created.Add(1)
					case errors.Is(err, task.ErrCapacityExceeded):
						refused.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		done.Wait()
		if created.Load() != total || refused.Load() != writers*each-total {
			t.Errorf("%d created, %d refused; the limit is %d", created.Load(), refused.Load(), total)
		}
	})
}

// Without changes, a store must not wake its watchers. Otherwise a watcher that writes after
// each wake-up would never stop.
func TestWatchersSleepWithoutChanges(t *testing.T) {
	o := sharedOptions(t)
	mine, other := open(t, o), open(t, o)
	made := sqltest.Add(t, mine, 1)
	elsewhere, err := mine.Watch(t.Context(), task.AnyOwner().Ref("tg_other"))
	sqltest.Must(t, err)
	// An earlier change of another process wakes a handle once.
	sqltest.Must(t, other.Append(t.Context(), task.Note{At: sqltest.Epoch, Step: "noted"}))
	sqltest.MustWake(t, elsewhere)
	for range 20 {
		_, err := lifecycle.Advance(t.Context(), mine, task.AnyOwner().Ref(made.ID), lifecycle.Contact{}, sqltest.Epoch)
		sqltest.Must(t, err)
	}
	select {
	case <-elsewhere:
		t.Error("a change by this handle to another task woke the watcher")
	case <-time.After(1500 * time.Millisecond): // longer than the poll interval
	}
}

// A file that is open in shared mode cannot be opened exclusively, and the other way round.
func TestSharedAndExclusiveUseExcludeEachOther(t *testing.T) {
	for _, first := range []bool{true, false} {
		o := sharedOptions(t)
		o.Shared = first
		s := open(t, o)
		o.Shared = !first
		_, err := sqlitestore.Open(t.Context(), o)
		sqltest.MustBe(t, err, sqlitestore.ErrInUse)
		// The lock also holds without the file beside the database, which others may remove.
		sqltest.Must(t, os.Remove(o.File+".lock"))
		_, err = sqlitestore.Open(t.Context(), o)
		sqltest.MustBe(t, err, sqlitestore.ErrInUse)
		sqltest.Must(t, s.Close())
		sqltest.Must(t, open(t, o).Close())
	}
}

// Many processes that start at the same time create the tables once, and all of them can use
// the file.
func TestProcessesStartTogether(t *testing.T) {
	for range 5 {
		o := sharedOptions(t)
		var starting sync.WaitGroup
		for i := range 8 {
			starting.Go(func() {
				s, err := sqlitestore.Open(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				made, err := task.New(sqltest.Draft(i), sqltest.Epoch)
				if err == nil {
					err = s.Create(t.Context(), made, task.Limits{})
				}
				if err := errors.Join(err, s.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		starting.Wait()
	}
}

// A newer program migrates the tables while handles of this version are open. After that their
// writes are refused, and their reads still work.
func TestOutdatedHandlesOnlyRead(t *testing.T) {
	o := sharedOptions(t)
	s := open(t, o)
	first := sqltest.Add(t, s, 1)
	for what, err := range sqltest.Writes(t.Context(), t, s, first) {
		if err != nil {
			t.Fatalf("%s before the update: %v", what, err)
		}
	}
	second := sqltest.Add(t, s, 2)
	update(t, o.File)
	for what, err := range sqltest.Writes(t.Context(), t, s, second) {
		if !errors.Is(err, task.ErrOutdated) || !errors.Is(err, sqlitestore.ErrSchema) {
			t.Errorf("%s = %v; want %v", what, err, task.ErrOutdated)
		}
	}
	got, err := s.Get(t.Context(), task.AnyOwner().Ref(second.ID))
	if sqltest.Must(t, err); got.Version != second.Version {
		t.Errorf("the task was changed to version %d", got.Version)
	}
	_, err = sqlitestore.Open(t.Context(), o)
	sqltest.MustBe(t, err, sqlitestore.ErrSchema)
}

// update changes the tables like a newer program.
func update(t *testing.T, file string) {
	t.Helper()
	db, err := driver.Open("file:" + file + "?_pragma=busy_timeout(5000)")
	sqltest.Must(t, err)
	_, err = db.ExecContext(t.Context(), "INSERT INTO schema_version (version) VALUES (99)")
	sqltest.Must(t, errors.Join(err, db.Close()))
}

// TestKillOfOneProcessLosesNoAcknowledgedChange kills processes that write to one file, one after the other, while
// other processes go on writing. It checks all acknowledged changes.
func TestKillOfOneProcessLosesNoAcknowledgedChange(t *testing.T) {
	o := sharedOptions(t)
	watching := open(t, o)
	var mu sync.Mutex
	var acknowledged []task.ID
	t.Run("killed", func(t *testing.T) {
		for process := range 3 {
			t.Run(strconv.Itoa(process), func(t *testing.T) {
				t.Parallel()
				for range 4 {
					some := killed(t, o.File, rand.IntN(100), sharedFile)
					mu.Lock()
					acknowledged = append(acknowledged, some...)
					mu.Unlock()
				}
			})
		}
	})
	for _, id := range acknowledged {
		got, err := watching.Get(t.Context(), task.AnyOwner().Ref(id))
		if err != nil || got.State != task.Cancelled {
			t.Fatalf("of %d: %s is %q, %v", len(acknowledged), id, got.State, err)
		}
	}
	mustAgree(t, watching)
	sqltest.Must(t, watching.Check(t.Context()))
	t.Logf("%d tasks survived", len(acknowledged))
}
