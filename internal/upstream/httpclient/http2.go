package httpclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// errHTTP1 reports a server that did not choose HTTP/2. Nothing was sent to it.
var errHTTP1 = errors.New("the server speaks HTTP/1.1")

// http2Transports speak HTTP/2 with the server. A transport sends all requests on the same
// connection, so each owner has separate transports. If there are more than max owners, the least
// recently used one is removed and its idle connections are closed.
type http2Transports struct {
	max   int
	fresh *http.Transport // for held calls, which need a new connection each

	mu     sync.Mutex
	owners map[string]*ownerTransports
}

// ownerTransports are the transports of one owner.
type ownerTransports struct {
	plain, calls *http.Transport
	used         time.Time
}

// newHTTP2Transports returns transports to the server that cfg names.
func newHTTP2Transports(cfg *Config, dial func(ctx context.Context) (net.Conn, error), secure *tls.Config) *http2Transports {
	secure = secure.Clone()
	secure.NextProtos = []string{"h2", "http/1.1"}
	t := &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialHTTP2(ctx, dial, secure, cfg.ConnectTimeout)
		},
		ForceAttemptHTTP2:  true,
		DisableCompression: true, // the gate may have to read the body
		IdleConnTimeout:    cfg.IdleTimeout,
		HTTP2:              &http.HTTP2Config{WriteByteTimeout: cfg.ResponseTimeout},
		// A kept connection may turn out to be closed only after the call was sent on it,
		// and a held call must not be sent again.
		DisableKeepAlives: true,
	}
	return &http2Transports{max: cmp.Or(cfg.MaxIdle, http.DefaultMaxIdleConnsPerHost), fresh: t, owners: make(map[string]*ownerTransports)}
}

// dialHTTP2 connects to the server, which must choose HTTP/2: the transport would keep an HTTP/1.1
// connection before its answer was accepted.
func dialHTTP2(ctx context.Context, dial func(context.Context) (net.Conn, error), secure *tls.Config, timeout time.Duration) (net.Conn, error) {
	raw, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	conn := tls.Client(raw, secure)
	if err = conn.HandshakeContext(ctx); err == nil && conn.ConnectionState().NegotiatedProtocol != "h2" {
		err = errHTTP1
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// transport returns the transport for a request of by.
func (h *http2Transports) transport(by Peer, c *Config) *http.Transport {
	if by.Use == Held {
		return h.fresh
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	own := h.owners[by.Owner]
	if own == nil {
		if len(h.owners) >= h.max {
			h.forgetOldest()
		}
		own = &ownerTransports{plain: h.kept(c.ResponseTimeout), calls: h.kept(c.CallTimeout)}
		//mutate:swap "by.Owner" `""` internal/mcphttp.TestPrincipalsUseSeparateHTTP2Connections principals share a connection of HTTP/2
		h.owners[by.Owner] = own
	}
	own.used = time.Now()
	if by.Use == Call {
		return own.calls
	}
	return own.plain
}

// kept returns a transport that keeps its connection. Timeout limits the time until the head of an
// answer.
func (h *http2Transports) kept(timeout time.Duration) *http.Transport {
	t := h.fresh.Clone()
	t.DisableKeepAlives, t.ResponseHeaderTimeout = false, timeout
	return t
}

// forgetOldest removes the least recently used owner. The caller holds mu.
func (h *http2Transports) forgetOldest() {
	oldest := ""
	for owner, own := range h.owners {
		if first := h.owners[oldest]; first == nil || own.used.Before(first.used) {
			oldest = owner
		}
	}
	h.owners[oldest].closeIdle()
	delete(h.owners, oldest)
}

func (o *ownerTransports) closeIdle() {
	o.plain.CloseIdleConnections()
	o.calls.CloseIdleConnections()
}

// closeIdle closes the idle connections.
func (h *http2Transports) closeIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, own := range h.owners {
		own.closeIdle()
	}
}
