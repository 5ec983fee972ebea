package gatestoretest_test

import (
	"context"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// watchFaults are faults of Watch and Close.
var watchFaults = map[string]func(*faulty){
	"watch never notifies": changeWatch(func(_ context.Context, _ *faulty, _ task.Ref, good <-chan struct{}) <-chan struct{} {
		return relay(good, func() bool { return false })
	}),
	"watch notifies once": changeWatch(func(_ context.Context, _ *faulty, _ task.Ref, good <-chan struct{}) <-chan struct{} {
		told := 0
		return relay(good, func() bool { told++; return told == 1 })
	}),
	"watch notifies late": changeWatch(func(ctx context.Context, _ *faulty, _ task.Ref, good <-chan struct{}) <-chan struct{} {
		return relay(good, func() bool {
			select {
			case <-time.After(150 * time.Millisecond):
			case <-ctx.Done():
			}
			return true
		})
	}),
	"watch does not end": changeWatch(func(_ context.Context, _ *faulty, _ task.Ref, good <-chan struct{}) <-chan struct{} {
		endless := make(chan struct{}, 1)
		go func() {
			for range good {
				select {
				case endless <- struct{}{}:
				default:
				}
			}
		}()
		return endless
	}),
	"watch notifies one watcher": changeWatch(func(_ context.Context, f *faulty, _ task.Ref, good <-chan struct{}) <-chan struct{} {
		f.watches++
		mine := f.watches
		return relay(good, func() bool { return f.watches == mine })
	}),
	"watch ignores scopes": func(f *faulty) {
		f.watch = func(ctx context.Context, r task.Ref) (<-chan struct{}, error) {
			if r.ID == "" {
				r.ID = "tg_nobody"
			}
			return f.good.Watch(ctx, r)
		}
	},
	"watch does not notify of deletions": changeWatch(func(_ context.Context, f *faulty, ref task.Ref, good <-chan struct{}) <-chan struct{} {
		return relay(good, func() bool {
			_, err := f.good.Get(context.Background(), task.AnyOwner().Ref(ref.ID))
			return err == nil || ref.ID == ""
		})
	}),
	"watch blocks writers": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			if t.Version > 60 {
				return context.DeadlineExceeded
			}
			return f.good.Swap(ctx, t, n...)
		}
	},
	"contexts are ignored":      ignoreContexts,
	"close does nothing":        func(f *faulty) { f.close = func() error { return nil } },
	"close fails a second time": closeOnce,
}

func changeWatch(change func(context.Context, *faulty, task.Ref, <-chan struct{}) <-chan struct{}) func(*faulty) {
	return func(f *faulty) {
		f.watch = func(ctx context.Context, r task.Ref) (<-chan struct{}, error) {
			good, err := f.good.Watch(ctx, r)
			if err != nil {
				return nil, err
			}
			return change(ctx, f, r, good), nil
		}
	}
}

// relay forwards notifications of good if tell reports true, and ends when good does.
func relay(good <-chan struct{}, tell func() bool) <-chan struct{} {
	told := make(chan struct{}, 1)
	go func() {
		defer close(told)
		for range good {
			if !tell() {
				continue
			}
			select {
			case told <- struct{}{}:
			default:
			}
		}
	}()
	return told
}

func ignoreContexts(f *faulty) {
	on := context.Background()
	f.create = func(_ context.Context, t task.Task, l task.Limits, n ...task.Note) error {
		return f.good.Create(on, t, l, n...)
	}
	f.get = func(_ context.Context, r task.Ref) (task.Task, error) { return f.good.Get(on, r) }
	f.swap = func(_ context.Context, t task.Task, n ...task.Note) error { return f.good.Swap(on, t, n...) }
	f.append = func(_ context.Context, n ...task.Note) error { return f.good.Append(on, n...) }
}

func closeOnce(f *faulty) {
	closed := false
	f.close = func() error {
		if closed {
			return task.ErrClosed
		}
		closed = true
		return f.good.Close()
	}
}
