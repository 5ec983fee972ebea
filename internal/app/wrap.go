package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
	"github.com/thoughtgate/thoughtgate-go/internal/mcpstdio"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/process"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httplink"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
)

// A Wrap has the settings of a gate that an agent starts in place of a server.
type Wrap struct {
	In       io.Reader  // from the agent
	Out      io.Writer  // to the agent
	Stderr   io.Writer  // of the server
	Env      []string   // of the server
	Dir      string     // in which the server runs
	User     string     // the user who runs the agent
	Host     process.ID // the process that started the gate; zero if it is not known
	Restarts int        // of the server per minute

	Token  func() (string, error)       // returns the bearer token for a server at a URL; may be nil
	Tokens map[string]httpclient.Tokens // of the servers that people sign in to, by name
}

// A wrappedServer is the server of a wrap: a program, or a server at a URL.
type wrappedServer interface {
	mcpstdio.Link
	Start(receiver upstream.Receiver) error
	Done() <-chan struct{} // closed when the server has ended for good
	Err() error            // the reason; valid after Done is closed
	Close()
}

// A wrapSession is one agent at a pipe, one server, and the gate between them.
type wrapSession struct {
	gate   *App
	server wrappedServer
	agent  *mcpstdio.Agent
}

// grace is how long a server may take to end after its standard input was closed, and again
// after a signal.
const grace = 2 * time.Second

// NewWrap builds a gate for one agent in front of the one upstream of cfg. [App.Run] starts
// the upstream if it is a program.
func NewWrap(cfg config.Config, log *slog.Logger, how Wrap) (*App, error) {
	return build(cfg, log, func(a *App) (err error) {
		w := &wrapSession{gate: a}
		a.serve, a.base.connections.operators = w.serve, operatorConnections
		a.approvals.sharedStore = true // agents may start several wraps with one store
		if w.server, err = a.servers.newWrapped(cfg.Upstreams[0], how); err != nil {
			return err
		}
		a.servers.upstreams = append(a.servers.upstreams, w.server.Upstream())
		if err := a.openWrapApprovals(); err != nil {
			return err
		}
		a.registerHost(how)
		a.agents.gateway = conversation.NewGateway(a.agents.gatewayConfig())
		if err := a.agents.configure(cfg, nil, nil); err != nil {
			return err
		}
		if err := a.operators.configure(cfg); err != nil {
			return err
		}
		w.agent = a.newAgent(w.server, how)
		a.approvals.owners = []string{w.agent.Owner()}
		return nil
	})
}

// registerHost notes which process is the agent's.
func (a *App) registerHost(how Wrap) {
	if how.Host != (process.ID{}) {
		a.operators.agents.Register(context.Background(), how.Host, time.Now())
	}
}

// openWrapApprovals opens the store and binds the operators' address. By default, all wraps
// of a user share the desk. With another store, each wrap has its own directory, and its own
// port if the configured address is in use.
func (a *App) openWrapApprovals() error {
	if a.base.cfg.Store.Reveal() == config.DeskStore {
		if err := a.operators.bind(nil); err != nil {
			return err
		}
		return a.openApprovals()
	}
	if a.base.cfg.StateDir != "" {
		a.base.cfg.StateDir = filepath.Join(a.base.cfg.StateDir, "wraps", a.base.cfg.Upstreams[0].Name)
	}
	secure, err := readCertificates(a.base.cfg)
	if err != nil {
		return err
	}
	err = a.operators.bind(secure.operators)
	if errors.Is(err, syscall.EADDRINUSE) {
		a.operators.listener, err = httpserver.Listen(a.operators.listenerConfig("127.0.0.1:0", secure.operators))
	}
	if err != nil {
		return err
	}
	return a.openApprovals()
}

// newWrapped returns the server of a wrap.
func (s *servers) newWrapped(u config.Upstream, how Wrap) (wrappedServer, error) {
	if u.Command == nil {
		return s.newLink(u, how)
	}
	cfg := s.processConfig(u)
	cfg.Env, cfg.Stderr, cfg.Restarts = how.Env, how.Stderr, how.Restarts
	return stdioclient.New(cfg), nil
}

// newLink returns a server at a URL.
func (s *servers) newLink(u config.Upstream, how Wrap) (wrappedServer, error) {
	cfg, err := s.clientConfig(u)
	if err != nil {
		return nil, err
	}
	cfg.Tokens = how.Tokens[u.Name]
	limits := s.base.cfg.Limits
	return httplink.New(httplink.Config{
		Client: httpclient.New(cfg), Token: how.Token, MaxLine: maxLine(limits), Depth: limits.MaxDepth, Log: s.base.log,
		Upstream: upstream.Config{
			Name: u.Name, ListTimeout: limits.RequestTimeout, ToolsTimeout: limits.ToolsFetchTimeout, ToolsPages: limits.ToolsMaxPages,
			MaxTaskTTL: u.MaxTaskTTL, Log: s.base.log, Metrics: s.base.metrics, Tracing: s.base.tracing,
		},
	}), nil
}

// serverID distinguishes servers with the same name, for example in different projects: a
// call to one must never run on another.
func serverID(u config.Upstream, dir string) string {
	text := dir + "\x00" + strings.Join(u.Command, "\x00")
	if u.URL != nil {
		text = u.URL.String() // the same server in all projects
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// newAgent returns the agent. All agents of one user at the same server are one owner of
// held calls, so that a repeated call finds the held one after a restart of the wrap.
func (a *App) newAgent(link mcpstdio.Link, how Wrap) *mcpstdio.Agent {
	limits := a.base.cfg.Limits
	var silence mcpstdio.Silence
	if a.base.cfg.Upstreams[0].Command != nil { // the HTTP client has its own timeouts
		silence = mcpstdio.Silence{Request: limits.RequestTimeout, Call: limits.CallTimeout}
	}
	return mcpstdio.New(mcpstdio.Config{
		In: how.In, Out: how.Out, Link: link, Principal: policy.Principal{ID: "local:" + how.User}, Server: serverID(a.base.cfg.Upstreams[0], how.Dir), Catalog: a.approvals.catalog, Gateway: a.agents.gateway,
		Limits: mcpstdio.Limits{Line: int(limits.MaxRequestBody), Requests: limits.MaxConcurrentRequests, Parse: parseLimits(limits), Silence: silence},
		Log:    a.base.log, Metrics: a.base.metrics, Tracing: a.base.tracing,
	})
}

// InboxURL returns the URL at which operators decide about held calls.
func (a *App) InboxURL() string { return a.operators.url() }

// serve starts the server and serves the agent until the agent closes the pipe, the server has ended, or the context
// until ends. It returns an error if the server ended by itself.
func (w *wrapSession) serve(ctx, until context.Context, _ *errgroup.Group) error {
	if err := w.server.Start(w.agent); err != nil {
		w.gate.operators.listener.CloseConnections()
		return fmt.Errorf("start server: %w", err)
	}
	failed := w.serveAgent(ctx, until)
	w.stop(ctx, failed)
	return failed
}

// serveAgent passes messages between the agent and the server until one of them ends or until
// ends. It returns an error only if the server ended first.
func (w *wrapSession) serveAgent(ctx, until context.Context) error {
	serving, end := context.WithCancel(ctx)
	defer end()
	served := make(chan struct{})
	go func() {
		defer close(served)
		w.agent.Serve(serving)
	}()
	err := w.waitForEnd(until, served)
	end()
	select {
	case <-served:
	case <-time.After(grace): // Serve may wait for a server that does not read
		w.gate.base.log.WarnContext(ctx, "server does not accept messages; closing it")
		drain, cancel := w.drainContext(ctx)
		defer cancel()
		w.gate.closeApprovals(drain)
		w.server.Close()
		<-served
	}
	return err
}

// drainContext returns a context that ends after shutdown.drain.
func (w *wrapSession) drainContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), w.gate.shutdown.Load().Drain)
}

// waitForEnd waits until the session ends. It returns an error if the server ended it. When
// the agent has closed its input, running calls have until shutdown.drain.
func (w *wrapSession) waitForEnd(until context.Context, stopped <-chan struct{}) error {
	inputEnded, late := w.agent.InputEnded(), (<-chan time.Time)(nil)
	for {
		select {
		case <-inputEnded:
			inputEnded, late = nil, time.After(w.gate.shutdown.Load().Drain)
			continue
		case <-w.server.Done():
			return w.server.Err()
		case <-stopped:
		case <-until.Done():
		case <-late:
		}
		return nil
	}
}

// stop stops the session without losing calls. An agent that has closed its input may still
// read answers, but not after a signal. Held calls that run have time to finish.
func (w *wrapSession) stop(ctx context.Context, failed error) {
	w.gate.operators.status.ready.Store(false)
	drain, cancel := w.drainContext(ctx)
	defer cancel()
	w.agent.Close()
	if ctx.Err() == nil && failed == nil {
		answering, stop := context.WithCancel(drain)
		defer context.AfterFunc(ctx, stop)()
		w.agent.Finish(answering)
		stop()
	}
	w.gate.closeApprovals(drain)
	w.server.Close()
	w.gate.agents.gateway.Close()
	w.gate.operators.listener.CloseConnections()
}
