// Package app puts the gateway together from its parts and runs it. It is the
// only package that knows all of them.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
)

// headerTimeout is how long a client may take to send the headers of a request.
const headerTimeout = 10 * time.Second

// flushTimeout is how long the last spans may take to be sent at the end.
const flushTimeout = 3 * time.Second

// An App is a gateway that can be run once.
type App struct {
	cfg       config.Config
	log       *slog.Logger
	metrics   *metrics.Metrics
	tracing   *tracing.Tracing
	upstreams []*mcphttp.Upstream
	gate      *gate.Gate
	keep      keep
	desk      *approval.Desk
	workflows atomic.Pointer[[]config.Workflow]
	handler   *mcphttp.Handler
	identity  *identity.Recogniser
	agents    *listener
	operators *listener
	room      descriptors
	bodies    *admission.Pool
	ready     atomic.Bool
	madeToken string

	reloader      *reloader // nil if the configuration is not read again
	configProblem atomic.Pointer[error]
}

// A listener is a server together with the address it is bound to.
type listener struct {
	net.Listener

	server *http.Server
}

// New builds the gateway that cfg describes and binds its addresses, so that
// from then on clients can connect. [App.Run] serves them.
func New(cfg config.Config, log *slog.Logger) (_ *App, err error) {
	a := &App{cfg: cfg, log: log, metrics: metrics.New(), bodies: newBodies(cfg.Limits)}
	defer func() {
		if err != nil {
			_ = a.Close()
		}
	}()
	a.fit()
	if a.tracing, err = newTracing(cfg.Telemetry.Traces, log); err != nil {
		return nil, err
	}
	routes, err := a.connect()
	if err != nil {
		return nil, err
	}
	if err := a.bind(); err != nil {
		return nil, err
	}
	if err := a.govern(); err != nil {
		return nil, err
	}
	a.handler = mcphttp.NewHandler(a.handlerConfig(routes))
	a.agents.server.Handler = a.identity.Metadata(slices.Collect(maps.Keys(routes)), a.handler)
	a.agents.server.ConnState = a.countConnections
	operators, err := a.operatorRoutes()
	if err != nil {
		return nil, err
	}
	a.operators.server.Handler = bodiesInTime(cfg.Limits.ReadTimeout, a.guard(a.operators).Wrap(operators))
	return a, nil
}

// bind takes the addresses, and settles how those who come there are known.
func (a *App) bind() error {
	secure, err := serverTLS(a.cfg.ListenTLS, a.cfg.Identity.MTLS.CAFile)
	if err != nil {
		return fmt.Errorf("listen for agents: %w", err)
	}
	agents := place{who: "agents", address: a.cfg.Listen, secure: secure, trusted: a.cfg.Identity.Proxy.From, room: admission.Limits{
		Total: int64(a.room.agents), Client: quarter(a.cfg.Limits.MaxConnectionsPerClient, a.room.agents),
	}}
	if a.agents, err = a.listen(agents); err != nil {
		return err
	}
	if secure, err = serverTLS(a.cfg.Operators.TLS, ""); err != nil {
		return fmt.Errorf("listen for operators: %w", err)
	}
	operators := place{who: "operators", address: a.cfg.Operators.Listen, secure: secure, patient: a.cfg.Limits.WriteTimeout, room: admission.Limits{
		Total: int64(a.room.operators), Client: int64(max(1, a.room.operators/2)), // one address is not everybody
	}}
	if a.operators, err = a.listen(operators); err != nil {
		return err
	}
	a.identity, err = newRecogniser(a.cfg.Identity, a.log)
	return err
}

// govern builds what judges and holds calls.
func (a *App) govern() error {
	settings, warnings, err := Settings(a.cfg)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		a.log.Warn("policy", "warning", w.String())
	}
	a.workflows.Store(&a.cfg.Workflows)
	a.gate = gate.New(settings, time.Now, a.log, a.metrics)
	if a.keep, err = a.openStore(); err != nil {
		return err
	}
	a.desk, err = a.newDesk()
	return err
}

// AgentAddr returns the address at which agents are served.
func (a *App) AgentAddr() string { return a.agents.Addr().String() }

// OperatorAddr returns the address at which operators are served.
func (a *App) OperatorAddr() string { return a.operators.Addr().String() }

// Run serves until ctx is done, lets calls under way finish, and returns. It
// returns an error only if serving failed.
func (a *App) Run(ctx context.Context) error {
	after := context.WithoutCancel(ctx) // stopping has time of its own
	defer func() { _ = a.close(after) }()
	serving, ctx := errgroup.WithContext(ctx)
	for _, l := range []*listener{a.agents, a.operators} {
		serving.Go(func() error { return l.serve() })
	}
	// The desk outlives ctx: it is closed in the course of stopping.
	keeping, endKeeping := context.WithCancel(after)
	defer endKeeping()
	serving.Go(func() error { return a.desk.Run(keeping) })
	serving.Go(func() error { a.reclaim(ctx); return nil })
	if a.reloader != nil {
		serving.Go(func() error { a.reloader.run(ctx); return nil })
	}
	a.announce()
	a.ready.Store(true)
	serving.Go(func() error {
		<-ctx.Done()
		a.stop(after)
		endKeeping()
		return nil
	})
	return serving.Wait()
}

func (l *listener) serve() error {
	serve := l.server.Serve
	if l.server.TLSConfig != nil {
		serve = func(l2 net.Listener) error { return l.server.ServeTLS(l2, "", "") }
	}
	if err := serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

func (a *App) announce() {
	a.log.Info("listening", "agents", a.AgentAddr(), "operators", a.OperatorAddr())
	for _, u := range a.cfg.Upstreams {
		a.log.Info("upstream", "name", u.Name, "host", u.URL.Host, "paths", u.Paths)
	}
	if !hasPolicy(a.cfg) {
		a.log.Warn("there are no rules: every call is forwarded")
	}
	if a.gate.Governs() && !a.keep.durable {
		a.log.Warn("held calls are kept in memory: they do not survive a restart")
	}
}

// stop ends serving in the order that loses nothing: first the world is told
// to send no more, then idle streams end, then calls under way finish.
func (a *App) stop(ctx context.Context) {
	a.ready.Store(false)
	a.log.InfoContext(ctx, "stopping", "delay", a.cfg.Shutdown.Delay, "drain", a.cfg.Shutdown.Drain)
	time.Sleep(a.cfg.Shutdown.Delay)
	a.handler.EndStreams()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Shutdown.Drain)
	defer cancel()
	if err := a.desk.Close(ctx); err != nil {
		a.log.WarnContext(ctx, "some held calls could not be ended", "err", err)
	}
	if err := a.agents.server.Shutdown(ctx); err != nil {
		a.log.WarnContext(ctx, "calls were still under way when the time to drain was over", "err", err)
		_ = a.agents.server.Close()
	}
	_ = a.operators.server.Close()
	a.log.InfoContext(ctx, "stopped")
}

// Close releases what New acquired. Run does so itself.
func (a *App) Close() error { return a.close(context.Background()) }

func (a *App) close(ctx context.Context) error {
	for _, l := range []*listener{a.agents, a.operators} {
		if l != nil {
			_ = l.server.Close()
			_ = l.Close()
		}
	}
	for _, u := range a.upstreams {
		u.Close()
	}
	if a.reloader != nil {
		_ = a.reloader.watcher.Close()
	}
	if a.keep.Store != nil {
		_ = a.keep.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return a.tracing.Close(ctx)
}
