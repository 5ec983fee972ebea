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
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A slowStore answers a read once it gets leave for it, or not at all.
type slowStore struct {
	task.Records

	slow  atomic.Bool
	reads atomic.Int64
	leave chan error
}

func (s *slowStore) GetRecord(ctx context.Context, name string) (task.Record, error) {
	s.reads.Add(1)
	if s.slow.Load() {
		select {
		case err := <-s.leave:
			if err != nil {
				return task.Record{}, err
			}
		case <-ctx.Done():
			return task.Record{}, ctx.Err()
		}
	}
	return s.Records.GetRecord(ctx, name)
}

// slowRing returns a ring that has read its keys from a store that is slow from
// now on, and a text that a key unknown to the ring has sealed.
func slowRing(t *testing.T) (*slowStore, *keyring.Ring, string) {
	t.Helper()
	mem := memstore.New(memstore.Options{})
	t.Cleanup(func() { mem.Close() })
	s := &slowStore{Records: mem, leave: make(chan error)}
	ring := keyring.New(s, time.Now)
	must[string](t)(ring.Label(t.Context()))
	foreign := must[string](t)(keyring.Ephemeral().Sealer(keyring.Agents).Seal(t.Context(), "x"))
	s.slow.Store(true)
	return s, ring, foreign
}

// Whoever has keys that are good enough does not wait for a read that somebody
// else needs: a text that no key opens cannot hold up the others.
func TestSlowReadHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ring, foreign := slowRing(t)
		time.Sleep(100 * time.Millisecond) // long enough that the foreign text makes the ring read
		opened := make(chan error)
		go func() {
			_, err := ring.Sealer(keyring.Agents).Open(t.Context(), foreign)
			opened <- err
		}()
		synctest.Wait() // it asks the store
		if n := s.reads.Load(); n < 2 {
			t.Fatalf("the ring asked %d times", n)
		}
		if _, err := ring.Sealer(keyring.Agents).Seal(t.Context(), "y"); err != nil {
			t.Error(err)
		}
		s.leave <- nil
		if err := <-opened; !errors.Is(err, keyring.ErrForeign) {
			t.Errorf("the foreign text: %v", err)
		}
	})
}

// All who wait for the keys share one read, and its failure: a store that hangs
// costs each of them one time-out, not one for each caller before.
func TestReadsAreShared(t *testing.T) {
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
				s.leave <- answer
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

// A caller who leaves does not wait for the read of another one, and the read of
// a caller who leaves says nothing about the store to those who wait with them.
func TestCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(memstore.Options{})
		t.Cleanup(func() { mem.Close() })
		must[string](t)(keyring.New(mem, time.Now).Label(t.Context())) // so that there are keys
		s := &slowStore{Records: mem, leave: make(chan error)}
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
		s.leave <- nil // to the third one, who asks now
		if err := <-three; err != nil {
			t.Errorf("the third caller: %v", err)
		}
	})
}

// Keys that a caller gets are no older than they may be, though the read that
// the caller finds under way began long ago.
func TestSharedReadIsFresh(t *testing.T) {
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
		s.leave <- nil
		s.leave <- nil // the second caller asks anew
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
