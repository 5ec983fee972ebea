package app_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// from returns a client whose connections come from one address of the loopback
// network.
func from(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patience}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// connect opens a connection from an address. It reads nothing.
func connect(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	conn, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// ask sends a message as a client and returns the answer.
func ask(t *testing.T, c *http.Client, address, message string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/mcp", strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

// an upstream that answers requests and keeps GET streams open.
func streamingUpstream(t *testing.T) *httptest.Server {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	t.Cleanup(up.Close)
	return up
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// served reports a fault unless other agents, operators and probes are served.
func served(t *testing.T, agents, operators string) {
	t.Helper()
	if resp, body := ask(t, from(t, "127.0.0.9"), agents, ping); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"result"`) {
		t.Errorf("another agent: %d %s", resp.StatusCode, body)
	}
	if status, body := get(t, "http://"+operators+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
}

// refusal reads the answer on a connection that the gate refuses.
func refusal(t *testing.T, conn net.Conn) (int, string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.Header.Get("Retry-After") == "" {
		t.Errorf("refused without Retry-After: %v", resp.Header)
	}
	return resp.StatusCode, string(body)
}

// An agent that opens connections and says nothing gets its share of them. Other
// agents and operators are served meanwhile, and it is served again afterwards.
func TestSilentConnections(t *testing.T) {
	up := streamingUpstream(t)
	defer http.DefaultClient.CloseIdleConnections()
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_connections: 40, max_connections_per_client: 10}\n")
	var open []net.Conn
	for range 10 {
		open = append(open, connect(t, "127.0.0.2", a.AgentAddr()))
	}
	// The connections are accepted in order, so the eleventh is the first too many.
	for range 5 {
		status, body := refusal(t, connect(t, "127.0.0.2", a.AgentAddr()))
		if status != http.StatusTooManyRequests || !strings.Contains(body, `"error_type":"client_limit"`) {
			t.Errorf("one connection too many: %d %s", status, body)
		}
	}
	served(t, a.AgentAddr(), a.OperatorAddr())
	for _, conn := range open {
		conn.Close()
	}
	eventually(t, "the agent is served again", func() bool {
		resp, err := from(t, "127.0.0.2").Post("http://"+a.AgentAddr()+"/mcp", "application/json", strings.NewReader(ping))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// All agents together leave connections to operators, and are told at once.
func TestAllConnections(t *testing.T) {
	up := streamingUpstream(t)
	defer http.DefaultClient.CloseIdleConnections()
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_connections: 20, max_connections_per_client: 10}\n")
	for _, address := range []string{"127.0.0.2", "127.0.0.3"} {
		for range 10 {
			connect(t, address, a.AgentAddr())
		}
	}
	status, body := refusal(t, connect(t, "127.0.0.4", a.AgentAddr()))
	if status != http.StatusServiceUnavailable || !strings.Contains(body, `"error_type":"overloaded"`) {
		t.Errorf("no connection left: %d %s", status, body)
	}
	if status, body := get(t, "http://"+a.OperatorAddr()+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// One address has no more than its share of the operators' connections, and a
// body that never arrives does not keep one of them for good.
func TestOperatorsConnections(t *testing.T) {
	a, stop := start(t, strings.Replace(gatewayFor("http://127.0.0.1:1/mcp"), "operators: {", "operators: {max_connections: 8, ", 1)+"limits: {read_timeout: 200ms}\n")
	stalled := connect(t, "127.0.0.2", a.OperatorAddr())
	io.WriteString(stalled, "POST /api/approvals/x/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	if _, err := io.ReadAll(stalled); err != nil {
		t.Errorf("a body that never arrives keeps its connection: %v", err)
	}
	for range 4 {
		connect(t, "127.0.0.2", a.OperatorAddr())
	}
	status, body := refusal(t, connect(t, "127.0.0.2", a.OperatorAddr()))
	if status != http.StatusTooManyRequests {
		t.Errorf("one connection too many: %d %s", status, body)
	}
	resp, err := from(t, "127.0.0.9").Get("http://" + a.OperatorAddr() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/healthz from another address: %d", resp.StatusCode)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// An agent has its share of streams, of each kind. Others, and its own requests,
// are served meanwhile.
func TestManyStreams(t *testing.T) {
	up := streamingUpstream(t)
	defer http.DefaultClient.CloseIdleConnections()
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_streams: 20, max_streams_per_client: 5}\n")
	agent := from(t, "127.0.0.2")
	agent.Timeout = 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listen := func(i int) *http.Response {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.AgentAddr()+"/mcp", nil)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Mcp-Session-Id", fmt.Sprint("made-up-", i))
		resp, err := agent.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	for i := range 5 {
		if resp := listen(i); resp.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s", i, resp.Status)
		}
	}
	resp := listen(5)
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), `"client_limit"`) {
		t.Errorf("one stream too many: %s %s", resp.Status, body)
	}
	listening := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.AgentAddr()+"/mcp", strings.NewReader(listening))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
	r.Header.Set("Mcp-Method", "subscriptions/listen")
	if resp, err := agent.Do(r); err != nil || resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("subscriptions/listen: %v %v; want 429", resp, err)
	} else {
		resp.Body.Close()
	}
	if resp, body := ask(t, agent, a.AgentAddr(), ping); resp.StatusCode != http.StatusOK {
		t.Errorf("a request of the same agent: %d %s", resp.StatusCode, body)
	}
	served(t, a.AgentAddr(), a.OperatorAddr())
	cancel()
	if err := stop(); err != nil {
		t.Error(err)
	}
}
