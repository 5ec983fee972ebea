// Package several makes one MCP endpoint out of several servers. It has the part of that which does
// not depend on a transport: the names of tools and prompts, merged lists and capabilities, ids of
// requests that servers send, sessions, and which servers are unavailable.
//
// A message is resolved to one server, and to that server's own names, before policy judges it. So
// everything behind this package knows one server at a time:
//
//	server, tool, ok := endpoint.Tool("crm__search") // the server crm, "search"
package several

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
)

// A ServerConfig is one server of an endpoint, and how clients see its names.
type ServerConfig struct {
	Client  *httpclient.Client
	Prefix  string            // of the names of tools and prompts; empty means none
	Rename  map[string]string // public names of some tools
	Include []string          // patterns of the tools that clients reach; nil means all
	Exclude []string          // patterns of tools that clients do not reach

	OwnCredentials []string // headers of a client that this server gets; see [Server.Passes]
}

// A Server is one server of an [Endpoint].
type Server struct {
	ServerConfig

	health health
}

// Name returns the name of the server.
func (s *Server) Name() string { return s.Client.Name() }

// Passes reports whether a server gets a header of a client. With several servers, it gets only the
// headers of MCP and of the connection, and the credentials that configuration names for it:
// those of a client are meant for one server, and no other may see them.
func (s *Server) Passes(header string) bool {
	if strings.HasPrefix(header, "Mcp-") {
		return true
	}
	switch header {
	case "Accept", "User-Agent", "Content-Type", "Traceparent", "Tracestate",
		"Forwarded", "Via", "X-Real-Ip", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto":
		return true
	case "Authorization":
		return s.Client.ForwardsCredential()
	}
	return slices.Contains(s.OwnCredentials, header)
}

// An Endpoint is several servers that clients see as one.
type Endpoint struct {
	Servers []*Server
	Search  bool // the list has the tools of the gate only, with which clients find and call all others

	path     string
	stored   *upstream.Sessions // may be nil
	log      *slog.Logger
	byPrefix map[string]*Server // without the server that has no prefix
	plain    *Server            // has no prefix; may be nil
	renamed  map[string]target
	prefixed sync.Once // see publicTool

	sessions  sessions
	uris      known[*Server] // see [Endpoint.LearnURIs]
	templates known[*Server]
	tasks     known[*Server] // see [Endpoint.LearnTask]
	returned  broadcast
	closing   context.Context
	close     context.CancelFunc
	mu        sync.Mutex // guards closed and begins of running
	closed    bool
	running   sync.WaitGroup
	listLimit time.Duration
}

// New returns the endpoint at a path with the servers in configs, each of which has a time limit for its
// part of an answer of all. Its sessions are in stored. It must be closed.
func New(path string, configs []ServerConfig, stored *upstream.Sessions, limit time.Duration, log *slog.Logger) *Endpoint {
	e := &Endpoint{path: path, stored: stored, log: log, byPrefix: make(map[string]*Server), renamed: make(map[string]target), listLimit: limit}
	e.uris.maxTexts, e.tasks.maxTexts, e.templates.maxTexts = maxURIs, maxURIs, maxTemplates
	e.closing, e.close = context.WithCancel(context.Background())
	for _, c := range configs {
		s := &Server{ServerConfig: c}
		e.Servers = append(e.Servers, s)
		if c.Prefix == "" {
			e.plain = s
		} else {
			e.byPrefix[c.Prefix] = s
		}
		for own, public := range c.Rename {
			e.renamed[public] = target{s, own}
		}
	}
	return e
}

// Close ends what the endpoint does in the background, and waits for that.
func (e *Endpoint) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.close()
	e.running.Wait()
}

// Go runs f in the background. Its context ends with the endpoint or after a time limit.
func (e *Endpoint) Go(ctx context.Context, limit time.Duration, f func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	run := func() {
		defer e.endWith(cancel)()
		f(ctx)
	}
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.running.Go(run)
	}
	e.mu.Unlock()
	if closed {
		run() // the context has ended
	}
}

// endWith calls cancel when the endpoint ends, or the returned function is called.
func (e *Endpoint) endWith(cancel func()) (end func()) {
	stop := context.AfterFunc(e.closing, cancel)
	return func() { stop(); cancel() }
}

// IsCredential reports whether a header holds credentials for a server, or is set by configuration.
func (e *Endpoint) IsCredential(name string) bool {
	for _, s := range e.Servers {
		if s.Client.IsCredential(name) {
			return true
		}
	}
	return false
}
