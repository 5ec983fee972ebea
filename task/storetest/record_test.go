package storetest_test

import (
	"context"
	"errors"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// brokenRecords do what their fields say, and otherwise what good ones do.
type brokenRecords struct {
	task.Records
	put   func(task.Records, context.Context, task.Record) error
	get   func(task.Records, context.Context, string) (task.Record, error)
	erase func(task.Records, context.Context, string) error
	list  func(task.Records, context.Context, task.RecordQuery) ([]task.Record, error)
	sweep func(task.Records, context.Context, time.Time, int) (int, error)
}

func (b brokenRecords) PutRecord(ctx context.Context, r task.Record) error {
	if b.put == nil {
		return b.Records.PutRecord(ctx, r)
	}
	return b.put(b.Records, ctx, r)
}

func (b brokenRecords) GetRecord(ctx context.Context, name string) (task.Record, error) {
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

func (b brokenRecords) ListRecords(ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
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

func brokenBy(b brokenRecords) func(*faulty) {
	return func(f *faulty) {
		own := b // several tests break their stores at the same time
		own.Records = f.good
		f.Records = own
	}
}

var recordFaults = map[string]func(*faulty){
	"a record is put whatever its version": brokenBy(brokenRecords{put: func(s task.Records, ctx context.Context, r task.Record) error {
		err := s.PutRecord(ctx, r)
		if errors.Is(err, task.ErrConcurrentModification) {
			return nil
		}
		return err
	}}),
	"a record of any size is taken": brokenBy(brokenRecords{put: func(s task.Records, ctx context.Context, r task.Record) error {
		err := s.PutRecord(ctx, r)
		if errors.Is(err, task.ErrInvalid) {
			return nil
		}
		return err
	}}),
	"a record loses its expiry": brokenBy(brokenRecords{put: func(s task.Records, ctx context.Context, r task.Record) error {
		r.Expires = time.Time{}
		return s.PutRecord(ctx, r)
	}}),
	"a missing record is an empty one": brokenBy(brokenRecords{get: func(s task.Records, ctx context.Context, name string) (task.Record, error) {
		r, err := s.GetRecord(ctx, name)
		if errors.Is(err, task.ErrNotFound) {
			return task.Record{}, nil
		}
		return r, err
	}}),
	"a record is not deleted": brokenBy(brokenRecords{erase: func(s task.Records, ctx context.Context, _ string) error {
		return s.DeleteRecord(ctx, "another")
	}}),
	"records are listed whatever their prefix": brokenBy(brokenRecords{list: func(s task.Records, ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
		q.Prefix = ""
		return s.ListRecords(ctx, q)
	}}),
	"a list of records always begins at the first": brokenBy(brokenRecords{list: func(s task.Records, ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
		q.After = ""
		return s.ListRecords(ctx, q)
	}}),
	"a list of records has no limit": brokenBy(brokenRecords{list: func(s task.Records, ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
		q.Limit = 100
		return s.ListRecords(ctx, q)
	}}),
	"records are swept too early": brokenBy(brokenRecords{sweep: func(s task.Records, ctx context.Context, before time.Time, limit int) (int, error) {
		return s.SweepRecords(ctx, before.Add(time.Microsecond), limit)
	}}),
	"all expired records are swept at once": brokenBy(brokenRecords{sweep: func(s task.Records, ctx context.Context, before time.Time, _ int) (int, error) {
		return s.SweepRecords(ctx, before, 100)
	}}),
	"records outlive the end of the context": brokenBy(brokenRecords{get: func(s task.Records, ctx context.Context, name string) (task.Record, error) {
		return s.GetRecord(context.WithoutCancel(ctx), name)
	}}),
}
