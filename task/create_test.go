package task_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A creatingStore calls functions of a test for the nth creation or read of a task.
type creatingStore struct {
	task.Store

	create func(n int, add func() error) error
	get    func(n int) error
	tries  int
	looks  int
}

func (s *creatingStore) Create(ctx context.Context, t task.Task, l task.Limits, notes ...task.Note) error {
	s.tries++
	return s.create(s.tries, func() error { return s.Store.Create(context.WithoutCancel(ctx), t, l, notes...) })
}

func (s *creatingStore) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	s.looks++
	if s.get != nil {
		if err := s.get(s.looks); err != nil {
			return task.Task{}, err
		}
	}
	return s.Store.Get(ctx, ref)
}

var lost = &task.Error{Kind: task.ErrUnavailable}

// Create finds out whether a task was added when the store's error leaves it open. An error
// means that no task exists.
func TestCreateLearnsUnknownOutcome(t *testing.T) {
	limited := &task.Error{Kind: task.ErrRateLimited}
	full := &task.Error{Kind: task.ErrUnavailable, Err: &task.Error{Kind: task.ErrCapacityExceeded, Err: errors.New("disk full")}}
	refused := &task.Error{Kind: task.ErrUnavailable, NotAttempted: true}
	for name, tt := range map[string]struct {
		create func(n int, add func() error) error
		get    func(n int) error
		want   error // nil if the task exists
		maybe  bool
		tries  int
	}{
		"the answer is lost": {
			create: func(_ int, add func() error) error { return errors.Join(add(), lost) }, tries: 1,
		},
		"the answer is lost, and the store cannot be read at first": {
			create: func(_ int, add func() error) error { return errors.Join(add(), lost) },
			get: func(n int) error {
				if n < 4 {
					return lost
				}
				return nil
			}, tries: 1,
		},
		"nothing was created": {
			create: func(n int, add func() error) error {
				if n == 1 {
					return lost
				}
				return add()
			}, tries: 2,
		},
		"it is created after the store was read": {
			create: func(n int, add func() error) error {
				if n == 1 {
					return lost
				}
				return errors.Join(add(), add())
			}, tries: 2,
		},
		"the second answer is lost as well": {
			create: func(n int, add func() error) error {
				if n == 1 {
					return lost
				}
				return errors.Join(add(), lost)
			}, tries: 2,
		},
		"it is refused the second time": {
			create: func(n int, _ func() error) error {
				if n == 1 {
					return lost
				}
				return limited
			}, want: limited, tries: 2,
		},
		"it fails twice":          {create: func(int, func() error) error { return lost }, want: lost, maybe: true, tries: 2},
		"the store is gone":       {create: func(int, func() error) error { return lost }, get: func(int) error { return lost }, want: lost, maybe: true, tries: 1},
		"the store was not asked": {create: func(int, func() error) error { return refused }, want: refused, tries: 1},
		"the store is full":       {create: func(int, func() error) error { return full }, want: full, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &creatingStore{Store: memstore.New(memstore.Options{}), create: tt.create, get: tt.get}
				made := newTask(t)
				err := storekit.Create(t.Context(), s, made, task.Limits{Unique: true})
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || errors.Is(err, storekit.ErrMaybeCreated) != tt.maybe || s.tries != tt.tries {
					t.Errorf("Create: %v after %d tries; want %v after %d", err, s.tries, tt.want, tt.tries)
				}
				if _, err := s.Store.Get(t.Context(), task.OwnedBy(made.Owner).Ref(made.ID)); (err == nil) != (tt.want == nil) {
					t.Errorf("the store has the task: %v", err)
				}
			})
		})
	}
}

// Create finds out whether a task was added even if the client leaves meanwhile.
func TestCreateLearnsOutcomeAfterClientLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		s := &creatingStore{Store: memstore.New(memstore.Options{}), create: func(_ int, add func() error) error {
			leave()
			return errors.Join(add(), ctx.Err())
		}}
		if err := storekit.Create(ctx, s, newTask(t), task.Limits{}); err != nil {
			t.Errorf("Create: %v; the store has the task", err)
		}
		if err := storekit.Create(ctx, s, newTask(t), task.Limits{}); !errors.Is(err, context.Canceled) || s.tries != 1 {
			t.Errorf("after the client left: %v after %d tries", err, s.tries)
		}
	})
}
