package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/internal/sqlcore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

const (
	messageBytes = 7900                   // a notification must be shorter than 8000 bytes
	heartbeat    = 10 * time.Second       // how long to listen before a ping
	spacing      = 25 * time.Millisecond  // the pause after a notification, in which changes are collected
	retryFirst   = 100 * time.Millisecond // the first pause before connecting again; it doubles each time
	retryMost    = 5 * time.Second
)

// A relay notifies other replicas of changes, and local watchers of the changes of other
// replicas. It sends notifications after the commit and in groups, because a notification
// inside a transaction would make all writers wait for each other.
type relay struct {
	notifier storekit.Notifier
	pool     *pgxpool.Pool
	config   *pgx.ConnConfig
	channel  string // unique for each schema
	origin   string // identifies messages of this replica
	stop     context.CancelFunc
	running  sync.WaitGroup
	sending  storekit.Worker // empties the outbox

	mu     sync.Mutex
	outbox []sqlcore.ChangedTask
}

// A message is the payload of a notification.
type message struct {
	From  string      `json:"from"`
	Tasks [][2]string `json:"tasks"` // ID and owner
}

func newRelay(ctx context.Context, pool *pgxpool.Pool, config *pgx.ConnConfig) (*relay, error) {
	r := &relay{pool: pool, config: config, origin: rand.Text()}
	var schemaName string
	if err := pool.QueryRow(ctx, "SELECT current_schema()").Scan(&schemaName); err != nil {
		return nil, err
	}
	r.channel = "thoughtgate " + schemaName
	conn, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.running.Go(func() { r.listen(ctx, conn) })
	r.sending.After, r.sending.Timeout, r.sending.Work = spacing, sqlcore.OutcomeTimeout, r.send
	r.sending.Start(ctx)
	return r, nil
}

// close sends the outbox, and ends every watch.
func (r *relay) close() {
	r.stop()
	r.notifier.Close()
	r.running.Wait()
	r.sending.Close()
}

// notify notifies local watchers and other replicas of committed changes.
func (r *relay) notify(changed ...sqlcore.ChangedTask) {
	for _, t := range changed {
		r.notifier.Notify(t.ID, t.Owner)
	}
	r.mu.Lock()
	r.outbox = append(r.outbox, changed...)
	r.mu.Unlock()
	r.sending.Schedule()
}

// send sends the outbox to other replicas. Changes that cannot be sent are dropped, because
// watchers poll too.
func (r *relay) send(ctx context.Context) error {
	r.mu.Lock()
	changed := r.outbox
	r.outbox = nil
	r.mu.Unlock()
	for _, text := range pack(r.origin, changed) {
		if _, err := r.pool.Exec(ctx, "SELECT pg_notify($1, $2)", r.channel, text); err != nil {
			return err
		}
	}
	return nil
}

// pack puts changes into as few messages as possible.
func pack(origin string, changed []sqlcore.ChangedTask) []string {
	m := message{From: origin}
	for _, t := range changed {
		m.Tasks = append(m.Tasks, [2]string{string(t.ID), t.Owner})
	}
	if len(m.Tasks) == 0 {
		return nil
	}
	text, err := json.Marshal(&m)
	switch {
	case err == nil && len(text) < messageBytes:
		return []string{string(text)}
	case len(changed) > 1:
		half := len(changed) / 2
		return slices.Concat(pack(origin, changed[:half]), pack(origin, changed[half:]))
	default:
		return nil // too long to send: watchers poll
	}
}

func (r *relay) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, r.config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{r.channel}.Sanitize()); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// listen receives notifications of other replicas, until ctx ends. It connects again when
// the connection is lost.
func (r *relay) listen(ctx context.Context, conn *pgx.Conn) {
	wait := retryFirst
	for ctx.Err() == nil {
		if conn != nil {
			wait = retryFirst
			r.receive(ctx, conn)
		}
		pause.For(ctx, wait)
		wait = min(2*wait, retryMost)
		var err error
		if conn, err = r.connect(ctx); err == nil {
			r.notifier.NotifyAll() // missed notifications are unknown
		}
	}
	if conn != nil {
		closeConn(ctx, conn)
	}
}

// receive forwards notifications, until the connection is lost or ctx ends.
func (r *relay) receive(ctx context.Context, conn *pgx.Conn) {
	defer closeConn(ctx, conn)
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, heartbeat)
		n, err := conn.WaitForNotification(bounded)
		cancel()
		switch {
		case err == nil:
			r.forward(n.Payload)
		case !errors.Is(err, context.DeadlineExceeded) || !alive(ctx, conn):
			return
		}
	}
}

func (r *relay) forward(text string) {
	var m message
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.From == r.origin {
		return
	}
	for _, t := range m.Tasks {
		r.notifier.Notify(task.ID(t[0]), t[1])
	}
}

func alive(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, sqlcore.OutcomeTimeout)
	defer cancel()
	return conn.Ping(ctx) == nil
}

func closeConn(ctx context.Context, conn *pgx.Conn) {
	bounded, cancel := finishing(ctx)
	defer cancel()
	_ = conn.Close(bounded)
}
