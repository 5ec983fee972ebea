// Package failpoint lets a chosen call to the store fail in a chosen way. The simulation in
// internal/explore fails calls in one process with it. A program that is built with the tag
// failpoints fails the call that its environment names, so that what the simulation predicts
// can be tried with real processes and databases:
//
//	go build -tags failpoints ./cmd/thoughtgate
//	THOUGHTGATE_FAILPOINT='die-after 0s 1 store.Create input_required (approval.recorded.Create)' ./thoughtgate serve
//
// No other build includes this package.
package failpoint

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// ErrDeaf has [Store.Watch] return a channel that never receives, as a watch whose connection
// was cut does.
var ErrDeaf = errors.New("failpoint: the watch is deaf")

// A Store passes each call through At before it reaches Inner.
type Store struct {
	Inner gatestore.Store

	// At makes the call by calling effect, or does not, and returns what its caller gets. The
	// call is named by its method and what it is about: the new state of a task and the steps
	// that are noted with it, or the kind of a record.
	At func(ctx context.Context, method, about string, effect func(context.Context) error) error
}

var _ gatestore.Store = (*Store)(nil)

// ask makes a call that returns something.
func ask[T any](ctx context.Context, s *Store, method, about string, effect func(context.Context) (T, error)) (T, error) {
	var answer, nothing T
	err := s.At(ctx, method, about, func(ctx context.Context) (err error) {
		answer, err = effect(ctx)
		return err
	})
	if err != nil {
		return nothing, err
	}
	return answer, nil
}

// Close implements [task.Store]. It passes no failpoint.
func (s *Store) Close() error { return s.Inner.Close() }

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	return s.At(ctx, "Create", string(t.State), func(ctx context.Context) error { return s.Inner.Create(ctx, t, limits, notes...) })
}

// Get implements [task.Store].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	return ask(ctx, s, "Get", "", func(ctx context.Context) (task.Task, error) { return s.Inner.Get(ctx, ref) })
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	return s.At(ctx, "Swap", string(t.State)+steps(notes), func(ctx context.Context) error { return s.Inner.Swap(ctx, t, notes...) })
}

// List implements [task.Store].
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	return ask(ctx, s, "List", "", func(ctx context.Context) (task.Page, error) { return s.Inner.List(ctx, q) })
}

// Overdue implements [task.Store].
func (s *Store) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	return ask(ctx, s, "Overdue", "", func(ctx context.Context) ([]task.Task, error) { return s.Inner.Overdue(ctx, at, limit) })
}

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	return ask(ctx, s, "Sweep", "", func(ctx context.Context) (int, error) { return s.Inner.Sweep(ctx, before, limit) })
}

// Reclaim implements [task.Store].
func (s *Store) Reclaim(ctx context.Context, account string, limit int) (int, error) {
	return ask(ctx, s, "Reclaim", "", func(ctx context.Context) (int, error) { return s.Inner.Reclaim(ctx, account, limit) })
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	return s.At(ctx, "WriteChunk", "", func(ctx context.Context) error { return s.Inner.WriteChunk(ctx, ref, n, data) })
}

// ReadChunk implements [task.Blobs].
func (s *Store) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	return ask(ctx, s, "ReadChunk", "", func(ctx context.Context) ([]byte, error) { return s.Inner.ReadChunk(ctx, ref, n) })
}

// Watch implements [task.Watcher].
func (s *Store) Watch(ctx context.Context, ref task.Ref) (<-chan struct{}, error) {
	changed, err := ask(ctx, s, "Watch", "", func(ctx context.Context) (<-chan struct{}, error) { return s.Inner.Watch(ctx, ref) })
	if errors.Is(err, ErrDeaf) {
		silent := make(chan struct{})
		context.AfterFunc(ctx, func() { close(silent) })
		return silent, nil
	}
	return changed, err
}

// Append implements [auditlog.Journal].
func (s *Store) Append(ctx context.Context, notes ...task.Note) error {
	return s.At(ctx, "Append", steps(notes), func(ctx context.Context) error { return s.Inner.Append(ctx, notes...) })
}

// Entries implements [auditlog.Journal].
func (s *Store) Entries(ctx context.Context, q auditlog.Query) ([]auditlog.Entry, error) {
	return ask(ctx, s, "Entries", "", func(ctx context.Context) ([]auditlog.Entry, error) { return s.Inner.Entries(ctx, q) })
}

// Ends implements [auditlog.Journal].
func (s *Store) Ends(ctx context.Context) (auditlog.Ends, error) {
	return ask(ctx, s, "Ends", "", func(ctx context.Context) (auditlog.Ends, error) { return s.Inner.Ends(ctx) })
}

// Trim implements [auditlog.Journal].
func (s *Store) Trim(ctx context.Context, before time.Time, limit int) (int, error) {
	return ask(ctx, s, "Trim", "", func(ctx context.Context) (int, error) { return s.Inner.Trim(ctx, before, limit) })
}

// PutRecord implements [gatestore.Records].
func (s *Store) PutRecord(ctx context.Context, r gatestore.Record) error {
	return s.At(ctx, "PutRecord", kindOf(r.Name), func(ctx context.Context) error { return s.Inner.PutRecord(ctx, r) })
}

// GetRecord implements [gatestore.Records].
func (s *Store) GetRecord(ctx context.Context, name string) (gatestore.Record, error) {
	return ask(ctx, s, "GetRecord", kindOf(name), func(ctx context.Context) (gatestore.Record, error) { return s.Inner.GetRecord(ctx, name) })
}

// DeleteRecord implements [gatestore.Records].
func (s *Store) DeleteRecord(ctx context.Context, name string) error {
	return s.At(ctx, "DeleteRecord", kindOf(name), func(ctx context.Context) error { return s.Inner.DeleteRecord(ctx, name) })
}

// ListRecords implements [gatestore.Records].
func (s *Store) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	return ask(ctx, s, "ListRecords", kindOf(q.Prefix), func(ctx context.Context) ([]gatestore.Record, error) { return s.Inner.ListRecords(ctx, q) })
}

// SweepRecords implements [gatestore.Records].
func (s *Store) SweepRecords(ctx context.Context, before time.Time, limit int) (int, error) {
	return ask(ctx, s, "SweepRecords", "", func(ctx context.Context) (int, error) { return s.Inner.SweepRecords(ctx, before, limit) })
}

// SizeRecords implements [gatestore.Records].
func (s *Store) SizeRecords(ctx context.Context, prefix string) (int64, error) {
	return ask(ctx, s, "SizeRecords", "", func(ctx context.Context) (int64, error) { return s.Inner.SizeRecords(ctx, prefix) })
}

// steps returns the steps of notes, each after a space.
func steps(notes []task.Note) string {
	var b strings.Builder
	for _, n := range notes {
		b.WriteString(" " + n.Step)
	}
	return b.String()
}

// kindOf returns the part of a record's name that says what the record is for.
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "/")
	return kind
}

// between are the packages between the code that makes a call and a failpoint.
var between = []string{"explore", "failpoint", "grantstore", "lifecycle", "toolhistory", "runtime", "sealedstore", "steadystore", "storage", "storekit", "task"}

// callers are the results of Caller, by program counters.
var callers sync.Map

type callerNames struct{ name, chain string }

// Caller returns the function that makes the call at this failpoint, and the chain of its callers.
func Caller() (name, chain string) {
	var pcs [32]uintptr
	n := runtime.Callers(3, pcs[:])
	if known, ok := callers.Load(pcs); ok {
		c := known.(callerNames)
		return c.name, c.chain
	}
	frames := runtime.CallersFrames(pcs[:n])
	for {
		f, more := frames.Next()
		function := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		pkg, _, _ := strings.Cut(function, ".")
		if name == "" && !slices.Contains(between, pkg) {
			name = function
		}
		chain += function + " "
		if !more {
			callers.Store(pcs, callerNames{name, chain})
			return name, chain
		}
	}
}

// Name returns the name of a call: its method, what it is about and the function that makes it.
func Name(method, about, caller string) string {
	return strings.Join(strings.Fields(method+" "+about+" ("+caller+")"), " ")
}
