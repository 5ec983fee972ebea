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
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqltest"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// The variables that make the test binary a process to kill: they name the file
// that it works on, alone or with others.
const (
	crashFile   = "SQLSTORE_CRASH_FILE"
	sharedFile  = "SQLSTORE_SHARED_FILE"
	answersFile = "SQLSTORE_ANSWERS_FILE"
)

// createUntilKilled creates tasks from many goroutines, changes each and
// writes its id out once the store has acknowledged both.
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
					updater := task.Updater{Store: s, Notes: func(_, after task.Task, _ task.Event) []task.Note {
						return []task.Note{{At: sqltest.Epoch, Task: after.ID, Step: "cancelled"}}
					}}
					_, err = updater.Advance(ctx, task.AnyOwner().Ref(made.ID), task.Cancel{By: "ann"}, sqltest.Epoch)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				// One write is one line, whoever writes at the same time.
				_, _ = os.Stdout.WriteString(string(made.ID) + "\n")
			}
		})
	}
	workers.Wait()
}

// TestSQLiteKilled kills a process that writes, again and again, and looks for
// everything that was acknowledged before.
func TestSQLiteKilled(t *testing.T) {
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

// mustAgree checks that the journal is whole and tells of every task and every
// change there is, and of nothing else.
func mustAgree(t *testing.T, s task.GateStore) {
	t.Helper()
	told := make(map[task.ID]task.State)
	var at task.Link
	for {
		page, err := s.Entries(t.Context(), task.JournalQuery{After: at.Seq, Limit: 1000})
		sqltest.Must(t, err)
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			sqltest.Must(t, at.Follow(e))
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
				t.Fatalf("%s is %q, and the journal says %q", there.ID, there.State, told[there.ID])
			}
			delete(told, there.ID)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if len(told) > 0 {
		t.Fatalf("the journal tells of %d tasks that are not there", len(told))
	}
}

// killed runs a process until it has acknowledged some more tasks than after,
// kills it and returns them all.
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
		t.Fatalf("the process ended by itself after %d tasks: %v", len(ids), err)
	}
	return ids
}
