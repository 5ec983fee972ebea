package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// An Issuer is an OpenID provider: it publishes its metadata and keys, signs users in without
// a form, and signs tokens.
type Issuer struct {
	URL    string
	Client string // the id of the only client
	Secret string // of that client

	t testing.TB

	mu      sync.Mutex
	key     *ecdsa.PrivateKey
	keyID   string
	codes   map[string]grant
	refresh map[string]grant // by refresh token, which can be used once
	reused  int
	habits  Habits
	person  map[string]any // claims of the user who signs in next
	change  func(claims map[string]any)
	fetches int
	down    bool
}

// A grant is the record of a code or a refresh token.
type grant struct {
	challenge, nonce, redirect string
	person                     map[string]any
	offline                    bool // a refresh token was requested
}

// Habits are unusual properties of an issuer.
type Habits struct {
	NoRefresh bool   // issue no refresh tokens
	Bare      bool   // omit the ID token after a refresh
	Broken    string // the path of requests that fail
}

// NewIssuer starts an issuer.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, Client: "gate", Secret: "the gate's own", codes: make(map[string]grant), refresh: make(map[string]grant)}
	i.Rotate("key-1")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.configuration)
	mux.HandleFunc("GET /keys", i.publish)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("GET /userinfo", i.tell)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		down := i.down || r.URL.Path == i.habits.Broken
		i.mu.Unlock()
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// Rotate replaces the key.
func (i *Issuer) Rotate(id string) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.keyID = key, id
}

// SetDown makes the issuer fail, or work again.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// SetHabits changes the behaviour of the issuer.
func (i *Issuer) SetHabits(h Habits) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.habits = h
}

// Reused returns how many requests had a refresh token that was unknown or already used.
func (i *Issuer) Reused() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reused
}

// Fetches returns how often the keys were requested.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// Key returns the current key and its id.
func (i *Issuer) Key() (*ecdsa.PrivateKey, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key, i.keyID
}

// LogIn sets the user who signs in from now on. If change is not nil, it adjusts the claims of
// this user's tokens.
func (i *Issuer) LogIn(person map[string]any, change func(claims map[string]any)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.person, i.change = person, change
}

// Sign returns a token with the given claims in addition to the standard ones.
func (i *Issuer) Sign(claims map[string]any, header map[jose.HeaderKey]any) string {
	i.t.Helper()
	all := map[string]any{"iss": i.URL, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	key, id := i.Key()
	return SignWith(i.t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, all, header)
}

// SignWith returns a token signed with the given key.
func SignWith(t testing.TB, key jose.SigningKey, claims map[string]any, header map[jose.HeaderKey]any) string {
	t.Helper()
	signer, err := jose.NewSigner(key, &jose.SignerOptions{ExtraHeaders: header})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range claims {
		if value == nil {
			delete(claims, name)
		}
	}
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (i *Issuer) answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.MarshalWrite(w, value); err != nil {
		i.t.Error(err)
	}
}

func (i *Issuer) configuration(w http.ResponseWriter, _ *http.Request) {
	i.answer(w, map[string]any{
		"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
		"userinfo_endpoint": i.URL + "/userinfo", "scopes_supported": []string{"openid", "offline_access"},
		"id_token_signing_alg_values_supported": []string{"ES256"}, "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
	})
}

func (i *Issuer) publish(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	i.fetches++
	key := jose.JSONWebKey{Key: i.key.Public(), KeyID: i.keyID, Algorithm: "ES256", Use: "sig"}
	i.mu.Unlock()
	i.answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key}})
}

// authorize signs in the user set by LogIn.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != i.Client || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.mu.Lock()
	offline := slices.Contains(strings.Fields(q.Get("scope")), "offline_access") && !i.habits.NoRefresh
	i.codes[code] = grant{q.Get("code_challenge"), q.Get("nonce"), q.Get("redirect_uri"), i.person, offline}
	i.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound) // a test server, so any address is allowed
}

// token issues tokens to the client if its secret is correct.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	} else {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	}
	trade := map[string]func(*http.Request) (grant, bool){"authorization_code": i.tradeCode, "refresh_token": i.tradeRefresh}[r.PostFormValue("grant_type")]
	if trade == nil || id != i.Client || secret != i.Secret {
		i.refuse(w)
		return
	}
	g, ok := trade(r)
	if !ok {
		i.refuse(w)
		return
	}
	i.answer(w, i.tokens(g))
}

func (i *Issuer) refuse(w http.ResponseWriter) {
	w.WriteHeader(http.StatusBadRequest)
	i.answer(w, map[string]any{"error": "invalid_grant"})
}

// tradeCode exchanges a code, once, with the verifier of its challenge.
func (i *Issuer) tradeCode(r *http.Request) (grant, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	g, ok := i.codes[r.PostFormValue("code")]
	delete(i.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	return g, ok && g.redirect == r.PostFormValue("redirect_uri") && g.challenge == base64.RawURLEncoding.EncodeToString(sum[:])
}

// tradeRefresh exchanges a refresh token, once. The user is that of the last LogIn; without a
// user, the account is closed.
func (i *Issuer) tradeRefresh(r *http.Request) (grant, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	shown := r.PostFormValue("refresh_token")
	g, ok := i.refresh[shown]
	delete(i.refresh, shown)
	if !ok {
		i.reused++
	}
	g.person, g.nonce = i.person, ""
	return g, ok && g.person != nil
}

// tokens returns the response with the tokens for a grant.
func (i *Issuer) tokens(g grant) map[string]any {
	i.mu.Lock()
	change, renewed, bare := i.change, g.nonce == "", i.habits.Bare
	given := map[string]any{"access_token": rand.Text(), "token_type": "Bearer"}
	if g.offline {
		next := rand.Text()
		i.refresh[next], given["refresh_token"] = g, next
	}
	i.mu.Unlock()
	if renewed && bare {
		return given
	}
	claims := map[string]any{"aud": i.Client, "nonce": g.nonce}
	if renewed {
		delete(claims, "nonce")
	}
	maps.Copy(claims, g.person)
	if change != nil {
		change(claims)
	}
	given["id_token"] = i.Sign(claims, nil)
	return given
}

// tell returns the claims of the current user.
func (i *Issuer) tell(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	person := i.person
	i.mu.Unlock()
	i.answer(w, person)
}
