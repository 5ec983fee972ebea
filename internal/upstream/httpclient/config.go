package httpclient

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
	"github.com/thoughtgate/thoughtgate-go/internal/tracing"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
)

// A Config says how to reach one MCP server.
type Config struct {
	Name                 string
	URL                  *url.URL
	Server               string      // distinguishes servers with the same name at different gates; may be empty
	Dial                 Dial        // connects in place of the host of URL; may be nil
	Headers              http.Header // sent with every request, in place of the client's
	ForwardAuthorization bool        // send the client's Authorization header on
	ForwardCredential    bool        // even if the gate authenticated the client by it
	CredentialHeaders    []string    // headers of the client that a held call is sent with; [DefaultCredentials] if nil
	ForwardQuery         []string    // parameters of the client's query to forward
	Tokens               Tokens      // sent in place of the client's Authorization header; may be nil
	TLS                  *tls.Config
	ConnectTimeout       time.Duration
	ResponseTimeout      time.Duration // until the head of an answer, and between pieces of its body
	CallTimeout          time.Duration // the same for tool calls
	ToolsTimeout         time.Duration // for the whole tool list; 30 s if zero
	StartTimeout         time.Duration // how long the server may take to start; zero for one that is not a program
	ToolsPages           int           // maximum pages of the tool list; 100 if zero
	MaxTaskTTL           time.Duration // maximum TTL to ask for upstream tasks; 0 means that of the held task
	IdleTimeout          time.Duration // how long to keep an idle connection
	MaxIdle              int           // maximum number of idle connections
	Connections          *Connections  // shared by all upstreams; nil means no limit
	Sessions             *upstream.Sessions
	Transport            Transport // used in place of connections to URL; may be nil
	Log                  *slog.Logger
	Metrics              *metrics.Metrics // may be nil
	Tracing              *tracing.Tracing // may be nil
}

// Dial opens a connection.
type Dial func(context.Context) (net.Conn, error)

// DefaultCredentials returns the headers that hold a client's credentials by default.
func DefaultCredentials() []string { return []string{"Authorization", "X-Api-Key", "Cookie"} }
