package httpclient

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
)

// streamBuffer is the size of read buffers of event streams, most of which are idle.
const streamBuffer = 512

// A network sends requests over connections: with HTTP/1.1 until the server chooses HTTP/2.
type network struct {
	all, streams *http1.Client
	http2        *http2Transports // nil without TLS
	usesHTTP2    atomic.Bool      // the server has chosen HTTP/2
}

// newNetwork returns the network for the server of cfg.
func newNetwork(cfg *Config, at serverAddress, dial func(ctx context.Context, network, address string) (net.Conn, error)) *network {
	settings := http1.Config{
		Address: at.dialed, Host: at.host, Dial: dial, HandshakeTimeout: cfg.ConnectTimeout, WriteTimeout: cfg.ResponseTimeout,
		MaxIdle: cfg.MaxIdle, IdleTimeout: cfg.IdleTimeout,
	}
	n := new(network)
	if cfg.URL.Scheme == "https" {
		settings.TLS = tlsConfig(cfg.TLS, at.name)
		n.http2 = newHTTP2Transports(cfg, func(ctx context.Context) (net.Conn, error) { return dial(ctx, "tcp", at.dialed) }, settings.TLS)
	}
	n.all = http1.New(settings)
	settings.ReadBuffer = streamBuffer
	n.streams = http1.New(settings)
	return n
}

// A serverAddress is the address of a server in three forms.
type serverAddress struct {
	dialed string // host and port to connect to
	name   string // the name in its certificate
	host   string // the Host header
}

// addressOf returns the address of the server at a URL. It asks [http.Transport], which converts
// internationalized names.
func addressOf(target *url.URL) (at serverAddress) {
	transport := &http.Transport{DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
		at.dialed = address
		return nil, errors.ErrUnsupported
	}}
	if resp, err := transport.RoundTrip(&http.Request{Method: http.MethodGet, URL: target, Header: make(http.Header)}); err == nil {
		_ = resp.Body.Close() // unreachable: nothing is dialed
	}
	name, _, err := net.SplitHostPort(at.dialed)
	if err != nil {
		return at
	}
	at.name, _, _ = strings.Cut(name, "%") // the zone has a meaning on this machine only
	at.host = at.name
	if strings.Contains(at.host, ":") {
		at.host = "[" + at.host + "]"
	}
	if port := target.Port(); port != "" {
		at.host += ":" + port
	}
	return at
}

// tlsConfig returns the TLS configuration for a host.
func tlsConfig(cfg *tls.Config, host string) *tls.Config {
	if cfg == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	}
	cfg = cfg.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	return cfg
}

// maxAttempts limits the attempts with a server that chooses another version of HTTP each time.
// Nothing is sent before it has chosen.
const maxAttempts = 3

// do sends a request with the version of HTTP that the server chooses. Function byHTTP2 sends it with a
// transport.
func (n *network) do(ctx context.Context, use Use, r *http1.Request, byHTTP2 func() (*http.Response, error)) (resp *http.Response, err error) {
	client := n.all
	if use == Stream {
		client = n.streams
	}
	for range maxAttempts {
		if !n.usesHTTP2.Load() {
			if resp, err = client.Do(ctx, r); !errors.Is(err, http1.ErrHTTP2) {
				return resp, err
			}
			n.usesHTTP2.Store(true)
		}
		if resp, err = byHTTP2(); !errors.Is(err, errHTTP1) {
			return resp, err
		}
		n.usesHTTP2.Store(false)
	}
	return nil, err
}

// Accept declares that the answer with this body was read to its end and belongs to its request.
// Only then is the connection used again.
func Accept(body io.ReadCloser) {
	switch body := body.(type) {
	case *countedBody:
		Accept(body.ReadCloser)
	case *TimeoutBody:
		Accept(body.ReadCloser)
	default:
		http1.Accept(body)
	}
}

// closeIdle closes the idle connections.
func (n *network) closeIdle() {
	n.all.CloseIdle()
	n.streams.CloseIdle()
	if n.http2 != nil {
		n.http2.closeIdle()
	}
}
