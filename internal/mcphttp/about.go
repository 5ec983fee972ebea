package mcphttp

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"

	"github.com/google/uuid"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// A requestContext is the context of one HTTP request, which knows what the log
// says of it. It may outlive its exchange in the contexts of work that goes on,
// so it keeps nothing else of that.
type requestContext struct {
	context.Context //nolint:containedctx // it is one

	remote    string // the address that the request comes from
	principal string
	named     sync.Once
	name      string
}

// anonymous is the principal of a request whose sender is not known.
const anonymous = "anonymous"

func newRequestContext(r *http.Request) *requestContext {
	return &requestContext{Context: r.Context(), remote: r.RemoteAddr, principal: anonymous}
}

// Value implements [context.Context].
func (c *requestContext) Value(key any) any {
	if key == (logging.RequestKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// correlationID returns the name under which logs and answers speak of the
// request. Most requests need none, so it is made when first asked for.
func (c *requestContext) correlationID() string {
	c.named.Do(func() { c.name = uuid.NewString() })
	return c.name
}

// clientIP returns the address that the request comes from, without the port.
func (c *requestContext) clientIP() string {
	at, err := netip.ParseAddrPort(c.remote)
	if err != nil {
		return c.remote
	}
	return at.Addr().Unmap().String()
}

// LogRequest implements [logging.RequestSource].
func (c *requestContext) LogRequest() logging.Request {
	return logging.Request{CorrelationID: c.correlationID(), Principal: c.principal, ClientIP: c.clientIP()}
}

// received logs that a request has arrived. Plain forwarding is nearly all that
// the gate does, so only a log of level debug has it.
func (x *exchange) received() {
	if !x.h.cfg.Log.Enabled(x.ctx, slog.LevelDebug) {
		return
	}
	x.h.cfg.Log.LogAttrs(x.ctx, slog.LevelDebug, "MCP request received",
		slog.String("method", x.label), slog.Bool("has_task_metadata", x.augmented), slog.String("upstream", x.upstream.Name()))
}
