// Package httpserver serves HTTP/1.1 at one address. Each client gets a share of the
// connections, and a new connection may replace an idle one. The handler and the
// certificate can be changed while requests are served:
//
//	l, err := httpserver.Listen(config)
//	l.SetHandler(handler)
//	go l.Serve()
//	l.SetHandler(newHandler) // running requests keep the old one
//	err = l.Shutdown(ctx)
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/localhost"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
)

const (
	headerTimeout = 10 * time.Second // for the client to send the headers of a request
	stopTimeout   = 2 * time.Second  // for requests to end after their connections were closed
)

// A Config configures a [Listener].
type Config struct {
	Name           string // the clients it serves, for the log: "agents" or "operators"
	Address        string
	TLS            *tls.Config // nil without TLS
	Connections    admission.Limits
	TrustedProxies []netip.Prefix // many clients share the address of such a proxy
	WriteTimeout   time.Duration  // for the client to read each write; zero leaves deadlines to the handler
	Keepalive      time.Duration
	MaxHeader      int // in bytes

	// BodyTimeout bounds how long a request body may take. The body, or the first part of
	// a large one, is read before the handler is chosen. The handler gets a read error if
	// the body is incomplete. With zero, the handler reads the body itself.
	BodyTimeout time.Duration

	Localhost bool // [Listen] also binds ::1, so that localhost is this server

	Context func(context.Context, net.Conn) context.Context // returns the context of a connection's requests; may be nil
	State   func(net.Conn, http.ConnState)                  // is called when a connection changes state; may be nil
	Refused func(mcp.Type)                                  // is called for each refused connection
	Log     *slog.Logger
}

// A Listener is an HTTP server with the address that it is bound to. Call
// [Listener.SetHandler] before [Listener.Serve].
type Listener struct {
	net.Listener

	server  *http.Server
	handler *swappableHandler
	secure  atomic.Pointer[tls.Config]
}

// Listen returns a listener that is bound to the address of c.
func Listen(c Config) (*Listener, error) {
	//nolint:noctx // binding a port does not wait for anything
	l, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", c.Name, err)
	}
	if c.Localhost {
		both, err := localhost.Both(l)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for %s: %w", c.Name, err), l.Close())
		}
		l = both
	}
	return New(l, c), nil
}

// New returns a listener that serves the connections of l.
func New(l net.Listener, c Config) *Listener {
	handler := &swappableHandler{bodyTimeout: c.BodyTimeout, streams: streams{log: c.Log, closed: c.streamClosed}}
	bound := &Listener{handler: handler, Listener: newLimitedListener(l, c), server: &http.Server{
		Handler:           trackUse(handler),
		ConnContext:       c.withConn,
		ConnState:         c.connStateChanged,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1, with TLS and without
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       c.Keepalive,
		MaxHeaderBytes:    c.MaxHeader,
		ErrorLog:          newServerLog(c.Log),
	}}
	if c.TLS != nil {
		bound.secure.Store(c.TLS)
		bound.server.TLSConfig = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return bound.secure.Load(), nil },
		}
	}
	return bound
}

func newLimitedListener(l net.Listener, c Config) *limitedListener {
	return &limitedListener{
		Listener: l, pool: admission.NewPool(c.Connections), trusted: c.TrustedProxies, secure: c.TLS != nil, writeTimeout: c.WriteTimeout,
		refusals: make(chan struct{}, maxRefusals), refused: c.Refused,
		closedIdle: func(address string) {
			c.Log.WarnContext(logging.Limited(context.Background(), c.Name, address),
				"connection limit reached: closed an idle connection", "of", c.Name, "address", address)
		},
	}
}

// SetHandler replaces the handler. Running requests keep the old one; requests whose body
// has not arrived yet (see [Config.BodyTimeout]) get the new one.
func (l *Listener) SetHandler(h http.Handler) { l.handler.set(h) }

// SetTLS changes the TLS configuration for new connections. It does nothing if the
// listener was made without TLS or secure is nil.
func (l *Listener) SetTLS(secure *tls.Config) {
	if secure != nil && l.server.TLSConfig != nil {
		l.secure.Store(secure)
	}
}

// Serve serves until the listener is stopped.
func (l *Listener) Serve() error {
	serve := l.server.Serve
	if l.server.TLSConfig != nil {
		serve = func(inner net.Listener) error { return l.server.ServeTLS(inner, "", "") }
	}
	if err := serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting connections and waits for running requests. If ctx ends
// first, Shutdown closes all connections and returns an error.
func (l *Listener) Shutdown(ctx context.Context) error {
	err := l.server.Shutdown(ctx)
	if err == nil {
		err = l.handler.serving.Wait(ctx)
	}
	if err != nil {
		l.CloseConnections()
	}
	return err
}

// CloseConnections stops serving and closes all connections. Handlers may still run.
func (l *Listener) CloseConnections() {
	_ = l.server.Close()
	l.handler.streams.closeAll()
}

// Stop closes all connections, and waits a short time for running handlers, which use
// the store.
func (l *Listener) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	l.CloseConnections()
	_ = l.Close()
	_ = l.handler.serving.Wait(ctx) // an error means that a handler still runs
}
