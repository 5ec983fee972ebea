package sealedstore_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore/gatestoretest"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
	"github.com/thoughtgate/thoughtgate-go/task/sealedstore"
	"github.com/thoughtgate/thoughtgate-go/task/sqlitestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text returns the text of keys with the given names. The key depends only on the name.
func text(names ...string) string {
	var parts []string
	for _, name := range names {
		secret := bytes.Repeat([]byte(name), 32)[:32]
		parts = append(parts, name+":"+base64.StdEncoding.EncodeToString(secret))
	}
	return strings.Join(parts, ",")
}

func keys(t *testing.T, names ...string) sealedstore.Keys {
	t.Helper()
	k, err := sealedstore.ParseKeys(text(names...))
	must(t, err)
	return k
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, err error, wants ...error) {
	t.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			t.Fatalf("error %v; want %v", err, want)
		}
	}
}

func inMemory(t *testing.T) gatestore.Store {
	t.Helper()
	s := memstore.New(memstore.Options{})
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func inFile(t *testing.T) (s gatestore.Store, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "gate.db")
	s, err := sqlitestore.Open(t.Context(), sqlitestore.Options{File: file})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, file
}

// TestStore checks that the store keeps the contract of stores, with keys and without.
func TestStore(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) gatestore.Store{
		"memory":  func(t *testing.T) gatestore.Store { return sealedstore.New(inMemory(t), keys(t, "b", "a")) },
		"SQLite":  func(t *testing.T) gatestore.Store { s, _ := inFile(t); return sealedstore.New(s, keys(t, "b", "a")) },
		"no keys": func(t *testing.T) gatestore.Store { return sealedstore.New(inMemory(t), keys(t)) },
	} {
		t.Run(name, func(t *testing.T) { gatestoretest.Run(t, open) })
	}
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// secret is a text that must not appear in stored data.
const secret = "Xylophone"

// taskWithSecret returns a task that has the secret in every possible field.
func taskWithSecret(t *testing.T, id task.ID) task.Task {
	t.Helper()
	arguments := `{"password":"` + secret + `"}`
	made, err := task.New(task.Draft{
		ID: id, Owner: "ann", TTL: time.Hour, PollInterval: time.Second, Workflow: "ops",
		Verdict: gatetask.Verdict{Reason: secret, Facts: `{"x":"` + secret + `"}`},
		Call: task.Call{
			Upstream: "u", Method: "resources/read", Name: "file:///" + secret, Arguments: arguments,
			Message: `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"arguments":` + arguments + `}}`,
		},
	}, epoch)
	must(t, err)
	answer := []byte(`{"text":"` + secret + `"}`)
	for _, e := range []lifecycle.Event{
		lifecycle.SetVariables{Side: task.ClientSide, Values: task.Variables{"client.reason": json.RawMessage(`"` + secret + `"`)}},
		lifecycle.Submit{By: "gate", Deadline: epoch.Add(time.Minute)},
		lifecycle.Approve{By: "bob", Reason: secret},
		lifecycle.Claim{By: "gate", LeaseUntil: epoch.Add(time.Minute)},
		lifecycle.Progress{By: "gate", UpstreamTask: secret, InputRequests: json.RawMessage(`{"q":"` + secret + `"}`)},
		lifecycle.Fail{
			By: "gate", Failure: task.Failure{Stage: lifecycle.StageUpstreamError, Reason: secret, Ran: task.RanYes},
			Result: &task.Result{Kind: task.ResultRPCError, Inline: answer, Size: int64(len(answer))},
		},
	} {
		made, err = lifecycle.Apply(made, e, epoch.Add(time.Second))
		must(t, err)
	}
	return made
}

// TestStoredTasksRevealNothing searches every file of the database for the secret.
func TestStoredTasksRevealNothing(t *testing.T) {
	inner, file := inFile(t)
	s := sealedstore.New(inner, keys(t, "a"))
	want := taskWithSecret(t, "tg_1")
	must(t, s.Create(t.Context(), want, task.Limits{}))
	chunk := []byte(strings.Repeat(secret, 100))
	must(t, s.WriteChunk(t.Context(), task.AnyOwner().Ref("tg_1"), 0, chunk))
	got, err := s.Get(t.Context(), task.AnyOwner().Ref("tg_1"))
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("task (-want +got):\n%s", diff)
	}
	must(t, s.Close())

	plain := base64.StdEncoding.EncodeToString([]byte(`{"text":"` + secret))
	files, err := filepath.Glob(file + "*")
	must(t, err)
	found := false
	for _, name := range files {
		content, err := os.ReadFile(name)
		must(t, err)
		if bytes.Contains(content, []byte(secret)) || bytes.Contains(content, []byte(plain)) {
			t.Errorf("%s has the secret in the clear", name)
		}
		found = found || bytes.Contains(content, []byte("sealed:1:a:"))
	}
	if !found {
		t.Error("no file contains the task")
	}
}

// TestKeyChangeTrustsOnlySealedTexts changes the key. New texts use the new key, and the old key still opens earlier
// texts. After Rekey the old key is not needed. Unsealed tasks are not read, and Rekey only
// seals them if there is one key.
func TestKeyChangeTrustsOnlySealedTexts(t *testing.T) {
	inner := inMemory(t)
	ref := func(id task.ID) task.Ref { return task.AnyOwner().Ref(id) }
	plain, old, rotated, done := sealedstore.New(inner, keys(t)), sealedstore.New(inner, keys(t, "old")),
		sealedstore.New(inner, keys(t, "new", "old")), sealedstore.New(inner, keys(t, "new"))
	stages := map[task.ID]*sealedstore.Store{"tg_plain": plain, "tg_old": old, "tg_new": rotated}
	for id, s := range stages {
		made := taskWithSecret(t, id)
		made.Result = &task.Result{Kind: task.ResultOK, Size: 8, Chunks: 2}
		must(t, s.Create(t.Context(), made, task.Limits{}))
		for n := range 2 {
			must(t, s.WriteChunk(t.Context(), ref(id), n, fmt.Append(nil, "abc", n)))
		}
	}
	for id := range stages {
		_, err := rotated.Get(t.Context(), ref(id))
		if id == "tg_plain" {
			mustBe(t, err, task.ErrUnreadable, sealedstore.ErrNotSealed)
			continue
		}
		must(t, err)
	}
	for _, q := range []task.Query{{}, {Outlines: true}} {
		q.Scope = task.AnyOwner()
		page, err := rotated.List(t.Context(), q)
		if must(t, err); len(page.Tasks) != 2 {
			t.Errorf("%d tasks are listed; want the two sealed ones", len(page.Tasks))
		}
	}
	_, err := rotated.ReadChunk(t.Context(), ref("tg_plain"), 0)
	mustBe(t, err, task.ErrUnreadable, sealedstore.ErrNotSealed)
	_, err = old.Get(t.Context(), ref("tg_new"))
	mustBe(t, err, task.ErrUnreadable, sealedstore.ErrKey)
	_, err = plain.ReadChunk(t.Context(), ref("tg_old"), 1)
	mustBe(t, err, task.ErrUnreadable, sealedstore.ErrKey)

	n, err := rotated.Rekey(t.Context())
	mustBe(t, err, task.ErrUnreadable, sealedstore.ErrNotSealed)
	if n != 1 {
		t.Errorf("%d tasks were resealed; want the one with the old key", n)
	}
	if n, err := done.Rekey(t.Context()); n != 1 || err != nil {
		t.Errorf("%d tasks were sealed, %v; want the unsealed one", n, err)
	}
	for id := range stages {
		got, err := done.Get(t.Context(), ref(id))
		must(t, err)
		var answer bytes.Buffer
		must(t, storekit.ReadResult(t.Context(), done, got, &answer))
		if answer.String() != "abc0abc1" {
			t.Errorf("%s: answer %q", id, answer.String())
		}
		stored, err := inner.Get(t.Context(), ref(id))
		must(t, err)
		raw, err := inner.ReadChunk(t.Context(), ref(id), 0)
		must(t, err)
		if sealedstore.KeyOf(stored) != "new" || !bytes.HasPrefix(raw, []byte("\x00sealed1\x00new\x00")) {
			t.Errorf("%s is stored as %q, its answer as %q", id, stored.Call.Message[:20], raw[:20])
		}
	}
	if n, err := rotated.Rekey(t.Context()); n != 0 || err != nil {
		t.Errorf("second Rekey: %d, %v", n, err)
	}
	if _, err := plain.Rekey(t.Context()); err == nil {
		t.Error("Rekey succeeded without a key")
	}
}

// TestRekeyReplacesOldKeyOfAnswers checks that Rekey reseals an answer although its task was already
// resealed by an earlier change.
func TestRekeyReplacesOldKeyOfAnswers(t *testing.T) {
	for name, before := range map[string]sealedstore.Keys{"in the clear": keys(t), "old key": keys(t, "old")} {
		t.Run(name, func(t *testing.T) {
			inner, ref := inMemory(t), task.AnyOwner().Ref("tg_1")
			made := taskWithSecret(t, "tg_1")
			made.Result = &task.Result{Kind: task.ResultOK, Size: 8, Chunks: 2}
			first := sealedstore.New(inner, before)
			after := keys(t, "new", "old")
			if before.Empty() {
				after = keys(t, "new") // Rekey with one key trusts unsealed texts
			}
			must(t, first.Create(t.Context(), made, task.Limits{}))
			for n := range 2 {
				must(t, first.WriteChunk(t.Context(), ref, n, fmt.Append(nil, "abc", n)))
			}
			rotated := sealedstore.New(inner, after)
			made.Version++
			must(t, rotated.Swap(t.Context(), made)) // seals only the task

			if n, err := rotated.Rekey(t.Context()); n != 1 || err != nil {
				t.Errorf("resealed: %d, %v; want 1", n, err)
			}
			for n := range 2 {
				raw, err := inner.ReadChunk(t.Context(), ref, n)
				must(t, err)
				if !bytes.HasPrefix(raw, []byte("\x00sealed1\x00new\x00")) {
					t.Errorf("chunk %d is stored as %q", n, raw)
				}
			}
			if n, err := rotated.Rekey(t.Context()); n != 0 || err != nil {
				t.Errorf("second Rekey: %d, %v", n, err)
			}
		})
	}
}

// TestResultFilesAreSealed checks that the files with a large answer are sealed, and that after
// a change of the key the old key opens no part of them.
func TestResultFilesAreSealed(t *testing.T) {
	inner, file := inFile(t)
	made := taskWithSecret(t, "tg_1")
	answer := []byte(strings.Repeat(secret+", ", 3<<20/len(secret)))
	made.Result = &task.Result{Kind: task.ResultOK, Size: int64(len(answer)), Chunks: (len(answer)-1)/task.ChunkSize + 1}
	old, rotated := sealedstore.New(inner, keys(t, "old")), sealedstore.New(inner, keys(t, "new", "old"))
	must(t, old.Create(t.Context(), made, task.Limits{}))
	kept, err := storekit.WriteResult(t.Context(), old, task.AnyOwner().Ref("tg_1"), bytes.NewReader(answer))
	if err != nil || kept.Chunks != made.Result.Chunks {
		t.Fatalf("%d chunks were stored, %v; want %d", kept.Chunks, err, made.Result.Chunks)
	}
	outside := func() []byte {
		t.Helper()
		names, err := filepath.Glob(file + ".results/*/*")
		if err != nil || len(names) != 1 {
			t.Fatalf("files %q, %v", names, err)
		}
		content, err := os.ReadFile(names[0])
		must(t, err)
		if len(content) < 2<<20 || bytes.Contains(content, []byte(secret)) {
			t.Errorf("the file of %d bytes is incomplete, or contains text in the clear", len(content))
		}
		return content
	}
	if !bytes.Contains(outside(), []byte("\x00sealed1\x00old\x00")) {
		t.Error("the file is not sealed with the old key")
	}
	if n, err := rotated.Rekey(t.Context()); n != 1 || err != nil {
		t.Fatalf("resealed: %d, %v", n, err)
	}
	if after := outside(); bytes.Contains(after, []byte("\x00sealed1\x00old\x00")) || !bytes.Contains(after, []byte("\x00sealed1\x00new\x00")) {
		t.Error("the file is not completely sealed with the new key")
	}
	var got bytes.Buffer
	must(t, storekit.ReadResult(t.Context(), sealedstore.New(inner, keys(t, "new")), made, &got))
	if !bytes.Equal(got.Bytes(), answer) {
		t.Error("the answer changed")
	}
}

// TestMovedTextDoesNotOpen checks that a sealed text only opens in its original position.
func TestMovedTextDoesNotOpen(t *testing.T) {
	for name, tamper := range map[string]func(t *testing.T, stored, other task.Task) task.Task{
		"another task's":     func(_ *testing.T, s, o task.Task) task.Task { s.Call.Message = o.Call.Message; return s },
		"another owner":      func(_ *testing.T, s, _ task.Task) task.Task { s.Owner = "eve"; return s },
		"an earlier version": func(_ *testing.T, s, _ task.Task) task.Task { s.Version++; return s },
		"another state":      func(_ *testing.T, s, _ task.Task) task.Task { s.State = task.Completed; return s },
		"another time":       func(_ *testing.T, s, _ task.Task) task.Task { s.ExpiresAt = s.ExpiresAt.Add(time.Hour); return s },
		"a changed letter": func(_ *testing.T, s, _ task.Task) task.Task {
			at := len(s.Call.Message) / 2
			s.Call.Message = s.Call.Message[:at] + string(s.Call.Message[at]^1) + s.Call.Message[at+1:]
			return s
		},
		"cut off": func(_ *testing.T, s, _ task.Task) task.Task { s.Call.Message = s.Call.Message[:20]; return s },
	} {
		t.Run(name, func(t *testing.T) {
			k := keys(t, "a")
			stored, err := k.Seal(taskWithSecret(t, "tg_1"))
			must(t, err)
			other, err := k.Seal(taskWithSecret(t, "tg_2"))
			must(t, err)
			_, err = k.Open(stored)
			must(t, err)
			_, err = k.Open(tamper(t, stored, other))
			mustBe(t, err, task.ErrUnreadable)
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
	k := keys(t, "a")
	chunk, err := k.SealChunk("tg_1", 1, []byte("x"))
	must(t, err)
	for _, place := range []struct {
		id task.ID
		n  int
	}{{"tg_1", 2}, {"tg_2", 1}} {
		_, err := k.OpenChunk(place.id, place.n, chunk)
		mustBe(t, err, task.ErrUnreadable, sealedstore.ErrKey)
	}
}

// TestWrongKeyOpensNothing checks that another key of the same name opens no text, and that Verify rejects
// it.
func TestWrongKeyOpensNothing(t *testing.T) {
	inner := inMemory(t)
	good := sealedstore.New(inner, keys(t, "a"))
	for i := range 130 {
		made, err := task.New(task.Draft{
			ID: task.ID(fmt.Sprintf("tg_%03d", i)), Owner: "ann", TTL: time.Hour, PollInterval: time.Second,
			Call: task.Call{Upstream: "u", Method: "tools/call", Name: "x", Message: fmt.Sprint(`{"id":`, i, `}`)},
		}, epoch)
		must(t, err)
		must(t, good.Create(t.Context(), made, task.Limits{}))
	}
	must(t, good.Verify(t.Context()))
	damaged, err := inner.Get(t.Context(), task.AnyOwner().Ref("tg_007"))
	must(t, err)
	damaged.Version++
	must(t, inner.Swap(t.Context(), damaged))
	_, err = good.Get(t.Context(), task.AnyOwner().Ref("tg_007"))
	mustBe(t, err, sealedstore.ErrKey)
	must(t, good.Verify(t.Context())) // one damaged task does not make the key wrong

	wrong, err := sealedstore.ParseKeys("a:" + base64.StdEncoding.EncodeToString(make([]byte, 32)))
	must(t, err)
	bad := sealedstore.New(inner, wrong)
	mustBe(t, bad.Verify(t.Context()), task.ErrUnreadable, sealedstore.ErrKey)
	mustBe(t, sealedstore.New(inner, keys(t)).Verify(t.Context()), sealedstore.ErrKey)

	// Tasks that cannot be opened do not hide other tasks.
	told := 0
	bad.Unreadable = func(error) { told++ }
	late, err := task.New(task.Draft{
		ID: "tg_late", Owner: "ann", TTL: time.Hour, PollInterval: time.Second,
		Call: task.Call{Upstream: "u", Method: "tools/call", Name: "y", Message: `{}`},
	}, epoch.Add(time.Second))
	must(t, err)
	must(t, bad.Create(t.Context(), late, task.Limits{}))
	overdue, err := bad.Overdue(t.Context(), epoch.Add(24*time.Hour), 5)
	must(t, err)
	page, err := bad.List(t.Context(), task.Query{Scope: task.AnyOwner()})
	must(t, err)
	if len(overdue) != 1 || overdue[0].ID != "tg_late" || len(page.Tasks) != 1 || page.Next == "" || told == 0 {
		t.Errorf("%d overdue, %d listed, Unreadable called %d times; want only the readable task, and calls of Unreadable", len(overdue), len(page.Tasks), told)
	}
}

func TestParseKeys(t *testing.T) {
	for _, good := range []string{"", " ", text("a"), text("a", "b.2-c_D"), " " + text("a") + " , " + text("b")} {
		if _, err := sealedstore.ParseKeys(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	short := base64.StdEncoding.EncodeToString([]byte(secret))
	for _, bad := range []string{
		short, "a", "a:", ":" + short, "a:" + short, "a b:" + short, text("a", "a"), text("a") + ",", text(strings.Repeat("a", 33)),
		strings.TrimRight(text("a"), "="),
	} {
		_, err := sealedstore.ParseKeys(bad)
		if err == nil || strings.Contains(err.Error(), short) {
			t.Errorf("%q: %v; want an error without the key", bad, err)
		}
	}
}

// BenchmarkSeal seals and opens a task with arguments of one kibibyte.
func BenchmarkSeal(b *testing.B) {
	made, err := task.New(task.Draft{
		ID: task.NewID(time.Now()), Owner: "ann", TTL: time.Hour, PollInterval: time.Second,
		Call: task.Call{Upstream: "u", Method: "tools/call", Name: "x", Message: `{"a":"` + strings.Repeat("x", 1024) + `"}`},
	}, epoch)
	if err != nil {
		b.Fatal(err)
	}
	k, err := sealedstore.ParseKeys(text("a"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		sealed, err := k.Seal(made)
		if err == nil {
			_, err = k.Open(sealed)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// TestBulkRecordsAreKept checks that records of the bulk are neither resealed nor deleted except by
// Rekey, and that Rekey seals unsealed ones only if there is a single key.
func TestBulkRecordsAreKept(t *testing.T) {
	inner := memstore.New(memstore.Options{})
	t.Cleanup(func() { must(t, inner.Close()) })
	with := func(names ...string) *sealedstore.Store {
		s := sealedstore.New(inner, keys(t, names...))
		s.Bulk = "bulk/"
		return s
	}
	put := func(s *sealedstore.Store, names ...string) {
		for _, name := range names {
			must(t, s.PutRecord(t.Context(), gatestore.Record{Name: name, Version: 1, Value: []byte(name)}))
		}
	}
	want := func(after string, want ...string) {
		t.Helper()
		var got []string
		for r, err := range gatestore.EachRecord(t.Context(), inner, gatestore.RecordQuery{Limit: 2}) {
			must(t, err)
			got = append(got, r.Name+":"+sealedstore.KeyOfRecord(r))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", after, diff)
		}
	}
	put(sealedstore.New(inner, sealedstore.Keys{}), "a", "bulk/1", "bulk/2", "c")
	put(with("x"), "b", "bulk/3", "d")
	must(t, with("y", "x").RekeyRecords(t.Context()))
	want("RekeyRecords", "b:y", "bulk/1:", "bulk/2:", "bulk/3:x", "d:y")
	_, err := with("y", "x").Rekey(t.Context())
	mustBe(t, err, task.ErrUnreadable, sealedstore.ErrNotSealed)
	want("Rekey with two keys", "b:y", "bulk/1:", "bulk/2:", "bulk/3:y", "d:y")
	if _, err := with("y").Rekey(t.Context()); err != nil {
		t.Errorf("Rekey: %v", err)
	}
	want("Rekey", "b:y", "bulk/1:y", "bulk/2:y", "bulk/3:y", "d:y")
	r, err := with("y").GetRecord(t.Context(), "bulk/1")
	if must(t, err); string(r.Value) != "bulk/1" {
		t.Errorf("bulk/1 has the value %q", r.Value)
	}
}
