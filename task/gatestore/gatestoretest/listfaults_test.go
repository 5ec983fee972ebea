package gatestoretest_test

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// listFaults are faults of List, Overdue and Sweep.
var listFaults = map[string]func(*faulty){
	"list has no limit":                      changeList(func(q *task.Query) { q.Limit = 100 }, nil),
	"list ignores owners":                    changeList(func(q *task.Query) { q.Scope = task.AnyOwner() }, nil),
	"list ignores states":                    changeList(func(q *task.Query) { q.States = nil }, nil),
	"list ignores digests":                   changeList(func(q *task.Query) { q.Digest = task.Digest{} }, nil),
	"list ignores cursors":                   changeList(func(q *task.Query) { q.Cursor = "" }, nil),
	"list ignores owed cancellations":        changeList(func(q *task.Query) { q.OwesCancellation = false }, nil),
	"list omits owed cancellations":          changeList(nil, func(p *task.Page) { p.Tasks = slices.DeleteFunc(p.Tasks, task.Task.OwesCancellation) }),
	"list has whole heads":                   changeList(func(q *task.Query) { q.Heads = false }, nil),
	"list has whole outlines":                changeList(func(q *task.Query) { q.Outlines = false }, nil),
	"list is oldest first":                   changeList(nil, func(p *task.Page) { slices.Reverse(p.Tasks) }),
	"list omits the cursor of the next page": changeList(nil, func(p *task.Page) { p.Next = "" }),
	"list has no last page":                  changeList(nil, func(p *task.Page) { p.Next += "A"[min(len(p.Next), 1):] }),
	"list skips a task":                      changeList(nil, func(p *task.Page) { p.Tasks = p.Tasks[min(len(p.Tasks), 1):] }),
	"list repeats a task":                    changeList(nil, func(p *task.Page) { p.Tasks = append(p.Tasks, p.Tasks[:min(len(p.Tasks), 1)]...) }),
	"list orders by ID":                      changeList(nil, func(p *task.Page) { slices.SortFunc(p.Tasks, byID) }),
	"list ignores case in its order":         changeList(nil, func(p *task.Page) { slices.SortStableFunc(p.Tasks, ignoringCase) }),
	"list counts offsets":                    offsets,
	"list trusts cursors":                    trusting,
	"list hands out its own memory": func(f *faulty) {
		f.list = func(ctx context.Context, q task.Query) (task.Page, error) {
			page, err := f.good.List(ctx, q)
			f.get = func(ctx context.Context, r task.Ref) (task.Task, error) {
				for _, t := range page.Tasks {
					if t.ID == r.ID {
						return t, nil
					}
				}
				return f.good.Get(ctx, r)
			}
			return page, err
		}
	},
	"list keeps the state at creation": func(f *faulty) {
		f.list = func(ctx context.Context, q task.Query) (task.Page, error) {
			if len(q.States) > 0 && !slices.Contains(q.States, task.Working) {
				return task.Page{}, nil
			}
			q.States = nil
			return f.good.List(ctx, q)
		}
	},
	"overdue finds nothing": changeOverdue(func(time.Time, []task.Task) []task.Task { return nil }),
	"overdue is late by the smallest unit": func(f *faulty) {
		f.overdue = func(ctx context.Context, at time.Time, n int) ([]task.Task, error) {
			return f.good.Overdue(ctx, at.Add(time.Microsecond), n)
		}
	},
	"overdue has no limit": func(f *faulty) {
		f.overdue = func(ctx context.Context, at time.Time, _ int) ([]task.Task, error) {
			return f.good.Overdue(ctx, at, 1000)
		}
	},
	"overdue is in no order": changeOverdue(func(_ time.Time, found []task.Task) []task.Task { slices.Reverse(found); return found }),
	"overdue finds ended tasks": func(f *faulty) {
		f.overdue = func(ctx context.Context, at time.Time, n int) ([]task.Task, error) {
			page, err := f.good.List(ctx, task.Query{Scope: task.AnyOwner(), Limit: 100})
			found := slices.DeleteFunc(page.Tasks, func(t task.Task) bool { return !t.Due().Before(at) })
			slices.SortFunc(found, func(a, b task.Task) int { return a.Due().Compare(b.Due()) })
			return found[:min(n, len(found))], err
		}
	},
	"overdue only checks the TTL": changeOverdue(func(at time.Time, found []task.Task) []task.Task {
		return slices.DeleteFunc(found, func(t task.Task) bool { return !t.ExpiresAt.Before(at) })
	}),
	"overdue hands out its own memory": func(f *faulty) {
		f.overdue = func(ctx context.Context, at time.Time, n int) ([]task.Task, error) {
			found, err := f.good.Overdue(ctx, at, n)
			if n == 10 && len(found) == 1 { // except for SettleOverdue, which many replicas call at the same time
				f.get = func(context.Context, task.Ref) (task.Task, error) { return found[0], nil }
			}
			return found, err
		}
	},
	"sweep deletes nothing": func(f *faulty) {
		f.sweep = func(context.Context, time.Time, int) (int, error) { return 0, nil }
	},
	"sweep deletes too early": func(f *faulty) {
		f.sweep = func(ctx context.Context, before time.Time, n int) (int, error) {
			return f.good.Sweep(ctx, before.Add(time.Microsecond), n)
		}
	},
	"reclaim deletes nothing": func(f *faulty) {
		f.reclaim = func(context.Context, string, int) (int, error) { return 0, nil }
	},
	"reclaim ignores accounts": func(f *faulty) {
		f.reclaim = func(ctx context.Context, _ string, n int) (int, error) {
			return f.good.Reclaim(ctx, "", n)
		}
	},
	"reclaim deletes all ended tasks": func(f *faulty) {
		f.reclaim = func(ctx context.Context, _ string, n int) (int, error) {
			return f.good.Sweep(ctx, time.Now().Add(100_000*time.Hour), n)
		}
	},
	"reclaim counts tasks that others deleted": func(f *faulty) {
		f.reclaim = func(ctx context.Context, account string, n int) (int, error) {
			deleted, err := f.good.Reclaim(ctx, account, n)
			return max(deleted, min(n, 1)), err
		}
	},
	"sweep has no limit": func(f *faulty) {
		f.sweep = func(ctx context.Context, before time.Time, _ int) (int, error) {
			return f.good.Sweep(ctx, before, 1000)
		}
	},
	"sweep deletes pending tasks": func(f *faulty) {
		f.sweep = func(ctx context.Context, before time.Time, n int) (int, error) {
			for {
				ended, err := lifecycle.Updater{Store: f.good}.SettleOverdue(ctx, "fault", before)
				if err != nil || len(ended) == 0 {
					return f.good.Sweep(ctx, before.Add(24*time.Hour), n)
				}
			}
		}
	},
	"sweep counts tasks that others deleted": func(f *faulty) {
		f.sweep = func(ctx context.Context, before time.Time, n int) (int, error) {
			page, err := f.good.List(ctx, task.Query{Scope: task.AnyOwner(), States: []task.State{task.Failed}, Limit: 100})
			if err != nil {
				return 0, err
			}
			old := slices.DeleteFunc(page.Tasks, func(t task.Task) bool { return !t.Due().Before(before) })
			runtime.Gosched()
			_, err = f.good.Sweep(ctx, before, n)
			return min(n, len(old)), err
		}
	},
}

func changeList(question func(*task.Query), answer func(*task.Page)) func(*faulty) {
	return func(f *faulty) {
		f.list = func(ctx context.Context, q task.Query) (task.Page, error) {
			if question != nil {
				question(&q)
			}
			page, err := f.good.List(ctx, q)
			if answer != nil {
				answer(&page)
			}
			return page, err
		}
	}
}

func changeOverdue(change func(time.Time, []task.Task) []task.Task) func(*faulty) {
	return func(f *faulty) {
		f.overdue = func(ctx context.Context, at time.Time, n int) ([]task.Task, error) {
			found, err := f.good.Overdue(ctx, at, n)
			return change(at, found), err
		}
	}
}

func byID(a, b task.Task) int { return cmp.Compare(a.ID, b.ID) }

func ignoringCase(a, b task.Task) int {
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(strings.ToLower(string(a.ID)), strings.ToLower(string(b.ID))))
}

// offsets uses the number of preceding tasks as cursor.
func offsets(f *faulty) {
	f.list = func(ctx context.Context, q task.Query) (task.Page, error) {
		skip := 0
		if q.Cursor != "" {
			before := q
			if _, err := q.Position(); err != nil {
				return task.Page{}, err
			}
			before.Cursor, before.Limit = "", 100
			page, err := f.good.List(ctx, before)
			if err != nil {
				return task.Page{}, err
			}
			f.mu.Lock()
			skip = f.offsets[q.Cursor]
			f.mu.Unlock()
			page.Tasks = page.Tasks[min(skip, len(page.Tasks)):]
			return f.cut(q, page, skip), nil
		}
		page, err := f.good.List(ctx, task.Query{Scope: q.Scope, States: q.States, Digest: q.Digest, Limit: 100})
		return f.cut(q, page, skip), err
	}
}

func (f *faulty) cut(q task.Query, page task.Page, skip int) task.Page {
	if len(page.Tasks) <= q.PageSize() {
		page.Next = ""
		return page
	}
	page.Tasks = page.Tasks[:q.PageSize()]
	page.Next = q.CursorAfter(page.Tasks[len(page.Tasks)-1].Position())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.offsets == nil {
		f.offsets = make(map[string]int)
	}
	f.offsets[page.Next] = skip + q.PageSize()
	return page
}

// trusting accepts every cursor.
func trusting(f *faulty) {
	f.list = func(ctx context.Context, q task.Query) (task.Page, error) {
		if _, err := q.Position(); err != nil {
			q.Cursor = ""
		}
		return f.good.List(ctx, q)
	}
}
