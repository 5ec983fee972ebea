package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// agents serves the programs that call tools.
type agents struct {
	base *base

	servers   *servers
	approvals *approvals
	page      func(task.ID) string // returns the URL of a held call's approval page
	bodies    *admission.Pool      // memory for request bodies
	gateway   *conversation.Gateway
	identity  *identity.Authenticator

	authorities *x509.CertPool // sign the certificates of agents; nil if certificates are not used

	// These are nil for a wrap, whose one agent uses a pipe.
	listener *httpserver.Listener
	handler  *mcphttp.Handler
}

// bind binds the agents' address.
func (ag *agents) bind(secure *tls.Config) (err error) {
	l := ag.listenerConfig(secure)
	path, isSocket := localuser.SocketPath(l.Address)
	if !isSocket {
		ag.listener, err = httpserver.Listen(l)
		return err
	}
	bound, err := localuser.Listen(path, ag.base.cfg.Operators.OSUsers, func(err error) {
		ctx := logging.Limited(context.Background(), "another user", "")
		ag.base.log.WarnContext(ctx, "refused a connection to the agents' socket of a user that is not in operators.os_users", "err", err)
	})
	if err != nil {
		return fmt.Errorf("listen for agents: %w", err)
	}
	ag.listener = httpserver.New(bound, l)
	return nil
}

func (ag *agents) listenerConfig(secure *tls.Config) httpserver.Config {
	l := ag.base.listenerConfig("agents", ag.base.cfg.Listen, secure)
	l.TrustedProxies, l.State = ag.base.cfg.Identity.Proxy.From, ag.countConnections
	l.Connections = admission.Limits{Total: int64(ag.base.connections.agents), Client: quarter(ag.base.connections.agents)}
	return l
}

// serve sets the handler for agents. The keys of routes are the paths of the upstreams.
func (ag *agents) serve(routes map[string]mcphttp.Endpoint) error {
	ag.gateway = conversation.NewGateway(ag.gatewayConfig())
	ag.handler = mcphttp.NewHandler(ag.handlerConfig(routes))
	return ag.configure(ag.base.cfg, ag.authorities, nil)
}

// configure applies the agents' settings of cfg. It keeps the authenticator if that is not
// nil, because the authenticator has cached the keys of issuers.
func (ag *agents) configure(cfg config.Config, authorities *x509.CertPool, authenticator *identity.Authenticator) (err error) {
	if authenticator == nil {
		if authenticator, err = newAuthenticator(cfg, authorities, ag.base.log); err != nil {
			return err
		}
	}
	ag.identity, ag.authorities = authenticator, authorities
	ag.servers.setPeople(cfg.Identity)
	ag.gateway.Configure(ag.waiting(cfg))
	if ag.listener == nil {
		return nil
	}
	ag.handler.Configure(mcphttp.Settings{Guard: ag.guard(cfg), Identity: authenticator, URL: cfg.Identity.URL})
	ag.listener.SetHandler(operator.WithoutCookies(ag.handler))
	return nil
}

func (ag *agents) handlerConfig(routes map[string]mcphttp.Endpoint) mcphttp.Config {
	limits := ag.base.cfg.Limits
	return mcphttp.Config{
		Routes:  routes,
		Catalog: ag.approvals.catalog,
		Gateway: ag.gateway,
		Bodies:  ag.bodies,
		Limits: mcphttp.Limits{
			Requests:     ag.base.shares(limits.MaxConcurrentRequests),
			Streams:      ag.base.shares(limits.MaxStreams),
			Anonymous:    ag.base.anonymous(int64(ag.base.connections.agents)),
			Body:         limits.MaxRequestBody,
			Parse:        parseLimits(limits),
			ReadTimeout:  limits.RequestTimeout,
			WriteTimeout: limits.RequestTimeout,
		},
		ClientGone: httpserver.ClientLeft,
		Log:        ag.base.log,
		Metrics:    ag.base.metrics,
		Tracing:    ag.base.tracing,
	}
}

// gatewayConfig returns the configuration for the requests of all clients.
func (ag *agents) gatewayConfig() conversation.Config {
	return conversation.Config{
		Catalog: ag.approvals.catalog, Approvals: ag.approvals.service, Records: ag.approvals.store.Store, Record: ag.approvals.record, Waiting: ag.waiting(ag.base.cfg), Texts: ag.approvals.store.ring, Parse: parseLimits(ag.base.cfg.Limits),
		Log: ag.base.log, Metrics: ag.base.metrics, Tracing: ag.base.tracing,
	}
}

// parseLimits returns the limits of messages that the gate parses.
func parseLimits(l config.Limits) jsonrpc.Limits {
	return jsonrpc.Limits{Depth: l.MaxDepth, Batch: l.MaxBatch}
}

// guard returns the guard of the agents' listener.
func (ag *agents) guard(cfg config.Config) mcphttp.Guard {
	g := newGuard(ag.listener, cfg)
	if u := cfg.Identity.URL; u != nil && (g.Loopback || len(g.Hosts) > 0) {
		g.Hosts = append(slices.Clone(g.Hosts), u.Host)
	}
	return g
}

// newGuard returns the part of the guard that both listeners share.
func newGuard(l net.Listener, cfg config.Config) mcphttp.Guard {
	addr, ok := l.Addr().(*net.TCPAddr)
	return mcphttp.Guard{Loopback: ok && addr.IP.IsLoopback(), Hosts: cfg.AllowedHosts, Origins: cfg.AllowedOrigins}
}

func (ag *agents) countConnections(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		ag.base.metrics.ConnOpened()
	case http.StateClosed, http.StateHijacked:
		ag.base.metrics.ConnClosed()
	case http.StateActive, http.StateIdle:
	}
}

// waiting returns how clients wait in their requests.
func (ag *agents) waiting(cfg config.Config) conversation.Waiting {
	w := waiting(cfg)
	w.Page, w.AskHost = ag.page, ag.approvals.workflows.asksHost
	return w
}

// waiting is [agents.waiting] without the approval page.
func waiting(cfg config.Config) conversation.Waiting {
	return conversation.Waiting{
		Hold:             cfg.Waiting.Hold,
		HoldWithProgress: cfg.Waiting.Longest,
		HoldUnlimited:    cfg.Tasks.MaxTTL,
		Hosts:            hostsOf(cfg.Waiting.Hosts),
		Heartbeat:        cfg.Waiting.Keepalive,
		MinPoll:          cfg.Tasks.MinPollInterval,
		PerOwner:         cfg.Tasks.MaxPendingPerOwner,
		Pending:          schema.Status(cfg.Tasks.PendingStatus),
		Drafts:           true,
		Errors:           cfg.Waiting.Errors,

		Events: conversation.Events{
			Idle: cfg.Notifications.IdleTimeout, PerOwner: 2 * cfg.Tasks.MaxPendingPerOwner,
			SkipUpstreams:  !cfg.Notifications.Forward,
			ReconnectDelay: cfg.Notifications.ReconnectDelay, ReconnectAttempts: cfg.Notifications.ReconnectAttempts,
		},
	}
}

// hostsOf returns how long each configured host waits.
func hostsOf(list []config.Host) []conversation.Host {
	var hosts []conversation.Host
	for _, h := range list {
		hosts = append(hosts, conversation.Host{Name: h.Name, Limit: h.Limit})
	}
	return hosts
}
