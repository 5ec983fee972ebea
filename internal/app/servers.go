package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/inbox"
	"github.com/thoughtgate/thoughtgate-go/internal/localhost"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/bridge"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/several"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/translate"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// servers has the clients of all upstreams.
type servers struct {
	base *base
	wrap *Wrap // nil unless an agent has started the gate

	clients   []*httpclient.Client         // serve agents, in the order of the configuration
	bridges   []*bridge.Bridge             // to the upstreams that are programs
	eras      []*translate.Translator      // to the upstreams of another era than their clients
	upstreams []*upstream.Upstream         // for requests of the gate itself
	endpoints map[string]*several.Endpoint // of several servers, by path
	records   func() gatestore.Records     // returns the store of sessions, which is opened after connect

	sessions    *upstream.Sessions
	connections *connection.Connections // to upstreams that want OAuth
	people      atomic.Pointer[people]
}

// find returns the named upstream, or nil.
func (s *servers) find(name string) *upstream.Upstream {
	for _, u := range s.upstreams {
		if u.Name() == name {
			return u
		}
	}
	return nil
}

// connect creates the clients of all upstreams, and returns them by path.
func (s *servers) connect() (map[string]mcphttp.Endpoint, error) {
	routes := make(map[string]mcphttp.Endpoint)
	s.sessions = upstream.NewSessions(s.records, s.base.log)
	connections := httpclient.NewConnections(s.base.connections.upstreams)
	var err error
	if s.connections, err = s.newConnections(); err != nil {
		return nil, err
	}
	for _, u := range s.base.cfg.Upstreams {
		cfg, err := s.clientConfig(u)
		if err != nil {
			return nil, fmt.Errorf("upstream %s: %w", u.Name, err)
		}
		cfg.Connections, cfg.Sessions, cfg.Tokens = connections, s.sessions, s.connections.Tokens(u.Name)
		if s.wrap != nil {
			s.wrap.complete(u, &cfg)
		}
		cfg.ForwardCredential = cfg.ForwardCredential || connection.Mode(u.OAuth.Grant) == connection.TokenExchange // the token is exchanged, not sent
		if u.Command != nil {
			b := s.newBridge(u)
			s.bridges = append(s.bridges, b)
			cfg.URL, cfg.Transport = &url.URL{Scheme: "stdio", Host: "process"}, b
			cfg.StartTimeout = stdioclient.InitializeTimeout
		}
		if u.Translate {
			cfg = s.translated(u, cfg)
		}
		client := httpclient.New(cfg)
		s.clients, s.upstreams = append(s.clients, client), append(s.upstreams, client.Upstream())
		protection := s.protection(u, cfg.TLS)
		for _, path := range u.Paths {
			routes[path] = mcphttp.Endpoint{Upstream: client, Scopes: u.Scopes, Protection: protection}
		}
	}
	s.combine(routes)
	return routes, nil
}

// translated returns the settings of a client that reaches the server of cfg through a translator.
func (s *servers) translated(u config.Upstream, cfg httpclient.Config) httpclient.Config {
	outer := cfg
	outer.Tokens = nil
	cfg.Metrics, cfg.Tracing = nil, nil // the outer client measures
	t := translate.New(translate.Config{
		Name: u.Name, Client: httpclient.New(cfg), Program: u.Command != nil, Sessions: s.sessions,
		MaxMessage: maxLine(s.base.cfg.Limits), Depth: s.base.cfg.Limits.MaxDepth, Patience: questionPatience,
	})
	s.eras = append(s.eras, t)
	outer.Transport = t
	return outer
}

// questionPatience is how long a server may wait for the answer to a question that is translated.
const questionPatience = 10 * time.Minute

// combine adds the configured endpoints to routes.
func (s *servers) combine(routes map[string]mcphttp.Endpoint) {
	s.endpoints = make(map[string]*several.Endpoint)
	for _, e := range s.base.cfg.Endpoints {
		route := mcphttp.Endpoint{Scopes: e.Scopes}
		var members []several.ServerConfig
		for _, member := range e.Servers {
			at := slices.IndexFunc(s.base.cfg.Upstreams, func(u config.Upstream) bool { return u.Name == member.Upstream })
			u := s.base.cfg.Upstreams[at]
			members = append(members, several.ServerConfig{
				Client: s.clients[at], Prefix: member.Prefix, Rename: member.Rename, Include: member.Include, Exclude: member.Exclude,
				OwnCredentials: u.CredentialHeaders,
			})
			route.Upstream, route.Protection = s.clients[at], routes[u.Paths[0]].Protection
		}
		if !e.IsPlain() {
			route.Upstream, route.Protection = nil, nil
			route.Several = several.New(e.Path, members, s.sessions, min(several.ListLimit, s.base.cfg.Limits.RequestTimeout), s.base.log)
			route.Several.Search = e.Search
			s.endpoints[e.Path] = route.Several
		}
		routes[e.Path] = route
	}
}

// missing returns the servers of endpoints that cannot be used.
func (s *servers) missing() (all []inbox.MissingServer) {
	for _, path := range slices.Sorted(maps.Keys(s.endpoints)) {
		for _, m := range s.endpoints[path].Missing() {
			all = append(all, inbox.MissingServer{Server: m.Server, Endpoint: path, Cause: m.Why, Since: m.Since})
		}
	}
	return all
}

// clientConfig returns the settings of an upstream's client.
func (s *servers) clientConfig(u config.Upstream) (httpclient.Config, error) {
	tlsConfig, err := u.TLS.Client()
	return httpclient.Config{
		Name:                 u.Name,
		URL:                  u.URL,
		Headers:              headers(u.Headers),
		ForwardAuthorization: u.ForwardAuthorization,
		ForwardCredential:    u.ForwardCredential,
		CredentialHeaders:    u.CredentialHeaders,
		ForwardQuery:         u.ForwardQuery,
		TLS:                  tlsConfig,
		ConnectTimeout:       u.ConnectTimeout,
		ResponseTimeout:      s.base.cfg.Limits.RequestTimeout,
		CallTimeout:          s.base.cfg.Limits.CallTimeout,
		ToolsTimeout:         s.base.cfg.Limits.ToolsFetchTimeout,
		ToolsPages:           s.base.cfg.Limits.ToolsMaxPages,
		MaxTaskTTL:           u.MaxTaskTTL,
		IdleTimeout:          s.base.cfg.Limits.Keepalive * 3 / 2,
		MaxIdle:              256,
		Log:                  s.base.log,
		Metrics:              s.base.metrics,
		Tracing:              s.base.tracing,
	}, err
}

// protection returns where agents get tokens for an upstream, or nil if theirs are not forwarded. Nobody
// signs in over plain http, except on this machine.
func (s *servers) protection(u config.Upstream, secure *tls.Config) *oauth.Protection {
	_, own := u.Headers["Authorization"]
	if u.URL == nil || !u.ForwardAuthorization || own || u.OAuth.Grant != "" || u.URL.Scheme != "https" && !localhost.Is(u.URL.Hostname()) {
		return nil
	}
	at := url.URL{Scheme: u.URL.Scheme, Host: u.URL.Host, Path: u.URL.Path, RawPath: u.URL.RawPath} // the query may have a secret
	client := &oauth.Client{Resource: at.String(), HTTP: oauth.HTTPClient(secure, at.String()), Now: time.Now}
	return oauth.NewProtection(client, s.base.log.With("upstream", u.Name))
}

func headers(secrets map[string]config.Secret) http.Header {
	h := make(http.Header, len(secrets))
	for name, value := range reveal(secrets) {
		h.Set(name, value)
	}
	return h
}

const (
	processRestarts        = 3 // of an upstream's process that ends by itself, per minute
	unreadAnswers          = 8 // of the largest size that all clients of a program may leave in memory
	unreadAnswersPerClient = 2
)

// newBridge returns the bridge to an upstream that is a program.
func (s *servers) newBridge(u config.Upstream) *bridge.Bridge {
	cfg := s.processConfig(u)
	cfg.Dir, cfg.Env, cfg.Restarts = u.Dir, environOf(u, s.base.cfg.ServerEnviron), processRestarts
	idle := 10 * s.base.cfg.Limits.Keepalive
	if s.wrap != nil {
		cfg.Env, cfg.Stderr, idle = environOf(u, s.wrap.Env), s.wrap.Stderr, wrapIdle
	}
	largest := int64(cfg.MaxLine)
	return bridge.New(bridge.Config{
		Server: cfg, Shared: u.Shared, Idle: idle, Log: s.base.log,
		Processes: admission.Limits{
			Total: int64(u.MaxProcesses), Client: quarter(u.MaxProcesses), Anonymous: s.base.anonymous(int64(u.MaxProcesses)),
		},
		Unread: admission.Limits{
			Total: unreadAnswers * largest, Client: unreadAnswersPerClient * largest, Anonymous: s.base.anonymous(unreadAnswers * largest),
		},
		Sessions: s.sessions,
	})
}

// maxLine returns the size limit of a server's message that is read as a whole.
func maxLine(l config.Limits) int { return int(min(max(64<<10, l.MaxResult/16), 1<<30)) }

// processConfig returns the settings of an upstream's process.
func (s *servers) processConfig(u config.Upstream) stdioclient.Config {
	limits := s.base.cfg.Limits
	return stdioclient.Config{
		Name: u.Name, Command: u.Command, MaxLine: maxLine(limits), Depth: limits.MaxDepth, Grace: grace,
		ListTimeout: limits.RequestTimeout, ToolsTimeout: limits.ToolsFetchTimeout, ToolsPages: limits.ToolsMaxPages,
		MaxTaskTTL: u.MaxTaskTTL, Log: s.base.log, Metrics: s.base.metrics, Tracing: s.base.tracing,
	}
}

// environOf returns the environment of an upstream's process. It is never nil, because nil
// means the gate's environment.
func environOf(u config.Upstream, base []string) []string {
	env := append([]string{}, base...)
	given := reveal(u.Env)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		env = append(env, name+"="+given[name]) // overrides earlier variables of this name
	}
	return env
}

// close closes the connections to all upstreams, and ends their processes.
func (s *servers) close() {
	var all sync.WaitGroup
	for _, c := range s.clients {
		c.Close()
	}
	for _, t := range s.eras {
		all.Go(t.Close)
	}
	for _, b := range s.bridges {
		all.Go(b.Close)
	}
	all.Wait()
}

// reachPauses are the pauses between attempts to reach an upstream after the start. The
// last one is repeated.
var reachPauses = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

// reachTimeout bounds one attempt.
const reachTimeout = 5 * time.Second

// reachAll connects to every upstream, so that a wrong address is logged at start and not
// with the first call.
func (s *servers) reachAll(ctx context.Context) {
	var all sync.WaitGroup
	for _, u := range s.clients {
		all.Go(func() { s.reach(ctx, u) })
	}
	all.Wait()
}

// reach connects to an upstream until it succeeds. It logs the first failure, and the
// success after a failure.
func (s *servers) reach(ctx context.Context, u *httpclient.Client) {
	for attempt := 0; ; attempt++ {
		trying, cancel := context.WithTimeout(ctx, reachTimeout)
		err := u.Reach(trying)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if attempt > 0 {
				s.base.log.InfoContext(ctx, "upstream can be reached now", "upstream", u.Name(), "host", u.Host())
			}
			return
		case attempt == 0:
			s.base.log.WarnContext(ctx, "upstream cannot be reached; calls to it fail until it can", "upstream", u.Name(), "host", u.Host(), "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reachPauses[min(attempt, len(reachPauses)-1)]):
		}
	}
}
