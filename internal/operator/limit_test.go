package operator_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// from makes a request with the given client address.
func (h *fixture) from(address, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	h.t.Helper()
	r := httptest.NewRequestWithContext(h.t.Context(), method, path, strings.NewReader(body))
	r.RemoteAddr = address
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w
}

// tryToken makes a request with a token from an address, and returns the status.
func (h *fixture) tryToken(address, token string) int {
	h.t.Helper()
	return h.from(address, http.MethodGet, "/", "", "Authorization", "Bearer "+token).Code
}

// clientAddress returns one of many client addresses.
func clientAddress(n int) string { return fmt.Sprintf("[2001:db8:%x:%x::1]:5000", n>>16, n&0xffff) }

// fixedClock makes the clock of a gate move only when the test moves it.
func fixedClock(c *operator.Config) {
	now := time.Now()
	ahead := c.Now
	began := ahead()
	c.Now = func() time.Time { return now.Add(ahead().Sub(began).Round(time.Minute)) }
}

// TestGuessesFromAllAddressesLimited checks the limit of guesses from all addresses. It does
// not apply to addresses from which a token was used lately.
func TestGuessesFromAllAddressesLimited(t *testing.T) {
	h := serve(t, fixedClock)
	const office, cafe = "198.51.100.7:999", "203.0.113.9:999"
	if status := h.tryToken(office, annToken); status != 200 {
		t.Fatalf("status %d", status)
	}
	session := h.from(office, http.MethodPost, "/login", "token="+vicToken, sameOrigin, "same-origin").Header().Get("Set-Cookie")
	compared := 0
	for n := range 2000 {
		if h.tryToken(clientAddress(n), "a guess from some address") == 401 {
			compared++
		}
	}
	if compared != 500 {
		t.Errorf("%d guesses were compared; want 500", compared)
	}
	if status := h.tryToken(cafe, annToken); status != 429 {
		t.Errorf("a token from an unknown address: status %d, want 429", status)
	}
	if w := h.from(cafe, http.MethodPost, "/login", "token="+annToken, sameOrigin, "same-origin"); w.Code != 429 || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("a login from an unknown address: status %d, want 429", w.Code)
	}
	if status := h.tryToken(office, annToken); status != 200 {
		t.Errorf("a token from a known address: status %d, want 200", status)
	}
	cookie, _, _ := strings.Cut(session, ";")
	if w := h.from(cafe, http.MethodGet, "/", "", "Cookie", cookie); w.Code != 200 {
		t.Errorf("a session from an unknown address: status %d, want 200", w.Code)
	}
	compared = 0
	for range 100 { // the address is exempt from the limit for all addresses only
		if h.tryToken(office, "a guess at the office") == 401 {
			compared++
		}
	}
	if compared != 10 {
		t.Errorf("%d guesses from the known address were compared; want 10", compared)
	}
	h.clock.Store(60)
	if status := h.tryToken(cafe, annToken); status != 200 {
		t.Errorf("after a minute: status %d, want 200", status)
	}
}

// TestKnownAddressExpiresAfterADay checks that an address counts as known for a day.
func TestKnownAddressExpiresAfterADay(t *testing.T) {
	h := serve(t, fixedClock)
	const office = "198.51.100.7:999"
	flood := func() {
		for n := range 1000 {
			h.tryToken(clientAddress(n), "a guess from some address")
		}
	}
	h.tryToken(office, annToken)
	h.clock.Store(23 * 3600)
	flood()
	if status := h.tryToken(office, annToken); status != 200 {
		t.Errorf("within a day: status %d, want 200", status)
	}
	h.clock.Store(48 * 3600)
	flood()
	if status := h.tryToken(office, annToken); status != 429 {
		t.Errorf("after a day: status %d, want 429", status)
	}
}

// TestAddressesOfSubscriberShareLimit checks that all IPv6 addresses of a subscriber share a
// limit, and that both spellings of an IPv4 address do.
func TestAddressesOfSubscriberShareLimit(t *testing.T) {
	for name, address := range map[string]func(int) string{
		"a network":     func(n int) string { return fmt.Sprintf("[2001:db8::%x]:1", n) },
		"two spellings": func(n int) string { return [...]string{"203.0.113.9:1", "[::ffff:203.0.113.9]:1"}[n%2] },
		"zones":         func(n int) string { return fmt.Sprintf("[fe80::1%%eth%d]:1", n) },
	} {
		h := serve(t, fixedClock)
		compared := 0
		for n := range 100 {
			if h.tryToken(address(n), "a guess from some address") == 401 {
				compared++
			}
		}
		if compared != 10 {
			t.Errorf("%s: %d guesses were compared; want 10", name, compared)
		}
	}
}

// TestUnauthenticatedUseBoundedState checks that requests without authentication use a bounded
// amount of memory, and store nothing.
func TestUnauthenticatedUseBoundedState(t *testing.T) {
	h, issuer := serveOIDC(t, nil)
	issuer.LogIn(person(map[string]any{"email_verified": false}), nil) // a user who may not sign in
	back, err := url.Parse(h.followProvider(h.beginSignIn("/")))
	if err != nil {
		t.Fatal(err)
	}
	cookie := h.cookies()
	for n := range operator.MaxCallbacks + 100 { // sign-ins that fail at the provider
		w := h.from(clientAddress(n), http.MethodGet, "/login/oidc", "")
		to, err := w.Result().Location()
		if err != nil {
			t.Fatal(err)
		}
		began, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), ";")
		h.from(clientAddress(n), http.MethodGet, "/login/oidc/callback?error=no&state="+to.Query().Get("state"), "", "Cookie", began)
	}
	if n := h.auth.CallbackCount(); n == 0 || n > operator.MaxCallbacks {
		t.Errorf("%d callbacks are remembered, want 1 to the limit", n)
	}
	for n := range operator.MaxLimiters + 5000 {
		h.from(clientAddress(n), http.MethodGet, fmt.Sprintf("/login/oidc/callback?state=%d&code=x", n), "")
		if n%100 == 0 {
			h.from(clientAddress(n), http.MethodGet, "/login/oidc", "")
			h.from(clientAddress(n), http.MethodGet, fmt.Sprintf("/login/oidc/callback?state=%d&code=x", n), "", "Cookie", cookie)
			h.from(clientAddress(n), http.MethodGet, "/login/oidc/callback?code=x&state="+back.Query().Get("state"), "", "Cookie", cookie)
		}
	}
	h.want(401, "not started here", "GET", back.RequestURI(), "") // a copy of the cookie was used before
	h.want(403, "not verified", "GET", h.followProvider(h.beginSignIn("/")), "")
	if n := h.auth.AddressCount(); n > operator.MaxLimiters {
		t.Errorf("%d addresses are remembered", n)
	}
	found, err := h.config.Records.ListRecords(t.Context(), gatestore.RecordQuery{Limit: 10})
	if err != nil || len(found) != 1 {
		t.Errorf("the store has %d records besides the root key, %v", len(found)-1, err)
	}
}

// TestCallbacksDoNotBlockSignIn checks that forged callbacks do not count as guesses of tokens.
// They do not keep users from signing in, even if all share the address of a proxy.
func TestCallbacksDoNotBlockSignIn(t *testing.T) {
	h, issuer := serveOIDC(t, nil)
	issuer.LogIn(person(nil), nil)
	const proxy = "127.0.0.1:5000" // also the address of the user
	for n := range 1000 {
		h.from(clientAddress(n), http.MethodGet, "/login/oidc/callback?state=x&code=x", "")
		h.from(proxy, http.MethodGet, "/login/oidc/callback?state=x&code=x", "")
	}
	h.beginSignIn("/")
	for range 30 { // forged callbacks with the cookie of a sign-in
		h.from(proxy, http.MethodGet, "/login/oidc/callback?state=x&code=x", "", "Cookie", h.cookies())
	}
	h.want(303, "", "GET", h.followProvider(h.beginSignIn("/")), "")
	h.browser()
	h.want(200, "ann", "GET", "/", "", "Authorization", "Bearer "+annToken)
	h.browser()
	for n := range 1000 {
		h.tryToken(clientAddress(n), "a guess from some address")
	}
	h.want(303, "", "GET", h.followProvider(h.beginSignIn("/")), "")
	h.want(200, "ann@example.com", "GET", "/", "")
}

// TestOldestSessionEndsAtLimit checks that an operator has at most 20 sessions: the next
// sign-in ends the session that would expire first. Other operators are not affected.
func TestOldestSessionEndsAtLimit(t *testing.T) {
	h := serve(t, nil)
	login := func(token string) string {
		h.browser()
		h.want(303, "", "POST", "/login", "token="+token, sameOrigin, "same-origin")
		cookie := h.cookies()
		h.browser()
		return cookie
	}
	vic := login(vicToken)
	var ann []string
	for n := range 23 {
		h.clock.Store(int64(n)) // so that they do not expire at the same time
		ann = append(ann, login(annToken))
	}
	for n, cookie := range ann {
		want := map[bool]int{true: 401, false: 200}[n < 3]
		h.want(want, "", "GET", "/", "", "Cookie", cookie)
	}
	h.want(200, "vic", "GET", "/", "", "Cookie", vic)
	found, err := h.config.Records.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "session/", Limit: 100})
	if err != nil || len(found) != 21 {
		t.Errorf("the store has %d sessions, %v; want 21", len(found), err)
	}
}

// TestSignInsCountAsChanges checks that each sign-in counts towards the limit of changes by the
// operator, in whatever way it is made. Otherwise one operator could slow down the gate.
func TestSignInsCountAsChanges(t *testing.T) {
	h, issuer := serveOIDC(t, nil)
	issuer.LogIn(person(nil), nil)
	g := h.replica(func(c *operator.Config) {
		fixedClock(c)
		c.Tokens[0].Name, c.Tokens[1].Name = "ann@example.com", "ann@example.com"
	})
	const office = "198.51.100.7:999"
	login := func(token string) *httptest.ResponseRecorder {
		return g.from(office, http.MethodPost, "/login", "token="+token, sameOrigin, "same-origin")
	}
	for range 200 {
		if w := login(annToken); w.Code != 303 {
			t.Fatalf("status %d, want 303", w.Code)
		}
	}
	began := g.from(office, http.MethodGet, "/login/oidc", "")
	to, err := began.Result().Location()
	if err != nil {
		t.Fatal(err)
	}
	loginCookie, _, _ := strings.Cut(began.Header().Get("Set-Cookie"), ";")
	for way, w := range map[string]*httptest.ResponseRecorder{
		"a form":                login(annToken),
		"a link":                g.from(office, http.MethodGet, "/login?token="+linkToken, ""),
		"the identity provider": g.from(office, http.MethodGet, h.followProvider(to.String()), "", "Cookie", loginCookie),
	} {
		if w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "Too many") {
			t.Errorf("%s: %d %v %s", way, w.Code, w.Header(), w.Body)
		}
	}
	if found, err := g.config.Records.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "login/", Limit: 10}); err != nil || len(found) != 0 {
		t.Errorf("the store has %d logins, %v", len(found), err)
	}
	if w := login(vicToken); w.Code != 303 {
		t.Errorf("another operator: status %d, want 303", w.Code)
	}
	g.clock.Store(60)
	if w := login(annToken); w.Code != 303 {
		t.Errorf("after a minute: status %d, want 303", w.Code)
	}
}
