package app

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/bridge"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// servers are the upstreams: clients reach them through it, and the gate itself asks
// them.
type servers struct {
	*base

	clients []*httpclient.Client
	bridges []*bridge.Bridge     // to those of them that are programs
	asks    []*upstream.Upstream // all of them, as the gate itself asks them
	records func() task.Records  // returns the store of sessions, which is opened later
}

// named returns the upstream with a name, as the gate itself asks it, or nil.
func (s *servers) named(name string) *upstream.Upstream {
	for _, u := range s.asks {
		if u.Name() == name {
			return u
		}
	}
	return nil
}

// connect makes the clients of all upstreams and returns them by path.
func (s *servers) connect() (map[string]*httpclient.Client, error) {
	routes := make(map[string]*httpclient.Client)
	connections := httpclient.NewConnections(s.room.upstreams)
	for _, u := range s.cfg.Upstreams {
		cfg, err := s.clientConfig(u)
		if err != nil {
			return nil, fmt.Errorf("upstream %s: %w", u.Name, err)
		}
		cfg.Connections = connections
		if u.Command != nil {
			b := s.newBridge(u)
			s.bridges = append(s.bridges, b)
			cfg.URL, cfg.Transport = &url.URL{Scheme: "stdio", Host: "process"}, b
		}
		client := httpclient.New(cfg)
		s.clients, s.asks = append(s.clients, client), append(s.asks, client.Upstream())
		for _, path := range u.Paths {
			routes[path] = client
		}
	}
	return routes, nil
}

// clientConfig says how an upstream is reached.
func (s *servers) clientConfig(u config.Upstream) (httpclient.Config, error) {
	tlsConfig, err := clientTLS(u.TLS)
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
		ResponseTimeout:      s.cfg.Limits.RequestTimeout,
		CallTimeout:          s.cfg.Limits.CallTimeout,
		ToolsTimeout:         s.cfg.Limits.ToolsFetchTimeout,
		ToolsPages:           s.cfg.Limits.ToolsMaxPages,
		MaxTaskTTL:           u.MaxTaskTTL,
		IdleTimeout:          u.IdleTimeout,
		MaxIdle:              u.MaxIdleConnections,
		Log:                  s.log,
		Metrics:              s.metrics,
		Tracing:              s.tracing,
	}, err
}

func headers(secrets map[string]config.Secret) http.Header {
	h := make(http.Header, len(secrets))
	for name, value := range reveal(secrets) {
		h.Set(name, value)
	}
	return h
}

// processRestarts is how often a process of an upstream that ends by itself is
// started again within a minute.
const processRestarts = 3

// Answers of the largest size that may be in memory until clients have read them: those
// of all clients of a program, and those of one client.
const (
	unreadAnswers          = 8
	unreadAnswersPerClient = 2
)

// newBridge returns the way to an upstream that is a program.
func (s *servers) newBridge(u config.Upstream) *bridge.Bridge {
	cfg := s.processConfig(u)
	cfg.Dir, cfg.Env, cfg.Restarts = u.Dir, environOf(u, s.cfg.ServerEnviron), processRestarts
	largest := int64(cfg.MaxLine)
	return bridge.New(bridge.Config{
		Server: cfg, Shared: u.Shared, Idle: u.IdleTimeout, Log: s.log,
		Processes: admission.Limits{
			Total: int64(u.MaxProcesses), Client: quarter(u.MaxProcessesPerClient, u.MaxProcesses), Anonymous: s.anonymous(int64(u.MaxProcesses)),
		},
		Unread: admission.Limits{
			Total: unreadAnswers * largest, Client: unreadAnswersPerClient * largest, Anonymous: s.anonymous(unreadAnswers * largest),
		},
		Records: s.records,
	})
}

// processConfig says how a program that is an upstream is run.
func (s *servers) processConfig(u config.Upstream) stdioclient.Config {
	limits := s.cfg.Limits
	return stdioclient.Config{
		Name: u.Name, Command: u.Command, MaxLine: int(limits.MaxLine), Depth: limits.MaxDepth, Grace: grace,
		ListTimeout: limits.RequestTimeout, ToolsTimeout: limits.ToolsFetchTimeout, ToolsPages: limits.ToolsMaxPages,
		MaxTaskTTL: u.MaxTaskTTL, Log: s.log, Metrics: s.metrics, Tracing: s.tracing,
	}
}

// environOf returns the environment of an upstream's program. It is never nil, which
// would stand for all that the gate has.
func environOf(u config.Upstream, base []string) []string {
	env := append([]string{}, base...)
	given := reveal(u.Env)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		env = append(env, name+"="+given[name]) // the last one of a name counts
	}
	return env
}

// close closes the connections to all upstreams, and ends those that are programs.
func (s *servers) close() {
	var all sync.WaitGroup
	for _, c := range s.clients {
		c.Close()
	}
	for _, b := range s.bridges {
		all.Go(b.Close)
	}
	all.Wait()
}

// reachPauses are the pauses between attempts to reach an upstream after the
// start. The last one is repeated.
var reachPauses = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

// reachTimeout bounds one attempt.
const reachTimeout = 5 * time.Second

// reachAll connects to every upstream once, so that a wrong address shows in
// the log at the start and not with the first call.
func (s *servers) reachAll(ctx context.Context) {
	var all sync.WaitGroup
	for _, u := range s.clients {
		all.Go(func() { s.reach(ctx, u) })
	}
	all.Wait()
}

// reach logs a warning if an upstream cannot be reached, and a line when it can be.
func (s *servers) reach(ctx context.Context, u *httpclient.Client) {
	for attempt := 0; ; attempt++ {
		trying, cancel := context.WithTimeout(ctx, reachTimeout)
		err := u.Reach(trying)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && attempt > 0:
			s.log.InfoContext(ctx, "upstream can be reached now", "upstream", u.Name(), "host", u.Host())
			return
		case err == nil:
			return
		case attempt == 0:
			s.log.WarnContext(ctx, "upstream cannot be reached; calls to it fail until it can", "upstream", u.Name(), "host", u.Host(), "cause", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(reachPauses[min(attempt, len(reachPauses)-1)]):
		}
	}
}
