package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
)

// TestStore covers STOR-02, and the requirements on stores of F-003, F-005, F-007 and F-009 of
// GOV-001.
func TestStore(t *testing.T) {
	server := alone.server(t)
	if server == nil {
		return
	}
	gatestoretest.Run(t, func(t *testing.T) gatestore.Store { return open(t, inOwnKeys(server)) })
}

// A new process that connects to a server finds all stored data.
func TestReopenedStoreHasAllData(t *testing.T) {
	server := alone.server(t)
	if server == nil {
		return
	}
	o := inOwnKeys(server)
	gatestoretest.RunReopen(t, func() task.Store {
		s, err := redisstore.Open(t.Context(), o)
		must(t, err)
		return s
	})
}

// TestStoreInCluster checks that every script only uses keys of one node, and that notifications reach
// other nodes.
func TestStoreInCluster(t *testing.T) {
	server := cluster.server(t)
	if server == nil {
		return
	}
	gatestoretest.Run(t, func(t *testing.T) gatestore.Store { return open(t, inOwnKeys(server)) })
}

var prefixes atomic.Int64

// inOwnKeys returns options for an empty store.
func inOwnKeys(server *testenv.Redis) redisstore.Options {
	return redisstore.Options{URL: server.URL(), Prefix: fmt.Sprint("test", prefixes.Add(1))}
}

func open(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const ttl = time.Hour

// draft returns the i-th of many different calls by a hundred owners.
func draft(i int) task.Draft {
	return task.Draft{
		ID: task.NewID(epoch), Owner: fmt.Sprint("owner", i%100), Workflow: "ops", TTL: ttl, PollInterval: time.Second,
		Verdict: gatetask.Verdict{Reason: "rule 3", Snapshot: "s1"},
		Call: task.Call{
			Upstream: "files", Method: "tools/call", Name: "delete_file", Arguments: fmt.Sprintf(`{"path":"/tmp/%d"}`, i),
			Message: fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{"path":"/tmp/%d"}}}`, i),
		},
	}
}

func build(t testing.TB, i int) task.Task {
	t.Helper()
	made, err := task.New(draft(i), epoch.Add(time.Duration(i)*time.Microsecond))
	must(t, err)
	return made
}

func add(t testing.TB, s gatestore.Store, i int) task.Task {
	t.Helper()
	made := build(t, i)
	must(t, s.Create(t.Context(), made, task.Limits{}))
	return made
}

func cancel(t testing.TB, s gatestore.Store, id task.ID) {
	t.Helper()
	_, err := lifecycle.Advance(t.Context(), s, anyone(id), lifecycle.Cancel{By: "ann"}, epoch)
	must(t, err)
}

func anyone(id task.ID) task.Ref { return task.AnyOwner().Ref(id) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("err = %v; want %v", err, target)
	}
}

// do runs a command on the server. The command must succeed.
func do(t testing.TB, server *testenv.Redis, words ...string) string {
	t.Helper()
	answer, err := server.Do(t.Context(), words...)
	must(t, err)
	return answer
}

// TestSweepRemovesAllKeys checks that a deleted task is in no list.
func TestSweepRemovesAllKeys(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	s := open(t, inOwnKeys(server))
	before := do(t, server, "DBSIZE")
	for i := range 10 {
		made := add(t, s, i)
		for _, e := range []lifecycle.Event{
			lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)},
			lifecycle.Approve{By: "bob"},
			lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)},
			lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK}},
		}[:i%5] {
			_, err := lifecycle.Advance(t.Context(), s, anyone(made.ID), e, epoch)
			must(t, err)
		}
		must(t, s.WriteChunk(t.Context(), anyone(made.ID), 0, []byte("x")))
		if i%5 < 4 {
			cancel(t, s, made.ID)
		}
	}
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 100); n != 10 || err != nil {
		t.Fatalf("Sweep = %d, %v; want 10", n, err)
	}
	// The number of the last change remains.
	do(t, server, "DEL", "{test"+fmt.Sprint(prefixes.Load())+"}:changes")
	if after := do(t, server, "DBSIZE"); after != before {
		t.Errorf("%s keys before, %s after", before, after)
	}
}

// TestSweepKeepsExtendedTasks changes tasks during a sweep, and checks that tasks with an extended TTL are
// not deleted.
func TestSweepKeepsExtendedTasks(t *testing.T) {
	server := alone.server(t)
	if server == nil {
		return
	}
	const tasks = 200
	o := inOwnKeys(server)
	o.Timeout = time.Minute // for 200 tasks and a slow disk
	s := open(t, o)
	for range 5 {
		changed := make([]task.Task, tasks)
		for i := range changed {
			ended, err := lifecycle.Apply(build(t, i), lifecycle.Cancel{By: "ann"}, epoch)
			must(t, err)
			must(t, s.Create(t.Context(), ended, task.Limits{}))
			changed[i] = ended
			changed[i].Version++
			changed[i].ExpiresAt = epoch.Add(3 * ttl)
		}
		outcomes := make(chan []error, 1)
		go func() {
			var errs []error
			for i := range changed {
				errs = append(errs, s.Swap(t.Context(), changed[tasks-1-i]))
			}
			outcomes <- errs
		}()
		swept, err := s.Sweep(t.Context(), epoch.Add(2*ttl), tasks)
		must(t, err)
		for i, err := range <-outcomes {
			if errors.Is(err, task.ErrNotFound) {
				swept--
				continue
			}
			must(t, err)
			_, err = s.Get(t.Context(), anyone(changed[tasks-1-i].ID))
			must(t, err)
		}
		if swept != 0 {
			t.Errorf("%d tasks were both swept and kept, or neither", swept)
		}
	}
}

// TestLostTasksDoNotBlockOthers deletes the keys of tasks by hand. Other tasks must stay accessible, and the
// lost tasks must stop counting towards limits.
func TestLostTasksDoNotBlockOthers(t *testing.T) {
	server := alone.server(t)
	if server == nil {
		return
	}
	o := inOwnKeys(server)
	s := open(t, o)
	limits := task.Limits{Total: 3}
	made := make([]task.Task, 3)
	for i := range made {
		made[i] = build(t, i)
		must(t, s.Create(t.Context(), made[i], limits))
	}
	mustBe(t, s.Create(t.Context(), build(t, 3), limits), task.ErrCapacityExceeded)
	do(t, server, "DEL", "{"+o.Prefix+"}:task:"+string(made[0].ID))

	late := epoch.Add(2 * ttl)
	if _, err := s.Overdue(t.Context(), late, 1); err != nil {
		t.Fatal(err)
	}
	overdue, err := s.Overdue(t.Context(), late, 1)
	must(t, err)
	if diff := cmp.Diff([]task.Task{made[1]}, overdue); diff != "" {
		t.Errorf("overdue (-want +got):\n%s", diff)
	}
	page, err := s.List(t.Context(), task.Query{Scope: task.AnyOwner(), Limit: 2})
	must(t, err)
	if diff := cmp.Diff([]task.Task{made[2], made[1]}, page.Tasks); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	must(t, s.Create(t.Context(), build(t, 3), limits))

	cancel(t, s, made[1].ID)
	cancel(t, s, made[2].ID)
	do(t, server, "DEL", "{"+o.Prefix+"}:task:"+string(made[1].ID))
	swept := 0
	for range 2 {
		n, err := s.Sweep(t.Context(), late, 1)
		must(t, err)
		swept += n
	}
	if swept != 1 {
		t.Errorf("%d tasks swept; want the remaining one", swept)
	}
}

// TestOpenErrorOmitsPassword checks that Open reports problems without passwords.
func TestOpenErrorOmitsPassword(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	do(t, server, "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all")
	do(t, server, "CONFIG", "SET", "requirepass", "secret")
	at := strings.TrimPrefix(server.URL(), "redis://")
	good := redisstore.Options{URL: "redis://:secret@" + at}
	s := open(t, good)
	must(t, s.Check(t.Context()))

	for name, tt := range map[string]struct {
		change func(o *redisstore.Options)
		want   string
	}{
		"no URL":                     {func(o *redisstore.Options) { o.URL = "" }, "scheme"},
		"an invalid URL":             {func(o *redisstore.Options) { o.URL = "redis://:secret@host:port" }, "port"},
		"a wrong password":           {func(o *redisstore.Options) { o.URL = "redis://:topsecret@" + at }, "WRONGPASS"},
		"no password":                {func(o *redisstore.Options) { o.URL = server.URL() }, "NOAUTH"},
		"an unknown server":          {func(o *redisstore.Options) { o.URL = "redis://:secret@127.0.0.1:1" }, "127.0.0.1:1: connect"},
		"a prefix in braces":         {func(o *redisstore.Options) { o.Prefix = "{x}" }, "braces"},
		"no permission to subscribe": {func(o *redisstore.Options) { o.URL = "redis://deaf:secret@" + at }, "NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			tt.change(&o)
			s, err := redisstore.Open(t.Context(), o)
			if err == nil {
				must(t, s.Close())
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("err = %v; want %q and no password", err, tt.want)
			}
		})
	}
}

func TestCheckReportsUnsafeSettings(t *testing.T) {
	server := own(t, "--appendonly", "no")
	if server == nil {
		return
	}
	o := redisstore.Options{URL: server.URL()}
	s := open(t, o)
	mustBe(t, s.Check(t.Context()), redisstore.ErrNotDurable)
	do(t, server, "CONFIG", "SET", "appendonly", "yes")
	must(t, s.Check(t.Context()))
	do(t, server, "CONFIG", "SET", "appendfsync", "everysec")
	mustBe(t, s.Check(t.Context()), redisstore.ErrNotDurable)
	do(t, server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	if err := s.Check(t.Context()); errors.Is(err, redisstore.ErrEvicts) {
		t.Errorf("a server without a limit evicts nothing: %v", err)
	}
	do(t, server, "CONFIG", "SET", "maxmemory", "100mb")
	mustBe(t, s.Check(t.Context()), redisstore.ErrEvicts)
	_, err := redisstore.Open(t.Context(), o)
	mustBe(t, err, redisstore.ErrEvicts)
	do(t, server, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	do(t, server, "SET", "{thoughtgate}:format", "99")
	_, err = redisstore.Open(t.Context(), o)
	mustBe(t, err, redisstore.ErrSchema)
}
