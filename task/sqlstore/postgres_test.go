package sqlstore_test

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
	"github.com/thoughtgate/thoughtgate-go/task/sqlstore"
	"github.com/thoughtgate/thoughtgate-go/task/storetest"
)

// TestPostgres covers STOR-01, and F-003, F-005, F-007 and F-009 of GOV-001 as
// far as they concern a store.
func TestPostgres(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	storetest.Run(t, func(t *testing.T) task.Store { return openPostgres(t, server.Schema(t)) })
}

// A database to which a new process connects has all that was kept.
func TestPostgresReopen(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	o := sqlstore.PostgresOptions{URL: server.Schema(t)}
	storetest.RunReopen(t, func() task.Tasks {
		s, err := sqlstore.OpenPostgres(t.Context(), o)
		must(t, err)
		return s
	})
}

func openPostgres(t testing.TB, url string) *sqlstore.Postgres {
	t.Helper()
	s, err := sqlstore.OpenPostgres(t.Context(), sqlstore.PostgresOptions{URL: url})
	must(t, err)
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
	must(t, err)
	defer db.Close()
	must(t, db.QueryRow(statement).Scan(&n))
	return n
}

// TestPostgresStartTogether starts five replicas on an empty database.
func TestPostgresStartTogether(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	var replicas [5]*sqlstore.Postgres
	var errs [5]error
	var done sync.WaitGroup
	for i := range replicas {
		done.Go(func() {
			replicas[i], errs[i] = sqlstore.OpenPostgres(t.Context(), sqlstore.PostgresOptions{URL: url})
		})
	}
	done.Wait()
	must(t, errors.Join(errs[:]...))
	first := add(t, replicas[0], 1)
	for _, s := range replicas {
		mustHave(t, s, first)
		must(t, s.Close())
	}
	if n := query(t, url, "SELECT count(*) FROM schema_version"); n != len(sqlstore.Migrations("postgres")) {
		t.Errorf("%d migrations were run; there are %d", n, len(sqlstore.Migrations("postgres")))
	}
}

func TestPostgresSchema(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	t.Run("newer", func(t *testing.T) {
		url := server.Schema(t)
		openPostgres(t, url)
		query(t, url, "INSERT INTO schema_version (version) VALUES (99) RETURNING 1")
		_, err := sqlstore.OpenPostgres(t.Context(), sqlstore.PostgresOptions{URL: url})
		mustBe(t, err, sqlstore.ErrSchema)
	})
	t.Run("of another program", func(t *testing.T) {
		url := server.Schema(t)
		db, err := sql.Open("pgx", url)
		must(t, err)
		defer db.Close()
		if _, err := db.Exec("CREATE TABLE things ()"); err != nil {
			t.Fatal(err)
		}
		_, err = sqlstore.OpenPostgres(t.Context(), sqlstore.PostgresOptions{URL: url})
		mustBe(t, err, sqlstore.ErrSchema)
	})
}

func TestPostgresUnreachable(t *testing.T) {
	for _, url := range []string{"postgres://gate:secret@127.0.0.1:1/none", "postgres://gate:secret@:x"} {
		_, err := sqlstore.OpenPostgres(t.Context(), sqlstore.PostgresOptions{URL: url})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("err = %v; want one without the password", err)
		}
	}
}

// TestPostgresReplicas has replicas share limits and tell each other.
func TestPostgresReplicas(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	replicas := []*sqlstore.Postgres{openPostgres(t, url), openPostgres(t, url), openPostgres(t, url)}

	t.Run("journal", func(t *testing.T) { storetest.RunReplicas(t, replicas[0], replicas[1], replicas[2]) })
	if n, err := replicas[0].Sweep(t.Context(), epoch.Add(1000*ttl), 1000); n == 0 || err != nil {
		t.Fatalf("Sweep = %d, %v", n, err)
	}

	t.Run("watch", func(t *testing.T) {
		first := build(t, 1)
		changed, err := replicas[2].Watch(t.Context(), task.OwnedBy(first.Owner).Ref(first.ID))
		must(t, err)
		must(t, replicas[0].Create(t.Context(), first, task.Limits{}))
		mustWake(t, changed)
		_, err = task.Advance(t.Context(), replicas[1], task.AnyOwner().Ref(first.ID), task.Cancel{By: "ann"}, epoch)
		must(t, err)
		mustWake(t, changed)
		if n, err := replicas[0].Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 1 || err != nil {
			t.Fatalf("Sweep = %d, %v", n, err)
		}
		mustWake(t, changed)
	})

	// Far from the limit no slot waits for another, near it all do: the limit
	// is large enough for both.
	t.Run("limit", func(t *testing.T) {
		const total, writers, each = 100, 24, 10
		var created, refused atomic.Int64
		var done sync.WaitGroup
		for w := range writers {
			done.Go(func() {
				for i := range each {
					err := replicas[w%3].Create(t.Context(), build(t, w*each+i), task.Limits{Total: total, PerOwner: 50})
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
			t.Errorf("%d tasks are counted; there are %d", n, total)
		}
	})
}

func mustWake(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	select {
	case _, ok := <-changed:
		if !ok {
			t.Fatal("the watch has ended")
		}
	case <-ctx.Done():
		t.Fatal("not told of a change")
	}
}

// TestPostgresRestarted kills the server under two replicas. Both go on when
// it is back, and what was acknowledged is there.
func TestPostgresRestarted(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	a, b := openPostgres(t, url), openPostgres(t, url)
	first, second := add(t, a, 1), build(t, 2)
	changed, err := b.Watch(t.Context(), task.AnyOwner().Ref(second.ID))
	must(t, err)

	must(t, server.Kill())
	if err := a.Create(t.Context(), second, task.Limits{}); err == nil || errors.Is(err, task.ErrClosed) {
		t.Errorf("without a server: err = %v", err)
	}
	must(t, server.Start(t.Context()))

	mustWake(t, changed) // b cannot know what it has missed
	// Connections of before the crash are found out one by one.
	eventually(t, func() error { return a.Create(t.Context(), second, task.Limits{}) })
	mustWake(t, changed)
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
	must(t, err)
}

// TestPostgresInvalid gives names that the database cannot take.
func TestPostgresInvalid(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	s := openPostgres(t, server.Schema(t))
	long := ""
	for range 1000 {
		long += string(task.NewID(epoch))
	}
	for _, owner := range []string{"a\x00b", long} {
		d := draft(1)
		d.Owner = owner
		made, err := task.New(d, epoch)
		must(t, err)
		mustBe(t, s.Create(t.Context(), made, task.Limits{PerOwner: 1}), task.ErrInvalid)
	}
	add(t, s, 2)
}

func BenchmarkPostgres(b *testing.B) {
	server := postgres.start(b)
	if server == nil {
		return
	}
	measure(b, func(b *testing.B) task.Store { return openPostgres(b, server.Schema(b)) })
	b.Run("wake", func(b *testing.B) {
		url := server.Schema(b)
		benchmarkWake(b, openPostgres(b, url), openPostgres(b, url))
	})
}
