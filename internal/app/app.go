// Package app puts the gateway together from its parts and runs it. It is the
// only package that knows all of them.
package app

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/listener"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// flushTimeout is how long the last spans may take to be sent at the end.
const flushTimeout = 3 * time.Second

// An App is a gateway that can be run once. Each of its parts uses only the ones before
// it.
type App struct {
	*base

	servers   *servers
	approvals *approvals
	channels  *channels
	operators *operators
	agents    *agents

	reloader *reloader // nil if the configuration is not read again
	shutdown atomic.Pointer[config.Shutdown]
}

// New builds the gateway that cfg describes and binds its addresses, so that
// from then on clients can connect. [App.Run] serves them.
func New(cfg config.Config, log *slog.Logger) (_ *App, err error) {
	a, err := newApp(cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = a.Close()
		}
	}()
	a.fit()
	routes, err := a.servers.connect()
	if err != nil {
		return nil, err
	}
	if err := a.bind(); err != nil {
		return nil, err
	}
	if err := a.govern(); err != nil {
		return nil, err
	}
	if err := a.agents.serve(routes); err != nil {
		return nil, err
	}
	if err := a.operators.configure(cfg); err != nil {
		return nil, err
	}
	return a, nil
}

// newApp returns a gate without anybody at either side.
func newApp(cfg config.Config, log *slog.Logger) (*App, error) {
	b, err := newBase(cfg, log)
	if err != nil {
		return nil, err
	}
	a := &App{base: b, servers: &servers{base: b}}
	a.approvals = &approvals{base: b, servers: a.servers}
	a.servers.records = func() task.Records { return a.approvals.keep.GateStore }
	a.channels = &channels{base: b, approvals: a.approvals, replaced: make(chan struct{}, 1)}
	a.operators = &operators{base: b, approvals: a.approvals, channels: a.channels}
	a.channels.page, a.channels.recall = a.operators.page, a.operators.recall
	a.agents = &agents{base: b, approvals: a.approvals, page: a.operators.page, bodies: b.newBodies(cfg.Limits)}
	a.shutdown.Store(&b.cfg.Shutdown)
	return a, nil
}

// bind takes the addresses.
func (a *App) bind() error {
	secure, err := readCertificates(a.cfg)
	if err != nil {
		return err
	}
	a.agents.authorities = secure.authorities()
	if err := a.agents.bind(secure.agents); err != nil {
		return err
	}
	return a.operators.bind(secure.operators)
}

// govern builds what judges and holds calls, and what asks people about them.
func (a *App) govern() error {
	if err := a.approvals.open(); err != nil {
		return err
	}
	by, err := a.channels.newAsker(a.cfg)
	if err != nil {
		return err
	}
	a.channels.use(by)
	return nil
}

// AgentAddr returns the address at which agents are served.
func (a *App) AgentAddr() string { return a.agents.listener.Addr().String() }

// OperatorAddr returns the address at which operators are served.
func (a *App) OperatorAddr() string { return a.operators.listener.Addr().String() }

// Run serves until ctx is done, lets calls under way finish, and returns. It
// returns an error only if serving failed.
func (a *App) Run(ctx context.Context) error {
	after := context.WithoutCancel(ctx) // stopping has time of its own
	defer func() { _ = a.close(after) }()
	serving, ctx := errgroup.WithContext(ctx)
	a.operators.status.ready.Store(true) // before anybody can ask
	serving.Go(a.agents.listener.Serve)
	serving.Go(a.operators.listener.Serve)
	// The desk outlives ctx: it is closed in the course of stopping.
	keeping, endKeeping := context.WithCancel(after)
	defer endKeeping()
	serving.Go(func() error { return a.runDesk(keeping) })
	serving.Go(func() error { a.agents.reclaim(ctx); return nil })
	serving.Go(func() error { a.servers.reachAll(ctx); return nil })
	if a.reloader != nil {
		serving.Go(func() error { a.reloader.run(ctx); return nil })
	}
	a.announce()
	serving.Go(func() error {
		<-ctx.Done()
		a.stop(after)
		endKeeping()
		return nil
	})
	return serving.Wait()
}

// runDesk does the housekeeping of held calls, and asks people, until ctx ends.
func (a *App) runDesk(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() { a.channels.run(ctx) })
	return a.approvals.desk.Run(ctx)
}

func (a *App) announce() {
	a.log.Info("listening", "agents", a.AgentAddr(), "operators", a.OperatorAddr())
	for _, u := range a.cfg.Upstreams {
		if u.Command != nil {
			a.log.Info("upstream", "name", u.Name, "program", u.Command[0], "paths", u.Paths)
			continue
		}
		a.log.Info("upstream", "name", u.Name, "host", u.URL.Host, "paths", u.Paths)
	}
	if !hasPolicy(a.cfg) {
		a.log.Warn("no rules: every call is forwarded")
	}
	if a.approvals.gate.Governs() && !a.approvals.keep.durable {
		a.log.Warn("held calls are kept in memory and are lost on restart")
	}
}

// stop ends serving in the order that loses nothing: first /readyz says that no more
// calls should be sent here, then idle streams end, then calls under way finish.
func (a *App) stop(ctx context.Context) {
	a.operators.status.ready.Store(false)
	how := *a.shutdown.Load()
	a.log.InfoContext(ctx, "stopping", "delay", how.Delay, "drain", how.Drain)
	time.Sleep(how.Delay)
	a.agents.handler.EndStreams()
	ctx, cancel := context.WithTimeout(ctx, how.Drain)
	defer cancel()
	if err := a.approvals.desk.Close(ctx); err != nil {
		a.log.WarnContext(ctx, "some held calls could not be ended", "err", err)
	}
	if err := a.agents.listener.Shutdown(ctx); err != nil {
		a.log.WarnContext(ctx, "calls were still running when shutdown.drain ended", "err", err)
	}
	a.operators.listener.Cut()
	a.log.InfoContext(ctx, "stopped")
}

// Close releases what New acquired. Run does so itself.
func (a *App) Close() error { return a.close(context.Background()) }

func (a *App) close(ctx context.Context) error {
	for _, l := range []*listener.Listener{a.agents.listener, a.operators.listener} {
		if l != nil {
			l.End(ctx)
		}
	}
	a.operators.leaveTokenFile()
	a.servers.close()
	if a.reloader != nil {
		_ = a.reloader.watcher.Close()
	}
	if store := a.approvals.keep.GateStore; store != nil {
		_ = store.Close()
	}
	defer logging.Close(ctx, a.log)
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return a.tracing.Close(ctx)
}
