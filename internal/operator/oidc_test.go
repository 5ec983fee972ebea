package operator_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// serveOIDC serves a gate with an identity provider.
func serveOIDC(t *testing.T, change func(*operator.OIDC)) (*fixture, *testenv.Issuer) {
	t.Helper()
	issuer := testenv.NewIssuer(t)
	o := &operator.OIDC{
		Issuer: issuer.URL, ClientID: issuer.Client, ClientSecret: issuer.Secret, Name: "Example",
		Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	if change != nil {
		change(o)
	}
	// The configuration needs the address before the server starts.
	server := httptest.NewUnstartedServer(nil)
	public := &url.URL{Scheme: "http", Host: server.Listener.Addr().String()}
	h := build(t, func(c *operator.Config) { c.OIDC, c.URL = o, public })
	server.Config.Handler = h.handler
	server.Start()
	t.Cleanup(server.Close)
	h.url = server.URL
	return h, issuer
}

func person(change map[string]any) map[string]any {
	p := map[string]any{"sub": "1234", "email": "Ann@Example.com", "email_verified": true, "groups": []string{"oncall", "staff"}}
	maps.Copy(p, change)
	return p
}

// beginSignIn begins a sign-in and returns the URL at the provider.
func (h *fixture) beginSignIn(next string) string {
	h.t.Helper()
	header := h.want(303, "", "GET", "/login/oidc?next="+url.QueryEscape(next), "")
	return header.Get("Location")
}

// followProvider requests a URL at the provider, and returns the path of the redirect back to
// the gate.
func (h *fixture) followProvider(at string) string {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, at, http.NoBody)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := h.http.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		h.t.Fatal(err)
	}
	return back.RequestURI()
}

func TestOIDCLogin(t *testing.T) {
	h, issuer := serveOIDC(t, nil)
	issuer.LogIn(person(nil), nil)
	h.want(200, "/login/oidc?next=", "GET", "/login", "")
	to := h.beginSignIn("/approvals/tg_1")
	asked, _ := url.Parse(to)
	q := asked.Query()
	for _, name := range []string{"state", "nonce", "code_challenge"} {
		if q.Get(name) == "" {
			t.Errorf("%s is missing in %s", name, to)
		}
	}
	header := h.want(303, "", "GET", h.followProvider(to), "")
	if got := header.Get("Location"); got != "/approvals/tg_1" {
		t.Errorf("the callback redirects to %q, want /approvals/tg_1", got)
	}
	h.want(200, "ann@example.com approver [oncall staff] oidc", "GET", "/", "")
	h.want(303, "", "POST", "/logout", "csrf="+h.form(), sameOrigin, "same-origin")
	h.want(401, "", "GET", "/", "")
}

// TestOIDCStateMustMatch checks that a callback is refused in another browser than the one that
// began the sign-in, and when it is repeated.
func TestOIDCStateMustMatch(t *testing.T) {
	h, issuer := serveOIDC(t, nil)
	issuer.LogIn(person(nil), nil)
	const refused = "not started here"
	h.want(401, refused, "GET", "/login/oidc/callback?code=x&state=y", "")

	back := h.followProvider(h.beginSignIn("/"))
	u, _ := url.Parse(h.url)
	var cookies []string
	for _, c := range h.jar.Cookies(u) {
		cookies = append(cookies, c.Name+"="+c.Value)
	}
	stolen := strings.Join(cookies, "; ")
	mine := h.http
	h.browser() // another user opens the link
	h.want(401, refused, "GET", back, "")
	h.http = mine
	h.want(401, refused, "GET", strings.Replace(back, "state=", "state=x", 1), "")
	h.want(401, refused, "GET", back, "") // the wrong state has ended the sign-in

	back = h.followProvider(h.beginSignIn("/"))
	h.want(303, "", "GET", back, "")
	h.want(401, refused, "GET", back, "")
	h.browser()
	h.want(401, "", "GET", back, "", "Cookie", stolen)

	back = h.followProvider(h.beginSignIn("/"))
	for _, c := range h.jar.Cookies(u) {
		if strings.Contains(c.Name, "login") {
			stolen = c.Name + "=" + c.Value
		}
	}
	h.want(303, "", "GET", back, "")
	h.browser()
	h.want(401, refused, "GET", back, "", "Cookie", stolen) // a copy of the cookie is not valid again

	back = h.followProvider(h.beginSignIn("/"))
	h.clock.Store(601)
	h.want(401, refused, "GET", back, "")
	h.want(401, "", "GET", "/", "")
}

// TestOIDCInvalidTokensRefused checks that tokens for another sign-in and invalid tokens are
// refused.
func TestOIDCInvalidTokensRefused(t *testing.T) {
	const unverified = "could not be verified"
	tests := map[string]func(map[string]any){
		"another nonce":    func(c map[string]any) { c["nonce"] = "other" },
		"no nonce":         func(c map[string]any) { delete(c, "nonce") },
		"another party":    func(c map[string]any) { c["azp"] = "other" },
		"no party of two":  func(c map[string]any) { c["aud"] = []string{"gate", "other"} },
		"another audience": func(c map[string]any) { c["aud"] = "other" },
		"another issuer":   func(c map[string]any) { c["iss"] = "https://evil.example" },
		"expired":          func(c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() },
		"not yet":          func(c map[string]any) { c["nbf"] = time.Now().Add(time.Hour).Unix() },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			h, issuer := serveOIDC(t, nil)
			issuer.LogIn(person(nil), change)
			h.want(401, unverified, "GET", h.followProvider(h.beginSignIn("/")), "")
			h.want(401, "", "GET", "/", "")
		})
	}
	t.Run("another code", func(*testing.T) {
		h, issuer := serveOIDC(t, nil)
		issuer.LogIn(person(nil), nil)
		back := h.followProvider(h.beginSignIn("/"))
		h.want(401, unverified, "GET", strings.Replace(back, "code=", "code=x", 1), "")
	})
	t.Run("the code of another login", func(*testing.T) { // PKCE
		h, issuer := serveOIDC(t, nil)
		issuer.LogIn(person(nil), nil)
		other, _ := url.Parse(h.followProvider(h.beginSignIn("/")))
		back, _ := url.Parse(h.followProvider(h.beginSignIn("/")))
		q := back.Query()
		q.Set("code", other.Query().Get("code"))
		h.want(401, unverified, "GET", "/login/oidc/callback?"+q.Encode(), "")
	})
	t.Run("refused by the provider", func(*testing.T) {
		h, issuer := serveOIDC(t, nil)
		issuer.LogIn(person(nil), nil)
		back, _ := url.Parse(h.followProvider(h.beginSignIn("/")))
		q := url.Values{"state": back.Query()["state"], "error": {"access_denied"}, "error_description": {"<script>"}}
		h.want(401, "did not sign you in", "GET", "/login/oidc/callback?"+q.Encode(), "")
	})
	t.Run("a new key", func(*testing.T) {
		h, issuer := serveOIDC(t, nil)
		issuer.LogIn(person(nil), nil)
		h.want(303, "", "GET", h.followProvider(h.beginSignIn("/")), "")
		issuer.Rotate("key-2")
		h.want(303, "", "GET", h.followProvider(h.beginSignIn("/")), "")
	})
	t.Run("down", func(*testing.T) {
		h, issuer := serveOIDC(t, nil)
		issuer.SetDown(true)
		h.want(502, "cannot be reached", "GET", "/login/oidc", "")
		h.want(303, "", "POST", "/login", "token="+annToken, sameOrigin, "same-origin") // tokens still work
	})
}

// TestOIDCRoles checks which users may sign in, and their roles.
func TestOIDCRoles(t *testing.T) {
	tests := map[string]struct {
		change func(*operator.OIDC)
		person map[string]any
		status int
		text   string // on the page: the reason for refusal, or the operator
	}{
		"domain":               {func(o *operator.OIDC) { o.Domains = []string{"example.COM"} }, nil, 303, "ann@example.com approver"},
		"another domain":       {func(o *operator.OIDC) { o.Domains = []string{"example.org"} }, nil, 403, "may not sign in here"},
		"domain inside":        {func(o *operator.OIDC) { o.Domains = []string{"example.com"} }, map[string]any{"email": "a@example.com@evil.example"}, 403, "may not sign in here"},
		"domain, not verified": {func(o *operator.OIDC) { o.Domains, o.NameClaim = []string{"example.com"}, "sub" }, map[string]any{"email_verified": false}, 403, "may not sign in here"},
		"not verified":         {nil, map[string]any{"email_verified": false}, 403, "not verified"},
		"verified as a text":   {nil, map[string]any{"email_verified": "true"}, 403, "not verified"},
		"nameless":             {func(o *operator.OIDC) { o.NameClaim = "upn" }, nil, 403, "did not say who you are"},
		"group":                {func(o *operator.OIDC) { o.Groups = []string{"staff"} }, nil, 303, "ann@example.com approver"},
		"another group":        {func(o *operator.OIDC) { o.Groups = []string{"board"} }, nil, 403, "None of your groups"},
		"admin by group": {func(o *operator.OIDC) {
			o.Roles = map[operator.Role][]string{operator.Admin: {"group:oncall"}, operator.Viewer: {"ann@example.com"}}
		}, nil, 303, "ann@example.com admin"},
		"viewer by name": {func(o *operator.OIDC) {
			o.Roles = map[operator.Role][]string{operator.Admin: {"group:board"}, operator.Viewer: {"ann@example.com"}}
		}, nil, 303, "ann@example.com viewer"},
		"rejecter by group": {func(o *operator.OIDC) {
			o.Roles = map[operator.Role][]string{operator.Approver: {"group:board"}, operator.Rejecter: {"group:oncall"}, operator.Viewer: {"ann@example.com"}}
		}, nil, 303, "ann@example.com rejecter"},
		"no role": {func(o *operator.OIDC) {
			o.Roles = map[operator.Role][]string{operator.Admin: {"bob", "group:ann@example.com"}}
		}, nil, 403, "no role"},
		"few groups count": {func(o *operator.OIDC) { o.IsRelevant = func(g string) bool { return g == "oncall" } }, nil, 303, "approver [oncall] oidc"},
		"too many groups":  {nil, map[string]any{"groups": strings.Split(strings.Repeat("group-of-people ", 400), " ")}, 303, "group-of-people"},
		"a path":           {func(o *operator.OIDC) { o.GroupsClaim = "realm.roles" }, map[string]any{"realm": map[string]any{"roles": []string{"r"}}}, 303, "[r]"},
	}
	for name, tt := range tests {
		t.Run(name, func(*testing.T) {
			h, issuer := serveOIDC(t, tt.change)
			issuer.LogIn(person(tt.person), nil)
			back := h.followProvider(h.beginSignIn("/"))
			if tt.status != 303 {
				h.want(tt.status, tt.text, "GET", back, "")
				h.want(401, "", "GET", "/", "")
				return
			}
			h.want(303, "", "GET", back, "")
			h.want(200, tt.text, "GET", "/", "")
		})
	}
}

// TestOIDCRightsFollowConfiguration checks that a session has no rights of its own: a user whom
// the present configuration would refuse loses access.
func TestOIDCRightsFollowConfiguration(t *testing.T) {
	tests := map[string]struct {
		change func(*operator.OIDC)
		status int
	}{
		"nothing changed": {func(*operator.OIDC) {}, 200},
		"other domains":   {func(o *operator.OIDC) { o.Domains = []string{"example.org"} }, 401},
		"other groups":    {func(o *operator.OIDC) { o.Groups = []string{"board"} }, 401},
		"another issuer":  {func(o *operator.OIDC) { o.Issuer = "https://login.example.org" }, 401},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, issuer := serveOIDC(t, func(o *operator.OIDC) { o.Domains = []string{"example.com"} })
			issuer.LogIn(person(nil), nil)
			h.want(303, "", "GET", h.followProvider(h.beginSignIn("/")), "")
			u, _ := url.Parse(h.url)
			after := h.replica(func(c *operator.Config) {
				c.URL = u
				c.OIDC = &operator.OIDC{Issuer: issuer.URL, ClientID: issuer.Client, Domains: []string{"example.com"}, Client: http.DefaultClient}
				tt.change(c.OIDC)
			})
			for _, c := range h.jar.Cookies(u) {
				after.want(tt.status, "", "GET", "/", "", "Cookie", c.Name+"="+c.Value)
			}
		})
	}
}

// A slowProvider delays requests for tokens until release is closed.
type slowProvider struct {
	http.RoundTripper

	asked, asking, most atomic.Int64
	release             chan struct{}
}

func (p *slowProvider) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/token" {
		return p.RoundTripper.RoundTrip(r)
	}
	p.asked.Add(1)
	now := p.asking.Add(1)
	defer p.asking.Add(-1)
	for most := p.most.Load(); now > most && !p.most.CompareAndSwap(most, now); most = p.most.Load() {
	}
	<-p.release
	return p.RoundTripper.RoundTrip(r)
}

// serveSlowProvider serves a gate with a slow provider.
func serveSlowProvider(t *testing.T) (*fixture, *slowProvider) {
	t.Helper()
	slow := &slowProvider{RoundTripper: &http.Transport{DisableKeepAlives: true}, release: make(chan struct{})}
	h, issuer := serveOIDC(t, func(o *operator.OIDC) { o.Client = &http.Client{Transport: slow} })
	issuer.LogIn(person(nil), nil)
	return h, slow
}

// TestRepeatedCallbackRedeemsOnce checks that a repeated callback causes one request to the
// provider.
func TestRepeatedCallbackRedeemsOnce(t *testing.T) {
	h, slow := serveSlowProvider(t)
	back := h.followProvider(h.beginSignIn("/"))
	cookies := h.cookies()
	const many = 20
	answers := make(chan int, many)
	for range many {
		go func() { answers <- h.from("127.0.0.1:5000", http.MethodGet, back, "", "Cookie", cookies).Code }()
	}
	for range many - 1 {
		select {
		case status := <-answers:
			if status != http.StatusUnauthorized {
				t.Errorf("status %d", status)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("the provider got %d requests, want 1", slow.asked.Load())
			close(slow.release)
			return
		}
	}
	close(slow.release)
	if status := <-answers; status != http.StatusSeeOther || slow.asked.Load() != 1 {
		t.Errorf("the first callback: status %d; the provider got %d requests", status, slow.asked.Load())
	}
}

// TestConcurrentRedemptionsLimited checks that the gate redeems only a few codes at the same
// time, since anybody can send callbacks with invented codes. Further callbacks wait.
func TestConcurrentRedemptionsLimited(t *testing.T) {
	h, slow := serveSlowProvider(t)
	const more = 20
	answers := make(chan int, operator.MaxRedeeming+more)
	for range cap(answers) {
		back := h.followProvider(h.beginSignIn("/"))
		cookies := h.cookies()
		go func() { answers <- h.from("127.0.0.1:5000", http.MethodGet, back, "", "Cookie", cookies).Code }()
	}
	for limit := time.Now().Add(time.Minute); slow.asking.Load() < operator.MaxRedeeming && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	close(slow.release)
	for range cap(answers) {
		if status := <-answers; status != http.StatusSeeOther {
			t.Errorf("status %d", status)
		}
	}
	if most := slow.most.Load(); most != operator.MaxRedeeming {
		t.Errorf("%d codes were redeemed at the same time; want %d", most, operator.MaxRedeeming)
	}
}
