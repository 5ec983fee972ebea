package app

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/inbox"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// serveOperators puts the operator settings of cfg in force, and disconnects
// operators that are being served and no longer may be.
func (a *App) serveOperators(cfg config.Config) error {
	routes, auth, err := a.operatorRoutes(cfg)
	if err != nil {
		return err
	}
	if old := a.auth.Swap(auth); old != nil {
		old.Replace(auth)
	}
	a.operators.handler.set(bodiesFirst(cfg.Limits.ReadTimeout, a.guard(a.operators, cfg).Wrap(routes)))
	return nil
}

// operatorRoutes serves what the people and machines that run the gate ask.
// Health, readiness and metrics are for machines, and tell nothing of calls; all
// else asks who it is.
func (a *App) operatorRoutes(cfg config.Config) (http.Handler, *operator.Auth, error) {
	desk, err := inbox.New(inbox.Config{Desk: a.desk, Cases: a.desk.Cases(), Now: time.Now, Log: a.log, NeedsRestart: a.needsRestart, Channels: a.channelStatuses, Push: a.pusher.Load})
	if err != nil {
		return nil, nil, err
	}
	auth, err := a.newAuth(cfg.Operators, desk.Login)
	if err != nil {
		return nil, nil, err
	}
	deciding, err := systems(cfg)
	if err != nil {
		return nil, nil, err
	}
	approvals, err := api.New(api.Config{
		Desk: a.desk, Cases: a.desk.Cases(), Auth: auth, Systems: deciding, Channels: a.channelStatuses, Now: time.Now, Log: a.log,
	})
	if err != nil {
		return nil, nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", a.serveReadiness)
	mux.Handle("GET /metrics", a.metrics.Handler())
	auth.Register(mux)
	desk.Register(mux, auth)
	mux.Handle("/api/", approvals)
	return mux, auth, nil
}

// serveReadiness tells whether calls should be sent here. The upstream's state
// does not count: restarting the gate would not mend it. Nor does that of the
// store, unless the one who asks says so: without it calls that need no approval
// are still forwarded, and replicas that share it would all be unready at once.
// But a gate that is older than its store never gets to use it again, while newer
// replicas do.
func (a *App) serveReadiness(w http.ResponseWriter, r *http.Request) {
	if !a.ready.Load() {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	trouble := a.keep.trouble()
	if outdated := errors.Is(trouble, task.ErrOutdated); outdated || trouble != nil && r.URL.Query().Get("require") == "store" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		_, _ = io.WriteString(w, "ready\n")
	}
	if trouble != nil {
		_, _ = fmt.Fprintf(w, "store unavailable: calls that need approval are refused:\n%v\n", trouble)
	}
	if problem := a.configProblem.Load(); problem != nil && *problem != nil {
		_, _ = fmt.Fprintf(w, "the changed configuration was not loaded:\n%v\n", *problem)
	}
	if settings := a.needsRestart(); len(settings) > 0 {
		_, _ = fmt.Fprintf(w, "restart needed for: %s\n", strings.Join(settings, ", "))
	}
}

// needsRestart returns the names of the changed settings that take effect only
// when the gate is started again.
func (a *App) needsRestart() []string {
	if settings := a.restart.Load(); settings != nil {
		return *settings
	}
	return nil
}
