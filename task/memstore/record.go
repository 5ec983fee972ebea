package memstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// PutRecord implements [gatestore.Records].
func (s *Store) PutRecord(ctx context.Context, r gatestore.Record) error {
	if err := s.check(ctx, action.PutRecord); err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.records[r.Name] // version 0 if there is none
	if old.Version != r.Version-1 {
		return r.VersionConflict()
	}
	if full := s.grow(int64(len(r.Value) - len(old.Value))); full != nil {
		full.Action = action.PutRecord
		return full
	}
	s.records[r.Name] = copied(r)
	return nil
}

// copied returns a record that shares no memory with r.
func copied(r gatestore.Record) gatestore.Record {
	r.Value = slices.Clone(r.Value)
	if !r.Expires.IsZero() {
		r.Expires = r.Expires.UTC().Truncate(time.Microsecond)
	}
	return r
}

// GetRecord implements [gatestore.Records].
func (s *Store) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	if err := s.check(ctx, action.GetRecord); err != nil {
		return gatestore.Record{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.records[name]
	if !ok {
		return gatestore.Record{}, gatestore.NoRecord(name)
	}
	return copied(r), nil
}

// DeleteRecord implements [gatestore.Records].
func (s *Store) DeleteRecord(ctx context.Context, name string) error {
	if err := s.check(ctx, action.DeleteRecord); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleteRecord(name)
	return nil
}

func (s *Store) deleteRecord(name string) {
	s.bytes -= int64(len(s.records[name].Value))
	delete(s.records, name)
}

// ListRecords implements [gatestore.Records].
func (s *Store) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	if err := s.check(ctx, action.ListRecords); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var names []string
	for name := range s.records {
		if q.Selects(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if q.Descending {
		slices.Reverse(names)
	}
	names = names[:min(max(0, q.Limit), len(names))]
	found := make([]gatestore.Record, len(names))
	for i, name := range names {
		found[i] = copied(s.records[name])
	}
	return found, nil
}

// SweepRecords implements [gatestore.Records].
func (s *Store) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := s.check(ctx, action.SweepRecords); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	swept := 0
	for name, r := range s.records {
		if swept < limit && !r.Expires.IsZero() && r.Expires.Before(before) {
			s.deleteRecord(name)
			swept++
		}
	}
	return swept, nil
}

// SizeRecords implements [gatestore.Records].
func (s *Store) SizeRecords(ctx context.Context, prefix string) (int64, error) {
	if err := s.check(ctx, action.SizeRecords); err != nil {
		return 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var size int64
	for name, r := range s.records {
		if strings.HasPrefix(name, prefix) {
			size += int64(len(r.Value))
		}
	}
	return size, nil
}
