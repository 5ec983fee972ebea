package app

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httplink"
)

// An endpointSession is one agent at a pipe, and a gate over HTTP that only this agent can reach.
type endpointSession struct {
	gate *App
	how  Wrap
	path string
	link *innerListener
}

// wrapIdle is how long a wrap keeps a server process that its agent does not use: the memory of the
// process would be lost.
const wrapIdle = 24 * time.Hour

// NewWrapEndpoint builds a gate for one agent that reaches the endpoint of cfg at a path. [App.Run] starts
// the servers of the endpoint when the agent uses them.
func NewWrapEndpoint(cfg config.Config, log *slog.Logger, how Wrap, path string) (*App, error) {
	return build(cfg, log, func(a *App) error {
		w := &endpointSession{gate: a, how: how, path: path, link: newInnerListener(localuser.Peer(how.User))}
		a.serve, a.servers.wrap = w.serve, &how
		a.approvals.sharedStore = true // agents may start several wraps with one store
		a.base.divideDescriptors()
		routes, err := a.servers.connect()
		if err != nil {
			return err
		}
		if err := a.openWrapApprovals(); err != nil {
			return err
		}
		a.registerHost(how)
		for _, u := range cfg.Upstreams {
			by := catalog.Client{Upstream: u.Name, Server: how.serverID(u), Principal: policy.Principal{ID: w.link.peer.String()}}
			owner, _ := by.Owner()
			a.approvals.owners = append(a.approvals.owners, owner)
		}
		a.agents.listener = httpserver.New(w.link, a.agents.listenerConfig(nil))
		if err := a.agents.serve(routes); err != nil {
			return err
		}
		return a.operators.configure(cfg)
	})
}

// complete adds what only a wrap knows to the settings of a server's client.
func (w *Wrap) complete(u config.Upstream, cfg *httpclient.Config) {
	cfg.Server = w.serverID(u)
	if tokens := w.Tokens[u.Name]; tokens != nil {
		cfg.Tokens = tokens
	}
}

// serverID returns the id of a server in the directory of the wrap.
func (w *Wrap) serverID(u config.Upstream) string { return serverID(u, cmp.Or(u.Dir, w.Dir)) }

// serve serves the agent until it closes the pipe, or the context until ends.
func (w *endpointSession) serve(ctx, until context.Context, serving *errgroup.Group) error {
	serving.Go(w.gate.agents.listener.Serve)
	serving.Go(func() error { w.gate.agents.reclaim(until); return nil })
	pipe := httplink.Pipe{In: w.how.In, Out: w.how.Out, Dial: w.link.dial, Path: w.path, Log: w.gate.base.log}
	failed := pipe.Run(until)
	w.gate.operators.status.ready.Store(false)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.gate.shutdown.Load().Drain)
	defer cancel()
	w.gate.agents.handler.EndStreams()
	w.gate.closeApprovals(drain) // held calls that run have time to finish
	w.gate.agents.listener.CloseConnections()
	w.gate.operators.listener.CloseConnections()
	return failed
}

// An innerListener accepts connections of this process only, which belong to a user.
type innerListener struct {
	peer  localuser.Peer
	conns chan net.Conn
	ended chan struct{}
	end   func()
}

func newInnerListener(peer localuser.Peer) *innerListener {
	l := &innerListener{peer: peer, conns: make(chan net.Conn), ended: make(chan struct{})}
	l.end = sync.OnceFunc(func() { close(l.ended) })
	return l
}

// dial opens a connection.
func (l *innerListener) dial(ctx context.Context) (net.Conn, error) {
	own, other := net.Pipe()
	select {
	case l.conns <- &innerConn{other, l.peer}:
		return own, nil
	case <-l.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements [net.Listener].
func (l *innerListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *innerListener) Close() error {
	l.end()
	return nil
}

// Addr implements [net.Listener].
func (l *innerListener) Addr() net.Addr { return l.peer }

// An innerConn is a connection whose remote address is a user.
type innerConn struct {
	net.Conn

	peer localuser.Peer
}

// RemoteAddr implements [net.Conn].
func (c *innerConn) RemoteAddr() net.Addr { return c.peer }
