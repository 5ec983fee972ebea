// Package bridge reaches MCP servers that are child processes in the way of
// Streamable HTTP: it is what a client of HTTP sends its requests through, and
// answers them with what a process says. Each legacy session has a process of its
// own, and so has each client without sessions; or all clients share one. A process
// that nobody uses is ended, and started again when its client comes back.
//
// The package knows neither policy nor approvals.
package bridge

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Config is what a [Bridge] is made of.
type Config struct {
	Server    stdioclient.Config // how one process is run; Stderr is not used
	Shared    bool               // all clients share one process
	Processes admission.Limits   // how many there may be at a time, if they are not shared
	Unread    admission.Limits   // bytes of large answers that clients have not read yet
	Idle      time.Duration      // how long one that nobody uses is kept
	Records   func() task.Records
	Log       *slog.Logger
}

// A Bridge reaches one MCP server that is a program. It implements
// [httpclient.Transport].
type Bridge struct {
	cfg    Config
	room   *admission.Pool
	unread *admission.Pool // see Config.Unread
	kept   atomic.Int64    // how many sessions were kept

	mu        sync.Mutex
	processes map[string]*process
	rests     map[string]time.Time // until when processes with a key are not started; see failed
	closed    bool
	running   sync.WaitGroup // of all processes
}

// New returns a bridge to the server of cfg. No process is started before a client
// comes.
func New(cfg Config) *Bridge {
	return &Bridge{
		cfg: cfg, room: admission.NewPool(cfg.Processes), unread: admission.NewPool(cfg.Unread),
		processes: make(map[string]*process), rests: make(map[string]time.Time),
	}
}

// Reach implements [httpclient.Transport].
func (b *Bridge) Reach(context.Context) error {
	_, err := exec.LookPath(b.cfg.Server.Command[0])
	return err
}

// Close ends all processes and returns when nothing is left of them.
func (b *Bridge) Close() {
	b.mu.Lock()
	b.closed = true
	for _, p := range b.processes {
		p.end()
	}
	b.mu.Unlock()
	b.running.Wait()
}

// start returns the process with a key, and starts one if there is none. The caller
// must leave it.
func (b *Bridge) start(ctx context.Context, n newProcess) (*process, error) {
	if p := b.find(n.key); p != nil {
		return p, nil
	}
	if !b.cfg.Shared {
		if err := b.makeRoom(ctx, n.room); err != nil {
			return nil, err
		}
	}
	p, added, err := b.add(n) //nolint:contextcheck // a process outlives the request that starts it
	if !added && !b.cfg.Shared {
		b.room.Release(n.room, 1)
	}
	return p, err
}

// find returns the process with a key, or nil. The caller must leave it.
func (b *Bridge) find(key string) *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.processes[key]
	if p != nil {
		p.enter()
	}
	return p
}

// add takes a new process in, unless there is one with its key or the bridge is
// closed. The caller must leave what it returns.
func (b *Bridge) add(n newProcess) (_ *process, added bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false, &wire.Problem{Type: wire.ShuttingDown}
	}
	if p := b.processes[n.key]; p != nil {
		p.enter()
		return p, false, nil
	}
	if err := b.rested(n.key); err != nil {
		return nil, false, err
	}
	p := b.newProcess(n)
	b.processes[n.key] = p
	p.enter()
	b.running.Go(func() { b.watch(p) })
	return p, true, nil
}

// watch waits until a process is to be ended, or has ended for good, and ends it.
func (b *Bridge) watch(p *process) {
	select {
	case <-p.server.Over():
		b.failed(p)
	case <-p.ending:
	}
	b.mu.Lock()
	if b.processes[p.key] == p {
		delete(b.processes, p.key)
	}
	p.idle.Stop()
	b.mu.Unlock()
	p.unasked.close()
	p.server.Close()
	if !b.cfg.Shared {
		b.room.Release(p.room, 1)
	}
}

// restTime is how long a program whose process ended too often is not started again
// for the same clients.
const restTime = 10 * time.Second

// failed notes that a process has ended by itself too often, or before it said
// anything. Its session is over.
func (b *Bridge) failed(p *process) {
	b.mu.Lock()
	b.rests[p.key] = time.Now().Add(restTime)
	b.mu.Unlock()
	if id, ok := strings.CutPrefix(p.key, keySession); ok {
		ctx, stop := context.WithTimeout(context.Background(), restTime)
		defer stop()
		b.forget(ctx, p.principal, id)
	}
}

// rested returns the problem of a process that has just failed. The caller holds the
// lock.
func (b *Bridge) rested(key string) error {
	now := time.Now()
	maps.DeleteFunc(b.rests, func(_ string, until time.Time) bool { return now.After(until) })
	until, rests := b.rests[key]
	if !rests {
		return nil
	}
	return &wire.Problem{
		Type: wire.UpstreamDown, RetryAfter: int(until.Sub(now).Seconds()) + 1, Detail: "the server has ended too often; the call did not run",
	}
}

// endPatience is how long a client waits for the process of another one to end,
// which nobody uses.
const endPatience = 10 * time.Second

// makeRoom takes the place of one process. If there is none left, the process that
// has not been used for longest gives way.
func (b *Bridge) makeRoom(ctx context.Context, c admission.Client) error {
	full := b.room.Try(c, 1)
	if full == nil {
		return nil
	}
	if b.endOldest(func(p *process) bool { return !errors.Is(full, admission.ErrClient) || p.room == c }) {
		full = b.room.Wait(ctx, c, 1, endPatience)
	}
	switch {
	case full == nil:
		return nil
	case errors.Is(full, admission.ErrClient):
		return &wire.Problem{Type: wire.ClientLimit, RetryAfter: 5, Detail: "too many sessions at a time (max_processes_per_client)", Cause: full}
	default:
		return &wire.Problem{Type: wire.Overloaded, RetryAfter: 5, Detail: "too many server processes (max_processes)", Cause: full}
	}
}

// endOldest ends the process that nobody has used for the longest time, of those
// that may give way, and reports whether there is one.
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
	delete(b.processes, oldest.key) // its client gets another one
	oldest.end()
	return true
}

// leave notes that a process is used by one less.
func (b *Bridge) leave(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.used = time.Now()
	if p.users--; p.users == 0 {
		p.idle.Reset(b.cfg.Idle)
	}
}

// endIdle ends a process that nobody uses.
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
	b.cfg.Log.Debug("ended a server process that nobody used", "upstream", b.cfg.Server.Name)
}

// roomOf returns whose share the processes and the unread answers of a client count to.
func roomOf(by httpclient.Peer) admission.Client {
	if by.Principal != "" {
		return admission.Principal(by.Principal)
	}
	return by.Room
}

func (b *Bridge) newProcess(n newProcess) *process {
	cfg := b.cfg.Server
	cfg.Stderr = &errorLog{log: b.cfg.Log, upstream: cfg.Name}
	p := &process{
		newProcess: n, bridge: b, server: stdioclient.New(cfg), ending: make(chan struct{}), unasked: newMailbox(),
	}
	p.end = sync.OnceFunc(func() { close(p.ending) })
	p.idle = time.AfterFunc(b.cfg.Idle, func() { b.endIdle(p) })
	p.server.StartLater(p, n.initialize)
	return p
}
