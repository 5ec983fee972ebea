// Package httpclient is the client side of Streamable HTTP: it sends requests to the MCP server
// behind the gate.
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
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/http1"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// Credentials returns the names of the headers that hold a client's credentials.
func (c *Client) Credentials() []string {
	if c.cfg.CredentialHeaders == nil {
		return DefaultCredentials()
	}
	return c.cfg.CredentialHeaders
}

// IsCredential reports whether a header holds credentials of a client, or is set by configuration.
func (c *Client) IsCredential(name string) bool {
	return slices.Contains(c.Credentials(), name) || slices.Contains(DefaultCredentials(), name) || c.cfg.Headers[name] != nil
}

// A Client reaches one MCP server over Streamable HTTP.
type Client struct {
	cfg         Config
	upstream    *upstream.Upstream
	answerLimit upstream.AnswerLimit // for answers that are read into memory
	uri         string               // the path and query of the server's URL
	address     serverAddress
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	network     *network // nil if cfg.Transport is set
}

// New returns a client of the server that cfg names.
func New(cfg Config) *Client {
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: 15 * time.Second}
	if cfg.Connections == nil {
		cfg.Connections = NewConnections(0)
	}
	c := &Client{cfg: cfg, answerLimit: upstream.NewAnswerLimit(), dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		return cfg.Connections.dial(ctx, func(ctx context.Context) (net.Conn, error) {
			if cfg.Dial != nil {
				return cfg.Dial(ctx)
			}
			return dialer.DialContext(ctx, network, address)
		})
	}}
	if cfg.URL != nil {
		c.uri = cfg.URL.RequestURI()
		c.address = addressOf(cfg.URL)
	}
	if cfg.Transport == nil && cfg.URL != nil {
		c.network = newNetwork(&c.cfg, c.address, c.dial)
	}
	cfg.Connections.onShortage(c.Close)
	c.upstream = upstream.New(upstream.Config{
		Name: cfg.Name, Server: c, AnswerLimit: c.answerLimit, ListTimeout: cfg.ResponseTimeout, ToolsTimeout: cfg.ToolsTimeout, ToolsPages: cfg.ToolsPages,
		StartTimeout: cfg.StartTimeout, MaxTaskTTL: cfg.MaxTaskTTL, Sessions: cfg.Sessions,
		Log: cfg.Log, Metrics: cfg.Metrics, Tracing: cfg.Tracing,
	})
	return c
}

// Name returns the name of the server.
func (c *Client) Name() string { return c.cfg.Name }

// Server distinguishes servers with the same name at different gates, and may be empty.
func (c *Client) Server() string { return c.cfg.Server }

// Host returns the host, and the port if it is given, of the server's URL.
func (c *Client) Host() string { return c.cfg.URL.Host }

// ForwardsCredential reports whether the server also gets a credential by which the gate
// authenticated the client.
func (c *Client) ForwardsCredential() bool { return c.cfg.ForwardCredential }

// Upstream makes the requests of the gate itself.
func (c *Client) Upstream() *upstream.Upstream { return c.upstream }

// AnswerLimit limits the large answers of the server that are in memory.
func (c *Client) AnswerLimit() upstream.AnswerLimit { return c.answerLimit }

// Close closes the idle connections.
func (c *Client) Close() {
	if c.network != nil {
		c.network.closeIdle()
	}
}

// ReadTimeout returns how long the server may be silent.
func (c *Client) ReadTimeout(use Use) time.Duration {
	if use == Call {
		return c.cfg.CallTimeout
	}
	return c.cfg.ResponseTimeout
}

// headTimeout limits the time until the head of an answer. Only its context limits a held call.
func (c *Client) headTimeout(use Use) time.Duration {
	if use == Held {
		return 0
	}
	return c.ReadTimeout(use)
}

// Send implements [upstream.Server].
func (c *Client) Send(ctx context.Context, r upstream.Request) (*upstream.Response, error) {
	header, err := headerOf(r.Message, r.Credentials)
	if err != nil {
		return nil, &upstream.UnsentError{Cause: err}
	}
	body := continueTrace(ctx, header, r.Message, r.Body)
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	use := useOf(r)
	measurement := c.Measure()
	resp, err := c.Do(traced, Peer{Use: use, Principal: r.Credentials.Principal, Owner: r.Credentials.Owner}, &http.Request{Method: http.MethodPost, URL: new(url.URL), Header: header}, body)
	if err != nil {
		measurement.End(OutcomeOf(err))
		if !connected.Load() {
			err = &upstream.UnsentError{Cause: err}
		}
		return nil, err
	}
	if problem := CheckResponse(resp); problem != nil {
		measurement.End(metrics.Error)
		_ = resp.Body.Close()
		return nil, &approval.SendError{Stage: lifecycle.StageUpstreamInvalid, Ran: task.RanUnknown, Err: problem}
	}
	//mutate:drop internal/upstream/httplink.TestSilentServerTimesOut an answer over HTTP may stop in the middle forever
	resp.Body = c.AnswerBody(r, resp.Body)
	if r.Stream {
		measurement.End(OutcomeOfStatus(resp.StatusCode)) // the client decides when the stream ends
	} else {
		resp.Body = &countedBody{ReadCloser: resp.Body, status: resp.StatusCode, measurement: measurement}
	}
	return &upstream.Response{
		Status: resp.StatusCode, Events: MediaType(resp.Header.Get("Content-Type")) == "text/event-stream", Body: resp.Body,
		//mutate:swap " && mcp.EraOf(r.Message) == mcp.Legacy" "" internal/mcphttp.TestModernNotFoundKeepsSession an approval is kept after a 404 that does not concern a session
		Session: resp.Header.Get("Mcp-Session-Id"), InSession: header.Get("Mcp-Session-Id") != "" && mcp.EraOf(r.Message) == mcp.Legacy, Challenge: resp.Header["Www-Authenticate"],
	}, nil
}

// useOf returns the use of a request.
func useOf(r upstream.Request) Use {
	switch {
	case r.Stream:
		return Stream
	case !r.Forwarded:
		return Held
	case r.Message.Method == mcpname.ToolsCall:
		return Call
	default:
		return Plain
	}
}

// Do sends the request r of the client by with the given body. It runs at most once. The error
// is a [*mcp.Problem], or that of a context that is done.
func (c *Client) Do(ctx context.Context, by Peer, r *http.Request, body []byte) (resp *http.Response, err error) {
	if c.cfg.Tokens != nil {
		resp, err = c.sendWithToken(ctx, by, r, body)
	} else {
		resp, err = c.send(ctx, by, r, c.cfg.Headers, body)
	}
	return resp, upstreamProblem(ctx, err)
}

// send sends a request at most once, with extra headers.
func (c *Client) send(ctx context.Context, by Peer, r *http.Request, extra http.Header, body []byte) (*http.Response, error) {
	target, uri := c.cfg.URL, c.uri
	if r.URL.RawQuery != "" {
		with := *target
		with.RawQuery = c.query(r.URL.RawQuery)
		target, uri = &with, with.RequestURI()
	}
	byTransport := func() (*http.Response, error) {
		return c.viaTransport(ctx, by, &http.Request{Method: r.Method, URL: target, Header: c.header(r.Header, extra), Host: c.address.host, Body: http.NoBody}, body)
	}
	if c.network == nil {
		return byTransport()
	}
	return c.network.do(ctx, by.Use, &http1.Request{
		Owner: by.Owner, Method: r.Method, Target: uri, Header: r.Header, Omit: c.omits, Extra: extra,
		Body: body, Timeout: c.headTimeout(by.Use), Fresh: by.Use == Held,
	}, byTransport)
}

// viaTransport sends a request with an HTTP/2 or configured transport.
func (c *Client) viaTransport(ctx context.Context, by Peer, r *http.Request, body []byte) (*http.Response, error) {
	out := r.WithContext(ctx)
	if len(body) > 0 {
		// Without GetBody a transport cannot send the body twice.
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		if len(body) > upstream.PieceSize {
			// The transport keeps the request until the answer ends. A MultiReader drops the
			// body once it was read. Small bodies must keep their type: the transport sends
			// those together with the headers.
			out.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body)))
		}
	}
	return c.roundTrip(out, by)
}

// query returns the query for the server: that of its URL, followed by the parameters of the
// client's query that configuration forwards. The URL's own parameters take precedence.
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

// NeverForwarded reports whether a header with this canonical name is never forwarded. Most such
// headers are for one connection only, or describe how the message is sent. Without
// Accept-Encoding, servers do not compress answers, which the gate may have to read.
func NeverForwarded(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings", "Content-Length", "Expect", "Host", "Accept-Encoding":
		return true
	default:
		return false
	}
}

// omits reports whether a header of a client is not forwarded.
func (c *Client) omits(name string) bool {
	_, replaced := c.cfg.Headers[name]
	return replaced || NeverForwarded(name) || name == "Authorization" && !c.cfg.ForwardAuthorization
}

// header returns the headers to send, given those of a client, and those that are added.
func (c *Client) header(from, extra http.Header) http.Header {
	to := make(http.Header, len(from)+len(extra)+1)
	for name, values := range from {
		if !c.omits(name) {
			to[name] = values
		}
	}
	maps.Copy(to, extra)
	if _, ok := to["User-Agent"]; !ok {
		to["User-Agent"] = nil // keeps the transport from adding its own
	}
	return to
}

// upstreamProblem returns the problem that a failed request is for a client. Only a failure to
// connect proves that nothing was sent.
func upstreamProblem(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if known, ok := errors.AsType[*mcp.Problem](err); ok {
		return known
	}
	problem := &mcp.Problem{Type: mcp.UpstreamInvalid, Cause: err}
	if neverConnected(err) {
		problem.Type = mcp.UpstreamDown
	} else if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		problem.Type = mcp.UpstreamTimeout
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

// roundTrip sends a request and waits for the head of the answer.
func (c *Client) roundTrip(r *http.Request, by Peer) (*http.Response, error) {
	if c.cfg.Transport == nil {
		return c.network.http2.transport(by, &c.cfg).RoundTrip(r)
	}
	if by.Use == Held || by.Use == Stream {
		return c.cfg.Transport.RoundTrip(r, by)
	}
	ctx, cancel := context.WithCancel(r.Context())
	slow := time.AfterFunc(c.ReadTimeout(by.Use), cancel)
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

// CredentialsOf returns the headers of a client that a held call is sent with: the session, the
// protocol version and the configured credential headers.
func (c *Client) CredentialsOf(contact http.Header) http.Header {
	named := c.Credentials()
	header := make(http.Header)
	for _, name := range append([]string{"Mcp-Session-Id"}, named...) {
		if values := contact[name]; values != nil {
			header[name] = slices.Clone(values)
		}
	}
	if version := contact.Get("Mcp-Protocol-Version"); slices.Contains(mcp.Versions(), version) {
		header.Set("Mcp-Protocol-Version", version)
	}
	return header
}

// Measure starts to measure a request to the server.
func (c *Client) Measure() Measurement {
	return Measurement{metrics: c.cfg.Metrics, sent: time.Now()}
}
