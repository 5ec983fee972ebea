package oauth_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
)

const callback = "http://127.0.0.1:1/callback"

// A site is an MCP server with its authorization server.
type site struct {
	t    *testing.T
	auth *authserver.Server
	url  string

	client oauth.Client
}

func newSite(t *testing.T, o authserver.Options, scopes ...string) *site {
	t.Helper()
	s := &site{t: t, auth: authserver.New(t, o)}
	up := httptest.NewServer(s.auth.Protect("/mcp", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), scopes...))
	t.Cleanup(up.Close)
	s.url = up.URL + "/mcp"
	s.client = oauth.Client{Resource: s.url, Name: "test", Redirect: callback, HTTP: oauth.HTTPClient(nil, s.url), Now: time.Now}
	return s
}

// ask sends a request to the MCP server and returns the status and the challenges.
func (s *site) ask(token string) (int, []string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Values("Www-Authenticate")
}

// browse signs in at the authorization server, and returns its answer for the client.
func (s *site) browse(at string) url.Values {
	s.t.Helper()
	result, err := s.auth.Browse(s.t.Context(), &auth.AuthorizationArgs{URL: at})
	if err != nil {
		return url.Values{"error": {err.Error()}, "state": {stateIn(at)}, "iss": {s.auth.URL}}
	}
	answer := url.Values{"code": {result.Code}, "state": {result.State}}
	if result.Iss != "" {
		answer.Set("iss", result.Iss)
	}
	return answer
}

func stateIn(at string) string {
	u, _ := url.Parse(at)
	return u.Query().Get("state")
}

// signIn signs in at the site.
func (s *site) signIn() (*oauth.Grant, error) {
	s.t.Helper()
	_, challenge := s.ask("")
	begun, err := s.client.Begin(s.t.Context(), challenge, nil)
	if err != nil {
		return nil, err
	}
	return s.client.Finish(s.t.Context(), begun, s.browse(begun.URL))
}

func (s *site) mustSignIn() *oauth.Grant {
	s.t.Helper()
	g, err := s.signIn()
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

// A person signs in, the token is renewed, and revoked.
func TestSignIn(t *testing.T) {
	s := newSite(t, authserver.Options{Path: "/tenant", Scopes: []string{"tools"}}, "tools")
	g := s.mustSignIn()
	if status, _ := s.ask(g.Access); status != http.StatusNoContent {
		t.Errorf("the server answers the token with %d", status)
	}
	next, err := s.client.Renew(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := s.ask(next.Access); status != http.StatusNoContent || next.Access == g.Access || next.Refresh == g.Refresh {
		t.Errorf("the server answers the renewed token with %d", status)
	}
	if err := s.client.Revoke(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Renew(t.Context(), next); !errors.Is(err, oauth.ErrSignInAgain) {
		t.Errorf("renew a revoked token: %v", err)
	}
}

// Another sign-in uses the registration again, and asks for the earlier scopes too.
func TestStepUp(t *testing.T) {
	s := newSite(t, authserver.Options{Scopes: []string{"tools", "admin"}}, "tools")
	g := s.mustSignIn()
	begun, err := s.client.Begin(t.Context(), []string{`Bearer error="insufficient_scope", scope="admin"`}, g)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(begun.URL)
	if err != nil {
		t.Fatal(err)
	}
	if got := u.Query().Get("scope"); got != "admin tools" || begun.Grant.Registration.ID != g.Registration.ID {
		t.Errorf("asks for %q as client %s", got, begun.Grant.Registration.ID)
	}
}

// A device code lets a person sign in on another machine.
func TestDevice(t *testing.T) {
	s := newSite(t, authserver.Options{NoRegistration: true})
	s.auth.Register("tv", authserver.Client{})
	s.client.ID, s.client.Redirect = "tv", ""
	_, challenge := s.ask("")
	d, err := s.client.BeginDevice(t.Context(), challenge, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.auth.ApproveDevice(d.Code)
	g, err := s.client.FinishDevice(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := s.ask(g.Access); status != http.StatusNoContent {
		t.Errorf("the server answers the token with %d", status)
	}
}

func TestMisusedSignIn(t *testing.T) {
	s := newSite(t, authserver.Options{})
	_, challenge := s.ask("")
	begin := func() *oauth.SignIn {
		begun, err := s.client.Begin(t.Context(), challenge, nil)
		if err != nil {
			t.Fatal(err)
		}
		return begun
	}
	for name, change := range map[string]func(answer url.Values){
		"of another sign-in":            func(a url.Values) { a.Set("state", begin().State) },
		"without a state":               func(a url.Values) { a.Del("state") },
		"of another server":             func(a url.Values) { a.Set("iss", "https://other.example") },
		"without the promised issuer":   func(a url.Values) { a.Del("iss") },
		"without a code":                func(a url.Values) { a.Del("code") },
		"with the code of another":      func(a url.Values) { a.Set("code", s.browse(begin().URL).Get("code")) },
		"of a person who does not want": func(a url.Values) { a.Set("error", "access_denied") },
	} {
		begun := begin()
		answer := s.browse(begun.URL)
		code := answer.Get("code")
		change(answer)
		if g, err := s.client.Finish(t.Context(), begun, answer); err == nil || strings.Contains(err.Error(), code) {
			t.Errorf("an answer %s: %v, %v", name, g != nil, err)
		}
	}
}

func TestWrongIssuer(t *testing.T) {
	s := newSite(t, authserver.Options{})
	s.client.Issuer = "https://idp.example"
	if _, err := s.signIn(); err == nil || !strings.Contains(err.Error(), "and not https://idp.example") {
		t.Errorf("another issuer than the configured one: %v", err)
	}
	s.client.Issuer = ""
	s.auth.SetHooks(authserver.Hooks{Metadata: func(m map[string]any) { m["issuer"] = "https://other.example" }})
	if _, err := s.signIn(); err == nil {
		t.Error("metadata of another issuer counts")
	}
}

// document starts a server with the metadata of an MCP server, and returns a client for it.
func document(t *testing.T, serve http.HandlerFunc) oauth.Client {
	t.Helper()
	up := httptest.NewServer(serve)
	t.Cleanup(up.Close)
	return oauth.Client{Resource: up.URL + "/mcp", Redirect: callback, HTTP: oauth.HTTPClient(nil, up.URL), Now: time.Now}
}

func TestWrongResource(t *testing.T) {
	site := newSite(t, authserver.Options{})
	for _, resource := range []string{"https://other.example/mcp", "", "http://user@HOST/mcp", "http://HOST/mc", "http://HOST/mcp/deeper", "http://HOST/mcp#x", "http://HOST/mcp#"} {
		c := document(t, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"resource":"`+strings.ReplaceAll(resource, "HOST", r.Host)+`","authorization_servers":["`+site.auth.URL+`"]}`)
		})
		if _, err := c.Begin(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "another server") {
			t.Errorf("resource %q: %v", resource, err)
		}
	}
}

// An MCP server can say anything. The gate asks no private address, follows no redirect to another host, and
// reads no more than a short answer.
func TestHostileMetadata(t *testing.T) {
	asked := make(chan string, 1)
	private := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	defer private.Close()
	elsewhere := strings.Replace(private.URL, "http://127.0.0.1", "https://LOCALHOST", 1) // a name like any other
	for name, serve := range map[string]http.HandlerFunc{
		"names a private authorization server": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"resource":"http://`+r.Host+`/mcp","authorization_servers":["`+elsewhere+`"]}`)
		},
		"redirects to another host": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, private.URL, http.StatusFound)
		},
		"is very long": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"resource":"`)
			for range 64 {
				if _, err := io.WriteString(w, strings.Repeat("x", 64<<10)); err != nil {
					return
				}
			}
		},
		"is nonsense": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>secret</html>") },
		"is an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"without https": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"resource":"http://`+r.Host+`/mcp","authorization_servers":["http://as.example"]}`)
		},
	} {
		c := document(t, serve)
		if _, err := c.Begin(t.Context(), nil, nil); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("metadata that %s: %v", name, err)
		} else if strings.Contains(name, "private") != strings.Contains(err.Error(), "has a private address") {
			t.Errorf("metadata that %s: %v", name, err)
		}
	}
	for _, trusted := range []string{"https://public.example", "https://public.example:80/127.0.0.1"} {
		if _, err := oauth.HTTPClient(nil, trusted).Get(private.URL); err == nil || !strings.Contains(err.Error(), "has a private address") {
			t.Errorf("%s makes the gate ask this machine: %v", trusted, err)
		}
	}
	select {
	case path := <-asked:
		t.Errorf("the gate asked a private address for %s", path)
	default:
	}
	// A server that does not answer holds up nothing for longer than its caller waits.
	release := make(chan struct{})
	defer close(release)
	c := document(t, func(http.ResponseWriter, *http.Request) { <-release })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Begin(ctx, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent server: %v", err)
	}
}

// An authorization server can say anything, too. Nobody is sent to an address that is no page, and what the gate
// keeps or shows stays short.
func TestHostileAuthorizationServer(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, change := range map[string]func(m map[string]any){
		"a script":                       func(m map[string]any) { m["authorization_endpoint"] = "javascript://localhost/%0aalert(1)" },
		"another program":                func(m map[string]any) { m["authorization_endpoint"] = "program://localhost/x" },
		"a fragment":                     func(m map[string]any) { m["authorization_endpoint"] = "https://a.example/#x" },
		"an empty fragment":              func(m map[string]any) { m["authorization_endpoint"] = "https://a.example/#" },
		"a user":                         func(m map[string]any) { m["authorization_endpoint"] = "https://bank.example@a.example/" },
		"a parameter of another sign-in": func(m map[string]any) { m["authorization_endpoint"] = "https://a.example/?client_id=x" },
		"a very long address":            func(m map[string]any) { m["authorization_endpoint"] = "https://a.example/" + long },
		"no token endpoint":              func(m map[string]any) { delete(m, "token_endpoint") },
		"a very long token endpoint":     func(m map[string]any) { m["token_endpoint"] = "https://a.example/" + long },
		"a revocation endpoint of files": func(m map[string]any) { m["revocation_endpoint"] = "file:///etc/passwd" },
		"a very long issuer":             func(m map[string]any) { m["issuer"] = "https://" + long },
	} {
		s := newSite(t, authserver.Options{})
		s.auth.SetHooks(authserver.Hooks{Metadata: change})
		_, challenge := s.ask("")
		begun, err := s.client.Begin(t.Context(), challenge, nil)
		if err == nil {
			t.Errorf("%s: the browser is sent to %.80s", name, begun.URL)
		} else if len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// An endpoint may have parameters of its own.
func TestEndpointWithQuery(t *testing.T) {
	s := newSite(t, authserver.Options{})
	s.auth.SetHooks(authserver.Hooks{Metadata: func(m map[string]any) { m["authorization_endpoint"] = s.auth.URL + "/authorize?tenant=a" }})
	begun, err := s.client.Begin(t.Context(), nil, nil)
	if err != nil || !strings.Contains(begun.URL, "/authorize?tenant=a&") {
		t.Errorf("Begin: %+v, %v", begun, err)
	}
}

// Clients and tokens that are too long or have other characters than those of OAuth are refused.
func TestHostileAnswers(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, client := range []string{`"client_id":"` + long + `"`, `"client_id":"a\nb"`, `"client_id":"a","client_secret":"` + long + `"`} {
		s := newSite(t, authserver.Options{})
		s.auth.SetHooks(authserver.Hooks{Request: func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/register" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "{"+client+"}")
			return true
		}})
		if _, err := s.client.Begin(t.Context(), nil, nil); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%.40s: %.200v", client, err)
		}
	}
	token := func(name string, value any) authserver.Hooks {
		return authserver.Hooks{Tokens: func(m map[string]any) { m[name] = value }}
	}
	for name, hooks := range map[string]authserver.Hooks{
		"a very long access token":     token("access_token", long),
		"a very long refresh token":    token("refresh_token", long),
		"a refresh token with a line":  token("refresh_token", "a\nb"),
		"an access token with a space": token("access_token", "a b"),
	} {
		s := newSite(t, authserver.Options{})
		s.auth.SetHooks(hooks)
		if _, err := s.signIn(); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

// Scopes that are none are not asked for, and not kept.
func TestHostileScopes(t *testing.T) {
	many := strings.TrimSpace(strings.Repeat("scope ", 2000))
	for challenge, want := range map[string]string{
		`Bearer scope="read a` + "\u202eb" + ` write"`: "read write",
		`Bearer scope="` + many + `"`:                  "",
	} {
		s := newSite(t, authserver.Options{})
		begun, err := s.client.Begin(t.Context(), []string{challenge}, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, _ := url.Parse(begun.URL)
		if got := u.Query().Get("scope"); got != want {
			t.Errorf("%.40q: asks for %.80q", challenge, got)
		}
	}
	for _, scope := range []string{"a\u0007b", many} {
		s := newSite(t, authserver.Options{Scopes: []string{"tools"}}, "tools")
		s.auth.SetHooks(authserver.Hooks{Tokens: func(m map[string]any) { m["scope"] = scope }})
		if g := s.mustSignIn(); strings.Join(g.Scopes, " ") != "tools" {
			t.Errorf("keeps %d scopes: %.80q", len(g.Scopes), g.Scopes)
		}
	}
}

// What a server says about an error is short, and has no control characters.
func TestHostileErrors(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, hook := range map[string]func(w http.ResponseWriter){
		"a long description": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":"invalid_request","error_description":"\u001b[31m`+long+`"}`)
		},
		"a long reason": func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, "HTTP/1.1 502 \x1b[31m"+long[:30<<10]+"\r\nContent-Length: 0\r\n\r\n")
			conn.Close()
		},
	} {
		for _, path := range []string{"/register", "/token", "/.well-known/oauth-authorization-server"} {
			s := newSite(t, authserver.Options{})
			s.auth.SetHooks(authserver.Hooks{Request: func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != path {
					return false
				}
				hook(w)
				return true
			}})
			if _, err := s.signIn(); err == nil && path != "/.well-known/oauth-authorization-server" || err != nil && (len(err.Error()) > 1000 || strings.Contains(err.Error(), "\x1b")) {
				t.Errorf("%s at %s: %.200q", name, path, err)
			}
		}
	}
}

// A server on this machine may have its authorization server at any name of this machine.
func TestLoopbackNames(t *testing.T) {
	s := newSite(t, authserver.Options{})
	s.client.HTTP = oauth.HTTPClient(nil, "http://localhost:1/mcp")
	s.mustSignIn()
}

// The query of a URL may have a key. No error has it.
func TestErrorsHaveNoQuery(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"nonsense": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") },
		"no server": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"resource":"http://`+r.Host+`/mcp?key=s3cret"}`)
		},
		"other": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"resource":"http://other.example"}`) },
		"another issuer": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"resource":"http://`+r.Host+`/mcp?key=s3cret","authorization_servers":["https://a.example"]}`)
		},
	} {
		c := document(t, serve)
		c.Resource, c.Issuer = c.Resource+"?key=s3cret", "https://b.example"
		if _, err := c.Begin(t.Context(), nil, nil); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "/mcp") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Both tokens are revoked: not every authorization server revokes an access token with its refresh token.
func TestRevokesBothTokens(t *testing.T) {
	s := newSite(t, authserver.Options{})
	g := s.mustSignIn()
	if err := s.client.Revoke(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	revoked := make(map[string]bool)
	for _, r := range s.auth.Requests() {
		if r.Path == "/revoke" {
			revoked[r.Form.Get("token")] = true
		}
	}
	if !revoked[g.Refresh] || !revoked[g.Access] {
		t.Errorf("revoked %d tokens", len(revoked))
	}
}
