package sealedstore

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// recordMark is the prefix of the value of a sealed record.
const recordMark = "\x00sealed-record1\x00"

// ErrNotSealed is the cause of the error for a task or record that is not sealed although there
// are keys. A writer without a key may have inserted it.
var ErrNotSealed = errors.New("is not encrypted, although there are keys")

// KeyOfRecord is [KeyOf] for a stored record.
func KeyOfRecord(r gatestore.Record) string {
	name, _ := splitSealed(recordMark, r.Value)
	return name
}

// sealRecord returns r in its stored form.
func (k Keys) sealRecord(r gatestore.Record) (gatestore.Record, error) {
	if len(r.Value) > gatestore.MaxRecordValue {
		return r, &task.Error{Kind: task.ErrInvalid, Action: action.PutRecord, Limit: gatestore.MaxRecordValue, Size: int64(len(r.Value))}
	}
	if k.Empty() || len(r.Value) == 0 { // the inner store refuses an empty value
		return r, nil
	}
	sealed, err := k.seal(k.prefix(recordMark), recordBinding(r), r.Value)
	r.Value = sealed
	return r, err
}

// OpenRecord opens r, a stored record. If there are keys, r must be sealed. Otherwise a person
// who can write to the database, but has no key, could insert a session or a key of the gate.
func (k Keys) OpenRecord(r gatestore.Record) (gatestore.Record, error) {
	value, err := k.openRecord(r)
	if err != nil {
		return gatestore.Record{}, &task.Error{Kind: task.ErrUnreadable, Action: action.GetRecord, Detail: "record", Err: err}
	}
	r.Value = value
	return r, nil
}

func (k Keys) openRecord(r gatestore.Record) ([]byte, error) {
	name, sealed := splitSealed(recordMark, r.Value)
	switch {
	case name != "":
		return k.open(name, recordBinding(r), sealed)
	case k.Empty():
		return r.Value, nil
	default:
		return nil, ErrNotSealed
	}
}

// recordBinding returns the binding of a sealed record.
func recordBinding(r gatestore.Record) binding {
	b := appendText(nil, "record")
	b = appendText(b, r.Name)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Version))
	var expires int64
	if !r.Expires.IsZero() {
		expires = r.Expires.UnixMicro()
	}
	return binding{keyName: "record 1 " + r.Name, data: binary.BigEndian.AppendUint64(b, uint64(expires))}
}

// PutRecord implements [gatestore.Records].
func (s *Store) PutRecord(ctx context.Context, r gatestore.Record) error {
	sealed, err := s.keys.sealRecord(r)
	if err != nil {
		return err
	}
	return s.inner.PutRecord(ctx, sealed)
}

// GetRecord implements [gatestore.Records].
func (s *Store) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	r, err := s.inner.GetRecord(ctx, name)
	if err != nil {
		return gatestore.Record{}, err
	}
	return s.keys.OpenRecord(r)
}

// DeleteRecord implements [gatestore.Records].
func (s *Store) DeleteRecord(ctx context.Context, name string) error {
	return s.inner.DeleteRecord(ctx, name)
}

// ListRecords implements [gatestore.Records]. Records that cannot be opened keep
// their name and version, and have no value.
func (s *Store) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	found, err := s.inner.ListRecords(ctx, q)
	for i, r := range found {
		value, unreadable := s.keys.openRecord(r)
		if unreadable != nil {
			value = nil
		}
		found[i].Value = value
	}
	return found, err
}

// SweepRecords implements [gatestore.Records].
func (s *Store) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.inner.SweepRecords(ctx, before, limit)
}

// SizeRecords implements [gatestore.Records]. It counts the sealed values.
func (s *Store) SizeRecords(ctx context.Context, prefix string) (int64, error) {
	return s.inner.SizeRecords(ctx, prefix)
}

// RekeyRecords opens all records except the bulk, and reseals those that are not sealed with the
// first key. If there are keys, it deletes unsealed records, because a writer without a key may have
// inserted them. The gate then makes a new key, and operators log in again.
func (s *Store) RekeyRecords(ctx context.Context) error {
	return s.rekeyEach(ctx, s.withoutBulk(ctx), s.rekeyRecord)
}

// withoutBulk returns all stored records except the bulk, of which it reads one page at most.
func (s *Store) withoutBulk(ctx context.Context) iter.Seq2[gatestore.Record, error] {
	return func(yield func(gatestore.Record, error) bool) {
		q := gatestore.RecordQuery{Limit: 100}
		for skipped := true; skipped; {
			skipped = false
			for r, err := range gatestore.EachRecord(ctx, s.inner, q) {
				if err == nil && s.Bulk != "" && strings.HasPrefix(r.Name, s.Bulk) {
					_, _, q.After = gatestore.RecordQuery{Prefix: s.Bulk}.Bounds()
					skipped = true
					break
				}
				if !yield(r, err) {
					return
				}
			}
		}
	}
}

// rekeyEach calls rekey for records. It goes on after those that cannot be read.
func (s *Store) rekeyEach(
	ctx context.Context, records iter.Seq2[gatestore.Record, error], rekey func(context.Context, gatestore.Record) error,
) error {
	var unreadable []error // each text once
	for r, err := range records {
		if err == nil {
			err = rekey(ctx, r)
		}
		if errors.Is(err, task.ErrUnreadable) {
			unreadable = appendNew(unreadable, err)
		} else if err != nil && !errors.Is(err, task.ErrConcurrentModification) {
			return err
		}
	}
	return errors.Join(unreadable...)
}

// appendNew appends an error, unless all has one with the same text.
func appendNew(all []error, err error) []error {
	if slices.ContainsFunc(all, func(other error) bool { return other.Error() == err.Error() }) {
		return all
	}
	return append(all, err)
}

func (s *Store) rekeyRecord(ctx context.Context, stored gatestore.Record) error {
	if KeyOfRecord(stored) == "" && !s.keys.Empty() {
		return s.inner.DeleteRecord(ctx, stored.Name)
	}
	return s.resealRecord(ctx, stored)
}

// rekeyBulk is RekeyRecords for the bulk.
func (s *Store) rekeyBulk(ctx context.Context) error {
	if s.Bulk == "" {
		return nil
	}
	return s.rekeyEach(ctx, gatestore.EachRecord(ctx, s.inner, gatestore.RecordQuery{Prefix: s.Bulk, Limit: 100}), s.rekeyBulkRecord)
}

func (s *Store) rekeyBulkRecord(ctx context.Context, stored gatestore.Record) error {
	//mutate:swap "s.sealsUnsealed()" "true" TestBulkRecordsAreKept a change of keys seals a record that someone without a key has written
	if KeyOfRecord(stored) == "" && s.sealsUnsealed() {
		stored.Version++
		return s.PutRecord(ctx, stored)
	}
	return s.resealRecord(ctx, stored)
}

// resealRecord seals a record with the first key.
func (s *Store) resealRecord(ctx context.Context, stored gatestore.Record) error {
	r, err := s.keys.OpenRecord(stored)
	if err != nil || KeyOfRecord(stored) == s.keys.First() {
		return err
	}
	r.Version++
	return s.PutRecord(ctx, r)
}
