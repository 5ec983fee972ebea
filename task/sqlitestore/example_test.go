package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

// Keep tasks in a file, where the next process finds them.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "tasks")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tasks.db")

	first, err := sqlitestore.Open(ctx, sqlitestore.Options{File: file})
	if err != nil {
		fmt.Println(err)
		return
	}
	made, err := task.New(task.Draft{
		ID: "task-1", Owner: "alice", TTL: time.Hour, Call: task.Call{Method: "tools/call", Name: "greet", Message: "{}"},
	}, time.Date(2026, 8, 22, 10, 30, 0, 0, time.UTC))
	if err == nil {
		err = first.Create(ctx, made, task.Limits{})
	}
	fmt.Println(err, first.Close())

	next, err := sqlitestore.Open(ctx, sqlitestore.Options{File: file})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer next.Close()
	found, err := next.Get(ctx, task.OwnedBy("alice").Ref("task-1"))
	fmt.Println(found.Call.Name, err)
	// Output:
	// <nil> <nil>
	// greet <nil>
}
