package casefile

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Queue is a part of the calls that wait for a decision, the ones with the
// least time left first. Identical calls are together.
type Queue struct {
	Groups   []Group
	Next     string // the cursor of the next part; empty if this is the last
	Pending  int    // how many calls wait
	Matching int    // how many of them the filter selects

	// Tools, Principals and Workflows are what one can filter by.
	Tools, Principals, Workflows []string
}

// A Group has the same call of the same agent, once or several times.
type Group struct {
	Calls []Approval // the one with the least time left first; at least one
}

// queueSize is how many groups a part of a queue has unless the filter says
// otherwise.
const queueSize = 50

// waiting are the states of calls that wait for a decision.
var waiting = []task.State{task.InputRequired}

// Queue returns the part of the queue that f asks for. The states in f do not
// matter.
func (v *Viewer) Queue(ctx context.Context, f Filter) (Queue, error) {
	after, err := parsePlace(f.Cursor)
	if err != nil {
		return Queue{}, err
	}
	f.States = waiting
	pending, err := v.pendingItems(ctx)
	if err != nil {
		return Queue{}, err
	}
	q := Queue{Pending: len(pending)}
	q.Tools, q.Principals, q.Workflows = choices(pending)
	pending = slices.DeleteFunc(pending, func(p *item) bool { return !f.selects(p) })
	q.Matching = len(pending)
	groups := slices.DeleteFunc(grouped(pending), func(g Group) bool { return comparePlaces(g.place(), after) <= 0 })
	most := cmp.Or(max(0, f.Limit), queueSize)
	if len(groups) > most {
		groups = groups[:most]
		q.Next = groups[most-1].place().String()
	}
	q.Groups = groups
	return q, nil
}

// pendingItems returns every call that waits.
func (v *Viewer) pendingItems(ctx context.Context) ([]*item, error) {
	ctx, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var all []*item
	for t, err := range task.Each(ctx, v.cfg.Store, task.Query{Scope: task.AnyOwner(), States: waiting, Limit: listSize, Outlines: true}) {
		if errors.Is(err, task.ErrUnreadable) {
			v.logUnreadable(ctx, err)
			continue
		}
		var one *item
		if err == nil {
			one, err = v.item(ctx, t)
		}
		if err != nil {
			return nil, err
		}
		if one != nil && one.State == task.InputRequired {
			all = append(all, one)
		}
	}
	return all, nil
}

// Waiting returns how many calls wait for a decision.
func (v *Viewer) Waiting(ctx context.Context) (n int, err error) {
	q := task.Query{Scope: task.AnyOwner(), States: waiting, Limit: listSize, Heads: true}
	for _, err := range task.Each(task.SlowRead(ctx), v.cfg.Store, q) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// A groupKey is what identical calls have in common.
type groupKey struct {
	principal, owner, upstream, method, name, workflow string

	digest task.Digest
}

func keyOf(p *item) groupKey {
	s := groupKey{principal: p.principal, upstream: p.Upstream, method: p.Method, name: p.Name, workflow: p.Workflow, digest: p.Digest}
	if p.Anonymous || p.principal == "" {
		s.owner = p.owner // others may be the same agent
	}
	return s
}

// grouped returns calls with identical ones together, in the order of a queue.
func grouped(calls []*item) []Group {
	slices.SortFunc(calls, func(a, b *item) int { return comparePlaces(placeOf(a.Approval), placeOf(b.Approval)) })
	var groups []Group
	at := make(map[groupKey]int)
	for _, p := range calls {
		same := keyOf(p)
		n, known := at[same]
		if !known {
			n, at[same] = len(groups), len(groups)
			groups = append(groups, Group{})
		}
		groups[n].Calls = append(groups[n].Calls, p.Approval)
	}
	return groups
}

// A place is where a call stands in a queue.
type place struct {
	deadline time.Time
	id       task.ID
}

func placeOf(a Approval) place { return place{a.ExpiresAt, a.ID} }

func (g Group) place() place { return placeOf(g.Calls[0]) }

func comparePlaces(a, b place) int {
	return cmp.Or(a.deadline.Compare(b.deadline), cmp.Compare(a.id, b.id))
}

// String returns p as a cursor.
func (p place) String() string {
	return strconv.FormatInt(p.deadline.UnixNano(), 36) + "." + string(p.id)
}

// parsePlace reads a cursor. Without one it returns the place before all others.
func parsePlace(cursor string) (place, error) {
	if cursor == "" {
		return place{}, nil
	}
	at, id, found := strings.Cut(cursor, ".")
	nanos, err := strconv.ParseInt(at, 36, 64)
	if !found || id == "" || err != nil {
		return place{}, &task.Error{Kind: task.KindInvalidCursor, Action: task.ActionList}
	}
	return place{time.Unix(0, nanos), task.ID(id)}, nil
}

// maxChoices is how many names are offered to filter by.
const maxChoices = 100

// choices returns the names that occur in calls: those of tools, of requesters
// and of workflows.
func choices(calls []*item) (tools, principals, workflows []string) {
	distinct := func(name func(*item) string) []string {
		seen := make(map[string]bool)
		var names []string
		for _, p := range calls {
			if n := name(p); n != "" && !seen[n] && len(names) < maxChoices {
				seen[n] = true
				names = append(names, n)
			}
		}
		slices.Sort(names)
		return names
	}
	return distinct(func(p *item) string { return p.Tool }),
		distinct(func(p *item) string {
			if p.Anonymous {
				return ""
			}
			return p.Principal
		}),
		distinct(func(p *item) string { return p.Workflow })
}
