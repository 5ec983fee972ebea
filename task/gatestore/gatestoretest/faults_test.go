package gatestoretest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// taskFaults are faults of Create, Get and Swap.
var taskFaults = map[string]func(*faulty){
	"create overwrites": func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			if old, err := f.good.Get(ctx, task.AnyOwner().Ref(t.ID)); err == nil {
				t.Version = old.Version + 1
				return f.good.Swap(ctx, t, n...)
			}
			return f.good.Create(ctx, t, l, n...)
		}
	},
	"create loses microseconds":          changeCreated(func(t *task.Task) { t.CreatedAt = t.CreatedAt.Truncate(time.Millisecond) }),
	"create loses the spelling of JSON":  changeCreated(func(t *task.Task) { t.Call.Message = strings.TrimSpace(t.Call.Message) }),
	"create cuts long requests":          changeCreated(func(t *task.Task) { t.Call.Arguments = t.Call.Arguments[:min(len(t.Call.Arguments), 1<<16)] }),
	"create ignores limits":              changeLimits(func(*task.Limits) task.Limits { return task.Limits{} }),
	"create ignores the owner's limit":   changeLimits(func(l *task.Limits) task.Limits { l.PerOwner = 0; return *l }),
	"create ignores the total limit":     changeLimits(func(l *task.Limits) task.Limits { l.Total = 0; return *l }),
	"create ignores the account's bytes": changeLimits(func(l *task.Limits) task.Limits { l.AccountBytes = 0; return *l }),
	"create counts bytes by owner": func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			if l.AccountBytes > 0 {
				t.Group = ""
			}
			return f.good.Create(ctx, t, l, n...)
		}
	},
	"create allows too few bytes": changeLimits(func(l *task.Limits) task.Limits { l.AccountBytes -= min(1, l.AccountBytes); return *l }),
	"create ignores uniqueness":   changeLimits(func(l *task.Limits) task.Limits { l.Unique = false; return *l }),
	"create allows too few tasks": changeLimits(func(l *task.Limits) task.Limits { l.PerOwner = max(0, l.PerOwner-1); return *l }),
	"create counts and adds in two steps": func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			load, err := countPending(ctx, f.good, t)
			if err == nil {
				err = l.Check(t, load)
			}
			if err != nil {
				return err
			}
			runtime.Gosched()
			return f.good.Create(ctx, t, task.Limits{}, n...)
		}
	},
	"create counts ended tasks": func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			page, err := f.good.List(ctx, task.Query{Scope: task.OwnedBy(t.Owner), Limit: 100})
			if err == nil {
				err = l.Check(t, task.Load{Owner: len(page.Tasks)})
			}
			if err != nil {
				return err
			}
			return f.good.Create(ctx, t, l, n...)
		}
	},
	"create keeps the caller's memory": func(f *faulty) {
		kept := make(map[task.ID]*task.Task)
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			kept[t.ID] = &t
			return f.good.Create(ctx, t, l, n...)
		}
		f.get = func(ctx context.Context, r task.Ref) (task.Task, error) {
			got, err := f.good.Get(ctx, r)
			f.mu.Lock()
			defer f.mu.Unlock()
			if t := kept[r.ID]; err == nil && t != nil && t.Version == got.Version {
				return *t, nil
			}
			return got, err
		}
	},
	"get hands out its own memory": func(f *faulty) {
		cache := make(map[task.ID]task.Task)
		f.get = func(ctx context.Context, r task.Ref) (task.Task, error) {
			got, err := f.good.Get(ctx, r)
			f.mu.Lock()
			defer f.mu.Unlock()
			if t, ok := cache[r.ID]; err == nil && ok && t.Version == got.Version {
				return t, nil
			}
			cache[r.ID] = got
			return got, err
		}
	},
	"get ignores owners": func(f *faulty) {
		f.get = func(ctx context.Context, r task.Ref) (task.Task, error) {
			return f.good.Get(ctx, task.AnyOwner().Ref(r.ID))
		}
	},
	"get confuses foreign and missing": func(f *faulty) {
		f.get = func(ctx context.Context, r task.Ref) (task.Task, error) {
			t, err := f.good.Get(ctx, r)
			if t.ID == "" && err != nil {
				err = r.NotFound(action.Get)
			}
			return t, err
		}
	},
	"get hides the kind of its error": func(f *faulty) {
		f.get = func(ctx context.Context, r task.Ref) (task.Task, error) {
			t, err := f.good.Get(ctx, r)
			if err != nil {
				err = fmt.Errorf("driver: %v", err) //nolint:errorlint // hiding the kind is the fault
			}
			return t, err
		}
	},
	"get drops empty values": func(f *faulty) {
		f.get = func(ctx context.Context, r task.Ref) (task.Task, error) {
			t, err := f.good.Get(ctx, r)
			if t.Variables == nil {
				t.Variables = task.Variables{}
			}
			return t, err
		}
	},
	"get ignores case": func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			t.Owner = strings.ToLower(t.Owner)
			return f.good.Create(ctx, t, l, n...)
		}
	},
	"get returns an old version": func(f *faulty) {
		seen := make(map[task.ID]task.Task)
		f.get = func(ctx context.Context, r task.Ref) (task.Task, error) {
			got, err := f.good.Get(ctx, r)
			f.mu.Lock()
			defer f.mu.Unlock()
			before, known := seen[r.ID]
			seen[r.ID] = got
			if known && err == nil && before.Version < got.Version {
				return before.Clone(), nil
			}
			return got, err
		}
	},
	"swap ignores versions": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			old, err := f.good.Get(ctx, task.AnyOwner().Ref(t.ID))
			if err != nil {
				return err
			}
			t.Version = old.Version + 1
			return f.good.Swap(ctx, t, n...)
		}
	},
	"swap accepts any later version": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			old, err := f.good.Get(ctx, task.AnyOwner().Ref(t.ID))
			if err == nil && t.Version > old.Version {
				t.Version = old.Version + 1
			}
			return f.good.Swap(ctx, t, n...)
		}
	},
	"swap compares and writes in two steps": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			old, err := f.good.Get(ctx, task.AnyOwner().Ref(t.ID))
			if err != nil || old.Version != t.Version-1 {
				return f.good.Swap(ctx, t, n...)
			}
			runtime.Gosched()
			for range 100 {
				if err = f.good.Swap(ctx, t, n...); err == nil {
					return nil
				}
				t.Version++
			}
			return err
		}
	},
	"swap creates": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			if _, err := f.good.Get(ctx, task.AnyOwner().Ref(t.ID)); err != nil && ctx.Err() == nil {
				return f.good.Create(ctx, t, task.Limits{}, n...)
			}
			return f.good.Swap(ctx, t, n...)
		}
	},
	"swap conflict omits the current task": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			err := f.good.Swap(ctx, t, n...)
			if err != nil && ctx.Err() == nil {
				if _, missing := f.good.Get(ctx, task.AnyOwner().Ref(t.ID)); missing == nil {
					return task.ErrConcurrentModification
				}
			}
			return err
		}
	},
	"swap loses unchanged fields": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			t.Failure = nil
			return f.good.Swap(ctx, t, n...)
		}
	},
	"swap never clears a field": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			if old, err := f.good.Get(ctx, task.AnyOwner().Ref(t.ID)); err == nil && t.Result == nil {
				t.Result = old.Result
			}
			return f.good.Swap(ctx, t, n...)
		}
	},
}

func changeCreated(change func(*task.Task)) func(*faulty) {
	return func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			change(&t)
			return f.good.Create(ctx, t, l, n...)
		}
	}
}

func changeLimits(change func(*task.Limits) task.Limits) func(*faulty) {
	return func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			return f.good.Create(ctx, t, change(&l), n...)
		}
	}
}

func countPending(ctx context.Context, s *memstore.Store, t task.Task) (task.Load, error) {
	q := task.Query{Scope: task.AnyOwner(), States: task.Pending(), Limit: 100}
	all, err := s.List(ctx, q)
	load := task.Load{Total: len(all.Tasks)}
	for _, other := range all.Tasks {
		if t.Group != "" && other.Group != "" {
			load.Grouped++
		}
		if t.Group != "" && other.Group == t.Group {
			load.Group++
		}
		if other.Owner != t.Owner {
			continue
		}
		load.Owner++
		if other.Digest == t.Digest {
			load.Duplicate = other.ID
		}
	}
	return load, err
}
