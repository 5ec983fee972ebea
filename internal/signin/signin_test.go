package signin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/signin"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
)

// A world is an authorization server, an MCP server that needs its tokens, and the state directory
// of a user.
type world struct {
	*authserver.Server

	t     *testing.T
	url   string // of the MCP server
	state string
	ahead atomic.Int64 // of the clock of the gates
	seen  sync.Map     // the access tokens that the MCP server got

	redirect atomic.Pointer[string] // where the MCP server redirects to
}

func newWorld(t *testing.T, o authserver.Options, scopes ...string) *world {
	t.Helper()
	w := &world{Server: authserver.New(t, o), t: t, state: t.TempDir()}
	handler := w.Protect("/mcp", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), scopes...)
	server := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			w.seen.Store(token, true)
		}
		if at := w.redirect.Load(); at != nil {
			http.Redirect(to, r, *at, http.StatusTemporaryRedirect)
			return
		}
		handler.ServeHTTP(to, r)
	}))
	t.Cleanup(server.Close)
	w.url = server.URL + "/mcp"
	return w
}

// A gate is the client side of one wrap.
type gate struct {
	*signin.Tokens

	t      *testing.T
	client *httpclient.Client
	log    *lockedBuffer

	mu   sync.Mutex
	said []string
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// gate starts the client side of a wrap.
func (w *world) gate(change ...func(*signin.Config)) *gate {
	w.t.Helper()
	g := &gate{t: w.t, log: new(lockedBuffer)}
	log := slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := signin.Config{
		URL: w.url, Name: "files", Store: signin.NewStore(w.state, nil), HTTP: oauth.HTTPClient(nil, w.url), Log: log, Patience: time.Minute,
		Now: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) },
		Say: func(text string) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.said = append(g.said, text)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	g.Tokens = signin.New(cfg)
	w.t.Cleanup(g.Close)
	target, err := url.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	g.client = httpclient.New(httpclient.Config{Name: "files", URL: target, Tokens: g, Log: log, ConnectTimeout: time.Minute, ResponseTimeout: time.Minute, CallTimeout: time.Minute})
	w.t.Cleanup(g.client.Close)
	return g
}

// browser opens links as a browser does, and counts them.
type browser struct {
	t      *testing.T
	opened atomic.Int64
	pages  chan string
}

func newBrowser(t *testing.T) *browser { return &browser{t: t, pages: make(chan string, 10)} }

func (b *browser) use(c *signin.Config) {
	c.Open = func(_ context.Context, link string) error {
		b.opened.Add(1)
		go func() { b.pages <- get(b.t, link) }()
		return nil
	}
}

// get returns the page at an address.
func get(t *testing.T, link string) string {
	resp, err := http.Get(link)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(resp.Body)
	return string(page)
}

// ask sends a request of an agent.
func (g *gate) ask() (status int, err error) {
	g.t.Helper()
	r := &http.Request{Method: http.MethodPost, URL: new(url.URL), Header: http.Header{"Content-Type": {"application/json"}}}
	resp, err := g.client.Do(g.t.Context(), httpclient.Peer{}, r, []byte(`{}`))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// works checks that a request reaches the server.
func (g *gate) works() {
	g.t.Helper()
	if status, err := g.ask(); status != http.StatusOK || err != nil {
		g.t.Fatalf("status %d, %v", status, err)
	}
}

// fails checks that a request fails with a text.
func (g *gate) fails(with string) {
	g.t.Helper()
	status, err := g.ask()
	problem, ok := errors.AsType[*mcp.Problem](err)
	if !ok || problem.Type != mcp.NotConnected || !strings.Contains(err.Error(), with) {
		g.t.Fatalf("status %d, %v; want a problem with %q", status, err, with)
	}
}

// grants returns how often the authorization server got a request for a token.
func (w *world) grants(kind string) (n int) {
	for _, r := range w.Requests() {
		if r.Form.Get("grant_type") == kind {
			n++
		}
	}
	return n
}

// The first request opens a browser. Later ones, those of other gates, and those after a restart
// use the same sign-in.
func TestGatesShareOneSignIn(t *testing.T) {
	w := newWorld(t, authserver.Options{Scopes: []string{"tools"}}, "tools")
	b := newBrowser(t)
	var all sync.WaitGroup
	for range 4 {
		g := w.gate(b.use)
		for range 2 {
			all.Go(func() {
				if status, err := g.ask(); status != http.StatusOK || err != nil {
					t.Errorf("status %d, %v", status, err)
				}
			})
		}
	}
	all.Wait()
	w.gate().works()
	if n := b.opened.Load(); n != 1 {
		t.Errorf("%d browsers were opened", n)
	}
	if page := <-b.pages; !strings.HasPrefix(page, "You are signed in.") {
		t.Errorf("the page is %q", page)
	}
}

// An expired token is renewed. Several gates together use a refresh token once: the authorization
// server revokes the sign-in otherwise.
func TestRefreshesAreNotRepeated(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	b := newBrowser(t)
	w.SetHooks(authserver.Hooks{Tokens: func(m map[string]any) { m["expires_in"] = 1 }})
	w.gate(b.use).works()
	w.SetHooks(authserver.Hooks{})
	var all sync.WaitGroup
	for range 8 {
		g := w.gate(b.use)
		all.Go(func() {
			if token, err := g.Token(t.Context(), httpclient.Peer{}, nil); token == "" || err != nil {
				t.Errorf("token %q, %v", token, err)
			}
		})
	}
	all.Wait()
	if n := w.grants("refresh_token"); n != 1 {
		t.Errorf("%d renewals", n)
	}
	w.gate(b.use).works()
	if b.opened.Load() != 1 {
		t.Errorf("%d browsers were opened", b.opened.Load())
	}
}

// A server that refuses a token gets a renewed one. If the authorization server does not renew it
// either, the person signs in again.
func TestRevokedTokens(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	b := newBrowser(t)
	g := w.gate(b.use)
	g.works()
	w.revokeAccess(t)
	g.works()
	if b.opened.Load() != 1 || w.grants("refresh_token") != 1 {
		t.Fatalf("after the access token was revoked: %d browsers, %d renewals", b.opened.Load(), w.grants("refresh_token"))
	}
	w.RevokeAll()
	g.works()
	if b.opened.Load() != 2 {
		t.Errorf("after all was revoked: %d browsers", b.opened.Load())
	}
	registered := 0
	for _, r := range w.Requests() {
		if r.Path == "/register" {
			registered++
		}
	}
	if registered != 1 {
		t.Errorf("the gate registered %d times", registered)
	}
}

// revokeAccess revokes the access tokens, but not the refresh tokens.
func (w *world) revokeAccess(t *testing.T) {
	t.Helper()
	client := ""
	for _, r := range w.Requests() {
		if id := r.Form.Get("client_id"); id != "" {
			client = id
		}
	}
	w.seen.Range(func(token, _ any) bool {
		resp, err := http.PostForm(w.URL+"/revoke", url.Values{"client_id": {client}, "token": {token.(string)}})
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(err)
		}
		resp.Body.Close()
		return true
	})
}

// A server that wants more scopes gets them by another sign-in.
func TestMoreScopes(t *testing.T) {
	w := newWorld(t, authserver.Options{Scopes: []string{"read", "write"}}, "read", "write")
	b := newBrowser(t)
	w.SetHooks(authserver.Hooks{Consent: func(g *authserver.Grant) bool {
		if b.opened.Load() == 1 {
			g.Scopes = []string{"read"}
		}
		return true
	}})
	g := w.gate(b.use)
	if status, err := g.ask(); status != http.StatusForbidden || err != nil {
		t.Fatalf("with one scope: status %d, %v", status, err)
	}
	g.works()
}

// A server that refuses the token of a new sign-in does not make every request open a browser.
func TestUselessSignIn(t *testing.T) {
	for name, tt := range map[string]struct {
		options authserver.Options
		scopes  []string
		hooks   authserver.Hooks
		pages   int64
	}{
		"too few scopes": {authserver.Options{Scopes: []string{"read", "write"}}, []string{"read", "write"}, authserver.Hooks{Consent: func(g *authserver.Grant) bool {
			g.Scopes = []string{"read"}
			return true
		}}, 2},
		"wrong audience": {authserver.Options{}, nil, authserver.Hooks{Claims: func(c map[string]any) { c["aud"] = "other" }}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.options, tt.scopes...)
			w.SetHooks(tt.hooks)
			b := newBrowser(t)
			g := w.gate(b.use)
			for range 6 {
				if status, err := g.ask(); status == http.StatusOK {
					t.Fatalf("status %d, %v", status, err)
				}
			}
			if n := b.opened.Load(); n != tt.pages {
				t.Errorf("%d pages were opened; want %d", n, tt.pages)
			}
			g.fails("does not accept the token of the sign-in")
			w.SetHooks(authserver.Hooks{})
			w.ahead.Store(int64(2 * time.Minute))
			g.works()
		})
	}
}

// A gate that waits for the sign-in of another one does not tell the person to open an old page.
func TestOldLinkIsNotTold(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	w.gate(newBrowser(t).use).works()
	locks, err := filepath.Glob(filepath.Join(w.state, "sign-ins", "*.sign-in"))
	if err != nil || len(locks) != 1 {
		t.Fatal(locks, err)
	}
	// As a gate that was killed leaves them.
	if err := errors.Join(os.Remove(w.file()), os.WriteFile(locks[0], []byte("open https://old.example"), 0o600)); err != nil {
		t.Fatal(err)
	}
	asked, goOn := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(goOn) }))
	w.SetHooks(authserver.Hooks{Request: func(http.ResponseWriter, *http.Request) bool {
		asked <- struct{}{}
		<-goOn
		return false
	}})
	slow := func(c *signin.Config) {
		c.Patience = time.Millisecond
		c.Open = func(context.Context, string) error { return nil }
	}
	w.gate(slow).fails("")
	<-asked // it has begun to sign in, and does not know the link yet
	second := w.gate(slow)
	for range 20 {
		if _, err := second.ask(); err == nil || strings.Contains(err.Error(), "old.example") {
			t.Fatal(err)
		}
	}
}

// A gate that ends while its person signs in leaves the sign-in to a gate that waits for it.
func TestAbandonedSignIn(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	opened := make(chan string, 1)
	first := w.gate(func(c *signin.Config) {
		c.Patience = time.Millisecond
		c.Open = func(_ context.Context, link string) error { opened <- link; return nil }
	})
	first.fails("")
	link := <-opened
	b := newBrowser(t)
	second := w.gate(b.use)
	done := make(chan struct{})
	go func() {
		defer close(done)
		second.works()
	}()
	impatient := w.gate(func(c *signin.Config) { c.Patience = time.Millisecond })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := impatient.ask(); err != nil && strings.Contains(err.Error(), link) {
			break // a gate that waits sees the link
		}
		if time.Now().After(deadline) {
			t.Fatal("no gate waits")
		}
	}
	impatient.Close()
	impatient.Wait(t.Context())
	first.Close()
	<-done
	if b.opened.Load() != 1 {
		t.Errorf("%d browsers were opened", b.opened.Load())
	}
}

// A person can name the authorization server, which may then have a private address.
func TestIssuer(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	b := newBrowser(t)
	w.gate(b.use, func(c *signin.Config) { c.Issuer = "https://other.example" }).fails("and not https://other.example")
	w.gate(b.use, func(c *signin.Config) { c.Issuer = w.URL }).works()
}

// forgets makes the authorization server forget the clients that it knows.
func (w *world) forgets() {
	known := make(map[string]bool)
	for _, r := range w.Requests() {
		known[r.Form.Get("client_id")] = true
	}
	delete(known, "")
	w.SetHooks(authserver.Hooks{Request: func(to http.ResponseWriter, r *http.Request) bool {
		if !known[r.Form.Get("client_id")] {
			return false
		}
		to.Header().Set("Content-Type", "application/json")
		to.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(to, `{"error":"invalid_client"}`)
		return true
	}})
}

// An authorization server that no longer knows the client shows an error to the person. Then the client registers
// again.
func TestForgottenClient(t *testing.T) {
	t.Run("the renewal tells", func(t *testing.T) {
		w := newWorld(t, authserver.Options{Scopes: []string{"tools"}}, "tools")
		b := newBrowser(t)
		g := w.gate(b.use)
		g.works()
		w.forgets()
		w.RevokeAll()
		g.works()
		if b.opened.Load() != 2 {
			t.Errorf("%d browsers were opened", b.opened.Load())
		}
	})
	t.Run("only the page tells", func(t *testing.T) {
		w := newWorld(t, authserver.Options{})
		w.SetHooks(authserver.Hooks{Tokens: func(m map[string]any) { delete(m, "refresh_token") }})
		b := newBrowser(t)
		w.gate(b.use).works()
		<-b.pages
		w.forgets()
		w.RevokeAll()
		g := w.gate(b.use, func(c *signin.Config) { c.Patience = time.Millisecond })
		g.fails("")
		if page := <-b.pages; !strings.Contains(page, "invalid_client") {
			t.Errorf("the page is %q", page)
		}
		g.Close() // the person starts the agent again
		w.gate(b.use).works()
	})
}

// While the person signs in, a request fails with the link. The sign-in goes on.
func TestSlowPerson(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	links := make(chan string, 1)
	slow := func(c *signin.Config) {
		c.Patience = time.Millisecond
		c.Open = func(_ context.Context, link string) error { links <- link; return nil }
	}
	g := w.gate(slow)
	if _, err := g.ask(); err == nil {
		t.Fatal("the request did not fail")
	}
	link := <-links
	other := w.gate(slow)
	for _, waiting := range []*gate{g, other} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if _, err := waiting.ask(); err != nil && strings.Contains(err.Error(), link) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the error does not have the link")
			}
		}
	}
	if page := get(t, link); !strings.HasPrefix(page, "You are signed in.") {
		t.Fatalf("the page is %q", page)
	}
	for _, waiting := range []*gate{g, other} {
		waiting.Wait(t.Context())
		waiting.works()
	}
}

// Sign-ins that fail, with the page that the person sees. The next request does not open another
// browser at once.
func TestFailedSignIns(t *testing.T) {
	for name, tt := range map[string]struct {
		hooks authserver.Hooks
		want  string
	}{
		"denied":       {authserver.Hooks{Consent: func(*authserver.Grant) bool { return false }}, "the sign-in was denied"},
		"wrong issuer": {authserver.Hooks{Redirect: func(a url.Values) { a.Set("iss", "https://other.example") }}, "https://other.example"},
		"no issuer":    {authserver.Hooks{Redirect: func(a url.Values) { a.Del("iss") }}, "the answer is from"},
		"no token":     {authserver.Hooks{Tokens: func(m map[string]any) { m["access_token"] = "a b" }}, "cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, authserver.Options{})
			w.SetHooks(tt.hooks)
			b := newBrowser(t)
			g := w.gate(b.use)
			g.fails(tt.want)
			g.fails(tt.want)
			if page := <-b.pages; !strings.HasPrefix(page, "The sign-in failed: ") || !strings.Contains(page, tt.want) {
				t.Errorf("the page is %q", page)
			}
			if b.opened.Load() != 1 {
				t.Errorf("%d browsers were opened", b.opened.Load())
			}
			w.SetHooks(authserver.Hooks{})
			w.ahead.Store(int64(2 * time.Minute))
			g.works()
		})
	}
}

// Metadata cannot lead the gate to other places, and cannot make it open anything but https.
func TestHostileLinks(t *testing.T) {
	for name, change := range map[string]func(m map[string]any){
		"file":             func(m map[string]any) { m["authorization_endpoint"] = "file:///etc/passwd" },
		"program":          func(m map[string]any) { m["authorization_endpoint"] = "vscode://open" },
		"plain HTTP":       func(m map[string]any) { m["authorization_endpoint"] = "http://other.example/authorize" },
		"private token":    func(m map[string]any) { m["token_endpoint"] = "https://10.0.0.1/token" },
		"other issuer":     func(m map[string]any) { m["issuer"] = "https://other.example" },
		"private register": func(m map[string]any) { m["registration_endpoint"] = "https://192.168.0.1/register" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, authserver.Options{})
			w.SetHooks(authserver.Hooks{Metadata: change})
			var opened atomic.Value
			g := w.gate(func(c *signin.Config) {
				c.Open = func(_ context.Context, link string) error {
					opened.Store(link)
					go func() {
						if resp, err := http.Get(link); err == nil {
							resp.Body.Close()
						}
					}()
					return nil
				}
			})
			status, err := g.ask()
			if link, _ := opened.Load().(string); link != "" && !strings.HasPrefix(link, w.URL) {
				t.Errorf("opened %s", link)
			}
			if status == http.StatusOK || err == nil && status != http.StatusUnauthorized {
				t.Errorf("status %d, %v", status, err)
			}
		})
	}
}

// The address for a code on another device must be https, too.
func TestHostileLinksOfDevices(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	w.SetHooks(authserver.Hooks{Request: func(to http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/device" {
			to.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(to, `{"device_code": "x", "user_code": "y", "verification_uri": "ssh://other.example", "expires_in": 600}`)
		}
		return r.URL.Path == "/device"
	}})
	g := w.gate(func(c *signin.Config) {
		c.Say = func(text string) {
			if strings.Contains(text, "ssh:") {
				t.Errorf("the person is told %q", text)
			}
			go get(t, strings.Fields(text)[1])
		}
	})
	g.works()
}

// Requests with another state, path, method or host do not end a sign-in. The right one counts once.
func TestStrangeCallbacks(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	links := make(chan string, 1)
	g := w.gate(func(c *signin.Config) {
		c.Open = func(_ context.Context, link string) error { links <- link; return nil }
	})
	done := make(chan struct{})
	go func() { defer close(done); g.works() }()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(<-links)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		t.Fatal(err)
	}
	try := func(method string, change func(u *url.URL, q url.Values)) int {
		u, q := *back, back.Query()
		change(&u, q)
		u.RawQuery = q.Encode()
		req, err := http.NewRequestWithContext(t.Context(), method, u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if u.Fragment != "" {
			req.Host = u.Fragment
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		page, _ := io.ReadAll(resp.Body)
		if text := string(page); strings.Contains(text, back.Query().Get("code")) || strings.Contains(text, "ey") {
			t.Errorf("the page has a secret: %s", text)
		}
		return resp.StatusCode
	}
	same := func(*url.URL, url.Values) {}
	for _, status := range []int{
		try(http.MethodGet, func(_ *url.URL, q url.Values) { q.Set("state", "x") }),
		try(http.MethodGet, func(_ *url.URL, q url.Values) { q.Del("state") }),
		try(http.MethodGet, func(u *url.URL, _ url.Values) { u.Path = "/" }),
		try(http.MethodGet, func(u *url.URL, _ url.Values) { u.Fragment = "rebound.example" }),
		try(http.MethodPost, same),
	} {
		if status != http.StatusNotFound {
			t.Errorf("a strange request was answered %d", status)
		}
	}
	if status := try(http.MethodGet, same); status != http.StatusOK {
		t.Errorf("the answer was answered %d", status)
	}
	<-done
	if status := try(http.MethodGet, same); status != 0 && status != http.StatusGone {
		t.Errorf("the repeated answer was answered %d", status)
	}
}

// Without a browser, the person enters a code on another device. If the authorization server has no
// such codes, the person opens a link.
func TestWithoutBrowser(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	codes := make(chan string, 1)
	g := w.gate(func(c *signin.Config) {
		c.Say = func(text string) {
			if m := regexp.MustCompile(`^open (.*)/activate in any browser and enter the code "(.*)"$`).FindStringSubmatch(text); m != nil && m[1] == w.URL {
				codes <- m[2]
			} else {
				t.Errorf("the person is told %q", text)
			}
		}
	})
	go func() { w.ApproveDevice(<-codes) }()
	g.works()

	w = newWorld(t, authserver.Options{})
	w.SetHooks(authserver.Hooks{Metadata: func(m map[string]any) { delete(m, "device_authorization_endpoint") }})
	g = w.gate(func(c *signin.Config) {
		c.Say = func(text string) {
			link := regexp.MustCompile(`^open (\S*) in a browser on this machine \(for a browser on another machine, first run there: ssh -L (\d+):127.0.0.1:(\d+) THIS-MACHINE\)$`).FindStringSubmatch(text)
			if link == nil {
				t.Errorf("the person is told %q", text)
				return
			}
			go get(t, link[1])
		}
	})
	g.works()
}

// SignIn signs in before a request does, also with a client that the person has registered.
func TestSignIn(t *testing.T) {
	w := newWorld(t, authserver.Options{NoRegistration: true})
	b := newBrowser(t)
	if err := w.gate(b.use).SignIn(t.Context()); err == nil || !strings.Contains(err.Error(), "--client-id") {
		t.Errorf("without a client: %v", err)
	}
	w.Register("known", authserver.Client{Secret: "secret", Redirects: []string{"http://127.0.0.1/callback"}})
	g := w.gate(b.use, func(c *signin.Config) { c.ID, c.Secret = "known", "secret" })
	for range 2 {
		if err := g.SignIn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.gate().works()
	if b.opened.Load() != 1 {
		t.Errorf("%d browsers were opened", b.opened.Load())
	}
}

// SignIn does not trust a token that it has: the server must accept it.
func TestSignInChecksToken(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	b := newBrowser(t)
	g := w.gate(b.use)
	if err := g.SignIn(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.gate().works()
	w.revokeAccess(t)
	if err := g.SignIn(t.Context()); err != nil || b.opened.Load() != 1 {
		t.Errorf("after the access token was revoked: %v, %d browsers", err, b.opened.Load())
	}
	w.RevokeAll()
	if err := g.SignIn(t.Context()); err != nil || b.opened.Load() != 2 {
		t.Errorf("after all was revoked: %v, %d browsers", err, b.opened.Load())
	}
	w.gate().works()
}

// A server that redirects gets its token, and no other server does.
func TestTokenStaysAtServer(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	w.gate(newBrowser(t).use).works()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the other server got %v", r.Header) }))
	defer other.Close()
	w.redirect.Store(&other.URL)
	if status, err := w.gate().ask(); status == http.StatusOK {
		t.Errorf("status %d, %v", status, err)
	}
}

// A server that does not say how to sign in answers for itself.
func TestNoOAuth(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/mcp" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	w := &world{t: t, state: t.TempDir(), url: server.URL + "/mcp"}
	if status, err := w.gate(newBrowser(t).use).ask(); status != http.StatusUnauthorized || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
}

// Tokens are only in the file of the server, which is private.
func TestTokensStaySecret(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	b := newBrowser(t)
	g := w.gate(b.use)
	g.works()
	w.revokeAccess(t)
	g.works()
	w.RevokeAll()
	g.works()
	var secrets []string
	w.seen.Range(func(token, _ any) bool {
		secrets = append(secrets, token.(string))
		return true
	})
	for _, r := range w.Requests() {
		for _, name := range []string{"code", "refresh_token", "code_verifier"} {
			if value := r.Form.Get(name); value != "" {
				secrets = append(secrets, value)
			}
		}
	}
	if len(secrets) < 6 {
		t.Fatalf("only %d secrets", len(secrets))
	}
	texts := map[string]string{"the log": g.log.String(), "the terminal": fmt.Sprint(g.said)}
	files, err := filepath.Glob(filepath.Join(w.state, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", file, info.Mode(), err)
		}
		if filepath.Ext(file) != ".json" {
			texts[file] = string(text)
		}
	}
	for name, text := range texts {
		if slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(text, secret) }) {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
}

// Close ends a sign-in that waits for the person.
func TestClose(t *testing.T) {
	w := newWorld(t, authserver.Options{})
	opened := make(chan struct{})
	g := w.gate(func(c *signin.Config) { c.Open = func(context.Context, string) error { close(opened); return nil } })
	done := make(chan error, 1)
	go func() {
		_, err := g.ask()
		done <- err
	}()
	<-opened
	g.Close()
	if err := <-done; err == nil {
		t.Error("the request was answered")
	}
	g.Wait(context.Background())
}
