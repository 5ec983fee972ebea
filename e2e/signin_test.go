package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
)

const callback = "http://127.0.0.1:1/callback"

// A front is a proxy in front of a gate that starts later, such as one with TLS for the public URL
// of the gate.
type front struct {
	*httptest.Server

	gate *url.URL
}

func newFront(t *testing.T) *front {
	t.Helper()
	f := &front{}
	transport := &http.Transport{}
	f.Server = httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1, Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(f.gate); r.Out.Host = r.In.Host },
	})
	t.Cleanup(func() { f.Close(); transport.CloseIdleConnections() })
	return f
}

// start starts the gate behind f.
func (f *front) start(t *testing.T, settings string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "thoughtgate.yaml")
	text := "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0}\nstore: 'memory:'\n" + settings
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := config.Load(config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := app.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(run(t, gate))
	if err != nil {
		t.Fatal(err)
	}
	f.gate = &url.URL{Scheme: u.Scheme, Host: u.Host}
}

// named starts an MCP server with a tool that returns the name of the server, and lets each request pass guard.
func named(t *testing.T, s setting, name string, guard func(http.Handler) http.Handler) string {
	t.Helper()
	server := newServer(nil)
	addTool(server, "name", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return textResult(name), nil })
	t.Cleanup(func() { endSessions(t, server) })
	handler := s.handler(server, mcp.StreamableHTTPOptions{})
	if guard != nil {
		handler = guard(handler)
	}
	up := &upstream{}
	up.start(t, "127.0.0.1:0", handler)
	t.Cleanup(func() { up.stop(t) })
	return up.url()
}

// signIn returns the SDK's way to sign in. A token that it begins with may be empty.
func signIn(t *testing.T, s *authserver.Server, begin string) auth.OAuthHandler {
	t.Helper()
	c := &auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{RedirectURIs: []string{callback}}},
		AuthorizationCodeFetcher:        s.Browse,
		Client:                          newHTTPClient(t),
	}
	if begin != "" {
		c.InitialTokenSource = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: begin})
	}
	handler, err := auth.NewAuthorizationCodeHandler(c)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// ask connects the SDK's client to an endpoint, and calls its tool.
func ask(t *testing.T, s setting, endpoint string, by auth.OAuthHandler) (string, error) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
	cs, err := client.Connect(soon(t), &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: newHTTPClient(t), OAuthHandler: by}, &mcp.ClientSessionOptions{ProtocolVersion: s.version})
	if err != nil {
		return "", err
	}
	defer end(t, cs.Close)
	res, err := cs.CallTool(soon(t), &mcp.CallToolParams{Name: "name"})
	if err != nil {
		return "", err
	}
	return res.Content[0].(*mcp.TextContent).Text, nil
}

// asked returns what users were asked to consent to: the resource and the scopes.
func asked(s *authserver.Server) (all []string) {
	for _, r := range s.Requests() {
		if strings.HasSuffix(r.Path, "/authorize") {
			scopes := slices.Sorted(strings.FieldsSeq(r.Form.Get("scope")))
			all = append(all, strings.Join(append([]string{r.Form.Get("resource")}, scopes...), " "))
		}
	}
	return all
}

// Clients sign in for each endpoint of the gate, and step up if a token lacks scopes.
func TestSignInAtGate(t *testing.T) {
	for _, version := range bothEras {
		t.Run(version, func(t *testing.T) {
			s := setting{version: version, gated: true}
			as := authserver.New(t, authserver.Options{Path: "/tenant"})
			f := newFront(t)
			f.start(t, fmt.Sprintf("upstreams: [{name: a, url: '%s', scopes: [read, write]}, {name: b, url: '%s'}]\nidentity: {url: '%s', jwt: [{issuer: '%s'}]}\n",
				named(t, s, "A", nil), named(t, s, "B", nil), f.URL, as.URL))
			a, b := f.URL+"/mcp/a", f.URL+"/mcp/b"
			if got, err := ask(t, s, a, signIn(t, as, "")); err != nil || got != "A" {
				t.Fatalf("%q, %v", got, err)
			}
			if got, err := ask(t, s, b, signIn(t, as, "")); err != nil || got != "B" {
				t.Fatalf("%q, %v", got, err)
			}
			few := as.Sign(map[string]any{"sub": "alice", "aud": a, "scope": "read"})
			if got, err := ask(t, s, a, signIn(t, as, few)); err != nil || got != "A" {
				t.Errorf("step up: %q, %v", got, err)
			}
			other := as.Sign(map[string]any{"sub": "alice", "aud": b, "scope": "read write"})
			if got, err := ask(t, s, a, signIn(t, as, other)); err != nil || got != "A" {
				t.Errorf("a token for the other endpoint: %q, %v", got, err)
			}
			want := []string{a + " read write", b, a + " read write", a + " read write"}
			if diff := cmp.Diff(want, asked(as)); diff != "" {
				t.Errorf("users were asked for (-want +got):\n%s", diff)
			}
			// An authorization server that ignores the resource, or grants less, ends in an error and not in a loop.
			as.SetHooks(authserver.Hooks{Claims: func(c map[string]any) { c["aud"] = "https://other.example" }})
			if _, err := ask(t, s, a, signIn(t, as, "")); err == nil {
				t.Error("a token for another audience is accepted")
			}
			as.SetHooks(authserver.Hooks{Consent: func(g *authserver.Grant) bool { g.Scopes = []string{"read"}; return true }})
			if _, err := ask(t, s, a, signIn(t, as, "")); err == nil {
				t.Error("a token with too few scopes is accepted")
			}
		})
	}
}

// Clients sign in for an upstream to which the gate forwards their tokens. The upstream accepts tokens for any
// resource, as many do.
func TestSignInAtUpstream(t *testing.T) {
	for _, version := range bothEras {
		t.Run(version, func(t *testing.T) {
			s := setting{version: version, gated: true}
			as := authserver.New(t, authserver.Options{Path: "/tenant"})
			up := named(t, s, "A", func(next http.Handler) http.Handler { return as.Protect("/mcp", next, "read") })
			unbound := named(t, s, "A", func(next http.Handler) http.Handler { return forAnyResource(as, next) })
			t.Run("direct", func(t *testing.T) {
				for _, endpoint := range []string{up, unbound} {
					if got, err := ask(t, s, endpoint, signIn(t, as, "")); err != nil || got != "A" {
						t.Errorf("%q, %v", got, err)
					}
				}
			})
			t.Run("gate", func(t *testing.T) {
				gate := gateTo(t, unbound)
				if got, err := ask(t, s, gate, signIn(t, as, "")); err != nil || got != "A" {
					t.Errorf("%q, %v", got, err)
				}
				few := as.Sign(map[string]any{"sub": "alice", "aud": gate})
				if got, err := ask(t, s, gate, signIn(t, as, few)); err != nil || got != "A" {
					t.Errorf("step up: %q, %v", got, err)
				}
				if got := asked(as); !slices.Equal(got[len(got)-2:], []string{gate + " read", gate + " read"}) {
					t.Errorf("users were asked for %q", got)
				}
				as.RevokeAll()
				if got, err := ask(t, s, gate, signIn(t, as, few)); err != nil || got != "A" {
					t.Errorf("a revoked token: %q, %v", got, err)
				}
			})
			t.Run("an upstream with an audience", func(t *testing.T) {
				_, err := ask(t, s, gateTo(t, up), signIn(t, as, ""))
				if err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the client got %v", err)
				}
			})
		})
	}
}

// forAnyResource is like [authserver.Server.Protect] for the scope read, but accepts tokens for any resource.
func forAnyResource(as *authserver.Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := "http://" + r.Host
		if r.URL.Path == "/metadata" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q]}`, own+"/mcp", as.URL)
			return
		}
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		claims, err := as.Verify(token, "")
		scope, _ := claims["scope"].(string)
		challenge := `resource_metadata="` + own + `/metadata", scope="read"`
		switch {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer "+challenge)
			w.WriteHeader(http.StatusUnauthorized)
		case !slices.Contains(strings.Fields(scope), "read"):
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", `+challenge)
			w.WriteHeader(http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
