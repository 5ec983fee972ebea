// Package mcphttp is MCP over Streamable HTTP, on both sides of the gate:
// [Handler] is the server that agents talk to, [Upstream] the client of the
// server behind it. It moves bytes, and looks into them only where package
// wire says what to look for.
package mcphttp

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Limits bounds what clients can make the gate do.
type Limits struct {
	Requests     int // POST and DELETE requests at a time
	Streams      int // GET streams at a time
	Body         int64
	Parse        jsonrpc.Limits
	ReadTimeout  time.Duration // for a body to arrive
	WriteTimeout time.Duration // for a client to take each piece of an answer
}

// Config is what a [Handler] is made of.
type Config struct {
	Routes  map[string]*Upstream // by path
	Gate    *gate.Gate
	Desk    *approval.Desk // nil if nothing can be held
	Waiting Waiting
	Guard   Guard
	// Identity recognises agents; nil takes all of them for anonymous.
	Identity *identity.Recogniser
	Limits   Limits
	Log      *slog.Logger
	Metrics  *metrics.Metrics // nil counts nothing
	Tracing  *tracing.Tracing // nil traces nothing
}

// A Handler serves MCP endpoints to agents.
type Handler struct {
	cfg       Config
	requests  atomic.Int64
	streams   atomic.Int64
	listeners listeners
	held      heldRequests
	waiters   waiters
	watchers  waiters // of the events of one task
	upstreams subscriptions
	seal      sealer
	drain     context.Context //nolint:containedctx // ends the streams of all requests, and belongs to none
	endAll    context.CancelFunc
}

// NewHandler returns a handler for the endpoints of cfg.
func NewHandler(cfg Config) *Handler {
	h := &Handler{cfg: cfg, seal: newSealer(cfg.Waiting.Key)}
	h.drain, h.endAll = context.WithCancel(context.Background())
	return h
}

// EndStreams ends the streams that would otherwise last as long as their
// clients like. Requests that await an answer go on.
func (h *Handler) EndStreams() {
	h.endAll()
	h.listeners.close()
	h.upstreams.close()
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{h: h, w: w, r: r, control: http.NewResponseController(w), label: r.Method, start: time.Now()}
	defer x.finish()
	x.expectBody()
	if problem := h.cfg.Guard.check(r); problem != nil {
		x.refuse(problem)
		return
	}
	var events string
	var ok bool
	if x.upstream, events, ok = h.route(r.URL.Path); !ok {
		x.refuse(&wire.Problem{Type: wire.NotFound})
		return
	}
	if problem := ambiguous(r.Header); problem != nil {
		x.refuse(problem)
		return
	}
	if problem := x.recognise(); problem != nil {
		x.refuse(problem)
		return
	}
	if events != "" {
		h.within(&h.streams, h.cfg.Limits.Streams, x, func() { x.taskEvents(events) })
		return
	}
	switch r.Method {
	case http.MethodPost:
		h.within(&h.requests, h.cfg.Limits.Requests, x, x.post)
	case http.MethodDelete:
		h.within(&h.requests, h.cfg.Limits.Requests, x, x.delete)
	case http.MethodGet:
		h.within(&h.streams, h.cfg.Limits.Streams, x, x.get)
	default:
		w.Header().Set("Allow", "POST, GET, DELETE")
		x.refuse(&wire.Problem{Type: wire.MethodNotAllowed})
	}
}

// within runs serve if fewer than limit run already, and refuses the exchange
// otherwise, before any of its body was read.
func (h *Handler) within(active *atomic.Int64, limit int, x *exchange, serve func()) {
	defer active.Add(-1)
	if active.Add(1) > int64(limit) {
		x.w.Header().Set("Retry-After", "1")
		x.refuse(&wire.Problem{Type: wire.Overloaded, RetryAfter: 1})
		return
	}
	serve()
}
