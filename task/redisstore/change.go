package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
)

var (
	//go:embed scripts/create.lua
	createSource string
	//go:embed scripts/swap.lua
	swapSource string
	//go:embed scripts/delete.lua
	deleteSource string
	//go:embed scripts/write.lua
	writeSource string
	//go:embed scripts/page.lua
	pageSource string
	//go:embed scripts/chain.lua
	chainSource string
	//go:embed scripts/trim.lua
	trimSource string
	//go:embed scripts/append.lua
	appendSource string
	//go:embed scripts/record.lua
	recordSource string
)

// The scripts say what their keys and arguments are.
type scripts struct{ create, swap, remove, write, page, chain, trim, add, record *rueidis.Lua }

func loadScripts() scripts {
	return scripts{
		create: rueidis.NewLuaScript(guarded(createSource)),
		swap:   rueidis.NewLuaScript(guarded(swapSource)),
		remove: rueidis.NewLuaScriptNoSha(guarded(deleteSource)), // otherwise many at once want every node of a cluster to be up
		write:  rueidis.NewLuaScript(guarded(writeSource)),
		page:   rueidis.NewLuaScriptReadOnly(pageSource),
		chain:  rueidis.NewLuaScript(guarded(chainSource)),
		trim:   rueidis.NewLuaScript(guarded(trimSource)),
		add:    rueidis.NewLuaScript(guarded(appendSource)),
		record: rueidis.NewLuaScript(guarded(recordSource)),
	}
}

// A record is a task as it is stored, and what is told of it.
type record struct {
	card
	task.Task
	document string
	outline  string
	notes    []string
}

func newRecord(t task.Task, notes []task.Note, a task.Action) (record, error) {
	document, err := task.Encode(t)
	if err != nil {
		return record{}, &task.Error{Kind: task.KindInvalid, ID: t.ID, Action: a, Err: err}
	}
	outline, err := task.Encode(t.Outline())
	if err != nil {
		return record{}, &task.Error{Kind: task.KindInvalid, ID: t.ID, Action: a, Err: err}
	}
	texts, err := encodeNotes(notes, a)
	return record{
		Task: t, card: cardOf(&t), document: rueidis.BinaryString(document), outline: rueidis.BinaryString(outline), notes: texts,
	}, err
}

func (r *record) due() string { return strconv.FormatInt(r.Due().UnixMicro(), 10) }

// fields returns the notes, after their number, and what changes with every
// version.
func (r *record) fields() []string {
	notes := append([]string{strconv.Itoa(len(r.notes))}, r.notes...)
	return append(notes, "state", string(r.State), "version", strconv.FormatInt(r.Version, 10), "document", r.document, "outline", r.outline)
}

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	ctx, done, err := s.begin(ctx, task.ActionCreate)
	if err != nil {
		return err
	}
	defer done()
	r, err := newRecord(t, notes, task.ActionCreate)
	if err != nil {
		return err
	}
	keys := append([]string{s.keys.task(t.ID), s.keys.changes()}, s.keys.places(r.card, t.State)...)
	keys = append(keys, s.keys.due(pending), s.keys.call(pending, t.Digest, t.Owner), s.keys.inbox(), s.keys.room(t.Room), s.keys.rooms(), s.keys.owing())
	for _, state := range task.Pending() {
		keys = append(keys, s.keys.owned(state, t.Owner))
	}
	args := append([]string{
		s.news.channel, note(t.ID, t.Owner), r.member, r.due(),
		strconv.Itoa(limits.PerOwner), strconv.Itoa(limits.Total), strconv.FormatBool(limits.Unique),
		strconv.Itoa(limits.PerRoom), strconv.Itoa(limits.Rooms), strconv.FormatBool(t.Room != "" && !t.State.Terminal()), strconv.FormatBool(t.Owes()),
	}, r.fields()...)
	args = append(args, "owner", t.Owner, "digest", string(t.Digest[:]))

	reply, err := s.scripts.create.Exec(ctx, s.client, s.keyed(keys), args).ToMessage()
	if rueidis.IsRedisNil(err) {
		s.wake(len(notes))
		return nil
	}
	if err != nil {
		return s.fault(ctx, task.ActionCreate, err)
	}
	return refusal(t, limits, reply)
}

// refusal returns why a task was not created.
func refusal(t task.Task, limits task.Limits, reply rueidis.RedisMessage) error {
	if reply.IsInt64() {
		return &task.Error{Kind: task.KindExists, ID: t.ID, Action: task.ActionCreate}
	}
	load, err := loadOf(reply)
	if err == nil {
		err = limits.Check(t, load)
	}
	if err == nil {
		err = fmt.Errorf("create task %s: refused at %+v within %+v", t.ID, load, limits)
	}
	return err
}

func loadOf(reply rueidis.RedisMessage) (task.Load, error) {
	parts, err := reply.AsStrSlice()
	if err != nil {
		return task.Load{}, err
	}
	if len(parts) != 5 {
		return task.Load{}, fmt.Errorf("unexpected answer to a creation: %q", parts)
	}
	owner, ownerErr := strconv.Atoi(parts[0])
	total, totalErr := strconv.Atoi(parts[1])
	room, roomErr := strconv.Atoi(parts[3])
	rooms, roomsErr := strconv.Atoi(parts[4])
	return task.Load{Owner: owner, Total: total, Same: idOf(parts[2]), Room: room, Rooms: rooms},
		errors.Join(ownerErr, totalErr, roomErr, roomsErr)
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	ctx, done, err := s.begin(ctx, task.ActionSwap)
	if err != nil {
		return err
	}
	defer done()
	r, err := newRecord(t, notes, task.ActionSwap)
	if err != nil {
		return err
	}
	// A script must be told the lists that it may change. The task leaves those
	// of its last state, if its state has changed at all.
	from := t.State
	if n := len(t.Transitions); n > 0 {
		from = t.Transitions[n-1].From
	}
	for {
		verdict, state, err := s.swap(ctx, &r, from)
		if err != nil {
			return s.fault(ctx, task.ActionSwap, err)
		}
		switch verdict {
		case "swapped":
			s.wake(len(notes))
			return nil
		case "unexpected":
			from = state
		case "missing":
			return task.AnyOwner().Ref(t.ID).NotFound(task.ActionSwap)
		default:
			return &task.Error{
				Kind: task.KindConcurrentModification, ID: t.ID, State: state, Actual: state, Action: task.ActionSwap,
			}
		}
	}
}

func (s *Store) swap(ctx context.Context, r *record, from task.State) (verdict string, state task.State, err error) {
	keys := append([]string{s.keys.task(r.ID), s.keys.changes()}, s.keys.places(r.card, r.State)...)
	keys = append(append(keys, s.keys.places(r.card, from)...), s.keys.inbox(), s.keys.room(r.room), s.keys.rooms(), s.keys.owing())
	args := append([]string{
		s.news.channel, note(r.ID, r.Owner), r.member, r.due(), strconv.FormatInt(r.Version-1, 10), string(from),
		strconv.FormatBool(r.State.Terminal()), strconv.FormatBool(r.Owes()),
	}, r.fields()...)
	reply, err := s.scripts.swap.Exec(ctx, s.client, s.keyed(keys), args).AsStrSlice()
	if err != nil {
		return "", "", err
	}
	if len(reply) != 2 {
		return "", "", fmt.Errorf("unexpected answer to a swap: %q", reply)
	}
	return reply[0], task.State(reply[1]), nil
}

// Sweep implements [task.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	ctx, done, err := s.begin(ctx, task.ActionSweep)
	if err != nil {
		return 0, err
	}
	defer done()
	var members []string
	if err = s.current(ctx); err == nil { // a store in which nothing happens must notice it too
		members, err = s.dueBefore(ctx, ended, before, limit)
	}
	if err != nil || len(members) == 0 {
		return 0, s.fault(ctx, task.ActionSweep, err)
	}
	doomed := make([]found, len(members))
	for i, reply := range s.client.DoMulti(ctx, s.each(members, "version", "state", "owner", "digest")...) {
		fields, err := reply.AsStrSlice()
		if err != nil {
			return 0, s.fault(ctx, task.ActionSweep, err)
		}
		doomed[i] = found{card: card{member: members[i], owner: fields[2]}, version: fields[0], state: task.State(fields[1])}
		copy(doomed[i].digest[:], fields[3])
		if doomed[i].version == "" {
			doomed[i].state = task.Expired // somebody has deleted it, and it may have stayed in the list
		}
	}
	swept, err := s.delete(ctx, doomed, before)
	return swept, s.fault(ctx, task.ActionSweep, err)
}

// A found is a task that was found in a list. Its version is empty if there is
// no such task.
type found struct {
	card
	version string
	state   task.State
}

// delete deletes what is due before a time and has not changed since it was
// found, and strikes what is gone from the list it was found in. It reports
// how many tasks it deleted.
func (s *Store) delete(ctx context.Context, doomed []found, before time.Time) (int, error) {
	calls := make([]rueidis.LuaExec, len(doomed))
	for i, d := range doomed {
		id := idOf(d.member)
		places := s.keys.places(d.card, d.state)
		calls[i].Keys = s.keyed(append([]string{s.keys.task(id), s.keys.changes(), s.keys.blob(id), s.keys.owing()}, places...))
		calls[i].Args = []string{s.news.channel, note(id, d.owner), d.member, d.version, micros(before)}
	}
	deleted := 0
	var failed error
	for _, reply := range s.scripts.remove.ExecMulti(ctx, s.client, calls...) {
		n, err := reply.AsInt64()
		deleted += int(n)
		if failed == nil {
			failed = err
		}
	}
	return deleted, failed
}

// WriteChunk implements [task.Blobs].
func (s *Store) WriteChunk(ctx context.Context, ref task.Ref, n int, data []byte) error {
	ctx, done, err := s.begin(ctx, task.ActionWriteChunk)
	if err != nil {
		return err
	}
	defer done()
	if err := ref.CheckChunk(n, data); err != nil {
		return err
	}
	admitted, limited := ref.Scope.Owner()
	keys := []string{s.keys.task(ref.ID), s.keys.blob(ref.ID)}
	args := []string{strconv.FormatBool(limited), admitted, strconv.Itoa(n), string(data)}
	owner, err := s.scripts.write.Exec(ctx, s.client, s.keyed(keys), args).ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return ref.NotFound(task.ActionWriteChunk)
	case err != nil:
		return s.fault(ctx, task.ActionWriteChunk, err)
	}
	return ref.Check(owner, task.ActionWriteChunk)
}
