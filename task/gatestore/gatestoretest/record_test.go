package gatestoretest_test

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// brokenRecords replace the methods whose fields are set.
type brokenRecords struct {
	gatestore.Records
	put   func(gatestore.Records, context.Context, gatestore.Record) error
	get   func(gatestore.Records, context.Context, string) (gatestore.Record, error)
	erase func(gatestore.Records, context.Context, string) error
	list  func(gatestore.Records, context.Context, gatestore.RecordQuery) ([]gatestore.Record, error)
	sweep func(gatestore.Records, context.Context, time.Time, int) (int, error)
	size  func(gatestore.Records, context.Context, string) (int64, error)
}

func (b brokenRecords) PutRecord(ctx context.Context, r gatestore.Record) error {
	if b.put == nil {
		return b.Records.PutRecord(ctx, r)
	}
	return b.put(b.Records, ctx, r)
}

func (b brokenRecords) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	if b.get == nil {
		return b.Records.GetRecord(ctx, name)
	}
	return b.get(b.Records, ctx, name)
}

func (b brokenRecords) DeleteRecord(ctx context.Context, name string) error {
	if b.erase == nil {
		return b.Records.DeleteRecord(ctx, name)
	}
	return b.erase(b.Records, ctx, name)
}

func (b brokenRecords) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	if b.list == nil {
		return b.Records.ListRecords(ctx, q)
	}
	return b.list(b.Records, ctx, q)
}

func (b brokenRecords) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	if b.sweep == nil {
		return b.Records.SweepRecords(ctx, before, limit)
	}
	return b.sweep(b.Records, ctx, before, limit)
}

func (b brokenRecords) SizeRecords(ctx context.Context, prefix string) (int64, error) {
	if b.size == nil {
		return b.Records.SizeRecords(ctx, prefix)
	}
	return b.size(b.Records, ctx, prefix)
}

func brokenBy(b brokenRecords) func(*faulty) {
	return func(f *faulty) {
		own := b // several tests break their stores at the same time
		own.Records = f.good
		f.Records = own
	}
}

var recordFaults = map[string]func(*faulty){
	"put ignores the version of a record": brokenBy(brokenRecords{put: func(s gatestore.Records, ctx context.Context, r gatestore.Record) error {
		err := s.PutRecord(ctx, r)
		if errors.Is(err, task.ErrConcurrentModification) {
			return nil
		}
		return err
	}}),
	"put ignores the size of a record": brokenBy(brokenRecords{put: func(s gatestore.Records, ctx context.Context, r gatestore.Record) error {
		err := s.PutRecord(ctx, r)
		if errors.Is(err, task.ErrInvalid) {
			return nil
		}
		return err
	}}),
	"a record loses its expiry": brokenBy(brokenRecords{put: func(s gatestore.Records, ctx context.Context, r gatestore.Record) error {
		r.Expires = time.Time{}
		return s.PutRecord(ctx, r)
	}}),
	"a missing record is an empty one": brokenBy(brokenRecords{get: func(s gatestore.Records, ctx context.Context, name string) (gatestore.Record, error) {
		r, err := s.GetRecord(ctx, name)
		if errors.Is(err, task.ErrNotFound) {
			return gatestore.Record{}, nil
		}
		return r, err
	}}),
	"a record is not deleted": brokenBy(brokenRecords{erase: func(s gatestore.Records, ctx context.Context, _ string) error {
		return s.DeleteRecord(ctx, "another")
	}}),
	"list of records ignores the prefix": brokenBy(brokenRecords{list: func(s gatestore.Records, ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
		q.Prefix = ""
		return s.ListRecords(ctx, q)
	}}),
	"a list of records always begins at the first": brokenBy(brokenRecords{list: func(s gatestore.Records, ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
		q.After = ""
		return s.ListRecords(ctx, q)
	}}),
	"a list of records goes on to the last": brokenBy(brokenRecords{list: func(s gatestore.Records, ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
		q.Before = ""
		return s.ListRecords(ctx, q)
	}}),
	"a list of records is never descending": brokenBy(brokenRecords{list: func(s gatestore.Records, ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
		q.Descending = false
		return s.ListRecords(ctx, q)
	}}),
	"a list of records has no limit": brokenBy(brokenRecords{list: func(s gatestore.Records, ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
		q.Limit = 100
		return s.ListRecords(ctx, q)
	}}),
	"records are swept too early": brokenBy(brokenRecords{sweep: func(s gatestore.Records, ctx context.Context, before time.Time, limit int) (int, error) {
		return s.SweepRecords(ctx, before.Add(time.Microsecond), limit)
	}}),
	"all expired records are swept at once": brokenBy(brokenRecords{sweep: func(s gatestore.Records, ctx context.Context, before time.Time, _ int) (int, error) {
		return s.SweepRecords(ctx, before, 100)
	}}),
	"the size of records ignores the prefix": brokenBy(brokenRecords{size: func(s gatestore.Records, ctx context.Context, _ string) (int64, error) {
		return s.SizeRecords(ctx, "")
	}}),
	"the size of records is that of a page": brokenBy(brokenRecords{size: func(s gatestore.Records, ctx context.Context, prefix string) (size int64, err error) {
		found, err := s.ListRecords(ctx, gatestore.RecordQuery{Prefix: prefix, Limit: 1000})
		for _, r := range found {
			size += int64(len(r.Value))
		}
		return size, err
	}}),
	"get of a record ignores its context": brokenBy(brokenRecords{get: func(s gatestore.Records, ctx context.Context, name string) (gatestore.Record, error) {
		return s.GetRecord(context.WithoutCancel(ctx), name)
	}}),
}
