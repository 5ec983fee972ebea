package gatestoretest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// history runs a history on a store, with a fault if one is given.
func history(t *testing.T, long time.Duration, fault func(*faulty)) (gatestoretest.Account, error) {
	t.Helper()
	good := memstore.New(memstore.Options{})
	t.Cleanup(func() { good.Close() })
	broken := sound(good)
	if fault != nil {
		fault(broken)
	}
	h := gatestoretest.History{Stores: []func() gatestore.Store{func() gatestore.Store { return broken }}, Long: long, Seed: uint64(time.Now().UnixNano())}
	return h.Check(t.Context())
}

// One order of events explains the history of memstore.
func TestCheckerExplainsGoodStore(t *testing.T) {
	seen, err := history(t, 2*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	if seen.Tasks < 3 || seen.Unknown > seen.Operations/2 {
		t.Errorf("%+v: too few attempts for a proof", seen)
	}
	t.Logf("%+v", seen)
}

// The checker detects each of these faults.
func TestCheckerDetectsFaults(t *testing.T) {
	for name, fault := range map[string]func(*faulty){
		"swap does not compare versions": func(f *faulty) {
			f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
				for {
					err := f.good.Swap(ctx, t, n...)
					if !errors.Is(err, task.ErrConcurrentModification) {
						return err
					}
					old, err := f.good.Get(ctx, task.AnyOwner().Ref(t.ID))
					if err != nil {
						return err
					}
					t.Version = old.Version + 1
				}
			}
		},
		"swap loses some changes": func(f *faulty) {
			n := 0
			f.swap = func(ctx context.Context, t task.Task, notes ...task.Note) error {
				f.mu.Lock()
				n++
				lost := n%7 == 0
				f.mu.Unlock()
				if lost {
					return nil
				}
				return f.good.Swap(ctx, t, notes...)
			}
		},
		"get is a version behind": func(f *faulty) {
			var mu sync.Mutex
			last := make(map[task.ID]task.Task)
			f.get = func(ctx context.Context, r task.Ref) (task.Task, error) {
				now, err := f.good.Get(ctx, r)
				mu.Lock()
				defer mu.Unlock()
				before, known := last[r.ID]
				if err == nil {
					last[r.ID] = now
				}
				if known && err == nil {
					return before, nil
				}
				return now, err
			}
		},
		"a refused swap was made": func(f *faulty) {
			f.swap = func(ctx context.Context, t task.Task, notes ...task.Note) error {
				if err := f.good.Swap(ctx, t, notes...); err != nil || t.State != task.Approved {
					return err
				}
				return &task.Error{Kind: task.ErrInvalidTransition, ID: t.ID}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := history(t, 30*time.Second, fault)
			if err == nil || !strings.Contains(err.Error(), "no order of events") {
				t.Errorf("err = %v; want an error", err)
			}
		})
	}
}
