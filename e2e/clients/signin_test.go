package clients_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
)

// A signedIn is what a TypeScript client got, and what its user was asked to consent to: the
// resource and the scopes.
type signedIn struct {
	Tools []string    `json:"tools"`
	Asked [][2]string `json:"asked"`
}

// wantSignIn lets a TypeScript client of each era sign in at an endpoint. It begins with a token,
// which may be empty.
func wantSignIn(t *testing.T, endpoint, begin, scopes string) {
	t.Helper()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			a := start(t, "signin.mjs", endpoint, era)
			if begin != "" {
				a.tell("begin", map[string]string{"token": begin}).await("returned", nil)
			}
			var got signedIn
			a.tell("list", nil).await("returned", &got)
			for i := range got.Asked {
				got.Asked[i][1] = strings.Join(slices.Sorted(strings.FieldsSeq(got.Asked[i][1])), " ")
			}
			if diff := cmp.Diff(signedIn{[]string{"name"}, [][2]string{{endpoint, scopes}}}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// named starts an MCP server with a tool.
func named(t *testing.T) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "named", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "name"}, func(_ context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	up := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(up.Close)
	return up.URL
}

// gateOf starts a gate with two endpoints that need tokens of an issuer, and returns their URLs.
func gateOf(t *testing.T, issuer string) (a, b string) {
	t.Helper()
	var gate *url.URL
	front := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(gate)
		r.Out.Host = r.In.Host
	}})
	t.Cleanup(front.Close)
	up := named(t)
	at, _, _ := runGate(t, fmt.Sprintf("upstreams: [{name: a, url: %q, scopes: [read, write]}, {name: b, url: %q}]\nidentity: {url: %q, jwt: [{issuer: %q}]}\n", up, up, front.URL, issuer))
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	gate = &url.URL{Scheme: u.Scheme, Host: u.Host}
	return front.URL + "/mcp/a", front.URL + "/mcp/b"
}

// TypeScript clients sign in at the gate, with the authorization servers of two languages.
func TestSDKSignsInAtGate(t *testing.T) {
	t.Run("Go", func(t *testing.T) {
		s := authserver.New(t, authserver.Options{})
		a, b := gateOf(t, s.URL)
		wantSignIn(t, a, "", "read write")
		t.Run("step up", func(t *testing.T) {
			wantSignIn(t, a, s.Sign(map[string]any{"sub": "alice", "aud": a, "scope": "read"}), "read write")
		})
		t.Run("token for the other endpoint", func(t *testing.T) {
			wantSignIn(t, a, s.Sign(map[string]any{"sub": "alice", "aud": b, "scope": "read write"}), "read write")
		})
	})
	t.Run("oidc-provider", func(t *testing.T) {
		var issuer string
		start(t, "oidc.mjs").tell("url", nil).await("returned", &issuer)
		a, _ := gateOf(t, issuer)
		wantSignIn(t, a, "", "read write")
	})
}

// TypeScript clients sign in for a TypeScript server behind the gate.
func TestSDKSignsInAtUpstream(t *testing.T) {
	var endpoint string
	start(t, "protected.mjs").tell("url", nil).await("returned", &endpoint)
	t.Run("directly", func(t *testing.T) { wantSignIn(t, endpoint, "", "read") })
	gate, _, _ := runGate(t, fmt.Sprintf("upstreams: [{url: %q}]\n", endpoint))
	wantSignIn(t, gate, "", "read")
}

// The gate itself signs in at servers with the authorization servers of the TypeScript SDK and oidc-provider, and
// clients need no token.
func TestGateSignsInAtUpstream(t *testing.T) {
	for name, upstream := range map[string]func(t *testing.T) string{
		"TypeScript SDK": func(t *testing.T) string {
			var endpoint string
			start(t, "protected.mjs").tell("url", nil).await("returned", &endpoint)
			return endpoint
		},
		"oidc-provider": func(t *testing.T) string { // its resource is another gate
			var issuer string
			start(t, "oidc.mjs").tell("url", nil).await("returned", &issuer)
			a, _ := gateOf(t, issuer)
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			gate, inbox, token := runGate(t, fmt.Sprintf("store: 'memory:'\nupstreams: [{url: %q, auth: {oauth: {grant: shared}}}]\n", upstream(t)))
			connect(t, inbox, token)
			client := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil)
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: gate, DisableStandaloneSSE: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			tools, err := session.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "name" {
				t.Errorf("%v, %v", tools, err)
			}
		})
	}
}

var (
	formToken = regexp.MustCompile(`name="csrf" value="([^"]+)"`)
	nextPage  = regexp.MustCompile(`rel="noreferrer" href="([^"]+)"`)
)

// connect connects the gate to its upstream, as an operator with a browser does.
func connect(t *testing.T, inbox, token string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	open := func(method, address string, form url.Values) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(page)
	}
	open(http.MethodPost, inbox+"/login", url.Values{"token": {token}})
	form := formToken.FindStringSubmatch(open(http.MethodGet, inbox+"/connections", nil))
	if form == nil {
		t.Fatal("the page of connections has no form")
	}
	to := nextPage.FindStringSubmatch(open(http.MethodPost, inbox+"/connections/default/connect", url.Values{"csrf": {form[1]}}))
	if to == nil {
		t.Fatal("the gate cannot begin to sign in")
	}
	if page := open(http.MethodGet, html.UnescapeString(to[1]), nil); !strings.Contains(page, ">Connected<") {
		t.Fatalf("not connected: %s", page)
	}
}
