// Package httpclient is the client side of Streamable HTTP: it reaches the MCP
// server behind the gate.
package httpclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Credentials returns the headers that hold a client's credentials.
func (c *Client) Credentials() []string {
	if c.cfg.CredentialHeaders == nil {
		return DefaultCredentials()
	}
	return c.cfg.CredentialHeaders
}

// GoesBy reports whether a header is one of a client's credentials, or one that
// configuration sets.
func (c *Client) GoesBy(name string) bool {
	return slices.Contains(c.Credentials(), name) || slices.Contains(DefaultCredentials(), name) || c.cfg.Headers[name] != nil
}

// A Client reaches the MCP server behind the gate over Streamable HTTP.
type Client struct {
	cfg       Config
	asks      *upstream.Upstream
	transport *http.Transport
	calls     *http.Transport // for calls of tools
	patient   *http.Transport // for held calls: limited by their context alone, and each on a connection of its own
	room      upstream.Room   // for answers that the gate has to see as a whole
	streams   *http.Transport // for streams, most of which are idle, so with small buffers
	uri       string          // the path and query of the server's URL
	plain     *plainClients   // for HTTP/1.1, which needs no transport; nil if it does
}

// New returns a client of the server that cfg names.
func New(cfg Config) *Client {
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 15 * time.Second}
	if cfg.Connections == nil {
		cfg.Connections = NewConnections(0)
	}
	counted := func(ctx context.Context, network, address string) (net.Conn, error) {
		return cfg.Connections.dial(ctx, func(ctx context.Context) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		})
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := counted(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &promptConn{Conn: conn, timeout: cfg.ResponseTimeout}, nil
	}
	c := &Client{cfg: cfg, room: upstream.NewRoom(), transport: &http.Transport{
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
	c.calls = c.transport.Clone()
	c.calls.ResponseHeaderTimeout = cfg.CallTimeout
	c.patient = c.transport.Clone()
	c.patient.ResponseHeaderTimeout = 0
	// It is not known whether a kept connection still works until something was
	// sent on it, and then the call must not be sent again.
	c.patient.DisableKeepAlives = true
	c.streams = c.transport.Clone()
	c.streams.ReadBufferSize, c.streams.WriteBufferSize = 2<<10, 1<<10
	c.plain = newPlainClients(&cfg, counted)
	if cfg.URL != nil {
		c.uri = cfg.URL.RequestURI()
	}
	cfg.Connections.onShortage(c.Close)
	c.asks = upstream.New(upstream.Config{
		Name: cfg.Name, Server: c, Room: c.room, ListTimeout: cfg.ResponseTimeout, ToolsTimeout: cfg.ToolsTimeout, ToolsPages: cfg.ToolsPages,
		MaxTaskTTL: cfg.MaxTaskTTL,
		Log:        cfg.Log, Metrics: cfg.Metrics, Tracing: cfg.Tracing,
	})
	return c
}

// Name returns the name of the server.
func (c *Client) Name() string { return c.cfg.Name }

// Host returns the host, and the port if it is given, of the server's URL.
func (c *Client) Host() string { return c.cfg.URL.Host }

// ForwardsCredential reports whether the server gets even the credential by
// which the gate recognised a client.
func (c *Client) ForwardsCredential() bool { return c.cfg.ForwardCredential }

// Upstream returns what the gate itself asks the server with.
func (c *Client) Upstream() *upstream.Upstream { return c.asks }

// Room bounds how many large answers of the server are in memory.
func (c *Client) Room() upstream.Room { return c.room }

// Close closes the connections that are not in use.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	c.calls.CloseIdleConnections()
	c.patient.CloseIdleConnections()
	c.streams.CloseIdleConnections()
	c.plain.closeIdle()
}

// Silence returns how long the server may say nothing.
func (c *Client) Silence(use Use) time.Duration {
	if use == Call {
		return c.cfg.CallTimeout
	}
	return c.cfg.ResponseTimeout
}

// headTimeout returns how long the server may take until the head of its answer.
// A held call is limited by its context alone.
func (c *Client) headTimeout(use Use) time.Duration {
	if use == held {
		return 0
	}
	return c.Silence(use)
}

func (c *Client) transportFor(use Use) *http.Transport {
	switch use {
	case Call:
		return c.calls
	case Stream:
		return c.streams
	case held:
		return c.patient
	default:
		return c.transport
	}
}

// Send implements [upstream.Server].
func (c *Client) Send(ctx context.Context, r upstream.Request) (*upstream.Response, error) {
	header, err := headerOf(r.Message, r.As)
	if err != nil {
		return nil, &upstream.UnsentError{Cause: err}
	}
	body := continueTrace(ctx, header, r.Message, r.Body)
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	use := useOf(r)
	measurement := c.Sending()
	resp, err := c.Do(traced, Peer{Use: use, Principal: r.As.Principal}, &http.Request{Method: http.MethodPost, URL: new(url.URL), Header: header}, body)
	if err != nil {
		measurement.Ended(OutcomeOf(err))
		if !connected.Load() {
			err = &upstream.UnsentError{Cause: err}
		}
		return nil, err
	}
	if problem := Improper(resp); problem != nil {
		measurement.Ended(metrics.Error)
		_ = resp.Body.Close()
		return nil, &approval.SendError{Stage: task.StageUpstreamInvalid, Ran: task.RanUnknown, Err: problem}
	}
	resp.Body = c.AnswerBody(r, resp.Body)
	if r.Stream {
		measurement.Ended(OutcomeOfStatus(resp.StatusCode)) // the time until it ends is the client's choice
	} else {
		resp.Body = &countedBody{ReadCloser: resp.Body, status: resp.StatusCode, measurement: measurement}
	}
	return &upstream.Response{
		Status: resp.StatusCode, Events: MediaType(resp.Header.Get("Content-Type")) == "text/event-stream", Body: resp.Body,
		Session: resp.Header.Get("Mcp-Session-Id"),
	}, nil
}

// useOf returns what a request is for.
func useOf(r upstream.Request) Use {
	switch {
	case r.Stream:
		return Stream
	case !r.Forwarded:
		return held
	case r.Message.Method == "tools/call":
		return Call
	default:
		return Plain
	}
}

// Do makes the request r, which came from the client by, with the given body. It
// is never repeated once a byte of it was sent. The error is a [*wire.Problem],
// or that of a context which is done.
func (c *Client) Do(ctx context.Context, by Peer, r *http.Request, body []byte) (*http.Response, error) {
	target, uri := c.cfg.URL, c.uri
	if r.URL.RawQuery != "" {
		with := *target
		with.RawQuery = c.query(r.URL.RawQuery)
		target, uri = &with, with.RequestURI()
	}
	if c.plain.serves() {
		resp, err := c.plain.do(ctx, by.Use, &http1.Request{
			Method: r.Method, Target: uri, Header: r.Header, Omit: c.omits(r.Header), Extra: c.cfg.Headers,
			Body: body, Timeout: c.headTimeout(by.Use), Fresh: by.Use == held,
		})
		if !errors.Is(err, http1.ErrHTTP2) {
			return resp, upstreamProblem(ctx, err)
		}
	}
	return c.viaTransport(ctx, by, &http.Request{Method: r.Method, URL: target, Header: c.header(r.Header), Host: target.Host, Body: http.NoBody}, body)
}

// viaTransport makes a request that a transport must make.
func (c *Client) viaTransport(ctx context.Context, by Peer, r *http.Request, body []byte) (*http.Response, error) {
	var check earlyCheck
	out := r.WithContext(check.watch(ctx))
	if len(body) > 0 {
		// A body without GetBody cannot be sent twice, whatever headers the
		// client chose.
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if len(body) > upstream.PieceSize {
			out.Body = &largeBody{rest: body}
		}
	}
	resp, err := c.roundTrip(out, by)
	if err != nil {
		return nil, upstreamProblem(ctx, err)
	}
	if check.early.Load() {
		_ = resp.Body.Close()
		return nil, upstreamProblem(ctx, errEarlyAnswer)
	}
	return resp, nil
}

// A largeBody forgets what has been sent of it: the transport keeps the request
// for as long as the answer lasts. Small bodies are sent together with the
// headers, which the transport does only if it knows the type of the reader.
type largeBody struct{ rest []byte }

// Read implements [io.Reader].
func (b *largeBody) Read(p []byte) (int, error) {
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) > 0 {
		return n, nil
	}
	b.rest = nil
	return n, io.EOF
}

// Close implements [io.Closer].
func (b *largeBody) Close() error { return nil }

// query returns what the upstream gets of a client's query: what configuration
// names of it, after the query of the upstream's own URL, which always wins.
func (c *Client) query(fromClient string) string {
	given, err := url.ParseQuery(fromClient)
	if err != nil || len(c.cfg.ForwardQuery) == 0 {
		return c.cfg.URL.RawQuery
	}
	fixed, passed := c.cfg.URL.Query(), make(url.Values)
	for _, name := range c.cfg.ForwardQuery {
		if values := given[name]; values != nil && !fixed.Has(name) {
			passed[name] = values
		}
	}
	if c.cfg.URL.RawQuery == "" || len(passed) == 0 {
		return c.cfg.URL.RawQuery + passed.Encode()
	}
	return c.cfg.URL.RawQuery + "&" + passed.Encode()
}

// isHopByHop reports whether a header concerns one connection only, or is one that
// the transport sets itself.
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Content-Length", "Expect", "Host", "Accept-Encoding":
		return true
	default:
		return false
	}
}

// omits returns what tells which of a client's headers the upstream does not get.
func (c *Client) omits(from http.Header) func(name string) bool {
	named := from["Connection"]
	return func(name string) bool {
		_, replaced := c.cfg.Headers[name]
		return replaced || isHopByHop(name) || named != nil && NamedIn(named, name) || name == "Authorization" && !c.cfg.ForwardAuthorization
	}
}

// header returns what the upstream gets of a client's headers.
func (c *Client) header(from http.Header) http.Header {
	to := make(http.Header, len(from)+len(c.cfg.Headers)+1)
	omit := c.omits(from)
	for name, values := range from {
		if !omit(name) {
			to[name] = values
		}
	}
	maps.Copy(to, c.cfg.Headers)
	if _, ok := to["User-Agent"]; !ok {
		to["User-Agent"] = nil // keeps the transport from adding its own
	}
	return to
}

// NamedIn reports whether the lines of a Connection header name another header,
// which then concerns one connection only.
func NamedIn(lines []string, name string) bool {
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
// Only a failure to connect proves that nothing was sent. No error is no problem.
func upstreamProblem(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
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

// roundTrip sends a request, and waits for the headers of the answer.
func (c *Client) roundTrip(r *http.Request, by Peer) (*http.Response, error) {
	if c.cfg.Transport == nil {
		return c.transportFor(by.Use).RoundTrip(r)
	}
	if by.Use == held || by.Use == Stream {
		return c.cfg.Transport.RoundTrip(r, by)
	}
	ctx, cancel := context.WithCancel(r.Context())
	slow := time.AfterFunc(c.Silence(by.Use), cancel)
	resp, err := c.cfg.Transport.RoundTrip(r.WithContext(ctx), by)
	inTime := slow.Stop()
	if err == nil && inTime {
		resp.Body = &endingBody{ReadCloser: resp.Body, end: cancel}
		return resp, nil
	}
	cancel()
	if err == nil {
		_ = resp.Body.Close()
	}
	if !inTime {
		return nil, os.ErrDeadlineExceeded
	}
	return nil, err
}

// CredentialsOf returns what a held call takes of the headers of a contact: the
// session, the protocol version, and the credentials that configuration names.
func (c *Client) CredentialsOf(contact http.Header) http.Header {
	named := c.Credentials()
	header := make(http.Header)
	for _, name := range append([]string{"Mcp-Session-Id"}, named...) {
		if values := contact[name]; values != nil {
			header[name] = slices.Clone(values)
		}
	}
	if version := contact.Get("Mcp-Protocol-Version"); slices.Contains(wire.Versions(), version) {
		header.Set("Mcp-Protocol-Version", version)
	}
	return header
}

// Sending begins to measure a request to the upstream.
func (c *Client) Sending() Measurement {
	return Measurement{metrics: c.cfg.Metrics, sent: time.Now()}
}
