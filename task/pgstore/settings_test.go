package pgstore_test

import (
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// With each isolation level of the role or the database, the same call of one owner is pending
// only once, and concurrent creations do not fail.
func TestIsolationOfRoleIsOverridden(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			address := server.Schema(t) + "&default_transaction_isolation=" + url.PathEscape(level)
			stores := []task.Store{openPostgres(t, address), openPostgres(t, address)}
			for round := range 20 {
				created := 0
				for _, err := range createTogether(t, stores, fmt.Sprint("owner ", round)) {
					if err == nil {
						created++
					} else if !errors.Is(err, task.ErrDuplicate) {
						t.Errorf("Create: %v", err)
					}
				}
				if created != 1 {
					t.Fatalf("round %d: the same call was stored %d times", round, created)
				}
			}
		})
	}
}

// createTogether lets several writers create the same call of one owner, and returns their
// errors.
func createTogether(t *testing.T, stores []task.Store, owner string) []error {
	t.Helper()
	told := make([]error, 8)
	now := time.Now()
	var writers sync.WaitGroup
	for i := range told {
		made, err := task.New(task.Draft{
			ID: task.NewID(now), Owner: owner, TTL: time.Hour, PollInterval: time.Second,
			Call: task.Call{Upstream: "u", Method: "tools/call", Name: "n", Message: `{"x":1}`, Arguments: `{"x":1}`},
		}, now)
		if err != nil {
			t.Fatal(err)
		}
		writers.Go(func() {
			told[i] = stores[i%len(stores)].Create(t.Context(), made, task.Limits{Unique: true, PerOwner: 10, Total: 1000})
		})
	}
	writers.Wait()
	return told
}

// The store waits for commits even if the role's setting does not.
func TestAsynchronousCommitIsOverridden(t *testing.T) {
	server := postgres.start(t)
	if server == nil {
		return
	}
	for asked, want := range map[string]string{"off": "on", "remote_write": "remote_write"} {
		s := openPostgres(t, server.Schema(t)+"&synchronous_commit="+asked)
		if got, err := s.Setting(t.Context(), "synchronous_commit"); err != nil || got != want {
			t.Errorf("synchronous_commit is %q, %v; want %q where the role has %q", got, err, want, asked)
		}
	}
}
