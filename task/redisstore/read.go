package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// Get implements [task.Store].
func (s *Store) Get(ctx context.Context, ref task.Ref) (task.Task, error) {
	ctx, done, err := s.begin(ctx, task.ActionGet)
	if err != nil {
		return task.Task{}, err
	}
	defer done()
	document, err := s.client.Do(ctx, s.client.B().Hget().Key(s.keys.task(ref.ID)).Field("document").Build().Pin()).AsBytes()
	if rueidis.IsRedisNil(err) {
		return task.Task{}, ref.NotFound(task.ActionGet)
	}
	if err != nil {
		return task.Task{}, s.fault(ctx, task.ActionGet, err)
	}
	t, err := task.Decode(document)
	if err != nil {
		return task.Task{}, s.fault(ctx, task.ActionGet, err)
	}
	if err := ref.Check(t.Owner, task.ActionGet); err != nil {
		return task.Task{}, err
	}
	return t, nil
}

// List implements [task.Store]. A query for a digest by any owner reads tasks
// until it has found a page of them; every other one reads little more than
// the page.
func (s *Store) List(ctx context.Context, q task.Query) (task.Page, error) {
	ctx, done, err := s.begin(ctx, task.ActionList)
	if err != nil {
		return task.Page{}, err
	}
	defer done()
	after, err := q.Position()
	if err != nil {
		return task.Page{}, err
	}
	if owner, limited := q.Scope.Owner(); limited && owner == "" {
		return task.Page{}, nil
	}
	found, err := s.search(ctx, q, after)
	if err != nil && !errors.Is(err, task.ErrUnreadable) {
		return task.Page{}, s.fault(ctx, task.ActionList, err)
	}
	for i := range found {
		found[i] = q.Part(found[i])
	}
	page := task.Page{Tasks: found}
	if size := q.PageSize(); len(found) > size {
		page.Tasks = found[:size]
		page.Next = q.CursorAfter(page.Tasks[size-1].Position())
	}
	return page, s.fault(ctx, task.ActionList, err)
}

// search returns the tasks of a page of q, and one more if there is one. With
// [task.ErrUnreadable] it returns all but those that cannot be read.
func (s *Store) search(ctx context.Context, q task.Query, after task.Position) ([]task.Task, error) {
	const most = 200 // tasks to read at a time
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
			// It may have changed since it was listed.
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

// readPart returns as much of the tasks that members stand for as q asks for.
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

// outlines returns the outlines of the tasks that members stand for, in their
// order, and the whole of a task whose outline is missing or of another version:
// an earlier program wrote it. With [task.ErrUnreadable] it returns all but those
// that cannot be read.
func (s *Store) outlines(ctx context.Context, members []string) ([]task.Task, error) {
	if len(members) == 0 {
		return nil, nil
	}
	found := make([]task.Task, 0, len(members))
	var unreadable error
	for i, reply := range s.client.DoMulti(ctx, s.each(members, "version", "outline")...) {
		fields, err := reply.AsStrSlice()
		if err != nil {
			return nil, err
		}
		t, err := task.Decode([]byte(fields[1]))
		if err == nil && strconv.FormatInt(t.Version, 10) == fields[0] {
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

// heads returns the heads of the tasks that members stand for.
func (s *Store) heads(ctx context.Context, members []string) ([]task.Task, error) {
	if len(members) == 0 {
		return nil, nil
	}
	var heads []task.Task
	for i, reply := range s.client.DoMulti(ctx, s.each(members, "version", "state", "owner", "digest")...) {
		fields, err := reply.AsStrSlice()
		if err != nil {
			return nil, err
		}
		if fields[0] == "" {
			continue // it is gone
		}
		head := task.Task{ID: idOf(members[i]), State: task.State(fields[1]), Owner: fields[2], CreatedAt: timeOf(members[i])}
		if head.Version, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
			return nil, err
		}
		copy(head.Digest[:], fields[3]) // by which q may select
		heads = append(heads, head)
	}
	return heads, nil
}

// lists returns the lists that have all that q selects, and the less else the
// better.
func (s *Store) lists(q task.Query) []string {
	if q.Owing {
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
			lists = append(lists, s.keys.call(halfOf(state), q.Digest, owner))
		case limited:
			lists = append(lists, s.keys.owned(state, owner))
		default:
			lists = append(lists, s.keys.list(state))
		}
	}
	slices.Sort(lists)
	return slices.Compact(lists)
}

// members returns the first members of all lists together.
func (s *Store) members(ctx context.Context, lists []string, from string, size int) ([]string, error) {
	members, err := s.scripts.page.Exec(ctx, s.client, lists, []string{from, strconv.Itoa(size)}).AsStrSlice()
	slices.Sort(members)
	return members[:min(size, len(members))], err
}

// each returns a command for each member that reads fields of its task.
func (s *Store) each(members []string, fields ...string) rueidis.Commands {
	commands := make(rueidis.Commands, len(members))
	for i, member := range members {
		commands[i] = s.client.B().Hmget().Key(s.keys.task(idOf(member))).Field(fields...).Build().Pin()
	}
	return commands
}

// read returns the tasks that members stand for, and the members of those that
// are gone. With [task.ErrUnreadable] it returns all but those that cannot be
// read.
func (s *Store) read(ctx context.Context, members []string) (tasks []task.Task, gone []string, err error) {
	if len(members) == 0 {
		return nil, nil, nil
	}
	var unreadable error
	for i, reply := range s.client.DoMulti(ctx, s.each(members, "document")...) {
		fields, err := reply.ToArray()
		if err != nil {
			return nil, nil, err
		}
		if fields[0].IsNil() {
			gone = append(gone, members[i])
			continue
		}
		document, err := fields[0].AsBytes()
		if err != nil {
			return nil, nil, err
		}
		t, err := task.Decode(document)
		if err != nil {
			unreadable = errors.Join(unreadable, err)
			continue
		}
		tasks = append(tasks, t)
	}
	return tasks, gone, unreadable
}

// dueBefore returns the members of the tasks of one half that are due, those
// first that are due first.
func (s *Store) dueBefore(ctx context.Context, h half, at time.Time, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	b := s.client.B().Zrange().Key(s.keys.due(h)).Min("-inf").Max("("+micros(at)).Byscore().Limit(0, int64(limit))
	return s.client.Do(ctx, b.Build().Pin()).AsStrSlice()
}

// Overdue implements [task.Store].
func (s *Store) Overdue(ctx context.Context, at time.Time, limit int) ([]task.Task, error) {
	ctx, done, err := s.begin(ctx, task.ActionList)
	if err != nil {
		return nil, err
	}
	defer done()
	members, err := s.dueBefore(ctx, pending, at, limit)
	if err != nil {
		return nil, s.fault(ctx, task.ActionList, err)
	}
	tasks, gone, err := s.read(ctx, members)
	if len(gone) > 0 {
		err = errors.Join(err, s.strike(ctx, gone, at))
	}
	if err != nil && !errors.Is(err, task.ErrUnreadable) {
		return nil, s.fault(ctx, task.ActionList, err)
	}
	return slices.DeleteFunc(tasks, func(t task.Task) bool {
		return t.State.Terminal() || !t.Due().Before(at) // it has changed since it was listed
	}), s.fault(ctx, task.ActionList, err)
}

// strike takes pending tasks that somebody has deleted by hand from the list
// by which they are counted, so that they neither stand in the way of others
// nor use up the limit of all for ever.
func (s *Store) strike(ctx context.Context, gone []string, before time.Time) error {
	lost := make([]found, len(gone))
	for i, member := range gone {
		lost[i] = found{card: card{member: member}, state: task.Working}
	}
	_, err := s.delete(ctx, lost, before)
	return err
}

// ReadChunk implements [task.Blobs].
func (s *Store) ReadChunk(ctx context.Context, ref task.Ref, n int) ([]byte, error) {
	ctx, done, err := s.begin(ctx, task.ActionReadChunk)
	if err != nil {
		return nil, err
	}
	defer done()
	replies := s.client.DoMulti(ctx,
		s.client.B().Hget().Key(s.keys.task(ref.ID)).Field("owner").Build().Pin(),
		s.client.B().Hget().Key(s.keys.blob(ref.ID)).Field(strconv.Itoa(n)).Build().Pin())
	owner, err := replies[0].ToString()
	if rueidis.IsRedisNil(err) {
		return nil, ref.NotFound(task.ActionReadChunk)
	}
	if err != nil {
		return nil, s.fault(ctx, task.ActionReadChunk, err)
	}
	if err := ref.Check(owner, task.ActionReadChunk); err != nil {
		return nil, err
	}
	chunk, err := replies[1].AsBytes()
	if rueidis.IsRedisNil(err) {
		return nil, ref.ChunkMissing(n)
	}
	return chunk, s.fault(ctx, task.ActionReadChunk, err)
}

// Documents calls visit with every task as it is stored, whether or not that
// can be read. A task that changes meanwhile may be visited twice.
func (s *Store) Documents(ctx context.Context, visit func(id task.ID, document []byte) error) error {
	const action task.Action = "visit"
	for _, state := range task.States() {
		from := "-"
		for {
			page, err := s.documents(ctx, action, s.keys.list(state), from)
			if err != nil {
				return err
			}
			for _, next := range page {
				if err := visit(idOf(next.member), next.document); err != nil {
					return err
				}
			}
			if len(page) == 0 {
				break
			}
			from = "(" + page[len(page)-1].member
		}
	}
	return nil
}

type document struct {
	member   string
	document []byte
}

// documents returns the next tasks on a list. One that is gone has no document.
func (s *Store) documents(ctx context.Context, a task.Action, list, from string) ([]document, error) {
	const most = 20
	ctx, done, err := s.begin(ctx, a)
	if err != nil {
		return nil, err
	}
	defer done()
	members, err := s.members(ctx, []string{list}, from, most)
	if err != nil || len(members) == 0 {
		return nil, s.fault(ctx, a, err)
	}
	found := make([]document, len(members))
	for i, reply := range s.client.DoMulti(ctx, s.each(members, "document")...) {
		fields, err := reply.ToArray()
		if err != nil {
			return nil, s.fault(ctx, a, err)
		}
		found[i].member = members[i]
		if !fields[0].IsNil() {
			if found[i].document, err = fields[0].AsBytes(); err != nil {
				return nil, s.fault(ctx, a, err)
			}
		}
	}
	return found, nil
}
