package storage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/steadystore"
)

// The held calls of a full store still expire and are deleted, and then the store accepts others.
func TestFullStoreRecovers(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		settings := inDir(t)
		settings.MaxBytes = 1 << 20
		s, available := openSteady(t, settings)
		for range 3 { // the file does not shrink between rounds
			held := 0
			for hold(t, s, held, "{}") == nil {
				held++
			}
			emptyStore(t, s, held)
			for s.Outage() != nil {
				<-available
			}
		}
		must(t, hold(t, s, 0, "{}"))
	})
	t.Run("Redis", func(t *testing.T) {
		server, err := testenv.StartRedis(t.Context())
		if !testenv.Available(t, err) {
			return
		}
		t.Cleanup(func() { must(t, server.Stop()) })
		s, available := openSteady(t, storage.Settings{DSN: server.URL()})
		const held = 400
		large := `"` + strings.Repeat("x", 32<<10) + `"`
		for i := range held {
			must(t, hold(t, s, i, large))
		}
		_, err = server.Do(t.Context(), "CONFIG", "SET", "maxmemory", "8mb")
		must(t, err)
		if hold(t, s, held, large) == nil {
			t.Fatal("a full server accepted a call")
		}
		emptyStore(t, s, held)
		for s.Outage() != nil {
			<-available
		}
		must(t, hold(t, s, 0, large))
	})
}

// openSteady opens a store like a gate, and returns a channel that receives when the store is
// available again.
func openSteady(t *testing.T, settings storage.Settings) (*steadystore.Store, <-chan struct{}) {
	t.Helper()
	available := make(chan struct{}, 10)
	settings.Timeout = time.Minute // longer than a busy machine needs
	s, err := settings.OpenSteady(t.Context(), func(trouble error) {
		if trouble == nil {
			available <- struct{}{}
		}
	})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, available
}

// hold creates a task for call i, and a note about it.
func hold(t *testing.T, s *steadystore.Store, i int, message string) error {
	t.Helper()
	made, err := task.New(task.Draft{
		ID: task.ID(fmt.Sprint("tg_", i)), Owner: "ann", TTL: time.Hour, PollInterval: time.Second,
		Call: task.Call{Upstream: "u", Method: "tools/call", Name: "x", Message: message},
	}, epoch)
	must(t, err)
	return s.Create(t.Context(), made, task.Limits{}, task.Note{At: epoch, Task: made.ID, Step: "held"})
}

// emptyStore expires and deletes all calls of a full store, as many at a time as there is
// space for their last notes.
func emptyStore(t *testing.T, s *steadystore.Store, held int) {
	t.Helper()
	if !errors.Is(s.Outage(), task.ErrCapacityExceeded) {
		t.Fatalf("trouble with %d calls: %v; want ErrCapacityExceeded", held, s.Outage())
	}
	later := epoch.Add(2 * time.Hour)
	gate := lifecycle.Updater{Store: s, Notes: func(_, after task.Task, _ lifecycle.Event) []task.Note {
		return []task.Note{{At: later, Task: after.ID, Step: "expired", Reason: strings.Repeat("x", 200)}}
	}}
	for held > 0 {
		_, full := gate.SettleOverdue(t.Context(), "gate", later)
		swept, err := s.Sweep(t.Context(), later.Add(time.Hour), held)
		if swept == 0 || err != nil {
			t.Fatalf("swept %d of %d calls: %v, %v", swept, held, err, full)
		}
		held -= swept
	}
}
