package authserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Types of grants.
const (
	deviceCode    = "urn:ietf:params:oauth:grant-type:device_code"
	tokenExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	accessToken   = "urn:ietf:params:oauth:token-type:access_token"
)

// authorize sends the browser back to the client with a code, as if the user had consented.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	client, ok := s.client(r.Context(), q.Get("client_id"))
	if err != nil || !ok || !client.allows(q.Get("redirect_uri")) {
		http.Error(w, "unknown client or redirect URI", http.StatusBadRequest)
		return
	}
	answer := url.Values{"iss": {s.URL}}
	if state := q.Get("state"); state != "" {
		answer.Set("state", state)
	}
	g := Grant{
		Client: q.Get("client_id"), User: "alice", Scopes: strings.Fields(q.Get("scope")), Resources: q["resource"],
		redirect: q.Get("redirect_uri"), challenge: q.Get("code_challenge"), nonce: q.Get("nonce"),
	}
	switch {
	case q.Get("response_type") != "code" || g.challenge == "" || q.Get("code_challenge_method") != "S256":
		answer.Set("error", "invalid_request")
	case !s.consents(&g):
		answer.Set("error", "access_denied")
	default:
		code := rand.Text()
		answer.Set("code", code)
		s.mu.Lock()
		s.codes[code] = g
		s.mu.Unlock()
	}
	s.mu.Lock()
	hook := s.hooks.Redirect
	s.mu.Unlock()
	if hook != nil {
		hook(answer)
	}
	all := back.Query()
	maps.Copy(all, answer)
	back.RawQuery = all.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// consents asks the user, and gives the grant its id.
func (s *Server) consents(g *Grant) bool {
	g.id = rand.Text()
	s.mu.Lock()
	s.revoked[g.id] = false
	hook := s.hooks.Consent
	s.mu.Unlock()
	return hook == nil || hook(g)
}

// token is the token endpoint.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	client, ok := s.authenticated(r)
	if !ok {
		s.refuse(w, "invalid_client", "unknown client or wrong secret")
		return
	}
	trade := map[string]func(client string, form url.Values) (Grant, string){
		"authorization_code": s.tradeCode, "refresh_token": s.tradeRefresh, "client_credentials": s.ownGrant, deviceCode: s.tradeDevice, tokenExchange: s.exchange,
	}[r.PostForm.Get("grant_type")]
	if trade == nil {
		s.refuse(w, "unsupported_grant_type", "")
		return
	}
	g, bad := trade(client, r.PostForm)
	if bad != "" {
		s.refuse(w, bad, "")
		return
	}
	s.answer(w, http.StatusOK, s.tokens(g, r.PostForm.Get("grant_type")))
}

// tradeCode returns the grant of an authorization code, which can be used once.
func (s *Server) tradeCode(client string, form url.Values) (Grant, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.codes[form.Get("code")]
	delete(s.codes, form.Get("code"))
	sum := sha256.Sum256([]byte(form.Get("code_verifier")))
	if !ok || g.Client != client || g.redirect != form.Get("redirect_uri") || g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
		return Grant{}, "invalid_grant"
	}
	return narrowed(g, form)
}

// narrowed applies the resource and scope of a request to a grant.
func narrowed(g Grant, form url.Values) (Grant, string) {
	for _, resource := range form["resource"] {
		if !contains(g.Resources, resource) {
			return Grant{}, "invalid_target"
		}
	}
	for scope := range strings.FieldsSeq(form.Get("scope")) {
		if !contains(g.Scopes, scope) {
			return Grant{}, "invalid_scope"
		}
	}
	return g, ""
}

// contains reports whether value is in all. An empty list contains everything.
func contains(all []string, value string) bool {
	return len(all) == 0 || slices.Contains(all, value)
}

// tradeRefresh returns the grant of a refresh token, which can be used once: using it again
// revokes the grant.
func (s *Server) tradeRefresh(client string, form url.Values) (Grant, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := form.Get("refresh_token")
	if g, ok := s.used[shown]; ok {
		s.revoked[g.id] = true
	}
	g, ok := s.refresh[shown]
	if !ok || g.Client != client || s.revoked[g.id] {
		return Grant{}, "invalid_grant"
	}
	delete(s.refresh, shown)
	s.used[shown] = g
	return narrowed(g, form)
}

// ownGrant returns the grant of a confidential client for itself.
func (s *Server) ownGrant(client string, form url.Values) (Grant, string) {
	if c, _ := s.client(s.t.Context(), client); c.Secret == "" {
		return Grant{}, "unauthorized_client"
	}
	g := Grant{Client: client, User: client, Scopes: strings.Fields(form.Get("scope")), Resources: form["resource"]}
	if !s.consents(&g) {
		return Grant{}, "unauthorized_client"
	}
	return g, ""
}

// exchange returns the grant for another resource of the user in a token of this server
// (RFC 8693).
func (s *Server) exchange(client string, form url.Values) (Grant, string) {
	claims, err := s.Verify(form.Get("subject_token"), "")
	if err != nil {
		return Grant{}, "invalid_grant"
	}
	user, _ := claims["sub"].(string)
	g := Grant{Client: client, User: user, Scopes: strings.Fields(form.Get("scope")), Resources: append(form["resource"], form["audience"]...)}
	if !s.consents(&g) {
		return Grant{}, "invalid_grant"
	}
	return g, ""
}

// tokens returns the response of the token endpoint.
func (s *Server) tokens(g Grant, by string) map[string]any {
	claims := map[string]any{"sub": g.User, "client_id": g.Client, "scope": strings.Join(g.Scopes, " "), "aud": g.Resources, "grant": g.id}
	switch len(g.Resources) {
	case 0:
		claims["aud"] = g.Client
	case 1:
		claims["aud"] = g.Resources[0]
	}
	s.change(claims, func(h *Hooks) func(map[string]any) { return h.Claims })
	m := map[string]any{
		"access_token": s.Sign(claims), "token_type": "Bearer", "expires_in": int(s.options.Lifetime.Seconds()), "scope": strings.Join(g.Scopes, " "),
	}
	switch by {
	case tokenExchange:
		m["issued_token_type"] = accessToken
	case "client_credentials": // has no refresh token
	default:
		next := rand.Text()
		s.mu.Lock()
		s.refresh[next] = g
		s.mu.Unlock()
		m["refresh_token"] = next
		if slices.Contains(g.Scopes, "openid") {
			m["id_token"] = s.Sign(map[string]any{"sub": g.User, "aud": g.Client, "nonce": g.nonce})
		}
	}
	s.change(m, func(h *Hooks) func(map[string]any) { return h.Tokens })
	return m
}

// revoke revokes a token (RFC 7009), and for a refresh token its grant.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.authenticated(r); !ok {
		s.refuse(w, "invalid_client", "unknown client or wrong secret")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	token := r.PostForm.Get("token")
	if g, ok := s.refresh[token]; ok {
		s.revoked[g.id] = true
	}
	s.revoked[token] = true
}

// A device is a device that waits for its user (RFC 8628).
type device struct {
	code     string // that the user types
	grant    Grant
	approved bool
}

// device starts the sign-in of a device.
func (s *Server) device(w http.ResponseWriter, r *http.Request) {
	client, ok := s.authenticated(r)
	if !ok {
		s.refuse(w, "invalid_client", "unknown client or wrong secret")
		return
	}
	id, code := rand.Text(), rand.Text()[:8]
	s.mu.Lock()
	s.devices[id] = &device{code: code, grant: Grant{Client: client, User: "alice", Scopes: strings.Fields(r.PostForm.Get("scope")), Resources: r.PostForm["resource"]}}
	s.mu.Unlock()
	s.answer(w, http.StatusOK, map[string]any{
		"device_code": id, "user_code": code, "verification_uri": s.URL + "/activate", "verification_uri_complete": s.URL + "/activate?user_code=" + code,
		"expires_in": 600, "interval": 1,
	})
}

// ApproveDevice lets the device sign in that shows code.
func (s *Server) ApproveDevice(code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.devices {
		d.approved = d.approved || d.code == code
	}
}

func (s *Server) tradeDevice(client string, form url.Values) (Grant, string) {
	s.mu.Lock()
	d, ok := s.devices[form.Get("device_code")]
	waiting := ok && !d.approved
	if ok && d.approved {
		delete(s.devices, form.Get("device_code"))
	}
	s.mu.Unlock()
	switch {
	case !ok || d.grant.Client != client:
		return Grant{}, "invalid_grant"
	case waiting:
		return Grant{}, "authorization_pending"
	case !s.consents(&d.grant):
		return Grant{}, "access_denied"
	}
	return d.grant, ""
}
