package authserver

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// metadata of a client, in a registration or in a document at its id.
type clientMetadata struct {
	ID        string   `json:"client_id,omitzero"`
	Secret    string   `json:"client_secret,omitzero"`
	Name      string   `json:"client_name,omitzero"`
	Redirects []string `json:"redirect_uris"`
	Method    string   `json:"token_endpoint_auth_method,omitzero"`
	Grants    []string `json:"grant_types,omitzero"`
	Responses []string `json:"response_types,omitzero"`
	Scope     string   `json:"scope,omitzero"`
}

// register registers a client (RFC 7591).
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var m clientMetadata
	if err := json.UnmarshalRead(io.LimitReader(r.Body, 1<<16), &m); err != nil || s.options.NoRegistration || len(m.Redirects) == 0 && !slices.Contains(m.Grants, deviceCode) {
		s.refuse(w, "invalid_client_metadata", "the metadata cannot be read or has no redirect URI")
		return
	}
	m.ID, m.Secret = "client-"+rand.Text(), ""
	if m.Method != "none" {
		m.Secret = rand.Text()
	}
	s.Register(m.ID, Client{Secret: m.Secret, Redirects: m.Redirects})
	s.answer(w, http.StatusCreated, m)
}

// client returns the client with an id: one that is registered, or one whose id is the URL of its
// metadata.
func (s *Server) client(ctx context.Context, id string) (Client, bool) {
	s.mu.Lock()
	c, ok := s.clients[id]
	s.mu.Unlock()
	if ok || s.options.Documents == nil || !strings.HasPrefix(id, "https://") {
		return c, ok
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id, http.NoBody)
	if err != nil {
		return c, false
	}
	resp, err := s.options.Documents.Do(req)
	if err != nil {
		return c, false
	}
	defer func() { _ = resp.Body.Close() }()
	var m clientMetadata
	if resp.StatusCode != http.StatusOK || json.UnmarshalRead(io.LimitReader(resp.Body, 1<<16), &m) != nil || m.ID != id {
		return c, false
	}
	return Client{Redirects: m.Redirects}, true
}

// authenticated returns the id of the client that sent a request to the token endpoint.
func (s *Server) authenticated(r *http.Request) (string, bool) {
	id, secret, basic := r.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	c, ok := s.client(r.Context(), id)
	return id, ok && secret == c.Secret
}

// allows reports whether the client may be answered at a redirect URI. The port of a loopback
// address does not matter (RFC 8252).
func (c Client) allows(redirect string) bool {
	return slices.ContainsFunc(c.Redirects, func(registered string) bool {
		return registered == redirect || withoutLoopbackPort(registered) == withoutLoopbackPort(redirect)
	})
}

func withoutLoopbackPort(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" {
		return text
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		u.Host = u.Hostname()
	}
	return u.String()
}
