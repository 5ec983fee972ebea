package callrecord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// ended returns the entry about the end of a held call.
func ended(n int) callrecord.Entry {
	e := entry(n)
	e.Event, e.ID, e.Action, e.Outcome, e.By = callrecord.Ended, fmt.Sprintf("tg_%d", n), policy.Approve, "completed", []string{"eve"}
	e.Arguments, e.Shown = nil, jsontext.Value(fmt.Sprintf(`{"user":%d}`, n))
	return e
}

// back returns all entries that f selects, newest first, and the number of pages.
func back(t *testing.T, s gatestore.Records, f callrecord.Filter) (all []callrecord.Entry, pages int) {
	t.Helper()
	for {
		p, err := callrecord.Latest(t.Context(), s, f)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Entries) > f.Limit {
			t.Fatalf("a page has %d entries; want at most %d", len(p.Entries), f.Limit)
		}
		all, pages = append(all, p.Entries...), pages+1
		if f.Before = p.Next; p.Next == "" {
			return all, pages
		}
	}
}

// Pages go back to the first entry, with each selected entry once, and end there.
func TestLatest(t *testing.T) {
	s := memstore.New(memstore.Options{})
	now := start
	var newest []string
	for part := range 40 { // each writes a chain of its own
		cfg := config(t, s)
		now = start.Add(time.Duration(part*100+100) * time.Millisecond)
		cfg.Now = func() time.Time { return now }
		var all []callrecord.Entry
		for n := part * 100; n < part*100+100; n++ {
			e := entry(n)
			if n%10 == 0 {
				e = ended(n)
				newest = append(newest, e.ID)
			}
			all = append(all, e)
		}
		writeAll(t, cfg, all...)
	}
	slices.Reverse(newest)
	ids := func(all []callrecord.Entry) (ids []string) {
		for _, e := range all {
			ids = append(ids, e.ID)
		}
		return ids
	}
	for _, limit := range []int{1, 7, 100, 400, 1000} {
		all, pages := back(t, s, callrecord.Filter{Event: callrecord.Ended, Limit: limit})
		if !slices.Equal(ids(all), newest) || pages != (len(newest)+limit-1)/limit {
			t.Errorf("limit %d: %d entries on %d pages; want %d", limit, len(all), pages, len(newest))
		}
	}
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Millisecond) }
	for name, one := range map[string]struct {
		f    callrecord.Filter
		want []string
	}{
		"words of the arguments":   {callrecord.Filter{Text: `"USER":3990 TOOL_0`}, []string{"tg_3990"}},
		"one word is missing":      {callrecord.Filter{Text: `"user":3990 another`}, nil},
		"since and until":          {callrecord.Filter{Event: callrecord.Ended, Since: at(1010), Until: at(1030)}, []string{"tg_1020", "tg_1010"}},
		"who decided":              {callrecord.Filter{By: "eve", Since: at(3980)}, []string{"tg_3990", "tg_3980"}},
		"who did not":              {callrecord.Filter{By: "ev"}, nil},
		"id":                       {callrecord.Filter{ID: "tg_399"}, []string{"tg_3990"}},
		"a condition of one's own": {callrecord.Filter{Match: func(e *callrecord.Entry) bool { return e.ID == "tg_0" }}, []string{"tg_0"}},
	} {
		one.f.Limit = 3
		all, _ := back(t, s, one.f)
		if !slices.Equal(ids(all), one.want) {
			t.Errorf("%s: %v; want %v", name, ids(all), one.want)
		}
		for _, e := range all {
			if got, err := callrecord.At(t.Context(), s, e.Ref); err != nil || got.ID != e.ID {
				t.Errorf("%s: at %s is %q, %v; want %q", name, e.Ref, got.ID, err, e.ID)
			}
		}
	}
	for _, bad := range []string{"x", "x.1", "20261119T120000.000000Z-a-1.", "20261119T120000.000000Z-a-1.-1", ".."} {
		if _, err := callrecord.Latest(t.Context(), s, callrecord.Filter{Before: bad}); !errors.Is(err, callrecord.ErrCursor) {
			t.Errorf("cursor %q: %v", bad, err)
		}
		if _, err := callrecord.At(t.Context(), s, bad); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("reference %q: %v", bad, err)
		}
	}
	if _, err := callrecord.At(t.Context(), s, "c_aaaaaaa-1-1"); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("a reference to no block: %v", err)
	}
}

// A damaged block does not hide the others.
func TestLatestLeavesOutDamagedBlocks(t *testing.T) {
	s, names := tampered(t)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := callrecord.Latest(t.Context(), s, callrecord.Filter{Limit: 100_000})
	must(err)
	r, err := s.GetRecord(t.Context(), names[1])
	must(err)
	must(s.DeleteRecord(t.Context(), r.Name))
	r.Value = []byte(strings.Repeat("x", len(r.Value)))
	must(s.PutRecord(t.Context(), r))
	some, err := callrecord.Latest(t.Context(), s, callrecord.Filter{Limit: 100_000})
	if err != nil || some.Unreadable != 1 || len(some.Entries) == 0 || len(some.Entries) >= len(all.Entries) {
		t.Errorf("%d of %d entries, %d blocks unreadable, %v", len(some.Entries), len(all.Entries), some.Unreadable, err)
	}
}

// A readCounter store counts the records that are read.
type readCounter struct {
	gatestore.Records

	read int
}

func (c *readCounter) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	found, err := c.Records.ListRecords(ctx, q)
	c.read += len(found)
	return found, err
}

// A page reads a limited number of blocks, whether or not it finds anything, and the next one goes on.
func TestLatestIsBounded(t *testing.T) {
	s := &readCounter{Records: memstore.New(memstore.Options{})}
	now := start
	cfg := config(t, s)
	cfg.Now = func() time.Time { return now }
	l := callrecord.New(cfg)
	for n := range 600 {
		now = start.Add(time.Duration(n) * time.Second)
		l.Add(ended(n))
		l.Flush(t.Context())
	}
	l.Close(t.Context())
	f := callrecord.Filter{Text: "tg_3", Limit: 30, Match: func(e *callrecord.Entry) bool { return e.ID == "tg_3" }}
	p, err := callrecord.Latest(t.Context(), s, f)
	if err != nil || len(p.Entries) > 0 || p.Next == "" || s.read > 550 {
		t.Fatalf("found %d entries in %d blocks, %v; want none in 500", len(p.Entries), s.read, err)
	}
	f.Before = p.Next
	if p, err = callrecord.Latest(t.Context(), s, f); err != nil || len(p.Entries) != 1 || p.Next != "" {
		t.Errorf("then found %d entries, %v; want 1", len(p.Entries), err)
	}
	s.read = 0
	if _, err = callrecord.Latest(t.Context(), s, callrecord.Filter{Since: now.Add(-10 * time.Second), Limit: 30}); err != nil || s.read > 11 {
		t.Errorf("read %d blocks for the last ten seconds, %v", s.read, err)
	}
}

// What was added is in the store after Flush, also while the log is closed, and if there is none.
func TestFlush(t *testing.T) {
	s := memstore.New(memstore.Options{})
	l := callrecord.New(config(t, s))
	l.Flush(t.Context())
	for n := range 3 {
		l.Add(entry(n))
		l.Flush(t.Context())
		if got := collect(t, s, callrecord.Filter{}); len(got) != n+1 {
			t.Fatalf("%d entries after Flush; want %d", len(got), n+1)
		}
	}
	l.Close(t.Context())
	l.Flush(t.Context())
	(*callrecord.Log)(nil).Flush(t.Context())
}

// BenchmarkLatest looks through a million forwarded calls among which few were held.
func BenchmarkLatest(b *testing.B) {
	s := memstore.New(memstore.Options{})
	cfg := config(b, s)
	cfg.Settings.Wait = true
	l := callrecord.New(cfg)
	for n := range 200_000 {
		if l.Add(entry(n)); n%1000 == 0 {
			l.Add(ended(n))
		}
	}
	l.Close(b.Context())
	for name, f := range map[string]callrecord.Filter{
		"ended": {Event: callrecord.Ended, Text: "nothing", Limit: 30}, "all": {Text: "nothing", Limit: 30},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := callrecord.Latest(b.Context(), s, f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
