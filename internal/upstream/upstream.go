// Package upstream makes the requests that the gate itself sends to an MCP server: it runs held
// calls, polls and cancels upstream tasks, and lists tools. It builds these messages and reads
// their answers over any transport that implements [Server].
//
// A held call is run by a [Caller], which sends it with the credentials of a client:
//
//	caller := up.Caller(catalog, client, header)
//	outcome, err := caller.Call(ctx, task, outgoing)
package upstream

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Server is a transport to one MCP server.
type Server interface {
	// Send sends a request once and returns the answer as it arrives. The error is an
	// [*UnsentError] if no byte was sent.
	Send(ctx context.Context, r Request) (*Response, error)
}

// A Request is a message that the gate makes itself, or a batch that was held as a whole.
type Request struct {
	Message     *jsonrpc.Message // the message, or one of the batch
	Body        []byte           // the bytes to send
	Credentials Credentials
	Stream      bool // the answer is an open-ended event stream

	Forwarded bool // the message comes from the client, unchanged
}

// Credentials are the headers with which a request is made for a client. They hold nothing else of
// the client: the approver of a held call saw neither the other headers nor the query, and either
// could change what the call does.
type Credentials struct {
	Header     http.Header              // the session, the protocol version and the credentials
	Principal  string                   // see [catalog.PrincipalIn]; empty for an anonymous client
	Owner      string                   // the owner of the connections to use; see [catalog.OwnerIn]
	Definition func(tool string) []byte // returns the definition of a tool whose arguments are repeated in headers; may be nil
}

// A Response is the answer of a server. Body must be closed.
type Response struct {
	Status int  // the HTTP status
	Events bool // Body is an event stream; otherwise it is one JSON text
	Body   io.ReadCloser

	Session string // the id of a session that begins with the answer, or empty

	InSession bool     // the request is legacy and named a session
	Challenge []string // the values of WWW-Authenticate
}

// refusal returns the refusal of the session or credentials of the request, or nil. A refused
// request has not run unless the body has a result: in a session, 404 means only that the session
// is unknown. 403 is a refusal of credentials if it asks for more scopes.
func (r *Response) refusal() *approval.Refusal {
	refused := &approval.Refusal{Status: r.Status, Challenge: r.Challenge, Reason: "the server no longer accepts the session or the credentials of this client: sign in again"}
	switch {
	//mutate:swap " && r.InSession" "" internal/mcphttp.TestNotFoundWithoutSessionUsesUpApproval an approval is kept after any 404
	case r.Status == http.StatusUnauthorized || r.Status == http.StatusNotFound && r.InSession:
		return refused
	//mutate:swap "oauth.NeedsSignIn(r.Status, r.Challenge)" "true" internal/mcphttp.TestForbiddenUsesUpApproval an approval is kept after any 403
	case r.Status == http.StatusForbidden && oauth.NeedsSignIn(r.Status, r.Challenge):
		refused.Reason = "the server wants credentials with more rights for it: sign in again"
		return refused
	default:
		return nil
	}
}

// An UnsentError is the failure of a request of which no byte was sent.
type UnsentError struct{ Cause error }

// Error implements error.
func (e *UnsentError) Error() string { return "not sent: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *UnsentError) Unwrap() error { return e.Cause }

// A Config configures an [Upstream].
type Config struct {
	Name         string
	Server       Server
	Sessions     *Sessions     // may be nil
	AnswerLimit  AnswerLimit   // for answers that are read into memory
	ListTimeout  time.Duration // for one page of a list; 30 s if zero
	ToolsTimeout time.Duration // for the whole tool list; 30 s if zero
	StartTimeout time.Duration // how long the server may take to start; zero for one that is not a program
	ToolsPages   int           // maximum pages of the tool list; 100 if zero
	MaxTaskTTL   time.Duration // maximum TTL to ask for upstream tasks; 0 means that of the held task
	Log          *slog.Logger
	Metrics      *metrics.Metrics // may be nil
	Tracing      *tracing.Tracing // may be nil
}

// An Upstream makes the gate's requests to one MCP server.
type Upstream struct{ cfg Config }

// New returns the upstream that cfg describes.
func New(cfg Config) *Upstream {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.ListTimeout = cmp.Or(cfg.ListTimeout, 30*time.Second)
	cfg.ToolsTimeout = cmp.Or(cfg.ToolsTimeout, 30*time.Second)
	cfg.ToolsPages = cmp.Or(cfg.ToolsPages, 100)
	return &Upstream{cfg: cfg}
}

// Name returns the name of the upstream.
func (u *Upstream) Name() string { return u.cfg.Name }

// Caller returns a caller that makes requests for a client with the given headers.
func (u *Upstream) Caller(g *catalog.Catalog, from catalog.Client, header http.Header) *Caller {
	return &Caller{upstream: u, catalog: g, client: from, credentials: Credentials{Header: header, Principal: catalog.PrincipalIn(from.Key), Owner: catalog.OwnerIn(from.Key), Definition: func(name string) []byte {
		tool, _ := g.Tool(from, name)
		return tool.Mirrored
	}}}
}

// Sender returns a sender that runs the call of t with the credentials from configuration and not
// those of a client. It keeps only the session of t's owner.
func (u *Upstream) Sender(t task.Task, g *catalog.Catalog) approval.Sender {
	from := catalog.Client{Upstream: u.cfg.Name, Key: cmp.Or(approval.PeerOf(t), strings.TrimPrefix(t.Owner, u.cfg.Name+" "))}
	header := make(http.Header)
	if session, ok := catalog.SessionIn(from.Key); ok {
		header.Set("Mcp-Session-Id", session)
		header.Set("Mcp-Protocol-Version", mcp.Version20251125) // the only version that has both sessions and tasks
	}
	caller := u.Caller(g, from, header)
	caller.OwnedBy(t.Group)
	return caller
}
