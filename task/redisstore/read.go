package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// Get implements [task.Store].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	return request(ctx, s, action.Get, func(ctx context.Context) (task.Task, error) {
		document, err := s.client.Do(ctx, s.client.B().Hget().Key(s.keys.task(ref.ID)).Field("document").Build().Pin()).AsBytes()
		if rueidis.IsRedisNil(err) {
			return task.Task{}, ref.NotFound(action.Get)
		}
		if err != nil {
			return task.Task{}, err
		}
		return storekit.DecodeFor(ref, document)
	})
}

// List implements [task.Store]. A query for a digest of any owner reads tasks until it has
// found a page. Other queries read little more than the page.
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	return request(ctx, s, action.List, func(ctx context.Context) (task.Page, error) {
		after, err := q.Position()
		if err != nil {
			return task.Page{}, err
		}
		if owner, limited := q.Scope.Owner(); limited && owner == "" {
			return task.Page{}, nil
		}
		found, err := s.search(ctx, q, after)
		if err != nil && !errors.Is(err, task.ErrUnreadable) {
			return task.Page{}, err
		}
		for i := range found {
			found[i] = q.Part(found[i])
		}
		page := task.Page{Tasks: found}
		if size := q.PageSize(); len(found) > size {
			page.Tasks = found[:size]
			page.Next = q.CursorAfter(page.Tasks[size-1].Position())
		}
		return page, err
	})
}

// search returns the tasks of a page of q, and one more if there is one. If some tasks cannot
// be read, it returns the others and [task.ErrUnreadable].
func (s *Store) search(ctx context.Context, q task.Query, after task.Position) ([]task.Task, error) {
	const most = 200 // the most tasks to read at a time
	lists, from := s.lists(q), "-"
	if after.ID != "" || !after.CreatedAt.IsZero() {
		from = "(" + member(after)
	}
	var found []task.Task
	var unreadable error
	want := q.PageSize() + 1
	for size := want; ; size = min(2*size, most) {
		members, err := s.members(ctx, lists, from, size)
		if err != nil {
			return nil, err
		}
		tasks, err := s.readPart(ctx, q, members)
		if errors.Is(err, task.ErrUnreadable) {
			unreadable = errors.Join(unreadable, err)
		} else if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			// The task may have changed since it was listed.
			if q.Matches(&t) && len(found) < want {
				found = append(found, t)
			}
		}
		if len(found) == want || len(members) < size {
			return found, unreadable
		}
		from = "(" + members[len(members)-1]
	}
}

// readPart returns the parts of the tasks of members that q selects.
func (s *Store) readPart(ctx context.Context, q task.Query, members []string) ([]task.Task, error) {
	if q.Heads {
		return s.heads(ctx, members)
	}
	if q.Outlines {
		return s.outlines(ctx, members)
	}
	tasks, _, err := s.read(ctx, members)
	return tasks, err
}

// outlines returns the outlines of the tasks of members, in their order. If an earlier program
// wrote a task, its outline is missing or has another version; outlines then returns the whole
// task. If some tasks cannot be read, it returns the others and [task.ErrUnreadable].
func (s *Store) outlines(ctx context.Context, members []string) ([]task.Task, error) {
	stored, err := s.fields(ctx, s.keys.tasks(members), "version", "outline")
	if err != nil {
		return nil, err
	}
	found := make([]task.Task, 0, len(members))
	var unreadable error
	for i, fields := range stored {
		t, err := storekit.DecodeAs(idOf(members[i]), []byte(fields[1]))
		if err == nil && number(t.Version) == fields[0] {
			found = append(found, t)
			continue
		}
		whole, _, err := s.read(ctx, members[i:i+1])
		if errors.Is(err, task.ErrUnreadable) {
			unreadable = errors.Join(unreadable, err)
		} else if err != nil {
			return nil, err
		}
		found = append(found, whole...)
	}
	return found, unreadable
}

// heads returns the heads of the tasks of members.
func (s *Store) heads(ctx context.Context, members []string) ([]task.Task, error) {
	stored, err := s.fields(ctx, s.keys.tasks(members), "version", "state", "owner", "digest")
	if err != nil {
		return nil, err
	}
	var heads []task.Task
	for i, fields := range stored {
		if fields[0] == "" {
			continue // deleted meanwhile
		}
		head := task.Task{ID: idOf(members[i]), State: task.State(fields[1]), Owner: fields[2], CreatedAt: timeOf(members[i])}
		if head.Version, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
			return nil, err
		}
		copy(head.Digest[:], fields[3]) // for a query by digest
		heads = append(heads, head)
	}
	return heads, nil
}

// lists returns lists that together contain all tasks that q selects, and few other tasks.
func (s *Store) lists(q task.Query) []string {
	if q.OwesCancellation {
		return []string{s.keys.owing()}
	}
	states := q.States
	if len(states) == 0 {
		states = task.States()
	}
	owner, limited := q.Scope.Owner()
	var lists []string
	for _, state := range states {
		switch {
		case limited && q.Digest != task.Digest{}:
			lists = append(lists, s.keys.call(phaseOf(state), q.Digest, owner))
		case limited:
			lists = append(lists, s.keys.owned(state, owner))
		default:
			lists = append(lists, s.keys.list(state))
		}
	}
	slices.Sort(lists)
	return slices.Compact(lists)
}

// members returns the first members of the merged lists.
func (s *Store) members(ctx context.Context, lists []string, from string, size int) ([]string, error) {
	members, err := pageScript.Exec(ctx, s.client, lists, []string{from, strconv.Itoa(size)}).AsStrSlice()
	slices.Sort(members)
	return members[:min(size, len(members))], err
}

// fields returns some fields of the hashes with the given keys. Missing fields are empty.
func (s *Store) fields(ctx context.Context, keys []string, names ...string) ([][]string, error) {
	reads := make(rueidis.Commands, len(keys))
	for i, key := range keys {
		reads[i] = s.client.B().Hmget().Key(key).Field(names...).Build().Pin()
	}
	found := make([][]string, len(keys))
	for i, reply := range s.client.DoMulti(ctx, reads...) {
		var err error
		if found[i], err = reply.AsStrSlice(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// read returns the tasks of members, and the members of deleted tasks. If some tasks cannot be
// read, it returns the others and [task.ErrUnreadable].
func (s *Store) read(ctx context.Context, members []string) (tasks []task.Task, gone []string, err error) {
	stored, err := s.fields(ctx, s.keys.tasks(members), "document")
	if err != nil {
		return nil, nil, err
	}
	var unreadable error
	for i, fields := range stored {
		if fields[0] == "" {
			gone = append(gone, members[i])
			continue
		}
		t, err := storekit.DecodeAs(idOf(members[i]), []byte(fields[0]))
		if err != nil {
			unreadable = errors.Join(unreadable, err)
			continue
		}
		tasks = append(tasks, t)
	}
	return tasks, gone, unreadable
}

// dueBefore returns the first members of a list that are due before a time. The list must be
// sorted by due time.
func (s *Store) dueBefore(ctx context.Context, list string, at time.Time, limit int) ([]string, error) {
	b := s.client.B().Zrange().Key(list).Min("-inf").Max("("+micros(at)).Byscore().Limit(0, int64(max(0, limit)))
	return s.client.Do(ctx, b.Build().Pin()).AsStrSlice()
}

// Overdue implements [task.Store].
func (s *Store) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	return request(ctx, s, action.List, func(ctx context.Context) ([]task.Task, error) {
		members, err := s.dueBefore(ctx, s.keys.due(pending), at, limit)
		if err != nil {
			return nil, err
		}
		tasks, gone, err := s.read(ctx, members)
		if len(gone) > 0 {
			err = errors.Join(err, s.removeGone(ctx, gone, at))
		}
		if err != nil && !errors.Is(err, task.ErrUnreadable) {
			return nil, err
		}
		return slices.DeleteFunc(tasks, func(t task.Task) bool {
			return t.State.Terminal() || !t.Due().Before(at) // it has changed since it was listed
		}), err
	})
}

// removeGone handles pending tasks whose keys were deleted by hand. It removes their members
// from the list that counts them, so that they stop counting towards the limit.
func (s *Store) removeGone(ctx context.Context, gone []string, before time.Time) error {
	lost := make([]found, len(gone))
	for i, member := range gone {
		lost[i] = found{listEntry: listEntry{member: member}, state: task.Working}
	}
	_, err := s.delete(ctx, lost, micros(before))
	return err
}

// ReadChunk implements [task.Blobs].
func (s *Store) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	return request(ctx, s, action.ReadChunk, func(ctx context.Context) ([]byte, error) {
		replies := s.client.DoMulti(ctx,
			s.client.B().Hget().Key(s.keys.task(ref.ID)).Field("owner").Build().Pin(),
			s.client.B().Hget().Key(s.keys.blob(ref.ID)).Field(strconv.Itoa(n)).Build().Pin())
		owner, err := replies[0].ToString()
		if rueidis.IsRedisNil(err) {
			return nil, ref.NotFound(action.ReadChunk)
		}
		if err == nil {
			err = ref.Check(owner, action.ReadChunk)
		}
		if err != nil {
			return nil, err
		}
		chunk, err := replies[1].AsBytes()
		if rueidis.IsRedisNil(err) {
			err = ref.ChunkMissing(n)
		}
		return chunk, err
	})
}

// Documents calls visit with the stored document of every task, even if it is damaged. It may
// visit a task twice that changes meanwhile.
func (s *Store) Documents(ctx context.Context, visit func(id task.ID, document []byte) error) error {
	const most = 20
	for _, state := range task.States() {
		for from := "-"; ; {
			var members []string
			page, err := request(ctx, s, "visit", func(ctx context.Context) (documents [][]string, err error) {
				if members, err = s.members(ctx, []string{s.keys.list(state)}, from, most); err != nil {
					return nil, err
				}
				return s.fields(ctx, s.keys.tasks(members), "document")
			})
			if err != nil {
				return err
			}
			for i, member := range members {
				if err := visit(idOf(member), []byte(page[i][0])); err != nil {
					return err
				}
				from = "(" + member
			}
			if len(members) == 0 {
				break
			}
		}
	}
	return nil
}
