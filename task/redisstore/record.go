package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A record is a hash. Its name is in two sorted sets: of all names, and of
// those that expire by when they do.

// PutRecord implements [task.Records].
func (s *Store) PutRecord(ctx context.Context, r task.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	expires := ""
	if !r.Expires.IsZero() {
		expires = number(r.Expires.UnixMicro())
	}
	kept, err := s.changeRecord(ctx, task.ActionPutRecord, r.Name, number(r.Version-1), number(r.Version), expires, string(r.Value))
	if err == nil && !kept {
		return r.Overtaken()
	}
	return err
}

// changeRecord runs the script for a record and reports whether it changed it.
func (s *Store) changeRecord(ctx context.Context, a task.Action, name string, args ...string) (bool, error) {
	ctx, done, err := s.begin(ctx, a)
	if err != nil {
		return false, err
	}
	defer done()
	keys := []string{s.keys.record(name), s.keys.records(), s.keys.recordsDue()}
	n, err := s.scripts.record.Exec(ctx, s.client, s.keyed(keys), append([]string{name}, args...)).AsInt64()
	return n > 0, s.fault(ctx, a, err)
}

// GetRecord implements [task.Records].
func (s *Store) GetRecord(ctx context.Context, name string) (task.Record, error) {
	ctx, done, err := s.begin(ctx, task.ActionGetRecord)
	if err != nil {
		return task.Record{}, err
	}
	defer done()
	found, err := recordOf(name, s.client.Do(ctx, s.readRecord(name)))
	if err == nil && found.Version == 0 {
		return task.Record{}, task.NoRecord(name)
	}
	return found, s.fault(ctx, task.ActionGetRecord, err)
}

func (s *Store) readRecord(name string) rueidis.Completed {
	return s.client.B().Hmget().Key(s.keys.record(name)).Field("version", "expires", "value").Build().Pin()
}

// recordOf returns the record that was read, or one of version 0 if there is
// none.
func recordOf(name string, reply rueidis.RedisResult) (task.Record, error) {
	fields, err := reply.AsStrSlice()
	if err != nil || fields[0] == "" {
		return task.Record{}, err
	}
	r := task.Record{Name: name, Value: []byte(fields[2])}
	if r.Version, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
		return task.Record{}, err
	}
	if fields[1] != "" {
		micros, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return task.Record{}, err
		}
		r.Expires = time.UnixMicro(micros).UTC()
	}
	return r, nil
}

// DeleteRecord implements [task.Records].
func (s *Store) DeleteRecord(ctx context.Context, name string) error {
	_, err := s.changeRecord(ctx, task.ActionDeleteRecord, name, "*")
	return err
}

// ListRecords implements [task.Records].
func (s *Store) ListRecords(ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
	ctx, done, err := s.begin(ctx, task.ActionListRecords)
	if err != nil {
		return nil, err
	}
	defer done()
	names, err := s.recordNames(ctx, q)
	if err != nil {
		return nil, s.fault(ctx, task.ActionListRecords, err)
	}
	reads := make([]rueidis.Completed, len(names))
	for i, name := range names {
		reads[i] = s.readRecord(name)
	}
	var found []task.Record
	for i, reply := range s.client.DoMulti(ctx, reads...) {
		r, err := recordOf(names[i], reply)
		if err != nil {
			return nil, s.fault(ctx, task.ActionListRecords, err)
		}
		if r.Version > 0 { // it was not deleted meanwhile
			found = append(found, r)
		}
	}
	return found, nil
}

func (s *Store) recordNames(ctx context.Context, q task.RecordQuery) ([]string, error) {
	after, from, to := q.Bounds()
	least := "[" + from
	if after >= from {
		least = "(" + after
	}
	command := s.client.B().Zrange().Key(s.keys.records()).Min(least).Max("("+to).Bylex().Limit(0, int64(max(0, q.Limit))).Build().Pin()
	return s.client.Do(ctx, command).AsStrSlice()
}

// SweepRecords implements [task.Records].
func (s *Store) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	names, err := s.recordsDue(ctx, before, limit)
	if err != nil {
		return 0, err
	}
	swept := 0
	for _, name := range names {
		r, err := s.GetRecord(ctx, name)
		if err != nil || !r.Expires.Before(before) || r.Expires.IsZero() {
			continue // somebody else deleted or changed it
		}
		gone, err := s.changeRecord(ctx, task.ActionSweepRecords, name, number(r.Version))
		if err != nil {
			return swept, err
		}
		if gone {
			swept++
		}
	}
	return swept, nil
}

// recordsDue returns the names of records that expire before a time.
func (s *Store) recordsDue(ctx context.Context, before time.Time, limit int) ([]string, error) {
	ctx, done, err := s.begin(ctx, task.ActionSweepRecords)
	if err != nil {
		return nil, err
	}
	defer done()
	command := s.client.B().Zrange().Key(s.keys.recordsDue()).Min("-inf").Max("("+micros(before)).Byscore().
		Limit(0, int64(max(0, limit))).Build().Pin()
	names, err := s.client.Do(ctx, command).AsStrSlice()
	return names, s.fault(ctx, task.ActionSweepRecords, err)
}
