package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// A stopping gate ends the requests of operators before it closes the store.
func TestOperatorsEndBeforeStore(t *testing.T) {
	text := strings.Replace(gatewayFor("http://127.0.0.1:1"), "operators: {", "operators: {token: secret-of-the-operators, ", 1) +
		"rules: [{match: '*', action: approve}]\ndefault: deny\n"
	for range 5 {
		a, log, stop := startLogged(t, text)
		const streams = 10
		for range streams {
			q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.OperatorAddr()+"/api/approvals/events", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "Bearer secret-of-the-operators")
			resp, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
		}
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		ended := log.with("operator request", "GET /api/approvals/events")
		if len(ended) != streams && time.Since(began) < 2*time.Second { // it waits no longer
			t.Errorf("%d of %d requests had ended when the gate had stopped", len(ended), streams)
		}
	}
}
