package app_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/storage"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv/authserver"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// The agents, by their tokens: of ann, of bob, and one that has the token of the authorization server.
const (
	annsAgent = "tga_anns_agent_0123456789abcdef"
	bobsAgent = "tga_bobs_agent_0123456789abcdef"
)

// A guardedServer is an MCP server that wants tokens of an authorization server.
type guardedServer struct {
	auth   *authserver.Server
	url    string
	answer func(w http.ResponseWriter, r *http.Request, body string) bool // answers in place of the server, if it returns true

	mu     sync.Mutex
	calls  []string        // the users of the calls that ran
	tokens map[string]bool // all tokens that it got
	users  func() string   // who signs in
}

func newGuardedServer(t *testing.T, o authserver.Options, scopes ...string) *guardedServer {
	t.Helper()
	s := &guardedServer{auth: authserver.New(t, o), tokens: make(map[string]bool)}
	s.auth.SetHooks(s.hooks())
	handler := s.auth.Protect("/mcp", http.HandlerFunc(s.serve), scopes...)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
			s.mu.Lock()
			s.tokens[token] = true
			s.mu.Unlock()
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(up.Close)
	s.url = up.URL + "/mcp"
	return s
}

// hooks make the user who signs in the one that users returns.
func (s *guardedServer) hooks() authserver.Hooks {
	return authserver.Hooks{Consent: func(g *authserver.Grant) bool {
		if s.users != nil {
			g.User = s.users()
		}
		return true
	}}
}

func (s *guardedServer) serve(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	body := string(text)
	if s.answer != nil && s.answer(w, r, body) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	result := `{"content":[{"type":"text","text":"done"}]}`
	switch {
	case strings.Contains(body, `"tools/list"`):
		result = `{"tools":[]}`
	case strings.Contains(body, `"initialize"`):
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		w.Header().Set("Mcp-Session-Id", "upstream-session")
	case strings.Contains(body, `"tools/call"`):
		s.ran(r)
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, idOf(text), result)
}

// ran notes a call.
func (s *guardedServer) ran(r *http.Request) {
	claims, _ := s.auth.Verify(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "")
	user, _ := claims["sub"].(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, user)
}

func (s *guardedServer) callers() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.calls, " ")
}

// grants returns how often the token endpoint was asked with this grant type.
func (s *guardedServer) grants(kind string) (n int) {
	for _, r := range s.auth.Requests() {
		if r.Form.Get("grant_type") == kind {
			n++
		}
	}
	return n
}

var storeKeys = "k1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 32))

// config returns the configuration of a gate in front of the server.
func (s *guardedServer) config(store, oauth string) string {
	hash := func(token string) string { return "hash: '" + identity.HashOf(token).String() + "'" }
	return "version: 1\nlisten: 127.0.0.1:0\nstore: '" + store + "'\nstorage: {keys: '" + storeKeys + "'}\n" +
		"operators: {listen: 127.0.0.1:0, tokens: [{name: Ann, role: approver, " + hash(approverToken) + "}, {name: bob, role: viewer, " + hash(viewerToken) +
		"}, {name: root, role: admin, " + hash(adminToken) + "}]}\n" +
		"identity: {tokens: [{name: anns-agent, owner: Ann, " + hash(annsAgent) + "}, {name: bob, " + hash(bobsAgent) + "}]}\n" +
		"upstreams: [{url: '" + s.url + "', auth: {oauth: {" + oauth + "}}}]\n" +
		"rules: [{match: 'hold_*', action: approve}]\ndefault: forward\nworkflows: {default: {self_approval: true}}\n"
}

// A browser is one person's browser.
type browser struct {
	t      *testing.T
	client *http.Client
	gate   string
}

// signIn opens a browser and signs in at the inbox of a gate.
func signIn(t *testing.T, a *app.App, token string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}, "http://" + a.OperatorAddr()}
	if status, page := b.do(http.MethodPost, b.gate+"/login", "token="+token); status != http.StatusOK {
		t.Fatalf("sign in: %d %s", status, page)
	}
	return b
}

func (b *browser) do(method, address, form string) (int, string) {
	b.t.Helper()
	status, page, _ := request(b.t, b.client, method, address, form, "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
	return status, page
}

var (
	pageToken = regexp.MustCompile(`name="csrf" value="([^"]+)"`)
	nextPage  = regexp.MustCompile(`<a class="button primary" rel="noreferrer" href="([^"]+)"`)
	removal   = regexp.MustCompile(`action="(/connections/[^"]+/remove)"`)
)

// post sends a form of the page of connections.
func (b *browser) post(path string) (int, string) {
	b.t.Helper()
	_, page := b.do(http.MethodGet, b.gate+"/connections", "")
	token := pageToken.FindStringSubmatch(page)
	if token == nil {
		b.t.Fatalf("no form on the page: %s", page)
	}
	return b.do(http.MethodPost, b.gate+path, "csrf="+url.QueryEscape(token[1]))
}

// begin begins to connect a server, and returns the address of the authorization server.
func (b *browser) begin() string {
	b.t.Helper()
	status, page := b.post("/connections/default/connect")
	to := nextPage.FindStringSubmatch(page)
	if status != http.StatusOK || to == nil {
		b.t.Fatalf("connect: %d %s", status, page)
	}
	return html.UnescapeString(to[1])
}

// A person who connects reads which rights the server asks for.
func TestPageShowsRights(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{Scopes: []string{"tools:read"}}, "tools:read")
	a, stop := start(t, s.config("memory:", "grant: shared"))
	defer stop()
	if _, page := signIn(t, a, adminToken).post("/connections/default/connect"); !strings.Contains(page, ">tools:read<") {
		t.Errorf("the page: %s", page)
	}
}

// connect connects the server.
func (b *browser) connect() {
	b.t.Helper()
	if status, page := b.do(http.MethodGet, b.begin(), ""); status != http.StatusOK || !strings.Contains(page, ">Connected<") {
		b.t.Fatalf("connected: %d %s", status, page)
	}
}

// askAs sends a message of an agent.
func askAs(t *testing.T, a *app.App, agent, body string, headers ...string) string {
	t.Helper()
	_, answer, _ := request(t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, http.MethodPost, "http://"+a.AgentAddr()+"/mcp", body,
		append([]string{"Accept", "application/json, text/event-stream", "Authorization", "Bearer " + agent}, headers...)...)
	return answer
}

func wantNotConnected(t *testing.T, a *app.App, answer string) {
	t.Helper()
	if !strings.Contains(answer, `"error_type":"not_connected"`) || !strings.Contains(answer, "http://"+a.OperatorAddr()+"/connections") {
		t.Errorf("answer: %s; want not_connected with the link", answer)
	}
}

func wantDone(t *testing.T, answer string) {
	t.Helper()
	if !strings.Contains(answer, `"text":"done"`) {
		t.Errorf("answer: %s; want the result", answer)
	}
}

// An administrator connects a server for all agents. The connection survives a restart, is renewed, and can be
// removed. No token is in a log, an answer or the store.
func TestSharedConnection(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{Scopes: []string{"tools", "more"}}, "tools")
	file := filepath.Join(t.TempDir(), "gate.db")
	config := s.config("sqlite:"+file, "grant: shared")
	var log lines
	open := func() (*app.App, func() error) {
		a, err := app.New(load(t, config), slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		if err != nil {
			t.Fatal(err)
		}
		return a, run(t, a)
	}
	a, stop := open()
	wantNotConnected(t, a, askAs(t, a, annsAgent, call("read")))
	if status, page := signIn(t, a, approverToken).post("/connections/default/connect"); status != http.StatusForbidden {
		t.Errorf("an approver connects for all: %d %s", status, page)
	}
	root := signIn(t, a, adminToken)
	root.connect()
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	wantDone(t, askAs(t, a, bobsAgent, call("read")))
	dump := make([]byte, 64<<20)
	dump = dump[:runtime.Stack(dump, true)] // what a crash prints
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	export := exported(t, file)

	a, stop = open()
	wantDone(t, askAs(t, a, bobsAgent, call("read")))
	if got := s.callers(); got != "alice alice alice" {
		t.Errorf("calls of %s", got)
	}
	_, api, _ := request(t, http.DefaultClient, "GET", "http://"+a.OperatorAddr()+"/api/connections", "", "Authorization", "Bearer "+adminToken)
	if !strings.Contains(api, `"upstream":"default"`) || !strings.Contains(api, `"by":"root"`) || !strings.Contains(api, `"scopes":["tools"]`) {
		t.Errorf("the list of connections: %s", api)
	}
	_, journal, _ := request(t, http.DefaultClient, "GET", "http://"+a.OperatorAddr()+"/api/audit", "", "Authorization", "Bearer "+adminToken)
	root = signIn(t, a, adminToken)
	_, page := root.do(http.MethodGet, root.gate+"/connections", "")
	if status, page := root.post(removal.FindStringSubmatch(page)[1]); status != http.StatusOK || !strings.Contains(page, "was removed") {
		t.Errorf("remove: %d %s", status, page)
	}
	wantNotConnected(t, a, askAs(t, a, annsAgent, call("read")))
	for token := range s.tokens {
		if _, err := s.auth.Verify(token, ""); err == nil {
			t.Error("a token of the removed connection is still valid")
		}
	}
	_, after, _ := request(t, http.DefaultClient, "GET", "http://"+a.OperatorAddr()+"/api/audit", "", "Authorization", "Bearer "+adminToken)
	if !strings.Contains(journal, `"connected"`) || !strings.Contains(after, `"disconnected"`) {
		t.Errorf("the journal lacks the connection or its end: %s", after)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, file + "-wal"} {
		stored, _ := os.ReadFile(name)
		wantNoSecrets(t, s, name, string(stored))
	}
	wantNoSecrets(t, s, "the log", log.all.String())
	wantNoSecrets(t, s, "an answer", api+page+journal+after)
	wantNoSecrets(t, s, "the export", export)
	wantNoSecrets(t, s, "the goroutines", string(dump))
}

// A connection can be used after the root key was replaced and the old one has expired.
func TestConnectionsOutliveRootKey(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	file := filepath.Join(t.TempDir(), "gate.db")
	a, stop := start(t, s.config("sqlite:"+file, "grant: shared"))
	signIn(t, a, adminToken).connect()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	store, err := storage.Settings{DSN: "sqlite:" + file, Keys: storeKeys}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := app.RotateKey(t.Context(), store, time.Hour); err != nil {
		t.Fatal(err)
	}
	later := keyring.New(store, func() time.Time { return time.Now().Add(2 * time.Hour) })
	found := 0
	for r, err := range gatestore.EachRecord(t.Context(), store, gatestore.RecordQuery{Prefix: "connection/", Limit: 10}) {
		var stored struct {
			About  struct{ ID string }
			Sealed string
		}
		if err = errors.Join(err, json.Unmarshal(r.Value, &stored, json.MatchCaseInsensitiveNames(true))); err != nil {
			t.Fatal(err)
		}
		if _, err := later.Sealer(keyring.Connections).Open(t.Context(), stored.Sealed, stored.About.ID); err != nil {
			t.Error(err)
		}
		found++
	}
	if found != 1 {
		t.Errorf("%d connections", found)
	}
}

// exported returns everything that an export of a store has, decrypted.
func exported(t *testing.T, file string) string {
	t.Helper()
	s, err := storage.Settings{DSN: "sqlite:" + file, Keys: storeKeys}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var text strings.Builder
	if n, err := storage.Export(t.Context(), s, &text, storage.Decrypted); err != nil || n.Entries == 0 {
		t.Fatalf("export: %+v, %v", n, err)
	}
	return text.String()
}

// Tokens stay with the server and the authorization server of their sign-in. If the configuration names another
// one, nothing is sent there, and the person connects again.
func TestTokensStayWithTheirServer(t *testing.T) {
	const grant = "grant: principal"
	for name, change := range map[string]func(s, other *guardedServer) (address, oauth string){
		"another server":             func(_, other *guardedServer) (string, string) { return other.url, grant },
		"another path of the server": func(s, _ *guardedServer) (string, string) { return s.url + "/v2", grant },
		"another authorization server": func(s, other *guardedServer) (string, string) {
			return s.url, grant + ", issuer: '" + other.auth.URL + "'"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, other := newGuardedServer(t, authserver.Options{}), newGuardedServer(t, authserver.Options{})
			nextURL, nextGrant := change(s, other)
			config := s.config("sqlite:"+filepath.Join(t.TempDir(), "gate.db"), grant)
			a, stop := start(t, config)
			signIn(t, a, approverToken).connect()
			wantDone(t, askAs(t, a, annsAgent, call("read")))
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			calls, asked := s.callers(), len(s.auth.Requests())

			a, stop = start(t, strings.NewReplacer(s.url, nextURL, grant, nextGrant).Replace(config))
			defer func() { _ = stop() }()
			wantNotConnected(t, a, askAs(t, a, annsAgent, call("read")))
			if len(other.tokens) > 0 || s.callers() != calls || len(s.auth.Requests()) != asked {
				t.Error("a token was sent")
			}
			root := signIn(t, a, adminToken)
			if _, page := root.do(http.MethodGet, root.gate+"/connections", ""); !strings.Contains(page, ">Ended<") {
				t.Errorf("the page does not say that the connection has ended: %s", page)
			}
			if nextURL != other.url {
				return
			}
			signIn(t, a, approverToken).connect()
			wantDone(t, askAs(t, a, annsAgent, call("read")))
		})
	}
}

// When a server that all agents shared is used in the name of people, the shared connection counts for nobody,
// also not for agents without identity.
func TestSharedConnectionIsOfNobody(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	store := "sqlite:" + filepath.Join(t.TempDir(), "gate.db")
	a, stop := start(t, s.config(store, "grant: shared"))
	signIn(t, a, adminToken).connect()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	a, stop = start(t, strings.Replace(s.config(store, "grant: principal"), "identity: {", "identity: {anonymous: true, ", 1))
	defer stop()
	wantNotConnected(t, a, askAs(t, a, annsAgent, call("read")))
	_, answer, _ := request(t, http.DefaultClient, http.MethodPost, "http://"+a.AgentAddr()+"/mcp", call("read"), "Accept", "application/json, text/event-stream")
	if !strings.Contains(answer, `"error_type":"not_connected"`) {
		t.Errorf("an agent without identity: %s", answer)
	}
	if got := s.callers(); got != "" {
		t.Errorf("calls of %s", got)
	}
}

// wantNoSecrets searches a text for all tokens, codes and verifiers.
func wantNoSecrets(t *testing.T, s *guardedServer, what, text string) {
	t.Helper()
	secrets := make(map[string]bool)
	for token := range s.tokens {
		secrets[token] = true
	}
	for _, r := range s.auth.Requests() {
		for _, name := range []string{"code", "code_verifier", "refresh_token", "token", "client_secret", "state"} {
			secrets[r.Form.Get(name)] = true
		}
	}
	delete(secrets, "")
	if len(secrets) < 4 {
		t.Fatalf("only %d secrets to search for", len(secrets))
	}
	for secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the secret %.20s…", what, secret)
		}
	}
}

// A gate with a public https address is its own client metadata document, at authorization servers that do not
// let clients register themselves.
func TestGatePublishesItsClientMetadata(t *testing.T) {
	proxy := &toGate{host: "gate.example"}
	outside := &http.Client{Transport: proxy}
	s := newGuardedServer(t, authserver.Options{NoRegistration: true, Documents: outside})
	config := strings.Replace(s.config("memory:", "grant: principal"), "operators: {", "operators: {url: 'https://gate.example', ", 1)
	a, stop := start(t, config)
	defer stop()
	proxy.gate = a.OperatorAddr()
	signInVia(t, proxy, approverToken).connect()
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	_, document, _ := request(t, outside, http.MethodGet, "https://gate.example/connections/client.json", "")
	var about struct {
		ID        string   `json:"client_id"`
		Redirects []string `json:"redirect_uris"`
		Method    string   `json:"token_endpoint_auth_method"`
	}
	if err := json.Unmarshal([]byte(document), &about); err != nil {
		t.Fatal(err)
	}
	if about.ID != "https://gate.example/connections/client.json" || !slices.Equal(about.Redirects, []string{"https://gate.example/connections/callback"}) || about.Method != "none" {
		t.Errorf("the document: %s", document)
	}
}

// toGate is a proxy for TLS in front of the operators' listener of a gate. Requests to other hosts go there.
type toGate struct{ host, gate string }

func (p *toGate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == p.host {
		r = r.Clone(r.Context())
		r.Host, r.URL.Scheme, r.URL.Host = p.host, "http", p.gate
	}
	return http.DefaultTransport.RoundTrip(r)
}

// signInVia opens a browser and signs in at the gate behind a proxy.
func signInVia(t *testing.T, proxy *toGate, token string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t, &http.Client{Jar: jar, Transport: proxy}, "https://" + proxy.host}
	if status, page := b.do(http.MethodPost, b.gate+"/login", "token="+token); status != http.StatusOK {
		t.Fatalf("sign in: %d %s", status, page)
	}
	return b
}

// A person who is at the authorization server while the gate restarts comes back to a gate that knows the sign-in.
func TestRestartDuringSignIn(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	config := s.config("sqlite:"+filepath.Join(t.TempDir(), "gate.db"), "grant: principal")
	config = strings.Replace(config, "operators: {", "operators: {url: 'https://gate.example', ", 1)
	a, stop := start(t, config)
	proxy := &toGate{host: "gate.example", gate: a.OperatorAddr()}
	ann := signInVia(t, proxy, approverToken)
	to := ann.begin()
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	a, stop = start(t, config)
	defer stop()
	proxy.gate = a.OperatorAddr()
	if status, page := ann.do(http.MethodGet, to, ""); status != http.StatusOK || !strings.Contains(page, ">Connected<") {
		t.Fatalf("connected: %d %s", status, page)
	}
	wantDone(t, askAs(t, a, annsAgent, call("read")))
}

// Each person connects for the own agents only, and only the owner or an administrator removes the connection.
func TestPeopleHaveTheirOwnConnections(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	user := ""
	s.users = func() string { return user }
	ann, bob := signIn(t, a, approverToken), signIn(t, a, viewerToken)
	user = "ann@server"
	ann.connect()
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	wantNotConnected(t, a, askAs(t, a, bobsAgent, call("read")))
	user = "bob@server"
	bob.connect()
	wantDone(t, askAs(t, a, bobsAgent, call("read")))
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	if got := s.callers(); got != "ann@server bob@server ann@server" {
		t.Errorf("calls of %s", got)
	}
}

// A person is known by the exact name: another one, whose name only looks the same, neither uses nor sees the
// connection.
func TestConnectionsNeedTheExactName(t *testing.T) {
	for operator, agent := range map[string]string{"Ann": "ann", "kim": "\u212aim", "sam": "\u017fam", "jos\u00e9": "jose\u0301"} {
		s := newGuardedServer(t, authserver.Options{})
		config := strings.NewReplacer("name: Ann,", "name: "+operator+",", "owner: Ann", "owner: "+operator, "name: bob,", "name: "+agent+",").Replace(s.config("memory:", "grant: principal"))
		a, stop := start(t, config)
		signIn(t, a, approverToken).connect()
		wantDone(t, askAs(t, a, annsAgent, call("read")))
		wantNotConnected(t, a, askAs(t, a, bobsAgent, call("read")))
		other := signIn(t, a, viewerToken)
		if _, page := other.do(http.MethodGet, other.gate+"/connections", ""); strings.Contains(page, ">Connected<") {
			t.Errorf("%s sees the connection of %s", agent, operator)
		}
		_ = stop()
	}
}

// Issuers write e-mail addresses in any case, and operators have them in lower case.
func TestConnectionsOfAddressesInAnyCase(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	config := strings.Replace(s.config("memory:", "grant: principal"), "name: Ann,", "name: ann@example.com,", 1)
	config = regexp.MustCompile(`identity: .*\n`).ReplaceAllString(config, "identity: {jwt: [{issuer: '"+s.auth.URL+"', jwks_uri: '"+s.auth.URL+"/keys', audiences: [the-gate], id_claim: email}]}\n")
	a, stop := start(t, config)
	defer stop()
	signIn(t, a, approverToken).connect()
	wantDone(t, askAs(t, a, s.auth.Sign(map[string]any{"sub": "1", "email": "Ann@Example.com", "email_verified": true, "aud": "the-gate"}), call("read")))
}

func TestOnlyOwnersRemoveConnections(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	ann, bob, root := signIn(t, a, approverToken), signIn(t, a, viewerToken), signIn(t, a, adminToken)
	ann.connect()
	_, page := ann.do(http.MethodGet, ann.gate+"/connections", "")
	remove := removal.FindStringSubmatch(page)[1]
	if _, page := bob.do(http.MethodGet, bob.gate+"/connections", ""); removal.MatchString(page) || strings.Contains(page, "Ann") {
		t.Errorf("bob sees the connection of ann: %s", page)
	}
	if status, _ := bob.post(remove); status != http.StatusForbidden {
		t.Errorf("bob removes the connection of ann: %d", status)
	}
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	if _, page := root.do(http.MethodGet, root.gate+"/connections", ""); !strings.Contains(page, "Ann") || !strings.Contains(page, remove) {
		t.Errorf("the administrator does not see the connection: %s", page)
	}
	if status, _ := root.post(remove); status != http.StatusOK {
		t.Errorf("the administrator removes it: %d", status)
	}
	wantNotConnected(t, a, askAs(t, a, annsAgent, call("read")))
}

// A sign-in ends in the browser session in which it began, so that nobody connects the account of another.
func TestSignInBelongsToBrowser(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	for name, other := range map[string]*browser{"another person": signIn(t, a, viewerToken), "another browser": signIn(t, a, approverToken)} {
		status, page := other.do(http.MethodGet, signIn(t, a, approverToken).begin(), "")
		if status != http.StatusBadRequest || strings.Contains(page, ">Connected<") {
			t.Errorf("the sign-in ends in the browser of %s: %d %s", name, status, page)
		}
	}
	wantNotConnected(t, a, askAs(t, a, annsAgent, call("read")))
}

// An authorization server cannot pass on the answer of another one, which does not name itself in it, to get its code.
func TestMixUp(t *testing.T) {
	s, honest := newGuardedServer(t, authserver.Options{}), authserver.New(t, authserver.Options{NoRegistration: true})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	honest.Register("gate", authserver.Client{Redirects: []string{"http://" + a.OperatorAddr() + "/connections/callback"}})
	honest.SetHooks(authserver.Hooks{Redirect: func(answer url.Values) { answer.Del("iss") }})
	s.auth.SetHooks(authserver.Hooks{Metadata: func(m map[string]any) { delete(m, "authorization_response_iss_parameter_supported") }})
	ann := signIn(t, a, approverToken)
	to, err := url.Parse(ann.begin())
	if err != nil {
		t.Fatal(err)
	}
	query := to.Query()
	query.Set("client_id", "gate")
	query.Set("redirect_uri", "http://"+a.OperatorAddr()+"/connections/callback")
	status, page := ann.do(http.MethodGet, honest.URL+"/authorize?"+query.Encode(), "")
	if status != http.StatusBadRequest || s.grants("authorization_code") != 0 {
		t.Errorf("the code of another server: %d %s", status, page)
	}
}

// The answer to a sign-in counts once.
func TestSignInCountsOnce(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	ann := signIn(t, a, approverToken)
	to := ann.begin()
	ann.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	_, _, header := request(t, ann.client, http.MethodGet, to, "")
	back := header.Get("Location")
	if status, page := ann.do(http.MethodGet, back, ""); status != http.StatusSeeOther {
		t.Fatalf("the answer: %d %s", status, page)
	}
	asked := s.grants("authorization_code")
	if status, _ := ann.do(http.MethodGet, back, ""); status != http.StatusBadRequest || s.grants("authorization_code") != asked {
		t.Errorf("the answer a second time: %d", status)
	}
	stolen, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	query := stolen.Query()
	query.Set("state", "guessed")
	stolen.RawQuery = query.Encode()
	if status, _ := ann.do(http.MethodGet, stolen.String(), ""); status != http.StatusBadRequest {
		t.Errorf("an answer to no sign-in: %d", status)
	}
}

// A connection that ends while a call waits for approval does not use up the approval.
func TestEndedConnectionKeepsApproval(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	ann := signIn(t, a, approverToken)
	ann.connect()
	held := strings.Replace(call("hold_x"), `"arguments":{}`, `"arguments":{},"task":{}`, 1)
	_, rest, _ := strings.Cut(askAs(t, a, annsAgent, held), `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	s.auth.RevokeAll()
	approveCall(t, a, id)
	answer := askAs(t, a, annsAgent, `{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"`+id+`"}}`)
	if s.callers() != "" || strings.Contains(answer, `"text":"done"`) {
		t.Fatalf("the call ran: %s", answer)
	}
	ann.connect()
	wantDone(t, askAs(t, a, annsAgent, call("hold_x")))
	if got := s.callers(); got != "alice" {
		t.Errorf("calls of %s; want one, without another approval", got)
	}
}

// An authorization server that no longer knows the gate gets another registration when the person connects again.
func TestForgottenClientRegistersAgain(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	ann := signIn(t, a, approverToken)
	ann.connect()
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	known := ""
	for _, r := range s.auth.Requests() {
		known = cmp.Or(r.Form.Get("client_id"), known)
	}
	s.auth.SetHooks(authserver.Hooks{Request: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Form.Get("client_id") != known {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"error":"invalid_client"}`)
		return true
	}})
	s.auth.RevokeAll()
	wantNotConnected(t, a, askAs(t, a, annsAgent, call("read")))
	ann.connect()
	wantDone(t, askAs(t, a, annsAgent, call("read")))
}

// approveCall approves a held call.
func approveCall(t *testing.T, a *app.App, id string) {
	t.Helper()
	_, shown, _ := request(t, http.DefaultClient, "GET", "http://"+a.OperatorAddr()+"/api/approvals/"+id+"?arguments=all", "", "Authorization", "Bearer "+adminToken)
	_, rest, _ := strings.Cut(shown, `"shownDigest":"`)
	digest, _, _ := strings.Cut(rest, `"`)
	status, answer, _ := request(t, http.DefaultClient, "POST", "http://"+a.OperatorAddr()+"/api/approvals/"+id+"/approve", `{"shownDigest":"`+digest+`"}`, "Authorization", "Bearer "+adminToken)
	if status != http.StatusOK {
		t.Fatalf("approve: %d %s", status, answer)
	}
}

// A refusal that has a result is not repeated with another token: the call may have run.
func TestRefusalWithResultIsNotRepeated(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	s.answer = func(w http.ResponseWriter, r *http.Request, body string) bool {
		if !strings.Contains(body, "tools/call") {
			return false
		}
		s.ran(r)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		return true
	}
	a, stop := start(t, s.config("memory:", "grant: shared"))
	defer stop()
	signIn(t, a, adminToken).connect()
	askAs(t, a, annsAgent, call("read"))
	if got := s.callers(); got != "alice" {
		t.Errorf("the call ran for %q; want once", got)
	}
}

// A server that refuses a token and then sends its answer byte by byte holds the call no longer than the time limit
// of an answer.
func TestSlowRefusalEndsCall(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	s.answer = func(w http.ResponseWriter, r *http.Request, _ string) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		for r.Context().Err() == nil {
			io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
		return true
	}
	a, stop := start(t, s.config("memory:", "grant: shared")+"limits: {call_timeout: 300ms, request_timeout: 300ms}\n")
	defer stop()
	signIn(t, a, adminToken).connect()
	for _, message := range []string{call("read"), `{"jsonrpc":"2.0","id":1,"method":"ping"}`} {
		if answer := askAs(t, a, annsAgent, message); !strings.Contains(answer, `"error_type":"upstream_timeout"`) {
			t.Errorf("answer: %s", answer)
		}
	}
}

// However often an agent calls, the gate does not ask for further tokens if the server refuses new ones, or if there
// are none at present.
func TestCallsCauseNoStormOfTokens(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	for grant, kind := range map[string]string{
		"grant: shared": "refresh_token",
		"grant: client_credentials, client_id: gate, client_secret: secret-of-the-gate, issuer: 'ISSUER'": "client_credentials",
	} {
		s := newGuardedServer(t, authserver.Options{})
		s.auth.Register("gate", authserver.Client{Secret: "secret-of-the-gate"})
		s.answer = refuse
		a, stop := start(t, s.config("memory:", strings.Replace(grant, "ISSUER", s.auth.URL, 1)))
		if kind == "refresh_token" {
			signIn(t, a, adminToken).connect()
		}
		for range 10 {
			askAs(t, a, annsAgent, call("read"))
		}
		if n := s.grants(kind); n < 1 || n > 2 {
			t.Errorf("%s: %d requests for tokens that the server refuses", grant, n)
		}
		_ = stop()
	}

	s := newGuardedServer(t, authserver.Options{})
	s.auth.Register("gate", authserver.Client{Secret: "secret-of-the-gate"})
	s.auth.SetHooks(authserver.Hooks{Request: func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}})
	a, stop := start(t, s.config("memory:", "grant: client_credentials, client_id: gate, client_secret: secret-of-the-gate, issuer: '"+s.auth.URL+"'"))
	defer stop()
	for range 10 {
		if answer := askAs(t, a, annsAgent, call("read")); !strings.Contains(answer, `"error_type":"upstream_`) {
			t.Errorf("answer: %s", answer)
		}
	}
	if n := len(s.auth.Requests()); n > 4 {
		t.Errorf("%d requests to an authorization server that is down", n)
	}
}

// An agent that calls again while its person signs in gets the result.
func TestCallWaitsForConnection(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	wantNotConnected(t, a, askAs(t, a, annsAgent, call("read")))
	ann := signIn(t, a, approverToken)
	answer := make(chan string)
	go func() { answer <- askAs(t, a, annsAgent, call("read")) }()
	ann.connect()
	wantDone(t, <-answer)
}

// Only some calls of a connection wait: each of them uses a slot of the gate, and reads the store every second.
func TestFewCallsWaitForConnection(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	wantNotConnected(t, a, askAs(t, a, annsAgent, call("read")))
	ann := signIn(t, a, approverToken)
	const calls, waiting = 20, 4
	answers := make(chan string, calls)
	for range calls {
		go func() { answers <- askAs(t, a, annsAgent, call("read")) }()
	}
	for range calls - waiting {
		wantNotConnected(t, a, <-answers)
	}
	ann.connect()
	for range waiting {
		wantDone(t, <-answers)
	}
}

// newAdminServer returns a server that wants the scope admin for some tools.
func newAdminServer(t *testing.T, tools ...string) *guardedServer {
	t.Helper()
	s := newGuardedServer(t, authserver.Options{Scopes: []string{"tools", "admin"}}, "tools")
	s.answer = func(w http.ResponseWriter, r *http.Request, body string) bool {
		claims, _ := s.auth.Verify(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "")
		scope, _ := claims["scope"].(string)
		if strings.Contains(scope, "admin") || !slices.ContainsFunc(tools, func(tool string) bool { return strings.Contains(body, `"`+tool+`"`) }) {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="admin", resource_metadata="`+strings.TrimSuffix(s.url, "/mcp")+`/.well-known/oauth-protected-resource/mcp"`)
		http.Error(w, "insufficient scope", http.StatusForbidden)
		return true
	}
	return s
}

// A server asks for more rights: the person connects again, with the scopes of the challenge.
func TestStepUp(t *testing.T) {
	s := newAdminServer(t, "drop_all")
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	ann := signIn(t, a, approverToken)
	ann.connect()
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	wantNotConnected(t, a, askAs(t, a, annsAgent, call("drop_all")))
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	ann.connect()
	wantDone(t, askAs(t, a, annsAgent, call("drop_all")))
	wantDone(t, askAs(t, a, annsAgent, call("read")))
}

// A held call that needs more rights does not use up its approval. Its agent is told where its person gets them.
func TestStepUpOfHeldCall(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T, a *app.App) string{
		"task": func(t *testing.T, a *app.App) string {
			held := strings.Replace(call("hold_x"), `"arguments":{}`, `"arguments":{},"task":{}`, 1)
			_, rest, _ := strings.Cut(askAs(t, a, annsAgent, held), `"taskId":"`)
			id, _, _ := strings.Cut(rest, `"`)
			approveCall(t, a, id)
			return askAs(t, a, annsAgent, `{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"`+id+`"}}`)
		},
		"request": func(t *testing.T, a *app.App) string {
			answer := make(chan string)
			held := strings.Replace(call("hold_x"), `"arguments":{}`, `"arguments":{},"_meta":{"progressToken":1}`, 1) // its stream begins at once
			go func() { answer <- askAs(t, a, annsAgent, held) }()
			approveCall(t, a, awaitPending(t, a))
			return <-answer
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAdminServer(t, "hold_x")
			a, stop := start(t, s.config("memory:", "grant: principal"))
			defer stop()
			ann := signIn(t, a, approverToken)
			ann.connect()
			answer := wait(t, a)
			if want := "http://" + a.OperatorAddr() + "/connections"; !strings.Contains(answer, want) {
				t.Errorf("answer: %s; want the link", answer)
			}
			wantNotConnected(t, a, askAs(t, a, annsAgent, call("hold_x")))
			ann.connect()
			wantDone(t, askAs(t, a, annsAgent, call("hold_x")))
			if got := s.callers(); got != "alice" {
				t.Errorf("calls of %s; want one, without another approval", got)
			}
		})
	}
}

// awaitPending waits for a call that waits for approval, and returns its id.
func awaitPending(t *testing.T, a *app.App) string {
	t.Helper()
	id := ""
	eventually(t, "a call waits for approval", func() bool {
		_, list, _ := request(t, http.DefaultClient, "GET", "http://"+a.OperatorAddr()+"/api/approvals?state=pending", "", "Authorization", "Bearer "+adminToken)
		_, rest, found := strings.Cut(list, `"id":"`)
		id, _, _ = strings.Cut(rest, `"`)
		return found
	})
	return id
}

// The gate gets tokens for itself, and others when the server refuses them.
func TestClientCredentials(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{NoRegistration: true}, "tools")
	s.auth.Register("gate", authserver.Client{Secret: "secret-of-the-gate"})
	a, stop := start(t, s.config("memory:", "grant: client_credentials, client_id: gate, client_secret: secret-of-the-gate, scopes: [tools], issuer: '"+s.auth.URL+"'"))
	defer stop()
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	wantDone(t, askAs(t, a, bobsAgent, call("read")))
	if n := s.grants("client_credentials"); n != 1 {
		t.Errorf("%d tokens for two calls", n)
	}
	s.auth.RevokeAll()
	wantDone(t, askAs(t, a, annsAgent, call("read")))
	if got := s.callers(); got != "gate gate gate" {
		t.Errorf("calls of %s", got)
	}
}

// Without a person, the server does not choose the rights of the token that it gets: some authorization servers choose
// the audience by them.
func TestServerChoosesNoRightsOfTheGate(t *testing.T) {
	const grant = "grant: client_credentials, client_id: gate, client_secret: secret-of-the-gate, issuer: 'ISSUER'"
	for oauth, want := range map[string]string{grant: "", grant + ", scopes: [tools]": "tools"} {
		s := newGuardedServer(t, authserver.Options{NoRegistration: true}, "everything")
		s.auth.Register("gate", authserver.Client{Secret: "secret-of-the-gate"})
		a, stop := start(t, s.config("memory:", strings.Replace(oauth, "ISSUER", s.auth.URL, 1)))
		if answer := askAs(t, a, annsAgent, call("read")); !strings.Contains(answer, "scopes") || !strings.Contains(answer, `"error_type":"upstream_`) {
			t.Errorf("answer: %s", answer)
		}
		for _, r := range s.auth.Requests() {
			if got := r.Form.Get("scope"); got != want && r.Form.Get("grant_type") != "" {
				t.Errorf("the gate asks for %q; want %q", got, want)
			}
		}
		if n := s.grants("client_credentials"); n != 1 {
			t.Errorf("%d requests for tokens", n)
		}
		_ = stop()
	}
}

// The gate exchanges the token of each agent for one of the server.
func TestTokenExchange(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{NoRegistration: true})
	s.auth.Register("gate", authserver.Client{Secret: "secret-of-the-gate"})
	config := s.config("memory:", "grant: token_exchange, client_id: gate, client_secret: secret-of-the-gate, issuer: '"+s.auth.URL+"'")
	config = regexp.MustCompile(`identity: .*\n`).ReplaceAllString(config, "identity: {jwt: [{issuer: '"+s.auth.URL+"', jwks_uri: '"+s.auth.URL+"/keys', audiences: [the-gate]}]}\n")
	a, stop := start(t, config)
	defer stop()
	carol, dave := s.auth.Sign(map[string]any{"sub": "carol", "aud": "the-gate"}), s.auth.Sign(map[string]any{"sub": "dave", "aud": "the-gate"})
	for _, agent := range []string{carol, dave, carol} {
		wantDone(t, askAs(t, a, agent, call("read")))
	}
	if got := s.callers(); got != "carol dave carol" {
		t.Errorf("calls of %s", got)
	}
	if s.tokens[carol] || s.tokens[dave] {
		t.Error("the server got the token of an agent")
	}
	if n := s.grants("urn:ietf:params:oauth:grant-type:token-exchange"); n != 2 {
		t.Errorf("%d exchanges for two agents", n)
	}
}

// Clients that can open a page are asked to do so, in both eras.
func TestInvitationToConnect(t *testing.T) {
	s := newGuardedServer(t, authserver.Options{})
	a, stop := start(t, s.config("memory:", "grant: principal"))
	defer stop()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}}`
	modern := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "read"}
	first := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{},` + meta + `}}`
	answer := askAs(t, a, annsAgent, first, modern...)
	if !strings.Contains(answer, `"resultType":"input_required"`) || !strings.Contains(answer, `"mode":"url"`) || !strings.Contains(answer, a.OperatorAddr()+"/connections") {
		t.Errorf("a modern client is answered %s", answer)
	}
	retry := strings.Replace(first, `"arguments":{}`, `"arguments":{},"inputResponses":{"connect":{"action":"accept"}}`, 1)
	done := make(chan string)
	go func() { done <- askAs(t, a, annsAgent, retry, modern...) }()
	ann := signIn(t, a, approverToken)
	ann.connect()
	wantDone(t, <-done)

	legacy := []string{"Mcp-Protocol-Version", "2025-11-25", "Mcp-Session-Id", "upstream-session"}
	askAs(t, a, annsAgent, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"url":{}}},"clientInfo":{"name":"c","version":"1"}}}`)
	s.auth.RevokeAll()
	answer = askAs(t, a, annsAgent, call("read"), legacy...)
	if !strings.Contains(answer, `"code":-32042`) || !strings.Contains(answer, `"elicitations":[{"mode":"url","elicitationId":"`) {
		t.Errorf("a legacy client is answered %s", answer)
	}
}
