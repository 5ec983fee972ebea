package mcphttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// UpstreamConfig says how to reach one MCP server.
type UpstreamConfig struct {
	Name                 string
	URL                  *url.URL
	Headers              http.Header // sent with every request, in place of the client's
	ForwardAuthorization bool        // send the client's Authorization header on
	ForwardCredential    bool        // even one by which the gate recognised the client
	CredentialHeaders    []string    // that a held call takes of the client that is there; see [DefaultCredentials]
	ForwardQuery         []string    // names in the client's query that are sent on
	TLS                  *tls.Config
	ConnectTimeout       time.Duration
	ResponseTimeout      time.Duration // until the headers of a response, and between pieces of a body
	CallTimeout          time.Duration // the same for calls of tools
	ToolsTimeout         time.Duration // until all tools were listed, when the gate asks for them; 30 s if zero
	ToolsPages           int           // how many pages of their list are read; 100 if zero
	IdleTimeout          time.Duration // how long an unused connection is kept
	MaxIdle              int           // how many are
	Connections          *Connections  // shared by all upstreams; nil means any number
	Log                  *slog.Logger
	Metrics              *metrics.Metrics // nil counts nothing
	Tracing              *tracing.Tracing // nil traces nothing
}

// DefaultCredentials returns the headers that hold the credentials of a client
// if nothing else is said.
func DefaultCredentials() []string { return []string{"Authorization", "X-Api-Key", "Cookie"} }

// credentials returns the headers that hold a client's credentials.
func (u *Upstream) credentials() []string {
	if u.cfg.CredentialHeaders == nil {
		return DefaultCredentials()
	}
	return u.cfg.CredentialHeaders
}

// An Upstream is the MCP server behind the gate.
type Upstream struct {
	cfg       UpstreamConfig
	transport *http.Transport
	calls     *http.Transport // for calls of tools
	patient   *http.Transport // for held calls: limited by their context alone, and each on a connection of its own
	room      readingRoom     // for answers that the gate has to see as a whole
	streams   *http.Transport // for streams, most of which are idle, so with small buffers
}

// NewUpstream returns a client of the server that cfg names.
func NewUpstream(cfg UpstreamConfig) *Upstream {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.ToolsTimeout = cmp.Or(cfg.ToolsTimeout, 30*time.Second)
	cfg.ToolsPages = cmp.Or(cfg.ToolsPages, 100)
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 15 * time.Second}
	if cfg.Connections == nil {
		cfg.Connections = NewConnections(0)
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := cfg.Connections.dial(ctx, func(ctx context.Context) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		})
		if err != nil {
			return nil, err
		}
		return &promptConn{Conn: conn, timeout: cfg.ResponseTimeout}, nil
	}
	u := &Upstream{cfg: cfg, room: newReadingRoom(), transport: &http.Transport{
		DialContext:           dial,
		TLSClientConfig:       cfg.TLS,
		TLSHandshakeTimeout:   cfg.ConnectTimeout,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // what the gate may have to read comes as it is
		MaxIdleConns:          cfg.MaxIdle,
		MaxIdleConnsPerHost:   cfg.MaxIdle,
		IdleConnTimeout:       cfg.IdleTimeout,
		ResponseHeaderTimeout: cfg.ResponseTimeout,
	}}
	u.calls = u.transport.Clone()
	u.calls.ResponseHeaderTimeout = cfg.CallTimeout
	u.patient = u.transport.Clone()
	u.patient.ResponseHeaderTimeout = 0
	// Nobody can tell whether a kept connection still works until something was
	// sent on it, and then the call must not be sent again.
	u.patient.DisableKeepAlives = true
	u.streams = u.transport.Clone()
	u.streams.ReadBufferSize, u.streams.WriteBufferSize = 2<<10, 1<<10
	cfg.Connections.onShortage(u.Close)
	return u
}

// Close closes the connections that are not in use.
func (u *Upstream) Close() {
	u.transport.CloseIdleConnections()
	u.calls.CloseIdleConnections()
	u.patient.CloseIdleConnections()
	u.streams.CloseIdleConnections()
}

// A promptConn gives up on a peer that does not take what is written.
// [http.Transport] has a limit for every other wait.
type promptConn struct {
	net.Conn

	timeout time.Duration
	unread  atomic.Int64 // bytes written since the peer last said anything
	limited bool         // a deadline is set; only for the one goroutine that writes
}

// certainRoom is how much fits into the buffers between two peers even if the
// other one does not read, so that writing it cannot block.
const certainRoom = 16 << 10

// Read implements [net.Conn].
func (c *promptConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.unread.Store(0)
	}
	return n, err
}

// Write implements [net.Conn].
func (c *promptConn) Write(p []byte) (int, error) {
	risky := c.unread.Add(int64(len(p))) > certainRoom
	if risky || c.limited {
		var deadline time.Time
		if risky {
			deadline = time.Now().Add(c.timeout)
		}
		if err := c.SetWriteDeadline(deadline); err != nil {
			return 0, err
		}
		c.limited = risky
	}
	return c.Conn.Write(p)
}

// way returns the connections that suit an exchange, and how long the upstream
// may be silent on them.
func (u *Upstream) way(x *exchange) (*http.Transport, time.Duration) {
	switch {
	case x.r.Method == http.MethodGet:
		return u.streams, u.cfg.ResponseTimeout
	case x.label == "tools/call":
		return u.calls, u.cfg.CallTimeout
	default:
		return u.transport, u.cfg.ResponseTimeout
	}
}

// sendBy makes the request r, which came from a client, with the given body. It
// is never repeated once a byte of it was sent. The error is a [*wire.Problem],
// or that of a context which is done.
func (u *Upstream) sendBy(ctx context.Context, transport *http.Transport, r *http.Request, body []byte) (*http.Response, error) {
	target := *u.cfg.URL
	if r.URL.RawQuery != "" {
		target.RawQuery = u.query(r.URL.RawQuery)
	}
	out := (&http.Request{
		Method: r.Method,
		URL:    &target,
		Header: u.header(r.Header),
		Host:   target.Host,
		Body:   http.NoBody,
	}).WithContext(ctx)
	if len(body) > 0 {
		// A body without GetBody cannot be sent twice, whatever headers the
		// client chose.
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := transport.RoundTrip(out)
	if err != nil {
		return nil, upstreamProblem(ctx, err)
	}
	return resp, nil
}

// query returns what the upstream gets of a client's query: what configuration
// names of it, after the query of the upstream's own URL, which always wins.
func (u *Upstream) query(fromClient string) string {
	given, err := url.ParseQuery(fromClient)
	if err != nil || len(u.cfg.ForwardQuery) == 0 {
		return u.cfg.URL.RawQuery
	}
	fixed, passed := u.cfg.URL.Query(), make(url.Values)
	for _, name := range u.cfg.ForwardQuery {
		if values := given[name]; values != nil && !fixed.Has(name) {
			passed[name] = values
		}
	}
	if u.cfg.URL.RawQuery == "" || len(passed) == 0 {
		return u.cfg.URL.RawQuery + passed.Encode()
	}
	return u.cfg.URL.RawQuery + "&" + passed.Encode()
}

// hopByHop are the headers that concern one connection only, and those that
// the transport sets itself.
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Proxy-Authenticate": true,
	"Proxy-Authorization": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Content-Length": true, "Expect": true, "Host": true, "Accept-Encoding": true,
}

// header returns what the upstream gets of a client's headers.
func (u *Upstream) header(from http.Header) http.Header {
	to := make(http.Header, len(from)+len(u.cfg.Headers)+1)
	copyEndToEnd(to, from)
	if !u.cfg.ForwardAuthorization {
		delete(to, "Authorization")
	}
	maps.Copy(to, u.cfg.Headers)
	if _, ok := to["User-Agent"]; !ok {
		to["User-Agent"] = nil // keeps the transport from adding its own
	}
	return to
}

// copyEndToEnd copies all headers but those that concern one connection only.
func copyEndToEnd(to, from http.Header) {
	named := from["Connection"]
	for name, values := range from {
		if !hopByHop[name] && (named == nil || !namedIn(named, name)) {
			to[name] = values
		}
	}
}

func namedIn(lines []string, name string) bool {
	for _, line := range lines {
		for token := range strings.SplitSeq(line, ",") {
			if textproto.CanonicalMIMEHeaderKey(textproto.TrimString(token)) == name {
				return true
			}
		}
	}
	return false
}

// upstreamProblem says what err, the failure of a request, means to a client.
// Only a failure to connect proves that nothing was sent.
func upstreamProblem(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if known, ok := errors.AsType[*wire.Problem](err); ok {
		return known
	}
	problem := &wire.Problem{Type: wire.UpstreamInvalid, Cause: err}
	if neverConnected(err) {
		problem.Type = wire.UpstreamDown
	} else if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		problem.Type = wire.UpstreamTimeout
	}
	return problem
}

func neverConnected(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted
}
