package task

import (
	"context"
	"strings"
	"time"
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

// RecordFrame is how much a store that wraps another may add to a value, for
// itself: stores take so much more than MaxRecordValue.
const RecordFrame = 256

// Records is the part of a [GateStore] that keeps records; tasks do without. Every replica sees a
// change as soon as the call that made it has returned.
type Records interface {
	// PutRecord keeps r if the store has version r.Version-1 of it: none at all
	// if r.Version is 1. Otherwise it returns [ErrConcurrentModification] and
	// changes nothing. It returns [ErrInvalid] if r fails [Record.Check].
	PutRecord(ctx context.Context, r Record) error

	// GetRecord returns the record of that name, or [ErrNotFound]. A record
	// that has expired is returned until it is swept: the store has no clock.
	GetRecord(ctx context.Context, name string) (Record, error)

	// DeleteRecord deletes the record of that name, if there is one.
	DeleteRecord(ctx context.Context, name string) error

	// ListRecords returns up to q.Limit records in the order of the bytes of
	// their names.
	ListRecords(ctx context.Context, q RecordQuery) ([]Record, error)

	// SweepRecords deletes up to limit records that expire before the given
	// time, and reports how many.
	SweepRecords(ctx context.Context, before time.Time, limit int) (int, error)
}

// A RecordQuery selects the records whose names begin with Prefix and come
// after After.
type RecordQuery struct {
	Prefix string
	After  string
	Limit  int
}

// Bounds returns the names between which those that q selects are: after the
// first, at or after the second, and before the third.
func (q RecordQuery) Bounds() (after, from, to string) {
	return q.After, q.Prefix, q.Prefix + "~" // no name has a tilde, which comes after all that names have
}

// Selects reports whether q selects the record of that name.
func (q RecordQuery) Selects(name string) bool {
	return strings.HasPrefix(name, q.Prefix) && name > q.After
}

// Check returns [ErrInvalid] if no store can keep r: if its name is not made of
// letters, digits and -._/ or is too long, if its version is less than 1, or if
// its value is empty or too large.
func (r Record) Check() error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/"
	e := &Error{Kind: KindInvalid, Action: ActionPutRecord}
	switch {
	case r.Name == "" || len(r.Name) > MaxRecordName || strings.Trim(r.Name, letters) != "":
		e.Detail = "the name of a record"
	case r.Version < 1:
		e.Detail = "the version of a record"
	case len(r.Value) == 0 || len(r.Value) > MaxRecordValue+RecordFrame:
		e.Detail, e.Limit, e.Size = "the value of a record", MaxRecordValue, int64(len(r.Value))
	default:
		return nil
	}
	return e
}

// Overtaken returns the error of a store that has another version of r than the
// one before it.
func (r Record) Overtaken() error {
	return &Error{Kind: KindConcurrentModification, Action: ActionPutRecord, Detail: "record " + kindOf(r.Name)}
}

// NoRecord returns the error of a store that has no record of that name.
func NoRecord(name string) error {
	return &Error{Kind: KindNotFound, Action: ActionGetRecord, Detail: "record " + kindOf(name)}
}

// kindOf returns the part of a name that says what a record is for.
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "/")
	return kind
}
