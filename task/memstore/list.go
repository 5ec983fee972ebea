package memstore

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// An entry holds one task, and what it is sorted by.
type entry struct {
	task    *task.Task // never changed, only replaced
	created int64      // in microseconds, like due
	due     int64
	chunks  map[int][]byte
}

// set puts t into e. The lists that are sorted by what this changes must not
// contain e.
func (e *entry) set(t *task.Task) {
	e.task, e.created, e.due = t, t.CreatedAt.UnixMicro(), t.Due().UnixMicro()
}

// An order says how entries are sorted.
type order func(a, b *entry) int

// byAge is the reverse of how tasks are listed, because new ones are added at
// the end.
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

// find returns where e is in l, or where it would be.
func (l list) find(e *entry, by order) int {
	if n := len(l); n > 0 && by(l[n-1], e) < 0 {
		return n
	}
	i, _ := slices.BinarySearchFunc(l, e, by)
	return i
}

func (l *list) add(e *entry, by order) { *l = slices.Insert(*l, l.find(e, by), e) }

// remove takes e from l. It moves the shorter side: mostly the oldest entries
// are removed.
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

// A group holds the pending tasks, or those that have ended, so that a search
// for some is not slowed down by the others.
type group struct {
	byAge list
	byDue list
	calls map[uint64]*list // by owner and digest, each by age
}

func (g *group) add(e *entry, call uint64) {
	g.byAge.add(e, byAge)
	g.byDue.add(e, byDue)
	if g.calls[call] == nil {
		g.calls[call] = new(list)
	}
	g.calls[call].add(e, byAge)
}

func (g *group) remove(e *entry, call uint64) {
	g.byAge.remove(e, byAge)
	g.byDue.remove(e, byDue)
	same := g.calls[call]
	if same.remove(e, byAge); len(*same) == 0 {
		delete(g.calls, call)
	}
}

// dueBefore returns the first entries of g that are due before the given time.
func (g *group) dueBefore(at time.Time, limit int) list {
	n := 0
	for n < min(limit, len(g.byDue)) && g.byDue[n].due < at.UnixMicro() {
		n++
	}
	return g.byDue[:n]
}

// alike returns the entries of g with the given key of a call.
func (g *group) alike(call uint64) list {
	if same := g.calls[call]; same != nil {
		return *same
	}
	return nil
}

// callKey tells the calls of owners apart, nearly always.
func (s *Store) callKey(owner string, d task.Digest) uint64 {
	return maphash.Comparable(s.seed, struct {
		owner  string
		digest task.Digest
	}{owner, d})
}

// An owner holds the tasks of one owner.
type owner struct {
	tasks   list // by age
	pending int  // how many of them are
}

// A page collects the tasks of one page, the newest first.
type page struct {
	query task.Query
	after *entry // where the page before ended, or nil
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
		if t := l[end-1].task; p.query.Matches(t) && (!p.query.Owing || t.Owes()) {
			p.found = append(p.found, t)
			n++
		}
	}
}
