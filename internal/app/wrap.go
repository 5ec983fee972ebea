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
	"github.com/thoughtgate/thoughtgate-go/internal/listener"
	"github.com/thoughtgate/thoughtgate-go/internal/mcpstdio"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httplink"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
)

// A Wrap says how one server is put behind a gate of its own, which an agent starts
// in place of the server.
type Wrap struct {
	In       io.Reader // what the agent says
	Out      io.Writer // what the agent reads
	Stderr   io.Writer // the server's
	Env      []string  // the server's
	Dir      string    // in which the server runs
	User     string    // whose agent it is
	Restarts int       // how often the server is started again within a minute

	Token func() (string, error) // returns what a server at a URL is shown; nil if nothing
}

// A wrappedServer is the server of a wrap: a program, or one at a URL.
type wrappedServer interface {
	mcpstdio.Link
	Start(receiver upstream.Receiver) error
	Over() <-chan struct{} // closed when the server has ended for good
	Err() error            // why; valid then
	Close()
}

// A Wrapped is a gate between one agent at the other end of a pipe and one server. It
// can be run once.
type Wrapped struct {
	*App

	server wrappedServer
	agent  *mcpstdio.Agent
}

// grace is how long a server may take to end when its standard input is closed,
// and again when it is asked to.
const grace = 2 * time.Second

// NewWrap builds a gate in front of the one upstream of cfg. [Wrapped.Run] starts that
// if it is a program.
func NewWrap(cfg config.Config, log *slog.Logger, how Wrap) (_ *Wrapped, err error) {
	a, err := newApp(cfg, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = a.Close()
		}
	}()
	a.room.operators = cfg.Operators.MaxConnections
	a.approvals.mixed = true // an agent may start a wrap twice, or several with one store
	w := &Wrapped{App: a}
	if w.server, err = a.servers.newWrapped(cfg.Upstreams[0], how); err != nil {
		return nil, err
	}
	a.servers.asks = append(a.servers.asks, w.server.Upstream())
	if err := a.openWrapDesk(); err != nil {
		return nil, err
	}
	a.agents.hub = conversation.NewHub(a.agents.hubConfig())
	if err := a.agents.configure(cfg, nil, nil); err != nil {
		return nil, err
	}
	if err := a.operators.configure(cfg); err != nil {
		return nil, err
	}
	w.agent = a.newAgent(w.server, how)
	a.approvals.owner = w.agent.Owner()
	return w, nil
}

// openWrapDesk opens the store, and binds the address at which the operators of
// this wrap decide: those of the desk that it shares with other wraps of the user.
// With another store, each wrap has a directory and, if the configured address is
// taken, a port of its own.
func (a *App) openWrapDesk() error {
	if a.cfg.Store.Reveal() == config.DeskStore {
		if err := a.operators.bind(nil); err != nil {
			return err
		}
		return a.govern()
	}
	if a.cfg.StateDir != "" {
		a.cfg.StateDir = filepath.Join(a.cfg.StateDir, "wraps", a.cfg.Upstreams[0].Name)
	}
	secure, err := readCertificates(a.cfg)
	if err != nil {
		return err
	}
	err = a.operators.bind(secure.operators)
	if errors.Is(err, syscall.EADDRINUSE) {
		a.operators.listener, err = listener.Listen(a.operators.listenerConfig("127.0.0.1:0", secure.operators))
	}
	if err != nil {
		return err
	}
	return a.govern()
}

// newWrapped returns what runs or reaches the server.
func (s *servers) newWrapped(u config.Upstream, how Wrap) (wrappedServer, error) {
	if u.Command == nil {
		return s.newLink(u, how)
	}
	cfg := s.processConfig(u)
	cfg.Env, cfg.Stderr, cfg.Restarts = how.Env, how.Stderr, how.Restarts
	return stdioclient.New(cfg), nil
}

// newLink returns what reaches a server at a URL.
func (s *servers) newLink(u config.Upstream, how Wrap) (wrappedServer, error) {
	cfg, err := s.clientConfig(u)
	if err != nil {
		return nil, err
	}
	limits := s.cfg.Limits
	return httplink.New(httplink.Config{
		Client: httpclient.New(cfg), Token: how.Token, MaxLine: int(limits.MaxLine), Depth: limits.MaxDepth, Log: s.log,
		Asks: upstream.Config{
			Name: u.Name, ListTimeout: limits.RequestTimeout, ToolsTimeout: limits.ToolsFetchTimeout, ToolsPages: limits.ToolsMaxPages,
			MaxTaskTTL: u.MaxTaskTTL, Log: s.log, Metrics: s.metrics, Tracing: s.tracing,
		},
	}), nil
}

// serverID distinguishes a server from others that the user gives the same name, for example
// in another project: a call to one must never run on another.
func serverID(u config.Upstream, dir string) string {
	text := dir + "\x00" + strings.Join(u.Command, "\x00")
	if u.URL != nil {
		text = u.URL.String() // which is the same server in all projects
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// newAgent returns the agent. All agents of one user that use the same wrap are one
// owner of held calls, so that a repeated call finds the held one again after the
// agent has started the wrap anew.
func (a *App) newAgent(link mcpstdio.Link, how Wrap) *mcpstdio.Agent {
	limits := a.cfg.Limits
	return mcpstdio.New(mcpstdio.Config{
		In: how.In, Out: how.Out, Link: link, Principal: policy.Principal{ID: "local:" + how.User}, Server: serverID(a.cfg.Upstreams[0], how.Dir), Gate: a.approvals.gate, Hub: a.agents.hub,
		Limits: mcpstdio.Limits{Line: int(limits.MaxRequestBody), Requests: limits.MaxConcurrentRequests, Parse: parseLimits(limits)},
		Log:    a.log, Metrics: a.metrics, Tracing: a.tracing,
	})
}

// Inbox returns where people decide about held calls.
func (w *Wrapped) Inbox() string { return w.operators.url() }

// Run starts the server and serves until the agent closes its end of the pipe, the
// server has ended for good, or ctx is done. It returns an error if the server ends
// by itself, or serving failed.
func (w *Wrapped) Run(ctx context.Context) error {
	after := context.WithoutCancel(ctx) // stopping has time of its own
	defer func() { _ = w.close(after) }()
	if err := w.server.Start(w.agent); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	serving, alive := errgroup.WithContext(after)
	w.operators.status.ready.Store(true)
	serving.Go(w.operators.listener.Serve)
	keeping, endKeeping := context.WithCancel(after)
	defer endKeeping()
	serving.Go(func() error { return w.runDesk(keeping) })
	if w.reloader != nil {
		reloading, end := context.WithCancel(after)
		defer end()
		go w.reloader.run(reloading)
	}
	failed := w.serve(ctx, alive)
	w.stopWrap(ctx, failed)
	endKeeping()
	return errors.Join(failed, serving.Wait())
}

// serve serves the agent, and returns why that ended unless the agent or a signal
// ended it.
func (w *Wrapped) serve(ctx, alive context.Context) error {
	serving, end := context.WithCancel(ctx)
	defer end()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.agent.Serve(serving)
	}()
	failed := w.untilEnd(ctx, alive, stopped)
	end()
	select {
	case <-stopped:
	case <-time.After(grace): // the server reads nothing
		w.log.WarnContext(ctx, "the server does not take what the agent said; it is ended")
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.shutdown.Load().Drain)
		defer cancel()
		w.closeDesk(drain)
		w.server.Close()
		<-stopped
	}
	return failed
}

// closeDesk ends held calls. Those that run have until ctx ends. It is safe to repeat.
func (w *Wrapped) closeDesk(ctx context.Context) {
	if err := w.approvals.desk.Close(ctx); err != nil {
		w.log.WarnContext(ctx, "some held calls could not be ended", "err", err)
	}
}

// untilEnd waits until the agent has been served, or is not to be served any more, and
// returns why unless the agent or a signal is the reason. An agent that has left is
// served for as long as calls may take to finish.
func (w *Wrapped) untilEnd(ctx, alive context.Context, stopped <-chan struct{}) error {
	left, late := w.agent.InputEnded(), (<-chan time.Time)(nil)
	for {
		select {
		case <-left:
			left, late = nil, time.After(w.shutdown.Load().Drain)
		case <-w.server.Over():
			return w.server.Err()
		case <-stopped:
			return nil
		case <-alive.Done():
			return nil // serving says why
		case <-ctx.Done():
			return nil
		case <-late:
			return nil
		}
	}
}

// stopWrap ends serving in the order that loses nothing. If the agent has closed its
// end of the pipe, it may still read the answers to what it asked; after a signal it
// does not. Held calls that run have time to finish.
func (w *Wrapped) stopWrap(ctx context.Context, failed error) {
	w.operators.status.ready.Store(false)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.shutdown.Load().Drain)
	defer cancel()
	w.agent.Close()
	if ctx.Err() == nil && failed == nil {
		answering, stop := context.WithCancel(drain)
		defer context.AfterFunc(ctx, stop)()
		w.agent.Finish(answering)
		stop()
	}
	w.closeDesk(drain)
	w.server.Close()
	w.agents.hub.Close()
	w.operators.listener.Cut()
}
