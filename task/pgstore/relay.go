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
)

const (
	messageBytes = 7900                   // a notification must be shorter than 8000 bytes
	heartbeat    = 10 * time.Second       // how long to listen before asking whether the server is still there
	retryFirst   = 100 * time.Millisecond // how long to wait before connecting again, doubled each time
	retryMost    = 5 * time.Second
)

// A relay tells other replicas of changes, and watchers here of changes by
// other replicas. Telling is done after the fact and in groups, since a
// notification inside a transaction makes all writers wait for each other.
type relay struct {
	hub     task.Hub
	pool    *pgxpool.Pool
	config  *pgx.ConnConfig
	channel string // one for each schema
	origin  string // of messages from here
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	outbox  []sqlcore.Touched
	waiting chan struct{} // holds a token while outbox is not empty
}

// A message is what replicas tell each other.
type message struct {
	From  string      `json:"from"`
	Tasks [][2]string `json:"tasks"` // ID and owner
}

func newRelay(ctx context.Context, pool *pgxpool.Pool, config *pgx.ConnConfig) (*relay, error) {
	r := &relay{
		pool: pool, config: config, origin: rand.Text(),
		waiting: make(chan struct{}, 1),
	}
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
	r.running.Go(func() { r.send(ctx) })
	return r, nil
}

// close sends what is waiting, ends every watch and waits for that.
func (r *relay) close() {
	r.stop()
	r.hub.Close()
	r.running.Wait()
}

// notify lets other replicas, and watchers here, know of committed changes.
func (r *relay) notify(changed ...sqlcore.Touched) {
	for _, t := range changed {
		r.hub.Notify(t.ID, t.Owner)
	}
	r.mu.Lock()
	r.outbox = append(r.outbox, changed...)
	r.mu.Unlock()
	select {
	case r.waiting <- struct{}{}:
	default:
	}
}

// send tells other replicas, until ctx ends and the outbox is empty.
func (r *relay) send(ctx context.Context) {
	for {
		select {
		case <-r.waiting:
		case <-ctx.Done():
			r.empty(ctx)
			return
		}
		r.empty(ctx)
	}
}

// empty sends what is in the outbox. What cannot be sent is given up: whoever
// waits looks now and then.
func (r *relay) empty(ctx context.Context) {
	r.mu.Lock()
	changed := r.outbox
	r.outbox = nil
	r.mu.Unlock()
	bounded, cancel := finishing(ctx)
	defer cancel()
	for _, text := range pack(r.origin, changed) {
		if _, err := r.pool.Exec(bounded, "SELECT pg_notify($1, $2)", r.channel, text); err != nil {
			return
		}
	}
}

// pack puts changes into as few messages as possible.
func pack(origin string, changed []sqlcore.Touched) []string {
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
		return nil // an owner with such a name has to look
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

// listen hears what other replicas tell, until ctx ends. It connects again
// when the connection is lost.
func (r *relay) listen(ctx context.Context, conn *pgx.Conn) {
	wait := retryFirst
	for ctx.Err() == nil {
		if conn != nil {
			wait = retryFirst
			r.hear(ctx, conn)
		}
		pause.For(ctx, wait)
		wait = min(2*wait, retryMost)
		var err error
		if conn, err = r.connect(ctx); err == nil {
			r.hub.NotifyAll() // nobody knows what it was not told
		}
	}
	if conn != nil {
		hangUp(ctx, conn)
	}
}

// hear passes on what is told, until the connection is lost or ctx ends.
func (r *relay) hear(ctx context.Context, conn *pgx.Conn) {
	defer hangUp(ctx, conn)
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, heartbeat)
		n, err := conn.WaitForNotification(bounded)
		cancel()
		switch {
		case err == nil:
			r.pass(n.Payload)
		case !errors.Is(err, context.DeadlineExceeded) || !alive(ctx, conn):
			return
		}
	}
}

func (r *relay) pass(text string) {
	var m message
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.From == r.origin {
		return
	}
	for _, t := range m.Tasks {
		r.hub.Notify(task.ID(t[0]), t[1])
	}
}

func alive(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, sqlcore.Patience)
	defer cancel()
	return conn.Ping(ctx) == nil
}

func hangUp(ctx context.Context, conn *pgx.Conn) {
	bounded, cancel := finishing(ctx)
	defer cancel()
	_ = conn.Close(bounded)
}
