package pgstore

import (
	"context"
	"errors"
	"hash/fnv"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// putChunk is a statement in the dialect of PostgreSQL.
var putChunk = sqlcore.Dialect{}.PutChunk()

// A lockPlan is a set of locks for a creation, with the number of creations that may run
// concurrently.
type lockPlan struct {
	groupLock     string // the function that locks the group of the task, if there are limits for it
	othersInGroup int    // other tasks of the group, all small, that may be created at the same time
	slots         string // the condition that selects the slots to lock, including that of the task
	others        int    // other tasks that may be created at the same time
}

// slots is the number of rows that count pending tasks.
const slots = 16

// smallTask is the largest weight of a task that shares the lock of its group with others.
const smallTask = 64 << 10

// lockPlans returns the plans to try, in this order. With one slot locked, at most one other
// task can be in creation in each of the other slots. If the limits also allow these, no
// further lock is needed. A large task has no such plan, because the bytes of the others must
// be bounded. The second plan locks the group, and the last one all slots. All
// plans lock the group before slots, so that there is no deadlock.
func lockPlans(t task.Task, l task.Limits) []lockPlan {
	const (
		share = "pg_advisory_xact_lock_shared"
		alone = "pg_advisory_xact_lock"
		one   = "slot = $1"
		all   = "(slot >= 0 OR slot = $1)"
	)
	shared := lockPlan{groupLock: share, othersInGroup: slots - 1, slots: one, others: slots - 1}
	single := lockPlan{groupLock: alone, slots: one, others: slots - 1}
	last := lockPlan{groupLock: alone, slots: all}
	switch {
	case !locksGroup(t, l):
		return []lockPlan{shared, last}
	case l.AccountBytes > 0 && t.Weight() > smallTask:
		return []lockPlan{single, last}
	default:
		return []lockPlan{shared, single, last}
	}
}

// locksGroup reports whether there are limits for the group of t.
func locksGroup(t task.Task, l task.Limits) bool {
	return l.CountsGroups(t) || l.AccountBytes > 0 && t.Group != ""
}

// lock returns the statement that takes the locks of a plan: of the owner, if there are limits
// for owners, of the group, if there are limits for it, and then of slots.
func (a lockPlan) lock(t task.Task, l task.Limits) string {
	locks := "SELECT $2::text, $3::text"
	if l.PerOwner > 0 || l.AccountBytes > 0 || l.Unique {
		locks += ", pg_advisory_xact_lock(hashtextextended($2, 0))"
	}
	if locksGroup(t, l) {
		locks += ", " + a.groupLock + "(hashtextextended($3, 1))"
	}
	return "WITH first AS MATERIALIZED (" + locks + ") SELECT pending FROM slots, first WHERE " + a.slots + " ORDER BY slot FOR UPDATE OF slots"
}

// slot returns the slot that counts a task.
func slot(id task.ID) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % slots)
}

// errMaybeFull means that concurrent creations may use up a limit.
var errMaybeFull = errors.New("too many at the same time")

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	r, err := storekit.NewRow(t, notes, action.Create)
	if err != nil {
		return err
	}
	for _, a := range lockPlans(t, limits) {
		err = s.change(ctx, action.Create, func(ctx context.Context, conn *pgxpool.Conn) error {
			return creation{row: &r, limits: limits, plan: a}.attempt(ctx, conn)
		})
		if !errors.Is(err, errMaybeFull) {
			break
		}
	}
	if err == nil {
		if len(notes) > 0 {
			s.chaining.Schedule()
		}
		s.relay.notify(sqlcore.ChangedTask{ID: t.ID, Owner: t.Owner})
	}
	return err
}

// createTask adds a task, its outline and its notes, and counts it in its slot, unless a
// task with its ID exists or a limit is reached. It returns the load, whether the ID
// existed, and whether the task was added.
const createTask = `WITH load AS MATERIALIZED (SELECT
		(SELECT sum(pending) FROM slots)::bigint AS total,
		(SELECT count(*) FROM (SELECT FROM tasks WHERE owner = $2 AND pending = TRUE LIMIT $17) AS mine) AS mine,
		coalesce((SELECT id FROM tasks WHERE digest = $5 AND owner = $2 AND pending = TRUE LIMIT $18), '') AS same,
		EXISTS (SELECT FROM tasks WHERE id = $1) AS there,
		CASE WHEN $19 THEN (SELECT count(*) FROM tasks WHERE pending = TRUE AND room > '' AND room = $10) ELSE 0 END AS room,
		CASE WHEN $19 THEN (SELECT count(*) FROM tasks WHERE pending = TRUE AND room > '') ELSE 0 END AS rooms,
		CASE WHEN $20 THEN (SELECT coalesce(sum(size), 0)::bigint FROM tasks WHERE account = $26) ELSE 0 END AS bytes),
	added AS (INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account)
		SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $26 FROM load
		WHERE NOT there AND same = '' AND mine < $21 AND room < $22 AND rooms < $23 AND total < $24 AND bytes <= $25 RETURNING id),
	outlined AS (INSERT INTO outlines (task, version, document) SELECT id, $8, $14 FROM added
		ON CONFLICT (task) DO UPDATE SET version = excluded.version, document = excluded.document),
	counted AS (UPDATE slots SET pending = pending + 1 WHERE slot = $15 AND $4 AND EXISTS (SELECT FROM added)),
	noted AS (INSERT INTO journal_inbox (note)
		SELECT note FROM unnest($16::text[]) WITH ORDINALITY AS n (note, i) WHERE EXISTS (SELECT FROM added) ORDER BY i)
	SELECT total, mine, same, there, room, rooms, bytes, EXISTS (SELECT FROM added) FROM load`

// A creation adds a task in one round trip and one transaction. The first statement takes
// the locks. The second adds the task; it sees all changes that were committed before it
// got the locks.
type creation struct {
	row    *storekit.Row
	limits task.Limits
	plan   lockPlan
}

func (c creation) attempt(ctx context.Context, conn *pgxpool.Conn) error {
	found, err := c.run(ctx, conn)
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == uniqueViolation {
		found.exists, err = true, nil
	}
	switch {
	case err != nil || found.added:
		return err
	case found.exists:
		return task.AnyOwner().Ref(c.row.ID).Exists()
	}
	if err := c.limits.Check(c.row.Task, found.load); err != nil {
		return err
	}
	return errMaybeFull // the limits allow this task, but not all concurrent ones
}

// created is the result of a creation.
type created struct {
	load   task.Load
	exists bool // a task with the ID existed
	added  bool
}

// run runs the statements.
func (c creation) run(ctx context.Context, conn *pgxpool.Conn) (found created, err error) {
	r, l, a := c.row, c.limits, c.plan
	grouped, same := l.CountsGroups(r.Task), 0
	if l.Unique {
		same = 1
	}
	below := func(limit, others int) int64 { // the count must be less than this
		if limit <= 0 {
			return math.MaxInt64
		}
		return int64(limit - others)
	}
	perGroup, inGroups, bytes := below(l.PerGroup, a.othersInGroup), below(l.Grouped, a.others), int64(math.MaxInt64)
	if !grouped {
		perGroup, inGroups = math.MaxInt64, math.MaxInt64
	}
	if l.AccountBytes > 0 {
		bytes = l.AccountBytes - r.Weight()
		if r.Group != "" {
			bytes -= int64(a.othersInGroup) * smallTask
		}
	}
	var b pgx.Batch
	b.Queue(a.lock(r.Task, l), slot(r.ID), r.Owner, r.Group)
	b.Queue(createTask, string(r.ID), r.Owner, string(r.State), r.Pending(), r.Digest[:],
		r.CreatedAt.UnixMicro(), r.Due().UnixMicro(), r.Version, r.Document, r.Group, r.OwesCancellation(), r.Weight(), r.Disposable(),
		r.OutlineText, slot(r.ID), storekit.Documents(r.Notes),
		l.PerOwner, same, grouped, l.AccountBytes > 0,
		below(l.PerOwner, 0), perGroup, inGroups, below(l.Total, a.others), bytes, r.Account(),
	).QueryRow(func(row pgx.Row) error {
		load := &found.load
		return row.Scan(&load.Total, &load.Owner, &load.Duplicate, &found.exists, &load.Group, &load.Grouped, &load.AccountBytes, &found.added)
	})
	err = conn.SendBatch(ctx, &b).Close()
	return found, err
}
