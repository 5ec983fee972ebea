package crash_test

import (
	"context"
	"flag"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/pgstore"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

var historyTime = flag.Duration("history", 5*time.Second, "how long TestHistory works on each store")

// In TestHistory, clients change tasks through several replicas of a store while its server
// crashes, the network fails and handles are closed. The results that the clients see must be
// explained by a single order of events.
func TestHistory(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for name, begin := range map[string]func(*testing.T) *replicated{
		"SQLite": filed, "PostgreSQL": inPostgres, "Redis": inRedis,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Logf("to repeat: go test ./e2e/crash -run TestHistory/%s -seed %d -history %v", name, seed, *historyTime)
			r := begin(t)
			if r == nil {
				return
			}
			seen, err := r.torment(t, gatestoretest.History{Long: *historyTime, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			if seen.Tasks < 3 {
				t.Errorf("too few events for a conclusion: %+v", seen)
			}
			t.Logf("%+v, %d disturbances", seen, r.disturbed.Load())
		})
	}
}

// A replicated is a store, and the disturbances of it.
type replicated struct {
	handles   []func() gatestore.Store
	disturb   []func(ctx context.Context, dice func(n int) int) // each is repeated
	disturbed atomic.Int64
}

// torment runs a history under disturbances, and ends all faults at the end.
func (r *replicated) torment(t *testing.T, h gatestoretest.History) (gatestoretest.Account, error) {
	t.Helper()
	h.Stores = r.handles
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	s := &story{seed: h.Seed}
	for i, disturb := range r.disturb {
		dice := s.dice(uint64(i))
		busy.Go(func() {
			for ctx.Err() == nil {
				pauseFor(ctx, time.Duration(100+dice.IntN(700))*time.Millisecond)
				disturb(ctx, dice.IntN)
				r.disturbed.Add(1)
			}
		})
	}
	seen, err := h.Check(t.Context())
	stop()
	busy.Wait()
	return seen, err
}

func pauseFor(ctx context.Context, long time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(long):
	}
}

// filed is a file that is closed and reopened while it is used.
func filed(t *testing.T) *replicated {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gate.db")
	open := func() *sqlitestore.Store {
		s, err := sqlitestore.Open(context.WithoutCancel(t.Context()), sqlitestore.Options{File: file})
		if err != nil {
			panic(err) // without a store, the clients cannot continue
		}
		return s
	}
	var mu sync.RWMutex
	now := open()
	t.Cleanup(func() { _ = now.Close() })
	return &replicated{
		handles: []func() gatestore.Store{func() gatestore.Store {
			mu.RLock()
			defer mu.RUnlock()
			return now
		}},
		disturb: []func(context.Context, func(int) int){func(context.Context, func(int) int) {
			mu.Lock()
			defer mu.Unlock()
			if err := now.Close(); err != nil {
				t.Error(err)
			}
			now = open()
		}},
	}
}

func inPostgres(t *testing.T) *replicated {
	t.Helper()
	server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return nil
	}
	return behindProxies(t, server, func(url string) (gatestore.Store, error) {
		return pgstore.Open(context.WithoutCancel(t.Context()), pgstore.Options{URL: url, MaxConns: 4})
	})
}

func inRedis(t *testing.T) *replicated {
	t.Helper()
	server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
	if !testenv.Available(t, err) {
		return nil
	}
	return behindProxies(t, server, func(url string) (gatestore.Store, error) {
		return redisstore.Open(context.WithoutCancel(t.Context()), redisstore.Options{URL: url, Timeout: 2 * time.Second})
	})
}

// behindProxies opens three handles on a server, each through its own proxy.
func behindProxies(t *testing.T, db database, open func(url string) (gatestore.Store, error)) *replicated {
	t.Helper()
	t.Cleanup(func() { _ = db.Stop() })
	r := &replicated{}
	for range 3 {
		link, err := testenv.StartProxy(t.Context(), db.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = link.Close() })
		s, err := open(strings.Replace(db.URL(), db.Addr(), link.Addr(), 1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		r.handles = append(r.handles, func() gatestore.Store { return s })
		r.disturb = append(r.disturb, func(ctx context.Context, dice func(int) int) {
			link.Set(faults[dice(len(faults))])
			pauseFor(ctx, time.Duration(50+dice(400))*time.Millisecond)
			link.Heal()
			if dice(2) == 0 {
				link.Cut()
			}
		})
	}
	r.disturb = append(r.disturb, func(ctx context.Context, dice func(int) int) {
		pauseFor(ctx, time.Duration(1000+dice(2000))*time.Millisecond)
		if err := db.Crash(); err != nil {
			t.Error(err)
		}
		if err := db.Start(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return r
}
