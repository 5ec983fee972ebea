package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const audience = "https://gate.example/mcp"

// A fixture authenticates agents by the tokens of an issuer, with an adjustable clock.
type fixture struct {
	*identity.Authenticator

	issuer *testenv.Issuer
	ahead  atomic.Int64 // seconds
	tokens map[string]string
}

func open(t *testing.T, change func(*identity.Config)) *fixture {
	t.Helper()
	d := &fixture{issuer: testenv.NewIssuer(t)}
	began := time.Now() // a fixed time, so that no token expires in slow tests
	c := identity.Config{
		Issuers: []identity.Issuer{{URL: d.issuer.URL, Audiences: []string{"other", audience}, Skew: time.Minute}},
		Client:  &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		Now:     func() time.Time { return began.Add(time.Duration(d.ahead.Load()) * time.Second) },
	}
	if change != nil {
		change(&c)
	}
	var err error
	if d.Authenticator, err = identity.New(c); err != nil {
		t.Fatal(err)
	}
	return d
}

func request(t *testing.T, token string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func (d *fixture) good(t *testing.T, token string) policy.Principal {
	t.Helper()
	agent, err := d.Authenticate(t.Context(), request(t, token), identity.Resource{})
	if err != nil {
		t.Fatalf("not recognised: %v", err)
	}
	return agent.Principal
}

func (d *fixture) bad(t *testing.T, token, why string) {
	t.Helper()
	agent, err := d.Authenticate(t.Context(), request(t, token), identity.Resource{})
	e, ok := errors.AsType[*identity.Error](err)
	if !ok || e.Unavailable || !strings.Contains(e.Reason, why) {
		t.Errorf("recognised %+v, %v; want %q", agent.Principal, err, why)
	}
	if strings.Contains(fmt.Sprint(err), token) && token != "" {
		t.Errorf("the error has the token: %v", err)
	}
}

func claims(change map[string]any) map[string]any {
	all := map[string]any{"aud": audience, "sub": "ann"}
	maps.Copy(all, change)
	return all
}

// A prefix separates the ids of issuers, but the name without prefix stays an alias: otherwise
// people could approve their own calls.
func TestJWTPrefixKeepsAliases(t *testing.T) {
	for claim, want := range map[string]policy.Principal{
		"sub":       {ID: "corp:ann", Aliases: []string{"ann"}},
		"client_id": {ID: "corp:bot", Aliases: []string{"bot", "ann"}},
	} {
		d := open(t, func(c *identity.Config) { c.Issuers[0].Prefix, c.Issuers[0].ID = "corp:", claim })
		got := d.good(t, d.issuer.Sign(claims(map[string]any{"client_id": "bot"}), nil))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("by %s: %s", claim, diff)
		}
	}
}

func TestJWT(t *testing.T) {
	d := open(t, nil)
	got := d.good(t, d.issuer.Sign(claims(map[string]any{
		"groups": []string{"devs", "oncall"}, "email": "Ann@example.com", "act": map[string]any{"sub": "bot"},
	}), map[jose.HeaderKey]any{"typ": "at+jwt"}))
	want := policy.Principal{ID: "ann", Groups: []string{"devs", "oncall"}, Aliases: []string{"Ann@example.com", "bot"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := d.good(t, d.issuer.Sign(claims(map[string]any{"aud": []string{"x", audience}, "groups": "one"}), nil)); !cmp.Equal(got.Groups, []string{"one"}) {
		t.Errorf("got %+v", got)
	}
}

// Wrong claims in tokens that the issuer signed.
func TestJWTClaims(t *testing.T) {
	d := open(t, nil)
	now := time.Now().Unix()
	tests := map[string]struct {
		change map[string]any
		want   string
	}{
		"audience":             {map[string]any{"aud": "https://gate.example/"}, "issued for another audience"},
		"no audience":          {map[string]any{"aud": nil}, "issued for another audience"},
		"audience is a number": {map[string]any{"aud": 7}, "issued for another audience"},
		"mixed audiences":      {map[string]any{"aud": []any{audience, 7}}, "issued for another audience"},
		"issuer":               {map[string]any{"iss": "https://evil.example"}, "issuer is not known"},
		"no issuer":            {map[string]any{"iss": nil}, "issuer is not known"},
		"issuer in a list":     {map[string]any{"iss": []string{"x"}}, "issuer is not known"},
		"expired":              {map[string]any{"exp": now - 61}, "expired"},
		"expired just now":     {map[string]any{"exp": now - 50}, ""},
		"no expiry":            {map[string]any{"exp": nil}, "no expiry time"},
		"expiry is a text":     {map[string]any{"exp": "9999999999"}, "no expiry time"},
		"expiry without end":   {map[string]any{"exp": 1e300}, "no expiry time"},
		"not yet":              {map[string]any{"nbf": now + 70}, "not valid yet"},
		"in a moment":          {map[string]any{"nbf": now + 50}, ""},
		"nbf is a text":        {map[string]any{"nbf": "0"}, "not valid yet"},
		"made in the future":   {map[string]any{"iat": now + 70}, "not valid yet"},
		"bound to a key":       {map[string]any{"cnf": map[string]any{"jkt": "x"}}, "bound to a key"},
		"no subject":           {map[string]any{"sub": nil}, "no claim sub"},
		"an empty name":        {map[string]any{"sub": ""}, "no claim sub"},
		"a name in a list":     {map[string]any{"sub": []string{"ann"}}, "no claim sub"},
		"groups of all kinds":  {map[string]any{"groups": []any{"a", 1}}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			token := d.issuer.Sign(claims(tt.change), nil)
			if tt.want == "" {
				if got := d.good(t, token); got.ID != "ann" || len(got.Groups) != 0 {
					t.Errorf("got %+v", got)
				}
				return
			}
			d.bad(t, token, tt.want)
		})
	}
}

// Wrong signatures, and headers that do not match the signature.
func TestJWTSignatures(t *testing.T) {
	d := open(t, nil)
	d.good(t, d.issuer.Sign(claims(nil), nil)) // makes the gate fetch the keys
	key, id := d.issuer.Key()
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	all := claims(map[string]any{"iss": d.issuer.URL, "exp": time.Now().Add(time.Hour).Unix()})
	sign := func(alg jose.SignatureAlgorithm, key any, header map[jose.HeaderKey]any) string {
		return testenv.SignWith(t, jose.SigningKey{Algorithm: alg, Key: key}, all, header)
	}
	good := d.issuer.Sign(claims(nil), nil)
	parts := strings.Split(good, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	last := byte('A')
	if parts[2][40] == 'A' {
		last = 'B'
	}
	tests := map[string]struct{ token, want string }{
		"none":                     {encode(`{"alg":"none"}`) + "." + parts[1] + ".", "not a JWT with a supported signature"},
		"None":                     {encode(`{"alg":"None"}`) + "." + parts[1] + ".", "not a JWT with a supported signature"},
		"none with a signature":    {encode(`{"alg":"none","kid":"`+id+`"}`) + "." + parts[1] + "." + parts[2], "not a JWT with a supported signature"},
		"HS256 with the key":       {sign(jose.HS256, public, map[jose.HeaderKey]any{"kid": id}), "not a JWT with a supported signature"},
		"HS512 with the key":       {sign(jose.HS512, append(public, public...), nil), "not a JWT with a supported signature"},
		"another key":              {sign(jose.ES256, otherKey, nil), "signature is wrong"},
		"another key with that id": {sign(jose.ES256, jose.JSONWebKey{Key: otherKey, KeyID: id}, nil), "signature is wrong"},
		"an unknown key":           {sign(jose.ES256, jose.JSONWebKey{Key: otherKey, KeyID: "other"}, nil), "key is not one of the issuer's"},
		"a key in the token":       {sign(jose.ES256, otherKey, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: otherKey.Public()}}), ""},
		"a key at another address": {sign(jose.ES256, otherKey, map[jose.HeaderKey]any{"jku": "https://evil.example/keys"}), "signature is wrong"},
		"another algorithm":        {sign(jose.RS256, jose.JSONWebKey{Key: weak, KeyID: id}, nil), "key is not one of the issuer's"},
		"another purpose":          {d.issuer.Sign(claims(nil), map[jose.HeaderKey]any{"typ": "logout+jwt"}), "another purpose"},
		"an odd purpose":           {d.issuer.Sign(claims(nil), map[jose.HeaderKey]any{"typ": 7}), ""},
		"something critical":       {d.issuer.Sign(claims(nil), map[jose.HeaderKey]any{"crit": []string{"exp"}, "exp": 1}), ""},
		"other claims":             {parts[0] + "." + encode(`{"iss":"`+d.issuer.URL+`","sub":"root","aud":"`+audience+`","exp":99999999999}`) + "." + parts[2], "signature is wrong"},
		"claims twice":             {parts[0] + "." + encode(`{"iss":"`+d.issuer.URL+`","sub":"a","sub":"b"}`) + "." + parts[2], "claims cannot be read"},
		"a changed signature":      {parts[0] + "." + parts[1] + "." + parts[2][:40] + string(last) + parts[2][41:], "signature is wrong"},
		"no signature":             {parts[0] + "." + parts[1] + ".", ""},
		"two parts":                {parts[0] + "." + parts[1], "unknown credentials"},
		"four parts":               {good + "." + parts[2], "unknown credentials"},
		"too long":                 {strings.Repeat("a", 20000) + "." + parts[1] + "." + parts[2], "unknown credentials"},
		"not a token":              {"hello", "unknown credentials"},
		"JSON":                     {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { d.bad(t, tt.token, tt.want) })
	}
	if got := d.good(t, good); got.ID != "ann" { // the right token is still valid
		t.Errorf("got %+v", got)
	}
}

// New keys of an issuer are found, and its key set is not fetched too often.
func TestKeyRotation(t *testing.T) {
	d := open(t, nil)
	old := d.issuer.Sign(claims(nil), nil)
	d.good(t, old)
	d.issuer.Rotate("key-2")
	rotated := d.issuer.Sign(claims(nil), nil)
	d.bad(t, rotated, "key is not one") // the last fetch was a moment ago
	d.ahead.Store(11)
	d.good(t, rotated)
	if n := d.issuer.Fetches(); n != 2 {
		t.Errorf("the keys were fetched %d times", n)
	}
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		made := testenv.SignWith(t, jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: otherKey, KeyID: fmt.Sprint(i)}},
			claims(map[string]any{"iss": d.issuer.URL, "exp": time.Now().Add(time.Hour).Unix()}), nil)
		d.bad(t, made, "key is not one")
	}
	if n := d.issuer.Fetches(); n != 2 {
		t.Errorf("tokens with unknown keys caused %d fetches of the keys", n)
	}
	// Tokens that the old key signed are valid until the gate forgets the key.
	d.good(t, old)
	d.ahead.Store(310)
	d.bad(t, old, "key is not one")

	d.ahead.Store(2000) // the keys are out of date, but still there
	d.issuer.SetDown(true)
	d.good(t, d.issuer.Sign(claims(nil), nil))
}

// If the issuer is down, the error says that the token could not be verified.
func TestIssuerDown(t *testing.T) {
	d := open(t, nil)
	token := d.issuer.Sign(claims(nil), nil)
	d.issuer.SetDown(true)
	_, err := d.Authenticate(t.Context(), request(t, token), identity.Resource{})
	if e, ok := errors.AsType[*identity.Error](err); !ok || !e.Unavailable {
		t.Errorf("got %v", err)
	}
	d.issuer.SetDown(false)
	d.ahead.Store(11)
	d.good(t, token)
}

// A cached token expires.
func TestCachedTokenExpires(t *testing.T) {
	d := open(t, nil)
	token := d.issuer.Sign(claims(map[string]any{"exp": time.Now().Add(100 * time.Second).Unix()}), nil)
	d.good(t, token)
	d.ahead.Store(150)
	d.good(t, token)
	d.ahead.Store(165)
	d.bad(t, token, "expired")
}

// Names and groups come from the configured claims.
func TestClaimNames(t *testing.T) {
	d := open(t, func(c *identity.Config) {
		c.Issuers[0].ID, c.Issuers[0].Groups, c.Issuers[0].Prefix = "email", "realm.roles", "corp:"
	})
	all := map[string]any{"email": "a@b.c", "email_verified": true, "realm": map[string]any{"roles": []string{"x"}}}
	got := d.good(t, d.issuer.Sign(claims(all), nil))
	if diff := cmp.Diff(policy.Principal{ID: "corp:a@b.c", Groups: []string{"x"}, Aliases: []string{"a@b.c", "ann"}}, got); diff != "" {
		t.Error(diff)
	}
	all["email_verified"] = false
	d.bad(t, d.issuer.Sign(claims(all), nil), "not verified")
}

const agentToken = "tga_0123456789abcdefghij"

func TestStaticTokens(t *testing.T) {
	d := open(t, func(c *identity.Config) {
		c.Issuers = nil
		c.Tokens = []identity.Token{
			{Hash: identity.HashOf(agentToken), Name: "ci", Groups: []string{"bots"}, Owner: "ann"},
			{Hash: identity.HashOf("short"), Name: "short"},
		}
	})
	agent, err := d.Authenticate(t.Context(), request(t, agentToken), identity.Resource{})
	want := identity.Agent{Principal: policy.Principal{ID: "ci", Groups: []string{"bots"}, Aliases: []string{"ann"}}, UsedToken: true}
	if diff := cmp.Diff(want, agent); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for _, token := range []string{"short", agentToken[1:], agentToken + "x", strings.ToUpper(agentToken)} {
		d.bad(t, token, "unknown credentials")
	}
	d.bad(t, "", "credentials required")
	for _, header := range []string{"Basic " + agentToken, "Bearer", agentToken} {
		r := request(t, "")
		r.Header.Set("Authorization", header)
		if _, err := d.Authenticate(t.Context(), r, identity.Resource{}); err == nil {
			t.Errorf("%q was accepted", header)
		}
	}
}

// An agent without credentials is anonymous, if that is allowed; an agent with wrong credentials is
// refused even then.
func TestAnonymous(t *testing.T) {
	d := open(t, func(c *identity.Config) { c.Anonymous = true })
	if got := d.good(t, ""); !got.Anonymous {
		t.Errorf("got %+v", got)
	}
	d.bad(t, "wrong", "unknown credentials")
	open(t, nil).bad(t, "", "credentials required")
	nothing := open(t, func(c *identity.Config) { c.Issuers = nil })
	if got := nothing.good(t, "an upstream's own"); !got.Anonymous {
		t.Errorf("got %+v", got)
	}
}

// The proxy's headers count only if the proxy sends them, and are removed otherwise.
func TestProxy(t *testing.T) {
	d := open(t, func(c *identity.Config) {
		c.Anonymous = true
		c.Proxy = &identity.Proxy{
			From:   []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")},
			Header: "X-Forwarded-User", Groups: "X-Forwarded-Groups",
		}
	})
	ask := func(address string, headers ...string) (*http.Request, policy.Principal, error) {
		r := request(t, "")
		r.RemoteAddr = address
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		agent, err := d.Authenticate(t.Context(), r, identity.Resource{})
		return r, agent.Principal, err
	}
	for _, address := range []string{"10.1.2.3:99", "[::ffff:10.1.2.3]:99", "[fd00::1]:99"} {
		r, got, err := ask(address, "X-Forwarded-User", "ann", "X-Forwarded-Groups", "devs, oncall,", "X-Forwarded-Groups", "x", "Authorization", "Bearer for the upstream")
		if diff := cmp.Diff(policy.Principal{ID: "ann", Groups: []string{"devs", "oncall", "x"}}, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", address, err, diff)
		}
		if r.Header.Get("Authorization") == "" || r.Header.Get("X-Forwarded-User") == "" {
			t.Error("a header of the proxy was removed")
		}
	}
	for _, address := range []string{"10.2.0.1:99", "127.0.0.1:99", "[::1]:99", "@", ""} {
		r, got, err := ask(address, "X-Forwarded-User", "ann", "X-Forwarded-Groups", "admins", "X_Forwarded_User", "ann", "x-forwarded_user", "ann",
			"X.Forwarded.User", "ann", "X~Forwarded~User", "ann", "X!Forwarded'Groups", "admins", "X-Other", "y")
		if err != nil || !got.Anonymous {
			t.Errorf("%s: recognised %+v, %v", address, got, err)
		}
		if len(r.Header) != 1 {
			t.Errorf("left: %v", r.Header)
		}
	}
	if _, got, err := ask("10.1.2.3:99", "X-Forwarded-User", "ann", "X-Forwarded-User", "root"); err == nil {
		t.Errorf("two names: recognised %+v", got)
	}
	if _, got, err := ask("10.1.2.3:99", "X-Forwarded-User", ""); err == nil {
		t.Errorf("an empty name: recognised %+v", got)
	}
	if r, got, err := ask("10.1.2.3:99", "X-Forwarded-Groups", "admins"); err != nil || !got.Anonymous || len(r.Header) != 0 {
		t.Errorf("groups without a name: recognised %+v, %v", got, err)
	}
}

// A token for one resource is refused at another, also when it is in the cache.
func TestJWTIsForItsResource(t *testing.T) {
	d := open(t, func(c *identity.Config) { c.Issuers[0].Audiences = []string{"gate"} })
	const a, b = "https://gate.example/mcp/a", "https://gate.example/mcp/b"
	for _, tt := range []struct {
		aud, at string
		ok      bool
	}{
		{a, a, true}, {a, b, false}, {b, b, true}, {"gate", a, true}, {"gate", b, true}, {"", "", false}, {a, "", false}, {a + "/", a, false}, {"https://other.example", a, false}, {a, a, true},
	} {
		_, err := d.Authenticate(t.Context(), request(t, d.token(tt.aud)), identity.Resource{URL: tt.at})
		if (err == nil) != tt.ok {
			t.Errorf("a token for %q at %q: %v", tt.aud, tt.at, err)
		}
	}
}

// token returns the same token for an audience each time.
func (d *fixture) token(aud string) string {
	if d.tokens[aud] == "" {
		if d.tokens == nil {
			d.tokens = make(map[string]string)
		}
		d.tokens[aud] = d.issuer.Sign(claims(map[string]any{"aud": aud}), nil)
	}
	return d.tokens[aud]
}

func TestJWTNeedsScopes(t *testing.T) {
	d := open(t, nil)
	for _, tt := range []struct {
		has map[string]any
		ok  bool
	}{
		{nil, false},
		{map[string]any{"scope": "read"}, false},
		{map[string]any{"scope": "reader writer"}, false},
		{map[string]any{"scope": "read write"}, true},
		{map[string]any{"scope": "write other read"}, true},
		{map[string]any{"scp": []string{"read", "write"}}, true},
		{map[string]any{"scp": "read write"}, true},
		{map[string]any{"scp": []string{"read"}, "scope": "write"}, true},
	} {
		_, err := d.Authenticate(t.Context(), request(t, d.issuer.Sign(claims(tt.has), nil)), identity.Resource{Scopes: []string{"read", "write"}})
		e, refused := errors.AsType[*identity.Error](err)
		if refused == tt.ok || refused && (e.Code() != "insufficient_scope" || !strings.Contains(e.Reason, "read write")) {
			t.Errorf("%v: %v", tt.has, err)
		}
	}
}

// FuzzToken checks that only texts that the issuer signed are accepted as tokens.
func FuzzToken(f *testing.F) {
	f.Add("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.")
	f.Add("eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJodHRwczovL2EiLCJleHAiOjFlOTk5fQ.AAAA")
	r, err := identity.New(identity.Config{
		Now: time.Now, Client: &http.Client{Transport: unreachable{}},
		Issuers: []identity.Issuer{{URL: "https://a", Audiences: []string{"x"}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, token string) {
		req := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		req.Header["Authorization"] = []string{"Bearer " + token}
		if agent, err := r.Authenticate(t.Context(), req, identity.Resource{}); err == nil {
			t.Errorf("%q was accepted as %+v", token, agent)
		}
	})
}

// FuzzClaims checks that a signed token with any claims yields a name or an error.
func FuzzClaims(f *testing.F) {
	for _, seed := range []string{`{"sub":"a"}`, `{"exp":1e400}`, `{"aud":[[]]}`, `{"groups":{"a":1}}`, `[]`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, err := identity.JudgeClaims(payload, time.Unix(1000, 0))
		if err == nil && (got.ID == "" || got.Anonymous) {
			t.Errorf("%s: %+v", payload, got)
		}
	})
}

// BenchmarkAuthenticate measures the cost for each request of an authenticated agent.
func BenchmarkAuthenticate(b *testing.B) {
	issuer := testenv.NewIssuer(b)
	r, err := identity.New(identity.Config{
		Tokens:  []identity.Token{{Hash: identity.HashOf(agentToken), Name: "ci"}},
		Issuers: []identity.Issuer{{URL: issuer.URL, Audiences: []string{audience}}},
		Client:  &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Now: time.Now,
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, token := range map[string]string{"token": agentToken, "jwt": issuer.Sign(claims(nil), nil)} {
		req := httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)
		req.Header.Set("Authorization", "Bearer "+token)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Authenticate(b.Context(), req, identity.Resource{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("unreachable")
}

// The user at a Unix socket is the agent, whatever the request says. Elsewhere the text of such an
// address means nothing.
func TestLocalUser(t *testing.T) {
	for _, local := range []bool{true, false} {
		i, err := identity.New(identity.Config{LocalUsers: local, Anonymous: !local, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		r := request(t, "a-token-of-another-agent")
		r.RemoteAddr = localuser.Peer("ann").String()
		r.Header.Set("X-Forwarded-User", "bob")
		agent, err := i.Authenticate(t.Context(), r, identity.Resource{})
		if want := (policy.Principal{ID: "local:ann"}); err != nil || local && !cmp.Equal(agent.Principal, want) || local == agent.Principal.Anonymous {
			t.Errorf("at a socket %t: %v, %v", local, agent, err)
		}
		r.RemoteAddr = "127.0.0.1:1"
		if agent, err := i.Authenticate(t.Context(), r, identity.Resource{}); local && err == nil {
			t.Errorf("a client without a user is %v", agent)
		}
	}
}
