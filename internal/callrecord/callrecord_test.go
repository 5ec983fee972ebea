package callrecord_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
)

var start = time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)

// config returns the settings of a log in a store.
func config(t testing.TB, s gatestore.Records) callrecord.Config {
	return callrecord.Config{
		Store: s, Now: time.Now, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Key:      func(context.Context) ([]byte, error) { return []byte("a key"), nil },
		Settings: callrecord.Settings{Arguments: callrecord.Digests, Retention: time.Hour, MaxSize: 256 << 20},
	}
}

// entry returns the entry of a forwarded call.
func entry(n int) callrecord.Entry {
	return callrecord.Entry{
		Time: start.Add(time.Duration(n) * time.Millisecond), Event: callrecord.Judged, Upstream: "files", Method: "tools/call", Name: fmt.Sprintf("tool_%d", n%7),
		Principal: "agent", Arguments: fmt.Appendf(nil, `{"path":"/tmp/%d"}`, n), Action: policy.Forward, Rule: "rules[0]", Snapshot: "0123456789abcdef",
		Outcome: "success", Took: time.Duration(n) * time.Microsecond,
	}
}

// collect returns all entries of a store that f selects.
func collect(t *testing.T, s gatestore.Records, f callrecord.Filter) []callrecord.Entry {
	t.Helper()
	var all []callrecord.Entry
	for e, err := range callrecord.All(t.Context(), s, f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// writeAll records entries and closes the log.
func writeAll(t *testing.T, cfg callrecord.Config, all ...callrecord.Entry) {
	t.Helper()
	l := callrecord.New(cfg)
	for _, e := range all {
		l.Add(e)
	}
	l.Close(t.Context())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever is recorded is read again, in any number of blocks.
func TestEntriesAreReadAsTheyWereRecorded(t *testing.T) {
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 1))
		s := memstore.New(memstore.Options{})
		cfg := config(t, s)
		cfg.Settings.Arguments = callrecord.Full
		var want []callrecord.Entry
		l := callrecord.New(cfg)
		for n := range random.IntN(800) {
			e := entry(n)
			if random.IntN(20) == 0 {
				e.Arguments = fmt.Appendf(nil, `{"x":"%x"}`, randomBytes(random, random.IntN(15<<10)))
			}
			if random.IntN(5) == 0 {
				e.Event, e.ID, e.By, e.Decided = callrecord.Ended, "tg_1", []string{"eve", "\u2028<x>"}, start
			}
			l.Add(e)
			want = append(want, e)
		}
		l.Close(t.Context())
		got := collect(t, s, callrecord.Filter{})
		for i := range got {
			if got[i].Digest == "" {
				t.Fatalf("seed %d: entry %d has no digest", seed, i)
			}
			got[i].Digest, got[i].Ref = "", ""
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: read %d entries; want %d", seed, len(got), len(want))
		}
		for i := range want {
			if !reflect.DeepEqual(want[i], got[i]) {
				t.Fatalf("seed %d: entry %d (-recorded +read):\n%s", seed, i, cmp.Diff(want[i], got[i]))
			}
		}
		if r, err := callrecord.Verify(t.Context(), s); err != nil || !r.OK() || r.Entries != len(want) {
			t.Fatalf("seed %d: Verify returned %+v, %v", seed, r, err)
		}
	}
}

func randomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// Every field of an entry is written and read.
func TestEveryFieldIsWritten(t *testing.T) {
	yes := true
	want := callrecord.Entry{Took: 1, Time: start, Decided: start.Add(time.Nanosecond), Hints: policy.Annotations{ReadOnly: &yes, OpenWorld: &yes, Destructive: new(bool), Idempotent: new(bool), Title: "t\n"}}
	v := reflect.ValueOf(&want).Elem()
	fill := func(v reflect.Value, name string) {
		switch v.Kind() {
		case reflect.String:
			v.SetString(name + ` "\<>` + "\u2028\n")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Slice:
			if v.Type().Elem().Kind() == reflect.String {
				v.Set(reflect.ValueOf([]string{name, "x"}))
			} else {
				v.SetBytes([]byte(`{"a":1}`))
			}
		default:
		}
	}
	for i := range v.NumField() {
		fill(v.Field(i), v.Type().Field(i).Name)
	}
	for i := range 3 {
		fill(v.FieldByName("Client").Field(i), "client")
	}
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Fatalf("the test does not fill %s", v.Type().Field(i).Name)
		}
	}
	for _, e := range []callrecord.Entry{want, {Time: start}} {
		var b bytes.Buffer
		if err := e.Write(&b); err != nil {
			t.Fatal(err)
		}
		for got, err := range callrecord.Read(&b) {
			if diff := cmp.Diff(e, got); err != nil || diff != "" {
				t.Errorf("(-written +read) %v:\n%s", err, diff)
			}
		}
	}
	broken := entry(1)
	broken.Arguments = []byte(`{"a":1,"a":2}`)
	if err := broken.Write(io.Discard); err == nil {
		t.Error("invalid arguments are written")
	}
}

func TestDigestsAreKeyed(t *testing.T) {
	digests := func(key string, texts ...string) (all []string) {
		s := memstore.New(memstore.Options{})
		cfg := config(t, s)
		cfg.Key = func(context.Context) ([]byte, error) { return []byte(key), nil }
		var entries []callrecord.Entry
		for _, text := range texts {
			e := entry(1)
			e.Arguments = []byte(text)
			entries = append(entries, e)
		}
		writeAll(t, cfg, entries...)
		for _, e := range collect(t, s, callrecord.Filter{}) {
			if e.Arguments != nil {
				t.Errorf("arguments %s were recorded", e.Arguments)
			}
			all = append(all, e.Digest)
		}
		return all
	}
	long := `{"a":"` + strings.Repeat("x", 40<<10) + `"}`
	one := digests("one", `{"a":1,"b":"x"}`, `{"a":1,"b":"x"}`, `{"a":2,"b":"x"}`, long, long, "")
	two := digests("two", `{"a":1,"b":"x"}`)
	switch {
	case one[0] != one[1] || one[3] != one[4]:
		t.Error("equal arguments have different digests")
	case one[0] == one[2] || one[0] == one[3] || one[0] == "" || one[3] == "":
		t.Error("different arguments have equal digests, or none")
	case one[0] == two[0]:
		t.Error("digests do not depend on the key")
	case one[5] != "":
		t.Error("no arguments have a digest")
	}
}

func TestArguments(t *testing.T) {
	long := []byte(`{"a":"` + strings.Repeat("x", 32<<10) + `"}`)
	for _, test := range []struct {
		name      string
		detail    callrecord.Detail
		arguments []byte
		want      string
		redacted  bool
	}{
		{"digests", callrecord.Digests, []byte(`{"a":"secret"}`), "", false},
		{"full", callrecord.Full, []byte(`{"a":"secret"}`), `{"a":"secret"}`, false},
		{"redacted", callrecord.Redacted, []byte(`{"a":"secret"}`), `{"a":"[redacted]"}`, true},
		{"nothing to redact", callrecord.Redacted, []byte(`{"a":"open"}`), `{"a":"open"}`, false},
		{"too long", callrecord.Full, long, "", true},
		{"invalid", callrecord.Full, []byte(`{"a":1,"a":2}`), "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := memstore.New(memstore.Options{})
			cfg := config(t, s)
			cfg.Settings.Arguments = test.detail
			cfg.Redact = func(arguments []byte) []byte {
				return bytes.ReplaceAll(arguments, []byte("secret"), []byte("[redacted]"))
			}
			e := entry(1)
			e.Arguments = test.arguments
			writeAll(t, cfg, e)
			got := collect(t, s, callrecord.Filter{})
			if len(got) != 1 || string(got[0].Arguments) != test.want || got[0].Redacted != test.redacted || got[0].Digest == "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestFilter(t *testing.T) {
	s := memstore.New(memstore.Options{})
	var all []callrecord.Entry
	for n := range 3000 {
		all = append(all, entry(n))
	}
	writeAll(t, config(t, s), all...)
	for _, test := range []struct {
		filter callrecord.Filter
		want   int
	}{
		{callrecord.Filter{}, 3000},
		{callrecord.Filter{Since: start.Add(time.Second)}, 2000},
		{callrecord.Filter{Until: start.Add(time.Second)}, 1000},
		{callrecord.Filter{Since: start.Add(time.Second), Until: start.Add(time.Second + time.Millisecond)}, 1},
		{callrecord.Filter{Since: time.Now()}, 0},
		{callrecord.Filter{Name: "tool_0", Upstream: "files"}, 429},
		{callrecord.Filter{Principal: "other"}, 0},
		{callrecord.Filter{Outcome: "success", Action: "forward"}, 3000},
	} {
		if got := len(collect(t, s, test.filter)); got != test.want {
			t.Errorf("%+v selects %d entries; want %d", test.filter, got, test.want)
		}
	}
}

// pages returns all entries by pages, and the last cursor.
func pages(t *testing.T, s gatestore.Records, f callrecord.Filter) (all []callrecord.Entry, cursor string) {
	t.Helper()
	find := func(ctx context.Context, f callrecord.Filter) (callrecord.Page, error) {
		return callrecord.Find(ctx, s, f)
	}
	cursor = f.After
	for page, err := range callrecord.Pages(t.Context(), find, f) {
		if err != nil {
			t.Fatal(err)
		}
		all, cursor = append(all, page.Entries...), page.Next
	}
	return all, cursor
}

// A reader that goes on from a cursor gets each entry once, also those of a process whose block
// appears after a later one of another process.
func TestPagesHaveEachEntryOnce(t *testing.T) {
	s := memstore.New(memstore.Options{})
	at := start
	write := func(after time.Duration, n int) {
		t.Helper()
		cfg := config(t, s)
		at = start.Add(after)
		cfg.Now = func() time.Time { return at }
		writeAll(t, cfg, entry(n))
	}
	cursor := ""
	for i, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {40 * time.Second, 2}, {20 * time.Second, 3}, {60 * time.Second, 4}, {35 * time.Second, 5}, {10 * time.Minute, 6}} {
		write(step.after, step.want)
		got, next := pages(t, s, callrecord.Filter{After: cursor, Limit: 1})
		if len(got) != 1 || !got[0].Time.Equal(entry(step.want).Time) || next == cursor {
			t.Fatalf("step %d: got %v after %s; want entry %d", i, got, cursor, step.want)
		}
		cursor = next
	}
	if again, next := pages(t, s, callrecord.Filter{After: cursor}); len(again) > 0 || next != cursor || strings.Count(cursor, ",") != 1 {
		t.Errorf("after %s: %v, %s", cursor, again, next)
	}
	if all, _ := pages(t, s, callrecord.Filter{Limit: 2}); len(all) != 6 {
		t.Errorf("%d entries from the beginning", len(all))
	}
	if some, _ := pages(t, s, callrecord.Filter{Principal: "nobody"}); len(some) > 0 {
		t.Errorf("selected %v", some)
	}
	for _, bad := range []string{"x", "20261119T120000.000000Z", "20261119T120000.000000Z,a", "20261119T120000.000000Z,a.b"} {
		if _, err := callrecord.Find(t.Context(), s, callrecord.Filter{After: bad}); !errors.Is(err, callrecord.ErrCursor) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Each entry has a reference that names it, also after others were deleted.
func TestRefsNameEntries(t *testing.T) {
	s := memstore.New(memstore.Options{})
	cfg := config(t, s)
	cfg.Now = func() time.Time { return start } // blocks of one second
	var all []callrecord.Entry
	for n := range 2000 { // several blocks
		all = append(all, entry(n))
	}
	for range 3 {
		writeAll(t, cfg, all...)
	}
	find := func(ref string) []callrecord.Entry {
		p, err := callrecord.Find(t.Context(), s, callrecord.Filter{Ref: ref, Name: "other"})
		if err != nil || p.Next != "" {
			t.Fatalf("Find returned %+v, %v", p, err)
		}
		return p.Entries
	}
	got, seen := collect(t, s, callrecord.Filter{}), map[string]bool{}
	for i, e := range got {
		if seen[e.Ref] {
			t.Fatalf("two entries have the reference %s", e.Ref)
		}
		seen[e.Ref] = true
		if i%97 == 0 {
			if found := find(strings.ToUpper(e.Ref)); len(found) != 1 || !reflect.DeepEqual(found[0], e) {
				t.Fatalf("%s names %+v; want %+v", e.Ref, found, e)
			}
		}
	}
	records, err := s.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "calls/", Limit: 1})
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	if err := s.DeleteRecord(t.Context(), records[0].Name); err != nil {
		t.Fatal(err)
	}
	if found := find(got[0].Ref); len(found) > 0 {
		t.Errorf("the reference of a deleted entry names %+v", found)
	}
	for _, wrong := range []string{"c_", "c_-1-1", "c_tlxab2abcdef-0", "c_tlxab2abcdef-x-1", "c_tlxab2abcdef-1-0", "tg_tlxab2abcdef-1-1"} {
		if _, err := callrecord.Find(t.Context(), s, callrecord.Filter{Ref: wrong}); !errors.Is(err, callrecord.ErrRef) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// tampered returns a store with several blocks of one chain.
func tampered(t *testing.T) (s *memstore.Store, names []string) {
	s = memstore.New(memstore.Options{})
	cfg := config(t, s)
	cfg.Settings.Arguments = callrecord.Full
	random := rand.New(rand.NewPCG(1, 1))
	var all []callrecord.Entry
	for n := range 40 {
		e := entry(n)
		e.Arguments = fmt.Appendf(nil, `{"x":"%x"}`, randomBytes(random, 10<<10))
		all = append(all, e)
	}
	writeAll(t, cfg, all...)
	found, err := s.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "calls/", Limit: 100})
	if err != nil || len(found) < 5 {
		t.Fatalf("%d blocks, %v", len(found), err)
	}
	for _, r := range found {
		names = append(names, r.Name)
	}
	return s, names
}

func TestTamperingIsFound(t *testing.T) {
	replace := func(t *testing.T, s *memstore.Store, name string, change func(r *gatestore.Record)) {
		r, err := s.GetRecord(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteRecord(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if change(&r); r.Name == "" {
			return
		}
		r.Version = 1
		if err := s.PutRecord(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		do   func(t *testing.T, s *memstore.Store, names []string)
		want string // in the problem; empty if there is none
	}{
		{"nothing", func(*testing.T, *memstore.Store, []string) {}, ""},
		{"removed at the front", func(t *testing.T, s *memstore.Store, names []string) {
			replace(t, s, names[0], func(r *gatestore.Record) { r.Name = "" })
		}, ""},
		{"removed in the middle", func(t *testing.T, s *memstore.Store, names []string) {
			replace(t, s, names[2], func(r *gatestore.Record) { r.Name = "" })
		}, "block 4 after block 2"},
		{"removed at the end", func(t *testing.T, s *memstore.Store, names []string) {
			replace(t, s, names[len(names)-1], func(r *gatestore.Record) { r.Name = "" })
		}, "is missing"},
		{"header changed", func(t *testing.T, s *memstore.Store, names []string) {
			replace(t, s, names[1], func(r *gatestore.Record) {
				r.Value = bytes.Replace(r.Value, []byte(`"newest":"2026`), []byte(`"newest":"2027`), 1)
			})
		}, "block 2 of chain"},
		{"entry changed", func(t *testing.T, s *memstore.Store, names []string) {
			replace(t, s, names[1], func(r *gatestore.Record) { r.Value[len(r.Value)/2] ^= 1 })
		}, "block"},
		{"reordered", func(t *testing.T, s *memstore.Store, names []string) {
			replace(t, s, names[1], func(r *gatestore.Record) {
				r.Name = strings.Replace(r.Name, "calls/2", "calls/3", 1)
			})
		}, "removed, repeated or reordered"},
		{"renamed", func(t *testing.T, s *memstore.Store, names []string) {
			replace(t, s, names[1], func(r *gatestore.Record) { r.Name += "0" })
		}, "its name"},
		{"foreign", func(t *testing.T, s *memstore.Store, names []string) {
			replace(t, s, names[1], func(r *gatestore.Record) { r.Value = []byte("x") })
		}, "no block"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, names := tampered(t)
			before, err := callrecord.Verify(t.Context(), s)
			if err != nil || !before.OK() || len(before.Heads) != 1 {
				t.Fatalf("before: %+v, %v", before, err)
			}
			head, err := callrecord.ParseLink(before.Heads[0].String())
			if err != nil {
				t.Fatal(err)
			}
			test.do(t, s, names)
			r, err := callrecord.Verify(t.Context(), s, head)
			if err != nil || r.OK() != (test.want == "") || !strings.Contains(strings.Join(r.Problems, "\n"), test.want) {
				t.Errorf("Verify returned %+v, %v; want a problem with %q", r, err, test.want)
			}
		})
	}
}

// A failing store fails until it is repaired.
type failing struct {
	gatestore.Records

	mu     sync.Mutex
	broken bool
	lost   bool // fail after the write
	tries  chan struct{}
}

var errBroken = errors.New("broken")

func (f *failing) PutRecord(ctx context.Context, r gatestore.Record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case f.tries <- struct{}{}:
	default:
	}
	if f.lost {
		f.lost = false
		return errors.Join(f.Records.PutRecord(ctx, r), errBroken)
	}
	if f.broken {
		return errBroken
	}
	return f.Records.PutRecord(ctx, r)
}

func (f *failing) repair() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = false
}

func TestWriteIsRepeated(t *testing.T) {
	inner := memstore.New(memstore.Options{})
	s := &failing{Records: inner, lost: true}
	writeAll(t, config(t, s), entry(1), entry(2)) // the result of the write is lost
	s.broken, s.tries = true, make(chan struct{})
	l := callrecord.New(config(t, s))
	l.Add(entry(3))
	<-s.tries
	s.repair()
	l.Close(t.Context())
	if got := len(collect(t, inner, callrecord.Filter{})); got != 3 {
		t.Errorf("read %d entries; want 3", got)
	}
	if r, err := callrecord.Verify(t.Context(), inner); err != nil || !r.OK() || r.Blocks != 2 {
		t.Errorf("Verify returned %+v, %v", r, err)
	}
}

// A store that does not work fills the buffer.
func TestFullBuffer(t *testing.T) {
	arguments, name := entry(1), entry(2)
	arguments.Arguments = []byte(`"` + strings.Repeat("x", 32<<10-2) + `"`)
	name.Name = strings.Repeat("x", 32<<10)
	const many = 1200 // of these more than fit
	for _, test := range []struct {
		wait bool
		big  callrecord.Entry
	}{{false, arguments}, {true, arguments}, {false, name}, {true, name}} {
		wait, big := test.wait, test.big
		t.Run(fmt.Sprintf("wait %v, name of %d bytes", wait, len(big.Name)), func(t *testing.T) {
			inner := memstore.New(memstore.Options{})
			s := &failing{Records: inner, broken: true, tries: make(chan struct{})}
			cfg := config(t, s)
			cfg.Settings.Wait = wait
			dropped := 0
			cfg.Dropped = func(n int) { dropped += n }
			l := callrecord.New(cfg)
			l.Add(entry(0))
			<-s.tries // the writer is busy with the store from now on
			added := make(chan struct{})
			go func() {
				defer close(added)
				for range many {
					l.Add(big)
				}
			}()
			if !wait {
				<-added
			} else {
				select {
				case <-added:
					t.Fatal("nobody waits although the buffer is full")
				case <-time.After(100 * time.Millisecond):
				}
			}
			s.repair()
			<-added
			l.Close(t.Context())
			got := len(collect(t, inner, callrecord.Filter{}))
			r, err := callrecord.Verify(t.Context(), inner)
			if err != nil || !r.OK() || int(r.Dropped) != dropped || got != many+1-dropped || (dropped == 0) != wait {
				t.Errorf("read %d entries, dropped %d; Verify returned %+v, %v", got, dropped, r, err)
			}
		})
	}
}

func TestOldBlocksAreDeleted(t *testing.T) {
	s, names := tampered(t)
	cfg := config(t, s)
	cfg.Settings.MaxSize = 150 << 10
	l := callrecord.New(cfg)
	l.Add(entry(1))
	for {
		found, err := s.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "calls/", Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 && found[0].Name != names[0] && len(found) <= 4 && found[len(found)-1].Name > names[len(names)-1] {
			break
		}
		time.Sleep(time.Millisecond)
	}
	l.Close(t.Context())
	if r, err := callrecord.Verify(t.Context(), s); err != nil || !r.OK() || r.Deleted == 0 {
		t.Errorf("Verify returned %+v, %v", r, err)
	}
	if n, err := s.SweepRecords(t.Context(), time.Now().Add(2*time.Hour), 100); err != nil || n == 0 {
		t.Errorf("swept %d, %v", n, err)
	}
	if got := collect(t, s, callrecord.Filter{}); len(got) > 0 {
		t.Errorf("%d entries are left after their retention", len(got))
	}
}

// counting counts the records that are read.
type counting struct {
	gatestore.Records
	read atomic.Int64
}

func (c *counting) ListRecords(ctx context.Context, q gatestore.RecordQuery) ([]gatestore.Record, error) {
	found, err := c.Records.ListRecords(ctx, q)
	c.read.Add(int64(len(found)))
	return found, err
}

// A check of the size reads no more than it deletes, and at most a page in addition.
func TestSizeIsCheckedWithoutReadingTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(memstore.Options{})
		const blocks, bytes = 200, 1000
		for n := range blocks {
			must(t, inner.PutRecord(t.Context(), gatestore.Record{Name: fmt.Sprintf("calls/0-%04d", n), Version: 1, Value: make([]byte, bytes)}))
		}
		s := &counting{Records: inner}
		cfg := config(t, s)
		l := callrecord.New(cfg)
		l.Add(entry(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.read.Load(); n > 0 {
			t.Errorf("%d blocks were read although the record is small", n)
		}
		l.Close(t.Context())

		cfg.Settings.MaxSize = (blocks - 20) * bytes
		l = callrecord.New(cfg)
		l.Add(entry(2))
		time.Sleep(time.Minute)
		synctest.Wait()
		l.Close(t.Context())
		size, err := inner.SizeRecords(t.Context(), callrecord.Prefix)
		must(t, err)
		if n := s.read.Load(); size > cfg.Settings.MaxSize || size < cfg.Settings.MaxSize-bytes || n > 50 {
			t.Errorf("%d bytes are left of %d; %d blocks were read", size, cfg.Settings.MaxSize, n)
		}
		must(t, inner.Close())
	})
}

// The record survives a restart, and a sealed store keeps no argument in plain text.
func TestSealedStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gate.db")
	keys, err := sealedstore.ParseKeys("one:" + strings.Repeat("A", 43) + "=")
	if err != nil {
		t.Fatal(err)
	}
	for run := range 2 {
		inner, err := sqlitestore.Open(t.Context(), sqlitestore.Options{File: file})
		if err != nil {
			t.Fatal(err)
		}
		s := sealedstore.New(inner, keys)
		cfg := config(t, s)
		cfg.Settings.Arguments = callrecord.Full
		e := entry(run)
		e.Arguments = []byte(`{"password":"hunter2-hunter2-hunter2"}`)
		writeAll(t, cfg, e)
		if got := collect(t, s, callrecord.Filter{}); len(got) != run+1 {
			t.Errorf("run %d: %d entries", run, len(got))
		}
		found, err := inner.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "calls/", Limit: 10})
		if err != nil || slices.ContainsFunc(found, func(r gatestore.Record) bool { return bytes.Contains(r.Value, []byte("entries")) }) {
			t.Errorf("run %d: a block is not sealed: %v", run, err)
		}
		for _, err := range callrecord.All(t.Context(), inner, callrecord.Filter{}) {
			if err == nil {
				t.Error("a sealed block was read without a key")
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingIsRecorded(t *testing.T) {
	var none *callrecord.Log
	none.Add(entry(1))
	none.Close(t.Context())
	s := memstore.New(memstore.Options{})
	cfg := config(t, s)
	cfg.Settings.Off = true
	writeAll(t, cfg, entry(1))
	callrecord.New(config(t, s)).Close(t.Context())
	if got := collect(t, s, callrecord.Filter{}); none.Records() || len(got) > 0 {
		t.Errorf("recorded %v", got)
	}
}

// BenchmarkAdd is the cost of a recorded call for its request.
func BenchmarkAdd(b *testing.B) {
	cfg := config(b, discard{})
	l := callrecord.New(cfg)
	e := entry(1)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n++; n%10_000 == 0 { // do not measure a full buffer
			b.StopTimer()
			l.Close(b.Context())
			l = callrecord.New(cfg)
			b.StartTimer()
		}
		l.Add(e)
	}
	l.Close(b.Context())
}

type discard struct{ gatestore.Records }

func (discard) PutRecord(context.Context, gatestore.Record) error { return nil }

func (discard) ListRecords(context.Context, gatestore.RecordQuery) ([]gatestore.Record, error) {
	return nil, nil
}

// BenchmarkSQLite is the cost of an entry until it is stored.
func BenchmarkSQLite(b *testing.B) {
	s, err := sqlitestore.Open(b.Context(), sqlitestore.Options{File: filepath.Join(b.TempDir(), "gate.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	cfg := config(b, s)
	cfg.Settings.Wait = true
	l := callrecord.New(cfg)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		l.Add(entry(n))
	}
	l.Close(b.Context())
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
}
