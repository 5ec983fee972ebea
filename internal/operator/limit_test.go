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
	"github.com/thoughtgate/thoughtgate-go/task"
)

// from makes a request as if it came from an address, and returns its answer.
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

// shown returns the status of a request with a token from an address.
func (h *fixture) shown(address, token string) int {
	h.t.Helper()
	return h.from(address, http.MethodGet, "/", "", "Authorization", "Bearer "+token).Code
}

// stranger returns one of many addresses.
func stranger(n int) string { return fmt.Sprintf("[2001:db8:%x:%x::1]:5000", n>>16, n&0xffff) }

// stopped makes the clock of a gate stand still, apart from what the test says.
func stopped(c *operator.Config) {
	now := time.Now()
	ahead := c.Now
	began := ahead()
	c.Now = func() time.Time { return now.Add(ahead().Sub(began).Round(time.Minute)) }
}

// Many addresses together cannot guess more often than a limit either. It does
// not keep those out who use the gate from where they have used it lately.
func TestGuessesOfAllLimited(t *testing.T) {
	h := serve(t, stopped)
	const office, cafe = "198.51.100.7:999", "203.0.113.9:999"
	if status := h.shown(office, annToken); status != 200 {
		t.Fatalf("status %d", status)
	}
	session := h.from(office, http.MethodPost, "/login", "token="+vicToken, sameOrigin, "same-origin").Header().Get("Set-Cookie")
	compared := 0
	for n := range 2000 {
		if h.shown(stranger(n), "a guess of some stranger") == 401 {
			compared++
		}
	}
	if compared != 500 {
		t.Errorf("%d guesses were compared; want 500", compared)
	}
	if status := h.shown(cafe, annToken); status != 429 {
		t.Errorf("a token at an address that is not known: %d", status)
	}
	if w := h.from(cafe, http.MethodPost, "/login", "token="+annToken, sameOrigin, "same-origin"); w.Code != 429 || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("a login at an address that is not known: %d", w.Code)
	}
	if status := h.shown(office, annToken); status != 200 {
		t.Errorf("a token at an address where one was shown: %d", status)
	}
	cookie, _, _ := strings.Cut(session, ";")
	if w := h.from(cafe, http.MethodGet, "/", "", "Cookie", cookie); w.Code != 200 {
		t.Errorf("a session: %d", w.Code)
	}
	compared = 0
	for range 100 { // the exemption is one from the failures of others alone
		if h.shown(office, "a guess at the office") == 401 {
			compared++
		}
	}
	if compared != 10 {
		t.Errorf("%d guesses were compared at the office; want 10", compared)
	}
	h.clock.Store(60)
	if status := h.shown(cafe, annToken); status != 200 {
		t.Errorf("after a minute: %d", status)
	}
}

// An address counts as known for a day.
func TestKnownAddressesLapse(t *testing.T) {
	h := serve(t, stopped)
	const office = "198.51.100.7:999"
	flood := func() {
		for n := range 1000 {
			h.shown(stranger(n), "a guess of some stranger")
		}
	}
	h.shown(office, annToken)
	h.clock.Store(23 * 3600)
	flood()
	if status := h.shown(office, annToken); status != 200 {
		t.Errorf("within a day: %d", status)
	}
	h.clock.Store(48 * 3600)
	flood()
	if status := h.shown(office, annToken); status != 429 {
		t.Errorf("after a day: %d", status)
	}
}

// One subscriber has many IPv6 addresses, and an IPv4 address has two spellings.
func TestOneSubscriber(t *testing.T) {
	for name, address := range map[string]func(int) string{
		"a network":     func(n int) string { return fmt.Sprintf("[2001:db8::%x]:1", n) },
		"two spellings": func(n int) string { return [...]string{"203.0.113.9:1", "[::ffff:203.0.113.9]:1"}[n%2] },
		"zones":         func(n int) string { return fmt.Sprintf("[fe80::1%%eth%d]:1", n) },
	} {
		h := serve(t, stopped)
		compared := 0
		for n := range 100 {
			if h.shown(address(n), "a guess of some stranger") == 401 {
				compared++
			}
		}
		if compared != 10 {
			t.Errorf("%s: %d guesses were compared; want 10", name, compared)
		}
	}
}

// Nothing that strangers do makes the gate remember more and more, or keep
// anything in its store.
func TestStrangersLeaveNothing(t *testing.T) {
	h, issuer := elsewhere(t, nil)
	issuer.LogIn(person(map[string]any{"email_verified": false}), nil) // somebody who may not come in
	back, err := url.Parse(h.arrive(h.depart("/")))
	if err != nil {
		t.Fatal(err)
	}
	cookie := h.cookies()
	for n := range operator.MaxReturns + 100 { // some begin a login, and return without a code
		w := h.from(stranger(n), http.MethodGet, "/login/oidc", "")
		to, err := w.Result().Location()
		if err != nil {
			t.Fatal(err)
		}
		began, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), ";")
		h.from(stranger(n), http.MethodGet, "/login/oidc/callback?error=no&state="+to.Query().Get("state"), "", "Cookie", began)
	}
	if n := h.auth.Returns(); n == 0 || n > operator.MaxReturns {
		t.Errorf("%d returns are remembered", n)
	}
	for n := range operator.MaxLimiters + 5000 {
		h.from(stranger(n), http.MethodGet, fmt.Sprintf("/login/oidc/callback?state=%d&code=x", n), "")
		if n%100 == 0 {
			h.from(stranger(n), http.MethodGet, "/login/oidc", "")
			h.from(stranger(n), http.MethodGet, fmt.Sprintf("/login/oidc/callback?state=%d&code=x", n), "", "Cookie", cookie)
			h.from(stranger(n), http.MethodGet, "/login/oidc/callback?code=x&state="+back.Query().Get("state"), "", "Cookie", cookie)
		}
	}
	h.want(401, "not started here", "GET", back.RequestURI(), "") // somebody with a copy of the cookie was faster
	h.want(403, "not verified", "GET", h.arrive(h.depart("/")), "")
	if n := h.auth.Remembered(); n > operator.MaxLimiters {
		t.Errorf("%d addresses are remembered", n)
	}
	found, err := h.config.Records.ListRecords(t.Context(), task.RecordQuery{Limit: 10})
	if err != nil || len(found) != 1 {
		t.Errorf("the store has %d records besides the root key, %v", len(found)-1, err)
	}
}

// Callbacks that no login began are no guesses of tokens: they keep nobody else
// from logging in, also if all come from the address of one proxy.
func TestCallbacksLockNobodyOut(t *testing.T) {
	h, issuer := elsewhere(t, nil)
	issuer.LogIn(person(nil), nil)
	const proxy = "127.0.0.1:5000" // which is the address of the person, too
	for n := range 1000 {
		h.from(stranger(n), http.MethodGet, "/login/oidc/callback?state=x&code=x", "")
		h.from(proxy, http.MethodGet, "/login/oidc/callback?state=x&code=x", "")
	}
	h.depart("/")
	for range 30 { // a stranger who has begun a login
		h.from(proxy, http.MethodGet, "/login/oidc/callback?state=x&code=x", "", "Cookie", h.cookies())
	}
	h.want(303, "", "GET", h.arrive(h.depart("/")), "")
	h.browser()
	h.want(200, "ann", "GET", "/", "", "Authorization", "Bearer "+annToken)
	h.browser()
	for n := range 1000 {
		h.shown(stranger(n), "a guess of some stranger")
	}
	h.want(303, "", "GET", h.arrive(h.depart("/")), "")
	h.want(200, "ann@example.com", "GET", "/", "")
}

// Nobody has more than 20 sessions: the next login ends the one that would have
// ended first. Others are not affected.
func TestSessionsOfOne(t *testing.T) {
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
	found, err := h.config.Records.ListRecords(t.Context(), task.RecordQuery{Prefix: "session/", Limit: 100})
	if err != nil || len(found) != 21 {
		t.Errorf("the store has %d sessions, %v; want 21", len(found), err)
	}
}

// Nobody can log in without end, in any way, and thereby keep the gate from serving
// others: a login counts as a change that the operator makes.
func TestLoginsLimited(t *testing.T) {
	h, issuer := elsewhere(t, nil)
	issuer.LogIn(person(nil), nil)
	g := h.replica(func(c *operator.Config) {
		stopped(c)
		c.Tokens[0].Name, c.Tokens[1].Name = "ann@example.com", "ann@example.com"
	})
	const office = "198.51.100.7:999"
	login := func(token string) *httptest.ResponseRecorder {
		return g.from(office, http.MethodPost, "/login", "token="+token, sameOrigin, "same-origin")
	}
	for range 200 {
		if w := login(annToken); w.Code != 303 {
			t.Fatalf("answered %d", w.Code)
		}
	}
	began := g.from(office, http.MethodGet, "/login/oidc", "")
	to, err := began.Result().Location()
	if err != nil {
		t.Fatal(err)
	}
	departure, _, _ := strings.Cut(began.Header().Get("Set-Cookie"), ";")
	for way, w := range map[string]*httptest.ResponseRecorder{
		"a form":                login(annToken),
		"a link":                g.from(office, http.MethodGet, "/login?token="+linkToken, ""),
		"the identity provider": g.from(office, http.MethodGet, h.arrive(to.String()), "", "Cookie", departure),
	} {
		if w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "Too many") {
			t.Errorf("%s: %d %v %s", way, w.Code, w.Header(), w.Body)
		}
	}
	if found, err := g.config.Records.ListRecords(t.Context(), task.RecordQuery{Prefix: "login/", Limit: 10}); err != nil || len(found) != 0 {
		t.Errorf("the store has %d logins, %v", len(found), err)
	}
	if w := login(vicToken); w.Code != 303 {
		t.Errorf("somebody else: %d", w.Code)
	}
	g.clock.Store(60)
	if w := login(annToken); w.Code != 303 {
		t.Errorf("after a minute: %d", w.Code)
	}
}
