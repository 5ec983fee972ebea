package keyring_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// Replicas that start at the same time on an empty server agree on one root key. They agree on
// a new one after the key was deleted from the server.
func TestReplicasAgreeOnFirstKey(t *testing.T) {
	t.Run("PostgreSQL", func(t *testing.T) {
		server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
		if testenv.Available(t, err) {
			t.Cleanup(func() { server.Stop() })
			testAgreement(t, server.URL())
		}
	})
	t.Run("Redis", func(t *testing.T) {
		server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
		if testenv.Available(t, err) {
			t.Cleanup(func() { server.Stop() })
			testAgreement(t, server.URL())
		}
	})
}

func testAgreement(t *testing.T, url string) {
	t.Helper()
	var clock clock
	var rings []*keyring.Ring
	for range 4 {
		store, err := storage.Settings{DSN: url, Timeout: 30 * time.Second}.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		rings = append(rings, keyring.New(store, clock.now))
		if len(rings) == 4 {
			exchangeTexts(t, rings)
			if err := store.DeleteRecord(t.Context(), keyring.RecordName); err != nil {
				t.Fatal(err)
			}
			clock.advance(time.Minute)
			exchangeTexts(t, rings)
		}
	}
}

// exchangeTexts lets every ring seal at the same time, and open the texts of all rings.
func exchangeTexts(t *testing.T, rings []*keyring.Ring) {
	t.Helper()
	sealed := make([]string, len(rings))
	var sealing sync.WaitGroup
	for i, ring := range rings {
		sealing.Go(func() {
			var err error
			if sealed[i], err = ring.Sealer(keyring.Sessions).Seal(t.Context(), "x"); err != nil {
				t.Error(err)
			}
		})
	}
	sealing.Wait()
	for _, ring := range rings {
		for _, text := range sealed {
			if got, err := ring.Sealer(keyring.Sessions).Open(t.Context(), text); got != "x" || err != nil {
				t.Errorf("opened %q, %v", got, err)
			}
		}
	}
}
