// Package mcphttp serves MCP over Streamable HTTP to agents. [Handler] is an [http.Handler]: it
// receives a message, asks package conversation for a plan, and then answers, holds or forwards
// the message.
//
// Each request is one exchange. The exchange reads the body once, and forwards the same bytes:
//
//	POST /mcp → exchange.post → Request.Plan → forwarding.run → relay.run
package mcphttp

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/several"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Limits bounds the resources that clients can use.
type Limits struct {
	Requests     admission.Limits // concurrent POST and DELETE requests
	Streams      admission.Limits // concurrent long-lived streams, and separately as many waiting requests
	Anonymous    int64            // concurrent requests and streams of clients without an identity; zero means no limit
	Body         int64
	Parse        jsonrpc.Limits
	ReadTimeout  time.Duration // for a request body to arrive
	WriteTimeout time.Duration // for a client to accept each piece of an answer
}

// Config configures a [Handler].
type Config struct {
	Routes  map[string]Endpoint // by path
	Catalog *catalog.Catalog
	Gateway *conversation.Gateway
	Limits  Limits
	Bodies  *admission.Pool // memory of request bodies in bytes; nil means no limit
	Log     *slog.Logger
	Metrics *metrics.Metrics // may be nil
	Tracing *tracing.Tracing // may be nil

	// ClientGone reports whether the client that belongs to a request context has disconnected.
	// It may know this before the context ends. Nil uses the context alone.
	ClientGone func(context.Context) bool

	Settings
}

// An Endpoint is what agents reach at a path.
type Endpoint struct {
	Upstream *httpclient.Client // nil if Several is given
	Several  *several.Endpoint
	Scopes   []string // that the JWT of an agent needs

	// Protection tells where agents get tokens of the upstream, which the gate forwards unless it
	// reads them itself. Nil means that it forwards none.
	Protection *oauth.Protection
}

// Settings is the part of a [Config] that can change while the handler serves.
type Settings struct {
	Guard    Guard
	Identity *identity.Authenticator // identifies agents; nil treats all of them as anonymous
	URL      *url.URL                // of the gate for agents, without a path; may be nil
}

// A Handler serves MCP endpoints to agents.
type Handler struct {
	cfg           Config // without Settings
	current       atomic.Pointer[identityEpoch]
	requests      *admission.Pool
	streams       *admission.Pool
	waiting       *admission.Pool // requests that wait for a decision
	anonymous     *admission.Pool // requests and streams of clients without an identity, in addition to the pools above
	drain         context.Context // ends the streams of all requests at shutdown
	cancelStreams context.CancelFunc
}

// NewHandler returns a handler for the endpoints of cfg.
func NewHandler(cfg Config) *Handler {
	if cfg.Bodies == nil {
		cfg.Bodies = admission.NewPool(admission.Limits{})
	}
	if cfg.ClientGone == nil {
		cfg.ClientGone = func(ctx context.Context) bool { return ctx.Err() != nil }
	}
	h := &Handler{
		cfg:      cfg,
		requests: admission.NewPool(cfg.Limits.Requests),
		streams:  admission.NewPool(cfg.Limits.Streams),
		waiting:  admission.NewPool(cfg.Limits.Streams),

		anonymous: admission.NewPool(admission.Limits{Total: cfg.Limits.Anonymous}),
	}
	h.Configure(cfg.Settings)
	h.drain, h.cancelStreams = context.WithCancel(context.Background())
	return h
}

// Configure replaces the settings. Requests in progress may see the old or the new ones. If
// Identity changes, it ends the streams of agents that the old one recognised; they can
// reconnect.
func (h *Handler) Configure(s Settings) {
	next := &identityEpoch{Settings: s}
	old := h.current.Load()
	if old != nil && old.Identity == s.Identity {
		next.done, next.end = old.done, old.end
	} else {
		next.done, next.end = context.WithCancel(context.Background())
	}
	if h.current.Store(next); old != nil && old.Identity != s.Identity {
		old.end()
	}
}

// An identityEpoch is the time during which one Authenticator is in use.
type identityEpoch struct {
	Settings

	done context.Context // ends all streams of this epoch
	end  context.CancelFunc
}

func (h *Handler) settings() *Settings { return &h.current.Load().Settings }

// EndStreams ends long-lived streams. Requests that await an answer continue.
func (h *Handler) EndStreams() {
	h.cancelStreams()
	h.cfg.Gateway.Close()
	for _, e := range h.cfg.Routes {
		if e.Several != nil {
			e.Several.Close()
		}
	}
}

// endable returns a context that also ends with [Handler.EndStreams], and when the identity
// epoch ends.
func (h *Handler) endable(ctx context.Context, since *identityEpoch) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(h.drain, cancel)
	forget := context.AfterFunc(since.done, cancel)
	return ctx, func() { forget(); stop(); cancel() }
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.servesMetadata(w, r) {
		return
	}
	x := newExchange(h, w, r)
	x.finish(x.account.Safely(x.serve, x.reply.Refuse))
}

// route returns the path of the endpoint that a request at path is for. For the event stream of a
// task, which is at PATH/tasks/ID/events, it also returns the task ID.
func (h *Handler) route(path string) (endpoint, events string, ok bool) {
	if _, ok = h.cfg.Routes[path]; ok {
		return path, "", true
	}
	rest, ok := strings.CutSuffix(path, "/events")
	at := strings.LastIndex(rest, "/tasks/")
	if !ok || at < 0 {
		return "", "", false
	}
	endpoint, id := rest[:at], rest[at+len("/tasks/"):]
	_, ok = h.cfg.Routes[endpoint]
	return endpoint, id, ok && id != "" && !strings.Contains(id, "/")
}

// readMessage parses a message from the upstream. Offsets count from the start of its Raw.
func (h *Handler) readMessage(data []byte) (*jsonrpc.Message, error) {
	return jsonrpc.ParseMessage(data, h.cfg.Limits.Parse)
}
