package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/inbox"
	"github.com/thoughtgate/thoughtgate-go/internal/listener"
	"github.com/thoughtgate/thoughtgate-go/internal/localdesk"
	"github.com/thoughtgate/thoughtgate-go/internal/mcphttp"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// operators are what serves the people that run the gate and decide about calls.
type operators struct {
	*base

	approvals *approvals
	channels  *channels
	status    status
	listener  *listener.Listener
	local     *localdesk.Desk // that the gates of a user share; nil if this gate has its own
	auth      atomic.Pointer[operator.Auth]
	madeToken string
	tokenFile string   // with the token that was made; empty if that is in no file
	tokenLock *os.File // keeps other gates from that file; nil without one
}

// A status is what /readyz says of the gate itself.
type status struct {
	ready         atomic.Bool
	configProblem atomic.Pointer[error]
	restart       atomic.Pointer[[]string] // the changed settings that wait for a restart; nil if none was ever changed
}

// bind takes the operators' address, or takes part in serving that of the desk.
func (o *operators) bind(secure *tls.Config) (err error) {
	if o.cfg.Store.Reveal() == config.DeskStore {
		return o.joinDesk(secure)
	}
	o.listener, err = listener.Listen(o.listenerConfig(o.cfg.Operators.Listen, secure))
	return err
}

// listenerConfig says how operators are served.
func (o *operators) listenerConfig(address string, secure *tls.Config) listener.Config {
	l := o.base.listenerConfig("operators", address, secure)
	l.Patience, l.Bodies = o.cfg.Limits.WriteTimeout, o.cfg.Limits.ReadTimeout
	l.Room = admission.Limits{
		Total: int64(o.room.operators), Client: int64(max(1, o.room.operators/2)), // one address is not everybody
	}
	return l
}

// url returns where browsers reach the operators' listener.
func (o *operators) url() string {
	switch cfg := o.cfg.Operators; {
	case cfg.URL != nil:
		return cfg.URL.Scheme + "://" + cfg.URL.Host
	case cfg.TLS.CertFile != "":
		return "https://" + o.listener.Addr().String()
	default:
		return "http://" + o.listener.Addr().String()
	}
}

// page returns where people decide about a held call.
func (o *operators) page(id task.ID) string { return o.url() + "/approvals/" + string(id) }

// recall returns the operator of a login.
func (o *operators) recall(ctx context.Context, login string) (operator.Operator, error) {
	return o.auth.Load().Recall(ctx, login)
}

// guard returns the guard of the operators' listener.
func (o *operators) guard(cfg config.Config) mcphttp.Guard {
	g := newGuard(o.listener, cfg)
	g.Pages = true
	g.SameOrigin = true // a browser that comes there has a cookie of that very host, or none
	if u := cfg.Operators.URL; u != nil {
		g.Hosts = append(slices.Clone(g.Hosts), u.Host)
		g.Origins = append(slices.Clone(g.Origins), u.Scheme+"://"+u.Host)
	}
	if !g.Loopback {
		g.Hosts = nil // probes come by address
	}
	return g
}

// configure puts the operator settings of cfg in force, and disconnects
// operators that are being served and no longer may be.
func (o *operators) configure(cfg config.Config) error {
	routes, auth, err := o.routes(cfg)
	if err != nil {
		return err
	}
	if old := o.auth.Load(); old != nil {
		old.Replace(auth) // before anybody uses it
	}
	o.auth.Store(auth)
	if configured(cfg.Operators) && o.local == nil {
		o.madeToken = "" // it is not good again if that is removed
	}
	if !auth.CanSignIn() {
		o.log.Error("nobody can sign in", "err", errNoToken)
	}
	o.listener.Handle(o.guard(cfg).Wrap(routes))
	return nil
}

// routes serves what the people and machines that run the gate ask.
// Health, readiness and metrics are for machines, and show nothing of calls; all
// else needs a login or a token.
func (o *operators) routes(cfg config.Config) (http.Handler, *operator.Auth, error) {
	desk, err := inbox.New(inbox.Config{
		Desk: o.approvals.desk, Cases: o.approvals.desk.Cases(), Now: time.Now, Log: o.log,
		NeedsRestart: o.status.needsRestart, Channels: o.channels.statuses, Push: o.channels.pusher.Load,
	})
	if err != nil {
		return nil, nil, err
	}
	auth, err := o.newAuth(cfg.Operators, desk.Login)
	if err != nil {
		return nil, nil, err
	}
	deciding, err := systems(cfg)
	if err != nil {
		return nil, nil, err
	}
	approvals, err := api.New(api.Config{
		Desk: o.approvals.desk, Cases: o.approvals.desk.Cases(), Auth: auth, Systems: deciding, Channels: o.channels.statuses, Now: time.Now, Log: o.log,
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", o.serveReadiness)
	mux.Handle("GET /metrics", o.metrics.Handler())
	auth.Register(mux)
	desk.Register(mux, auth)
	mux.Handle("/api/", approvals)
	return mux, auth, nil
}

// serveReadiness says whether calls should be sent here. The upstream's state
// does not count: restarting the gate would not mend it. Nor does that of the
// store, unless the one who asks says so: without it calls that need no approval
// are still forwarded, and replicas that share it would all be unready at once.
// But a gate that is older than its store never gets to use it again, while newer
// replicas do.
func (o *operators) serveReadiness(w http.ResponseWriter, r *http.Request) {
	if !o.status.ready.Load() {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	trouble := o.approvals.keep.trouble()
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
		_, _ = fmt.Fprintf(w, "nobody can sign in: %v\n", errNoToken)
	}
	if settings := o.status.needsRestart(); len(settings) > 0 {
		_, _ = fmt.Fprintf(w, "restart needed for: %s\n", strings.Join(settings, ", "))
	}
}

// needsRestart returns the names of the changed settings that take effect only
// when the gate is started again.
func (s *status) needsRestart() []string {
	if settings := s.restart.Load(); settings != nil {
		return *settings
	}
	return nil
}
