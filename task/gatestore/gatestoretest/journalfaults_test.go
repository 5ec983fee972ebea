package gatestoretest_test

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
)

// journalFaults are faults of the journal.
var journalFaults = map[string]func(*faulty){
	"create loses notes": func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, _ ...task.Note) error {
			return f.good.Create(ctx, t, l)
		}
	},
	"swap loses notes": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, _ ...task.Note) error { return f.good.Swap(ctx, t) }
	},
	"refused creations leave notes": func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			if err := f.good.Append(ctx, n...); err != nil {
				return err
			}
			return f.good.Create(ctx, t, l)
		}
	},
	"refused swaps leave notes": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			if err := f.good.Append(ctx, n...); err != nil {
				return err
			}
			return f.good.Swap(ctx, t)
		}
	},
	"create succeeds when its notes are refused": func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			err := f.good.Create(ctx, t, l)
			if err == nil {
				err = f.good.Append(ctx, n...)
			}
			return err
		}
	},
	"swap succeeds when its notes are refused": func(f *faulty) {
		f.swap = func(ctx context.Context, t task.Task, n ...task.Note) error {
			err := f.good.Swap(ctx, t)
			if err == nil {
				err = f.good.Append(ctx, n...)
			}
			return err
		}
	},
	"append keeps the valid part of its notes": func(f *faulty) {
		f.append = func(ctx context.Context, notes ...task.Note) error {
			for _, n := range notes {
				if err := f.good.Append(ctx, n); err != nil {
					return err
				}
			}
			return nil
		}
	},
	"append loses the order": func(f *faulty) {
		f.append = func(ctx context.Context, notes ...task.Note) error {
			notes = slices.Clone(notes)
			slices.Reverse(notes)
			return f.good.Append(ctx, notes...)
		}
	},
	"append loses microseconds": func(f *faulty) {
		f.append = func(ctx context.Context, notes ...task.Note) error {
			notes = slices.Clone(notes)
			for i := range notes {
				notes[i].At = notes[i].At.Truncate(time.Millisecond)
			}
			return f.good.Append(ctx, notes...)
		}
	},
	"append of no notes adds one": func(f *faulty) {
		f.append = func(ctx context.Context, notes ...task.Note) error {
			return f.good.Append(ctx, append(notes, task.Note{At: time.Unix(0, 0), Step: "called"})...)
		}
	},
	"the journal loses a field":      changeEntries(func(e *auditlog.Entry) { e.Outcome = "" }),
	"the journal loses a time zone":  changeEntries(func(e *auditlog.Entry) { e.At = e.At.In(time.FixedZone("here", 3600)) }),
	"the journal counts from zero":   changeEntries(func(e *auditlog.Entry) { e.Seq-- }),
	"the journal forgets its hashes": changeEntries(func(e *auditlog.Entry) { e.Prev = auditlog.Hash{} }),
	"writers chain to the same head": func(f *faulty) {
		f.entries = func(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
			var head auditlog.Link
			entries, err := f.good.Entries(ctx, q)
			for i, e := range entries {
				if i%2 == 0 {
					head = e.Link()
					continue
				}
				entries[i] = auditlog.Link{Seq: e.Seq - 1, Hash: head.Hash}.Next(e.Note)
			}
			return entries, err
		}
	},
	"entries appear twice": func(f *faulty) {
		f.entries = func(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
			q.After = max(0, q.After-1)
			return f.good.Entries(ctx, q)
		}
	},
	"pages have any size": func(f *faulty) {
		f.entries = func(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
			q.Limit = 1000
			return f.good.Entries(ctx, q)
		}
	},
	"notes of one task have no pages": func(f *faulty) {
		f.entries = func(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
			if q.Task != "" {
				q.After, q.Limit = 0, 0
			}
			return f.good.Entries(ctx, q)
		}
	},
	"notes of one task include those of others": func(f *faulty) {
		f.entries = func(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
			q.Task = ""
			return f.good.Entries(ctx, q)
		}
	},
	"notes are deleted with their task": func(f *faulty) {
		f.entries = func(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
			if q.Task != "" {
				if _, err := f.good.Get(ctx, task.AnyOwner().Ref(q.Task)); err != nil {
					return nil, nil
				}
			}
			return f.good.Entries(ctx, q)
		}
	},
	"the head lags behind": func(f *faulty) {
		last := auditlog.Ends{}
		f.ends = func(ctx context.Context) (auditlog.Ends, error) {
			now, err := f.good.Ends(ctx)
			before := last
			last = now
			return before, err
		}
	},
	"the anchor is forgotten": func(f *faulty) {
		f.ends = func(ctx context.Context) (auditlog.Ends, error) {
			ends, err := f.good.Ends(ctx)
			ends.Anchor = auditlog.Link{}
			return ends, err
		}
	},
	"notes of a change are not adjacent": func(f *faulty) {
		f.create = func(ctx context.Context, t task.Task, l task.Limits, n ...task.Note) error {
			if len(n) < 2 {
				return f.good.Create(ctx, t, l, n...)
			}
			err := f.good.Create(ctx, t, l, n[1:]...)
			runtime.Gosched()
			if err == nil {
				err = f.good.Append(ctx, n[0])
			}
			return err
		}
	},
	"trim removes old entries in the middle": func(f *faulty) {
		f.trim = func(ctx context.Context, before time.Time, n int) (int, error) {
			return f.good.Trim(ctx, before.Add(3*time.Second), n)
		}
	},
	"trim ignores the limit": func(f *faulty) {
		f.trim = func(ctx context.Context, before time.Time, _ int) (int, error) { return f.good.Trim(ctx, before, 1000) }
	},
	"trim removes nothing": func(f *faulty) {
		f.trim = func(ctx context.Context, _ time.Time, _ int) (int, error) { return 0, ctx.Err() }
	},
	"trim counts entries that others removed": func(f *faulty) {
		f.trim = func(ctx context.Context, before time.Time, n int) (int, error) {
			ends, err := f.good.Ends(ctx)
			if err != nil {
				return 0, err
			}
			runtime.Gosched()
			if _, err := f.good.Trim(ctx, before, n); err != nil {
				return 0, err
			}
			after, err := f.good.Ends(ctx)
			return int(after.Anchor.Seq - ends.Anchor.Seq), err
		}
	},
	"an emptied journal starts a new chain": func(f *faulty) {
		f.entries = func(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
			entries, err := f.good.Entries(ctx, q)
			ends, _ := f.good.Ends(ctx)
			for i := range entries {
				entries[i].Seq -= ends.Anchor.Seq
			}
			return entries, err
		}
	},
}

func changeEntries(change func(*auditlog.Entry)) func(*faulty) {
	return func(f *faulty) {
		f.entries = func(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
			entries, err := f.good.Entries(ctx, q)
			for i := range entries {
				change(&entries[i])
			}
			return entries, err
		}
	}
}
