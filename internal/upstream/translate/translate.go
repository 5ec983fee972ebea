// Package translate lets clients and servers of different eras of MCP work together: legacy, with
// initialize and sessions, and modern, with requests that stand alone. A [Translator] is the
// transport of an [httpclient.Client]. It finds out what the server speaks, passes on requests of
// that era unchanged, and translates others in both directions. Neither the client nor the packages
// that judge and hold calls know of it.
//
// A modern client of a legacy server shares the sessions that the Translator begins (session.go). The
// server's questions end the answer with input_required, and wait for the client's next request
// (parked.go). A legacy client of a modern server gets a session of the Translator
// (legacysession.go), and questions as requests in its stream (rounds.go). Tasks have files of their
// own (legacytasks.go, moderntasks.go).
package translate

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// A Config configures a [Translator].
type Config struct {
	Name       string             // of the upstream
	Client     *httpclient.Client // reaches the server
	Program    bool               // the server is a program
	Sessions   *upstream.Sessions // keeps the sessions of legacy clients
	MaxMessage int                // the most bytes of one message of the server
	Depth      int                // the deepest nesting of a message of a client
	Patience   time.Duration      // how long a server waits for the answer to a question
}

// A Translator reaches one MCP server. It implements [httpclient.Transport].
type Translator struct {
	cfg    Config
	server serverEra

	sessions  *sessions
	parked    *parkedCalls
	attended  *attended
	finished  *finishedCalls
	rounds    *openRounds
	tools     tools
	ctx       context.Context // ends with the Translator
	stop      context.CancelFunc
	following sync.WaitGroup // goroutines
}

// New returns a translator for the server of cfg.
func New(cfg Config) *Translator {
	ctx, stop := context.WithCancel(context.Background())
	t := &Translator{cfg: cfg, ctx: ctx, stop: stop, rounds: newOpenRounds()}
	t.sessions, t.parked = newSessions(t), newParkedCalls(cfg.Patience)
	t.attended, t.finished = newAttended(cfg.Patience), newFinishedCalls(cfg.Patience)
	return t
}

// Reach implements [httpclient.Transport].
func (t *Translator) Reach(ctx context.Context) error { return t.cfg.Client.Reach(ctx) }

// Close ends the sessions and the streams of the translator.
func (t *Translator) Close() {
	t.sessions.close()
	t.stop()
	t.parked.close()
	t.following.Wait()
}

// ownSession is the prefix of the sessions of legacy clients with a modern server.
const ownSession = "translated-"

// RoundTrip implements [httpclient.Transport].
func (t *Translator) RoundTrip(r *http.Request, by httpclient.Peer) (*http.Response, error) {
	x := &exchange{t: t, http: r, by: by, takesEvents: strings.Contains(strings.Join(r.Header["Accept"], ","), "text/event-stream")}
	var err error
	if x.body, err = io.ReadAll(r.Body); err != nil {
		return nil, err
	}
	x.inOwn = strings.HasPrefix(r.Header.Get("Mcp-Session-Id"), ownSession)
	switch {
	case r.Method == http.MethodPost:
		return x.message()
	case x.inOwn:
		return x.besidesPosts()
	default:
		return x.pass()
	}
}

// message serves a POST.
func (x *exchange) message() (*http.Response, error) {
	packet, err := jsonrpc.Parse(x.body, jsonrpc.Limits{Depth: x.t.cfg.Depth})
	if err != nil {
		return nil, &mcp.Problem{Type: mcp.InvalidRequest, Cause: err}
	}
	x.m = &packet.Messages[0]
	client := x.clientEra()
	if client == mcp.Legacy && !x.inOwn && (packet.Batch || x.m.Method != mcpname.Initialize) {
		return x.pass() // in a session with a legacy server
	}
	server, refusal, err := x.t.eraOf(x)
	if err != nil || refusal != nil {
		return refusal, err
	}
	if packet.Batch && client == mcp.Legacy && server == mcp.Modern {
		return x.batch(packet.Messages)
	}
	return x.between(client, server)
}

// clientEra returns the era of the client. The metadata of notifications need not name the version.
func (x *exchange) clientEra() mcp.Era {
	if x.m.Kind == jsonrpc.Notification && x.http.Header.Get("Mcp-Protocol-Version") == mcp.Version20260728 {
		return mcp.Modern
	}
	return mcp.EraOf(x.m)
}

// between serves a message of a client of one era for a server of the same or another.
func (x *exchange) between(client, server mcp.Era) (*http.Response, error) {
	switch {
	case client == mcp.Modern && server == mcp.Legacy:
		return x.modernToLegacy()
	case client == mcp.Legacy && server == mcp.Modern:
		return x.legacyToModern()
	case x.inOwn:
		return nothing(http.StatusNotFound), nil // the server speaks the client's era now
	default:
		return x.pass()
	}
}

// An exchange is one HTTP request of a client.
type exchange struct {
	t           *Translator
	http        *http.Request
	by          httpclient.Peer
	body        []byte
	m           *jsonrpc.Message // of a POST
	takesEvents bool             // the answer may be an event stream
	inOwn       bool             // the request names a session of the translator
}

// pass sends the request unchanged.
func (x *exchange) pass() (*http.Response, error) {
	resp, err := x.t.cfg.Client.Do(x.http.Context(), x.by, x.http, x.body)
	if err == nil && x.m != nil && x.m.Method == mcpname.Initialize {
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
			x.t.cfg.Client.BeginSession(x.http.Context(), x.by.Principal, id)
		}
	}
	return resp, err
}

// credentials returns the headers of the client that do not depend on the message.
func (x *exchange) credentials() http.Header {
	header := make(http.Header)
	for name, values := range x.http.Header {
		switch {
		case strings.HasPrefix(name, "Mcp-"), strings.HasPrefix(name, "Content-"), name == "Accept", name == "Last-Event-Id", name == "Traceparent":
		default:
			header[name] = values
		}
	}
	return header
}

// post sends a message to the server, with the given headers.
func (t *Translator) post(ctx context.Context, by httpclient.Peer, header http.Header, body []byte) (*http.Response, error) {
	header = header.Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	resp, err := t.cfg.Client.Do(ctx, by, &http.Request{Method: http.MethodPost, URL: newURL(), Header: header}, body)
	if err != nil {
		return nil, err
	}
	if problem := httpclient.CheckResponse(resp); problem != nil {
		_ = resp.Body.Close()
		return nil, problem
	}
	return resp, nil
}

// modernMeta returns the metadata of a modern request of a client, besides what params already has.
func modernMeta(capabilities, info []byte, level string) []jsonrpc.Member {
	members := []jsonrpc.Member{
		{Name: mcpname.MetaProtocolVersion, JSON: jsonrpc.AppendString(nil, mcp.Version20260728)},
		{Name: mcpname.MetaClientCapabilities, JSON: capabilities},
	}
	if info != nil {
		members = append(members, jsonrpc.Member{Name: mcpname.MetaClientInfo, JSON: info})
	}
	if level != "" {
		members = append(members, jsonrpc.Member{Name: metaLogLevel, JSON: jsonrpc.AppendString(nil, level)})
	}
	return members
}

const metaLogLevel = "io.modelcontextprotocol/logLevel"

// answer returns a response with one message.
func answer(status int, message []byte) *http.Response {
	resp := nothing(status)
	setMessage(resp, message)
	return resp
}

// setMessage makes a message the body of a response.
func setMessage(resp *http.Response, message []byte) {
	resp.Header.Set("Content-Type", "application/json")
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(message)), int64(len(message))
}

// answerResult returns the response to the request with a result.
func (x *exchange) answerResult(result []byte) *http.Response {
	return answer(http.StatusOK, jsonrpc.AppendResult(nil, x.m.ID.Bytes, result))
}

// answerUnknown returns the response to a request with a method that the era does not have.
func (x *exchange) answerUnknown(status int) *http.Response {
	return answer(status, jsonrpc.AppendErrorResponse(nil, x.m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}))
}

// nothing returns a response without a body.
func nothing(status int) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody, ContentLength: 0,
	}
}

// events returns a response with an event stream.
func events(body io.ReadCloser) *http.Response {
	resp := nothing(http.StatusOK)
	resp.Header.Set("Content-Type", "text/event-stream")
	resp.Header.Set("Cache-Control", "no-store")
	resp.Body, resp.ContentLength = body, -1
	return resp
}
