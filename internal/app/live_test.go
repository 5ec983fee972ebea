package app_test

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// ask sends a call of a tool with a token, and returns the status and the body.
func (r *reloadable) ask(token, tool string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.AgentAddr()+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// A token that is removed from the configuration is refused without a restart, and an added
// token is accepted.
func TestReloadIdentities(t *testing.T) {
	of := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return "identity: {tokens: [{name: ci, hash: 'sha256:" + hex.EncodeToString(sum[:]) + "'}]}\n"
	}
	const first, second = "tga_0123456789abcdefghijklmnop", "tga_ponmlkjihgfedcba9876543210"
	r := startReloadable(t, of(first))
	if status, body := r.ask(first, "x"); status != http.StatusOK {
		t.Fatalf("the first token is answered %d: %s", status, body)
	}
	r.write(strings.Replace(r.text(), of(first), of(second), 1))
	eventually(t, "the new token is accepted", func() bool { status, _ := r.ask(second, "x"); return status == http.StatusOK })
	if status, _ := r.ask(first, "x"); status != http.StatusUnauthorized {
		t.Errorf("the removed token is answered %d", status)
	}
}

// The settings of waiting and of pending calls change without a restart.
func TestReloadWaiting(t *testing.T) {
	const held = "default: approve\nwaiting: {hold: 0s}\n"
	r := startReloadable(t, held)
	if _, body := r.ask("", "x"); !strings.Contains(body, `"result"`) || strings.Contains(body, "task_required") {
		t.Fatalf("answered %s", body)
	}
	r.write(strings.Replace(r.text(), held, "default: approve\nwaiting: {hold: 0s, mode: tasks-only}\n", 1))
	eventually(t, "tasks are required", func() bool { _, body := r.ask("", "x"); return strings.Contains(body, "task_required") })
	r.write(strings.Replace(r.text(), "mode: tasks-only}\n", "mode: any}\ntasks: {max_pending: 1, max_pending_per_owner: 1}\n", 1))
	eventually(t, "the limit is one pending call", func() bool {
		_, body := r.ask("", "y")
		return strings.Contains(body, "rate_limited") || strings.Contains(body, "capacity")
	})
}

// GOV-004 section 11: the interval of keepalives for waiting clients is a setting, which
// changes without a restart.
func TestReloadKeepalive(t *testing.T) {
	const seldom = "default: approve\nwaiting: {hold: 1s, keepalive: 1h}\n"
	r := startReloadable(t, seldom)
	signs := func() int {
		_, body := r.ask("", "x")
		return len(body) - len(strings.TrimLeft(body, " \r\n")) // the answer is JSON, after white space
	}
	few := signs()
	r.write(strings.Replace(r.text(), seldom, "default: approve\nwaiting: {hold: 1s, keepalive: 100ms}\n", 1))
	eventually(t, "keepalives are more frequent", func() bool { return signs() >= few+4 })
}

// The readiness page, the inbox and the log name exactly the settings that need a restart. A
// setting that is changed back is no longer named.
func TestReloadNamesWhatNeedsRestart(t *testing.T) {
	r := startReloadable(t, onlyRead, "token: 0123456789abcdefghijklmnop, ")
	ready := func() string { _, body := get(t, "http://"+r.OperatorAddr()+"/readyz"); return body }
	good := r.text()
	r.write(strings.Replace(good, "read_*", "write_*", 1) + "limits: {max_batch: 7}\nexecution: {lease: 31s, poll_timeout: 9s}\n")
	eventually(t, "the rule has effect", func() bool { return r.passes("write_x") })
	if page := r.inbox("0123456789abcdefghijklmnop"); !strings.Contains(page, "Restart needed for: execution.lease, limits<") {
		t.Errorf("the inbox does not name what needs a restart:\n%s", page)
	}
	if body := ready(); !strings.Contains(body, "restart needed for: execution.lease, limits\n") {
		t.Errorf("readiness page: %s", body)
	}
	r.write(good)
	eventually(t, "the earlier rule has effect again", func() bool { return r.passes("read_x") })
	if page := r.inbox("0123456789abcdefghijklmnop"); strings.Contains(page, "Restart needed") {
		t.Errorf("the inbox still asks for a restart:\n%s", page)
	}
	if body := ready(); strings.Contains(body, "restart") {
		t.Errorf("readiness page: %s", body)
	}
}

// New connections get a renewed certificate.
func TestReloadCertificate(t *testing.T) {
	dir := t.TempDir()
	ours := newAuthority(t)
	renew := func(until time.Time) {
		cert, key := ours.issue("gate", until, x509.ExtKeyUsageServerAuth)
		for name, text := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := time.Now().Add(time.Hour).Truncate(time.Second)
	renew(first)
	r := startReloadable(t, onlyRead, "tls: {cert_file: "+dir+"/cert.pem, key_file: "+dir+"/key.pem}, ")
	shown := func() time.Time {
		conn, err := tls.Dial("tcp", r.OperatorAddr(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].NotAfter
	}
	if got := shown(); !got.Equal(first) {
		t.Fatalf("the certificate is good until %v", got)
	}
	renew(first.Add(time.Hour))
	eventually(t, "the renewed certificate is shown", func() bool { return shown().Equal(first.Add(time.Hour)) })
}

// If an authority is removed from the file, its agents are disconnected: their streams end,
// and the next request on an open connection is refused. An agent of another authority is
// still served on its connection.
func TestReloadAuthorities(t *testing.T) {
	dir := t.TempDir()
	stays, removed := newAuthority(t), newAuthority(t)
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, key := stays.issue("gate", time.Now().Add(time.Hour), x509.ExtKeyUsageServerAuth)
	write("cert.pem", cert)
	write("key.pem", key)
	write("ca.pem", slices.Concat(stays.pem, removed.pem))
	r := startReloadable(t, onlyRead+"identity: {mtls: {ca_file: "+dir+"/ca.pem}}\nlisten_tls: {cert_file: "+dir+"/cert.pem, key_file: "+dir+"/key.pem}\n")
	first, second := r.agentOf(stays, stays), r.agentOf(removed, stays)
	for _, a := range []*certifiedAgent{first, second} {
		eventually(t, "a connection is kept", func() bool { return a.ask() == http.StatusOK && a.kept })
	}
	stream := r.agentOf(removed, stays).send(http.MethodGet, "")
	if stream.StatusCode != http.StatusOK {
		t.Fatalf("the stream is answered %d", stream.StatusCode)
	}

	write("ca.new", stays.pem)
	if err := os.Rename(filepath.Join(dir, "ca.new"), filepath.Join(dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the changed file is read", func() bool { return r.reloads() == 1 })
	refused := second.send(http.MethodPost, call("read_x"))
	if refused.StatusCode != http.StatusUnauthorized || !second.sameConnection {
		t.Errorf("answered %d, on the same connection: %t", refused.StatusCode, second.sameConnection)
	}
	if !refused.Close {
		t.Error("the connection stays open, so the agent cannot present a new certificate")
	}
	if got := first.ask(); got != http.StatusOK || !first.sameConnection {
		t.Errorf("the agent whose authority stays is answered %d, on the same connection: %t", got, first.sameConnection)
	}
	defer time.AfterFunc(patience, func() { stream.Body.Close() }).Stop()
	if rest, err := io.ReadAll(stream.Body); err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
}

// A certifiedAgent sends requests on one connection, with a certificate.
type certifiedAgent struct {
	r      *reloadable
	client *http.Client

	kept           bool // whether the connection of the last request is kept
	sameConnection bool // whether the last request was sent on the connection of the one before
}

// agentOf returns an agent with a certificate of one authority. The gate's certificate is
// signed by another one.
func (r *reloadable) agentOf(by, gate *authority) *certifiedAgent {
	r.t.Helper()
	pair, err := tls.X509KeyPair(by.issue("ci", time.Now().Add(time.Hour), x509.ExtKeyUsageClientAuth))
	if err != nil {
		r.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(gate.pem)
	c := &tls.Config{RootCAs: roots, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
	transport := &http.Transport{TLSClientConfig: c}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &certifiedAgent{r: r, client: &http.Client{Transport: transport}}
}

// ask makes a call, and returns the status of the answer.
func (a *certifiedAgent) ask() int {
	a.r.t.Helper()
	resp := a.send(http.MethodPost, call("read_x"))
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		a.r.t.Fatal(err)
	}
	return resp.StatusCode
}

func (a *certifiedAgent) send(method, body string) *http.Response {
	a.r.t.Helper()
	a.kept = false
	ctx := httptrace.WithClientTrace(a.r.t.Context(), &httptrace.ClientTrace{
		GotConn:     func(info httptrace.GotConnInfo) { a.sameConnection = info.Reused },
		PutIdleConn: func(err error) { a.kept = err == nil },
	})
	req, err := http.NewRequestWithContext(ctx, method, "https://"+a.r.AgentAddr()+"/mcp", strings.NewReader(body))
	if err != nil {
		a.r.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		a.r.t.Fatal(err)
	}
	a.r.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// If a token of an operator is removed from the configuration, then without a restart it is
// refused, its streams end, and a request that began before but was not complete is refused.
// If the last token is removed, all logins fail until a new token is configured.
func TestReloadOperators(t *testing.T) {
	const first, second = "tgo_0123456789abcdefghijklmnop", "tgo_ponmlkjihgfedcba9876543210"
	r := startReloadable(t, onlyRead, "token: "+first+", ")
	open := func(token, path string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.OperatorAddr()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	status := func(token string) int {
		resp := open(token, "/api/approvals")
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := status(first); got != http.StatusOK {
		t.Fatalf("the token is answered %d", got)
	}
	stream := open(first, "/api/approvals/events")
	defer stream.Body.Close()
	finish := r.beginDecision(first)
	change := func(text string) { // sends no requests meanwhile, because failed attempts are limited
		t.Helper()
		before := r.reloads()
		r.write(text)
		eventually(t, "the configuration is reloaded", func() bool { return r.reloads() > before })
	}
	change(strings.Replace(r.text(), first, second, 1))
	if got := status(second); got != http.StatusOK {
		t.Errorf("the new token is answered %d", got)
	}
	if got := status(first); got != http.StatusUnauthorized {
		t.Errorf("the removed token is answered %d", got)
	}
	if got := finish(); got != http.StatusUnauthorized {
		t.Errorf("a decision that was begun with the removed token is answered %d", got)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Logf("the stream broke off: %v", err) // it must end, with or without an error
	}
	if body := r.readiness(); strings.Contains(body, "restart") {
		t.Errorf("readiness page: %s", body)
	}
	last := r.text()
	change(strings.Replace(last, "token: "+second+", ", "", 1))
	if got := status(second); got != http.StatusUnauthorized {
		t.Errorf("the last token, which was removed, is answered %d", got)
	}
	if body := r.readiness(); !strings.Contains(body, "no operator can sign in: operators: no token and no identity provider configured") {
		t.Errorf("readiness page: %s", body)
	}
	change(last)
	if got := status(second); got != http.StatusOK {
		t.Errorf("the token that was put back is answered %d", got)
	}
	if body := r.readiness(); strings.Contains(body, "sign in") {
		t.Errorf("readiness page: %s", body)
	}
}

// The generated token becomes invalid when another way to sign in is configured, and stays
// invalid if that is removed later.
func TestGeneratedTokenEndsWhenOneIsConfigured(t *testing.T) {
	r := startReloadable(t, onlyRead, "")
	made, bare := r.GeneratedToken(), r.text()
	status := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.OperatorAddr()+"/api/approvals", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+made)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := status(); got != http.StatusOK {
		t.Fatalf("the generated token is answered %d", got)
	}
	for _, text := range []string{strings.Replace(bare, "operators: {", "operators: {token: tgo_0123456789abcdefghijklmnop, ", 1), bare} {
		before := r.reloads()
		r.write(text)
		eventually(t, "the configuration is reloaded", func() bool { return r.reloads() > before })
		if got := status(); got != http.StatusUnauthorized {
			t.Errorf("the generated token is answered %d", got)
		}
	}
}

// beginDecision sends a decision without its body, and returns when the gate waits for the
// body. The returned function sends the body, and returns the status of the answer.
func (r *reloadable) beginDecision(token string) (finish func() int) {
	r.t.Helper()
	conn := connect(r.t, "127.0.0.1", r.OperatorAddr())
	in := bufio.NewReader(conn)
	fmt.Fprintf(conn, "POST /api/approvals/tg_x/approve HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", r.OperatorAddr(), token)
	line, err := in.ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		r.t.Fatalf("the answer to Expect: 100-continue: %q, %v", line, err)
	}
	return func() int {
		r.t.Helper()
		io.WriteString(conn, "{}")
		if _, err := in.ReadString('\n'); err != nil { // the end of the first answer
			r.t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
}

func (r *reloadable) readiness() string {
	r.t.Helper()
	_, body := get(r.t, "http://"+r.OperatorAddr()+"/readyz")
	return body
}

// inbox returns the first page of the inbox for a token.
func (r *reloadable) inbox(token string) string {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	status, page, _ := request(r.t, client, http.MethodGet, "http://"+r.OperatorAddr()+"/", "", "Authorization", "Bearer "+token)
	if status != http.StatusOK {
		r.t.Fatalf("the inbox answers %d:\n%s", status, page)
	}
	return page
}
