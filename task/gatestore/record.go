package gatestore

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
)

// A Record is a small named value that a gate keeps beside its tasks, such as a
// key or the session of an operator.
type Record struct {
	Name    string // such as "session/4f1d": see [Record.Check]
	Version int64  // 1 when it is created, and one more with each change
	Value   []byte
	Expires time.Time // when [Records.SweepRecords] may delete it; zero means never
}

// The limits of a record.
const (
	MaxRecordName  = 200
	MaxRecordValue = 64 << 10
)

// RecordFrame is the number of bytes that a wrapping store may add to a value. Stores
// accept values of up to MaxRecordValue + RecordFrame bytes.
const RecordFrame = 256

// Records is the part of a [Store] that keeps records. Every replica sees a change as soon
// as the call that made it has returned.
type Records interface {
	// PutRecord keeps r if the store has version r.Version-1 of it, or no
	// such record if r.Version is 1. Otherwise it returns [task.ErrConcurrentModification] and
	// changes nothing. It returns [task.ErrInvalid] if r fails [Record.Check].
	PutRecord(ctx context.Context, r Record) error

	// GetRecord returns the record of that name, or [task.ErrNotFound]. A record
	// that has expired is returned until it is swept: the store has no clock.
	GetRecord(ctx context.Context, name string) (Record, error)

	// DeleteRecord deletes the record of that name, if there is one.
	DeleteRecord(ctx context.Context, name string) error

	// ListRecords returns up to q.Limit records in the order of the bytes of
	// their names, or in the opposite order if q.Descending is set.
	ListRecords(ctx context.Context, q RecordQuery) ([]Record, error)

	// SweepRecords deletes up to limit records that expire before the given
	// time, and reports how many.
	SweepRecords(ctx context.Context, before time.Time, limit int) (int, error)

	// SizeRecords returns how many bytes the stored values of the records have whose names begin
	// with prefix. It does not read the values.
	SizeRecords(ctx context.Context, prefix string) (int64, error)
}

// A RecordQuery selects the records whose names begin with Prefix, come after After, and, unless
// Before is empty, come before Before.
type RecordQuery struct {
	Prefix     string
	After      string
	Before     string
	Descending bool
	Limit      int
}

// Bounds returns the range of the names that q selects: greater than after, not less
// than from, and less than to.
func (q RecordQuery) Bounds() (after, from, to string) {
	to = q.Prefix + "~" // a tilde sorts after all letters of names
	if q.Before != "" && q.Before < to {
		to = q.Before
	}
	return q.After, q.Prefix, to
}

// Selects reports whether q selects the record of that name.
func (q RecordQuery) Selects(name string) bool {
	return strings.HasPrefix(name, q.Prefix) && name > q.After && (q.Before == "" || name < q.Before)
}

// EachRecord returns all records that q selects. The limit of q is the size of the pages in which
// they are read. It ends after an error.
func EachRecord(ctx context.Context, s Records, q RecordQuery) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			page, err := s.ListRecords(ctx, q)
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, r := range page {
				if !q.Selects(r.Name) {
					yield(Record{}, &task.Error{Kind: task.ErrUnreadable, Action: action.ListRecords, Detail: "the records are out of order"})
					return
				}
				if q.Descending {
					q.Before = r.Name
				} else {
					q.After = r.Name
				}
				if !yield(r, nil) {
					return
				}
			}
			if len(page) < q.Limit {
				return
			}
		}
	}
}

// Check returns [task.ErrInvalid] if no store can keep r: its name is too long or has
// characters other than letters, digits and -._/, its version is less than 1, or its value
// is empty or too large.
func (r Record) Check() error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/"
	e := &task.Error{Kind: task.ErrInvalid, Action: action.PutRecord}
	switch {
	case r.Name == "" || len(r.Name) > MaxRecordName || strings.Trim(r.Name, letters) != "":
		e.Detail = "invalid record name"
	case r.Version < 1:
		e.Detail = "invalid record version"
	case len(r.Value) == 0 || len(r.Value) > MaxRecordValue+RecordFrame:
		e.Detail, e.Limit, e.Size = "record value is empty or too large", MaxRecordValue, int64(len(r.Value))
	default:
		return nil
	}
	return e
}

// VersionConflict returns the error of a store whose version of r is not r.Version-1.
func (r Record) VersionConflict() error {
	return &task.Error{Kind: task.ErrConcurrentModification, Action: action.PutRecord, Detail: "record " + kindOf(r.Name)}
}

// NoRecord returns the error of a store that has no record of that name.
func NoRecord(name string) error {
	return &task.Error{Kind: task.ErrNotFound, Action: action.GetRecord, Detail: "record " + kindOf(name)}
}

// kindOf returns the part of a name before the first slash, such as session.
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "/")
	return kind
}
