package authserver_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
)

const callback = "http://127.0.0.1:1/callback"

// protected starts an MCP server that needs tokens of s.
func protected(t *testing.T, s *authserver.Server, scopes ...string) string {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "protected"}, nil)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	listener := httptest.NewServer(s.Protect("/mcp", handler, scopes...))
	t.Cleanup(listener.Close)
	return listener.URL + "/mcp"
}

// connect connects the SDK's client with a handler for the sign-in.
func connect(t *testing.T, endpoint string, c auth.AuthorizationCodeHandlerConfig) error {
	t.Helper()
	handler, err := auth.NewAuthorizationCodeHandler(&c)
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint, OAuthHandler: handler, DisableStandaloneSSE: true}, nil)
	if err == nil {
		defer session.Close()
		err = session.Ping(t.Context(), nil)
	}
	return err
}

func dynamic() *auth.DynamicClientRegistrationConfig {
	return &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{RedirectURIs: []string{callback}}}
}

func TestSDKClientSignsIn(t *testing.T) {
	documents := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.MarshalWrite(w, map[string]any{"client_id": "https://" + r.Host + r.URL.Path, "redirect_uris": []string{callback}})
	}))
	defer documents.Close()
	for name, c := range map[string]auth.AuthorizationCodeHandlerConfig{
		"dynamic registration": {DynamicClientRegistrationConfig: dynamic()},
		"metadata document":    {ClientIDMetadataDocumentConfig: &auth.ClientIDMetadataDocumentConfig{URL: documents.URL + "/client"}, RedirectURL: callback},
		"registered":           {PreregisteredClient: &oauthex.ClientCredentials{ClientID: "known"}, RedirectURL: callback},
	} {
		t.Run(name, func(t *testing.T) {
			s := authserver.New(t, authserver.Options{Path: "/tenant", Documents: documents.Client(), Scopes: []string{"tools"}})
			s.Register("known", authserver.Client{Redirects: []string{callback}})
			c.AuthorizationCodeFetcher = s.Browse
			if err := connect(t, protected(t, s, "tools"), c); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHooks(t *testing.T) {
	for name, h := range map[string]authserver.Hooks{
		"denied":         {Consent: func(*authserver.Grant) bool { return false }},
		"other issuer":   {Redirect: func(answer url.Values) { answer.Set("iss", "https://other.example") }},
		"no PKCE":        {Metadata: func(m map[string]any) { delete(m, "code_challenge_methods_supported") }},
		"other audience": {Claims: func(c map[string]any) { c["aud"] = "https://other.example" }},
		"no token":       {Tokens: func(m map[string]any) { delete(m, "access_token") }},
		"down": {Request: func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := authserver.New(t, authserver.Options{})
			s.SetHooks(h)
			if err := connect(t, protected(t, s), auth.AuthorizationCodeHandlerConfig{DynamicClientRegistrationConfig: dynamic(), AuthorizationCodeFetcher: s.Browse}); err == nil {
				t.Error("the client signed in")
			}
		})
	}
}

// post sends a form to an endpoint and returns the answer.
func post(t *testing.T, s *authserver.Server, path string, form url.Values) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := s.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var m map[string]any
	if err := json.UnmarshalRead(resp.Body, &m); err != nil && path != "/revoke" {
		t.Fatal(err)
	}
	return m
}

func TestRefreshTokenCanBeUsedOnce(t *testing.T) {
	s := authserver.New(t, authserver.Options{TLS: true, NoRegistration: true})
	s.Register("tv", authserver.Client{})
	form := url.Values{"client_id": {"tv"}, "resource": {"https://a.example"}}
	device := post(t, s, "/device", form)
	form.Set("grant_type", "urn:ietf:params:oauth:grant-type:device_code")
	form.Set("device_code", device["device_code"].(string))
	if got := post(t, s, "/token", form); got["error"] != "authorization_pending" {
		t.Fatalf("before approval: %v", got)
	}
	s.ApproveDevice(device["user_code"].(string))
	first := post(t, s, "/token", form)

	refresh := url.Values{"client_id": {"tv"}, "grant_type": {"refresh_token"}, "refresh_token": {first["refresh_token"].(string)}}
	second := post(t, s, "/token", refresh)
	token := second["access_token"].(string)
	if _, err := s.Verify(token, "https://a.example"); err != nil {
		t.Error(err)
	}
	if _, err := s.Verify(token, "https://b.example"); err == nil {
		t.Error("the token is good for another resource")
	}
	if got := post(t, s, "/token", refresh); got["error"] != "invalid_grant" {
		t.Errorf("second use: %v", got)
	}
	if _, err := s.Verify(token, ""); err == nil {
		t.Error("the token is good after a refresh token was used twice")
	}
}

func TestServiceExchangesToken(t *testing.T) {
	s := authserver.New(t, authserver.Options{})
	s.Register("service", authserver.Client{Secret: "secret"})
	form := url.Values{"client_id": {"service"}, "client_secret": {"secret"}, "grant_type": {"client_credentials"}}
	own := post(t, s, "/token", form)["access_token"].(string)
	form.Set("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange")
	form.Set("subject_token", own)
	form.Set("resource", "https://a.example")
	exchanged := post(t, s, "/token", form)["access_token"].(string)
	if claims, err := s.Verify(exchanged, "https://a.example"); err != nil || claims["sub"] != "service" {
		t.Errorf("claims %v, error %v", claims, err)
	}
	post(t, s, "/revoke", url.Values{"client_id": {"service"}, "client_secret": {"secret"}, "token": {own}})
	if _, err := s.Verify(own, ""); err == nil {
		t.Error("the token is good after it was revoked")
	}
	s.RevokeAll()
	if _, err := s.Verify(exchanged, ""); err == nil {
		t.Error("the token is good after all were revoked")
	}
	if got := s.Requests(); len(got) != 3 || got[0].Form.Get("grant_type") != "client_credentials" {
		t.Errorf("requests %v", got)
	}
}
