package app_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

const (
	viewerToken   = "tgo_viewer_0123456789abcdef"
	rejecterToken = "tgo_rejecter_0123456789abcd"
	approverToken = "tgo_approver_0123456789abcd"
	adminToken    = "tgo_admin_0123456789abcdefg"
	agentToken    = "tga_agent_0123456789abcdefg"
)

// A mirror is an upstream that returns the headers of its requests.
func mirror(t *testing.T) (url string, last func() http.Header) {
	t.Helper()
	var mu sync.Mutex
	var header http.Header
	begun := 0
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		header = r.Header.Clone()
		begun++
		session := fmt.Sprint("s-", begun)
		mu.Unlock()
		if strings.Contains(string(body), `"initialize"`) {
			w.Header().Set("Mcp-Session-Id", session)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[]}}`)
	}))
	t.Cleanup(up.Close)
	return up.URL, func() http.Header {
		mu.Lock()
		defer mu.Unlock()
		return header
	}
}

// guarded returns the configuration of a gate with named operators, and with the given
// settings of agents.
func guarded(upstream, agents string) string {
	hash := func(token string) string { return "hash: '" + identity.HashOf(token).String() + "'" }
	return strings.Replace(gatewayFor(upstream), "operators: {listen: 127.0.0.1:0}", "operators: {listen: 127.0.0.1:0, tokens: ["+
		"{name: vic, role: viewer, "+hash(viewerToken)+"}, {name: ann, role: approver, "+hash(approverToken)+"}, {name: rex, role: rejecter, "+hash(rejecterToken)+"}, {name: root, role: admin, "+hash(adminToken)+"}]}", 1) +
		"identity: " + strings.ReplaceAll(agents, "HASH", hash(agentToken)) + "\nwaiting: {hold: 10ms}\n" +
		"rules: [{match: 'hold_*', action: approve}, {match: 'mine_*', action: forward, principals: [ann-s-bot]}, {match: 'read_*', action: forward}]\ndefault: deny\n"
}

// request makes a request with headers given as name, value, name, value.
func request(t testing.TB, client *http.Client, method, url, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if body != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" && method == http.MethodGet {
		return resp.StatusCode, "", resp.Header
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

func call(tool string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`
}

// Each route of the operators' listener requires an authenticated operator with a sufficient
// role.
func TestOperatorRoutes(t *testing.T) {
	up, _ := mirror(t)
	a, stop := start(t, guarded(up, "{tokens: [{name: ann-s-bot, owner: nobody, HASH}]}"))
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	_, created, _ := request(t, client, "POST", "http://"+a.AgentAddr()+"/mcp", strings.Replace(call("hold_x"), `"arguments":{}`, `"task":{}`, 1), "Authorization", "Bearer "+agentToken)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !strings.HasPrefix(id, "tg_") {
		t.Fatalf("no task in %s", created)
	}
	gate := "http://" + a.OperatorAddr()
	session := func(token string) string {
		_, _, header := request(t, client, "POST", gate+"/login", "token="+token, "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
		cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
		return cookie
	}
	ended := session(adminToken)
	_, page, _ := request(t, client, "GET", gate+"/", "", "Cookie", ended)
	_, form, _ := strings.Cut(page, `name="csrf" value="`)
	form, _, _ = strings.Cut(form, `"`)
	request(t, client, "POST", gate+"/logout", "csrf="+form, "Cookie", ended, "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")

	credentials := []struct {
		name    string
		level   int // 0 is unauthenticated, 1 viewer, 2 rejecter, 3 approver, 4 admin
		headers []string
	}{
		{"nothing", 0, nil},
		{"a wrong token", 0, []string{"Authorization", "Bearer tgo_wrong_0123456789abcdef"}},
		{"an agent's token", 0, []string{"Authorization", "Bearer " + agentToken}},
		{"the task", 0, []string{"Authorization", "Bearer " + id}},
		{"a hash", 0, []string{"Authorization", "Bearer " + identity.HashOf(adminToken).String()}},
		{"a token elsewhere", 0, []string{"X-Api-Key", adminToken, "X-Forwarded-User", "root", "Cookie", "token=" + adminToken}},
		{"a session that has ended", 0, []string{"Cookie", ended}},
		{"an admin's session, from another site", -4, []string{"Cookie", session(adminToken), "Sec-Fetch-Site", "cross-site"}},
		{"an admin's session, without a page", -4, []string{"Cookie", session(adminToken), "Sec-Fetch-Site", "same-origin"}},
		{"viewer", 1, []string{"Authorization", "Bearer " + viewerToken}},
		{"rejecter", 2, []string{"Authorization", "Bearer " + rejecterToken}},
		{"approver", 3, []string{"Authorization", "Bearer " + approverToken}},
		{"admin", 4, []string{"Authorization", "Bearer " + adminToken}},
	}
	routes := []struct {
		route string
		level int
	}{
		{"GET /api/approvals", 1},
		{"GET /api/approvals/" + id, 1},
		{"GET /api/approvals/events", 1},
		{"GET /api/audit", 4},
		{"GET /api/audit/ends", 4},
		{"GET /api/nothing", 1},
		{"POST /api/approvals/" + id + "/approve", 3},
		{"POST /api/approvals/" + id + "/reject", 2},
		{"GET /", 1},
		{"GET /approvals/" + id, 1},
		{"GET /approvals/" + id + "/next", 1},
		{"GET /approvals/" + id + "/arguments", 1},
		{"GET /history", 1},
		{"GET /events", 1},
		{"POST /approvals/" + id + "/approve", 3},
		{"POST /approvals/" + id + "/reject", 2},
		{"POST /approvals/reject", 2},
		{"POST /api/grants/none/revoke", 2},
		{"POST /grants/none/revoke", 2},
		{"POST /api/changes/none/accept", 4},
		{"POST /changes/none/accept", 4},
		{"POST /push/subscribe", 3},
	}
	// Failed attempts count for the address of the stranger, not for that of the operators.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	strangers := &http.Client{
		CheckRedirect: client.CheckRedirect,
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
	}
	for _, r := range routes {
		method, path, _ := strings.Cut(r.route, " ")
		for _, c := range credentials {
			from := client
			if c.level == 0 {
				from = strangers
			}
			status, body, header := request(t, from, method, gate+path, "", c.headers...)
			level, refused := c.level, http.StatusForbidden
			switch {
			case level < 0 && method == http.MethodGet:
				level = -level // a read-only request
			case level == 0:
				refused = http.StatusUnauthorized
			}
			toLogin := status == http.StatusSeeOther && strings.HasPrefix(header.Get("Location"), "/login") && c.level == 0
			switch {
			case level >= r.level && (status == refused || toLogin || status == http.StatusTooManyRequests):
				t.Errorf("%s with %s: %d %.200s", r.route, c.name, status, body)
			case level < r.level && status != refused && !toLogin && (status != http.StatusTooManyRequests || c.level != 0):
				t.Errorf("%s with %s: %d %.200s; want %d", r.route, c.name, status, body, refused)
			}
			if level < r.level && strings.Contains(body, "hold_x") {
				t.Errorf("%s with %s shows a call: %s", r.route, c.name, body)
			}
		}
	}
	// Only one has decided: the first one in the table that may reject.
	_, shown, _ := request(t, client, "GET", gate+"/api/approvals/"+id, "", "Authorization", "Bearer "+viewerToken)
	if !strings.Contains(shown, `"by":"rex"`) || !strings.Contains(shown, `"state":"rejected"`) || strings.Contains(shown, `"by":"vic"`) {
		t.Errorf("decided: %s", shown)
	}
	for _, open := range []string{"/healthz", "/readyz", "/metrics", "/login"} {
		if status, body, _ := request(t, client, "GET", gate+open, ""); status != 200 || strings.Contains(body, id) {
			t.Errorf("%s: %d", open, status)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Agents are authenticated by their credentials, which are not forwarded. A task belongs to
// its agent in all its sessions.
func TestAgentsAreIdentified(t *testing.T) {
	up, last := mirror(t)
	issuer := testenv.NewIssuer(t)
	a, stop := start(t, guarded(up, "{url: 'https://gate.example', tokens: [{name: ann-s-bot, owner: ann, HASH}], jwt: [{issuer: '"+issuer.URL+"', audiences: [gate], prefix: 'jwt:'}]}")+
		"tasks: {max_pending_per_owner: 2}\n")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	mcp := "http://" + a.AgentAddr() + "/mcp"
	jwt := issuer.Sign(map[string]any{"sub": "joe", "aud": "gate"}, nil)
	for name, tt := range map[string]struct {
		authorization, body string
		status              int
		want                string
	}{
		"nothing":              {"", call("read_x"), 401, `"error_type":"unauthenticated"`},
		"wrong":                {"Bearer wrong", call("read_x"), 401, `"error_type":"unauthenticated"`},
		"an operator's":        {"Bearer " + adminToken, call("read_x"), 401, `"error_type":"unauthenticated"`},
		"other audience":       {"Bearer " + issuer.Sign(map[string]any{"sub": "joe", "aud": "other"}, nil), call("read_x"), 401, "issued for another audience"},
		"a token":              {"Bearer " + agentToken, call("read_x"), 200, `"result"`},
		"a JWT":                {"Bearer " + jwt, call("read_x"), 200, `"result"`},
		"an allowed call":      {"Bearer " + agentToken, call("mine_x"), 200, `"result"`},
		"another agent's call": {"Bearer " + jwt, call("mine_x"), 200, `"policy_denied"`},
		"a list":               {"", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 401, `"error_type":"unauthenticated"`},
	} {
		headers := []string{"Authorization", tt.authorization, "X-Forwarded-User", "ann-s-bot"}
		if tt.authorization == "" {
			headers = headers[2:]
		}
		status, body, header := request(t, client, "POST", mcp, tt.body, headers...)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s", name, status, body)
		}
		if challenge := header.Get("Www-Authenticate"); (status == 401) != strings.Contains(challenge, `resource_metadata="https://gate.example/.well-known/oauth-protected-resource/mcp"`) {
			t.Errorf("%s: challenge %q", name, challenge)
		}
		if status == 200 && last().Get("Authorization") != "" {
			t.Errorf("%s: the credential went upstream", name)
		}
	}
	status, body, _ := request(t, client, "GET", "http://"+a.AgentAddr()+"/.well-known/oauth-protected-resource/mcp", "")
	if status != 200 || !strings.Contains(body, issuer.URL) {
		t.Errorf("metadata: %d %s", status, body)
	}

	// The limits apply to each agent separately, in all sessions.
	limited := 0
	for i := range 4 {
		text := strings.Replace(call("hold_x"), `"arguments":{}`, fmt.Sprintf(`"arguments":{"n":%d},"task":{}`, i), 1)
		_, body, _ := request(t, client, "POST", mcp, text, "Authorization", "Bearer "+agentToken, "Mcp-Session-Id", agentClient{t, mcp, agentToken}.begin())
		if strings.Contains(body, "rate_limited") {
			limited++
		}
	}
	if limited != 2 {
		t.Errorf("%d of 4 calls were limited; want 2", limited)
	}
	ask := `{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`
	_, mine, _ := request(t, client, "POST", mcp, ask, "Authorization", "Bearer "+agentToken, "Mcp-Session-Id", agentClient{t, mcp, agentToken}.begin())
	_, theirs, _ := request(t, client, "POST", mcp, ask, "Authorization", "Bearer "+jwt, "Mcp-Session-Id", agentClient{t, mcp, jwt}.begin())
	if strings.Count(mine, `"taskId":"tg_`) != 2 || strings.Contains(theirs, "tg_") {
		t.Errorf("mine: %s\ntheirs: %s", mine, theirs)
	}

	// Ann may not approve the calls of her own agent.
	_, rest, _ := strings.Cut(mine, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	path := "http://" + a.OperatorAddr() + "/api/approvals/" + id + "/approve"
	if status, body, _ := request(t, client, "POST", path, "", "Authorization", "Bearer "+approverToken); status != 403 || !strings.Contains(body, "self_approval") {
		t.Errorf("ann: %d %s", status, body)
	}
	_, shown, _ := request(t, client, "GET", strings.TrimSuffix(path, "/approve"), "", "Authorization", "Bearer "+adminToken)
	_, shown, _ = strings.Cut(shown, `"shownDigest":"`)
	decision := `{"shownDigest":"` + shown[:64] + `"}`
	if status, body, _ := request(t, client, "POST", path, decision, "Authorization", "Bearer "+adminToken, "Content-Type", "application/json"); status != 200 || !strings.Contains(body, `"roles":["viewer","rejecter","approver","admin"]`) {
		t.Errorf("root: %d %s", status, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The credential is forwarded only to upstreams for which the configuration allows it.
func TestForwardCredential(t *testing.T) {
	up, last := mirror(t)
	text := strings.Replace(guarded(up, "{tokens: [{name: ann-s-bot, HASH}]}"), "upstreams: [{url: "+up+"}]", "upstreams: [{url: "+up+", forward_credential: true}]", 1)
	a, stop := start(t, text)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request(t, client, "POST", "http://"+a.AgentAddr()+"/mcp", call("read_x"), "Authorization", "Bearer "+agentToken)
	if got := last().Get("Authorization"); got != "Bearer "+agentToken {
		t.Errorf("upstream got %q", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The identity header counts only in requests of the proxy.
func TestProxyHeader(t *testing.T) {
	up, last := mirror(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for from, want := range map[string]int{"127.0.0.0/8": 200, "10.0.0.0/8": 401} {
		a, stop := start(t, guarded(up, "{proxy: {from: ["+from+"], header: X-Forwarded-User}}"))
		status, body, _ := request(t, client, "POST", "http://"+a.AgentAddr()+"/mcp", call("mine_x"), "X-Forwarded-User", "ann-s-bot", "Authorization", "Bearer upstream")
		if status != want {
			t.Errorf("from %s: %d %s", from, status, body)
		}
		status, body, _ = request(t, client, "POST", "http://"+a.AgentAddr()+"/mcp", call("mine_x"), "X-Forwarded-User", "ann-s-bot", "X_forwarded_user", "root")
		if status != http.StatusBadRequest {
			t.Errorf("another spelling of the header, from %s: %d %s", from, status, body)
		}
		if want == 200 && last().Get("Authorization") != "Bearer upstream" {
			t.Error("the upstream's own credential did not reach it")
		}
		for name, value := range last() {
			if value[0] == "root" {
				t.Errorf("the upstream got %s, which the proxy did not send", name)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	// A header that does not count is not forwarded to the upstream either.
	a, stop := start(t, guarded(up, "{anonymous: true, proxy: {from: [10.0.0.1], header: X-Forwarded-User}}"))
	request(t, client, "POST", "http://"+a.AgentAddr()+"/mcp", call("read_x"), "X-Forwarded-User", "ann-s-bot")
	for name := range last() {
		if strings.Contains(strings.ToLower(name), "forwarded") {
			t.Errorf("the upstream got %s", name)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// An authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.key, a.pem = a.sign(a.cert, nil)
	return a
}

// sign makes a key and signs its certificate, with that key if by is nil.
func (a *authority) sign(c *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue returns a certificate for name, and its key.
func (a *authority) issue(name string, until time.Time, usage x509.ExtKeyUsage) (cert, key []byte) {
	a.t.Helper()
	made, cert := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{"bots"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{usage}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.key)
	der, err := x509.MarshalECPrivateKey(made)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// A certificate identifies an agent only if the authority signed it for client authentication.
func TestCertificates(t *testing.T) {
	up, _ := mirror(t)
	ours, theirs := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	cert, key := ours.issue("gate", time.Now().Add(time.Hour), x509.ExtKeyUsageServerAuth)
	for name, text := range map[string][]byte{"ca.pem": ours.pem, "cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, stop := start(t, guarded(up, "{mtls: {ca_file: "+dir+"/ca.pem}}")+"listen_tls: {cert_file: "+dir+"/cert.pem, key_file: "+dir+"/key.pem}\n")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ours.pem)
	ask := func(cert, key []byte) string {
		t.Helper()
		c := &tls.Config{RootCAs: roots}
		if cert != nil {
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			// The client sends its certificate even if the server names other authorities.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
		resp, err := client.Post("https://"+a.AgentAddr()+"/mcp", "application/json", bytes.NewReader([]byte(call("mine_x"))))
		if err != nil {
			return "refused"
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		switch {
		case strings.Contains(string(body), "policy_denied"):
			return "denied"
		case strings.Contains(string(body), `"result"`):
			return "ran"
		default:
			return fmt.Sprint(resp.StatusCode)
		}
	}
	good := func(a *authority, name string, until time.Duration, usage x509.ExtKeyUsage) string {
		return ask(a.issue(name, time.Now().Add(until), usage))
	}
	for name, tt := range map[string]struct{ got, want string }{
		"its name":                 {good(ours, "ann-s-bot", time.Hour, x509.ExtKeyUsageClientAuth), "ran"},
		"another name":             {good(ours, "joe", time.Hour, x509.ExtKeyUsageClientAuth), "denied"},
		"no name":                  {good(ours, "", time.Hour, x509.ExtKeyUsageClientAuth), "401"},
		"no certificate":           {ask(nil, nil), "401"},
		"another authority":        {good(theirs, "ann-s-bot", time.Hour, x509.ExtKeyUsageClientAuth), "refused"},
		"expired":                  {good(ours, "ann-s-bot", -time.Minute, x509.ExtKeyUsageClientAuth), "refused"},
		"a server's, not a client": {good(ours, "ann-s-bot", time.Hour, x509.ExtKeyUsageServerAuth), "refused"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s; want %s", name, tt.got, tt.want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
