package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// Keep tasks in memory.
func ExampleNew() {
	ctx, now := context.Background(), time.Date(2026, 8, 22, 10, 30, 0, 0, time.UTC)
	store := memstore.New(memstore.Options{})
	defer store.Close()
	made, err := task.New(task.Draft{
		ID: "task-1", Owner: "alice", TTL: time.Hour, Call: task.Call{Method: "tools/call", Name: "greet", Message: "{}"},
	}, now)
	if err == nil {
		err = store.Create(ctx, made, task.Limits{})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := store.Get(ctx, task.OwnedBy("alice").Ref("task-1"))
	fmt.Println(found.State, err)
	_, err = store.Get(ctx, task.OwnedBy("bob").Ref("task-1"))
	fmt.Println(err != nil)
	// Output:
	// working <nil>
	// true
}
