// Package ownstore is a store for one process. It keeps each task in a file.
package ownstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Store keeps tasks in a directory.
type Store struct {
	Dir string
	mu  sync.Mutex
}

func (s *Store) file(id task.ID) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(id)))) // safe for any id
}

// write replaces the file of a task in one step, and returns when the task is on disk.
func (s *Store) write(t task.Task) error {
	text, err := storekit.Encode(t)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(s.Dir, "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), s.file(t.ID))
}

func (s *Store) all(ctx context.Context) ([]task.Task, error) {
	files, err := filepath.Glob(filepath.Join(s.Dir, "*.json"))
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	tasks := make([]task.Task, len(files))
	for i, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if tasks[i], err = storekit.Decode(text); err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, _ ...task.Note) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks, err := s.all(ctx)
	if err != nil {
		return err
	}
	var load task.Load
	for _, other := range tasks {
		if other.ID == t.ID {
			return task.AnyOwner().Ref(t.ID).Exists()
		}
		load.Add(other, t)
	}
	if err := limits.Check(t, load); err != nil {
		return err
	}
	return s.write(t)
}

// Get implements [task.Store].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	text, err := os.ReadFile(s.file(ref.ID))
	if errors.Is(err, os.ErrNotExist) {
		err = ref.NotFound(action.Get)
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return task.Task{}, err
	}
	t, err := storekit.Decode(text)
	if err = errors.Join(err, ref.Check(t.Owner, action.Get)); err != nil {
		return task.Task{}, err
	}
	return t, nil
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, _ ...task.Note) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.Get(ctx, task.AnyOwner().Ref(t.ID))
	if err != nil {
		return err
	}
	if old.Version != t.Version-1 {
		return task.AnyOwner().Ref(t.ID).VersionConflict(old.State)
	}
	return s.write(t)
}

// List implements [task.Store].
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	tasks, err := s.all(ctx)
	if err != nil {
		return task.Page{}, err
	}
	return q.PageOf(tasks)
}

// Overdue implements [task.Store].
func (s *Store) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	tasks, err := s.all(ctx)
	tasks = slices.DeleteFunc(tasks, func(t task.Task) bool { return t.State.Terminal() || !t.Due().Before(at) })
	slices.SortFunc(tasks, func(a, b task.Task) int { return a.Due().Compare(b.Due()) })
	return tasks[:min(limit, len(tasks))], err
}

// Close implements [task.Store]. There is nothing to free.
func (s *Store) Close() error { return nil }

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (swept int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tasks, err := s.all(ctx)
	for _, t := range tasks {
		if err != nil || swept == limit {
			break
		}
		if t.State.Terminal() && t.Due().Before(before) {
			err = os.Remove(s.file(t.ID))
			swept++
		}
	}
	return swept, err
}
