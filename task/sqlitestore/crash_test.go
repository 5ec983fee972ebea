package sqlitestore_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// The environment variables that make the test binary a process to kill. They name its file,
// which it uses alone or with other processes.
const (
	crashFile   = "SQLSTORE_CRASH_FILE"
	sharedFile  = "SQLSTORE_SHARED_FILE"
	answersFile = "SQLSTORE_ANSWERS_FILE"
)

// createUntilKilled creates tasks from many goroutines, and changes each. It writes out the id
// of a task after the store has acknowledged both.
func createUntilKilled(o sqlitestore.Options) {
	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := 0; ; i++ {
				made, err := task.New(sqltest.Draft(i), sqltest.Epoch)
				if err == nil {
					err = s.Create(ctx, made, task.Limits{Total: 1 << 30}, task.Note{At: sqltest.Epoch, Task: made.ID, Step: "held"})
				}
				if err == nil {
					updater := lifecycle.Updater{Store: s, Notes: func(_, after task.Task, _ lifecycle.Event) []task.Note {
						return []task.Note{{At: sqltest.Epoch, Task: after.ID, Step: "cancelled"}}
					}}
					_, err = updater.Advance(ctx, task.AnyOwner().Ref(made.ID), lifecycle.Cancel{By: "ann"}, sqltest.Epoch)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				// One write is one line, even with concurrent writers.
				_, _ = os.Stdout.WriteString(string(made.ID) + "\n")
			}
		})
	}
	workers.Wait()
}

// TestKillLosesNoAcknowledgedChange kills a process that writes, many times, and checks all acknowledged
// changes.
func TestKillLosesNoAcknowledgedChange(t *testing.T) {
	o := sqlitestore.Options{File: filepath.Join(t.TempDir(), "tasks.db")}
	var acknowledged []task.ID
	for round := range 6 {
		some := killed(t, o.File, rand.IntN(150), crashFile)
		acknowledged = append(acknowledged, some...)
		s := open(t, o)
		for _, id := range acknowledged {
			got, err := s.Get(t.Context(), task.AnyOwner().Ref(id))
			if err != nil || got.State != task.Cancelled {
				t.Fatalf("round %d, of %d: %s is %q, %v", round, len(acknowledged), id, got.State, err)
			}
		}
		mustAgree(t, s)
		sqltest.Must(t, s.Check(t.Context()))
		sqltest.Must(t, s.Close())
	}
	t.Logf("%d tasks survived", len(acknowledged))
}

// mustAgree checks that the journal is complete, and has entries for exactly the tasks and
// changes of the store.
func mustAgree(t *testing.T, s gatestore.Store) {
	t.Helper()
	told := make(map[task.ID]task.State)
	var at auditlog.Link
	for {
		page, err := s.Entries(t.Context(), auditlog.Query{After: at.Seq, Limit: 1000})
		sqltest.Must(t, err)
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			sqltest.Must(t, at.Verify(e))
			at = e.Link()
			told[e.Task] = map[string]task.State{"held": task.Working, "cancelled": task.Cancelled}[e.Step]
		}
	}
	q := task.Query{Scope: task.AnyOwner(), Limit: 100}
	for {
		page, err := s.List(t.Context(), q)
		sqltest.Must(t, err)
		for _, there := range page.Tasks {
			if told[there.ID] != there.State {
				t.Fatalf("%s is %q, and in the journal %q", there.ID, there.State, told[there.ID])
			}
			delete(told, there.ID)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if len(told) > 0 {
		t.Fatalf("the journal has entries for %d missing tasks", len(told))
	}
}

// killed runs a process until it has acknowledged some more tasks than after, kills it, and
// returns all acknowledged tasks.
func killed(t *testing.T, file string, after int, variable string) []task.ID {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), variable+"="+file)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	sqltest.Must(t, err)
	sqltest.Must(t, child.Start())
	var ids []task.ID
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		ids = append(ids, task.ID(lines.Text()))
		if len(ids) == after+1 {
			sqltest.Must(t, child.Process.Kill())
		}
	}
	sqltest.Must(t, lines.Err())
	if err := child.Wait(); err == nil || len(ids) <= after || ctx.Err() != nil {
		t.Fatalf("the process ended after %d tasks, before it was killed: %v", len(ids), err)
	}
	return ids
}
