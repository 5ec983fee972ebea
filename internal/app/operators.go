package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/httpserver"
	"github.com/thoughtgate/thoughtgate-go/internal/inbox"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/provenance"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// operators serves the people who run the gate and decide about calls.
type operators struct {
	base *base

	approvals      *approvals
	channels       *channels
	servers        *servers
	status         status
	agents         *provenance.Agents
	listener       *httpserver.Listener
	desk           *localdesk.Desk // the shared inbox; nil if this gate has its own inbox
	auth           atomic.Pointer[operator.Auth]
	generatedToken string
	tokenFile      string   // contains generatedToken; empty without a file
	tokenLock      *os.File // locks tokenFile against other gates; nil without a file
}

// A status is the state of the gate, for /readyz.
type status struct {
	ready         atomic.Bool
	configProblem atomic.Pointer[error]
	restart       atomic.Pointer[[]string] // the changed settings that need a restart; nil before the first reload
}

// bind binds the operators' address, or joins the shared inbox.
func (o *operators) bind(secure *tls.Config) (err error) {
	if o.base.cfg.Store.Reveal() == config.DeskStore {
		return o.joinDesk(secure)
	}
	o.listener, err = httpserver.Listen(o.listenerConfig(o.base.cfg.Operators.Listen, secure))
	return err
}

// listenerConfig returns the settings of the operators' listener.
func (o *operators) listenerConfig(address string, secure *tls.Config) httpserver.Config {
	l := o.base.listenerConfig("operators", address, secure)
	l.WriteTimeout, l.BodyTimeout = o.base.cfg.Limits.RequestTimeout, o.base.cfg.Limits.RequestTimeout
	l.Connections = admission.Limits{
		Total: int64(o.base.connections.operators), Client: int64(max(1, o.base.connections.operators/2)), // one address cannot use all connections
	}
	l.Context = provenance.WithConn
	l.Localhost = o.atLocalhost()
	return l
}

// url returns the base URL of the inbox.
func (o *operators) url() string {
	switch cfg := o.base.cfg.Operators; {
	case cfg.URL != nil:
		return cfg.URL.Scheme + "://" + cfg.URL.Host
	case cfg.TLS.CertFile != "":
		return "https://" + o.listener.Addr().String()
	default:
		return "http://" + o.host()
	}
}

// atLocalhost reports whether browsers open the inbox at localhost. They allow passkeys there, but not at an
// IP address.
func (o *operators) atLocalhost() bool {
	cfg := o.base.cfg
	host, _, err := net.SplitHostPort(cfg.Operators.Listen)
	return err == nil && host == "127.0.0.1" && cfg.Operators.URL == nil && o.desk == nil && cfg.NeedsPasskeys()
}

// host returns the address of the inbox.
func (o *operators) host() string {
	address := o.listener.Addr().String()
	if _, port, err := net.SplitHostPort(address); err == nil && o.atLocalhost() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}

// page returns the URL of a held call's approval page.
func (o *operators) page(id task.ID) string { return o.url() + "/approvals/" + string(id) }

// recall returns the operator with this login.
func (o *operators) recall(ctx context.Context, login string) (operator.Operator, error) {
	return o.auth.Load().FindOperator(ctx, login)
}

// guard returns the guard of the operators' listener.
func (o *operators) guard(cfg config.Config) mcphttp.Guard {
	g := newGuard(o.listener, cfg)
	g.Pages = true
	g.SameOrigin = true // cookies are bound to the host, so that a same-origin request is safe
	if u := cfg.Operators.URL; u != nil {
		g.Hosts = append(slices.Clone(g.Hosts), u.Host)
		g.Origins = append(slices.Clone(g.Origins), u.Scheme+"://"+u.Host)
	}
	if !g.Loopback {
		g.Hosts = nil // health probes use the IP address
	}
	return g
}

// configure applies the operators' settings of cfg, and disconnects operators that are no
// longer allowed.
func (o *operators) configure(cfg config.Config) error {
	routes, auth, err := o.routes(cfg)
	if err != nil {
		return err
	}
	if old := o.auth.Load(); old != nil {
		old.Replace(auth) // before the new one is used
	}
	o.auth.Store(auth)
	if signInConfigured(cfg.Operators) && o.desk == nil {
		if o.generatedToken != "" {
			o.base.log.Warn("the generated operator token is no longer valid, because operators are configured; the new ones sign in with theirs")
		}
		//mutate:swap `generatedToken = ""` `base.log.Debug("")` TestGeneratedTokenEndsWhenOneIsConfigured a generated token becomes valid again
		o.generatedToken = "" // must not become valid again when the configured token is removed
	}
	if !auth.CanSignIn() {
		o.base.log.Error("no operator can sign in", "err", errNoToken)
	}
	o.listener.SetHandler(o.guard(cfg).Wrap(routes))
	return nil
}

// routes returns the handler of the operators' listener. Health, readiness, metrics and the gate's metadata
// show nothing of calls and need no authentication; all other paths need a login or a token.
func (o *operators) routes(cfg config.Config) (http.Handler, *operator.Auth, error) {
	pages, err := inbox.New(inbox.Config{
		Approvals: o.approvals.service, Viewer: o.approvals.service.Viewer(), Agents: o.agents, Now: time.Now, Log: o.base.log,
		NeedsRestart: o.status.needsRestart, Changes: o.approvals.recentChanges, Channels: o.channels.statuses, Missing: o.servers.missing, Push: o.channels.pusher,
		Connections: o.servers.connections, Summarize: o.approvals.summarize, Record: o.approvals.record,
		Suggest: o.approvals.suggest, Trials: trials{o.approvals},
	})
	if err != nil {
		return nil, nil, err
	}
	auth, err := o.newAuth(cfg.Operators, pages.Login)
	if err != nil {
		return nil, nil, err
	}
	approvals, err := api.New(api.Config{
		Approvals: o.approvals.service, Viewer: o.approvals.service.Viewer(), Auth: auth, Agents: o.agents, Page: o.page, Receiver: o.channels.receiver, Channels: o.channels.statuses, Now: time.Now, Log: o.base.log,
		Connections: o.servers.connections, Explain: o.approvals.explain,
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", o.serveReadiness)
	mux.Handle("GET /metrics", o.base.metrics.Handler())
	mux.HandleFunc("GET "+connectionsPage+connection.Document, o.servers.connections.ServeDocument)
	auth.Register(mux)
	pages.Register(mux, auth)
	mux.Handle("/api/", approvals)
	return mux, auth, nil
}

// serveReadiness reports whether load balancers should send calls here. The upstreams' state
// does not count, because restarting the gate does not help. An unavailable store counts
// only with ?require=store: calls that need no approval are still forwarded, and all
// replicas that share the store would become unready at once. A gate that is older than its
// store is never ready, because it cannot use the store again, while newer replicas can.
func (o *operators) serveReadiness(w http.ResponseWriter, r *http.Request) {
	if !o.status.ready.Load() {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	trouble := o.approvals.store.trouble()
	if outdated := errors.Is(trouble, task.ErrOutdated); outdated || trouble != nil && r.URL.Query().Get("require") == "store" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		_, _ = io.WriteString(w, "ready\n")
	}
	if trouble != nil {
		_, _ = fmt.Fprintf(w, "store unavailable: calls that need approval are refused:\n%v\n", trouble)
	}
	if problem := o.status.configProblem.Load(); problem != nil && *problem != nil {
		_, _ = fmt.Fprintf(w, "the changed configuration was not loaded:\n%v\n", *problem)
	}
	if !o.auth.Load().CanSignIn() {
		_, _ = fmt.Fprintf(w, "no operator can sign in: %v\n", errNoToken)
	}
	if settings := o.status.needsRestart(); len(settings) > 0 {
		_, _ = fmt.Fprintf(w, "restart needed for: %s\n", strings.Join(settings, ", "))
	}
}

// needsRestart returns the names of the changed settings that take effect after a restart.
func (s *status) needsRestart() []string {
	if settings := s.restart.Load(); settings != nil {
		return *settings
	}
	return nil
}
