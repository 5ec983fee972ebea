package redisstore_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/redisstore"
)

// writes makes every kind of change and returns the errors by the names of the methods.
func writes(ctx context.Context, t *testing.T, s *redisstore.Store, known task.Task) map[string]error {
	t.Helper()
	after, err := lifecycle.Apply(known, lifecycle.Cancel{By: "ann"}, epoch)
	must(t, err)
	note := task.Note{At: epoch, Step: "tried"}
	errs := map[string]error{
		"Create":     s.Create(ctx, build(t, 77), task.Limits{}, note),
		"Swap":       s.Swap(ctx, after, note),
		"WriteChunk": s.WriteChunk(ctx, anyone(known.ID), 0, []byte("x")),
		"Append":     s.Append(ctx, note),
		"Probe":      s.Probe(ctx),
	}
	errs["PutRecord"] = s.PutRecord(ctx, gatestore.Record{Name: "x", Version: 1, Value: []byte("x")})
	_, errs["Sweep"] = s.Sweep(ctx, epoch.Add(-ttl), 10) // although there is no task to delete
	return errs
}

// A newer program migrates the keys while a gate of this version runs. After that the gate's
// writes are refused, and even an idle gate detects it. Reads still work.
func TestOutdatedGateOnlyReads(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	s := open(t, redisstore.Options{URL: server.URL()})
	for what, err := range writes(t.Context(), t, s, add(t, s, 1)) {
		if err != nil {
			t.Fatalf("%s before the update: %v", what, err)
		}
	}
	second := add(t, s, 2)
	do(t, server, "SET", "{thoughtgate}:format", "99") // like the newer program
	for what, err := range writes(t.Context(), t, s, second) {
		if !errors.Is(err, task.ErrOutdated) || !errors.Is(err, redisstore.ErrSchema) {
			t.Errorf("%s = %v; want %v", what, err, task.ErrOutdated)
		}
	}
	got, err := s.Get(t.Context(), anyone(second.ID))
	if must(t, err); got.Version != second.Version {
		t.Errorf("the task was changed to version %d", got.Version)
	}
}

// A gate of the previous version still runs while this one migrates the keys. Its scripts then
// fail without any change. Its earlier notes in the inbox are kept.
func TestPreviousFormatIsRefused(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	const prefix = "{thoughtgate}:"
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	must(t, err)
	defer client.Close()
	run := func(words ...string) error {
		return client.Do(t.Context(), client.B().Arbitrary(words...).Build()).Error()
	}
	note, err := auditlog.Encode(task.Note{At: epoch, Step: "earlier note"})
	must(t, err)
	do(t, server, "SET", prefix+"format", "1")
	must(t, run("RPUSH", prefix+"journal:inbox", string(note)))
	create := script(t, "create", 13, []string{
		"task:tg_old", "changes", "list:working", "list:working:ann", "call:pending:0:ann", "due:pending", "due:pending", "call:pending:0:ann",
		"journal:inbox", "list:working:ann", "list:input_required:ann", "list:approved:ann", "list:executing:ann",
	}, "channel", "message", "member", "2", "0", "0", "false", "1", string(note), "state", "working", "version", "1", "document", "{}")
	swap := script(t, "swap", 11, []string{
		"task:tg_old", "changes", "list:cancelled", "list:cancelled:ann", "call:ended:0:ann", "due:ended",
		"list:working", "list:working:ann", "call:pending:0:ann", "due:pending", "journal:inbox",
	}, "channel", "message", "member", "2", "1", "working", "1", string(note), "state", "cancelled", "version", "2", "document", "{}")
	if err := run(create...); !rueidis.IsRedisNil(err) {
		t.Fatal(err)
	}

	s := open(t, redisstore.Options{URL: server.URL()})
	entries, err := s.Entries(t.Context(), auditlog.Query{})
	if must(t, err); len(entries) != 2 || entries[0].Step != "earlier note" {
		t.Errorf("journal %+v; want both notes of the previous version", entries)
	}
	for what, words := range map[string][]string{"create": create, "swap": swap} {
		if what == "create" {
			words[3] = prefix + "task:tg_new"
		}
		if err := run(words...); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s = %v; want an error", what, err)
		}
	}
	state, err := client.Do(t.Context(), client.B().Hget().Key(prefix+"task:tg_old").Field("state").Build()).ToString()
	if must(t, err); state != "working" {
		t.Errorf("the old task is %s", state)
	}
	if got := do(t, server, "EXISTS", prefix+"task:tg_new"); !strings.Contains(got, "0") {
		t.Errorf("the refused task exists: %s", got)
	}
}

// Keys of format 2 have no list of the tasks that owe a cancellation. The migration lists all
// tasks that may owe one, and reads after it remove the others.
func TestMigrationFindsOwedCancellations(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	const prefix, many = "{thoughtgate}:", 200
	s := open(t, redisstore.Options{URL: server.URL()})
	end := func(n int, events ...lifecycle.Event) task.ID {
		id := add(t, s, n).ID
		for _, e := range events {
			_, err := lifecycle.Advance(t.Context(), s, anyone(id), e, epoch)
			must(t, err)
		}
		return id
	}
	admit, claim := lifecycle.Admit{By: "gate"}, lifecycle.Claim{By: "gate 1", LeaseUntil: epoch.Add(ttl)}
	owes := end(1, admit, claim, lifecycle.Cancel{By: "ann"})
	for i := range many {
		end(i+2, lifecycle.Cancel{By: "ann"})
	}
	owing := func(s *redisstore.Store) (found []task.ID) {
		q := task.Query{Scope: task.AnyOwner(), OwesCancellation: true, Limit: 100}
		for {
			page, err := s.List(t.Context(), q)
			must(t, err)
			for _, one := range page.Tasks {
				found = append(found, one.ID)
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return found
			}
		}
	}
	do(t, server, "CONFIG", "RESETSTAT")
	if found := owing(s); len(found) != 1 || found[0] != owes {
		t.Errorf("found %v; want %s", found, owes)
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	must(t, err)
	defer client.Close()
	stats, err := client.Do(t.Context(), client.B().Info().Section("commandstats").Build()).ToString()
	if must(t, err); !strings.Contains(stats, "cmdstat_hmget:calls=1,") {
		t.Errorf("to find one of %d tasks, the store also reads others: %s", many+1, stats)
	}

	do(t, server, "DEL", prefix+"owing") // as in format 2
	do(t, server, "SET", prefix+"format", "2")
	if found := owing(open(t, redisstore.Options{URL: server.URL()})); !slices.Contains(found, owes) {
		t.Errorf("a task of format 2 that owes a cancellation is not among the %d found tasks", len(found))
	}
	if err := s.PutRecord(t.Context(), gatestore.Record{Name: "x", Version: 1, Value: []byte("x")}); err != nil {
		t.Errorf("the keys do not have this program's format: %v", err)
	}
}

// Format 5 counts the bytes of a task for its owner. They count for its account from its next
// change, and nothing remains when the task is deleted.
func TestBytesOfPreviousFormat(t *testing.T) {
	server := own(t)
	if server == nil {
		return
	}
	const prefix = "{thoughtgate}:"
	s := open(t, redisstore.Options{URL: server.URL()})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	must(t, err)
	defer client.Close()
	bytes := func(account string) string {
		found, err := client.Do(t.Context(), client.B().Get().Key(prefix+"bytes:"+account).Build()).ToString()
		if !rueidis.IsRedisNil(err) {
			must(t, err)
		}
		return found
	}
	made := build(t, 1)
	made.Group = "g"
	must(t, s.Create(t.Context(), made, task.Limits{}))
	size := bytes("group:g")
	if size == "" {
		t.Fatal("the bytes of the group are not counted")
	}
	format5 := func() {
		do(t, server, "RENAME", prefix+"bytes:group:g", prefix+"bytes:"+made.Owner)
		do(t, server, "HDEL", prefix+"task:"+string(made.ID), "account")
		do(t, server, "SET", prefix+"format", "5")
	}
	format5()
	s = open(t, redisstore.Options{URL: server.URL()})
	after, err := lifecycle.Advance(t.Context(), s, anyone(made.ID), lifecycle.Cancel{By: "ann"}, epoch)
	must(t, err)
	want := strconv.FormatInt(after.Weight(), 10)
	if of, counted := bytes(made.Owner), bytes("group:g"); of != "" || counted != want {
		t.Errorf("the owner has %q bytes, and the group %q; want none and %s", of, counted, want)
	}
	format5()
	s = open(t, redisstore.Options{URL: server.URL()})
	if n, err := s.Sweep(t.Context(), epoch.Add(2*ttl), 10); n != 1 || err != nil {
		t.Fatalf("Sweep = %d, %v", n, err)
	}
	if of, counted := bytes(made.Owner), bytes("group:g"); of != "" || counted != "" {
		t.Errorf("after the deletion, the owner has %q bytes, and the group %q", of, counted)
	}
}

// script returns the command that runs a script of format 1.
func script(t *testing.T, name string, count int, keys []string, args ...string) []string {
	t.Helper()
	source, err := os.ReadFile("testdata/format1/" + name + ".lua")
	must(t, err)
	if len(keys) != count {
		t.Fatalf("%d keys; want %d", len(keys), count)
	}
	words := []string{"EVAL", string(source), map[int]string{11: "11", 13: "13"}[count]}
	for _, key := range keys {
		words = append(words, "{thoughtgate}:"+key)
	}
	return append(words, args...)
}
