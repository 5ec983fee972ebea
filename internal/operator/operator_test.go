package operator_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	linkToken = "tgo_the-token-made-at-the-start"
	annToken  = "tgo_the-token-of-ann-who-approves"
	vicToken  = "tgo_the-token-of-vic-who-only-looks"
)

func tokens() []operator.Token {
	return []operator.Token{
		{Hash: operator.HashOf(linkToken), Name: "operator", Role: operator.Admin, Link: true, Temporary: true},
		{Hash: operator.HashOf(annToken), Name: "ann", Groups: []string{"oncall"}, Role: operator.Approver},
		{Hash: operator.HashOf(vicToken), Name: "vic", Role: operator.Viewer},
	}
}

// A fixture is a served Auth with a page for viewers at /, and forms for approvers and
// admins.
type fixture struct {
	t     *testing.T
	url   string
	clock *atomic.Int64 // seconds ahead of the real clock
	jar   *cookiejar.Jar
	http  *http.Client

	config  operator.Config
	auth    *operator.Auth
	handler http.Handler
}

// replica returns another gate with the same store.
func (h *fixture) replica(change func(*operator.Config)) *fixture {
	h.t.Helper()
	return serve(h.t, func(c *operator.Config) {
		c.Records, c.Ring = h.config.Records, keyring.New(h.config.Records, time.Now)
		c.URL, c.OIDC, c.Session = h.config.URL, h.config.OIDC, h.config.Session
		if change != nil {
			change(c)
		}
	})
}

func serve(t *testing.T, change func(*operator.Config)) *fixture {
	t.Helper()
	h := build(t, change)
	server := httptest.NewServer(h.handler)
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// build returns a fixture that is not served.
func build(t *testing.T, change func(*operator.Config)) *fixture {
	t.Helper()
	h := &fixture{t: t, clock: new(atomic.Int64)}
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	c := operator.Config{
		Tokens: tokens(), Records: store, Ring: keyring.New(store, time.Now),
		Now: func() time.Time { return time.Now().Add(time.Duration(h.clock.Load()) * time.Second) },
	}
	if change != nil {
		change(&c)
	}
	auth, err := operator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	h.config, h.auth = c, auth
	mux := http.NewServeMux()
	auth.Register(mux)
	refuse := func(w http.ResponseWriter, _ *http.Request, why *operator.Error) {
		w.WriteHeader(why.Status)
		io.WriteString(w, why.Error())
	}
	say := func(w http.ResponseWriter, _ *http.Request, who operator.Operator) {
		fmt.Fprintf(w, "%s %s %v %s %s", who.Name, who.Role, who.Groups, who.Method, auth.FormToken(who))
	}
	mux.Handle("GET /{$}", auth.Handle(operator.Viewer, refuse, say))
	mux.Handle("POST /decide", auth.Handle(operator.Approver, refuse, say))
	mux.Handle("POST /audit", auth.Handle(operator.Admin, refuse, say))
	mux.Handle("GET /hold", auth.Handle(operator.Admin, refuse, func(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	h.handler = mux
	h.browser()
	return h
}

// browser replaces the browser by one without cookies.
func (h *fixture) browser() {
	h.jar, _ = cookiejar.New(nil)
	h.http = &http.Client{
		Jar: h.jar, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// do makes a request with headers given as name, value, name, value.
func (h *fixture) do(method, path, body string, headers ...string) (int, string, http.Header) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.http.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// stream makes a request with an endless response. The channel is closed when the response
// ends.
func (h *fixture) stream(path string) <-chan struct{} {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.url+path, http.NoBody)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := h.http.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		h.t.Fatalf("%v, %v", resp, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
	}()
	return ended
}

func (h *fixture) want(status int, text, method, path, body string, headers ...string) http.Header {
	h.t.Helper()
	got, answer, header := h.do(method, path, body, headers...)
	if got != status || !strings.Contains(answer, text) {
		h.t.Errorf("%s %s: %d %q; want %d %q", method, path, got, answer, status, text)
	}
	return header
}

// form returns the form token of the session.
func (h *fixture) form() string {
	h.t.Helper()
	_, answer, _ := h.do("GET", "/", "")
	return answer[strings.LastIndex(answer, " ")+1:]
}

const sameOrigin = "Sec-Fetch-Site"

// TestLoginLink checks that the sign-in link begins a session, and that the token does not
// appear in the headers of the response.
func TestLoginLink(t *testing.T) {
	h := serve(t, nil)
	h.want(401, "unauthorized", "GET", "/", "")
	header := h.want(303, "", "GET", "/login?token="+linkToken+"&next=/approvals/tg_1", "")
	if got := header.Get("Location"); got != "/approvals/tg_1" {
		t.Errorf("the response redirects to %q", got)
	}
	if strings.Contains(fmt.Sprint(header), linkToken) || header.Get("Cache-Control") != "no-store" || header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("the token is in the response, or a header is missing: %v", header)
	}
	c := header.Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=43200"} {
		if !strings.Contains(c, want) {
			t.Errorf("%s is missing in %s", want, c)
		}
	}
	h.want(200, "operator admin [] session", "GET", "/", "")

	h.browser()
	h.want(401, "", "GET", "/login?token=wrong", "")
	h.want(401, "", "GET", "/login?token="+annToken, "") // not a Link token
	h.want(401, "unauthorized", "GET", "/?token="+linkToken, "")
	if u, _ := url.Parse(h.url); len(h.jar.Cookies(u)) != 0 {
		t.Error("a failed sign-in has set a cookie")
	}
}

// TestLoginLinkFromOtherSites checks that links with wrong tokens do not count as guesses if
// another site made the browser request them without a click. Otherwise the site could lock
// the operator out.
func TestLoginLinkFromOtherSites(t *testing.T) {
	const dest, mode = "Sec-Fetch-Dest", "Sec-Fetch-Mode"
	tests := map[string][]string{
		"an image":                   {dest, "image", mode, "no-cors", sameOrigin, "cross-site"},
		"a frame":                    {dest, "iframe", mode, "navigate", sameOrigin, "cross-site"},
		"a script":                   {dest, "empty", mode, "cors", sameOrigin, "cross-site"},
		"a browser with few headers": {mode, "no-cors", sameOrigin, "cross-site"},
	}
	for name, headers := range tests {
		t.Run(name, func(t *testing.T) {
			h := serve(t, nil)
			for range 30 {
				h.want(200, "Token:true", "GET", "/login?token=x", "", headers...)
			}
			h.want(200, "Token:true", "GET", "/login?token="+linkToken, "", headers...)
			if u, _ := url.Parse(h.url); len(h.jar.Cookies(u)) != 0 {
				t.Error("a request from another site has begun a session")
			}
			h.want(200, "ann", "GET", "/", "", "Authorization", "Bearer "+annToken)
			h.want(303, "", "GET", "/login?token="+linkToken, "", dest, "document", mode, "navigate", sameOrigin, "cross-site") // a click
		})
	}
	t.Run("no token for links", func(*testing.T) {
		h := serve(t, func(c *operator.Config) { c.Tokens = c.Tokens[1:] })
		for range 30 {
			h.want(401, "Links do not sign in here", "GET", "/login?token=x", "")
		}
		h.want(401, "Links do not sign in here", "GET", "/login?token="+annToken, "")
		h.want(200, "ann", "GET", "/", "", "Authorization", "Bearer "+annToken)
	})
}

// TestSignInEndsPreviousSession checks that a second sign-in in the same browser ends the first
// session, so that a logout leaves no session behind.
func TestSignInEndsPreviousSession(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	former := h.cookie()
	h.want(401, "Unknown token", "POST", "/login", "token=wrong", "Origin", h.url)
	h.want(200, "ann", "GET", "/", "")
	h.want(303, "", "POST", "/login", "token="+vicToken, "Origin", h.url)
	h.want(200, "vic", "GET", "/", "")
	h.replica(nil).want(401, "unauthorized", "GET", "/", "", "Cookie", former)
	h.want(303, "", "POST", "/logout", "csrf="+h.form(), sameOrigin, "same-origin")
	kept, err := h.config.Records.ListRecords(t.Context(), gatestore.RecordQuery{Prefix: "session/", Limit: 10})
	if err != nil || len(kept) != 0 {
		t.Errorf("%d sessions are left, %v", len(kept), err)
	}
}

func TestLoginForm(t *testing.T) {
	h := serve(t, nil)
	h.want(200, "Token:true", "GET", "/login", "")
	form := url.Values{"token": {annToken}, "next": {"/approvals?a=b"}}.Encode()
	h.want(403, "", "POST", "/login", form, sameOrigin, "cross-site")
	h.want(403, "", "POST", "/login", form)
	h.want(401, "Unknown token", "POST", "/login", "token=wrong", sameOrigin, "same-origin")
	header := h.want(303, "", "POST", "/login", form, "Origin", h.url)
	if got := header.Get("Location"); got != "/approvals?a=b" {
		t.Errorf("the response redirects to %q", got)
	}
	h.want(200, "ann approver [oncall] session", "GET", "/", "")
}

// TestSignInLeadsOnlyToGate checks that a sign-in redirects to pages of the gate only.
func TestSignInLeadsOnlyToGate(t *testing.T) {
	for _, next := range []string{
		"https://evil.example/", "//evil.example/", `/\evil.example`, `\\evil.example`, "javascript:alert(1)", "evil", "/\t/evil.example",
		"///evil.example", "http:/evil", "/login?token=x", "", "/x/../login?token=evil", "/./login?token=evil", "/%6cogin?token=evil",
		"/..//evil.example", "/.//evil.example", "/a\r\nSet-Cookie: evil=1", "/a\x00evil", "/\x7fevil", "/%0d%0aevil: 1/..//evil", "/%5cevil",
	} {
		h := serve(t, nil)
		header := h.want(303, "", "GET", "/login?token="+linkToken+"&next="+url.QueryEscape(next), "")
		if got := header.Get("Location"); got != "/" {
			t.Errorf("next=%q redirects to %q", next, got)
		}
		_, page, _ := h.do("GET", "/login?next="+url.QueryEscape(next), "")
		if strings.Contains(page, "evil") {
			t.Errorf("the page has %q: %s", next, page)
		}
	}
}

// TestCrossSite checks that another site cannot use the session of an operator.
func TestCrossSite(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	form := h.form()
	tests := []struct {
		name    string
		status  int
		body    string
		headers []string
	}{
		{"a form of ours", 200, "csrf=" + form, []string{"Sec-Fetch-Site", "same-origin", "Origin", h.url}},
		{"a script of ours", 200, "", []string{"Sec-Fetch-Site", "same-origin", operator.FormHeader, form}},
		{"an old browser", 200, "csrf=" + form, []string{"Origin", h.url}},
		{"no sign of a browser", 403, "csrf=" + form, nil},
		{"another site", 403, "csrf=" + form, []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}},
		{"a site next door", 403, "csrf=" + form, []string{"Sec-Fetch-Site", "same-site"}},
		{"an origin alone", 403, "csrf=" + form, []string{"Origin", "https://evil.example"}},
		{"no origin in particular", 403, "csrf=" + form, []string{"Origin", "null"}},
		{"no token", 403, "", []string{"Sec-Fetch-Site", "same-origin"}},
		{"a wrong token", 403, "csrf=x" + form, []string{"Sec-Fetch-Site", "same-origin"}},
		{"a token in the URL", 403, "x=y", []string{"Sec-Fetch-Site", "same-origin"}},
		{"a token and another site", 403, "", []string{"Sec-Fetch-Site", "cross-site", operator.FormHeader, form}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(*testing.T) {
			want := map[int]string{200: "ann", 403: "cross_site"}[tt.status]
			h.want(tt.status, want, "POST", "/decide?csrf="+form, tt.body, tt.headers...)
		})
	}
	// The form token of another session is refused.
	other := serve(t, nil)
	other.want(303, "", "POST", "/login", "token="+annToken, "Origin", other.url)
	h.want(403, "cross_site", "POST", "/decide", "csrf="+other.form(), "Sec-Fetch-Site", "same-origin")
	// Browsers do not add tokens in headers by themselves, so these need no check.
	h.browser()
	h.want(200, "ann approver [oncall] token", "POST", "/decide", "", "Authorization", "Bearer "+annToken)
}

// TestShortTokensNeverAccepted checks that short tokens are refused, since they could be guessed
// from their hash.
func TestShortTokensNeverAccepted(t *testing.T) {
	h := serve(t, func(c *operator.Config) {
		c.Tokens = []operator.Token{
			{Hash: operator.HashOf("nineteen-characters"), Name: "ann", Role: operator.Viewer},
			{Hash: operator.HashOf("hunter2"), Name: "bob", Role: operator.Viewer},
		}
	})
	h.want(401, "unauthorized", "GET", "/", "", "Authorization", "Bearer nineteen-characters")
	h.want(401, "unauthorized", "GET", "/", "", "Authorization", "Bearer hunter2")
	h.want(401, "Unknown token", "POST", "/login", "token=hunter2", sameOrigin, "same-origin")
}

func TestRoles(t *testing.T) {
	h := serve(t, nil)
	for token, want := range map[string][3]int{linkToken: {200, 200, 200}, annToken: {200, 200, 403}, vicToken: {200, 403, 403}} {
		for i, request := range []string{"GET /", "POST /decide", "POST /audit"} {
			method, path, _ := strings.Cut(request, " ")
			text := ""
			if want[i] == 403 {
				text = "forbidden"
			}
			h.want(want[i], text, method, path, "", "Authorization", "Bearer "+token)
		}
	}
}

// TestSessionEnds checks that a session ends when it expires, with a logout, and when its token
// is removed, and that all replicas with the same key accept it.
func TestSessionEnds(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	cookie := func() string {
		u, _ := url.Parse(h.url)
		c := h.jar.Cookies(u)[0]
		return c.Name + "=" + c.Value
	}()

	again := h.replica(nil) // another replica, or the same one after a restart
	again.want(200, "ann approver", "GET", "/", "", "Cookie", cookie)
	again.clock.Store(12*3600 - 60)
	again.want(200, "ann approver", "GET", "/", "", "Cookie", cookie)
	again.clock.Store(12*3600 + 10)
	again.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)

	without := h.replica(func(c *operator.Config) { c.Tokens = c.Tokens[:1] })
	without.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)
	less := h.replica(func(c *operator.Config) { c.Tokens[1].Role, c.Tokens[1].Groups = operator.Viewer, nil })
	less.want(200, "ann viewer []", "GET", "/", "", "Cookie", cookie)
	otherKey := h.replica(func(c *operator.Config) { c.Ring = keyring.Ephemeral() })
	otherKey.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)

	h.want(403, "", "POST", "/logout", "", sameOrigin, "cross-site")
	h.want(303, "", "POST", "/logout", "csrf="+h.form(), sameOrigin, "same-origin")
	h.want(401, "unauthorized", "GET", "/", "")
	h.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie) // a copy of it
	less.want(401, "unauthorized", "GET", "/", "", "Cookie", cookie)
	h.replica(nil).want(401, "unauthorized", "GET", "/", "", "Cookie", cookie) // after a restart
	h.want(303, "", "POST", "/logout", "", sameOrigin, "same-origin")
}

// TestSessionOfReplacedToken checks that a session of a temporary token continues when the token
// is replaced. A session of any other token ends.
func TestSessionOfReplacedToken(t *testing.T) {
	for temporary, want := range map[bool]int{true: 200, false: 401} {
		h := serve(t, func(c *operator.Config) { c.Tokens[0].Temporary = temporary })
		h.want(303, "", "GET", "/login?token="+linkToken, "")
		cookie := h.cookie()
		h.replica(func(c *operator.Config) { c.Tokens[0].Temporary = temporary }).want(200, "operator", "GET", "/", "", "Cookie", cookie)
		other := h.replica(func(c *operator.Config) {
			c.Tokens[0].Temporary, c.Tokens[0].Hash = temporary, operator.HashOf("tgo_the-token-made-at-the-next-start")
		})
		other.want(want, "", "GET", "/", "", "Cookie", cookie)
	}
}

// TestForgedSessionsRefused checks that a cookie is refused if any part of it has changed.
func TestForgedSessionsRefused(t *testing.T) {
	h := serve(t, nil)
	h.want(303, "", "POST", "/login", "token="+annToken, "Origin", h.url)
	u, _ := url.Parse(h.url)
	c := h.jar.Cookies(u)[0]
	h.browser()
	for i := range len(c.Value) {
		other := byte('A')
		if c.Value[i] == other {
			other = 'B'
		}
		forged := c.Value[:i] + string(other) + c.Value[i+1:]
		if status, answer, _ := h.do("GET", "/", "", "Cookie", c.Name+"="+forged); status == 200 {
			t.Fatalf("a cookie with byte %d changed was accepted: %s", i, answer)
		}
	}
	for _, value := range []string{c.Value + "A", c.Value[1:], c.Value + "=", strings.Repeat("A", 4000), "null", "%00"} {
		if status, answer, _ := h.do("GET", "/", "", "Cookie", c.Name+"="+value); status == 200 {
			t.Errorf("%q: %s", value, answer)
		}
	}
	if status, _, _ := h.do("GET", "/", "", "Cookie", c.Name+"="+c.Value+"; "+c.Name+"=x"); status == 200 {
		t.Error("two cookies with the same name were accepted")
	}
	// A valid session does not help a request with a wrong token.
	if status, _, _ := h.do("GET", "/", "", "Cookie", c.Name+"="+c.Value, "Authorization", "Bearer x"); status == 200 {
		t.Error("a wrong token was accepted because of the session")
	}
}

// TestSecureCookies checks that cookies are limited to this host and to TLS if the gate has an
// https URL.
func TestSecureCookies(t *testing.T) {
	public := &url.URL{Scheme: "https", Host: "gate.example"}
	h := serve(t, func(c *operator.Config) { c.URL = public })
	header := h.want(303, "", "POST", "/login", "token="+annToken, "Origin", "https://gate.example")
	if c := header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-thoughtgate-") || !strings.Contains(c, "; Secure") || strings.Contains(c, "Domain") {
		t.Errorf("cookie %s", c)
	}
}

// TestFailuresPerAddressLimited checks that tokens from an address are not compared after too
// many failures, so that the response does not tell whether a token is right. Sessions
// continue to work.
func TestFailuresPerAddressLimited(t *testing.T) {
	h := serve(t, fixedClock)
	h.want(303, "", "POST", "/login", "token="+vicToken, sameOrigin, "same-origin")
	limited := 0
	for range 30 {
		status, _, header := h.do("GET", "/", "", "Authorization", "Bearer wrong")
		if status == 429 {
			limited++
			if header.Get("Retry-After") == "" {
				t.Error("the refusal has no Retry-After")
			}
		}
	}
	if limited < 15 || limited > 25 {
		t.Errorf("%d of 30 requests were limited", limited)
	}
	h.want(429, "Too many", "POST", "/login", "token=wrong", sameOrigin, "same-origin")
	h.want(200, "vic", "GET", "/", "")
	h.browser()
	h.want(401, "unauthorized", "GET", "/", "")
	const why = "rate_limited: too many sign-ins with a wrong token, from this address or from all addresses, so this token was not checked; try again in 6 seconds"
	h.want(429, why, "GET", "/", "", "Authorization", "Bearer "+annToken)
	h.want(429, "Too many", "POST", "/login", "token="+annToken, sameOrigin, "same-origin")
	h.want(429, "Too many", "GET", "/login?token="+linkToken, "")
	if u, _ := url.Parse(h.url); len(h.jar.Cookies(u)) != 0 {
		t.Error("a failed sign-in has begun a session")
	}
	h.clock.Store(60)
	h.want(200, "ann", "GET", "/", "", "Authorization", "Bearer "+annToken)
	h.want(401, "unauthorized", "GET", "/", "", "Authorization", "Bearer wrong")
}

func TestRequestsLimited(t *testing.T) {
	h := serve(t, func(c *operator.Config) { now := time.Now(); c.Now = func() time.Time { return now } })
	for range 200 {
		h.want(200, "ann", "GET", "/", "", "Authorization", "Bearer "+annToken)
	}
	h.want(429, "rate_limited: too many requests; try again in 1 second", "GET", "/", "", "Authorization", "Bearer "+annToken)
	// Agents can make open pages reload often. That must not keep the operator from
	// deciding, so reads have a limit of their own.
	h.want(200, "ann", "POST", "/decide", "", "Authorization", "Bearer "+annToken)
	h.want(200, "vic", "GET", "/", "", "Authorization", "Bearer "+vicToken)
}

func TestNew(t *testing.T) {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { store.Close() })
	for name, c := range map[string]operator.Config{
		"no key":   {Now: time.Now},
		"no clock": {Records: store, Ring: keyring.Ephemeral()},
		"no store": {Ring: keyring.Ephemeral(), Now: time.Now},
		"no name":  {Records: store, Ring: keyring.Ephemeral(), Now: time.Now, Tokens: []operator.Token{{Role: operator.Admin}}},
		"no role":  {Records: store, Ring: keyring.Ephemeral(), Now: time.Now, Tokens: []operator.Token{{Name: "ann"}}},
	} {
		if _, err := operator.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
