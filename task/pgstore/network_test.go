package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// overNetwork opens two stores in one schema. The first one uses a network that can break.
func overNetwork(t *testing.T, server *testenv.Postgres, url string) (far, near *pgstore.Store, link *testenv.Proxy) {
	t.Helper()
	link, err := testenv.StartProxy(t.Context(), server.Addr())
	sqltest.Must(t, err)
	t.Cleanup(func() { sqltest.Must(t, link.Close()) })
	near = openPostgres(t, url)
	far = openPostgres(t, strings.Replace(url, server.Addr(), link.Addr(), 1))
	return far, near, link
}

// TestMissedChangeWakesWatcher changes tasks while a watcher's replica cannot receive notifications.
func TestMissedChangeWakesWatcher(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	isOver := func(of task.Task) bool { return of.State.Terminal() }
	cancelled := func(t *testing.T, s gatestore.Store, id task.ID) {
		_, err := lifecycle.Advance(t.Context(), s, task.AnyOwner().Ref(id), lifecycle.Cancel{By: "ann"}, sqltest.Epoch)
		sqltest.Must(t, err)
	}
	t.Run("by the new connection", func(t *testing.T) {
		far, near, link := overNetwork(t, server, server.Schema(t))
		made := sqltest.Add(t, near, 1)
		changed, err := far.Watch(t.Context(), task.AnyOwner().Ref(made.ID))
		sqltest.Must(t, err)
		link.Set(testenv.Fault{Down: testenv.Way{Drop: true}})
		cancelled(t, near, made.ID)
		eventually(t, func() error {
			if link.Lost() == 0 {
				return errors.New("no message was lost")
			}
			return nil
		})
		link.Heal()
		sqltest.MustWake(t, changed)
	})
	// The listening connection is dead and never recovers, while the other connections work.
	t.Run("by the slow poll", func(t *testing.T) {
		url := server.Schema(t)
		far, near, link := overNetwork(t, server, url)
		made := sqltest.Add(t, near, 1)
		sqltest.Must(t, func() error { _, err := far.Get(t.Context(), task.AnyOwner().Ref(made.ID)); return err }())
		link.Set(testenv.Fault{Refuse: true})
		const deafen = `SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity
			WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()`
		if query(t, url, deafen) == 0 {
			t.Fatal("no connection listens")
		}
		waited := make(chan error, 1)
		began := time.Now()
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, err := storekit.Wait(ctx, far, task.AnyOwner().Ref(made.ID), isOver)
			waited <- err
		}()
		cancelled(t, near, made.ID)
		sqltest.Must(t, <-waited)
		t.Logf("detected after %v", time.Since(began))
	})
}

// TestLateChangeIsRefused delivers a change long after it was sent, when its lease has ended. The
// change must be refused.
func TestLateChangeIsRefused(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	far, near, link := overNetwork(t, server, server.Schema(t))
	running := execute(t, near, sqltest.Add(t, near, 1).ID)
	completed, err := lifecycle.Apply(running, lifecycle.Complete{By: "far", Result: task.Result{Kind: task.ResultOK, Inline: []byte(`{}`), Size: 2}}, sqltest.Epoch)
	sqltest.Must(t, err)
	sqltest.Must(t, func() error { _, err := far.Get(t.Context(), task.AnyOwner().Ref(running.ID)); return err }())

	link.Set(testenv.Fault{Up: testenv.Way{Hold: true}})
	late := make(chan error, 1)
	go func() { late <- far.Swap(t.Context(), completed) }()
	eventually(t, func() error {
		if link.Held() == 0 {
			return errors.New("no message is held back")
		}
		return nil
	})
	lapsed, err := lifecycle.Advance(t.Context(), near, task.AnyOwner().Ref(running.ID), lifecycle.Lapse{By: "near"}, sqltest.Epoch.Add(time.Minute))
	sqltest.Must(t, err)
	link.Heal()
	if err := <-late; !errors.Is(err, context.DeadlineExceeded) { // with slow disks
		sqltest.MustBe(t, err, task.ErrConcurrentModification)
	}
	sqltest.MustHave(t, near, lapsed)
}

// execute lets a replica called far claim an approved task.
func execute(t *testing.T, s gatestore.Store, id task.ID) (running task.Task) {
	t.Helper()
	for _, e := range []lifecycle.Event{
		lifecycle.Admit{By: "gate", Reason: "none needed"},
		lifecycle.Claim{By: "far", LeaseUntil: sqltest.Epoch.Add(time.Second)},
	} {
		var err error
		running, err = lifecycle.Advance(t.Context(), s, task.AnyOwner().Ref(id), e, sqltest.Epoch)
		sqltest.Must(t, err)
	}
	return running
}

// TestInterruptedTransactionReleasesLocks interrupts the network of a replica in the middle of a transaction.
// Other replicas must not wait for its locks until the server detects the dead connection.
func TestInterruptedTransactionReleasesLocks(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	url := server.Schema(t)
	far, near, link := overNetwork(t, server, url)
	limits := task.Limits{PerOwner: 10, Unique: true}
	lock, err := pgx.Connect(t.Context(), url)
	sqltest.Must(t, err)
	defer lock.Close(t.Context())
	first, second := sqltest.Build(t, 1), sqltest.Build(t, 101) // both of the same owner
	_, err = lock.Exec(t.Context(), "SELECT pg_advisory_lock(hashtextextended($1, 0))", first.Owner)
	sqltest.Must(t, err)

	cut := make(chan error, 1)
	go func() { cut <- far.Create(t.Context(), first, limits) }()
	eventually(t, func() error {
		if query(t, url, "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 0 {
			return errors.New("no transaction waits for the lock")
		}
		return nil
	})
	link.Set(testenv.Partition())
	_, err = lock.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	sqltest.Must(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	sqltest.Must(t, near.Create(ctx, second, limits))
	t.Logf("created after %v", time.Since(began))
	link.Heal()
	if err := <-cut; err == nil {
		sqltest.MustHave(t, near, first)
	} else {
		sqltest.MustNotHave(t, near, first.ID)
	}
}
