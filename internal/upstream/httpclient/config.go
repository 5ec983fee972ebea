package httpclient

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
)

// Config says how to reach one MCP server.
type Config struct {
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
	MaxTaskTTL           time.Duration // how long its tasks are asked to live at most; 0 means as long as the gate's own
	IdleTimeout          time.Duration // how long an unused connection is kept
	MaxIdle              int           // how many are
	Connections          *Connections  // shared by all upstreams; nil means any number
	Transport            Transport     // reaches the server in place of connections to URL; nil means those
	Log                  *slog.Logger
	Metrics              *metrics.Metrics // nil counts nothing
	Tracing              *tracing.Tracing // nil traces nothing
}

// DefaultCredentials returns the headers that hold the credentials of a client
// if nothing else is said.
func DefaultCredentials() []string { return []string{"Authorization", "X-Api-Key", "Cookie"} }
