package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A record is a hash. Its name is in the sorted set of all names and, if it expires, in the set
// sorted by expiry.

// PutRecord implements [gatestore.Records].
func (s *Store) PutRecord(ctx context.Context, r gatestore.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	expires := ""
	if !r.Expires.IsZero() {
		expires = number(r.Expires.UnixMicro())
	}
	kept, err := s.changeRecord(ctx, action.PutRecord, r.Name, number(r.Version-1), number(r.Version), expires, string(r.Value))
	if err == nil && !kept {
		return r.VersionConflict()
	}
	return err
}

// changeRecord runs the script for a record and reports whether the record changed.
func (s *Store) changeRecord(ctx context.Context, a action.Name, name string, args ...string) (bool, error) {
	return request(ctx, s, a, func(ctx context.Context) (bool, error) {
		keys := []string{s.keys.record(name), s.keys.records(), s.keys.recordsDue()}
		n, err := recordScript.Exec(ctx, s.client, s.withFormatKey(keys), append([]string{name}, args...)).AsInt64()
		return n > 0, err
	})
}

// GetRecord implements [gatestore.Records].
func (s *Store) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	return request(ctx, s, action.GetRecord, func(ctx context.Context) (gatestore.Record, error) {
		found, err := s.readRecords(ctx, name)
		if err != nil {
			return gatestore.Record{}, err
		}
		if len(found) == 0 {
			return gatestore.Record{}, gatestore.NoRecord(name)
		}
		return found[0], nil
	})
}

// readRecords returns the named records that exist.
func (s *Store) readRecords(ctx context.Context, names ...string) ([]gatestore.Record, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.keys.record(name)
	}
	stored, err := s.fields(ctx, keys, "version", "expires", "value")
	if err != nil {
		return nil, err
	}
	var found []gatestore.Record
	for i, name := range names {
		fields := stored[i]
		if fields[0] == "" {
			continue
		}
		r := gatestore.Record{Name: name, Value: []byte(fields[2])}
		if r.Version, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
			return nil, err
		}
		if fields[1] != "" {
			micros, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return nil, err
			}
			r.Expires = time.UnixMicro(micros).UTC()
		}
		found = append(found, r)
	}
	return found, nil
}

// DeleteRecord implements [gatestore.Records].
func (s *Store) DeleteRecord(ctx context.Context, name string) error {
	_, err := s.changeRecord(ctx, action.DeleteRecord, name, "*")
	return err
}

// ListRecords implements [gatestore.Records].
func (s *Store) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	return request(ctx, s, action.ListRecords, func(ctx context.Context) ([]gatestore.Record, error) {
		names, err := s.recordNames(ctx, q)
		if err != nil {
			return nil, err
		}
		return s.readRecords(ctx, names...)
	})
}

// recordNames returns the names of the records that q selects.
func (s *Store) recordNames(ctx context.Context, q gatestore.RecordQuery) ([]string, error) {
	after, from, to := q.Bounds()
	least := "[" + from
	if after >= from {
		least = "(" + after
	}
	most := int64(max(0, q.Limit))
	command := s.client.B().Zrange().Key(s.keys.records()).Min(least).Max("("+to).Bylex().Limit(0, most).Build().Pin()
	if q.Descending {
		command = s.client.B().Zrevrangebylex().Key(s.keys.records()).Max("("+to).Min(least).Limit(0, most).Build().Pin()
	}
	return s.client.Do(ctx, command).AsStrSlice()
}

// SizeRecords implements [gatestore.Records].
func (s *Store) SizeRecords(ctx context.Context, prefix string) (int64, error) {
	const page = 500
	var size int64
	for q := (gatestore.RecordQuery{Prefix: prefix, Limit: page}); ; {
		names, err := request(ctx, s, action.SizeRecords, func(ctx context.Context) ([]string, error) {
			names, err := s.recordNames(ctx, q)
			if err == nil {
				var n int64
				n, err = s.valueSizes(ctx, names)
				size += n
			}
			return names, err
		})
		if err != nil || len(names) < page {
			return size, err
		}
		q.After = names[len(names)-1]
	}
}

// valueSizes returns the bytes of the values of the named records.
func (s *Store) valueSizes(ctx context.Context, names []string) (int64, error) {
	reads := make(rueidis.Commands, len(names))
	for i, name := range names {
		reads[i] = s.client.B().Hstrlen().Key(s.keys.record(name)).Field("value").Build().Pin()
	}
	var size int64
	for _, reply := range s.client.DoMulti(ctx, reads...) {
		n, err := reply.AsInt64()
		if err != nil {
			return 0, err
		}
		size += n
	}
	return size, nil
}

// SweepRecords implements [gatestore.Records].
func (s *Store) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	names, err := request(ctx, s, action.SweepRecords, func(ctx context.Context) ([]string, error) {
		return s.dueBefore(ctx, s.keys.recordsDue(), before, limit)
	})
	if err != nil {
		return 0, err
	}
	swept := 0
	for _, name := range names {
		r, err := s.GetRecord(ctx, name)
		if err != nil || !r.Expires.Before(before) || r.Expires.IsZero() {
			continue // deleted or changed concurrently
		}
		gone, err := s.changeRecord(ctx, action.SweepRecords, name, number(r.Version))
		if err != nil {
			return swept, err
		}
		if gone {
			swept++
		}
	}
	return swept, nil
}
