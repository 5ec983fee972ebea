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
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
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

// key returns a key that depends only on the name.
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

// fill adds tasks in every state to a store, one of them with a large answer, and notes about
// them.
func fill(t *testing.T, s gatestore.Store) {
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
			_, err := lifecycle.Advance(t.Context(), s, ref, e, epoch.Add(time.Second))
			must(t, err)
		}
	}
}

// allChunks is the number of chunks of all answers that fill creates.
const allChunks = 4 + 4 + 23

// life returns the transitions of task i.
func life(t *testing.T, s gatestore.Store, ref task.Ref, i int) []lifecycle.Event {
	t.Helper()
	events := []lifecycle.Event{
		lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)},
		lifecycle.Approve{By: "bob", Reason: secret},
		lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)},
	}
	switch {
	case i%10 < 3:
		return events[:i%10]
	case i%10 == 4:
		return []lifecycle.Event{events[0], lifecycle.Reject{By: "eve", Reason: "no"}}
	}
	answer := `{"content":"` + secret + strings.Repeat("é", 100) + `"}`
	if i%50 == 7 {
		answer = `{"content":"` + secret + strings.Repeat("0123456789", 20_000) + `"}`
	}
	if i == 107 { // SQLite keeps most of it in a file
		answer = `{"content":"` + strings.Repeat(secret+"0", 150_000) + `"}`
	}
	result, err := storekit.WriteResult(t.Context(), s, ref, strings.NewReader(answer))
	must(t, err)
	result.Kind = task.ResultOK
	return append(events, lifecycle.Complete{By: "gate", Result: result})
}

// An inventory is the whole decrypted content of a store.
type inventory struct {
	Tasks   []task.Task
	Answers map[task.ID]string
	Entries []auditlog.Entry
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
				must(t, storekit.ReadResult(t.Context(), s, found, &answer))
				all.Answers[found.ID] = answer.String()
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	entries, err := s.Entries(t.Context(), auditlog.Query{Limit: 1000})
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

// An export and import from SQLite to PostgreSQL to Redis to memory and back to SQLite, with
// other keys at each step, loses and changes nothing.
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
		moved, err := storage.Export(t.Context(), from, &export, storage.Decrypted)
		must(t, err)
		to := open(t, next)
		got, err := storage.Import(t.Context(), to, &export, storage.IntoEmpty, epoch)
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

// By default, an export decrypts nothing, and only the keys can read it.
func TestExportKeepsSecrets(t *testing.T) {
	settings := inDir(t)
	settings.Keys = key("a")
	s := open(t, settings)
	fill(t, s)
	want := take(t, s)
	must(t, s.Close())

	settings.Keys = "" // an export needs no keys
	unread, err := settings.OpenUnverified(t.Context())
	must(t, err)
	defer unread.Close()
	var export, plain bytes.Buffer
	_, err = storage.Export(t.Context(), unread, &export, storage.AsStored)
	must(t, err)
	if bytes.Contains(export.Bytes(), []byte(secret)) {
		t.Error("the export has unencrypted secrets")
	}
	if _, err := storage.Export(t.Context(), unread, &plain, storage.Decrypted); !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("decrypted without a key: %v", err)
	}
	text := export.Bytes()
	for _, keys := range []string{"", key("b")} {
		to := open(t, storage.Settings{DSN: "memory:", Keys: keys})
		if _, err := storage.Import(t.Context(), to, bytes.NewReader(text), storage.IntoEmpty, epoch); !errors.Is(err, task.ErrUnreadable) {
			t.Errorf("imported with keys %q: %v", keys, err)
		}
	}
	to := open(t, storage.Settings{DSN: "memory:", Keys: key("b") + "," + key("a")})
	_, err = storage.Import(t.Context(), to, bytes.NewReader(text), storage.IntoEmpty, epoch)
	must(t, err)
	if diff := cmp.Diff(want, take(t, to)); diff != "" {
		t.Errorf("after the import (-want +got):\n%s", diff)
	}
}

// An import refuses a store with content, and incomplete or damaged exports.
func TestImportRefusesIncompleteExport(t *testing.T) {
	s := open(t, storage.Settings{DSN: "memory:"})
	fill(t, s)
	var export bytes.Buffer
	_, err := storage.Export(t.Context(), s, &export, storage.AsStored)
	must(t, err)
	before := take(t, s)
	if _, err := storage.Import(t.Context(), s, bytes.NewReader(export.Bytes()), storage.IntoEmpty, epoch); !errors.Is(err, storage.ErrNotEmpty) {
		t.Errorf("imported into itself: %v", err)
	}
	lines := strings.SplitAfter(export.String(), "\n")
	lines = lines[:len(lines)-1] // the element after the last newline is empty
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
			if moved, err := storage.Import(t.Context(), to, strings.NewReader(text), storage.IntoEmpty, epoch); err == nil {
				t.Errorf("imported %+v", moved)
			}
		})
	}
	if diff := cmp.Diff(before, take(t, s)); diff != "" {
		t.Errorf("the store was changed (-want +got):\n%s", diff)
	}
}

// Check reports every problem, and nothing else.
func TestCheckReportsEveryProblem(t *testing.T) {
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
	must(t, s.Create(t.Context(), fake, task.Limits{}))
	fake.ID = "tg_plain"
	must(t, plain.Create(t.Context(), fake, task.Limits{}))
	must(t, s.Close())
	file, _ := settings.File()
	db, err := sql.Open("sqlite3", "file:"+file)
	must(t, err)
	for _, statement := range []string{
		"UPDATE tasks SET document = replace(document, '\"state\"', '\"stare\"') WHERE id = 'tg_003'",
		"UPDATE tasks SET document = replace(document, 'sealed:1:a:', 'sealed:1:z:') WHERE id = 'tg_013'",
		"UPDATE tasks SET document = (SELECT document FROM tasks WHERE id = 'tg_100') WHERE id = 'tg_101'",
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

	s, err = settings.OpenUnverified(t.Context())
	must(t, err)
	defer s.Close()
	if _, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_101")); !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("a task that replaced another can be read: %v", err)
	}
	h, problems := health(t, s)
	for _, want := range []string{"tg_fake: the call does not match its digest", "tg_plain", "is not encrypted", "tg_003 cannot be read", "tg_101 cannot be read", "tg_013", "tg_007", "tg_057", "audit log: entry 77 is missing"} {
		if !strings.Contains(strings.Join(problems, "\n"), want) {
			t.Errorf("no problem about %q", want)
		}
	}
	if len(problems) != 8 || h.Problems != 8 || h.Tasks != 152 || h.Keys[""] != 1 || h.Keys["a"] != 148 || h.Keys["z"] != 1 {
		t.Errorf("%+v, problems:\n%s", h, strings.Join(problems, "\n"))
	}
	if text := strings.Join(problems, "\n"); strings.Contains(text, secret) {
		t.Errorf("problems contain a secret: %s", text)
	}
}

// Opening a Redis server without persistence calls OnNotDurable.
func TestNotDurableServerIsReported(t *testing.T) {
	server, err := testenv.StartRedis(t.Context(), "--appendonly", "no")
	if !testenv.Available(t, err) {
		return
	}
	t.Cleanup(func() { must(t, server.Stop()) })
	var told []error
	settings := storage.Settings{DSN: server.URL(), OnNotDurable: func(err error) { told = append(told, err) }}
	open(t, settings)
	if len(told) != 1 || !errors.Is(told[0], redisstore.ErrNotDurable) {
		t.Errorf("OnNotDurable got %v; want a missing persistence", told)
	}
}

// A call that cannot be read is reported. It hides no other calls from lists and from
// housekeeping, and fails an export.
func TestDamagedCallHidesNoOther(t *testing.T) {
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
	settings.OnUnreadable = func(err error) { told += err.Error() }
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
		t.Errorf("%d tasks were listed, with the reports %q; want all but three", seen, told)
	}
	overdue, err := s.Overdue(t.Context(), epoch.Add(24*time.Hour), 2)
	must(t, err)
	if len(overdue) != 2 {
		t.Errorf("%d tasks are overdue; want 2 that can be read", len(overdue))
	}
	if _, err := storage.Export(t.Context(), s, io.Discard, storage.AsStored); !errors.Is(err, task.ErrUnreadable) {
		t.Errorf("an incomplete export: %v", err)
	}
}

// After Rekey, only the first key is needed, and the file contains no old content.
func TestRekeyLeavesNoOldContent(t *testing.T) {
	settings := inDir(t)
	s := open(t, settings)
	fill(t, s)
	must(t, s.Close())
	settings.Keys = key("a")
	s = open(t, settings)
	_, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_007"))
	if !errors.Is(err, sealedstore.ErrNotSealed) {
		t.Errorf("a task that is not encrypted is read: %v", err)
	}
	stored, err := s.Unwrap().Get(t.Context(), task.AnyOwner().Ref("tg_007"))
	must(t, err)
	stored.Version++
	must(t, s.Swap(t.Context(), stored)) // as earlier versions did, which did not encrypt the answer again
	if n, err := s.Unsealed(t.Context()); n != 149 || err != nil {
		t.Errorf("%d tasks are not encrypted, %v; want 149", n, err)
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
			t.Errorf("gate.db%s has unencrypted secrets", suffix)
		}
	}
}

// Rekey goes on after a call that cannot be decrypted.
func TestRekeyGoesOnAfterUnreadableCall(t *testing.T) {
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
		t.Errorf("%d tasks, %v; want 2, and an error about tg_1", n, err)
	}
}

// Vacuum shrinks a file after deletions.
func TestVacuumShrinksFile(t *testing.T) {
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

// Migrated describes what Open did to the tables.
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
