package deploy_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A proxy is a server in front of a gate, as agents and operators see it.
type proxy struct {
	agents, operators string // URLs
	client            *http.Client
}

// TestNginx runs the sample of the documentation.
func TestNginx(t *testing.T) {
	program, ok := debian(t, "nginx-light", "/usr/sbin/nginx")
	if !ok {
		return
	}
	g := serve(t, proxied+"allowed_hosts: [mcp.example.com]\n", "operators: {", "operators: {url: 'https://gate.example.com', ")
	checkProxy(t, g, startNginx(t, program, g, nil))
}

// TestNginxHolds proves that the signs of life of a held call keep a connection
// open for longer than the proxy lets it be silent.
func TestNginxHolds(t *testing.T) {
	program, ok := debian(t, "nginx-light", "/usr/sbin/nginx")
	if !ok {
		return
	}
	g := serve(t, proxied+"allowed_hosts: [mcp.example.com]\n")
	p := startNginx(t, program, g, []string{"proxy_read_timeout 1h", "proxy_read_timeout 6s"})
	answer, events := p.held(t, "hold_long")
	for begin := time.Now(); time.Since(begin) < 15*time.Second; {
		if !events.Scan() {
			t.Fatalf("the proxy ended the held call after %s", time.Since(begin))
		}
	}
	answer.Body.Close()
}

// TestCaddy runs the sample of the documentation.
func TestCaddy(t *testing.T) {
	program, ok := debian(t, "caddy", "/usr/bin/caddy")
	if !ok {
		return
	}
	g := serve(t, proxied)
	agents, operators := freeAddress(t), freeAddress(t)
	file := sample(t, "Caddyfile",
		"\nmcp.example.com {", "\nhttp://"+agents+" {", "\ngate.example.com {", "\nhttp://"+operators+" {",
		"127.0.0.1:8080", strings.TrimPrefix(g.agents, "http://"), "127.0.0.1:8081", strings.TrimPrefix(g.operators, "http://"))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append([]byte("{\n\tadmin off\n\tauto_https off\n}\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	run(t, []string{"HOME=" + home, "XDG_DATA_HOME=" + home, "XDG_CONFIG_HOME=" + home}, program, "run", "--config", file, "--adapter", "caddyfile")
	awaitServer(t, agents)
	p := proxy{"http://" + agents, "http://" + operators, &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(p.client.CloseIdleConnections)
	checkProxy(t, g, p)
}

// proxied lets the gate show signs of life often, and take large bodies.
const proxied = "waiting: {keepalive: 500ms, hold: 1m}\nlimits: {max_request_body: 8MiB}\nidentity: {anonymous: true}\n"

// checkProxy makes calls through a proxy: a plain one, one with large bodies, one
// that is held, and one of an operator.
func checkProxy(t *testing.T, g *gate, p proxy) {
	t.Helper()
	if got := p.say(t, `{"name":"get_x"}`); !strings.Contains(got, "done") {
		t.Errorf("a forwarded call: %s", got)
	}
	large := strings.Repeat("x", 5<<20)
	if got := p.say(t, `{"name":"get_echo","arguments":{"text":"`+large+`"}}`); !strings.Contains(got, large) {
		t.Errorf("a large call and answer: %d bytes", len(got))
	}
	answer, events := p.held(t, "hold_x")
	defer answer.Body.Close()
	for range 3 { // each arrives before the next is sent, and before the decision
		if !events.Scan() {
			t.Fatalf("a held call: %v", events.Err())
		}
	}
	list := p.ask(t, http.MethodGet, p.operators+"/api/approvals", "")
	_, rest, _ := strings.Cut(list, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	g.decide(id, "approve")
	for events.Scan() {
		if strings.Contains(events.Text(), "done") {
			p.refuse(t)
			return
		}
	}
	t.Errorf("the approved call has no answer: %v", events.Err())
}

// refuse demands that the proxy serves nothing that is not for everybody.
func (p proxy) refuse(t *testing.T) {
	t.Helper()
	for _, url := range []string{p.operators + "/metrics", p.operators + "/readyz", p.agents + "/api/approvals", p.agents + "/"} {
		if got := p.ask(t, http.MethodGet, url, ""); strings.Contains(got, "thoughtgate_") || strings.Contains(got, "approvals") || strings.Contains(got, "ready\n") {
			t.Errorf("%s is served: %s", url, got)
		}
	}
}

// say makes a call, and returns the answer.
func (p proxy) say(t *testing.T, params string) string {
	t.Helper()
	return p.ask(t, http.MethodPost, p.agents+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`)
}

func (p proxy) ask(t *testing.T, method, url, body string) string {
	t.Helper()
	answer := p.send(t, method, url, body)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (p proxy) send(t *testing.T, method, url, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	if strings.HasPrefix(url, p.operators) {
		r.Header.Set("Authorization", "Bearer "+operatorToken)
	}
	answer, err := p.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// held makes a call that is held, and returns the lines of its stream.
func (p proxy) held(t *testing.T, tool string) (*http.Response, *bufio.Scanner) {
	t.Helper()
	answer := p.send(t, http.MethodPost, p.agents+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`)
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("a held call is answered with %s", kind)
	}
	return answer, bufio.NewScanner(answer.Body)
}

// startNginx starts nginx in front of g with TLS. Pairs of texts in the sample are
// replaced.
func startNginx(t *testing.T, program string, g *gate, changes []string) proxy {
	t.Helper()
	dir := t.TempDir()
	certificate, key, pool := selfSigned(t, dir)
	address := freeAddress(t)
	file := sample(t, "nginx.conf", append(changes,
		"listen 443 ssl", "listen "+address+" ssl",
		"/etc/ssl/mcp.example.com.pem", certificate, "/etc/ssl/mcp.example.com.key", key,
		"/etc/ssl/gate.example.com.pem", certificate, "/etc/ssl/gate.example.com.key", key,
		"127.0.0.1:8080", strings.TrimPrefix(g.agents, "http://"), "127.0.0.1:8081", strings.TrimPrefix(g.operators, "http://"))...)
	whole := filepath.Join(dir, "whole.conf")
	text := "daemon off; pid " + dir + "/pid; error_log stderr; events {}\nhttp { access_log off; client_body_temp_path " + dir + "/b; proxy_temp_path " + dir + "/p;\n" +
		"fastcgi_temp_path " + dir + "/f; uwsgi_temp_path " + dir + "/u; scgi_temp_path " + dir + "/s; include " + file + "; }\n"
	if os.Getuid() == 0 {
		text = "user root;\n" + text
	}
	if err := os.WriteFile(whole, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, program, "-p", dir, "-c", whole)
	_, port, _ := net.SplitHostPort(address)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DialContext: dial}}
	t.Cleanup(client.CloseIdleConnections)
	p := proxy{"https://mcp.example.com:" + port, "https://gate.example.com:" + port, client}
	awaitServer(t, address)
	return p
}

// sample writes a sample of the documentation to a file of its own, with pairs of
// texts replaced.
func sample(t *testing.T, name string, pairs ...string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(string(text), pairs[i]) {
			t.Fatalf("%s has no %q", name, pairs[i])
		}
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// run runs a server until the test ends.
func run(t *testing.T, environ []string, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	log := &buffer{}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), environ...), log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
}

// awaitServer waits until a server listens at an address.
func awaitServer(t *testing.T, address string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return
		}
	}
	t.Fatalf("nobody listens at %s", address)
}

// freeAddress returns an unused address. Its port is one that the system does
// not hand out, so that a server which is started a moment later finds it free.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 15_000+mathrand.IntN(15_000))
		l, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		return address
	}
}

// debian returns a program of one of Debian's packages, which it installs if it
// may. If that is not possible the test is passed over, but not in the complete suite.
func debian(t *testing.T, name, program string) (string, bool) {
	t.Helper()
	if _, err := os.Stat(program); err == nil {
		return program, true
	}
	var out []byte
	err := os.ErrPermission
	if os.Getuid() == 0 {
		install := exec.CommandContext(t.Context(), "apt-get", "install", "-y", "--no-install-recommends", name)
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1") // starts no service
		out, err = install.CombinedOutput()
	}
	if err != nil && os.Getenv("TEST_ALL") == "" {
		t.Logf("PASSED OVER: no %s: %v", program, err)
		return "", false
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return program, true
}

// selfSigned writes a certificate for the names in the samples, and its key.
func selfSigned(t *testing.T, dir string) (certificate, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"mcp.example.com", "gate.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	pool = x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(fmt.Errorf("our own certificate: %w", err))
	}
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret), pool
}
