// Package mcphttp is MCP over Streamable HTTP towards agents: [Handler] is the
// server that they talk to. It moves bytes, and looks into them only where
// package wire says what to look for.
package mcphttp

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Limits bounds what clients can make the gate do.
type Limits struct {
	Requests     admission.Limits // POST and DELETE requests at a time
	Streams      admission.Limits // streams without an end of their own at a time, and as many requests that wait
	Anonymous    int64            // of all these, those of clients without an identity; zero means any number
	Body         int64
	Parse        jsonrpc.Limits
	ReadTimeout  time.Duration // for a body to arrive
	WriteTimeout time.Duration // for a client to take each piece of an answer
}

// Config is what a [Handler] is made of.
type Config struct {
	Routes  map[string]*httpclient.Client // by path
	Gate    *gate.Gate
	Hub     *conversation.Hub
	Limits  Limits
	Bodies  *admission.Pool // the memory of requests' bodies in bytes; nil bounds nothing
	Log     *slog.Logger
	Metrics *metrics.Metrics // nil counts nothing
	Tracing *tracing.Tracing // nil traces nothing

	// Left reports whether the client of a request has left, given the context of the
	// request, which ends a moment later. Nil means that nobody knows before that.
	Left func(context.Context) bool

	Settings
}

// Settings are the part of a [Config] that can change while the handler serves.
type Settings struct {
	Guard    Guard
	Identity *identity.Recogniser // recognises agents; nil takes all of them for anonymous
}

// A Handler serves MCP endpoints to agents.
type Handler struct {
	cfg       Config // without its settings
	current   atomic.Pointer[generation]
	requests  *admission.Pool
	streams   *admission.Pool
	waiting   *admission.Pool // requests that are kept open until somebody decides
	anonymous *admission.Pool // whatever clients without an identity have open, in addition to the above
	drain     context.Context //nolint:containedctx // ends the streams of all requests, and belongs to none
	endAll    context.CancelFunc
}

// NewHandler returns a handler for the endpoints of cfg.
func NewHandler(cfg Config) *Handler {
	if cfg.Bodies == nil {
		cfg.Bodies = admission.NewPool(admission.Limits{})
	}
	if cfg.Left == nil {
		cfg.Left = func(ctx context.Context) bool { return ctx.Err() != nil }
	}
	h := &Handler{
		cfg:      cfg,
		requests: admission.NewPool(cfg.Limits.Requests),
		streams:  admission.NewPool(cfg.Limits.Streams),
		waiting:  admission.NewPool(cfg.Limits.Streams),

		anonymous: admission.NewPool(admission.Limits{Total: cfg.Limits.Anonymous}),
	}
	h.Configure(cfg.Settings)
	h.drain, h.endAll = context.WithCancel(context.Background())
	return h
}

// Configure replaces the settings. Requests under way may see the old ones, the
// new ones, or both in turn. If agents are recognised by something else from now
// on, the streams of those that were recognised before end: whoever may still
// listen comes back.
func (h *Handler) Configure(s Settings) {
	next := &generation{Settings: s}
	old := h.current.Load()
	if old != nil && old.Identity == s.Identity {
		next.over, next.end = old.over, old.end
	} else {
		next.over, next.end = context.WithCancel(context.Background())
	}
	if h.current.Store(next); old != nil && old.Identity != s.Identity {
		old.end()
	}
}

// A generation is the time in which agents are recognised in the same way.
type generation struct {
	Settings

	over context.Context //nolint:containedctx // ends the streams of all requests of the generation, and belongs to none
	end  context.CancelFunc
}

func (h *Handler) settings() *Settings { return &h.current.Load().Settings }

// EndStreams ends the streams that would otherwise last as long as their
// clients like. Requests that await an answer go on.
func (h *Handler) EndStreams() {
	h.endAll()
	h.cfg.Hub.Close()
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{h: h, r: r, ctx: newRequestContext(r), out: newResponse(w, h.cfg.Limits.WriteTimeout), label: r.Method, start: time.Now()}
	x.client = client{h: h, r: r, ctx: x.ctx, out: &x.out}
	x.body = requestBody{r: r, out: &x.out, limits: &h.cfg.Limits, room: h.cfg.Bodies}
	x.finish(x.safely(x.serve))
}

// serve answers the request.
func (x *exchange) serve() error {
	if err := x.body.expect(x.start); err != nil {
		return err
	}
	events, problem := x.enter()
	if problem != nil {
		return x.Refuse(problem)
	}
	if events != "" {
		return x.within(x.h.streams, func() error { return x.taskEvents(events) })
	}
	switch x.r.Method {
	case http.MethodPost:
		return x.within(x.h.requests, x.post)
	case http.MethodDelete:
		return x.within(x.h.requests, x.delete)
	case http.MethodGet:
		return x.within(x.h.streams, x.get)
	default:
		x.out.header().Set("Allow", "POST, GET, DELETE")
		return x.Refuse(&wire.Problem{Type: wire.MethodNotAllowed})
	}
}

// enter finds out where the request goes and who sends it. It returns the task
// whose events are asked for, if any.
func (x *exchange) enter() (events string, problem *wire.Problem) {
	if problem := x.h.settings().Guard.check(x.r); problem != nil {
		return "", problem
	}
	var ok bool
	if x.upstream, events, ok = x.h.route(x.r.URL.Path); !ok {
		return "", &wire.Problem{Type: wire.NotFound}
	}
	if problem := ambiguous(x.r.Header, x.upstream.GoesBy); problem != nil {
		return "", problem
	}
	x.client.upstream = x.upstream
	return events, x.client.recognise()
}
