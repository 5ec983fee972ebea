// Package app builds a gate from its parts and runs it:
//
//	a, err := app.New(cfg, log) // binds the addresses
//	err = a.Run(ctx)            // serves until ctx ends, then drains
//
// [NewWrap] builds a gate for one agent at a pipe, and [NewDesk] one that serves only the
// shared inbox.
package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/provenance"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// flushTimeout bounds the writing of the last entries of the record of calls, and the sending of
// the last spans.
const flushTimeout = 3 * time.Second

// An App is a gate that can be run once. Each part uses only the parts before it.
type App struct {
	base *base

	servers   *servers
	approvals *approvals
	channels  *channels
	operators *operators
	agents    *agents

	reloader *reloader // nil if the configuration is not reloaded
	shutdown atomic.Pointer[config.Shutdown]

	introduced bool // by Introduction

	// serve serves agents until the context "until" ends, and then stops. ctx is the context of Run.
	serve func(ctx, until context.Context, serving *errgroup.Group) error
}

// New builds the gate that cfg describes and binds its addresses. Clients can connect from
// then on; [App.Run] serves them.
func New(cfg config.Config, log *slog.Logger) (*App, error) {
	return build(cfg, log, func(a *App) error {
		a.base.divideDescriptors()
		routes, err := a.servers.connect()
		if err != nil {
			return err
		}
		if err := a.bind(); err != nil {
			return err
		}
		if err := a.openApprovals(); err != nil {
			return err
		}
		if err := a.agents.serve(routes); err != nil {
			return err
		}
		return a.operators.configure(cfg)
	})
}

// build returns a gate. The function complete adds its upstreams and listeners.
func build(cfg config.Config, log *slog.Logger, complete func(*App) error) (*App, error) {
	b, err := newBase(cfg, log)
	if err != nil {
		return nil, err
	}
	a := &App{base: b, servers: &servers{base: b, connections: connection.New(connection.Config{})}}
	a.serve = a.serveAgents
	a.approvals = &approvals{base: b, servers: a.servers}
	a.servers.records = func() gatestore.Records { return a.approvals.store.Store }
	a.channels = &channels{base: b, approvals: a.approvals, replaced: make(chan struct{}, 1)}
	a.channels.current.Store(&channelSet{outbox: channel.New(channel.Config{})})
	a.operators = &operators{base: b, approvals: a.approvals, channels: a.channels, servers: a.servers}
	a.channels.page, a.channels.url, a.channels.recall = a.operators.page, a.operators.url, a.operators.recall
	a.agents = &agents{base: b, servers: a.servers, approvals: a.approvals, page: a.operators.page, bodies: b.newBodies(cfg.Limits)}
	a.shutdown.Store(&b.cfg.Shutdown)
	if err := complete(a); err != nil {
		_ = a.Close()
		return nil, err
	}
	return a, nil
}

// bind binds the addresses of agents and operators.
func (a *App) bind() error {
	secure, err := readCertificates(a.base.cfg)
	if err != nil {
		return err
	}
	a.agents.authorities = secure.authorities()
	if err := a.agents.bind(secure.agents); err != nil {
		return err
	}
	return a.operators.bind(secure.operators)
}

// openApprovals opens the policy, the store and the channels.
func (a *App) openApprovals() error {
	if err := a.approvals.open(); err != nil {
		return err
	}
	a.servers.connections.Open(a.approvals.store.Store, a.approvals.store.ring, a.operators.url()+connectionsPage)
	set, err := a.channels.open(a.base.cfg)
	if err != nil {
		return err
	}
	a.channels.current.Store(set)
	var shared gatestore.Records
	if a.approvals.sharedStore { // only then do gates of other agents decide here
		shared = a.approvals.store.Store
	}
	a.operators.agents = provenance.New(shared, a.base.log)
	return nil
}

// AgentAddr returns the agents' address.
func (a *App) AgentAddr() string { return a.agents.listener.Addr().String() }

// OperatorAddr returns the operators' address.
func (a *App) OperatorAddr() string { return a.operators.listener.Addr().String() }

// Run serves until ctx ends, and then lets running calls finish. A wrap also ends when its agent closes the pipe, or
// its server ends. Run returns an error only if serving failed, or the server of a wrap ended by itself.
func (a *App) Run(ctx context.Context) error {
	after := context.WithoutCancel(ctx) // for stopping
	defer func() { _ = a.close(after) }()
	serving, alive := errgroup.WithContext(after)
	until, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(alive, end)()
	a.operators.status.ready.Store(true) // before /readyz is served
	serving.Go(a.operators.listener.Serve)
	// Approvals outlive ctx: stopping closes them.
	keeping, endKeeping := context.WithCancel(after)
	defer endKeeping()
	serving.Go(func() error { return a.runApprovals(keeping) })
	if a.reloader != nil {
		serving.Go(func() error { a.reloader.run(until); return nil })
	}
	failed := a.serve(ctx, until, serving)
	end()
	endKeeping()
	return errors.Join(failed, serving.Wait())
}

// serveAgents serves until the context "until" ends, and then lets running calls finish.
func (a *App) serveAgents(ctx, until context.Context, serving *errgroup.Group) error {
	serving.Go(a.agents.listener.Serve)
	serving.Go(func() error { a.agents.reclaim(until); return nil })
	serving.Go(func() error { a.servers.reachAll(until); return nil })
	a.logStart()
	<-until.Done()
	a.stop(context.WithoutCancel(ctx))
	return nil
}

// runApprovals runs the housekeeping of held calls and the channels until ctx ends.
func (a *App) runApprovals(ctx context.Context) error {
	var channels sync.WaitGroup
	defer channels.Wait()
	channels.Go(func() { a.channels.run(ctx) })
	return a.approvals.service.Run(ctx)
}

// logStart logs the addresses and the upstreams.
func (a *App) logStart() {
	if !a.introduced {
		a.logAddresses()
	}
	if a.approvals.catalog.Governs() && !a.approvals.store.durable {
		a.base.log.Warn("held calls are kept in memory and are lost on restart")
	}
}

func (a *App) logAddresses() {
	a.base.log.Info("listening", "agents", a.AgentAddr(), "operators", a.OperatorAddr())
	for _, u := range a.base.cfg.Upstreams {
		if u.Command != nil {
			a.base.log.Info("upstream", "name", u.Name, "program", u.Command[0], "paths", u.Paths)
			continue
		}
		a.base.log.Info("upstream", "name", u.Name, "host", u.URL.Host, "paths", u.Paths)
	}
	for _, e := range a.base.cfg.Endpoints {
		a.base.log.Info("endpoint", "path", e.Path, "servers", len(e.Servers))
	}
	if !hasPolicy(a.base.cfg) {
		a.base.log.Warn("no rules: every call is forwarded")
	}
}

// stop stops serving without losing calls: first /readyz fails, so that load balancers send
// no more calls, then idle streams end, then running calls finish.
func (a *App) stop(ctx context.Context) {
	a.operators.status.ready.Store(false)
	timeouts := *a.shutdown.Load()
	a.base.log.InfoContext(ctx, "stopping", "delay", timeouts.Delay.String(), "drain", timeouts.Drain.String())
	time.Sleep(timeouts.Delay)
	a.agents.handler.EndStreams()
	ctx, cancel := context.WithTimeout(ctx, timeouts.Drain)
	defer cancel()
	a.closeApprovals(ctx)
	if err := a.agents.listener.Shutdown(ctx); err != nil {
		a.base.log.WarnContext(ctx, "calls were still running when shutdown.drain ended", "err", err)
	}
	a.operators.listener.CloseConnections()
	a.base.log.InfoContext(ctx, "stopped")
}

// closeApprovals stops holding calls. Running calls have until ctx ends. It is safe to repeat.
func (a *App) closeApprovals(ctx context.Context) {
	if err := a.approvals.service.Close(ctx); err != nil {
		a.base.log.WarnContext(ctx, "some held calls could not be ended", "err", err)
	}
}

// Close releases the resources of an App that was not run.
func (a *App) Close() error { return a.close(context.Background()) }

func (a *App) close(ctx context.Context) error {
	for _, l := range []*httpserver.Listener{a.agents.listener, a.operators.listener} {
		if l != nil {
			l.Stop(ctx)
		}
	}
	a.operators.unlockTokenFile()
	a.servers.close()
	if a.reloader != nil {
		_ = a.reloader.watcher.Close()
	}
	defer logging.Close(ctx, a.base.log)
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	a.approvals.record.Close(ctx)
	if store := a.approvals.store.Store; store != nil {
		_ = store.Close()
	}
	return a.base.tracing.Close(ctx)
}
