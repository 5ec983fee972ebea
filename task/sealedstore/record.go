package sealedstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// recordMark is what the value of a sealed record begins with.
const recordMark = "\x00sealed-record1\x00"

// ErrNotSealed is the reason for which a record is not read: there are keys, and
// it is not sealed with any. Somebody without a key may have written it.
var ErrNotSealed = errors.New("is not encrypted, although there are keys")

// KeyOfRecord returns the name of the key that r is sealed with, as it is
// stored, or nothing if it is not sealed.
func KeyOfRecord(r task.Record) string {
	rest, sealed := bytes.CutPrefix(r.Value, []byte(recordMark))
	if !sealed {
		return ""
	}
	name, _, _ := bytes.Cut(rest, []byte(chunkEnd))
	return string(name)
}

// sealRecord returns r as it is stored.
func (k Keys) sealRecord(r task.Record) (task.Record, error) {
	if len(r.Value) > task.MaxRecordValue {
		return r, &task.Error{Kind: task.KindInvalid, Action: task.ActionPutRecord, Limit: task.MaxRecordValue, Size: int64(len(r.Value))}
	}
	if k.Empty() || len(r.Value) == 0 { // without a value it is refused
		return r, nil
	}
	first := k.all[0]
	aead, err := first.aead("record 1 " + r.Name)
	if err != nil {
		return r, err
	}
	r.Value = aead.Seal([]byte(recordMark+first.name+chunkEnd), nil, r.Value, recordContext(r)) //nolint:gosec // it makes a random nonce
	return r, nil
}

// OpenRecord returns the record that r, as it is stored, stands for. If there
// are keys it must be sealed: otherwise whoever can write to the database, and
// has no key, could make a session or a key of the gate.
func (k Keys) OpenRecord(r task.Record) (task.Record, error) {
	value, err := k.openRecord(r)
	if err != nil {
		return task.Record{}, &task.Error{Kind: task.KindUnreadable, Action: task.ActionGetRecord, Detail: "a record", Err: err}
	}
	r.Value = value
	return r, nil
}

func (k Keys) openRecord(r task.Record) ([]byte, error) {
	rest, sealed := bytes.CutPrefix(r.Value, []byte(recordMark))
	switch {
	case !sealed && k.Empty():
		return r.Value, nil
	case !sealed:
		return nil, ErrNotSealed
	}
	name, text, _ := bytes.Cut(rest, []byte(chunkEnd))
	known, err := k.needed(string(name))
	if err != nil {
		return nil, err
	}
	aead, err := known.aead("record 1 " + r.Name)
	if err != nil {
		return nil, err
	}
	value, err := aead.Open(nil, nil, text, recordContext(r))
	if err != nil {
		return nil, fmt.Errorf("%w: wrong key %s, or the record was changed", ErrKey, name)
	}
	return value, nil
}

// recordContext is what a sealed record belongs to: it opens nowhere else.
func recordContext(r task.Record) []byte {
	b := appendText(nil, "record")
	b = appendText(b, r.Name)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Version)) //nolint:gosec // only the bits matter
	var expires int64
	if !r.Expires.IsZero() {
		expires = r.Expires.UnixMicro()
	}
	return binary.BigEndian.AppendUint64(b, uint64(expires))
}

// PutRecord implements [task.Records].
func (s *Store) PutRecord(ctx context.Context, r task.Record) error {
	sealed, err := s.keys.sealRecord(r)
	if err != nil {
		return err
	}
	return s.inner.PutRecord(ctx, sealed)
}

// GetRecord implements [task.Records].
func (s *Store) GetRecord(ctx context.Context, name string) (task.Record, error) {
	r, err := s.inner.GetRecord(ctx, name)
	if err != nil {
		return task.Record{}, err
	}
	return s.keys.OpenRecord(r)
}

// DeleteRecord implements [task.Records].
func (s *Store) DeleteRecord(ctx context.Context, name string) error {
	return s.inner.DeleteRecord(ctx, name)
}

// ListRecords implements [task.Records]. Records that cannot be opened keep
// their name and version, and have no value.
func (s *Store) ListRecords(ctx context.Context, q task.RecordQuery) ([]task.Record, error) {
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

// SweepRecords implements [task.Records].
func (s *Store) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.inner.SweepRecords(ctx, before, limit)
}

// ClaimRecords makes sure that all records can be opened, and seals those anew
// that are sealed with another key than the first. If there are keys, a record
// that is not sealed at all is deleted, since anybody may have written it: the
// gate makes a new key, and operators log in again.
func (s *Store) ClaimRecords(ctx context.Context) error {
	q := task.RecordQuery{Limit: 100}
	var unreadable []error // one for each reason, whatever the number of records
	for {
		page, err := s.inner.ListRecords(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page {
			q.After = r.Name
			err := s.rekeyRecord(ctx, r)
			if errors.Is(err, task.ErrUnreadable) {
				unreadable = appendNew(unreadable, err)
			} else if err != nil && !errors.Is(err, task.ErrConcurrentModification) {
				return err
			}
		}
		if len(page) < q.Limit {
			return errors.Join(unreadable...)
		}
	}
}

// appendNew appends an error, unless there is one that says the same.
func appendNew(all []error, err error) []error {
	if slices.ContainsFunc(all, func(other error) bool { return other.Error() == err.Error() }) {
		return all
	}
	return append(all, err)
}

func (s *Store) rekeyRecord(ctx context.Context, stored task.Record) error {
	name := KeyOfRecord(stored)
	if name == "" && !s.keys.Empty() {
		return s.inner.DeleteRecord(ctx, stored.Name)
	}
	r, err := s.keys.OpenRecord(stored)
	if err != nil || name == s.keys.First() {
		return err
	}
	r.Version++
	return s.PutRecord(ctx, r)
}
