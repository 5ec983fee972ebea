package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

const metadataPath = "/.well-known/oauth-protected-resource"

// fetch sends a request with a Host header, and returns the status, the body and the headers.
func fetch(t *testing.T, method, url, host, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	named := roundTripper(func(r *http.Request) (*http.Response, error) {
		r.Host = host
		return transport.RoundTrip(r)
	})
	return request(t, &http.Client{Transport: named}, method, url, body, headers...)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// twoResources returns the configuration of a gate with two upstreams for the agents of an issuer.
func twoResources(upstream, issuer string) string {
	return "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0}\nstore: 'memory:'\n" +
		"upstreams: [{name: a, url: " + upstream + ", scopes: [read, write]}, {name: b, url: " + upstream + "}]\n" +
		"identity: {url: 'https://gate.example', jwt: [{issuer: '" + issuer + "'}]}\n"
}

// The metadata of an endpoint is about that endpoint, whatever Host a request has.
func TestResourceMetadata(t *testing.T) {
	up, _ := mirror(t)
	issuer := testenv.NewIssuer(t)
	a, stop := start(t, twoResources(up, issuer.URL))
	gate := "http://" + a.AgentAddr()
	for _, host := range []string{"", "gate.example", "localhost:1"} {
		for path, want := range map[string]map[string]any{
			"/mcp/a": {"resource": "https://gate.example/mcp/a", "scopes_supported": []any{"read", "write"}},
			"/mcp/b": {"resource": "https://gate.example/mcp/b"},
		} {
			want["authorization_servers"], want["bearer_methods_supported"] = []any{issuer.URL}, []any{"header"}
			status, body, header := fetch(t, "GET", gate+metadataPath+path, host, "", "X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "http")
			var got map[string]any
			if err := json.Unmarshal([]byte(body), &got); status != 200 || err != nil || header.Get("Content-Type") != "application/json" || header.Get("Access-Control-Allow-Origin") != "*" {
				t.Fatalf("%s: %d %s %v", path, status, body, header)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s for host %q (-want +got):\n%s", path, host, diff)
			}
		}
	}
	at := gate + metadataPath + "/mcp/a"
	if status, body, header := fetch(t, "HEAD", at, "", ""); status != 200 || body != "" || header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %d %s", status, body)
	}
	if status, _, header := fetch(t, "OPTIONS", at, "", "", "Access-Control-Request-Headers", "mcp-protocol-version"); status != 204 || header.Get("Access-Control-Allow-Headers") != "*" {
		t.Errorf("OPTIONS: %d %v", status, header)
	}
	for name, tt := range map[string]struct {
		method, path, host, body string
		status                   int
	}{
		"another host":      {"GET", "/mcp/a", "evil.example", "", 403},
		"no endpoint":       {"GET", "/mcp/c", "", "", 404},
		"the root":          {"GET", "", "", "", 404},
		"a task":            {"GET", "/mcp/a/tasks/tg_x/events", "", "", 404},
		"a path with dots":  {"GET", "/mcp/b/../a", "", "", 404},
		"another method":    {"POST", "/mcp/a", "", "", 404},
		"a body":            {"GET", "/mcp/a", "", "x", 404}, // it would be waited for without a limit
		"an endpoint below": {"GET", "/mcp/a/", "", "", 404},
	} {
		if status, body, _ := fetch(t, tt.method, gate+metadataPath+tt.path, tt.host, tt.body); status != tt.status {
			t.Errorf("%s: %d %s; want %d", name, status, body, tt.status)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A token counts only at the endpoint for which it was issued, and with the scopes of the endpoint.
func TestTokenIsForEndpoint(t *testing.T) {
	up, last := mirror(t)
	issuer := testenv.NewIssuer(t)
	a, stop := start(t, twoResources(up, issuer.URL))
	gate := "http://" + a.AgentAddr()
	token := func(aud, scope string, more ...any) string {
		claims := map[string]any{"sub": "joe", "aud": aud, "scope": scope}
		for i := 0; i+1 < len(more); i += 2 {
			claims[more[i].(string)] = more[i+1]
		}
		return "Bearer " + issuer.Sign(claims, nil)
	}
	const forA, forB = "https://gate.example/mcp/a", "https://gate.example/mcp/b"
	const atA = `scope="read write", resource_metadata="https://gate.example` + metadataPath + `/mcp/a"`
	tokenForA := token(forA, "read write")
	for _, tt := range []struct {
		name, path, authorization string
		status                    int
		challenge                 string
	}{
		{"no token", "/mcp/a", "", 401, `Bearer realm="thoughtgate", ` + atA},
		{"its token", "/mcp/a", tokenForA, 200, ""},
		{"its token, in the stream of a task", "/mcp/a/tasks/tg_x/events", tokenForA, 404, ""},
		{"no token, in the stream of a task", "/mcp/a/tasks/tg_x/events", "", 401, `Bearer realm="thoughtgate", ` + atA},
		{"the same token elsewhere", "/mcp/b", tokenForA, 401, `Bearer realm="thoughtgate", error="invalid_token", error_description="invalid token: it was issued for another audience", resource_metadata="https://gate.example` + metadataPath + `/mcp/b"`},
		{"a token for the other", "/mcp/a", token(forB, "read write"), 401, `error="invalid_token"`},
		{"a token for both", "/mcp/b", token("", "", "aud", []string{forA, forB}), 200, ""},
		{"a token for another gate", "/mcp/a", token("https://evil.example/mcp/a", "read write"), 401, `error="invalid_token"`},
		{"a token for the host", "/mcp/a", token("https://gate.example", "read write"), 401, `error="invalid_token"`},
		{"an expired token", "/mcp/a", token(forA, "read write", "exp", time.Now().Add(-time.Hour).Unix()), 401, `error="invalid_token", error_description="invalid token: it has expired"`},
		{"too few scopes", "/mcp/a", token(forA, "read"), 403, `Bearer realm="thoughtgate", error="insufficient_scope", error_description="the token needs the scopes read write", ` + atA},
		{"no scopes where none are needed", "/mcp/b", token(forB, ""), 200, ""},
	} {
		// The Host header must not change for which resource a token is.
		method := "POST"
		if strings.HasSuffix(tt.path, "events") {
			method = "GET"
		}
		body := ""
		if method == "POST" {
			body = call("read_x")
		}
		headers := []string{"Authorization", tt.authorization}
		if tt.authorization == "" {
			headers = nil
		}
		status, text, header := fetch(t, method, gate+tt.path, "localhost", body, headers...)
		if challenge := header.Get("Www-Authenticate"); status != tt.status || !strings.Contains(challenge, tt.challenge) || (tt.challenge == "") != (challenge == "") {
			t.Errorf("%s: %d %s\n%s", tt.name, status, text, challenge)
		}
		if want := map[int]string{401: "unauthenticated", 403: "insufficient_scope"}[status]; !strings.Contains(text, want) {
			t.Errorf("%s: %s", tt.name, text)
		}
		if status == 200 && last().Get("Authorization") != "" {
			t.Errorf("%s: the token went upstream", tt.name)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
