package app_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
)

const metadataPath = "/.well-known/oauth-protected-resource"

// fetch sends a request with a Host header, and returns the status, the body and the headers.
func fetch(t *testing.T, method, at, host, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	named := roundTripper(func(r *http.Request) (*http.Response, error) {
		r.Host = host
		return transport.RoundTrip(r)
	})
	return request(t, &http.Client{Transport: named}, method, at, body, headers...)
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

// signedIn starts an upstream whose agents sign in with an authorization server. It is a mirror.
func signedIn(t *testing.T, scopes ...string) (*authserver.Server, string) {
	t.Helper()
	up, _ := mirror(t)
	at, err := url.Parse(up)
	if err != nil {
		t.Fatal(err)
	}
	s := authserver.New(t, authserver.Options{Scopes: scopes})
	server := httptest.NewServer(s.Protect("/mcp", httputil.NewSingleHostReverseProxy(at), scopes...))
	t.Cleanup(server.Close)
	return s, server.URL + "/mcp"
}

// Where the gate forwards tokens, its metadata names the authorization server of the upstream, and so
// do the challenges of the upstream that it forwards.
func TestForwardedSignIn(t *testing.T) {
	s, up := signedIn(t, "read")
	for name, tt := range map[string]struct {
		settings, host, origin string // of the gate in the metadata
	}{
		"the address that the agent used": {"{anonymous: true}", "", "http://ADDRESS"},
		"another name of the machine":     {"{anonymous: true}", "localhost:1234", "http://localhost:1234"},
		"a configured URL":                {"{anonymous: true, url: 'https://gate.example'}", "localhost:1234", "https://gate.example"},
		"agents that a proxy names":       {"{anonymous: true, url: 'https://gate.example', proxy: {from: [10.0.0.7], header: X-User}}", "gate.example", "https://gate.example"},
	} {
		t.Run(name, func(t *testing.T) {
			a, stop := start(t, guarded(up, tt.settings))
			gate := "http://" + a.AgentAddr()
			origin := strings.ReplaceAll(tt.origin, "ADDRESS", a.AgentAddr())
			ours := `resource_metadata="` + origin + metadataPath + `/mcp"`
			status, text, header := fetch(t, "POST", gate+"/mcp", tt.host, call("read_x"))
			if got, want := header.Get("Www-Authenticate"), `Bearer error="invalid_token", `+ours+`, scope="read"`; status != 401 || got != want {
				t.Errorf("no token: %d %s\n got %s\nwant %s", status, text, got, want)
			}
			var m map[string]any
			status, text, _ = fetch(t, "GET", gate+metadataPath+"/mcp", tt.host, "")
			if err := json.Unmarshal([]byte(text), &m); err != nil || status != 200 {
				t.Fatalf("%d %s", status, text)
			}
			if diff := cmp.Diff(map[string]any{
				"resource": origin + "/mcp", "authorization_servers": []any{s.URL}, "scopes_supported": []any{"read"}, "bearer_methods_supported": []any{"header"},
			}, m); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
			if status, text, _ := fetch(t, "GET", gate+metadataPath+"/mcp", "evil.example", ""); status != 403 || strings.Contains(text, s.URL) {
				t.Errorf("another host: %d %s", status, text)
			}
			token := func(scope string) string {
				return "Bearer " + s.Sign(map[string]any{"sub": "alice", "aud": up, "scope": scope})
			}
			status, _, header = fetch(t, "POST", gate+"/mcp", tt.host, call("read_x"), "Authorization", token("write"))
			if got, want := header.Get("Www-Authenticate"), `Bearer error="insufficient_scope", `+ours+`, scope="read"`; status != 403 || got != want {
				t.Errorf("too few scopes: %d\n got %s\nwant %s", status, got, want)
			}
			if status, text, header := fetch(t, "POST", gate+"/mcp", tt.host, call("read_x"), "Authorization", token("read")); status != 200 || header.Get("Www-Authenticate") != "" {
				t.Errorf("a token: %d %s", status, text)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A held call whose token the upstream refuses is answered with the challenge of the upstream.
func TestForwardedSignInOfHeldCall(t *testing.T) {
	for status, challenge := range map[int]string{401: `Bearer error="invalid_token"`, 403: `Bearer error="insufficient_scope", scope="admin"`} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			var ended atomic.Bool
			up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
				if ended.Load() {
					w.Header().Set("WWW-Authenticate", challenge+`, resource_metadata="https://upstream.example/metadata"`)
					w.WriteHeader(status)
					return
				}
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[{"type":"text","text":"done"}]}}`)
			}))
			defer up.Close()
			a, stop := start(t, guarded(up.URL, "{anonymous: true}"))
			gate := "http://" + a.AgentAddr()
			token := []string{"Authorization", "Bearer of-alice"}
			_, created, _ := fetch(t, "POST", gate+"/mcp", "", strings.Replace(call("hold_x"), `"arguments":{}`, `"task":{}`, 1), token...)
			_, rest, _ := strings.Cut(created, `"taskId":"`)
			id, _, _ := strings.Cut(rest, `"`)
			ended.Store(true)
			approveCall(t, a, id)
			got, text, header := fetch(t, "POST", gate+"/mcp", "", `{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"`+id+`"}}`, token...)
			if want := challenge + `, resource_metadata="` + gate + metadataPath + `/mcp"`; got != status || header.Get("Www-Authenticate") != want {
				t.Errorf("%d %s\n%s", got, text, header.Get("Www-Authenticate"))
			}
			ended.Store(false)
			if _, text, _ := fetch(t, "POST", gate+"/mcp", "", strings.Replace(call("hold_x"), `"arguments":{}`, `"task":{}`, 1), token...); !strings.Contains(text, `"taskId"`) {
				t.Errorf("the same call: %s", text)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Without tokens to forward, the gate has no metadata of the upstream.
func TestNothingForwardedNoMetadata(t *testing.T) {
	_, up := signedIn(t)
	open := httptest.NewServer(http.NotFoundHandler())
	defer open.Close()
	for name, text := range map[string]string{
		"an upstream without sign-in": guarded(open.URL, "{anonymous: true}"),
		"agents with tokens":          guarded(up, "{url: 'https://gate.example', tokens: [{name: a, HASH}]}"),
		"not forwarded":               strings.Replace(guarded(up, "{anonymous: true}"), "url: "+up, "forward_authorization: false, url: "+up, 1),
		"the gate's own token":        strings.Replace(guarded(up, "{anonymous: true}"), "url: "+up, "headers: {authorization: Bearer x}, url: "+up, 1),
	} {
		a, stop := start(t, text)
		status, body, _ := fetch(t, "GET", "http://"+a.AgentAddr()+metadataPath+"/mcp", "", "")
		if status != 404 || !strings.Contains(body, "not_found") {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	t.Run("unreadable", func(t *testing.T) {
		broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
		defer broken.Close()
		a, stop := start(t, guarded(broken.URL, "{anonymous: true}"))
		if status, body, _ := fetch(t, "GET", "http://"+a.AgentAddr()+metadataPath+"/mcp", "", ""); status != 502 {
			t.Errorf("%d %s", status, body)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
