package crash_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/netfault"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlstore"
)

// A database is a server that can crash and be started again.
type database interface {
	URL() string
	Addr() string
	Crash() error
	Start(ctx context.Context) error
	Stop() error
}

// A world is some gates over one store, in front of one upstream.
type world struct {
	t      *testing.T
	ledger *ledger
	gates  []*gate
	links  []*netfault.Proxy // from each gate to the database
	db     database          // nil if the store is a file
	open   func() (task.Store, error)
}

// A backend makes what a store needs, or returns nil if it cannot be had here.
type backend func(t *testing.T) *world

func sqlite(t *testing.T) *world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gate.db")
	w := &world{t: t, ledger: newLedger(t), open: func() (task.Store, error) {
		return sqlstore.OpenSQLite(t.Context(), sqlstore.SQLiteOptions{File: file})
	}}
	w.gates = append(w.gates, startGate(t, w.ledger.url, "sqlite:"+file))
	return w
}

func postgres(t *testing.T) *world {
	t.Helper()
	server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return nil
	}
	return replicas(t, server, func() (task.Store, error) {
		return sqlstore.OpenPostgres(t.Context(), sqlstore.PostgresOptions{URL: server.URL()})
	})
}

func redis(t *testing.T) *world {
	t.Helper()
	server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return nil
	}
	return replicas(t, server, func() (task.Store, error) {
		return redisstore.Open(t.Context(), redisstore.Options{URL: server.URL()})
	})
}

// replicas starts three gates over one database, each behind a proxy.
func replicas(t *testing.T, db database, open func() (task.Store, error)) *world {
	t.Helper()
	t.Cleanup(func() { _ = db.Stop() })
	w := &world{t: t, ledger: newLedger(t), db: db, open: open}
	for range 3 {
		link, err := netfault.Start(t.Context(), db.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = link.Close() })
		w.links = append(w.links, link)
		w.gates = append(w.gates, startGate(t, w.ledger.url, strings.Replace(db.URL(), db.Addr(), link.Addr(), 1)))
	}
	return w
}

// stored returns every task that the store has, while no gate runs.
func (w *world) stored() map[task.ID]task.Task {
	w.t.Helper()
	for _, g := range w.gates {
		g.kill()
	}
	store, err := w.open()
	if err != nil {
		w.t.Fatal(err)
	}
	defer store.Close()
	found := make(map[task.ID]task.Task)
	q := task.Query{Scope: task.AnyOwner(), Limit: 100}
	for {
		page, err := store.List(w.t.Context(), q)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, t := range page.Tasks {
			found[t.ID] = t
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return found
		}
	}
}
