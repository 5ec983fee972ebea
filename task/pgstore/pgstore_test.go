package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
)

// TestPostgres covers STOR-01, and the requirements on stores of F-003, F-005, F-007 and F-009
// of GOV-001.
func TestPostgres(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	gatestoretest.Run(t, func(t *testing.T) gatestore.Store { return openPostgres(t, server.Schema(t)) })
}

// A new process that connects to a database finds all stored data.
func TestReopenedDatabaseHasAllData(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	o := pgstore.Options{URL: server.Schema(t)}
	gatestoretest.RunReopen(t, func() task.Store {
		s, err := pgstore.Open(t.Context(), o)
		sqltest.Must(t, err)
		return s
	})
}

func openPostgres(t testing.TB, url string) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), pgstore.Options{URL: url})
	sqltest.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func query(t testing.TB, url, statement string) (n int) {
	t.Helper()
	db, err := sql.Open("pgx", url)
	sqltest.Must(t, err)
	defer db.Close()
	sqltest.Must(t, db.QueryRow(statement).Scan(&n))
	return n
}

// TestReplicasStartTogether starts five replicas with an empty database.
func TestReplicasStartTogether(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	var replicas [5]*pgstore.Store
	var errs [5]error
	var done sync.WaitGroup
	for i := range replicas {
		done.Go(func() {
			replicas[i], errs[i] = pgstore.Open(t.Context(), pgstore.Options{URL: url})
		})
	}
	done.Wait()
	sqltest.Must(t, errors.Join(errs[:]...))
	first := sqltest.Add(t, replicas[0], 1)
	for _, s := range replicas {
		sqltest.MustHave(t, s, first)
		sqltest.Must(t, s.Close())
	}
	if n := query(t, url, "SELECT count(*) FROM schema_version"); n != len(pgstore.Migrations()) {
		t.Errorf("%d migrations were run; want %d", n, len(pgstore.Migrations()))
	}
}

func TestUnknownSchemaIsRefused(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	t.Run("newer", func(t *testing.T) {
		url := server.Schema(t)
		openPostgres(t, url)
		query(t, url, "INSERT INTO schema_version (version) VALUES (99) RETURNING 1")
		_, err := pgstore.Open(t.Context(), pgstore.Options{URL: url})
		sqltest.MustBe(t, err, pgstore.ErrSchema)
	})
	t.Run("of another program", func(t *testing.T) {
		url := server.Schema(t)
		db, err := sql.Open("pgx", url)
		sqltest.Must(t, err)
		defer db.Close()
		if _, err := db.Exec("CREATE TABLE things ()"); err != nil {
			t.Fatal(err)
		}
		_, err = pgstore.Open(t.Context(), pgstore.Options{URL: url})
		sqltest.MustBe(t, err, pgstore.ErrSchema)
	})
}

func TestConnectErrorOmitsPassword(t *testing.T) {
	for _, url := range []string{"postgres://gate:secret@127.0.0.1:1/none", "postgres://gate:secret@:x"} {
		_, err := pgstore.Open(t.Context(), pgstore.Options{URL: url})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("err = %v; want an error without the password", err)
		}
	}
}

// TestReplicasShareLimitsAndJournal checks that replicas share limits and notify each other.
func TestReplicasShareLimitsAndJournal(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	replicas := []*pgstore.Store{openPostgres(t, url), openPostgres(t, url), openPostgres(t, url)}

	t.Run("journal", func(t *testing.T) { gatestoretest.RunReplicas(t, replicas[0], replicas[1], replicas[2]) })
	if n, err := replicas[0].Sweep(t.Context(), sqltest.Epoch.Add(1000*sqltest.TTL), 1000); n == 0 || err != nil {
		t.Fatalf("Sweep = %d, %v", n, err)
	}

	t.Run("watch", func(t *testing.T) {
		first := sqltest.Build(t, 1)
		changed, err := replicas[2].Watch(t.Context(), task.OwnedBy(first.Owner).Ref(first.ID))
		sqltest.Must(t, err)
		sqltest.Must(t, replicas[0].Create(t.Context(), first, task.Limits{}))
		sqltest.MustWake(t, changed)
		_, err = lifecycle.Advance(t.Context(), replicas[1], task.AnyOwner().Ref(first.ID), lifecycle.Cancel{By: "ann"}, sqltest.Epoch)
		sqltest.Must(t, err)
		sqltest.MustWake(t, changed)
		if n, err := replicas[0].Sweep(t.Context(), sqltest.Epoch.Add(2*sqltest.TTL), 10); n != 1 || err != nil {
			t.Fatalf("Sweep = %d, %v", n, err)
		}
		sqltest.MustWake(t, changed)
	})

	// Far from the limit, creations in different slots do not wait for each other; near it they
	// all do. The limit is large enough for both cases.
	t.Run("limit", func(t *testing.T) {
		const total, writers, each = 100, 24, 10
		var created, refused atomic.Int64
		var done sync.WaitGroup
		for w := range writers {
			done.Go(func() {
				for i := range each {
					err := replicas[w%3].Create(t.Context(), sqltest.Build(t, w*each+i), task.Limits{Total: total, PerOwner: 50})
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
		if n := query(t, url, "SELECT sum(pending)::int FROM slots"); n != total {
			t.Errorf("%d tasks are counted; want %d", n, total)
		}
	})
}

// TestReplicasContinueAfterServerCrash kills the server of two replicas. Both continue when it is back, with
// all acknowledged changes.
func TestReplicasContinueAfterServerCrash(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	a, b := openPostgres(t, url), openPostgres(t, url)
	first, second := sqltest.Add(t, a, 1), sqltest.Build(t, 2)
	changed, err := b.Watch(t.Context(), task.AnyOwner().Ref(second.ID))
	sqltest.Must(t, err)

	sqltest.Must(t, server.Kill())
	if err := a.Create(t.Context(), second, task.Limits{}); err == nil || errors.Is(err, task.ErrClosed) {
		t.Errorf("without a server: err = %v", err)
	}
	sqltest.Must(t, server.Start(t.Context()))

	sqltest.MustWake(t, changed) // b does not know the missed changes
	// The store detects one by one that the old connections are dead.
	eventually(t, func() error { return a.Create(t.Context(), second, task.Limits{}) })
	sqltest.MustWake(t, changed)
	for _, want := range []task.Task{first, second} {
		var got task.Task
		eventually(t, func() (err error) {
			got, err = b.Get(t.Context(), task.AnyOwner().Ref(want.ID))
			return err
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// eventually calls f until it succeeds.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := f()
	for err != nil && ctx.Err() == nil {
		err = f()
	}
	sqltest.Must(t, err)
}

// TestInvalidNamesAreRefused uses names that the database refuses.
func TestInvalidNamesAreRefused(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	s := openPostgres(t, server.Schema(t))
	long := ""
	for range 1000 {
		long += string(task.NewID(sqltest.Epoch))
	}
	for _, owner := range []string{"a\x00b", long} {
		d := sqltest.Draft(1)
		d.Owner = owner
		made, err := task.New(d, sqltest.Epoch)
		sqltest.Must(t, err)
		sqltest.MustBe(t, s.Create(t.Context(), made, task.Limits{PerOwner: 1}), task.ErrInvalid)
	}
	sqltest.Add(t, s, 2)
}

func BenchmarkPostgres(b *testing.B) {
	server := postgres.start(b)
	if server == nil {
		return
	}
	sqltest.Measure(b, func(b *testing.B) gatestore.Store { return openPostgres(b, server.Schema(b)) })
	b.Run("wake", func(b *testing.B) {
		url := server.Schema(b)
		sqltest.BenchmarkWake(b, openPostgres(b, url), openPostgres(b, url))
	})
}
