package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
)

const patience = 2 * time.Minute

// never is a poll interval that is longer than the test.
const never = time.Hour

// mustWake waits until something is received from changed.
func mustWake(t testing.TB, changed <-chan struct{}, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case _, open := <-changed:
		if !open {
			t.Fatalf("a watch ended before the notification of %s", what)
		}
	case <-ctx.Done():
		t.Fatalf("not notified of %s", what)
	}
}

// eventually tries f until it succeeds.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

func watch(t testing.TB, s gatestore.Store, ref task.Ref) <-chan struct{} {
	t.Helper()
	changed, err := s.Watch(t.Context(), ref)
	must(t, err)
	return changed
}

// TestReplicasNotifyEachOther checks that a change by one replica notifies watchers of the right owner on
// another, for unusual names too.
func TestReplicasNotifyEachOther(t *testing.T) {
	server := alone.server(t)
	if server == nil {
		return
	}
	o := inOwnKeys(server)
	o.Poll = never
	a, b := open(t, o), open(t, o)
	for _, name := range []string{"ann", "", "two words", "1 2 3 ", "\n\x00\u00ff", "{x}:y"} {
		d := draft(1)
		d.ID, d.Owner = task.ID("tg_"+name), name+"owner"
		made, err := task.New(d, epoch)
		must(t, err)
		mine, others := watch(t, b, task.OwnedBy(d.Owner).Ref(d.ID)), watch(t, b, task.OwnedBy("x"+d.Owner).Ref(d.ID))
		must(t, a.Create(t.Context(), made, task.Limits{}))
		mustWake(t, mine, "a creation")
		cancel(t, a, d.ID)
		mustWake(t, mine, "a cancellation")
		if n, err := a.Sweep(t.Context(), epoch.Add(2*ttl), 1); n != 1 || err != nil {
			t.Fatalf("Sweep = %d, %v; want 1 task", n, err)
		}
		mustWake(t, mine, "a deletion")
		select {
		case <-others:
			t.Errorf("notified of another owner's task %q", d.ID)
		default:
		}
	}
}

// TestReplicasWriteOneJournal lets three replicas write one journal.
func TestReplicasWriteOneJournal(t *testing.T) {
	server := alone.server(t)
	if server == nil {
		return
	}
	o := inOwnKeys(server)
	gatestoretest.RunReplicas(t, open(t, o), open(t, o), open(t, o))
}

// TestMissedChangeWakesWatchers checks that all watchers are notified after a message was lost.
func TestMissedChangeWakesWatchers(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	miss := func(t *testing.T, o redisstore.Options) { do(t, server, "INCR", "{"+o.Prefix+"}:changes") }
	waiting := func(t *testing.T, o redisstore.Options) (gatestore.Store, []<-chan struct{}) {
		s := open(t, o)
		add(t, s, 0)
		return s, []<-chan struct{}{
			watch(t, s, anyone("tg_x")), watch(t, s, task.OwnedBy("ann").Ref("tg_y")), watch(t, s, anyone("")), watch(t, s, task.OwnedBy("bob").Ref("")),
		}
	}
	all := func(t *testing.T, watches []<-chan struct{}) {
		for _, w := range watches {
			mustWake(t, w, "a change")
		}
	}
	t.Run("by the poll", func(t *testing.T) {
		o := inOwnKeys(server)
		o.Poll = 20 * time.Millisecond
		_, watches := waiting(t, o)
		miss(t, o)
		all(t, watches)
	})
	t.Run("by the next change", func(t *testing.T) {
		o := inOwnKeys(server)
		o.Poll = never
		s, watches := waiting(t, o)
		miss(t, o)
		add(t, s, 1)
		all(t, watches)
	})
	t.Run("after a reconnection", func(t *testing.T) {
		o := inOwnKeys(server)
		o.Poll = never
		_, watches := waiting(t, o)
		do(t, server, "CLIENT", "KILL", "TYPE", "pubsub")
		all(t, watches)
	})
}

// TestStoreContinuesAfterServerCrash checks that a store works again after its server is back.
func TestStoreContinuesAfterServerCrash(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	o := inOwnKeys(server)
	o.Poll = never
	a, b := open(t, o), open(t, o)
	want := add(t, a, 0)
	changed := watch(t, b, anyone(want.ID))

	for i := range 3 {
		must(t, server.Kill())
		for name, f := range map[string]func() error{
			"Create":     func() error { return a.Create(t.Context(), build(t, 1), task.Limits{}) },
			"Get":        func() error { _, err := a.Get(t.Context(), anyone(want.ID)); return err },
			"List":       func() error { _, err := a.List(t.Context(), task.Query{Scope: task.AnyOwner()}); return err },
			"Overdue":    func() error { _, err := a.Overdue(t.Context(), epoch.Add(2*ttl), 1); return err },
			"Sweep":      func() error { _, err := a.Sweep(t.Context(), epoch.Add(2*ttl), 1); return err },
			"WriteChunk": func() error { return a.WriteChunk(t.Context(), anyone(want.ID), 0, []byte("x")) },
			"ReadChunk":  func() error { _, err := a.ReadChunk(t.Context(), anyone(want.ID), 0); return err },
			"Check":      func() error { return a.Check(t.Context()) },
		} {
			if err := f(); err == nil || !strings.Contains(err.Error(), "task store 127.0.0.1:") {
				t.Errorf("%s without a server: %v", name, err)
			}
		}
		must(t, server.Start(t.Context()))
		eventually(t, func() error { return a.Create(t.Context(), build(t, 2+i), task.Limits{}) })
		mustWake(t, changed, "the reconnection")
		// The store detects one by one that the old connections are dead.
		eventually(t, func() error {
			_, err := lifecycle.Advance(t.Context(), a, anyone(want.ID), lifecycle.Contact{}, epoch)
			return err
		})
		mustWake(t, changed, "a contact")
	}
}

// TestServerCrashLosesNoAcknowledgedTask kills the server while tasks are created, and checks all acknowledged
// tasks.
func TestServerCrashLosesNoAcknowledgedTask(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	s := open(t, inOwnKeys(server))
	for range 3 {
		var mu sync.Mutex
		var acknowledged []task.ID
		var writing sync.WaitGroup
		many, killed := make(chan struct{}), new(atomic.Bool)
		for w := range 8 {
			writing.Go(func() {
				for i := 0; ; i++ {
					made := build(t, 1000*w+i)
					held := task.Note{At: epoch, Task: made.ID, Step: "held"}
					if err := s.Create(t.Context(), made, task.Limits{}, held); err != nil {
						if killed.Load() {
							return
						}
						continue // the machine is slow
					}
					mu.Lock()
					if acknowledged = append(acknowledged, made.ID); len(acknowledged) == 200 {
						close(many)
					}
					mu.Unlock()
				}
			})
		}
		<-many
		killed.Store(true)
		must(t, server.Kill())
		writing.Wait()
		must(t, server.Start(t.Context()))
		for _, id := range acknowledged {
			eventually(t, func() error {
				_, err := s.Get(t.Context(), anyone(id))
				if errors.Is(err, task.ErrNotFound) {
					t.Fatalf("task %s was acknowledged and is lost", id)
				}
				return err
			})
			var story []auditlog.Entry
			eventually(t, func() (err error) {
				story, err = s.Entries(t.Context(), auditlog.Query{Task: id})
				return err
			})
			if len(story) != 1 {
				t.Fatalf("task %s was acknowledged, and the journal has %d notes of it", id, len(story))
			}
		}
	}
}

// TestUnresponsiveServerTimesOut checks that calls have a time limit when the server does not answer.
func TestUnresponsiveServerTimesOut(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	link, err := testenv.StartProxy(t.Context(), server.Addr())
	must(t, err)
	t.Cleanup(func() { must(t, link.Close()) })
	o := inOwnKeys(server)
	o.URL = strings.Replace(o.URL, server.Addr(), link.Addr(), 1)
	o.Timeout = 10 * time.Second // enough for a server that answers
	s := open(t, o)
	made := add(t, s, 0)
	link.Set(testenv.Fault{Up: testenv.Way{Hold: true}})

	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = s.Get(ctx, anyone(made.ID))
	mustBe(t, err, context.DeadlineExceeded)

	// The server never answers, so only the timeout can end this call.
	if err := s.Create(t.Context(), build(t, 1), task.Limits{}); err == nil || !strings.Contains(err.Error(), "no answer in time: 10s") {
		t.Errorf("a creation without an answer: %v", err)
	}
	link.Heal()
	eventually(t, func() error { _, err := s.Get(t.Context(), anyone(made.ID)); return err })
}

// TestFullServerLetsTasksEnd checks that a full server refuses new tasks. Existing tasks can
// still end and be deleted, and shorter answers can replace longer ones.
func TestFullServerLetsTasksEnd(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	s := open(t, inOwnKeys(server))
	made := add(t, s, 0)
	must(t, s.WriteChunk(t.Context(), anyone(made.ID), 1, []byte("long")))
	do(t, server, "CONFIG", "SET", "maxmemory", "1")
	mustBe(t, s.Create(t.Context(), build(t, 1), task.Limits{}), task.ErrCapacityExceeded)
	mustBe(t, s.WriteChunk(t.Context(), anyone(made.ID), 0, []byte("x")), task.ErrCapacityExceeded)
	_, err := s.ReadChunk(t.Context(), anyone(made.ID), 0)
	mustBe(t, err, task.ErrChunkMissing)
	mustBe(t, s.WriteChunk(t.Context(), anyone(made.ID), 1, []byte("same")), task.ErrCapacityExceeded)
	must(t, s.WriteChunk(t.Context(), anyone(made.ID), 1, []byte("x")))
	if chunk, err := s.ReadChunk(t.Context(), anyone(made.ID), 1); string(chunk) != "x" || err != nil {
		t.Fatalf("ReadChunk = %q, %v; want the short one", chunk, err)
	}
	cancel(t, s, made.ID)
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 1); n != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 1 task", n, err)
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "0")
	add(t, s, 1)
}

// TestReadOnlyServerIsReported checks the error of a server that refuses writes.
func TestReadOnlyServerIsReported(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	s := open(t, inOwnKeys(server))
	made := add(t, s, 0)
	do(t, server, "REPLICAOF", "127.0.0.1", "1")
	if err := s.Create(t.Context(), build(t, 1), task.Limits{}); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a creation on a replica: %v", err)
	}
	_, err := s.Get(t.Context(), anyone(made.ID))
	must(t, err)
	do(t, server, "REPLICAOF", "NO", "ONE")
	add(t, s, 1)
}

// TestDamagedTaskHidesNoOther checks that an unreadable task does not hide others.
func TestDamagedTaskHidesNoOther(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	o := inOwnKeys(server)
	s := open(t, o)
	for i := range 4 {
		add(t, s, i)
	}
	damaged := add(t, s, 4)
	do(t, server, "HSET", "{"+o.Prefix+"}:task:"+string(damaged.ID), "document", "{")
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner()})
	mustBe(t, err, task.ErrUnreadable)
	overdue, err := s.Overdue(t.Context(), epoch.Add(2*ttl), 5)
	mustBe(t, err, task.ErrUnreadable)
	if len(page.Tasks) != 4 || len(overdue) != 4 {
		t.Errorf("%d tasks listed, %d overdue; want 4", len(page.Tasks), len(overdue))
	}
}
