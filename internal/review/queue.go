package review

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Queue is a page of pending calls in groups of identical ones, the earliest deadline first.
type Queue struct {
	Groups   []Group
	Next     string // cursor of the next page; empty on the last one
	Pending  int    // number of pending calls
	Matching int    // number of calls that the filter selects

	// Tools, Principals and Workflows are the names that occur in the queue.
	Tools, Principals, Workflows []string
}

// A Group has identical calls of the same agent.
type Group struct {
	Calls []Approval // at least one, the earliest deadline first
}

// queueSize is the default number of groups on a page.
const queueSize = 50

// pendingStates are the states of calls that wait for a decision.
var pendingStates = []task.State{task.InputRequired}

// Queue returns a page of the queue. It ignores the states in f.
func (v *Viewer) Queue(ctx context.Context, f Filter) (Queue, error) {
	after, err := parsePosition(f.Cursor)
	if err != nil {
		return Queue{}, err
	}
	f.States = pendingStates
	pending, err := v.pendingItems(ctx)
	if err != nil {
		return Queue{}, err
	}
	q := Queue{Pending: len(pending)}
	q.Tools, q.Principals, q.Workflows = filterNames(pending)
	pending = slices.DeleteFunc(pending, func(p *item) bool { return !f.selects(p) })
	q.Matching = len(pending)
	groups := slices.DeleteFunc(grouped(pending), func(g Group) bool { return comparePositions(g.position(), after) <= 0 })
	most := cmp.Or(max(0, f.Limit), queueSize)
	if len(groups) > most {
		groups = groups[:most]
		q.Next = groups[most-1].position().String()
	}
	q.Groups = groups
	return q, nil
}

// pendingItems returns all pending calls.
func (v *Viewer) pendingItems(ctx context.Context) (all []*item, err error) {
	err = v.eachPending(ctx, func(_ task.Task, one *item) { all = append(all, one) })
	return all, err
}

// CountPending returns the number of pending calls.
func (v *Viewer) CountPending(ctx context.Context) (n int, err error) {
	q := task.Query{Scope: task.AnyOwner(), States: pendingStates, Limit: listSize, Heads: true}
	for _, err := range storekit.Each(storekit.SlowRead(ctx), v.cfg.Store, q) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// A groupKey is equal for identical calls.
type groupKey struct {
	principal, owner, upstream, method, name, workflow string

	digest task.Digest
}

func keyOf(p *item) groupKey {
	s := groupKey{principal: p.principal, upstream: p.Upstream, method: p.Method, name: p.Name, workflow: p.Workflow, digest: p.Digest}
	if p.Anonymous || p.principal == "" {
		s.owner = p.owner // others may be different agents
	}
	return s
}

// grouped sorts calls and groups identical ones.
func grouped(calls []*item) []Group {
	slices.SortFunc(calls, byDeadline)
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

// A queuePosition is the position of a call in a queue.
type queuePosition struct {
	deadline time.Time
	id       task.ID
}

func positionOf(a Approval) queuePosition { return queuePosition{a.ExpiresAt, a.ID} }

func (g Group) position() queuePosition { return positionOf(g.Calls[0]) }

func comparePositions(a, b queuePosition) int {
	return cmp.Or(a.deadline.Compare(b.deadline), cmp.Compare(a.id, b.id))
}

// String returns p as a cursor.
func (p queuePosition) String() string {
	return strconv.FormatInt(p.deadline.UnixNano(), 36) + "." + string(p.id)
}

// parsePosition parses a cursor. The empty cursor is the position before all others.
func parsePosition(cursor string) (queuePosition, error) {
	if cursor == "" {
		return queuePosition{}, nil
	}
	at, id, found := strings.Cut(cursor, ".")
	nanos, err := strconv.ParseInt(at, 36, 64)
	if !found || id == "" || err != nil {
		return queuePosition{}, &task.Error{Kind: task.ErrInvalidCursor, Action: action.List}
	}
	return queuePosition{time.Unix(0, nanos), task.ID(id)}, nil
}

// maxFilterNames is the maximum number of names to filter by.
const maxFilterNames = 100

// filterNames returns the names of tools, requesters and workflows that occur in calls.
func filterNames(calls []*item) (tools, principals, workflows []string) {
	distinct := func(name func(*item) string) []string {
		seen := make(map[string]bool)
		var names []string
		for _, p := range calls {
			if n := name(p); n != "" && !seen[n] && len(names) < maxFilterNames {
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
