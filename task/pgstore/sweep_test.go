package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
)

// slowServer simulates a server that cannot delete more than a hundred chunks in one statement.
// Before it deletes chunks, it waits for lock 42.
const slowServer = `
	CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END $$;
	CREATE TRIGGER wait_for_test BEFORE DELETE ON chunks FOR EACH STATEMENT EXECUTE FUNCTION wait_for_test();
	CREATE FUNCTION give_up() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF (SELECT count(*) FROM gone) > 100 THEN RAISE 'this takes too long'; END IF; RETURN NULL; END $$;
	CREATE TRIGGER give_up AFTER DELETE ON chunks REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION give_up()`

// slowSweep returns a store on such a server, and a connection to the server. The store has a
// task to delete with the given number of chunks.
func slowSweep(t *testing.T, chunks int) (*pgstore.Store, *sql.Conn) {
	t.Helper()
	server := postgres.start(t)
	if server == nil {
		return nil, nil
	}
	url := server.Schema(t)
	s := openPostgres(t, url)
	ref := task.AnyOwner().Ref(sqltest.Add(t, s, 0).ID)
	for n := range chunks {
		sqltest.Must(t, s.WriteChunk(t.Context(), ref, n, []byte("x")))
	}
	_, err := lifecycle.Advance(t.Context(), s, ref, lifecycle.Cancel{By: "ann"}, sqltest.Epoch)
	sqltest.Must(t, err)
	db, err := sql.Open("pgx", url)
	sqltest.Must(t, err)
	t.Cleanup(func() { sqltest.Must(t, db.Close()) })
	conn, err := db.Conn(t.Context())
	sqltest.Must(t, err)
	t.Cleanup(func() { sqltest.Must(t, conn.Close()) })
	run(t, conn, slowServer)
	return s, conn
}

func run(t *testing.T, conn *sql.Conn, statement string) {
	t.Helper()
	_, err := conn.ExecContext(t.Context(), statement)
	sqltest.Must(t, err)
}

func count(t *testing.T, conn *sql.Conn, what string) (n int) {
	t.Helper()
	sqltest.Must(t, conn.QueryRowContext(t.Context(), "SELECT count(*) FROM "+what).Scan(&n))
	return n
}

// TestSweepDeletesManyChunks deletes a task with more chunks than the server can delete in one
// statement.
func TestSweepDeletesManyChunks(t *testing.T) {
	s, conn := slowSweep(t, 250)
	if s == nil {
		return
	}
	if n, err := s.Sweep(t.Context(), sqltest.Epoch.Add(2*sqltest.TTL), 100); n != 1 || err != nil {
		t.Errorf("Sweep = %d, %v; want 1 task", n, err)
	}
	if n := count(t, conn, "chunks"); n > 0 {
		t.Errorf("%d chunks remain", n)
	}
}

// A sweep that runs out of time before all chunks are deleted does not fail. The next one
// continues.
func TestInterruptedSweepContinues(t *testing.T) {
	s, conn := slowSweep(t, 250)
	if s == nil {
		return
	}
	run(t, conn, "SELECT pg_advisory_lock(42)")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	swept := make(chan error, 1)
	go func() {
		n, err := s.Sweep(ctx, sqltest.Epoch.Add(2*sqltest.TTL), 100)
		if n != 0 {
			t.Errorf("%d tasks were deleted before their chunks", n)
		}
		swept <- err
	}()
	eventually(t, func() error {
		if count(t, conn, "pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted") == 0 {
			return errors.New("the sweep does not wait for the lock")
		}
		return nil
	})
	cancel()
	run(t, conn, "SELECT pg_advisory_unlock(42)")
	sqltest.Must(t, <-swept)
	if n := count(t, conn, "chunks"); n != 150 {
		t.Errorf("%d chunks remain; want 150", n)
	}
	if n, err := s.Sweep(t.Context(), sqltest.Epoch.Add(2*sqltest.TTL), 100); n != 1 || err != nil {
		t.Errorf("Sweep = %d, %v; want 1 task", n, err)
	}
}
