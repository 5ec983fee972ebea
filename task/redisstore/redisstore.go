// Package redisstore keeps tasks in Redis 7 or later, or in Valkey, for several
// replicas.
//
// # Durability
//
// A change is as durable as the server makes it before it answers, and servers
// are seldom set up for that. [Store.Check] tells what it can find out.
//
//   - appendonly yes and appendfsync always are needed: then what was
//     acknowledged survives a crash of the server and of its machine. With
//     everysec, the default, a crash may lose the last second or two: what was
//     approved in it is asked for again, and a call that began in it may be
//     found approved and be run a second time.
//   - maxmemory-policy must be noeviction or one of volatile-*: no key here
//     expires, and losing one is losing a task. [Open] refuses other policies.
//   - Replicas of the server follow it with a delay. A failover to one, by
//     Sentinel, by a cluster or by hand, may lose the last changes, with the
//     same consequences; min-replicas-to-write makes it less likely. If that
//     is not acceptable, use PostgreSQL.
//
// # Layout
//
// A task is a hash with its document, as [task.Encode] makes it, and the few
// fields that scripts compare. It is in four sorted sets: the tasks of its
// state, those of its owner in that state, those of its owner with the same
// call, and those pending or ended by when they are due. A blob is a hash with
// its chunks. Every change is one script, so that a task and its places change
// together, and limits are exact.
//
// The journal is a stream. The script that makes a change puts what is told of
// it into a list, from which it is moved to the stream and chained a moment
// later, or when somebody reads. The entries about one task are listed as well.
//
// All keys begin with the same prefix in braces. In a cluster the whole store
// is on the one node that has their slot: it fails over with that node, and is
// not spread. Different prefixes are different stores.
//
// Changes are numbered, and published on one channel. A replica that missed one,
// because the connection was down or for any other reason, finds a gap in the
// numbers, and wakes all of its watchers. A script that was sent and not answered may have been
// run: a change that returns an error may still have happened.
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// The reasons for which a server should not be used until somebody sees to it.
var (
	ErrURL        = errors.New("invalid URL")
	ErrSchema     = errors.New("the keys have a format that this program does not know")
	ErrEvicts     = errors.New("the server drops keys when its memory is full")
	ErrNotDurable = errors.New("the server may lose what it has acknowledged")
)

// Options say where tasks are kept. Zero fields but URL mean their default.
type Options struct {
	// URL is redis://user:password@host:port/database, or rediss:// for TLS.
	// More nodes of a cluster are named by the parameter addr, once for each;
	// the master set of a Sentinel, whose address this then is, by master_set.
	URL    string
	TLS    *tls.Config   // for rediss://; the system's authorities
	Prefix string        // of all keys; "thoughtgate"
	Poll   time.Duration // how often to look for changes that were not told of; 2 s

	// Timeout is how long to wait for a connection or an answer; 5 s.
	Timeout time.Duration

	// Connections is how many connections to share among all callers, a power
	// of two up to 256; 4.
	Connections int
}

// A Store is a [task.GateStore] in Redis.
//
// Every command that only reads is pinned. The client sends such a command again
// when a connection is lost, and recycles it once that has succeeded, although the
// writer of the lost connection may still be reading it.
type Store struct {
	name    string // for messages
	client  rueidis.Client
	timeout time.Duration
	keys    keyspace
	scripts scripts
	hub     task.Hub
	news    news
	noted   chan struct{} // holds a token when there may be notes to chain
	closed  atomic.Bool
	stop    context.CancelFunc
	running sync.WaitGroup
}

var _ task.GateStore = (*Store)(nil)

// Open connects to a server and returns the store in it. It returns
// [ErrSchema] if a newer program has written there, and [ErrEvicts] if the
// server would drop tasks. Once it has succeeded, connections that are lost
// are made again.
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

// nameOf returns what to call the store in messages.
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
	s := &Store{name: nameOf(settings), client: client, timeout: settings.ConnWriteTimeout, keys: keys, scripts: loadScripts(), stop: stop, noted: make(chan struct{}, 1)}
	s.news.channel = keys.channel(settings.SelectDB)
	if err := s.start(ctx, running, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start checks what it finds, and returns once changes are heard of.
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
	s.running.Go(func() { s.chainNotes(running) })
	select {
	case err := <-subscribed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settings returns what the client needs to know.
func (o Options) settings() (rueidis.ClientOption, error) {
	c, err := rueidis.ParseURL(o.URL)
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		err = wrong.Err // the URL may hold a password
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
	const buffer = 64 << 10 // enough for most answers, and eight times less than the default
	c.ReadBufferEachConn, c.WriteBufferEachConn = buffer, buffer
	c.DisableCache = true
	c.ClientName = "thoughtgate"
	c.Dialer.Timeout = o.Timeout
	c.ConnWriteTimeout = o.Timeout
	c.RetryDelay = retryDelay
	c.Sentinel.TopologyRefreshInterval = o.Timeout
	c.PipelineMultiplex = exponent(o.Connections)
	return c, nil
}

// retryDelay has reads tried again when a connection breaks, but not for long:
// who asks must hear of a server that is down.
func retryDelay(attempts int, _ rueidis.Completed, _ error) time.Duration {
	const most = 3
	if attempts > most {
		return -1
	}
	return time.Duration(attempts) * 20 * time.Millisecond
}

// exponent returns the power of two that is at least n, or that of the default
// if there is no n.
func exponent(n int) int {
	if n <= 0 {
		n = 4
	}
	e := 0
	for e < rueidis.MaxPipelineMultiplex && 1<<e < n {
		e++
	}
	return e
}

// Check returns [ErrEvicts] or [ErrNotDurable], or both, if the server says
// that it may lose tasks. That it does not say so proves nothing: only its
// operator knows about its disk and its replicas.
func (s *Store) Check(ctx context.Context) error {
	ctx, done, err := s.begin(ctx, "check")
	if err != nil {
		return err
	}
	defer done()
	text, err := s.client.Do(ctx, s.client.B().Info().Section("memory", "persistence").Build().Pin()).ToString()
	if err != nil {
		return s.fault(ctx, "check", err)
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
	if flush := s.flushPolicy(ctx); flush != "" && flush != "always" {
		errs = append(errs, fmt.Errorf("%w: appendfsync is %s", ErrNotDurable, flush))
	}
	return errors.Join(errs...)
}

// Probe returns nil if the store can be written to and read. It writes a value that
// is there already.
func (s *Store) Probe(ctx context.Context) error {
	const action task.Action = "probe"
	ctx, done, err := s.begin(ctx, action)
	if err != nil {
		return err
	}
	defer done()
	if err := s.current(ctx); err != nil {
		return s.fault(ctx, action, err)
	}
	return s.fault(ctx, action, s.client.Do(ctx, s.client.B().Incrby().Key(s.keys.changes()).Increment(0).Build().Pin()).Error())
}

// flushPolicy returns when the server flushes its append-only file, or nothing
// if it does not tell: many tell only an administrator.
func (s *Store) flushPolicy(ctx context.Context) string {
	const name = "appendfsync"
	settings, err := s.client.Do(ctx, s.client.B().ConfigGet().Parameter(name).Build().Pin()).AsStrMap()
	if err != nil {
		return ""
	}
	return settings[name]
}

// Close implements [task.GateStore].
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.hub.Close()
	s.stop()
	s.running.Wait()
	s.client.Close()
	return nil
}

// begin begins what has to be finished in time. Left alone, the client takes
// long to notice that a server does not answer.
func (s *Store) begin(ctx context.Context, a task.Action) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if s.closed.Load() {
		return nil, nil, &task.Error{Kind: task.KindClosed, Action: a}
	}
	ctx, done := context.WithTimeoutCause(ctx, s.timeout, errNoAnswer)
	return ctx, done, nil
}

var errNoAnswer = errors.New("no answer in time")

// fault returns what to tell of an error of the server or the way to it. Its
// context is one from begin.
func (s *Store) fault(ctx context.Context, a task.Action, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		<-ctx.Done() // the client can be a moment ahead of it
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errNoAnswer):
		err = fmt.Errorf("%w: %v", errNoAnswer, s.timeout)
	case cause != nil:
		return ctx.Err()
	}
	if s.closed.Load() {
		return &task.Error{Kind: task.KindClosed, Action: a}
	}
	if known, ok := errors.AsType[*task.Error](err); ok && known.Kind == task.KindOutdated {
		known.Action, known.Detail = a, s.name
		return known
	}
	reply, ok := rueidis.IsRedisErr(err)
	switch {
	case ok && strings.HasPrefix(reply.Error(), "OOM "):
		return &task.Error{Kind: task.KindCapacityExceeded, Action: a, Detail: "no room in " + s.name, Err: err}
	case ok && strings.HasPrefix(reply.Error(), outdated):
		return &task.Error{Kind: task.KindOutdated, Action: a, Detail: s.name, Err: fmt.Errorf("%w: %w", ErrSchema, err)}
	}
	return fmt.Errorf("task store %s: %s: %w", s.name, a, err)
}
