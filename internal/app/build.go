package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/version"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

func newTracing(cfg config.Traces, log *slog.Logger) (*tracing.Tracing, error) {
	if cfg.Endpoint == nil {
		return nil, nil //nolint:nilnil // a nil Tracing is one that is off
	}
	return tracing.New(tracing.Config{
		Endpoint: cfg.Endpoint.String(),
		Headers:  reveal(cfg.Headers),
		Sample:   cfg.Sample,
		Version:  version.This().Version,
	}, log)
}

func reveal(secrets map[string]config.Secret) map[string]string {
	plain := make(map[string]string, len(secrets))
	for name, secret := range secrets {
		plain[name] = secret.Reveal()
	}
	return plain
}

// connect makes the clients of all upstreams and returns them by path.
func (a *App) connect() (map[string]*httpclient.Client, error) {
	routes := make(map[string]*httpclient.Client)
	connections := httpclient.NewConnections(a.room.upstreams)
	for _, u := range a.cfg.Upstreams {
		cfg, err := a.clientConfig(u)
		if err != nil {
			return nil, fmt.Errorf("upstream %s: %w", u.Name, err)
		}
		cfg.Connections = connections
		if u.Command != nil {
			b := a.newBridge(u)
			a.bridges = append(a.bridges, b)
			cfg.URL, cfg.Transport = &url.URL{Scheme: "stdio", Host: "process"}, b
		}
		client := httpclient.New(cfg)
		a.upstreams, a.asks = append(a.upstreams, client), append(a.asks, client.Upstream())
		for _, path := range u.Paths {
			routes[path] = client
		}
	}
	return routes, nil
}

// clientConfig says how an upstream is reached.
func (a *App) clientConfig(u config.Upstream) (httpclient.Config, error) {
	tlsConfig, err := clientTLS(u.TLS)
	return httpclient.Config{
		Name:                 u.Name,
		URL:                  u.URL,
		Headers:              headers(u.Headers),
		ForwardAuthorization: u.ForwardAuthorization,
		ForwardCredential:    u.ForwardCredential,
		CredentialHeaders:    u.CredentialHeaders,
		ForwardQuery:         u.ForwardQuery,
		TLS:                  tlsConfig,
		ConnectTimeout:       u.ConnectTimeout,
		ResponseTimeout:      a.cfg.Limits.RequestTimeout,
		CallTimeout:          a.cfg.Limits.CallTimeout,
		ToolsTimeout:         a.cfg.Limits.ToolsFetchTimeout,
		ToolsPages:           a.cfg.Limits.ToolsMaxPages,
		MaxTaskTTL:           u.MaxTaskTTL,
		IdleTimeout:          u.IdleTimeout,
		MaxIdle:              u.MaxIdleConnections,
		Log:                  a.log,
		Metrics:              a.metrics,
		Tracing:              a.tracing,
	}, err
}

func headers(secrets map[string]config.Secret) http.Header {
	h := make(http.Header, len(secrets))
	for name, value := range reveal(secrets) {
		h.Set(name, value)
	}
	return h
}

func clientTLS(cfg config.TLS) (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         cfg.ServerName,
		InsecureSkipVerify: cfg.InsecureSkipVerify, //nolint:gosec // off unless written in the configuration
	}
	if cfg.CAFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("tls.ca_file: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("tls.ca_file: no certificate in it")
	}
	return c, nil
}

func (a *App) handlerConfig(routes map[string]*httpclient.Client) mcphttp.Config {
	limits := a.cfg.Limits
	return mcphttp.Config{
		Routes: routes,
		Gate:   a.gate,
		Hub:    a.hub,
		Bodies: a.bodies,
		Limits: mcphttp.Limits{
			Requests:     a.shares(limits.MaxConcurrentRequests, limits.MaxRequestsPerClient),
			Streams:      a.shares(limits.MaxStreams, limits.MaxStreamsPerClient),
			Anonymous:    a.anonymous(int64(a.room.agents)),
			Body:         limits.MaxRequestBody,
			Parse:        parseLimits(limits),
			ReadTimeout:  limits.ReadTimeout,
			WriteTimeout: limits.WriteTimeout,
		},
		Log:     a.log,
		Metrics: a.metrics,
		Tracing: a.tracing,
	}
}

// hubConfig says what the requests of all clients share.
func (a *App) hubConfig() conversation.Config {
	return conversation.Config{
		Gate: a.gate, Desk: a.desk, Records: a.keep.GateStore, Waiting: a.waiting(a.cfg), Texts: a.keep.ring, Parse: parseLimits(a.cfg.Limits),
		Log: a.log, Metrics: a.metrics, Tracing: a.tracing,
	}
}

// parseLimits bounds the messages that the gate reads.
func parseLimits(l config.Limits) jsonrpc.Limits {
	return jsonrpc.Limits{Depth: l.MaxDepth, Batch: l.MaxBatch}
}

// listen binds an address for a server whose handler is still to be set.
func (a *App) listen(p place) (*listener, error) {
	//nolint:noctx // binding a port does not wait for anything
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", p.who, err)
	}
	return a.serveOn(l, p), nil
}

// serveOn returns a server for what connects to l, whose handler is still to be
// set.
func (a *App) serveOn(l net.Listener, p place) *listener {
	handler := new(liveHandler)
	bound := &listener{
		handler: handler,
		Listener: &boundedListener{
			Listener: l, pool: admission.NewPool(p.room), trusted: p.trusted, secure: p.secure != nil, patient: p.patient,
			slots: make(chan struct{}, refusing), refused: func(t wire.Type) { a.metrics.Refused(string(t)) },
			yielded: func(address string) {
				a.log.WarnContext(logging.Limited(context.Background(), p.who, address),
					"connection limit reached: closed an idle connection", "of", p.who, "address", address)
			},
		},
		server: &http.Server{
			Handler:           busy(handler),
			ConnContext:       withConn,
			ConnState:         rest,
			TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1, with TLS and without
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       a.cfg.Limits.Keepalive,
			MaxHeaderBytes:    int(a.cfg.Limits.MaxHeader),
			ErrorLog:          newServerLog(a.log),
		},
	}
	if p.secure != nil {
		bound.secure.Store(p.secure)
		bound.server.TLSConfig = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return bound.secure.Load(), nil },
		}
	}
	return bound
}

// guard returns the guard of a listener, which depends on where that is bound.
func (a *App) guard(l *listener, cfg config.Config) mcphttp.Guard {
	addr, ok := l.Addr().(*net.TCPAddr)
	g := mcphttp.Guard{Loopback: ok && addr.IP.IsLoopback(), Hosts: cfg.AllowedHosts, Origins: cfg.AllowedOrigins}
	if l == a.operators {
		g.Pages = true
		g.SameOrigin = true // who comes there has a cookie of that very host, or none
		if u := cfg.Operators.URL; u != nil {
			g.Hosts = append(slices.Clone(g.Hosts), u.Host)
			g.Origins = append(slices.Clone(g.Origins), u.Scheme+"://"+u.Host)
		}
	}
	if u := cfg.Identity.URL; l == a.agents && u != nil && (g.Loopback || len(g.Hosts) > 0) {
		g.Hosts = append(slices.Clone(g.Hosts), u.Host)
	}
	if l == a.operators && !g.Loopback {
		g.Hosts = nil // probes come by address
	}
	return g
}

func (a *App) countConnections(conn net.Conn, state http.ConnState) {
	rest(conn, state)
	switch state {
	case http.StateNew:
		a.metrics.ConnOpened()
	case http.StateClosed, http.StateHijacked:
		a.metrics.ConnClosed()
	case http.StateActive, http.StateIdle:
	}
}
