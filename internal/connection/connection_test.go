package connection_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/auditlog"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
	"github.com/thoughtgate/thoughtgate-go/task/memstore"
)

// A fleet has the replicas of a gate, with one store, in front of a server that wants OAuth.
type fleet struct {
	t     *testing.T
	auth  *authserver.Server
	url   string
	store gatestore.Store

	mu   sync.Mutex
	now  time.Time
	sent string // the access token of [fleet.renewSlowly]
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, auth: authserver.New(t, authserver.Options{}), store: memstore.New(memstore.Options{}), now: time.Now()}
	f.auth.SetHooks(f.hooks())
	up := httptest.NewServer(f.auth.Protect("/mcp", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(up.Close)
	f.url = up.URL + "/mcp"
	return f
}

// hooks make tokens valid for an hour of the clock of the fleet. Package oauth2 goes by the real one.
func (f *fleet) hooks() authserver.Hooks {
	return authserver.Hooks{Tokens: func(m map[string]any) { m["expires_in"] = int(time.Until(f.clock().Add(time.Hour)).Seconds()) }}
}

func (f *fleet) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fleet) wait(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// replica starts a replica.
func (f *fleet) replica() *connection.Connections {
	c := connection.New(connection.Config{
		Servers: []connection.Server{{Name: "up", Mode: connection.Shared, Client: oauth.Client{Resource: f.url, HTTP: oauth.HTTPClient(nil, f.url), Now: f.clock}}},
		Person:  func(string) string { return "" }, Now: f.clock, Log: slog.New(slog.DiscardHandler),
	})
	c.Open(f.store, keyring.New(f.store, f.clock), "http://127.0.0.1:1/connections")
	return c
}

var admin = connection.Actor{Name: "root", Admin: true, Session: "s"}

// connect connects the server by a sign-in that begins at one replica and ends at another.
func (f *fleet) connect(begins, ends *connection.Connections) {
	f.t.Helper()
	if err := f.tryConnect(begins, ends); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) tryConnect(begins, ends *connection.Connections) error {
	f.t.Helper()
	at, answer, err := f.begin(begins)
	if err == nil {
		_, err = f.finish(ends, at, answer, admin)
	}
	return err
}

// begin begins a sign-in. It returns its address, and the answer of the authorization server.
func (f *fleet) begin(c *connection.Connections) (string, *auth.AuthorizationResult, error) {
	f.t.Helper()
	at, err := c.Begin(f.t.Context(), "up", admin)
	if err != nil {
		return "", nil, err
	}
	answer, err := f.auth.Browse(f.t.Context(), &auth.AuthorizationArgs{URL: at})
	return at, answer, err
}

// finish ends a sign-in that began at an address.
func (f *fleet) finish(c *connection.Connections, began string, answer *auth.AuthorizationResult, who connection.Actor) (connection.Connection, error) {
	f.t.Helper()
	u, err := url.Parse(began)
	if err != nil {
		f.t.Fatal(err)
	}
	back, err := url.Parse(u.Query().Get("redirect_uri"))
	if err != nil {
		f.t.Fatal(err)
	}
	return c.Finish(f.t.Context(), back.Path, url.Values{"code": {answer.Code}, "state": {answer.State}, "iss": {answer.Iss}}, who)
}

// journal returns the steps in the journal.
func (f *fleet) journal() string {
	f.t.Helper()
	entries, err := f.store.Entries(f.t.Context(), auditlog.Query{})
	if err != nil {
		f.t.Fatal(err)
	}
	var steps []string
	for _, e := range entries {
		steps = append(steps, e.Step)
	}
	return strings.Join(steps, " ")
}

func (f *fleet) renewals() (n int) {
	for _, r := range f.auth.Requests() {
		if r.Form.Get("grant_type") == "refresh_token" {
			n++
		}
	}
	return n
}

func (f *fleet) token(c *connection.Connections) (string, error) {
	return c.Tokens("up").Token(f.t.Context(), httpclient.Peer{}, nil)
}

// Many requests at two replicas find an old token. It is renewed once: the authorization server takes the second
// use of a refresh token for a theft, and revokes everything.
func TestReplicasRenewOnce(t *testing.T) {
	f := newFleet(t)
	one, other := f.replica(), f.replica()
	f.connect(one, other)
	for round := 1; round <= 3; round++ {
		f.wait(2 * time.Hour)
		var all sync.WaitGroup
		var mu sync.Mutex
		tokens := make(map[string]bool)
		for i := range 40 {
			all.Go(func() {
				token, err := f.token([]*connection.Connections{one, other}[i%2])
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				tokens[token] = true
			})
		}
		all.Wait()
		if n := f.renewals(); n != round || len(tokens) != 1 {
			t.Fatalf("round %d: %d renewals, %d tokens", round, n, len(tokens))
		}
	}
}

// A replica that died while it renewed a token leaves the renewal to another one.
func TestRenewalOfDeadReplica(t *testing.T) {
	f := newFleet(t)
	one, other := f.replica(), f.replica()
	f.connect(one, one)
	f.wait(2 * time.Hour)
	dead, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	f.auth.SetHooks(authserver.Hooks{Request: func(_ http.ResponseWriter, r *http.Request) bool {
		if r.PostForm.Get("grant_type") != "refresh_token" {
			return false
		}
		f.auth.SetHooks(f.hooks())
		close(dead)
		<-release // the replica gets no answer
		return true
	}})
	go func() { _, _ = f.token(one) }()
	<-dead
	f.wait(time.Minute)
	if _, err := f.token(other); err != nil {
		t.Error(err)
	}
}

// renewSlowly begins to renew the token of c because the server refuses it. The authorization server has sent new
// tokens when it returns; c gets them when the returned function is called, which returns what the request gets.
func (f *fleet) renewSlowly(c *connection.Connections, refused string) func() (string, error) {
	f.t.Helper()
	sent, release := make(chan struct{}), make(chan struct{})
	hooks := f.hooks()
	usual := hooks.Tokens
	hooks.Tokens = func(m map[string]any) {
		f.auth.SetHooks(f.hooks())
		usual(m)
		f.mu.Lock()
		f.sent, _ = m["access_token"].(string)
		f.mu.Unlock()
		close(sent)
		<-release
	}
	f.auth.SetHooks(hooks)
	var token string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		token, err = c.Tokens("up").Renew(f.t.Context(), httpclient.Peer{}, nil, httpclient.RefusedToken{Token: refused, Status: http.StatusUnauthorized})
	}()
	<-sent
	return func() (string, error) {
		close(release)
		<-done
		return token, err
	}
}

// mustHaveToken returns the token of c.
func (f *fleet) mustHaveToken(c *connection.Connections) string {
	f.t.Helper()
	token, err := f.token(c)
	if err != nil {
		f.t.Fatal(err)
	}
	return token
}

// A connection that is removed while its token is renewed stays removed, and the new tokens are revoked.
func TestRemovalEndsRenewal(t *testing.T) {
	f := newFleet(t)
	one, other := f.replica(), f.replica()
	f.connect(one, one)
	finish := f.renewSlowly(one, f.mustHaveToken(one))
	f.remove(other)
	if token, err := finish(); err == nil {
		t.Errorf("the request gets the token %.10s… of a removed connection", token)
	}
	if _, err := f.auth.Verify(f.sent, ""); err == nil {
		t.Error("the new token is still valid")
	}
	if left, err := one.Visible(t.Context(), admin); err != nil || len(left) > 0 {
		t.Errorf("connections after the removal: %v, %v", left, err)
	}
	for _, c := range []*connection.Connections{one, f.replica()} {
		if _, err := f.token(c); err == nil {
			t.Error("a removed connection has a token")
		}
	}
}

// remove removes all connections.
func (f *fleet) remove(c *connection.Connections) {
	f.t.Helper()
	all, err := c.Visible(f.t.Context(), admin)
	if err != nil || len(all) == 0 {
		f.t.Fatalf("nothing to remove: %v", err)
	}
	for _, one := range all {
		if _, err := c.Remove(f.t.Context(), one.ID, admin, ""); err != nil {
			f.t.Fatal(err)
		}
	}
}

// A renewal of a connection that was removed does not replace the next connection of the same person.
func TestRenewalLeavesNextConnection(t *testing.T) {
	f := newFleet(t)
	one, other := f.replica(), f.replica()
	f.connect(one, one)
	old := f.mustHaveToken(one)
	finish := f.renewSlowly(one, old)
	f.remove(other)
	f.connect(other, other)
	next := f.mustHaveToken(other)
	f.askForMore(other, next) // now the record has changed as often as the earlier one
	if token, err := finish(); err != nil || token != next {
		t.Errorf("the request does not get the token of the next connection: %v", err)
	}
	if got := f.mustHaveToken(f.replica()); got != next {
		t.Error("the next connection was replaced")
	}
}

// askForMore tells c that the server wants more scopes.
func (f *fleet) askForMore(c *connection.Connections, token string) {
	f.t.Helper()
	_, err := c.Tokens("up").Renew(f.t.Context(), httpclient.Peer{}, nil, httpclient.RefusedToken{
		Token: token, Status: http.StatusForbidden, Challenge: []string{`Bearer error="insufficient_scope", scope="more"`},
	})
	if err == nil {
		f.t.Fatal("nobody is asked to connect")
	}
}

// A connection that changes while its token is renewed keeps the new tokens, and the change.
func TestRenewalSurvivesChange(t *testing.T) {
	f := newFleet(t)
	one, other := f.replica(), f.replica()
	f.connect(one, one)
	old := f.mustHaveToken(one)
	finish := f.renewSlowly(one, old)
	f.askForMore(other, old)
	token, err := finish()
	if err != nil {
		t.Fatal(err)
	}
	if got := f.mustHaveToken(f.replica()); got != token || f.renewals() != 1 {
		t.Errorf("the new token was lost: %d renewals", f.renewals())
	}
	at, err := other.Begin(t.Context(), "up", admin)
	if err != nil || !strings.Contains(at, "scope=more") {
		t.Errorf("the next sign-in asks at %s, %v; want the scope", at, err)
	}
}

// Tokens that were renewed while the store was down are stored when it is back.
func TestRenewalSurvivesStoreOutage(t *testing.T) {
	f := newFleet(t)
	store := &failingStore{Store: f.store}
	f.store = store
	one := f.replica()
	f.connect(one, one)
	finish := f.renewSlowly(one, f.mustHaveToken(one))
	store.failures.Store(3)
	token, err := finish()
	if err != nil {
		t.Fatal(err)
	}
	if got := f.mustHaveToken(f.replica()); got != token || f.renewals() != 1 {
		t.Errorf("the new token was lost: %d renewals", f.renewals())
	}
}

// A failingStore fails to store the next records.
type failingStore struct {
	gatestore.Store

	failures atomic.Int64
}

func (s *failingStore) PutRecord(ctx context.Context, r gatestore.Record) error {
	if s.failures.Add(-1) >= 0 {
		return task.ErrUnavailable
	}
	return s.Store.PutRecord(ctx, r)
}

// Connections outlive the root key that sealed them.
func TestConnectionOutlivesRootKey(t *testing.T) {
	f := newFleet(t)
	c := f.replica()
	f.connect(c, c)
	ring := keyring.New(f.store, f.clock)
	if err := errors.Join(ring.Rotate(t.Context(), 30*time.Minute), connection.Reseal(t.Context(), f.store, keyring.New(f.store, f.clock))); err != nil {
		t.Fatal(err)
	}
	f.wait(40 * time.Minute)
	for _, c := range []*connection.Connections{c, f.replica()} {
		f.mustHaveToken(c)
	}
}

// If the authorization server is down, nothing is lost: the token is renewed later.
func TestRenewalIsRepeated(t *testing.T) {
	f := newFleet(t)
	c := f.replica()
	f.connect(c, c)
	f.wait(2 * time.Hour)
	f.auth.SetHooks(authserver.Hooks{Request: func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	}})
	asked := len(f.auth.Requests())
	for range 10 {
		_, err := f.token(c)
		if p, ok := errors.AsType[*mcp.Problem](err); !ok || p.Type != mcp.UpstreamDown {
			t.Errorf("the authorization server is down: %v", err)
		}
	}
	if n := len(f.auth.Requests()) - asked; n != 1 {
		t.Errorf("%d requests to an authorization server that is down", n)
	}
	f.auth.SetHooks(f.hooks())
	f.wait(10 * time.Second)
	if _, err := f.token(c); err != nil {
		t.Error(err)
	}
}

// A person who loses a role during the sign-in connects nothing.
func TestRoleCountsAtTheEndOfSignIn(t *testing.T) {
	f := newFleet(t)
	c := f.replica()
	at, answer, err := f.begin(c)
	if err != nil {
		t.Fatal(err)
	}
	asked := len(f.auth.Requests())
	demoted := connection.Actor{Name: admin.Name, Session: admin.Session}
	if _, err := f.finish(c, at, answer, demoted); !errors.Is(err, connection.ErrForbidden) || len(f.auth.Requests()) != asked {
		t.Errorf("finish without the role: %v", err)
	}
}

// A sign-in ends after ten minutes.
func TestSignInExpires(t *testing.T) {
	f := newFleet(t)
	c := f.replica()
	at, answer, err := f.begin(c)
	if err != nil {
		t.Fatal(err)
	}
	f.wait(11 * time.Minute)
	if _, err := f.finish(c, at, answer, admin); !errors.Is(err, connection.ErrSignIn) {
		t.Errorf("finish too late: %v", err)
	}
}

// Tokens that end within seconds are not renewed for each request.
func TestShortTokensAreUsed(t *testing.T) {
	f := newFleet(t)
	c := f.replica()
	f.auth.SetHooks(authserver.Hooks{Tokens: func(m map[string]any) { m["expires_in"] = 20 }})
	f.connect(c, c)
	for range 10 {
		f.mustHaveToken(c)
	}
	if n := f.renewals(); n != 0 {
		t.Errorf("%d renewals within a moment", n)
	}
	f.wait(15 * time.Second)
	f.mustHaveToken(c)
	if n := f.renewals(); n != 1 {
		t.Errorf("%d renewals after 15 seconds", n)
	}
}

// Tokens that do not fit into a record end in a clear error, and not in further renewals.
func TestHugeTokens(t *testing.T) {
	huge := strings.Repeat(`"`, 12<<10) // twice as long in JSON
	grow := func(f *fleet) {
		hooks := f.hooks()
		usual := hooks.Tokens
		hooks.Tokens = func(m map[string]any) {
			usual(m)
			m["access_token"], m["refresh_token"] = huge, huge
		}
		f.auth.SetHooks(hooks)
	}
	f := newFleet(t)
	c := f.replica()
	grow(f)
	if err := f.tryConnect(c, c); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("connect: %v", err)
	}
	if notes := f.journal(); strings.Contains(notes, "connected") {
		t.Errorf("the journal has a connection that was not made: %s", notes)
	}
	f.auth.SetHooks(f.hooks())
	f.connect(c, c)
	grow(f)
	f.wait(2 * time.Hour)
	for range 3 {
		_, _ = f.token(c)
	}
	if _, err := f.token(f.replica()); err == nil || f.renewals() != 1 {
		t.Errorf("after %d renewals: %v", f.renewals(), err)
	}
	if all, err := c.Visible(t.Context(), admin); err != nil || len(all) != 1 || all[0].Ended.IsZero() {
		t.Errorf("the connection has not ended: %+v, %v", all, err)
	}
}

// A long challenge does not keep a person from connecting again.
func TestHugeChallenge(t *testing.T) {
	f := newFleet(t)
	c := f.replica()
	f.connect(c, c)
	token := f.mustHaveToken(c)
	_, err := c.Tokens("up").Renew(t.Context(), httpclient.Peer{}, nil, httpclient.RefusedToken{
		Token: token, Status: http.StatusForbidden, Challenge: []string{`Bearer error="insufficient_scope", scope="more", x="` + strings.Repeat("x", 64<<10) + `"`},
	})
	if p, ok := errors.AsType[*mcp.Problem](err); !ok || p.Type != mcp.NotConnected {
		t.Errorf("a long challenge: %v", err)
	}
}

// Only an administrator connects a server for all agents, and only in a browser.
func TestOnlyAdminsConnectForAll(t *testing.T) {
	c := newFleet(t).replica()
	for _, who := range []connection.Actor{{Name: "ann", Session: "s"}, {Name: "root", Admin: true}} {
		if _, err := c.Begin(t.Context(), "up", who); !errors.Is(err, connection.ErrForbidden) {
			t.Errorf("%v: %v", who, err)
		}
	}
}

// A connection that is removed while the tokens of all are sealed anew does not hold up the others.
func TestResealOfRemovedConnection(t *testing.T) {
	f := newFleet(t)
	f.connect(f.replica(), f.replica())
	if err := connection.Reseal(t.Context(), removing{f.store}, keyring.New(f.store, f.clock)); err != nil {
		t.Error(err)
	}
}

// removing is a store in which others remove each record that is about to be changed.
type removing struct{ gatestore.Records }

func (r removing) PutRecord(ctx context.Context, one gatestore.Record) error {
	if err := r.DeleteRecord(ctx, one.Name); err != nil {
		return err
	}
	return r.Records.PutRecord(ctx, one)
}
