package app

import (
	"fmt"
	"io"
	"net/http"
)

// operatorRoutes serves what the people and machines that run the gate ask.
func (a *App) operatorRoutes(approvals http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", a.serveReadiness)
	mux.Handle("GET /metrics", a.metrics.Handler())
	mux.Handle("/api/", approvals)
	return mux
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
