package storage_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/ncruces/go-sqlite3/driver"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// key returns a key that is always the same for its name.
func key(name string) string {
	return name + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name), 32)[:32])
}

func open(t *testing.T, s storage.Settings) *sealedstore.Store {
	t.Helper()
	store, err := s.Open(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	return store
}

func inDir(t *testing.T) storage.Settings {
	t.Helper()
	return storage.Settings{DSN: "sqlite:gate.db", Dir: t.TempDir()}
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)

const secret = "Xylophone"

// fill puts tasks in every state into a store, one with a large answer, and
// notes about them.
func fill(t *testing.T, s task.GateStore) {
	t.Helper()
	for i := range 150 {
		arguments := fmt.Sprintf(`{"n":%d,"secret":%q}`, i, secret)
		made, err := task.New(task.Draft{
			ID: task.ID(fmt.Sprintf("tg_%03d", i)), Owner: fmt.Sprint("owner", i%3), TTL: time.Hour, PollInterval: time.Second,
			Call: task.Call{
				Upstream: "u", Method: "tools/call", Name: "x", Arguments: arguments,
				Message: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":` + arguments + `}}`,
			},
		}, epoch.Add(time.Duration(i)*time.Millisecond))
		must(t, err)
		note := task.Note{At: epoch, Task: made.ID, Step: "held", ArgumentDigest: made.Digest}
		must(t, s.Create(t.Context(), made, task.Limits{}, note))
		ref := task.AnyOwner().Ref(made.ID)
		for _, e := range life(t, s, ref, i) {
			_, err := task.Advance(t.Context(), s, ref, e, epoch.Add(time.Second))
			must(t, err)
		}
	}
}

// allChunks is how many chunks the answers have of all tasks that fill makes.
const allChunks = 4 + 4 + 23

// life returns what happens to task i.
func life(t *testing.T, s task.GateStore, ref task.Ref, i int) []task.Event {
	t.Helper()
	events := []task.Event{
		task.Submit{By: "gate", Deadline: epoch.Add(time.Minute)},
		task.Approve{By: "bob", Reason: secret},
		task.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)},
	}
	switch {
	case i%10 < 3:
		return events[:i%10]
	case i%10 == 4:
		return []task.Event{events[0], task.Reject{By: "eve", Reason: "no"}}
	}
	answer := `{"content":"` + secret + strings.Repeat("é", 100) + `"}`
	if i%50 == 7 {
		answer = `{"content":"` + secret + strings.Repeat("0123456789", 20_000) + `"}`
	}
	if i == 107 { // SQLite keeps most of it in a file
		answer = `{"content":"` + strings.Repeat(secret+"0", 150_000) + `"}`
	}
	result, err := task.WriteResult(t.Context(), s, ref, strings.NewReader(answer))
	must(t, err)
	result.Kind = task.ResultOK
	return append(events, task.Complete{By: "gate", Result: result})
}

// An inventory is everything in a store, in the clear.
type inventory struct {
	Tasks   []task.Task
	Answers map[task.ID]string
	Entries []task.Entry
}

func take(t *testing.T, s *sealedstore.Store) inventory {
	t.Helper()
	all := inventory{Answers: make(map[task.ID]string)}
	q := task.Query{Scope: task.AnyOwner()}
	for {
		page, err := s.List(t.Context(), q)
		must(t, err)
		for _, found := range page.Tasks {
			all.Tasks = append(all.Tasks, found)
			if found.Result != nil {
				var answer bytes.Buffer
				must(t, task.ReadResult(t.Context(), s, found, &answer))
				all.Answers[found.ID] = answer.String()
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	entries, err := s.Entries(t.Context(), task.JournalQuery{Limit: 1000})
	must(t, err)
	all.Entries = entries
	return all
}

func health(t *testing.T, s *sealedstore.Store) (h storage.Health, problems []string) {
	t.Helper()
	h, err := storage.Check(t.Context(), s, func(text string) { problems = append(problems, text) }, func(string) {})
	must(t, err)
	return h, problems
}

// TestRoundTrip moves everything from SQLite to PostgreSQL to Redis to memory
// and back to SQLite, encrypted in other ways at each stop. Nothing is lost or
// changed, and nothing that is there is overwritten.
func TestRoundTrip(t *testing.T) {
	stops := []storage.Settings{
		{DSN: "sqlite:gate.db", Dir: t.TempDir(), Keys: key("a")},
		{DSN: "memory:", Keys: key("d")},
		{DSN: "sqlite:gate.db", Dir: t.TempDir()},
	}
	if db, err := testenv.StartPostgres(context.WithoutCancel(t.Context())); testenv.Available(t, err) {
		defer db.Stop()
		stops = append(stops, storage.Settings{DSN: db.URL(), Keys: key("b") + "," + key("a")})
	}
	if db, err := testenv.StartRedis(context.WithoutCancel(t.Context())); testenv.Available(t, err) {
		defer db.Stop()
		stops = append(stops, storage.Settings{DSN: db.URL(), Keys: key("c")})
	}
	stops = append(stops, storage.Settings{DSN: "sqlite:gate.db", Dir: t.TempDir(), Keys: key("e")})
	from := open(t, stops[0])
	fill(t, from)
	want := take(t, from)
	for _, next := range stops[1:] {
		var export bytes.Buffer
		moved, err := storage.Export(t.Context(), from, &export, storage.Plain)
		must(t, err)
		to := open(t, next)
		got, err := storage.Import(t.Context(), to, &export, storage.Empty, epoch)
		must(t, err)
		if diff := cmp.Diff(moved, got); diff != "" || got.Tasks != 150 || got.Chunks != allChunks || got.Entries != 150 {
			t.Errorf("%s: exported %+v, imported %+v", next.DSN, moved, got)
		}
		if diff := cmp.Diff(want, take(t, to)); diff != "" {
			t.Errorf("%s: after the import (-want +got):\n%s", next.DSN, diff)
		}
		if h, problems := health(t, to); len(problems) > 0 || next.Durable() && (h.Tasks != 150 || h.Entries != 150 || h.Chunks != allChunks) {
			t.Errorf("%s: %+v, %q", next.DSN, h, problems)
		}
		from = to
	}
}

// TestExportKeepsSecrets: without being told so, an export decrypts nothing. It
// is read by those who have the key.
func TestExportKeepsSecrets(t *testing.T) {
	settings := inDir(t)
	settings.Keys = key("a")
	s := open(t, settings)
	fill(t, s)
	want := take(t, s)
	must(t, s.Close())

	settings.Keys = "" // which is not needed to export
	unread, err := settings.OpenUnread(t.Context())
	must(t, err)
	defer unread.Close()
	var export, plain bytes.Buffer
	_, err = storage.Export(t.Context(), unread, &export, storage.AsStored)
	must(t, err)
	if bytes.Contains(export.Bytes(), []byte(secret)) {
		t.Error("the export has secrets in the clear")
	}
	if _, err := storage.Export(t.Context(), unread, &plain, storage.Plain); !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("decrypted without a key: %v", err)
	}
	text := export.Bytes()
	for _, keys := range []string{"", key("b")} {
		to := open(t, storage.Settings{DSN: "memory:", Keys: keys})
		if _, err := storage.Import(t.Context(), to, bytes.NewReader(text), storage.Empty, epoch); !errors.Is(err, task.ErrUnreadable) {
			t.Errorf("imported with keys %q: %v", keys, err)
		}
	}
	to := open(t, storage.Settings{DSN: "memory:", Keys: key("b") + "," + key("a")})
	_, err = storage.Import(t.Context(), to, bytes.NewReader(text), storage.Empty, epoch)
	must(t, err)
	if diff := cmp.Diff(want, take(t, to)); diff != "" {
		t.Errorf("after the import (-want +got):\n%s", diff)
	}
}

// TestImportRefuses: a store that is not empty, and exports that are not whole.
func TestImportRefuses(t *testing.T) {
	s := open(t, storage.Settings{DSN: "memory:"})
	fill(t, s)
	var export bytes.Buffer
	_, err := storage.Export(t.Context(), s, &export, storage.AsStored)
	must(t, err)
	before := take(t, s)
	if _, err := storage.Import(t.Context(), s, bytes.NewReader(export.Bytes()), storage.Empty, epoch); !errors.Is(err, storage.ErrNotEmpty) {
		t.Errorf("imported into itself: %v", err)
	}
	lines := strings.SplitAfter(export.String(), "\n")
	lines = lines[:len(lines)-1] // nothing follows the last
	n := len(lines)
	for name, text := range map[string]string{
		"nothing":            "",
		"no export":          "{}\n",
		"no JSON":            "hello\n",
		"no header":          strings.Join(lines[1:], ""),
		"a later version":    strings.Replace(export.String(), `"export":1`, `"export":2`, 1),
		"cut off":            strings.Join(lines[:n-1], ""),
		"cut in a line":      export.String()[:export.Len()/2],
		"a missing line":     strings.Join(append(append([]string{}, lines[:5]...), lines[6:]...), ""),
		"more after the end": export.String() + lines[1],
		"a task twice":       lines[0] + lines[1] + strings.Join(lines[1:], ""),
		"a changed journal":  strings.Replace(export.String(), `"step":"held"`, `"step":"hold"`, 1),
		"an unknown member":  strings.Replace(export.String(), `{"task":`, `{"tsk":`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			to := open(t, storage.Settings{DSN: "memory:"})
			if moved, err := storage.Import(t.Context(), to, strings.NewReader(text), storage.Empty, epoch); err == nil {
				t.Errorf("imported %+v", moved)
			}
		})
	}
	if diff := cmp.Diff(before, take(t, s)); diff != "" {
		t.Errorf("the store was changed (-want +got):\n%s", diff)
	}
}

// TestCheck finds whatever is wrong, and nothing else.
func TestCheck(t *testing.T) {
	settings := inDir(t)
	settings.Keys = key("a")
	s := open(t, settings)
	fill(t, s)
	plain := sealedstore.New(s.Unwrap(), sealedstore.Keys{})
	fake, err := task.New(task.Draft{
		ID: "tg_fake", Owner: "ann", TTL: time.Hour, PollInterval: time.Second,
		Call: task.Call{Upstream: "u", Method: "tools/call", Name: "x", Arguments: `{"a":1}`, Message: `{"a":1}`},
	}, epoch)
	must(t, err)
	fake.Call.Arguments, fake.Call.Message = `{"a":2}`, `{"a":2}`
	must(t, plain.Create(t.Context(), fake, task.Limits{}))
	must(t, s.Close())
	file, _ := settings.File()
	db, err := sql.Open("sqlite3", "file:"+file)
	must(t, err)
	for _, statement := range []string{
		"UPDATE tasks SET document = replace(document, '\"state\"', '\"stare\"') WHERE id = 'tg_003'",
		"UPDATE tasks SET document = replace(document, 'sealed:1:a:', 'sealed:1:z:') WHERE id = 'tg_013'",
		"DELETE FROM chunks WHERE task = 'tg_007' AND n = 1",
		"UPDATE chunks SET data = (SELECT data FROM chunks WHERE task = 'tg_107' AND n = 0) WHERE task = 'tg_057' AND n = 0",
		"DELETE FROM journal WHERE seq = 77",
	} {
		result, err := db.ExecContext(t.Context(), statement)
		must(t, err)
		if n, err := result.RowsAffected(); n != 1 || err != nil {
			t.Fatalf("%s: %d rows, %v", statement, n, err)
		}
	}
	must(t, db.Close())

	s, err = settings.OpenUnread(t.Context())
	must(t, err)
	defer s.Close()
	h, problems := health(t, s)
	for _, want := range []string{"tg_fake: the call does not match its digest", "tg_003 cannot be read", "tg_013", "tg_007", "tg_057", "audit log: entry 77 is missing"} {
		if !strings.Contains(strings.Join(problems, "\n"), want) {
			t.Errorf("no problem about %q", want)
		}
	}
	if len(problems) != 6 || h.Problems != 6 || h.Tasks != 151 || h.Keys[""] != 1 || h.Keys["a"] != 148 || h.Keys["z"] != 1 {
		t.Errorf("%+v, problems:\n%s", h, strings.Join(problems, "\n"))
	}
	if text := strings.Join(problems, "\n"); strings.Contains(text, secret) {
		t.Errorf("problems tell a secret: %s", text)
	}
}

// TestDoubtful: whoever opens a server that keeps nothing is told.
func TestDoubtful(t *testing.T) {
	server, err := testenv.StartRedis(t.Context(), "--appendonly", "no")
	if !testenv.Available(t, err) {
		return
	}
	t.Cleanup(func() { must(t, server.Stop()) })
	var told []error
	settings := storage.Settings{DSN: server.URL(), Doubtful: func(err error) { told = append(told, err) }}
	open(t, settings)
	if len(told) != 1 || !errors.Is(told[0], redisstore.ErrNotDurable) {
		t.Errorf("told %v; want that it is not durable", told)
	}
}

// TestDamagedCall: a call that cannot be read hides no other from those who
// look at lists, page by page, nor from housekeeping. It is told of, and an
// export does not leave it out in silence.
func TestDamagedCall(t *testing.T) {
	settings := inDir(t)
	s := open(t, settings)
	fill(t, s)
	must(t, s.Close())
	file, _ := settings.File()
	db, err := sql.Open("sqlite3", "file:"+file)
	must(t, err)
	for _, id := range []string{"tg_140", "tg_120", "tg_100"} {
		_, err = db.ExecContext(t.Context(), "UPDATE tasks SET document = replace(document, '\"state\"', '\"stare\"'), due = 0 WHERE id = $1", id)
		must(t, err)
	}
	must(t, db.Close())

	told := ""
	settings.Unreadable = func(err error) { told += err.Error() }
	s = open(t, settings)
	q := task.Query{Scope: task.AnyOwner(), Limit: 10}
	seen := 0
	for {
		page, err := s.List(t.Context(), q)
		must(t, err)
		seen += len(page.Tasks)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if seen != 147 || !strings.Contains(told, "tg_140") {
		t.Errorf("%d tasks were listed, and it was told that %q; want all but three", seen, told)
	}
	overdue, err := s.Overdue(t.Context(), epoch.Add(24*time.Hour), 2)
	must(t, err)
	if len(overdue) != 2 {
		t.Errorf("%d tasks are overdue; want 2 that can be read", len(overdue))
	}
	if _, err := storage.Export(t.Context(), s, io.Discard, storage.AsStored); !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("an export that is not whole: %v", err)
	}
}

// TestRekey: afterwards nothing needs anything but the first key, and the file
// has nothing left of what was there before.
func TestRekey(t *testing.T) {
	settings := inDir(t)
	s := open(t, settings)
	fill(t, s)
	must(t, s.Close())
	settings.Keys = key("a")
	s = open(t, settings)
	_, err := task.Advance(t.Context(), s, task.AnyOwner().Ref("tg_007"), task.Deliver{}, epoch.Add(time.Second))
	must(t, err)
	h, _ := health(t, s)
	if want := map[string]int{"": 150, "a": 1}; !maps.Equal(h.Keys, want) {
		t.Errorf("keys %v before; want %v: an answer that is not encrypted counts", h.Keys, want)
	}
	if n, err := storage.Rekey(t.Context(), s); n != 150 || err != nil {
		t.Errorf("%d tasks, %v; want 150", n, err)
	}
	h, problems := health(t, s)
	if want := map[string]int{"a": 150}; !maps.Equal(h.Keys, want) || len(problems) > 0 {
		t.Errorf("keys %v, want %v; problems %q", h.Keys, want, problems)
	}
	file, _ := settings.File()
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(file + suffix)
		must(t, err)
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("gate.db%s has secrets in the clear", suffix)
		}
	}
}

// TestRekeyGoesOn: what cannot be decrypted keeps nothing else from it.
func TestRekeyGoesOn(t *testing.T) {
	settings := storage.Settings{DSN: "memory:", Keys: key("b") + "," + key("a")}
	s := open(t, settings)
	lost, err := sealedstore.ParseKeys(key("z"))
	must(t, err)
	old, err := sealedstore.ParseKeys(key("a"))
	must(t, err)
	for i, keys := range []sealedstore.Keys{old, lost, old} {
		made, err := task.New(task.Draft{
			ID: task.ID(fmt.Sprint("tg_", i)), Owner: "ann", TTL: time.Hour,
			Call: task.Call{Upstream: "u", Method: "tools/call", Name: "x", Arguments: `{}`, Message: `{}`},
		}, epoch)
		must(t, err)
		must(t, sealedstore.New(s.Unwrap(), keys).Create(t.Context(), made, task.Limits{}))
	}
	n, err := storage.Rekey(t.Context(), s)
	if n != 2 || !errors.Is(err, task.ErrUnreadable) || !strings.Contains(err.Error(), "tg_1") {
		t.Errorf("%d tasks, %v; want 2, and that tg_1 was none of them", n, err)
	}
}

// TestVacuum: a file from which much was deleted becomes smaller.
func TestVacuum(t *testing.T) {
	settings := inDir(t)
	file, _ := settings.File()
	s := open(t, settings)
	fill(t, s)
	noise := make([]byte, task.ChunkSize)
	_, _ = rand.Read(noise)
	for n := range 50 {
		must(t, s.WriteChunk(t.Context(), task.AnyOwner().Ref("tg_007"), n, noise))
	}
	_, err := s.Sweep(t.Context(), epoch.Add(24*time.Hour), 1000)
	must(t, err)
	must(t, s.Close())
	before, err := os.Stat(file)
	must(t, err)
	s = open(t, settings)
	can, err := storage.Vacuum(t.Context(), s)
	must(t, err)
	after, err := os.Stat(file)
	must(t, err)
	if !can || after.Size() > before.Size()/4 {
		t.Errorf("%t, from %d to %d bytes", can, before.Size(), after.Size())
	}
	if _, problems := health(t, s); len(problems) > 0 {
		t.Errorf("problems %q", problems)
	}
	must(t, s.Append(t.Context(), task.Note{At: epoch, Step: "x"}))
}

// TestMigrated tells what was done.
func TestMigrated(t *testing.T) {
	settings := inDir(t)
	for _, want := range []string{"created the tables", "is up to date"} {
		s, err := settings.Open(t.Context())
		must(t, err)
		if got := storage.Migrated(s); !strings.Contains(got, want) {
			t.Errorf("%s; want %s", got, want)
		}
		if _, err := settings.Open(t.Context()); !storage.InUse(err) {
			t.Errorf("opened twice: %v", err)
		}
		must(t, s.Close())
	}
}
