package app_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// five are the addresses of a group that uses all connections of a listener.
var five = []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"}

// closed waits until the gate has closed a connection, and fails the test if the gate sends
// anything before.
func closed(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	said, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s is still open", what)
	}
	if len(said) > 0 {
		t.Errorf("%s: %q", what, said)
	}
}

// keepAlive sends a whole request on a connection, and reads the answer.
func keepAlive(t *testing.T, conn net.Conn) {
	t.Helper()
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(ping), ping)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", resp.Status, body)
	}
}

// stall sends a request without its body, and returns when the gate waits for the body.
func stall(t *testing.T, conn net.Conn) {
	t.Helper()
	io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("the answer to Expect: 100-continue: %q, %v", line, err)
	}
}

// At the limit, connections without a request are replaced. The first to be replaced is the
// connection that has waited longest at the address with the most connections. Agents at other
// addresses are always served.
func TestIdleConnectionsAreReplaced(t *testing.T) {
	up := streamingUpstream(t)
	defer http.DefaultClient.CloseIdleConnections()
	for name, begin := range map[string]func(*testing.T, net.Conn){
		"silent":       func(*testing.T, net.Conn) {},
		"slow headers": func(_ *testing.T, conn net.Conn) { io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: loc") },
		"kept alive":   keepAlive,
		"slow next": func(t *testing.T, conn net.Conn) {
			keepAlive(t, conn)
			io.WriteString(conn, "POST /mcp HTTP/1.1\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, stop := start(t, gatewayFor(up.URL)+"limits: {max_connections: 21}\n")
			var open []net.Conn
			for i, address := range five {
				for range 4 + min(1, i/4) { // one more for the last address
					conn := connect(t, address, a.AgentAddr())
					begin(t, conn)
					open = append(open, conn)
				}
			}
			if resp, body := ask(t, from(t, "127.0.0.9"), a.AgentAddr(), ping); resp.StatusCode != http.StatusOK {
				t.Fatalf("an agent at another address: %d %s", resp.StatusCode, body)
			}
			if name == "silent" || name == "slow headers" { // in the other cases the order in which requests end is not known
				closed(t, "the oldest of the address with the most", open[16])
			}
			for i := range 12 {
				agent := from(t, fmt.Sprintf("127.0.0.%d", 10+i))
				if resp, body := ask(t, agent, a.AgentAddr(), ping); resp.StatusCode != http.StatusOK {
					t.Errorf("agent %d at another address: %d %s", i, resp.StatusCode, body)
				}
			}
			served(t, a.AgentAddr(), a.OperatorAddr())
			for _, conn := range open {
				conn.Close()
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// At the limit of one address, a new connection replaces an idle one of the same address, and
// never one of another address.
func TestIdleConnectionsOfOneAddress(t *testing.T) {
	up := streamingUpstream(t)
	defer http.DefaultClient.CloseIdleConnections()
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_connections: 21}\n")
	elsewhere := connect(t, "127.0.0.3", a.AgentAddr())
	keepAlive(t, elsewhere)
	var open []net.Conn
	for range 5 {
		open = append(open, connect(t, "127.0.0.2", a.AgentAddr()))
	}
	if resp, body := ask(t, from(t, "127.0.0.2"), a.AgentAddr(), ping); resp.StatusCode != http.StatusOK {
		t.Errorf("a sixth connection: %d %s", resp.StatusCode, body)
	}
	closed(t, "the first of the address", open[0])
	keepAlive(t, elsewhere)
	keepAlive(t, open[4])
	for _, conn := range append(open, elsewhere) {
		conn.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Connections without a TLS handshake or a request are replaced, too.
func TestIdleConnectionsWithTLS(t *testing.T) {
	up := streamingUpstream(t)
	ours, dir := newAuthority(t), t.TempDir()
	cert, key := ours.issue("gate", time.Now().Add(time.Hour), x509.ExtKeyUsageServerAuth)
	for name, text := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_connections: 8}\nlisten_tls: {cert_file: "+dir+"/cert.pem, key_file: "+dir+"/key.pem}\n")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ours.pem)
	trust := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	var open []net.Conn
	for i, address := range five[:4] {
		for range 2 {
			conn := connect(t, address, a.AgentAddr())
			if i < 2 {
				if err := tls.Client(conn, trust).HandshakeContext(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			open = append(open, conn)
		}
	}
	for i := range 6 {
		agent := from(t, fmt.Sprintf("127.0.0.%d", 10+i))
		agent.Transport.(*http.Transport).TLSClientConfig = trust
		resp, err := agent.Post("https://"+a.AgentAddr()+"/mcp", "application/json", strings.NewReader(ping))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("agent %d at another address: %s", i, resp.Status)
		}
	}
	for _, conn := range open {
		conn.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A connection with a running request is never replaced. The gate answers a further connection
// with Retry-After.
func TestBusyConnectionsAreNotReplaced(t *testing.T) {
	up := streamingUpstream(t)
	defer http.DefaultClient.CloseIdleConnections()
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_connections: 16}\n")
	var busy []net.Conn
	for _, address := range five[:4] {
		for range 4 {
			conn := connect(t, address, a.AgentAddr())
			stall(t, conn)
			busy = append(busy, conn)
		}
	}
	for range 3 {
		status, body := refusal(t, connect(t, "127.0.0.2", a.AgentAddr()))
		if status != http.StatusTooManyRequests || !strings.Contains(body, `"error_type":"client_limit"`) {
			t.Errorf("a connection over the limit of the address: %d %s", status, body)
		}
		status, body = refusal(t, connect(t, "127.0.0.9", a.AgentAddr()))
		if status != http.StatusServiceUnavailable || !strings.Contains(body, `"error_type":"overloaded"`) {
			t.Errorf("a connection over the limit of the listener: %d %s", status, body)
		}
	}
	if status, body := get(t, "http://"+a.OperatorAddr()+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
	for _, conn := range busy {
		io.WriteString(conn, ping+strings.Repeat(" ", 100-len(ping)))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("a running request: %v, %v", resp, err)
			continue
		}
		resp.Body.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// operatorsShare is the number of the operators' connections that one address may use: half.
const operatorsShare = 128

// operatorsGate runs a gate for operators.
func operatorsGate(t *testing.T, limits string) (address string, stop func() error) {
	t.Helper()
	text := strings.Replace(gatewayFor("http://127.0.0.1:1/mcp"), "operators: {", "operators: {token: secret-of-the-operators, ", 1)
	a, stop := start(t, text+limits)
	return a.OperatorAddr(), stop
}

// One address cannot use more than its share of the operators' connections, even with valid
// credentials.
func TestOperatorsConnections(t *testing.T) {
	address, stop := operatorsGate(t, "")
	var open []net.Conn
	for range operatorsShare {
		conn := connect(t, "127.0.0.2", address)
		io.WriteString(conn, "GET /api/approvals/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret-of-the-operators\r\n\r\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
			t.Fatalf("events: %q, %v", line, err)
		}
		open = append(open, conn)
	}
	status, body := refusal(t, connect(t, "127.0.0.2", address))
	if status != http.StatusTooManyRequests {
		t.Errorf("one connection too many: %d %s", status, body)
	}
	healthy(t, "127.0.0.9", address)
	for _, conn := range open {
		conn.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// healthy fails the test unless a probe from an address is answered.
func healthy(t *testing.T, client, address string) {
	t.Helper()
	resp, err := from(t, client).Get("http://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz from %s: %d %s", client, resp.StatusCode, body)
	}
}

// Unauthenticated clients that send incomplete requests to the operators' listener keep no
// operator out: the gate replaces their connections, and closes them after a time limit.
func TestStalledRequestsToOperators(t *testing.T) {
	for _, path := range []string{"/login", "/api/approvals/x/approve", "/approvals/reject", "/logout", "/nowhere", "/healthz"} {
		t.Run(path, func(t *testing.T) {
			address, stop := operatorsGate(t, "")
			begin := func(from string) net.Conn {
				conn := connect(t, from, address)
				io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
				if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
					t.Fatalf("the answer to Expect: 100-continue: %q, %v", line, err)
				}
				io.WriteString(conn, "token=")
				return conn
			}
			var open []net.Conn
			for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
				for range operatorsShare {
					open = append(open, begin(from))
				}
			}
			for _, from := range []string{"127.0.0.9", "127.0.0.10", "127.0.0.2"} {
				healthy(t, from, address)
			}
			for _, conn := range open {
				conn.Close()
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The gate closes an operators' connection whose request body never arrives or is too large.
func TestEndlessRequestsToOperators(t *testing.T) {
	address, stop := operatorsGate(t, "limits: {request_timeout: 200ms}\n")
	for path, want := range map[string]string{"/api/approvals/x/approve": "401 Unauthorized", "/login": "400 Bad Request"} {
		for _, length := range []int{100, 1 << 30} {
			conn := connect(t, "127.0.0.2", address)
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", path, length)
			answer, err := io.ReadAll(conn)
			if err != nil || !strings.Contains(string(answer), want) {
				t.Errorf("%s with a body of %d bytes that never arrives: %q, %v", path, length, answer, err)
			}
			pour(conn, "x")
		}
	}
	conn := connect(t, "127.0.0.2", address)
	io.WriteString(conn, "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n")
	var pouring sync.WaitGroup
	pouring.Go(func() { pour(conn, "10000\r\n"+strings.Repeat("a", 0x10000)+"\r\n") })
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, " 4") {
		t.Errorf("a body without an end: %q, %v", line, err)
	}
	pouring.Wait()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// pour writes a text repeatedly until the gate has closed the connection.
func pour(conn net.Conn, text string) {
	for {
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}
