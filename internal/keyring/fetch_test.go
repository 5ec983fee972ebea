package keyring_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A slowStore answers a read when the test sends to answers.
type slowStore struct {
	gatestore.Records

	slow    atomic.Bool
	reads   atomic.Int64
	answers chan error
}

func (s *slowStore) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	s.reads.Add(1)
	if s.slow.Load() {
		select {
		case err := <-s.answers:
			if err != nil {
				return gatestore.Record{}, err
			}
		case <-ctx.Done():
			return gatestore.Record{}, ctx.Err()
		}
	}
	return s.Records.GetRecord(ctx, name)
}

// slowRing returns a ring that has read its keys from a store that is slow from now on, and a
// text sealed with a key that the ring does not have.
func slowRing(t *testing.T) (*slowStore, *keyring.Ring, string) {
	t.Helper()
	mem := memstore.New(memstore.Options{})
	t.Cleanup(func() { mem.Close() })
	s := &slowStore{Records: mem, answers: make(chan error)}
	ring := keyring.New(s, time.Now)
	must[string](t)(ring.Label(t.Context()))
	foreign := must[string](t)(keyring.Ephemeral().Sealer(keyring.Agents).Seal(t.Context(), "x"))
	s.slow.Store(true)
	return s, ring, foreign
}

// A text that no key opens makes the ring read the keys. Callers with fresh keys do not wait for that.
func TestCallersWithFreshKeysDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ring, foreign := slowRing(t)
		time.Sleep(100 * time.Millisecond) // after this time the foreign text makes the ring read
		opened := make(chan error)
		go func() {
			_, err := ring.Sealer(keyring.Agents).Open(t.Context(), foreign)
			opened <- err
		}()
		synctest.Wait() // the ring asks the store
		if n := s.reads.Load(); n < 2 {
			t.Fatalf("the ring asked %d times", n)
		}
		if _, err := ring.Sealer(keyring.Agents).Seal(t.Context(), "y"); err != nil {
			t.Error(err)
		}
		s.answers <- nil
		if err := <-opened; !errors.Is(err, keyring.ErrForeign) {
			t.Errorf("the foreign text: %v", err)
		}
	})
}

// Concurrent callers share one read and its failure, so each waits for at most one timeout.
func TestConcurrentCallersShareRead(t *testing.T) {
	for name, answer := range map[string]error{"answered": nil, "failed": task.ErrUnavailable} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ring, _ := slowRing(t)
				time.Sleep(2 * time.Second)
				before := s.reads.Load()
				const callers = 20
				done := make(chan error, callers)
				for range callers {
					go func() {
						_, err := ring.Sealer(keyring.Agents).Seal(t.Context(), "y")
						done <- err
					}()
				}
				synctest.Wait()
				s.answers <- answer
				for range callers {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if n := s.reads.Load() - before; n != 1 {
					t.Errorf("the store was asked %d times", n)
				}
			})
		})
	}
}

// A caller whose context ends stops waiting. The read continues for the other callers.
func TestCancelledCallerLeavesReadToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(memstore.Options{})
		t.Cleanup(func() { mem.Close() })
		must[string](t)(keyring.New(mem, time.Now).Label(t.Context())) // creates the keys
		s := &slowStore{Records: mem, answers: make(chan error)}
		s.slow.Store(true)
		ring := keyring.New(s, time.Now)
		label := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := ring.Label(ctx)
				done <- err
			}()
			synctest.Wait()
			return done
		}
		first, leaveFirst := context.WithCancel(t.Context())
		second, leaveSecond := context.WithCancel(t.Context())
		defer leaveFirst()
		one, two, three := label(first), label(second), label(t.Context())
		leaveSecond()
		if err := <-two; !errors.Is(err, context.Canceled) {
			t.Errorf("the second caller: %v", err)
		}
		leaveFirst()
		if err := <-one; !errors.Is(err, context.Canceled) {
			t.Errorf("the first caller: %v", err)
		}
		s.answers <- nil
		if err := <-three; err != nil {
			t.Errorf("the third caller: %v", err)
		}
	})
}

// A caller does not use a shared read that began too long ago.
func TestOldSharedReadIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ring, _ := slowRing(t)
		before := s.reads.Load()
		time.Sleep(2 * time.Second)
		done := make(chan error, 2)
		seal := func() {
			_, err := ring.Sealer(keyring.Agents).Seal(t.Context(), "y")
			done <- err
		}
		go seal()
		time.Sleep(5 * time.Second) // the read hangs
		go seal()
		synctest.Wait()
		s.answers <- nil
		s.answers <- nil // the second read
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := s.reads.Load() - before; n != 2 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}
