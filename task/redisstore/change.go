package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
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

// The comments of the scripts list their keys and arguments.
var (
	createScript = rueidis.NewLuaScript(withGuard(createSource))
	swapScript   = rueidis.NewLuaScript(withGuard(swapSource))
	deleteScript = rueidis.NewLuaScriptNoSha(withGuard(deleteSource)) // with the SHA, several calls at once would need all nodes of a cluster
	writeScript  = rueidis.NewLuaScript(withGuard(writeSource))
	pageScript   = rueidis.NewLuaScriptReadOnly(pageSource)
	chainScript  = rueidis.NewLuaScript(withGuard(chainSource))
	trimScript   = rueidis.NewLuaScript(withGuard(trimSource))
	appendScript = rueidis.NewLuaScript(withGuard(appendSource))
	recordScript = rueidis.NewLuaScript(withGuard(recordSource))
)

// A record is a row with the fields that determine its lists.
type record struct {
	listEntry
	storekit.Row
}

func newRecord(t task.Task, notes []task.Note, a action.Name) (record, error) {
	row, err := storekit.NewRow(t, notes, a)
	return record{listEntryOf(&t), row}, err
}

func (r *record) due() string { return strconv.FormatInt(r.Due().UnixMicro(), 10) }

// fields returns the number of notes, the notes, and the fields that change with every
// version.
func (r *record) fields() []string {
	notes := append([]string{strconv.Itoa(len(r.Notes))}, storekit.Documents(r.Notes)...)
	return append(notes, "state", string(r.State), "version", strconv.FormatInt(r.Version, 10), "document", r.Document, "outline", r.OutlineText,
		"size", r.size(), "account", r.Account())
}

func (r *record) size() string { return strconv.FormatInt(r.Weight(), 10) }

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	r, err := newRecord(t, notes, action.Create)
	if err != nil {
		return err
	}
	keys := append([]string{s.keys.task(t.ID), s.keys.changes()}, s.keys.listsOf(r.listEntry, t.State)...)
	keys = append(keys, s.keys.due(pending), s.keys.call(pending, t.Digest, t.Owner), s.keys.inbox(), s.keys.group(t.Group), s.keys.groups(), s.keys.owing(),
		s.keys.bytes(t.Account()), s.keys.allDisposable(), s.keys.disposable(t.Account()))
	for _, state := range task.Pending() {
		keys = append(keys, s.keys.owned(state, t.Owner))
	}
	args := append([]string{
		s.feed.channel, encodeChange(t.ID, t.Owner), r.member, r.due(),
		strconv.Itoa(limits.PerOwner), strconv.Itoa(limits.Total), strconv.FormatBool(limits.Unique),
		strconv.Itoa(limits.PerGroup), strconv.Itoa(limits.Grouped), strconv.FormatBool(t.Group != "" && !t.State.Terminal()), strconv.FormatBool(t.OwesCancellation()),
		strconv.FormatInt(limits.AccountBytes, 10), r.size(), strconv.FormatBool(t.Disposable()),
	}, r.fields()...)
	args = append(args, "owner", t.Owner, "digest", string(t.Digest[:]))

	return s.do(ctx, action.Create, func(ctx context.Context) error {
		reply, err := createScript.Exec(ctx, s.client, s.withFormatKey(keys), args).ToMessage()
		if rueidis.IsRedisNil(err) {
			if len(notes) > 0 {
				s.chaining.Schedule()
			}
			return nil
		}
		if err != nil {
			return err
		}
		return refusal(t, limits, reply)
	})
}

// refusal returns the error for a task that was not created.
func refusal(t task.Task, limits task.Limits, reply rueidis.RedisMessage) error {
	if reply.IsInt64() {
		return task.AnyOwner().Ref(t.ID).Exists()
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
	var n [5]int
	if len(parts) != len(n)+1 {
		return task.Load{}, fmt.Errorf("unexpected answer to a creation: %q", parts)
	}
	for i := range n {
		if n[i], err = strconv.Atoi(parts[i]); err != nil {
			return task.Load{}, err
		}
	}
	return task.Load{Owner: n[0], Total: n[1], Group: n[2], Grouped: n[3], AccountBytes: int64(n[4]), Duplicate: idOf(parts[5])}, nil
}

// Swap implements [task.Store].
func (s *Store) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	r, err := newRecord(t, notes, action.Swap)
	if err != nil {
		return err
	}
	// A script must be given the keys of all lists that it changes. The task leaves the
	// lists of its previous state.
	from := t.State
	if n := len(t.Transitions); n > 0 {
		from = t.Transitions[n-1].From
	}
	return s.do(ctx, action.Swap, func(ctx context.Context) error {
		for {
			verdict, state, err := s.swap(ctx, &r, from)
			if err != nil {
				return err
			}
			switch verdict {
			case "swapped":
				if len(notes) > 0 {
					s.chaining.Schedule()
				}
				return nil
			case "unexpected":
				from = state
			case "missing":
				return task.AnyOwner().Ref(t.ID).NotFound(action.Swap)
			default:
				return task.AnyOwner().Ref(t.ID).VersionConflict(state)
			}
		}
	})
}

func (s *Store) swap(ctx context.Context, r *record, from task.State) (verdict string, state task.State, err error) {
	keys := append([]string{s.keys.task(r.ID), s.keys.changes()}, s.keys.listsOf(r.listEntry, r.State)...)
	keys = append(append(keys, s.keys.listsOf(r.listEntry, from)...), s.keys.inbox(), s.keys.group(r.group), s.keys.groups(), s.keys.owing(),
		s.keys.bytes(r.Account()), s.keys.allDisposable(), s.keys.disposable(r.Account()),
		s.keys.bytes(r.Owner), s.keys.disposable(r.Owner)) // of format 5
	args := append([]string{
		s.feed.channel, encodeChange(r.ID, r.Owner), r.member, r.due(), strconv.FormatInt(r.Version-1, 10), string(from),
		strconv.FormatBool(r.State.Terminal()), strconv.FormatBool(r.OwesCancellation()), r.size(), strconv.FormatBool(r.Disposable()),
	}, r.fields()...)
	reply, err := swapScript.Exec(ctx, s.client, s.withFormatKey(keys), args).AsStrSlice()
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
	return request(ctx, s, action.Sweep, func(ctx context.Context) (int, error) {
		if err := s.checkCurrent(ctx); err != nil { // an idle store must detect it too
			return 0, err
		}
		members, err := s.dueBefore(ctx, s.keys.due(ended), before, limit)
		if err != nil {
			return 0, err
		}
		return s.deleteMembers(ctx, members, micros(before))
	})
}

// Reclaim implements [gatestore.Reclaimer].
func (s *Store) Reclaim(ctx context.Context, account string, limit int) (int, error) {
	return request(ctx, s, action.Sweep, func(ctx context.Context) (int, error) {
		from := s.keys.allDisposable()
		if account != "" {
			from = s.keys.disposable(account)
		}
		members, err := s.client.Do(ctx, s.client.B().Zrange().Key(from).Min("-inf").Max("+inf").Byscore().Limit(0, int64(max(0, limit))).Build().Pin()).AsStrSlice()
		if err != nil {
			return 0, err
		}
		return s.deleteMembers(ctx, members, "1e300") // regardless of their due time
	})
}

// deleteMembers deletes the tasks of members that are due before a time in microseconds,
// and returns their number.
func (s *Store) deleteMembers(ctx context.Context, members []string, before string) (int, error) {
	tasks, err := s.fields(ctx, s.keys.tasks(members), "version", "state", "owner", "digest", "account")
	if err != nil {
		return 0, err
	}
	doomed := make([]found, len(members))
	for i, fields := range tasks {
		doomed[i] = found{
			listEntry: listEntry{member: members[i], owner: fields[2]}, version: fields[0], state: task.State(fields[1]),
			account: cmp.Or(fields[4], fields[2]), // format 5 counts for the owner
		}
		copy(doomed[i].digest[:], fields[3])
		if doomed[i].version == "" {
			doomed[i].state = task.Expired // deleted by hand; the member may still be in the list
		}
	}
	return s.delete(ctx, doomed, before)
}

// A found is a task that was found in a list. Its version is empty if the task does not exist.
type found struct {
	listEntry
	version string
	state   task.State
	account string
}

// delete deletes tasks that are due before a time and unchanged since they were found, and
// removes members of deleted tasks from the list. It returns the number of deleted tasks.
func (s *Store) delete(ctx context.Context, doomed []found, before string) (int, error) {
	calls := make([]rueidis.LuaExec, len(doomed))
	for i, d := range doomed {
		id := idOf(d.member)
		places := s.keys.listsOf(d.listEntry, d.state)
		keys := append([]string{s.keys.task(id), s.keys.changes(), s.keys.blob(id), s.keys.owing()}, places...)
		calls[i].Keys = s.withFormatKey(append(keys, s.keys.allDisposable(), s.keys.disposable(d.account), s.keys.bytes(d.account)))
		calls[i].Args = []string{s.feed.channel, encodeChange(id, d.owner), d.member, d.version, before}
	}
	deleted := 0
	var failed error
	for _, reply := range deleteScript.ExecMulti(ctx, s.client, calls...) {
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
	return s.do(ctx, action.WriteChunk, func(ctx context.Context) error {
		if err := ref.CheckChunk(n, data); err != nil {
			return err
		}
		admitted, limited := ref.Scope.Owner()
		keys := []string{s.keys.task(ref.ID), s.keys.blob(ref.ID)}
		args := []string{strconv.FormatBool(limited), admitted, strconv.Itoa(n), string(data)}
		owner, err := writeScript.Exec(ctx, s.client, s.withFormatKey(keys), args).ToString()
		switch {
		case rueidis.IsRedisNil(err):
			return ref.NotFound(action.WriteChunk)
		case err != nil:
			return err
		}
		return ref.Check(owner, action.WriteChunk)
	})
}
