package app

import (
	"fmt"
	"io"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
)

// operatorRoutes serves what the people and machines that run the gate ask.
// Health, readiness and metrics are for machines, and tell nothing of calls; all
// else asks who it is.
func (a *App) operatorRoutes() (http.Handler, error) {
	auth, err := a.newAuth(a.cfg.Operators)
	if err != nil {
		return nil, err
	}
	approvals, err := api.New(api.Config{Desk: a.desk, Auth: auth, Log: a.log})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", a.serveReadiness)
	mux.Handle("GET /metrics", a.metrics.Handler())
	auth.Register(mux)
	mux.Handle("/api/", approvals)
	return mux, nil
}

// serveReadiness tells whether calls should be sent here. The upstream's state
// does not count: restarting the gate would not mend it.
func (a *App) serveReadiness(w http.ResponseWriter, _ *http.Request) {
	if !a.ready.Load() {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ready\n")
	if problem := a.configProblem.Load(); problem != nil && *problem != nil {
		_, _ = fmt.Fprintf(w, "the changed configuration is not in force:\n%v\n", *problem)
	}
}
