// Package authserver is an OAuth authorization server for tests: authorization codes with PKCE,
// dynamic registration, client ID metadata documents, refresh tokens that can be used once,
// revocation, device codes, client credentials and token exchange. Users consent without a form.
// Access tokens are JWTs whose audience is the resource that the client named (RFC 8707).
//
//	server := authserver.New(t, authserver.Options{Scopes: []string{"mcp:tools"}})
//	upstream := server.Protect("/mcp", handler, "mcp:tools")
package authserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// Options are fixed properties of a server.
type Options struct {
	Path           string        // path of the issuer, such as /tenant
	TLS            bool          // serve https; Server.Client trusts it
	Lifetime       time.Duration // of access tokens; an hour if 0
	Scopes         []string      // scopes_supported
	NoRegistration bool          // no dynamic registration
	Documents      *http.Client  // fetches client ID metadata documents; nil disables them
}

// Hooks make a server misbehave. Any of them may be nil.
type Hooks struct {
	Request  func(w http.ResponseWriter, r *http.Request) bool // answers a request instead of the server, and returns true
	Consent  func(g *Grant) bool                               // may change the grant; false denies it
	Redirect func(answer url.Values)                           // changes the parameters for the client's redirect URI
	Metadata func(m map[string]any)                            // changes the metadata of the server
	Claims   func(c map[string]any)                            // changes the claims of access tokens
	Tokens   func(m map[string]any)                            // changes answers of the token endpoint
}

// A Grant is what a user has allowed a client to do.
type Grant struct {
	Client    string
	User      string
	Scopes    []string
	Resources []string // what the client named as resource

	id        string // of all tokens that come from one consent
	redirect  string
	challenge string
	nonce     string
}

// A Client is a registered client.
type Client struct {
	Secret    string // empty for a public client
	Redirects []string
}

// A Request is a request that the server got.
type Request struct {
	Method, Path string
	Form         url.Values // of the query and the body
}

// A Server is an authorization server.
type Server struct {
	URL    string       // the issuer
	Client *http.Client // for requests to the server

	t       testing.TB
	options Options
	key     *ecdsa.PrivateKey

	mu       sync.Mutex
	hooks    Hooks
	clients  map[string]Client
	codes    map[string]Grant // by authorization code
	refresh  map[string]Grant // by refresh token
	used     map[string]Grant // by refresh token that was used
	devices  map[string]*device
	revoked  map[string]bool // by id of a grant, or access token
	requests []Request
}

// New starts a server.
func New(t testing.TB, o Options) *Server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if o.Lifetime == 0 {
		o.Lifetime = time.Hour
	}
	s := &Server{
		t: t, options: o, key: key,
		clients: make(map[string]Client), codes: make(map[string]Grant), refresh: make(map[string]Grant), used: make(map[string]Grant),
		devices: make(map[string]*device), revoked: make(map[string]bool),
	}
	server := httptest.NewUnstartedServer(s.handler())
	if o.TLS {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	s.URL, s.Client = server.URL+o.Path, server.Client()
	return s
}

// SetHooks replaces the hooks.
func (s *Server) SetHooks(h Hooks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = h
}

// Register adds a client with a fixed id.
func (s *Server) Register(id string, c Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[id] = c
}

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// RevokeAll revokes all tokens, as if every user had withdrawn the consent.
func (s *Server) RevokeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of := range s.revoked {
		s.revoked[of] = true
	}
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	at := s.options.Path
	mux.HandleFunc("GET /.well-known/oauth-authorization-server"+at, s.metadata)
	mux.HandleFunc("GET /.well-known/openid-configuration"+at, s.metadata)
	if at != "" {
		mux.HandleFunc("GET "+at+"/.well-known/openid-configuration", s.metadata)
	}
	mux.HandleFunc("GET "+at+"/keys", s.publish)
	mux.HandleFunc("GET "+at+"/authorize", s.authorize)
	mux.HandleFunc("POST "+at+"/token", s.token)
	mux.HandleFunc("POST "+at+"/register", s.register)
	mux.HandleFunc("POST "+at+"/revoke", s.revoke)
	mux.HandleFunc("POST "+at+"/device", s.device)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") != "application/json" {
			_ = r.ParseForm() // a form that cannot be parsed lacks parameters
		}
		s.mu.Lock()
		s.requests = append(s.requests, Request{r.Method, r.URL.Path, r.Form})
		hook := s.hooks.Request
		s.mu.Unlock()
		if hook == nil || !hook(w, r) {
			mux.ServeHTTP(w, r)
		}
	})
}

func (s *Server) answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if err := json.MarshalWrite(w, value); err != nil {
		s.t.Error(err)
	}
}

// refuse answers with an OAuth error.
func (s *Server) refuse(w http.ResponseWriter, code, why string) {
	status := http.StatusBadRequest
	if code == "invalid_client" {
		status = http.StatusUnauthorized
	}
	s.answer(w, status, map[string]any{"error": code, "error_description": why})
}

func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	m := map[string]any{
		"issuer": s.URL, "jwks_uri": s.URL + "/keys",
		"authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token",
		"revocation_endpoint": s.URL + "/revoke", "device_authorization_endpoint": s.URL + "/device",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"ES256"},
		"grant_types_supported":                 []string{"authorization_code", "refresh_token", "client_credentials", deviceCode, tokenExchange},
		"code_challenge_methods_supported":      []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic", "client_secret_post"},

		"authorization_response_iss_parameter_supported": true,
	}
	if len(s.options.Scopes) > 0 {
		m["scopes_supported"] = s.options.Scopes
	}
	if !s.options.NoRegistration {
		m["registration_endpoint"] = s.URL + "/register"
	}
	if s.options.Documents != nil {
		m["client_id_metadata_document_supported"] = true
	}
	s.change(m, func(h *Hooks) func(map[string]any) { return h.Metadata })
	s.answer(w, http.StatusOK, m)
}

// change applies a hook to m.
func (s *Server) change(m map[string]any, which func(*Hooks) func(map[string]any)) {
	s.mu.Lock()
	hook := which(&s.hooks)
	s.mu.Unlock()
	if hook != nil {
		hook(m)
	}
}

func (s *Server) publish(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: s.key.Public(), KeyID: "key-1", Algorithm: "ES256", Use: "sig"}}})
}

// Sign returns a token with the given claims in addition to the standard ones.
func (s *Server) Sign(claims map[string]any) string {
	now := time.Now()
	all := map[string]any{"iss": s.URL, "iat": now.Unix(), "exp": now.Add(s.options.Lifetime).Unix(), "jti": rand.Text()}
	maps.Copy(all, claims)
	key := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: "key-1"}}
	return testenv.SignWith(s.t, key, all, nil)
}
