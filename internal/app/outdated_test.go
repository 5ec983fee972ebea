package app_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// A newer gate updates the store while this one runs. Within one sweep, even without calls,
// this gate is no longer ready, and reports why. It refuses calls that need approval, and
// forwards the others.
func TestOutdatedGateIsNotReady(t *testing.T) {
	update := map[string]func(*testing.T) (url string, update func()){
		"PostgreSQL": func(t *testing.T) (string, func()) {
			server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
			if !testenv.Available(t, err) {
				return "", nil
			}
			t.Cleanup(func() { _ = server.Stop() })
			return server.URL(), func() {
				conn, err := pgx.Connect(t.Context(), server.URL())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(t.Context())
				if _, err := conn.Exec(t.Context(), "INSERT INTO schema_version (version) VALUES (99)"); err != nil {
					t.Fatal(err)
				}
			}
		},
		"Redis": func(t *testing.T) (string, func()) {
			server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
			if !testenv.Available(t, err) {
				return "", nil
			}
			t.Cleanup(func() { _ = server.Stop() })
			return server.URL(), func() {
				if _, err := server.Do(t.Context(), "SET", "{thoughtgate}:format", "99"); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for name, begin := range update {
		t.Run(name, func(t *testing.T) {
			url, update := begin(t)
			if update == nil {
				return
			}
			s := openTroubled(t, url)
			until(t, "a held call", func() bool { return strings.Contains(s.hold(10), `"taskId":"tg_`) })
			update()
			until(t, "the gate not being ready", func() bool {
				status, body := s.readiness("")
				return status == http.StatusServiceUnavailable && strings.Contains(body, "update")
			})
			for range 3 {
				if answer := s.hold(10); !strings.Contains(answer, `"error_type":"store_unavailable"`) || !strings.Contains(answer, "update this gate") {
					t.Errorf("a call that needs approval: %s", answer)
				}
			}
			if answer := say(t, s.AgentAddr(), "tools/call", `{"name":"free_x"}`); !strings.Contains(answer, "done") {
				t.Errorf("a call that needs no approval: %s", answer)
			}
		})
	}
}

// patientConfig is the configuration of a gate with a long timeout of the store.
func patientConfig(store string) string {
	return strings.Replace(troubledConfig("http://127.0.0.1:1/", store), "timeout: 2s", "timeout: 1m", 1)
}
