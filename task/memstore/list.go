package memstore

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// An entry has one task and its sort keys.
type entry struct {
	task    *task.Task // immutable, only replaced
	created int64      // in microseconds, like due
	due     int64
	chunks  map[int][]byte
}

// set puts t into e. Lists that are sorted by a changed key must not contain e.
func (e *entry) set(t *task.Task) {
	e.task, e.created, e.due = t, t.CreatedAt.UnixMicro(), t.Due().UnixMicro()
}

// An order compares entries.
type order func(a, b *entry) int

// byAge sorts the oldest first, the reverse of List, so that new tasks are added at the end.
func byAge(a, b *entry) int {
	if c := cmp.Compare(a.created, b.created); c != 0 {
		return c
	}
	return cmp.Compare(b.task.ID, a.task.ID)
}

func byDue(a, b *entry) int {
	if c := cmp.Compare(a.due, b.due); c != 0 {
		return c
	}
	return byAge(a, b)
}

// A list is a sorted slice of entries.
type list []*entry

// find returns the index of e in l, or the index at which e would be inserted.
func (l list) find(e *entry, by order) int {
	if n := len(l); n > 0 && by(l[n-1], e) < 0 {
		return n
	}
	i, _ := slices.BinarySearchFunc(l, e, by)
	return i
}

func (l *list) add(e *entry, by order) { *l = slices.Insert(*l, l.find(e, by), e) }

// remove removes e from l. It moves the shorter part, because most removed entries are the
// oldest.
func (l *list) remove(e *entry, by order) {
	all := *l
	switch i := all.find(e, by); {
	case len(all) == 1:
		*l = nil
	case i < len(all)/2:
		copy(all[1:], all[:i])
		all[0] = nil
		*l = all[1:]
	default:
		*l = slices.Delete(all, i, i+1)
	}
}

// An index has either the pending or the ended tasks, so that a search for one kind does not
// scan the other.
type index struct {
	byAge list
	byDue list
	calls map[uint64]*list // by owner and digest, each by age
}

func (g *index) add(e *entry, call uint64) {
	g.byAge.add(e, byAge)
	g.byDue.add(e, byDue)
	if g.calls[call] == nil {
		g.calls[call] = new(list)
	}
	g.calls[call].add(e, byAge)
}

func (g *index) remove(e *entry, call uint64) {
	g.byAge.remove(e, byAge)
	g.byDue.remove(e, byDue)
	same := g.calls[call]
	if same.remove(e, byAge); len(*same) == 0 {
		delete(g.calls, call)
	}
}

// dueBefore returns the first entries of g that are due before the given time.
func (g *index) dueBefore(at time.Time, limit int) list {
	n := 0
	for n < min(limit, len(g.byDue)) && g.byDue[n].due < at.UnixMicro() {
		n++
	}
	return g.byDue[:n]
}

// sameCall returns the entries of g with the given key of a call.
func (g *index) sameCall(call uint64) list {
	if same := g.calls[call]; same != nil {
		return *same
	}
	return nil
}

// callKey returns a hash that nearly always differs for different calls or owners.
func (s *Store) callKey(owner string, d task.Digest) uint64 {
	return maphash.Comparable(s.seed, struct {
		owner  string
		digest task.Digest
	}{owner, d})
}

// An owner has the tasks of one owner. Its bytes are those of its tasks without a group.
type owner struct {
	tasks list // by age
	load
}

// A load counts the tasks of an owner or of a group.
type load struct {
	pending int // the number of pending ones
	bytes   int64
}

// A page collects the tasks of one page, the newest first.
type page struct {
	query task.Query
	after *entry // the last entry of the previous page, or nil
	limit int
	found []*task.Task
}

// collect adds the first tasks of l that belong to the page.
func (p *page) collect(l list) {
	end := len(l)
	if p.after != nil {
		end = l.find(p.after, byAge)
	}
	for n := 0; end > 0 && n < p.limit; end-- {
		if t := l[end-1].task; p.query.Matches(t) && (!p.query.OwesCancellation || t.OwesCancellation()) {
			p.found = append(p.found, t)
			n++
		}
	}
}
