package pgstore

import (
	"context"
	"errors"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
)

// An admission is a way to count what is pending while others do so too.
type admission struct {
	room      string // locks the room of the task, if rooms are counted
	roommates int    // how many other tasks of the room may be created at the same time
	slots     string // locks slots, one of which is the task's
	others    int    // how many other tasks may be created at the same time
}

// slots is how many rows the pending tasks are counted in.
const slots = 16

// admissions returns the ways to try, in turn. With one slot locked, no more
// than one task can be on its way in each of the others: if there is room for
// those too, nobody need wait. Otherwise those of the same room wait for each
// other, and at last all slots are locked. The lock of the room always comes
// before those of slots, so that nobody waits in a circle.
func admissions(t task.Task, l task.Limits) []admission {
	const (
		share = "SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 1))"
		alone = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))"
		one   = "SELECT pending FROM slots WHERE slot = $1 FOR UPDATE"
		all   = "SELECT pending FROM slots WHERE slot >= 0 OR slot = $1 ORDER BY slot FOR UPDATE"
	)
	ways := []admission{{room: share, roommates: slots - 1, slots: one, others: slots - 1}}
	if l.CountsRooms(t) {
		ways = append(ways, admission{room: alone, slots: one, others: slots - 1})
	}
	return append(ways, admission{room: alone, slots: all})
}

// slot returns where a task is counted.
func slot(id task.ID) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % slots)
}

// errCrowded says that there may or may not be room for one more task.
var errCrowded = errors.New("too many at the same time")

// Create implements [task.Store].
func (s *Store) Create(ctx context.Context, t task.Task, limits task.Limits, notes ...task.Note) error {
	if err := s.db.Usable(ctx, task.ActionCreate); err != nil {
		return err
	}
	r, err := sqlcore.NewRow(t, notes, task.ActionCreate)
	if err != nil {
		return err
	}
	for _, a := range admissions(t, limits) {
		err = s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			return creation{row: &r, limits: limits, conn: conn.Conn()}.attempt(ctx, a)
		})
		if !errors.Is(err, errCrowded) {
			break
		}
	}
	if err == nil {
		s.chaining.wake(len(notes))
		s.relay.notify(sqlcore.Touched{ID: t.ID, Owner: t.Owner})
		return nil
	}
	if _, refused := errors.AsType[*task.Error](err); refused {
		return err
	}
	return s.db.Fault(ctx, task.ActionCreate, err)
}

// A creation adds a task, in two round trips.
type creation struct {
	row    *sqlcore.Row
	limits task.Limits
	conn   *pgx.Conn
}

func (c creation) attempt(ctx context.Context, a admission) error {
	exists := &task.Error{Kind: task.KindExists, ID: c.row.ID, Action: task.ActionCreate}
	load, there, err := c.load(ctx, a)
	if err == nil && there {
		err = exists
	}
	if err == nil {
		err = c.admit(a, load)
	}
	if err == nil {
		err = c.insert(ctx)
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == uniqueViolation {
		err = exists
	}
	if err != nil && !c.conn.IsClosed() {
		bounded, cancel := finishing(ctx)
		defer cancel()
		_, _ = c.conn.Exec(bounded, "ROLLBACK") // if it fails the pool gives up the connection
	}
	return err
}

// load begins a transaction, takes the locks and returns what is pending then,
// as far as limits need to know, and whether there is a task with the ID.
func (c creation) load(ctx context.Context, a admission) (load task.Load, there bool, err error) {
	same := 0
	if c.limits.Unique {
		same = 1
	}
	var b pgx.Batch
	b.Queue("BEGIN")
	if c.limits.PerOwner > 0 || c.limits.Unique {
		b.Queue(lockOwner, c.row.Owner)
	}
	rooms := c.limits.CountsRooms(c.row.Task)
	if rooms {
		b.Queue(a.room, c.row.Room)
	}
	b.Queue(a.slots, slot(c.row.ID))
	if rooms { // with the slot locked, or more tasks could be on their way than the admission says
		b.Queue(sqlcore.CountRooms, c.row.Room).QueryRow(func(row pgx.Row) error { return row.Scan(&load.Room, &load.Rooms) })
	}
	b.Queue(loadTasks, c.row.Owner, c.limits.PerOwner, c.row.Digest[:], same, string(c.row.ID)).QueryRow(
		func(row pgx.Row) error { return row.Scan(&load.Total, &load.Owner, &load.Same, &there) })
	err = c.conn.SendBatch(ctx, &b).Close()
	return load, there, err
}

// admit returns nil if the task may be added, whatever else is on its way. It
// returns errCrowded if that is not known.
func (c creation) admit(a admission, load task.Load) error {
	if err := c.limits.Check(c.row.Task, load); err != nil {
		return err
	}
	load.Total += a.others
	load.Rooms += a.others
	load.Room += a.roommates
	if c.limits.Check(c.row.Task, load) != nil {
		return errCrowded
	}
	return nil
}

// insert adds the task and ends the transaction.
func (c creation) insert(ctx context.Context) error {
	r := c.row
	var b pgx.Batch
	b.Queue(addTask, string(r.ID), r.Owner, string(r.State), r.Pending(), r.Digest[:],
		r.CreatedAt.UnixMicro(), r.DueMicros, r.Version, r.Document, r.Room, r.Owes())
	b.Queue(sqlcore.PutOutline, string(r.ID), r.Version, r.OutlineText)
	if r.Pending() {
		b.Queue(countTask, slot(r.ID))
	}
	if len(r.Remarks) > 0 {
		b.Queue(addNotes, documents(r.Remarks))
	}
	b.Queue("COMMIT")
	bounded, cancel := finishing(ctx)
	defer cancel()
	return c.conn.SendBatch(bounded, &b).Close()
}
