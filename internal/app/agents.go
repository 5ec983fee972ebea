package app

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"
	"net/http"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/listener"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// agents are what serves the programs that call tools.
type agents struct {
	*base

	approvals *approvals
	page      func(task.ID) string // returns where people decide about a held call
	bodies    *admission.Pool      // the memory for the bodies of requests
	hub       *conversation.Hub
	identity  *identity.Recogniser

	authorities *x509.CertPool // sign the certificates of agents; nil if certificates do not count

	// These are nil if the one agent is at the other end of a pipe.
	listener *listener.Listener
	handler  *mcphttp.Handler
	paths    []string // of the upstreams
}

// bind takes the address of agents.
func (ag *agents) bind(secure *tls.Config) (err error) {
	l := ag.listenerConfig("agents", ag.cfg.Listen, secure)
	l.Trusted, l.State = ag.cfg.Identity.Proxy.From, ag.countConnections
	l.Room = admission.Limits{
		Total: int64(ag.room.agents), Client: quarter(ag.cfg.Limits.MaxConnectionsPerClient, ag.room.agents),
	}
	ag.listener, err = listener.Listen(l)
	return err
}

// serve makes the handler for agents, who reach the upstreams at the paths of routes.
func (ag *agents) serve(routes map[string]*httpclient.Client) error {
	ag.hub = conversation.NewHub(ag.hubConfig())
	ag.handler = mcphttp.NewHandler(ag.handlerConfig(routes))
	ag.paths = slices.Collect(maps.Keys(routes))
	return ag.configure(ag.cfg, ag.authorities, nil)
}

// configure puts in force what cfg says of agents and of how they wait. The
// authorities sign the certificates of agents. The recogniser is kept if it is
// given: it knows the keys of issuers.
func (ag *agents) configure(cfg config.Config, authorities *x509.CertPool, recogniser *identity.Recogniser) (err error) {
	if recogniser == nil {
		if recogniser, err = newRecogniser(cfg.Identity, authorities, ag.log); err != nil {
			return err
		}
	}
	ag.identity, ag.authorities = recogniser, authorities
	ag.hub.Configure(ag.waiting(cfg))
	if ag.listener == nil {
		return nil
	}
	ag.handler.Configure(mcphttp.Settings{Guard: ag.guard(cfg), Identity: recogniser})
	ag.listener.Handle(operator.WithoutCookies(recogniser.Metadata(ag.paths, ag.handler)))
	return nil
}

func (ag *agents) handlerConfig(routes map[string]*httpclient.Client) mcphttp.Config {
	limits := ag.cfg.Limits
	return mcphttp.Config{
		Routes: routes,
		Gate:   ag.approvals.gate,
		Hub:    ag.hub,
		Bodies: ag.bodies,
		Limits: mcphttp.Limits{
			Requests:     ag.shares(limits.MaxConcurrentRequests, limits.MaxRequestsPerClient),
			Streams:      ag.shares(limits.MaxStreams, limits.MaxStreamsPerClient),
			Anonymous:    ag.anonymous(int64(ag.room.agents)),
			Body:         limits.MaxRequestBody,
			Parse:        parseLimits(limits),
			ReadTimeout:  limits.ReadTimeout,
			WriteTimeout: limits.WriteTimeout,
		},
		Left:    listener.Left,
		Log:     ag.log,
		Metrics: ag.metrics,
		Tracing: ag.tracing,
	}
}

// hubConfig says what the requests of all clients share.
func (ag *agents) hubConfig() conversation.Config {
	return conversation.Config{
		Gate: ag.approvals.gate, Desk: ag.approvals.desk, Records: ag.approvals.keep.GateStore, Waiting: ag.waiting(ag.cfg), Texts: ag.approvals.keep.ring, Parse: parseLimits(ag.cfg.Limits),
		Log: ag.log, Metrics: ag.metrics, Tracing: ag.tracing,
	}
}

// parseLimits bounds the messages that the gate reads.
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

// newGuard returns what the guards of both listeners have in common. It depends on where
// the listener is bound.
func newGuard(l net.Listener, cfg config.Config) mcphttp.Guard {
	addr, ok := l.Addr().(*net.TCPAddr)
	return mcphttp.Guard{Loopback: ok && addr.IP.IsLoopback(), Hosts: cfg.AllowedHosts, Origins: cfg.AllowedOrigins}
}

func (ag *agents) countConnections(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		ag.metrics.ConnOpened()
	case http.StateClosed, http.StateHijacked:
		ag.metrics.ConnClosed()
	case http.StateActive, http.StateIdle:
	}
}

// waiting says how clients wait in their requests.
func (ag *agents) waiting(cfg config.Config) conversation.Waiting {
	w := waiting(cfg)
	w.Page, w.AskHost = ag.page, ag.approvals.workflows.asksHost
	return w
}

// waiting is [agents.waiting] without the approval page.
func waiting(cfg config.Config) conversation.Waiting {
	return conversation.Waiting{
		Hold:     cfg.Waiting.Hold,
		Longest:  cfg.Waiting.Longest,
		Forever:  cfg.Tasks.MaxTTL,
		Hosts:    hostsOf(cfg.Waiting.Hosts),
		Beat:     cfg.Waiting.Keepalive,
		MinPoll:  cfg.Tasks.MinPollInterval,
		PerOwner: cfg.Tasks.MaxPendingPerOwner,
		Pending:  mcptask.Status(cfg.Tasks.PendingStatus),
		Drafts:   cfg.Drafts,
		Errors:   cfg.Waiting.Errors,
		NoError:  cfg.Waiting.PendingOK,

		WholeBatches: cfg.WholeBatches,
		Events: conversation.Events{
			Idle: cfg.Notifications.IdleTimeout, PerOwner: cfg.Notifications.MaxPerOwner,
			SkipUpstreams:  !cfg.Notifications.Forward,
			ReconnectDelay: cfg.Notifications.ReconnectDelay, ReconnectAttempts: cfg.Notifications.ReconnectAttempts,
		},
	}
}

// hostsOf returns how long hosts wait, as the configuration says.
func hostsOf(list []config.Host) []conversation.Host {
	var hosts []conversation.Host
	for _, h := range list {
		hosts = append(hosts, conversation.Host{Name: h.Name, Limit: h.Limit})
	}
	return hosts
}
