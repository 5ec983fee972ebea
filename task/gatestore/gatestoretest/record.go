package gatestoretest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

func recordCases() []testCase {
	return []testCase{
		{"RecordKept", recordKept},
		{"RecordVersions", recordVersions},
		{"RecordCreatedOnce", recordCreatedOnce},
		{"RecordDeleted", recordDeleted},
		{"RecordLimits", recordLimits},
		{"RecordList", recordList},
		{"RecordSweep", recordSweep},
		{"RecordSize", recordSize},
		{"RecordOfNoUse", recordOfNoUse},
	}
}

func recordKept(t reporter, s gatestore.Store) {
	ctx := t.Context()
	_, err := s.GetRecord(ctx, "key/root")
	mustBe(t, err, task.ErrNotFound)
	for _, r := range []gatestore.Record{
		{Name: "key/root", Version: 1, Value: []byte("\x00\xff binary \x80")},
		{Name: "session/A-z_0.9/x", Version: 1, Value: []byte("{}"), Expires: epoch.Add(time.Hour)},
	} {
		must(t, s.PutRecord(ctx, r))
		got, err := s.GetRecord(ctx, r.Name)
		must(t, err)
		mustEqual(t, "the stored record", got, r)
		got.Value[0] = 'X' // must not change the stored record
		again, err := s.GetRecord(ctx, r.Name)
		must(t, err)
		mustEqual(t, "the stored record after the caller changed the answer", again, r)
	}
}

func recordVersions(t reporter, s gatestore.Store) {
	ctx := t.Context()
	r := gatestore.Record{Name: "a", Version: 2, Value: []byte("two")}
	mustBe(t, s.PutRecord(ctx, r), task.ErrConcurrentModification)
	r.Version = 1
	must(t, s.PutRecord(ctx, r))
	mustBe(t, s.PutRecord(ctx, r), task.ErrConcurrentModification)
	next := gatestore.Record{Name: "a", Version: 2, Value: []byte("three"), Expires: epoch}
	must(t, s.PutRecord(ctx, next))
	mustBe(t, s.PutRecord(ctx, next), task.ErrConcurrentModification)
	got, err := s.GetRecord(ctx, "a")
	must(t, err)
	mustEqual(t, "the stored record after a change", got, next)
	last := gatestore.Record{Name: "a", Version: 3, Value: []byte("x")} // no longer expires
	must(t, s.PutRecord(ctx, last))
	if n, err := s.SweepRecords(ctx, epoch.Add(time.Hour), 10); n != 0 || err != nil {
		t.Fatalf("swept %d records that do not expire: %v", n, err)
	}
}

// recordCreatedOnce lets many callers create the same record. One of them succeeds.
func recordCreatedOnce(t reporter, s gatestore.Store) {
	name := func(i int) string { return fmt.Sprintf("of %d", i) }
	errs := together(16, func(i int) error {
		return s.PutRecord(t.Context(), gatestore.Record{Name: "key/root", Version: 1, Value: []byte(name(i))})
	})
	if n := succeeded(t, errs, task.ErrConcurrentModification); n != 1 {
		t.Fatalf("%d of 16 callers created the same record", n)
	}
	got, err := s.GetRecord(t.Context(), "key/root")
	must(t, err)
	if winner := name(slices.Index(errs, nil)); string(got.Value) != winner {
		t.Fatalf("the store has the record %q; the creator's record is %q", got.Value, winner)
	}
}

func recordDeleted(t reporter, s gatestore.Store) {
	ctx := t.Context()
	r := gatestore.Record{Name: "a", Version: 1, Value: []byte("x"), Expires: epoch}
	must(t, s.DeleteRecord(ctx, "a")) // it does not exist
	must(t, s.PutRecord(ctx, r))
	must(t, s.PutRecord(ctx, gatestore.Record{Name: "b", Version: 1, Value: []byte("y")}))
	must(t, s.DeleteRecord(ctx, "a"))
	_, err := s.GetRecord(ctx, "a")
	mustBe(t, err, task.ErrNotFound)
	mustBe(t, s.PutRecord(ctx, gatestore.Record{Name: "a", Version: 2, Value: []byte("x")}), task.ErrConcurrentModification)
	if n, err := s.SweepRecords(ctx, epoch.Add(time.Hour), 10); n != 0 || err != nil {
		t.Fatalf("swept %d records after the only one was deleted: %v", n, err)
	}
	wantRecords(t, s, gatestore.RecordQuery{Limit: 10}, "b")
	must(t, s.PutRecord(ctx, r)) // it can be created again
}

func recordLimits(t reporter, s gatestore.Store) {
	ctx := t.Context()
	long := make([]byte, gatestore.MaxRecordName+1)
	for i := range long {
		long[i] = 'a'
	}
	for _, r := range []gatestore.Record{
		{Version: 1, Value: []byte("x")},
		{Name: string(long), Version: 1, Value: []byte("x")},
		{Name: "a b", Version: 1, Value: []byte("x")},
		{Name: "a\x00", Version: 1, Value: []byte("x")},
		{Name: "a~", Version: 1, Value: []byte("x")},
		{Name: "a", Value: []byte("x")},
		{Name: "a", Version: 1},
		{Name: "a", Version: 1, Value: make([]byte, gatestore.MaxRecordValue+gatestore.RecordFrame+1)},
	} {
		mustBe(t, s.PutRecord(ctx, r), task.ErrInvalid)
	}
	largest := gatestore.Record{Name: string(long[1:]), Version: 1, Value: make([]byte, gatestore.MaxRecordValue)}
	must(t, s.PutRecord(ctx, largest))
	got, err := s.GetRecord(ctx, largest.Name)
	must(t, err)
	if len(got.Value) != len(largest.Value) {
		t.Fatalf("%d of %d bytes were kept", len(got.Value), len(largest.Value))
	}
}

func recordList(t reporter, s gatestore.Store) {
	for _, name := range []string{"session/b/2", "key", "session/b/1", "sessions", "session/a/9", "session/b.", "session/B/1"} {
		must(t, s.PutRecord(t.Context(), gatestore.Record{Name: name, Version: 1, Value: []byte(name)}))
	}
	wantRecords(t, s, gatestore.RecordQuery{Prefix: "session/b/", Limit: 10}, "session/b/1", "session/b/2")
	wantRecords(t, s, gatestore.RecordQuery{Prefix: "session/", Limit: 3}, "session/B/1", "session/a/9", "session/b.")
	wantRecords(t, s, gatestore.RecordQuery{Prefix: "session/", After: "session/b.", Limit: 3}, "session/b/1", "session/b/2")
	wantRecords(t, s, gatestore.RecordQuery{After: "session/b/1", Limit: 10}, "session/b/2", "sessions")
	wantRecords(t, s, gatestore.RecordQuery{Prefix: "session/a/9", Limit: 10}, "session/a/9")
	wantRecords(t, s, gatestore.RecordQuery{Prefix: "none", Limit: 10})
	wantRecords(t, s, gatestore.RecordQuery{Before: "session/B/1", Limit: 10}, "key")
	wantRecords(t, s, gatestore.RecordQuery{Prefix: "session/", Before: "sessions", Descending: true, Limit: 2}, "session/b/2", "session/b/1")
	wantRecords(t, s, gatestore.RecordQuery{Prefix: "session/", Before: "session/b/1", Descending: true, Limit: 2}, "session/b.", "session/a/9")
	wantRecords(t, s, gatestore.RecordQuery{Prefix: "session/", After: "session/a/9", Before: "session/b/2", Descending: true, Limit: 10}, "session/b/1", "session/b.")
	wantRecords(t, s, gatestore.RecordQuery{After: "b", Before: "a", Limit: 10})
	wantRecords(t, s, gatestore.RecordQuery{})
}

func wantRecords(t reporter, s gatestore.Store, q gatestore.RecordQuery, want ...string) {
	t.Helper()
	found, err := s.ListRecords(t.Context(), q)
	must(t, err)
	var got []string
	for _, r := range found {
		got = append(got, r.Name)
		if string(r.Value) != r.Name && len(r.Value) > 1 || r.Version != 1 {
			t.Fatalf("%q is listed with version %d and value %q", r.Name, r.Version, r.Value)
		}
	}
	if !slices.Equal(want, got) {
		t.Fatalf("%+v lists %q, want %q", q, got, want)
	}
}

func recordSweep(t reporter, s gatestore.Store) {
	ctx := t.Context()
	for name, expires := range map[string]time.Time{
		"never": {}, "past1": epoch.Add(-2 * time.Hour), "past2": epoch.Add(-time.Hour), "past3": epoch.Add(-time.Microsecond), "now": epoch, "later": epoch.Add(time.Microsecond),
	} {
		must(t, s.PutRecord(ctx, gatestore.Record{Name: name, Version: 1, Value: []byte(name), Expires: expires}))
	}
	for _, want := range []int{2, 1, 0} {
		if n, err := s.SweepRecords(ctx, epoch, 2); n != want || err != nil {
			t.Fatalf("swept %d, want %d: %v", n, want, err)
		}
	}
	wantRecords(t, s, gatestore.RecordQuery{Limit: 10}, "later", "never", "now")
}

func recordSize(t reporter, s gatestore.Store) {
	ctx := t.Context()
	size := func(prefix string) int {
		t.Helper()
		n, err := s.SizeRecords(ctx, prefix)
		must(t, err)
		return int(n)
	}
	mustEqual(t, "the size of no records", size(""), 0)
	put := func(name string, version int64, bytes int) {
		must(t, s.PutRecord(ctx, gatestore.Record{Name: name, Version: version, Value: make([]byte, bytes), Expires: epoch}))
	}
	put("calls", 1, 1)
	put("calls/a", 1, 10)
	before := size("calls/") // a wrapping store may add some bytes to each value
	put("calls/b", 1, 50_000)
	put("session", 1, 1)
	if n := size("calls/") - before; n < 50_000 || n > 50_000+gatestore.RecordFrame || before < 10 {
		t.Fatalf("a record of 50000 bytes adds %d to %d", n, before)
	}
	mustEqual(t, "the size of all records", size("") > size("calls/"), true)
	put("calls/b", 2, 10)
	mustEqual(t, "the size after a change", size("calls/"), 2*before)
	must(t, s.DeleteRecord(ctx, "calls/b"))
	mustEqual(t, "the size after a deletion", size("calls/"), before)
	_, err := s.SweepRecords(ctx, epoch.Add(time.Hour), 100)
	must(t, err)
	mustEqual(t, "the size after all were swept", size(""), 0)
	var all int // more than a page
	for i := range 1100 {
		put("many/"+strconv.Itoa(i), 1, 3)
		if i == 0 {
			all = 1100 * size("many/")
		}
	}
	mustEqual(t, "the size of many records", size("many/"), all)
}

func recordOfNoUse(t reporter, s gatestore.Store) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r := gatestore.Record{Name: "a", Version: 1, Value: []byte("x")}
	calls := func(ctx context.Context) []error {
		_, got := s.GetRecord(ctx, "a")
		_, listed := s.ListRecords(ctx, gatestore.RecordQuery{Limit: 1})
		_, swept := s.SweepRecords(ctx, epoch, 1)
		_, sized := s.SizeRecords(ctx, "")
		return []error{s.PutRecord(ctx, r), s.DeleteRecord(ctx, "a"), got, listed, swept, sized}
	}
	for _, err := range calls(over) {
		mustBe(t, err, context.Canceled)
	}
	must(t, s.Close())
	for _, err := range calls(t.Context()) {
		mustBe(t, err, task.ErrClosed)
	}
}

// recordsOf checks that only one of several replicas creates a record, and that all replicas
// see the creation and the deletion at once.
func recordsOf(t reporter, replicas []gatestore.Store) {
	ctx := t.Context()
	errs := together(len(replicas), func(i int) error {
		return replicas[i].PutRecord(ctx, gatestore.Record{Name: "key/root", Version: 1, Value: []byte(strconv.Itoa(i))})
	})
	if n := succeeded(t, errs, task.ErrConcurrentModification); n != 1 {
		t.Fatalf("%d of %d replicas created the same record", n, len(replicas))
	}
	winner := slices.Index(errs, nil)
	for _, s := range replicas {
		got, err := s.GetRecord(ctx, "key/root")
		must(t, err)
		mustEqual(t, "the value on another replica", got.Value, []byte(strconv.Itoa(winner)))
	}
	must(t, replicas[0].DeleteRecord(ctx, "key/root"))
	for _, s := range replicas {
		_, err := s.GetRecord(ctx, "key/root")
		mustBe(t, err, task.ErrNotFound)
	}
}
