package app_test

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
)

// If a client causes an event 1,000 times, the log has few lines about it. When the gate has
// stopped, the lines contain the number of events.
func TestLogLinesCausedByClientsAreLimited(t *testing.T) {
	const many = 1000
	post := func(c *http.Client, address, contentType, authorization, body string) {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		if resp, err := c.Do(r); err != nil {
			t.Error(err)
		} else {
			resp.Body.Close()
		}
	}
	dir := t.TempDir()
	cert, key := newAuthority(t).issue("gate", time.Now().Add(time.Hour), x509.ExtKeyUsageServerAuth)
	for name, text := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var before net.Conn
	names := 0
	deny := func(a *app.App, c *http.Client) {
		names++
		post(c, "http://"+a.AgentAddr()+"/mcp", "application/json", "",
			fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"drop_%d"}}`, names))
	}
	tests := map[string]struct {
		settings string
		line     string
		times    int
		once     func(a *app.App, c *http.Client)
	}{
		"malformed bodies": {"", "request", many, func(a *app.App, c *http.Client) {
			post(c, "http://"+a.AgentAddr()+"/mcp", "application/json", "", "nonsense")
		}},
		"denied calls":     {"rules: [{match: 'get_*', action: forward}]\ndefault: deny\n", "verdict", many, deny},
		"observed denials": {"mode: observe\nrules: [{match: 'drop_*', action: deny}]\ndefault: deny\n", "verdict", many, deny},
		"calls beyond the limit": {
			"tasks: {max_pending: 1, max_pending_per_owner: 1}\nrules: [{match: 'drop_*', action: approve}]\ndefault: deny\nwaiting: {hold: 1ms}\n", "verdict", many, deny,
		},
		"bad tokens of agents": {
			"identity: {anonymous: true, tokens: [{name: ann, hash: 'sha256:" + strings.Repeat("0", 64) + "'}]}\n", "agent not authenticated", many,
			func(a *app.App, c *http.Client) {
				post(c, "http://"+a.AgentAddr()+"/mcp", "application/json", "Bearer tga_0123456789abcdefghijklmnopqrstuvwxyz", ping)
			},
		},
		"bad tokens of operators": {"", "operator not authenticated", 5, func(a *app.App, c *http.Client) { // the limit of failed attempts
			post(c, "http://"+a.OperatorAddr()+"/api/approvals/x/decision", "application/json", "Bearer tgo_0123456789abcdefghijklmnopqrstuvwxyz", "{}")
		}},
		"failed logins": {"", "login failed", 5, func(a *app.App, c *http.Client) {
			post(c, "http://"+a.OperatorAddr()+"/login", "application/x-www-form-urlencoded", "", url.Values{"token": {"x"}}.Encode())
		}},
		"failed handshakes": {"listen_tls: {cert_file: " + dir + "/cert.pem, key_file: " + dir + "/key.pem}\n", "TLS handshake failed", many, func(a *app.App, _ *http.Client) {
			conn := connect(t, "127.0.0.2", a.AgentAddr())
			io.WriteString(conn, "nonsense")
			io.Copy(io.Discard, conn)
			conn.Close()
		}},
		"closed connections": {
			"limits: {max_connections: 1}\n", "connection limit reached: closed an idle connection", many - 1,
			func(a *app.App, _ *http.Client) {
				conn := connect(t, "127.0.0.2", a.AgentAddr())
				if before != nil {
					closed(t, "an idle connection", before)
				}
				before = conn
			},
		},
	}
	sources := map[string]string{"denied calls": "anonymous", "observed denials": "anonymous", "calls beyond the limit": "anonymous"}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a, log, stop := startLogged(t, gatewayFor("http://127.0.0.1:1")+tt.settings)
			c, start := from(t, "127.0.0.2"), time.Now()
			for range many {
				tt.once(a, c)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			first := log.with(fmt.Sprintf(`"msg":%q`, tt.line))
			told := len(first)
			summaries := decoded(t, log.with(`"similar lines left out"`, fmt.Sprintf(`"line":%q`, tt.line)))
			for _, s := range summaries {
				told += int(s["count"].(float64))
				if s["source"] != cmp.Or(sources[name], "127.0.0.2") {
					t.Errorf("source: %v", s["source"])
				}
			}
			most := 51 + int(5*time.Since(start).Seconds())
			if told < tt.times || told > many || len(first) > most || len(summaries) > 45 {
				t.Errorf("%d lines and %d summaries count %d events; want few lines and %d", len(first), len(summaries), told, tt.times)
			}
		})
	}
}

// CORE-003 F-001.7: the log contains the correlation id of every refused request.
func TestEachDenialIsInTheLog(t *testing.T) {
	a, log, stop := startLogged(t, gatewayFor("http://127.0.0.1:1")+"default: deny\n")
	var told []string
	for range 10 {
		_, rest, _ := strings.Cut(say(t, a.AgentAddr(), "prompts/get", `{"name":"x"}`), `"correlation_id":"`)
		id, _, _ := strings.Cut(rest, `"`)
		told = append(told, id)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, id := range told {
		for _, line := range []string{"verdict", "request"} {
			if id == "" || len(log.with(fmt.Sprintf(`"msg":%q`, line), id)) == 0 {
				t.Errorf("no line %q has the id %q", line, id)
			}
		}
	}
}
