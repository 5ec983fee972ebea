package pgstore_test

import (
	"context"
	"log"

	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
)

// Keep tasks in a database, for any number of processes.
func ExampleOpen() {
	store, err := pgstore.Open(context.Background(), pgstore.Options{URL: "postgres://tasks@localhost/tasks"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
}
