package redisstore_test

import (
	"context"
	"log"

	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
)

// Keep tasks in Redis, for any number of processes.
func ExampleOpen() {
	store, err := redisstore.Open(context.Background(), redisstore.Options{URL: "redis://localhost:6379"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}
