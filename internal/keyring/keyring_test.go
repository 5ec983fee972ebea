package keyring_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A clock can be set.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(c.ahead.Load()))
}
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestReplicasOpenOnlyWithSamePurposeAndValues(t *testing.T) {
	store, c := memstore.New(memstore.Options{}), new(clock)
	t.Cleanup(func() { store.Close() })
	one, two := keyring.New(store, c.now), keyring.New(store, c.now)
	sealed := must[string](t)(one.Sealer(keyring.Agents).Seal(t.Context(), "tg_1", "wait", "ann"))
	if got, err := two.Sealer(keyring.Agents).Open(t.Context(), sealed, "wait", "ann"); got != "tg_1" || err != nil {
		t.Fatalf("opened %q, %v", got, err)
	}
	other := "A"
	if sealed[40:41] == other {
		other = "B"
	}
	for name, open := range map[string]func() (string, error){
		"for another purpose": func() (string, error) { return two.Sealer(keyring.Sessions).Open(t.Context(), sealed, "wait", "ann") },
		"for another owner":   func() (string, error) { return two.Sealer(keyring.Agents).Open(t.Context(), sealed, "wait", "bob") },
		"split elsewhere":     func() (string, error) { return two.Sealer(keyring.Agents).Open(t.Context(), sealed, "waita", "nn") },
		"bound to less":       func() (string, error) { return two.Sealer(keyring.Agents).Open(t.Context(), sealed, "wait") },
		"with a line break": func() (string, error) {
			return two.Sealer(keyring.Agents).Open(t.Context(), sealed+"\n", "wait", "ann")
		},
		"changed": func() (string, error) {
			return two.Sealer(keyring.Agents).Open(t.Context(), sealed[:40]+other+sealed[41:], "wait", "ann")
		},
		"cut off": func() (string, error) { return two.Sealer(keyring.Agents).Open(t.Context(), sealed[:8], "wait", "ann") },
		"by another gate": func() (string, error) {
			return keyring.Ephemeral().Sealer(keyring.Agents).Open(t.Context(), sealed, "wait", "ann")
		},
		"empty": func() (string, error) { return two.Sealer(keyring.Agents).Open(t.Context(), "", "wait", "ann") },
	} {
		if got, err := open(); !errors.Is(err, keyring.ErrForeign) || got != "" {
			t.Errorf("%s: opened %q, %v", name, got, err)
		}
	}
}

// After a rotation, the old key opens its texts on every replica, until it expires.
func TestRotatedKeyOpensUntilItExpires(t *testing.T) {
	store, c := memstore.New(memstore.Options{}), new(clock)
	t.Cleanup(func() { store.Close() })
	one, two := keyring.New(store, c.now).Sealer(keyring.Sessions), keyring.New(store, c.now).Sealer(keyring.Sessions)
	old := must[string](t)(one.Seal(t.Context(), "old"))
	must[string](t)(two.Seal(t.Context(), "reads the old key"))
	if err := keyring.New(store, c.now).Rotate(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	c.advance(100 * time.Millisecond) // the keys of the other replica are still fresh
	sealed := must[string](t)(keyring.New(store, c.now).Sealer(keyring.Sessions).Seal(t.Context(), "new"))
	if sealed[:5] == old[:5] {
		t.Error("the old key still seals")
	}
	for _, s := range []keyring.Sealer{one, two} {
		if got, err := s.Open(t.Context(), old); got != "old" || err != nil {
			t.Errorf("opened %q, %v", got, err)
		}
		if got, err := s.Open(t.Context(), sealed); got != "new" || err != nil {
			t.Errorf("opened %q, %v", got, err)
		}
	}
	c.advance(time.Hour)
	if _, err := two.Open(t.Context(), old); !errors.Is(err, keyring.ErrForeign) {
		t.Errorf("after its time the old key still opens: %v", err)
	}
	if err := keyring.New(store, c.now).Rotate(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Second)
	if _, err := one.Open(t.Context(), sealed); !errors.Is(err, keyring.ErrForeign) {
		t.Errorf("an expired key still opens: %v", err)
	}
	r := must[gatestore.Record](t)(store.GetRecord(t.Context(), keyring.RecordName))
	if n := strings.Count(string(r.Value), "secret"); n != 1 {
		t.Errorf("%d keys are kept, want 1", n)
	}
}

// A ring that has read its keys works without the store. A new ring fails.
func TestKeysOutliveStoreFailure(t *testing.T) {
	store, c := memstore.New(memstore.Options{}), new(clock)
	before := keyring.New(store, c.now).Sealer(keyring.Agents)
	sealed := must[string](t)(before.Seal(t.Context(), "x"))
	store.Close()
	c.advance(time.Minute)
	if got, err := before.Open(t.Context(), sealed); got != "x" || err != nil {
		t.Errorf("opened %q, %v", got, err)
	}
	if _, err := keyring.New(store, c.now).Sealer(keyring.Agents).Seal(t.Context(), "x"); !errors.Is(err, task.ErrClosed) {
		t.Errorf("sealed without a key: %v", err)
	}
}

func TestDamagedRecordIsNotQuoted(t *testing.T) {
	for _, value := range []string{
		`{"keys":[]}`, `{"keys":[{"secret":"c2hvcnQ="}]}`,
		`{"keys":[{"secret":"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=","until":1}]}`, "no secret",
	} {
		store := memstore.New(memstore.Options{})
		t.Cleanup(func() { store.Close() })
		if err := store.PutRecord(t.Context(), gatestore.Record{Name: keyring.RecordName, Version: 1, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
		_, err := keyring.New(store, new(clock).now).Sealer(keyring.Agents).Seal(t.Context(), "x")
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// A plain key is the same on all replicas, and another one for each purpose and gate.
func TestPlainKeys(t *testing.T) {
	records := memstore.New(memstore.Options{})
	key := func(r *keyring.Ring, p keyring.Purpose) string {
		t.Helper()
		k, err := r.Key(t.Context(), p)
		if err != nil || len(k) != 32 {
			t.Fatalf("a key of %d bytes, %v", len(k), err)
		}
		return string(k)
	}
	one, replica := keyring.New(records, time.Now), keyring.New(records, time.Now)
	if key(one, keyring.Arguments) != key(replica, keyring.Arguments) {
		t.Error("replicas have different keys")
	}
	if key(one, keyring.Arguments) == key(one, keyring.Agents) || key(one, keyring.Arguments) == key(keyring.Ephemeral(), keyring.Arguments) {
		t.Error("purposes or gates share a key")
	}
}
