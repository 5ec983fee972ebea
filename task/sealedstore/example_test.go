package sealedstore_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

// Encrypt the content of tasks in another store.
func ExampleNew() {
	secret := make([]byte, 32) // in a real program random, and kept elsewhere
	keys, err := sealedstore.ParseKeys("2026:" + base64.StdEncoding.EncodeToString(secret))
	if err != nil {
		fmt.Println(err)
		return
	}
	inner := memstore.New(memstore.Options{})
	store := sealedstore.New(inner, keys)
	defer store.Close() // also closes inner

	ctx, ref := context.Background(), task.OwnedBy("alice").Ref("task-1")
	made, err := task.New(task.Draft{
		ID: ref.ID, Owner: "alice", TTL: time.Hour, Call: task.Call{Method: "tools/call", Name: "greet", Message: `{"name":"Ann"}`},
	}, time.Date(2026, 8, 22, 10, 30, 0, 0, time.UTC))
	if err == nil {
		err = store.Create(ctx, made, task.Limits{})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range []task.Store{store, inner} {
		found, err := s.Get(ctx, ref)
		fmt.Println(strings.Contains(found.Call.Message, "Ann"), err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
