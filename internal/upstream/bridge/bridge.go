// Package bridge connects HTTP clients to MCP servers that are child processes. It is the transport
// of an [httpclient.Client]: it takes HTTP requests and answers them with the messages of a
// process.
//
// Each legacy session has a process, and so has each principal without sessions; alternatively, all
// clients share processes. An idle process is ended, and started again when its client returns. The
// package does not know policy or approvals.
package bridge

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
)

// A Config configures a [Bridge].
type Config struct {
	Server    stdioclient.Config // how to run a process; without Stderr, its standard error goes to the log
	Shared    bool               // all clients of an era share one process
	Processes admission.Limits   // limits of processes, if they are not shared
	Unread    admission.Limits   // limits of bytes of large answers that clients have not read yet
	Idle      time.Duration      // how long to keep an unused process
	Sessions  *upstream.Sessions // lets sessions continue after their process has ended
	Log       *slog.Logger
}

// A Bridge reaches one MCP server that is a program. It implements [httpclient.Transport].
type Bridge struct {
	cfg    Config
	slots  *admission.Pool
	unread *admission.Pool // see Config.Unread

	mu         sync.Mutex
	processes  map[string]*process
	retryAfter map[string]time.Time // when a process with this key may start again; see failed
	closed     bool
	running    sync.WaitGroup // all processes
}

// New returns a bridge to the server of cfg. It starts processes on demand.
func New(cfg Config) *Bridge {
	return &Bridge{
		cfg: cfg, slots: admission.NewPool(cfg.Processes), unread: admission.NewPool(cfg.Unread),
		processes: make(map[string]*process), retryAfter: make(map[string]time.Time),
	}
}

// Reach implements [httpclient.Transport].
func (b *Bridge) Reach(context.Context) error {
	_, err := exec.LookPath(b.cfg.Server.Command[0])
	return err
}

// Close ends all processes and their descendants.
func (b *Bridge) Close() {
	b.mu.Lock()
	b.closed = true
	for _, p := range b.processes {
		p.end()
	}
	b.mu.Unlock()
	b.running.Wait()
}

// start returns the process with a key, and starts it if necessary. The caller must release it.
func (b *Bridge) start(ctx context.Context, n processSpec) (*process, error) {
	if p := b.find(n.key); p != nil {
		return p, nil
	}
	if !b.cfg.Shared {
		if err := b.reserveSlot(ctx, n.share); err != nil {
			return nil, err
		}
	}
	p, added, err := b.add(n) // without ctx: the process outlives the request
	if !added && !b.cfg.Shared {
		b.slots.Release(n.share, 1)
	}
	return p, err
}

// find returns the process with a key, or nil. The caller must release it.
func (b *Bridge) find(key string) *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.processes[key]
	if p != nil {
		p.acquire()
	}
	return p
}

// add adds a process, unless there is one with its key. The caller must release it.
func (b *Bridge) add(n processSpec) (_ *process, added bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false, &mcp.Problem{Type: mcp.ShuttingDown}
	}
	if p := b.processes[n.key]; p != nil {
		p.acquire()
		return p, false, nil
	}
	if err := b.checkRetry(n.key); err != nil {
		return nil, false, err
	}
	p := b.newProcess(n)
	b.processes[n.key] = p
	p.acquire()
	b.running.Go(func() { b.watch(p) })
	return p, true, nil
}

// watch ends a process when it is to be ended, or has ended and is not restarted.
func (b *Bridge) watch(p *process) {
	select {
	case <-p.server.Done():
		b.failed(p)
	case <-p.ending:
	}
	b.mu.Lock()
	if b.processes[p.key] == p {
		delete(b.processes, p.key)
	}
	p.idle.Stop()
	b.mu.Unlock()
	p.endStream()
	p.server.Close()
	if !b.cfg.Shared {
		b.slots.Release(p.share, 1)
	}
}

// retryDelay is how long a program that ended too often is not started for the same client.
const retryDelay = 10 * time.Second

// failed notes that a process has ended too often, or before its first answer. Its session ends.
func (b *Bridge) failed(p *process) {
	b.mu.Lock()
	b.retryAfter[p.key] = time.Now().Add(retryDelay)
	b.mu.Unlock()
	if id, ok := strings.CutPrefix(p.key, keySession); ok {
		ctx, stop := context.WithTimeout(context.Background(), retryDelay)
		defer stop()
		b.cfg.Sessions.End(ctx, b.session(p.principal, id))
	}
}

// checkRetry returns a problem if the process with this key has just failed. The caller holds the
// lock.
func (b *Bridge) checkRetry(key string) error {
	now := time.Now()
	maps.DeleteFunc(b.retryAfter, func(_ string, until time.Time) bool { return now.After(until) })
	until, rests := b.retryAfter[key]
	if !rests {
		return nil
	}
	return &mcp.Problem{
		Type: mcp.UpstreamDown, RetryAfter: int(until.Sub(now).Seconds()) + 1, Detail: "the server has ended too often; the call did not run",
	}
}

// endTimeout is how long a client waits for an unused process of another client to end.
const endTimeout = 10 * time.Second

// reserveSlot takes a slot for one process. If none is free, it ends the process that has been
// unused for longest.
func (b *Bridge) reserveSlot(ctx context.Context, c admission.Client) error {
	//mutate:swap "b.slots.TryAcquire(c, 1)" "error(nil)" TestProcessLimits the number of processes of a client is not limited
	full := b.slots.TryAcquire(c, 1)
	if full == nil {
		return nil
	}
	if b.endOldest(func(p *process) bool { return !errors.Is(full, admission.ErrClient) || p.share == c }) {
		full = b.slots.Acquire(ctx, c, 1, endTimeout)
	}
	switch {
	case full == nil:
		return nil
	case errors.Is(full, admission.ErrClient):
		return &mcp.Problem{Type: mcp.ClientLimit, RetryAfter: 5, Detail: "too many sessions at a time (a quarter of max_processes)", Cause: full}
	default:
		return &mcp.Problem{Type: mcp.Overloaded, RetryAfter: 5, Detail: "too many server processes (max_processes)", Cause: full}
	}
}

// endOldest ends the process that has been unused for longest, of those that may be ended. It
// returns false if there is none.
func (b *Bridge) endOldest(may func(*process) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var oldest *process
	for _, p := range b.processes {
		if p.users == 0 && may(p) && (oldest == nil || p.used.Before(oldest.used)) {
			oldest = p
		}
	}
	if oldest == nil {
		return false
	}
	delete(b.processes, oldest.key) // its client gets another process
	oldest.end()
	return true
}

// release notes that a request no longer uses a process.
func (b *Bridge) release(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.used = time.Now()
	if p.users--; p.users == 0 {
		p.idle.Reset(b.cfg.Idle)
	}
}

// endIdle ends a process that has been unused for Config.Idle.
func (b *Bridge) endIdle(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.users > 0 || time.Since(p.used) < b.cfg.Idle {
		return
	}
	if b.processes[p.key] == p {
		delete(b.processes, p.key)
	}
	p.end()
	b.cfg.Log.Debug("ended an unused server process", "upstream", b.cfg.Server.Name)
}

// retire ends a process. Its clients get another one.
func (b *Bridge) retire(p *process) {
	b.mu.Lock()
	if b.processes[p.key] == p {
		delete(b.processes, p.key)
	}
	b.mu.Unlock()
	p.end()
}

// shareOf returns the client whose limits the processes and unread answers of a peer count to.
func shareOf(by httpclient.Peer) admission.Client {
	if by.Principal != "" {
		return admission.Principal(by.Principal)
	}
	return by.Share
}

func (b *Bridge) newProcess(n processSpec) *process {
	cfg := b.cfg.Server
	if cfg.Stderr == nil {
		cfg.Stderr = &errorLog{log: b.cfg.Log, upstream: cfg.Name}
	}
	p := &process{
		processSpec: n, bridge: b, server: stdioclient.New(cfg), ending: make(chan struct{}), stream: stdioclient.NewQueue(nil),
	}
	p.end = sync.OnceFunc(func() { close(p.ending) })
	p.idle = time.AfterFunc(b.cfg.Idle, func() { b.endIdle(p) })
	p.server.StartOnDemand(p, n.initialize)
	return p
}
