package gatestoretest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// blobFaults are faults of WriteChunk and ReadChunk.
var blobFaults = map[string]func(*faulty){
	"sweep leaves the blobs": blobsStay,
	"chunks are appended": func(f *faulty) {
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			old, err := f.good.ReadChunk(ctx, r, n)
			if err != nil || len(old)+len(data) > task.ChunkSize {
				return f.good.WriteChunk(ctx, r, n, data)
			}
			return f.good.WriteChunk(ctx, r, n, append(old, data...))
		}
	},
	"chunks are kept by order of writing": func(f *faulty) {
		next := make(map[task.ID]int)
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if n >= 0 {
				n = next[r.ID]
			}
			next[r.ID]++
			return f.good.WriteChunk(ctx, r, n, data)
		}
	},
	"chunks are shared by all tasks": func(f *faulty) {
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			page, err := f.good.List(ctx, task.Query{Scope: task.AnyOwner(), Limit: 100})
			for _, t := range page.Tasks {
				_ = f.good.WriteChunk(ctx, task.AnyOwner().Ref(t.ID), n, data)
			}
			if err != nil {
				return err
			}
			return f.good.WriteChunk(ctx, r, n, data)
		}
	},
	"chunks ignore owners": func(f *faulty) {
		f.read = func(ctx context.Context, r task.Ref, n int) ([]byte, error) {
			return f.good.ReadChunk(ctx, task.AnyOwner().Ref(r.ID), n)
		}
	},
	"WriteChunk ignores owners": func(f *faulty) {
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			return f.good.WriteChunk(ctx, task.AnyOwner().Ref(r.ID), n, data)
		}
	},
	"missing chunks are empty": func(f *faulty) {
		f.read = func(ctx context.Context, r task.Ref, n int) ([]byte, error) {
			data, err := f.good.ReadChunk(ctx, r, n)
			if _, known := f.good.Get(ctx, r); known == nil {
				err = nil
			}
			return data, err
		}
	},
	"chunks are cut": func(f *faulty) {
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			return f.good.WriteChunk(ctx, r, n, data[:min(len(data), task.ChunkSize-1)])
		}
	},
	"chunks are text": func(f *faulty) {
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			return f.good.WriteChunk(ctx, r, n, []byte(strings.ToValidUTF8(string(data), "?")))
		}
	},
	"chunks share the caller's memory": func(f *faulty) {
		kept := make(map[string][]byte)
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			kept[fmt.Sprint(r.ID, n)] = data
			return f.good.WriteChunk(ctx, r, n, data)
		}
		f.read = func(ctx context.Context, r task.Ref, n int) ([]byte, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			data, err := f.good.ReadChunk(ctx, r, n)
			if k := kept[fmt.Sprint(r.ID, n)]; err == nil && len(k) == len(data) {
				return k, nil
			}
			return data, err
		}
	},
	"invalid chunks are accepted": func(f *faulty) {
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			err := f.good.WriteChunk(ctx, r, n, data)
			if _, unknown := f.good.Get(ctx, r); unknown == nil && ctx.Err() == nil {
				return nil
			}
			return err
		}
	},
	"chunks of unknown tasks are accepted": func(f *faulty) {
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			err := f.good.WriteChunk(ctx, r, n, data)
			if _, known := f.good.Get(ctx, task.AnyOwner().Ref(r.ID)); known != nil && ctx.Err() == nil {
				return nil
			}
			return err
		}
	},
	"chunks are read while they are written": func(f *faulty) {
		f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
			if len(data) > 1 {
				if err := f.good.WriteChunk(ctx, r, n, data[:len(data)/2]); err != nil {
					return err
				}
				for range 50 {
					runtime.Gosched()
				}
			}
			return f.good.WriteChunk(ctx, r, n, data)
		}
	},
}

// blobsStay keeps the chunks when their task is deleted.
func blobsStay(f *faulty) {
	kept := make(map[string][]byte)
	f.write = func(ctx context.Context, r task.Ref, n int, data []byte) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		err := f.good.WriteChunk(ctx, r, n, data)
		if err == nil {
			kept[fmt.Sprint(r.ID, n)] = slices.Clone(data)
		}
		return err
	}
	f.read = func(ctx context.Context, r task.Ref, n int) ([]byte, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, err := f.good.Get(ctx, r); err != nil {
			return nil, err
		}
		if data, ok := kept[fmt.Sprint(r.ID, n)]; ok {
			return slices.Clone(data), nil
		}
		return nil, r.ChunkMissing(n)
	}
}
