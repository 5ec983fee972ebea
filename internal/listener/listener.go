// Package listener serves HTTP at an address. Each client has a share of the
// connections, and an idle connection gives way to a new one. The handler and the
// certificate can be replaced while requests are served.
package listener

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
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

const (
	headerTimeout = 10 * time.Second // how long a client may take to send the headers of a request
	endTimeout    = 2 * time.Second  // how long requests have to end when their connections are closed
)

// A Config says where a listener is bound, for whom, and what its clients may do.
type Config struct {
	For       string // whom it serves, for the log
	Address   string
	TLS       *tls.Config // nil without TLS
	Room      admission.Limits
	Trusted   []netip.Prefix // proxies: one address, many clients
	Patience  time.Duration  // how long a client may take to read what it is sent; zero leaves that to the handler
	Keepalive time.Duration
	MaxHeader int // in bytes

	// Bodies is within which time the body of a request is to arrive. It is read before
	// the handler is chosen that serves the request, which gets what has arrived, and the
	// error if that is not all; of a large body, the handler reads the rest. Zero leaves
	// all of that to the handler.
	Bodies time.Duration

	Context func(context.Context, net.Conn) context.Context // of all requests of a connection; may be nil
	State   func(net.Conn, http.ConnState)                  // is called when the state of a connection changes; may be nil
	Refused func(wire.Type)                                 // is called for each connection that is refused
	Log     *slog.Logger
}

// A Listener is a server together with the address that it is bound to. It serves
// nothing until [Listener.Handle] has been called.
type Listener struct {
	net.Listener

	server  *http.Server
	handler *liveHandler // the server's
	secure  atomic.Pointer[tls.Config]
}

// Listen binds the address of c.
func Listen(c Config) (*Listener, error) {
	//nolint:noctx // binding a port does not wait for anything
	l, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", c.For, err)
	}
	return New(l, c), nil
}

// New returns a listener that serves what connects to l.
func New(l net.Listener, c Config) *Listener {
	handler := &liveHandler{bodies: c.Bodies, streams: streams{log: c.Log, closed: c.closed}}
	bound := &Listener{handler: handler, Listener: newBounded(l, c), server: &http.Server{
		Handler:           busy(handler),
		ConnContext:       c.withConn,
		ConnState:         c.changed,
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

func newBounded(l net.Listener, c Config) *boundedListener {
	return &boundedListener{
		Listener: l, pool: admission.NewPool(c.Room), trusted: c.Trusted, secure: c.TLS != nil, patience: c.Patience,
		slots: make(chan struct{}, refusing), refused: c.Refused,
		yielded: func(address string) {
			c.Log.WarnContext(logging.Limited(context.Background(), c.For, address),
				"connection limit reached: closed an idle connection", "of", c.For, "address", address)
		},
	}
}

// Handle replaces the handler. Requests that are being served keep the old one; those
// whose body is still awaited (see [Config.Bodies]) get the new one.
func (l *Listener) Handle(h http.Handler) { l.handler.set(h) }

// ShowCertificate makes a listener that has TLS use another configuration of it for
// connections from now on.
func (l *Listener) ShowCertificate(secure *tls.Config) {
	if secure != nil && l.server.TLSConfig != nil {
		l.secure.Store(secure)
	}
}

// Serve serves until the server is ended.
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

// Shutdown accepts no more connections, and waits until no request is served. If ctx
// ends before, it closes all connections and returns an error.
func (l *Listener) Shutdown(ctx context.Context) error {
	err := l.server.Shutdown(ctx)
	if err == nil {
		err = l.handler.wait(ctx)
	}
	if err != nil {
		l.Cut()
	}
	return err
}

// Cut ends serving and closes all connections. Their requests may still be served.
func (l *Listener) Cut() {
	_ = l.server.Close()
	l.handler.streams.cut()
}

// End closes all connections, and waits a moment for the requests on them: they use
// the store.
func (l *Listener) End(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	l.Cut()
	_ = l.Close()
	_ = l.handler.wait(ctx) // no longer than that
}
