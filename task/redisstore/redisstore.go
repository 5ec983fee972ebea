// Package redisstore keeps tasks in Redis 7 or later, or in Valkey, for several replicas.
//
// # Durability
//
// A change is as durable as the server makes it before it answers. Few servers are configured
// for that. [Store.Check] reports the settings that it can read.
//
//   - appendonly yes and appendfsync always are needed: then acknowledged changes survive a
//     crash of the server and of its machine. With everysec, the default, a crash may lose the
//     last second or two: approvals of that time must be repeated, and a call that began then
//     may run a second time.
//   - maxmemory-policy must be noeviction or one of volatile-*: the keys of the store do not
//     expire, and a lost key is a lost task. [Open] refuses other policies.
//   - Replicas of the server follow it with a delay. A failover to one, by Sentinel, by a
//     cluster or by hand, may lose the last changes, with the same consequences.
//     min-replicas-to-write makes it less likely. If that is not acceptable, use PostgreSQL.
//
// # Layout
//
// A task is a hash with its document from [storekit.Encode], and the few fields that scripts
// compare. It is in four sorted sets: the tasks of its state, those of its owner in that state,
// those of its owner with the same call, and the pending or ended tasks sorted by due time. A
// blob is a hash with its chunks. Every change is one script, so that a task and its lists
// change together, and limits are exact.
//
// The journal is a stream. The script of a change adds its notes to a list. A replica chains
// them and moves them to the stream, a moment later or when the journal is read. Each task has
// a list of its entries.
//
// All keys begin with the same prefix in braces. In a cluster, one node has the whole store,
// which fails over with that node. Different prefixes are different stores.
//
// Changes are numbered, and published on one channel. A replica that has missed a message
// finds a gap in the numbers, and notifies all its watchers. A script without an answer may
// have run: a change that returns an error may still have happened.
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/bits"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// Errors of a server that only a person can fix.
var (
	ErrURL        = errors.New("invalid URL")
	ErrSchema     = errors.New("the keys have a format that this program does not know")
	ErrEvicts     = errors.New("the server drops keys when its memory is full")
	ErrNotDurable = errors.New("the server may lose what it has acknowledged")
)

// Options configure a store. URL is required. Other zero fields mean their default.
type Options struct {
	// URL is redis://user:password@host:port/database, or rediss:// for TLS. The parameter addr
	// names another node of a cluster; it may be repeated. With the parameter master_set, the
	// address is that of a Sentinel, and the parameter names its master set.
	URL    string
	TLS    *tls.Config   // for rediss://; the system's authorities
	Prefix string        // of all keys; "thoughtgate"
	Poll   time.Duration // the interval at which to poll for missed changes; 2 s

	// Timeout is the time limit for a connection or an answer; 5 s.
	Timeout time.Duration

	// Connections is the number of connections that all callers share, a power of two up to
	// 256; 4.
	Connections int
}

// A Store is a [gatestore.Store] in Redis.
//
// All commands that only read are pinned. Otherwise the client repeats a command after a lost
// connection and then recycles it, while the writer of the lost connection may still read it.
type Store struct {
	name     string // for messages
	client   rueidis.Client
	timeout  time.Duration
	keys     keyspace
	notifier storekit.Notifier
	feed     changeFeed
	chaining storekit.Worker
	closed   atomic.Bool
	stop     context.CancelFunc
	running  sync.WaitGroup
}

var _ gatestore.Store = (*Store)(nil)

// Open connects to a server and returns the store in it. It returns [ErrSchema] if a newer
// program has written to the store, and [ErrEvicts] if the server may drop tasks. Connections
// that are lost later are made again.
func Open(ctx context.Context, o Options) (*Store, error) {
	settings, err := o.settings()
	if err != nil {
		return nil, fmt.Errorf("open task store: %w: %w", ErrURL, err)
	}
	s, err := open(ctx, o, settings)
	if err != nil {
		return nil, fmt.Errorf("open task store %s: %w", nameOf(settings), err)
	}
	return s, nil
}

// nameOf returns the name of the store in messages.
func nameOf(settings rueidis.ClientOption) string { return strings.Join(settings.InitAddress, ",") }

func open(ctx context.Context, o Options, settings rueidis.ClientOption) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Prefix == "" {
		o.Prefix = "thoughtgate"
	}
	keys, err := newKeyspace(o.Prefix)
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(settings)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{name: nameOf(settings), client: client, timeout: settings.ConnWriteTimeout, keys: keys, stop: stop}
	s.feed.channel = keys.channel(settings.SelectDB)
	if err := s.start(ctx, running, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start checks the server, and returns after the subscription to changes has begun.
func (s *Store) start(ctx, running context.Context, o Options) error {
	if err := s.checkFormat(ctx); err != nil {
		return err
	}
	if err := s.Check(ctx); errors.Is(err, ErrEvicts) {
		return err
	}
	if o.Poll == 0 {
		o.Poll = 2 * time.Second
	}
	subscribed := make(chan error, 1)
	s.running.Go(func() { s.listen(running, subscribed) })
	s.running.Go(func() { s.poll(running, o.Poll) })
	s.chaining.Before, s.chaining.Timeout, s.chaining.Work = chainDelay, s.timeout, s.chainNotes
	s.chaining.Start(running)
	select {
	case err := <-subscribed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settings returns the options of the client.
func (o Options) settings() (rueidis.ClientOption, error) {
	c, err := rueidis.ParseURL(o.URL)
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		err = wrong.Err // the URL may contain a password
	}
	if err != nil {
		return c, err
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if c.TLSConfig != nil && o.TLS != nil {
		name := c.TLSConfig.ServerName
		c.TLSConfig = o.TLS.Clone()
		if c.TLSConfig.ServerName == "" {
			c.TLSConfig.ServerName = name
		}
	}
	const buffer = 64 << 10 // enough for most answers, and an eighth of the default
	c.ReadBufferEachConn, c.WriteBufferEachConn = buffer, buffer
	c.DisableCache = true
	c.ClientName = "thoughtgate"
	c.Dialer.Timeout = o.Timeout
	c.ConnWriteTimeout = o.Timeout
	c.RetryDelay = retryDelay
	c.Sentinel.TopologyRefreshInterval = o.Timeout
	if o.Connections <= 0 {
		o.Connections = 4
	}
	c.PipelineMultiplex = min(bits.Len(uint(o.Connections-1)), rueidis.MaxPipelineMultiplex)
	return c, nil
}

// retryDelay makes the client repeat reads after a lost connection, but only briefly:
// callers must learn that a server is down.
func retryDelay(attempts int, _ rueidis.Completed, _ error) time.Duration {
	const most = 3
	if attempts > most {
		return -1
	}
	return time.Duration(attempts) * 20 * time.Millisecond
}

// Check returns [ErrEvicts] or [ErrNotDurable], or both, if the settings of the server may lose
// tasks. Nil is no guarantee, because Check cannot check the disk and the replicas.
func (s *Store) Check(ctx context.Context) error {
	flush := "" // many servers allow this only to administrators
	text, err := request(ctx, s, "check", func(ctx context.Context) (string, error) {
		const name = "appendfsync"
		settings, err := s.client.Do(ctx, s.client.B().ConfigGet().Parameter(name).Build().Pin()).AsStrMap()
		if err == nil {
			flush = settings[name]
		}
		return s.client.Do(ctx, s.client.B().Info().Section("memory", "persistence").Build().Pin()).ToString()
	})
	if err != nil {
		return err
	}
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	var errs []error
	if policy := info["maxmemory_policy"]; info["maxmemory"] != "0" && strings.HasPrefix(policy, "allkeys-") {
		errs = append(errs, fmt.Errorf("%w: maxmemory-policy is %s", ErrEvicts, policy))
	}
	if info["aof_enabled"] == "0" {
		errs = append(errs, fmt.Errorf("%w: appendonly is no", ErrNotDurable))
	}
	if info["aof_last_write_status"] == "err" {
		errs = append(errs, fmt.Errorf("%w: the last write to its append-only file failed", ErrNotDurable))
	}
	if flush != "" && flush != "always" {
		errs = append(errs, fmt.Errorf("%w: appendfsync is %s", ErrNotDurable, flush))
	}
	return errors.Join(errs...)
}

// Probe returns nil if the store can be written to and read. It writes an
// unchanged value.
func (s *Store) Probe(ctx context.Context) error {
	return s.do(ctx, "probe", func(ctx context.Context) error {
		if err := s.checkCurrent(ctx); err != nil {
			return err
		}
		return s.client.Do(ctx, s.client.B().Incrby().Key(s.keys.changes()).Increment(0).Build().Pin()).Error()
	})
}

// Close implements [gatestore.Store].
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.notifier.Close()
	s.stop()
	s.running.Wait()
	s.chaining.Close()
	s.client.Close()
	return nil
}

// request runs a request with the time limit. The client alone detects slowly that a server
// does not answer.
func request[T any](ctx context.Context, s *Store, a action.Name, run func(context.Context) (T, error)) (found T, err error) {
	if err := ctx.Err(); err != nil {
		return found, err
	}
	if s.closed.Load() {
		return found, &task.Error{Kind: task.ErrClosed, Action: a}
	}
	ctx, done := context.WithTimeoutCause(ctx, s.timeout, errNoAnswer)
	defer done()
	found, err = run(ctx)
	// Errors with an action come from the store, rather than from the server.
	if refusal, ok := errors.AsType[*task.Error](err); err == nil || ok && refusal.Action != "" {
		return found, err
	}
	return found, s.fault(ctx, a, err)
}

// do is request for requests that return only an error.
func (s *Store) do(ctx context.Context, a action.Name, run func(context.Context) error) error {
	_, err := request(ctx, s, a, func(ctx context.Context) (struct{}, error) { return struct{}{}, run(ctx) })
	return err
}

var errNoAnswer = errors.New("no answer in time")

// fault converts an error of the server or the connection for the caller. Ctx is the context of
// the request.
func (s *Store) fault(ctx context.Context, a action.Name, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		<-ctx.Done() // the client may return shortly before the deadline
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errNoAnswer):
		err = fmt.Errorf("%w: %v", errNoAnswer, s.timeout)
	case cause != nil:
		return ctx.Err()
	}
	if s.closed.Load() {
		return &task.Error{Kind: task.ErrClosed, Action: a}
	}
	if known, ok := errors.AsType[*task.Error](err); ok && known.Kind == task.ErrOutdated {
		known.Action, known.Detail = a, s.name
		return known
	}
	reply, ok := rueidis.IsRedisErr(err)
	switch {
	case ok && strings.HasPrefix(reply.Error(), "OOM "):
		return &task.Error{Kind: task.ErrCapacityExceeded, StoreFull: true, Action: a, Detail: "no space left in " + s.name, Err: err}
	case ok && strings.HasPrefix(reply.Error(), outdated):
		return &task.Error{Kind: task.ErrOutdated, Action: a, Detail: s.name, Err: fmt.Errorf("%w: %w", ErrSchema, err)}
	}
	return fmt.Errorf("task store %s: %s: %w", s.name, a, err)
}
