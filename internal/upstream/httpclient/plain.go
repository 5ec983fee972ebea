package httpclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
)

// streamBuffer is how much is read at a time from a stream, most of which are
// idle.
const streamBuffer = 512

// plainClients speak HTTP/1.1 with the server, for as long as that does not choose
// HTTP/2. Transports do the rest.
type plainClients struct {
	all, streams *http1.Client
	http2        atomic.Bool // the server has chosen HTTP/2
}

// newPlainClients returns clients of the server that cfg names, or nil if a
// transport must be used.
func newPlainClients(cfg *Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) *plainClients {
	if !http1.Supported || cfg.Transport != nil || cfg.URL == nil || !isPlainHost(cfg.URL.Hostname()) {
		return nil
	}
	host, port := cfg.URL.Hostname(), cfg.URL.Port()
	settings := http1.Config{
		Address: net.JoinHostPort(host, cmp.Or(port, map[string]string{"https": "443"}[cfg.URL.Scheme], "80")), Host: cfg.URL.Host,
		Dial: dial, Handshake: cfg.ConnectTimeout, WriteWait: cfg.ResponseTimeout, MaxIdle: cfg.MaxIdle, IdleTimeout: cfg.IdleTimeout,
	}
	if cfg.URL.Scheme == "https" {
		settings.TLS = secured(cfg.TLS, host)
	}
	streams := settings
	streams.ReadBuffer = streamBuffer
	return &plainClients{all: http1.New(settings), streams: http1.New(streams)}
}

// isPlainHost reports whether a host can be named in a request as it is: one in
// letters that are not of ASCII, or with a zone, must be converted.
func isPlainHost(host string) bool {
	return host != "" && !strings.ContainsFunc(host, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("-._:", r)
	})
}

// secured returns the settings for TLS with the given host.
func secured(cfg *tls.Config, host string) *tls.Config {
	if cfg == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	}
	cfg = cfg.Clone()
	cfg.ServerName = cmp.Or(cfg.ServerName, host)
	return cfg
}

// serves reports whether requests need no transport, as far as is known.
func (p *plainClients) serves() bool { return p != nil && !p.http2.Load() }

// do sends a request. The error is [http1.ErrHTTP2] if nothing was sent and a
// transport must be used from now on.
func (p *plainClients) do(ctx context.Context, use Use, r *http1.Request) (*http.Response, error) {
	client := p.all
	if use == Stream {
		client = p.streams
	}
	resp, err := client.Do(ctx, r)
	if errors.Is(err, http1.ErrHTTP2) {
		p.http2.Store(true)
	}
	return resp, err
}

// closeIdle closes the connections that are not in use.
func (p *plainClients) closeIdle() {
	if p != nil {
		p.all.CloseIdle()
		p.streams.CloseIdle()
	}
}
