package crash_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// A database is a server that tests can crash and start again.
type database interface {
	URL() string
	Addr() string
	Crash() error
	Start(ctx context.Context) error
	Stop() error
}

// A world has several gates on one store, in front of one upstream.
type world struct {
	t      *testing.T
	ledger *ledger
	gates  []*gate
	links  []*testenv.Proxy // from each gate to the database
	db     database         // nil if the store is a file
	open   func() (gatestore.Store, error)
}

// A backend creates a world with one kind of store, or returns nil if the store is not
// available.
type backend func(t *testing.T) *world

func sqlite(t *testing.T) *world {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gate.db")
	w := &world{t: t, ledger: newLedger(t), open: func() (gatestore.Store, error) {
		return sqlitestore.Open(t.Context(), sqlitestore.Options{File: file})
	}}
	w.gates = append(w.gates, startGate(t, w.ledger.url, withStore("sqlite:"+file)))
	return w
}

func postgres(t *testing.T) *world {
	t.Helper()
	server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return nil
	}
	return replicas(t, server, func() (gatestore.Store, error) {
		return pgstore.Open(t.Context(), pgstore.Options{URL: server.URL()})
	})
}

func redis(t *testing.T) *world {
	t.Helper()
	server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return nil
	}
	return replicas(t, server, func() (gatestore.Store, error) {
		return redisstore.Open(t.Context(), redisstore.Options{URL: server.URL()})
	})
}

// replicas starts three gates on one database, each with its own proxy.
func replicas(t *testing.T, db database, open func() (gatestore.Store, error)) *world {
	t.Helper()
	t.Cleanup(func() { _ = db.Stop() })
	w := &world{t: t, ledger: newLedger(t), db: db, open: open}
	for range 3 {
		link, err := testenv.StartProxy(t.Context(), db.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = link.Close() })
		w.links = append(w.links, link)
		w.gates = append(w.gates, startGate(t, w.ledger.url, withStore(strings.Replace(db.URL(), db.Addr(), link.Addr(), 1))))
	}
	return w
}

// A state is the content of a store.
type state struct {
	tasks   map[task.ID]task.Task
	journal []auditlog.Entry
}

// stored returns the content of the store. No gate may be running.
func (w *world) stored() state {
	w.t.Helper()
	for _, g := range w.gates {
		g.kill()
	}
	store, err := w.open()
	if err != nil {
		w.t.Fatal(err)
	}
	defer store.Close()
	found := state{tasks: make(map[task.ID]task.Task), journal: w.readJournal(store)}
	q := task.Query{Scope: task.AnyOwner(), Limit: 100}
	for {
		page, err := store.List(w.t.Context(), q)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, t := range page.Tasks {
			found.tasks[t.ID] = t
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return found
		}
	}
}

// readJournal returns the whole journal, and checks its hash chain.
func (w *world) readJournal(store gatestore.Store) []auditlog.Entry {
	w.t.Helper()
	var all []auditlog.Entry
	var last auditlog.Link
	for {
		page, err := store.Entries(w.t.Context(), auditlog.Query{After: last.Seq, Limit: 1000})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range page {
			if err := last.Verify(e); err != nil {
				w.t.Fatal(err)
			}
			last = e.Link()
		}
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
	}
	ends, err := store.Ends(w.t.Context())
	if err != nil || ends.Head != last {
		w.t.Errorf("the journal should end with %v, %v, and ends with %v", ends.Head, err, last)
	}
	return all
}

// agree checks that the journal and the trail of each task have the same transitions.
func (found state) agree(t *testing.T) {
	t.Helper()
	moves := make(map[task.ID][]string)
	for _, e := range found.journal {
		if e.From != "" {
			moves[e.Task] = append(moves[e.Task], fmt.Sprint(e.From, " to ", e.To))
		}
	}
	for id, of := range found.tasks {
		var trail []string
		for _, x := range of.Transitions {
			trail = append(trail, fmt.Sprint(x.From, " to ", x.To))
		}
		if diff := cmp.Diff(trail, moves[id]); diff != "" {
			t.Errorf("%s: the journal differs from the trail: %s", id, diff)
		}
	}
}
