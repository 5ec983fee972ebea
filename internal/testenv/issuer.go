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
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// An Issuer is an OpenID provider: it publishes what it is and its keys, logs
// people in without asking them, and signs tokens.
type Issuer struct {
	URL    string
	Client string // the id of the one client that it knows
	Secret string // of that client

	t testing.TB

	mu      sync.Mutex
	key     *ecdsa.PrivateKey
	keyID   string
	codes   map[string]grant
	person  map[string]any // who is logged in next
	change  func(claims map[string]any)
	fetches int
	down    bool
}

// A grant is what a code is good for.
type grant struct {
	challenge, nonce, redirect string
	person                     map[string]any
}

// NewIssuer starts an issuer.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, Client: "gate", Secret: "the gate's own", codes: make(map[string]grant)}
	i.Rotate("key-1")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.configuration)
	mux.HandleFunc("GET /keys", i.publish)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		down := i.down
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

// Fetches returns how often the keys were fetched.
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

// LogIn makes somebody the one who is logged in from now on. Change, if it is
// not nil, adjusts the claims of the tokens that they get.
func (i *Issuer) LogIn(person map[string]any, change func(claims map[string]any)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.person, i.change = person, change
}

// Sign returns a token with the given claims, after those that every token has.
func (i *Issuer) Sign(claims map[string]any, header map[jose.HeaderKey]any) string {
	i.t.Helper()
	all := map[string]any{"iss": i.URL, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	key, id := i.Key()
	return SignWith(i.t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, all, header)
}

// SignWith returns a token that is signed with any key.
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

// authorize logs in whoever LogIn named.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != i.Client || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = grant{q.Get("code_challenge"), q.Get("nonce"), q.Get("redirect_uri"), i.person}
	i.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound) //nolint:gosec // it is what such a server is for
}

// token trades a code, once, to the client that shows its secret and the
// verifier of the challenge.
func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	} else {
		id, _ = url.QueryUnescape(id)
		secret, _ = url.QueryUnescape(secret)
	}
	i.mu.Lock()
	g, ok := i.codes[r.PostFormValue("code")]
	delete(i.codes, r.PostFormValue("code"))
	change := i.change
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || id != i.Client || secret != i.Secret || g.redirect != r.PostFormValue("redirect_uri") ||
		g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)
		i.answer(w, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"aud": i.Client, "nonce": g.nonce}
	maps.Copy(claims, g.person)
	if change != nil {
		change(claims)
	}
	i.answer(w, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "id_token": i.Sign(claims, nil)})
}
