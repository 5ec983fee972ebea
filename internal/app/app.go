// Package app puts the gateway together from its parts and runs it. It is the
// only package that knows all of them.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/bridge"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
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
	upstreams []*httpclient.Client
	bridges   []*bridge.Bridge     // to those of them that are programs
	asks      []*upstream.Upstream // all servers, as the gate itself asks them
	gate      *gate.Gate
	keep      keep
	desk      *approval.Desk
	outbox    atomic.Pointer[channel.Outbox] // nil if there are no channels
	asking    chan struct{}                  // tells that there is another outbox
	local     *localdesk.Desk                // that the gates of a user share; nil if this gate has its own
	mixed     bool                           // gates with other upstreams may use the store too
	owner     string                         // of all tasks that this gate holds in a mixed store; empty if there may be several
	workflows atomic.Pointer[[]config.Workflow]
	hub       *conversation.Hub
	handler   *mcphttp.Handler
	paths     []string  // of the upstreams
	agents    *listener // nil if the one agent is at the other end of a pipe
	operators *listener
	room      descriptors
	bodies    *admission.Pool
	ready     atomic.Bool
	identity  *identity.Recogniser
	auth      atomic.Pointer[operator.Auth]
	pusher    atomic.Pointer[push.Push] // nil if no channel is one
	madeToken string

	reloader      *reloader // nil if the configuration is not read again
	configProblem atomic.Pointer[error]
	restart       atomic.Pointer[[]string] // the changed settings that wait for a restart; nil if none was ever changed
	shutdown      atomic.Pointer[config.Shutdown]
}

// A listener is a server together with the address it is bound to.
type listener struct {
	net.Listener

	server  *http.Server
	handler *liveHandler // the server's
	secure  atomic.Pointer[tls.Config]
}

// A liveHandler is a handler that can be replaced while requests are served, and that
// knows when none is served any more.
type liveHandler struct {
	current atomic.Pointer[http.Handler]

	mu      sync.Mutex
	serving int
	idle    chan struct{} // closed when serving becomes 0; nil if nobody waits for that
}

func (l *liveHandler) set(h http.Handler) { l.current.Store(&h) }

// ServeHTTP implements [http.Handler].
func (l *liveHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.serving++
	l.mu.Unlock()
	defer l.served()
	(*l.current.Load()).ServeHTTP(w, r)
}

func (l *liveHandler) served() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serving--; l.serving == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// wait waits until no request is served, or ctx ends.
func (l *liveHandler) wait(ctx context.Context) {
	l.mu.Lock()
	if l.serving == 0 {
		l.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// A certificates holds how both listeners show who they are. A listener without
// TLS has none.
type certificates struct{ agents, operators *tls.Config }

// certificates reads the certificates that cfg names.
func (a *App) certificates(cfg config.Config) (c certificates, err error) {
	if c.agents, err = serverTLS(cfg.ListenTLS, cfg.Identity.MTLS.CAFile); err != nil {
		return c, fmt.Errorf("listen for agents: %w", err)
	}
	if c.operators, err = serverTLS(cfg.Operators.TLS, ""); err != nil {
		return c, fmt.Errorf("listen for operators: %w", err)
	}
	return c, nil
}

// endTimeout is how long requests have to end when their connections are closed.
const endTimeout = 2 * time.Second

// end closes all connections, and waits for the requests on them: they use the store.
func (l *listener) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_ = l.server.Close()
	_ = l.Close()
	l.handler.wait(ctx)
}

// show makes a listener that has TLS use another certificate for connections from
// now on.
func (l *listener) show(secure *tls.Config) {
	if secure != nil && l.server.TLSConfig != nil {
		l.secure.Store(secure)
	}
}

// serveAgents puts in force what cfg says of agents and of how they wait. The
// recogniser is kept if it is given: it knows the keys of issuers.
func (a *App) serveAgents(cfg config.Config, recogniser *identity.Recogniser) (err error) {
	if recogniser == nil {
		if recogniser, err = newRecogniser(cfg.Identity, a.log); err != nil {
			return err
		}
	}
	a.identity = recogniser
	a.hub.Configure(a.waiting(cfg))
	if a.agents == nil {
		return nil
	}
	a.handler.Configure(mcphttp.Settings{Guard: a.guard(a.agents, cfg), Identity: recogniser})
	a.agents.handler.set(operator.WithoutCookies(recogniser.Metadata(a.paths, a.handler)))
	return nil
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
	a.hub = conversation.NewHub(a.hubConfig())
	a.handler = mcphttp.NewHandler(a.handlerConfig(routes))
	a.paths = slices.Collect(maps.Keys(routes))
	if err := a.serveAgents(cfg, nil); err != nil {
		return nil, err
	}
	a.agents.server.ConnState = a.countConnections
	if err := a.serveOperators(cfg); err != nil {
		return nil, err
	}
	return a, nil
}

// newApp returns a gate without anybody at either side.
func newApp(cfg config.Config, log *slog.Logger) (_ *App, err error) {
	a := &App{cfg: cfg, log: log, metrics: newMetrics(), asking: make(chan struct{}, 1)}
	a.bodies = a.newBodies(cfg.Limits)
	a.tracing, err = newTracing(cfg.Telemetry.Traces, log)
	return a, err
}

// bind takes the addresses.
func (a *App) bind() error {
	secure, err := a.certificates(a.cfg)
	if err != nil {
		return err
	}
	agents := place{who: "agents", address: a.cfg.Listen, secure: secure.agents, trusted: a.cfg.Identity.Proxy.From, room: admission.Limits{
		Total: int64(a.room.agents), Client: quarter(a.cfg.Limits.MaxConnectionsPerClient, a.room.agents),
	}}
	if a.agents, err = a.listen(agents); err != nil {
		return err
	}
	return a.bindOperators(secure.operators)
}

// bindOperators takes the operators' address, or takes part in serving that of the
// desk.
func (a *App) bindOperators(secure *tls.Config) (err error) {
	operators := a.operatorsPlace(a.cfg.Operators.Listen, secure)
	if a.cfg.Store.Reveal() == config.DeskStore {
		return a.joinDesk(operators)
	}
	a.operators, err = a.listen(operators)
	return err
}

// operatorsPlace returns where operators are served.
func (a *App) operatorsPlace(address string, secure *tls.Config) place {
	return place{who: "operators", address: address, secure: secure, patient: a.cfg.Limits.WriteTimeout, room: admission.Limits{
		Total: int64(a.room.operators), Client: int64(max(1, a.room.operators/2)), // one address is not everybody
	}}
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
	a.askBy(a.cfg.Workflows)
	a.shutdown.Store(&a.cfg.Shutdown)
	a.gate = gate.New(settings, time.Now, a.log, a.metrics)
	if a.keep, err = a.openStore(); err != nil {
		return err
	}
	if a.desk, err = a.newDesk(); err != nil {
		return err
	}
	by, err := a.newAsker(a.cfg)
	if err != nil {
		return err
	}
	a.use(by)
	return nil
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
	a.ready.Store(true) // before anybody can ask
	for _, l := range []*listener{a.agents, a.operators} {
		serving.Go(func() error { return l.serve() })
	}
	// The desk outlives ctx: it is closed in the course of stopping.
	keeping, endKeeping := context.WithCancel(after)
	defer endKeeping()
	serving.Go(func() error { return a.runDesk(keeping) })
	serving.Go(func() error { a.reclaim(ctx); return nil })
	serving.Go(func() error { a.reachUpstreams(ctx); return nil })
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
		if u.Command != nil {
			a.log.Info("upstream", "name", u.Name, "program", u.Command[0], "paths", u.Paths)
			continue
		}
		a.log.Info("upstream", "name", u.Name, "host", u.URL.Host, "paths", u.Paths)
	}
	if !hasPolicy(a.cfg) {
		a.log.Warn("no rules: every call is forwarded")
	}
	if a.gate.Governs() && !a.keep.durable {
		a.log.Warn("held calls are kept in memory and are lost on restart")
	}
}

// stop ends serving in the order that loses nothing: first the world is told
// to send no more, then idle streams end, then calls under way finish.
func (a *App) stop(ctx context.Context) {
	a.ready.Store(false)
	how := *a.shutdown.Load()
	a.log.InfoContext(ctx, "stopping", "delay", how.Delay, "drain", how.Drain)
	time.Sleep(how.Delay)
	a.handler.EndStreams()
	ctx, cancel := context.WithTimeout(ctx, how.Drain)
	defer cancel()
	if err := a.desk.Close(ctx); err != nil {
		a.log.WarnContext(ctx, "some held calls could not be ended", "err", err)
	}
	if err := a.agents.server.Shutdown(ctx); err != nil {
		a.log.WarnContext(ctx, "calls were still running when shutdown.drain ended", "err", err)
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
			l.end(ctx)
		}
	}
	for _, u := range a.upstreams {
		u.Close()
	}
	a.closeBridges()
	if a.reloader != nil {
		_ = a.reloader.watcher.Close()
	}
	if a.keep.GateStore != nil {
		_ = a.keep.Close()
	}
	defer logging.Close(ctx, a.log)
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return a.tracing.Close(ctx)
}
