// Package upstream is what the gate itself asks of the MCP server behind it: to
// make a held call, to say how a task of its own stands, to list its tools. It
// builds the gate's own messages and reads their answers, over any transport.
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
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Server is one MCP server, over the transport that reaches it.
type Server interface {
	// Send sends a request and returns the answer as it arrives. It never
	// repeats a request. The error is an [*UnsentError] if no byte was sent.
	Send(ctx context.Context, r Request) (*Response, error)
}

// A Request is a message of the gate's own, or a batch that was held as a whole.
type Request struct {
	Message *jsonrpc.Message // the message, or one of the batch
	Body    []byte           // what is sent
	As      Credentials
	Stream  bool // the answer is a stream without an end of its own

	Forwarded bool // it is a message of the client's, as it came
}

// Credentials are in whose name a request is made: the credentials of a client,
// and nothing else of it. The approver of a held call saw neither the client's
// other headers nor its query, and either could change what the call does.
type Credentials struct {
	Header     http.Header              // the session, the protocol version and the credentials
	Principal  string                   // who the client is, as [gate.PrincipalIn] says; empty for an anonymous one
	Definition func(tool string) []byte // the definition of a tool some of whose arguments headers repeat; may be nil
}

// A Response is what a server answers. Body must be closed.
type Response struct {
	Status int  // as of HTTP
	Events bool // Body is a stream of events, and else one JSON text
	Body   io.ReadCloser

	Session string // that the server begins, if it does
}

// An UnsentError is the failure of a request of which no byte was sent.
type UnsentError struct{ Cause error }

// Error implements error.
func (e *UnsentError) Error() string { return "not sent: " + e.Cause.Error() }

// Unwrap returns the cause of e.
func (e *UnsentError) Unwrap() error { return e.Cause }

// Config is what an [Upstream] is made of.
type Config struct {
	Name         string
	Server       Server
	Room         Room          // for answers that are read as a whole
	ListTimeout  time.Duration // until a page of a list was answered; 30 s if zero
	ToolsTimeout time.Duration // until all tools were listed; 30 s if zero
	ToolsPages   int           // how many pages of their list are read; 100 if zero
	MaxTaskTTL   time.Duration // how long its tasks are asked to live at most; 0 means as long as the gate's own
	Log          *slog.Logger
	Metrics      *metrics.Metrics // nil counts nothing
	Tracing      *tracing.Tracing // nil traces nothing
}

// An Upstream is the MCP server behind the gate.
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

// Caller returns what makes requests in the name of a client, with the given
// headers.
func (u *Upstream) Caller(g *gate.Gate, from gate.Client, header http.Header) *Caller {
	return &Caller{upstream: u, gate: g, from: from, as: Credentials{Header: header, Principal: gate.PrincipalIn(from.Key), Definition: func(name string) []byte {
		tool, _ := g.Tool(from, name)
		return tool.Mirrored
	}}}
}

// Sender returns what makes the call of t with the gate's own credentials, in
// the name of no client. Of t's owner only the session is kept.
func (u *Upstream) Sender(t task.Task, g *gate.Gate) approval.Sender {
	from := gate.Client{Upstream: u.cfg.Name, Key: cmp.Or(approval.PeerOf(t), strings.TrimPrefix(t.Owner, u.cfg.Name+" "))}
	header := make(http.Header)
	if session, ok := gate.SessionIn(from.Key); ok {
		header.Set("Mcp-Session-Id", session)
		header.Set("Mcp-Protocol-Version", wire.Version20251125) // the only one that has both sessions and tasks
	}
	return u.Caller(g, from, header)
}
