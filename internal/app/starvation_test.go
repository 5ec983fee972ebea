package app_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// from returns a client whose connections come from one address of the loopback network.
func from(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patience}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// connect opens a connection from an address, and reads nothing from it.
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

// streamingUpstream returns an upstream that answers requests and keeps GET streams open.
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

// served fails the test unless other agents, operators and probes are served.
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

// An agent that sends incomplete requests is limited to its share of connections. Other agents
// and operators are served meanwhile, and the agent itself is served again afterwards.
func TestStalledRequests(t *testing.T) {
	up := streamingUpstream(t)
	defer http.DefaultClient.CloseIdleConnections()
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_connections: 40}\n")
	var open []net.Conn
	for range 10 {
		conn := connect(t, "127.0.0.2", a.AgentAddr())
		stall(t, conn)
		open = append(open, conn)
	}
	for range 5 {
		status, body := refusal(t, connect(t, "127.0.0.2", a.AgentAddr()))
		if status != http.StatusTooManyRequests || !strings.Contains(body, `"error_type":"client_limit"`) {
			t.Errorf("a connection over the limit: %d %s", status, body)
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

// Each agent has a share of streams of each kind. Other agents, and other requests of the same
// agent, are served meanwhile.
func TestManyStreams(t *testing.T) {
	up := streamingUpstream(t)
	defer http.DefaultClient.CloseIdleConnections()
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_streams: 20}\n")
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
		t.Errorf("a stream over the limit: %s %s", resp.Status, body)
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

// Agents without an identity may use at most three quarters of the connections, for any
// purpose.
func TestAnonymousAgentsShareLimits(t *testing.T) {
	up := streamingUpstream(t)
	defer http.DefaultClient.CloseIdleConnections()
	const token = "tga_0123456789abcdefghijklmnopqrstuvwxyz"
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_connections: 8}\n"+
		fmt.Sprintf("identity: {anonymous: true, tokens: [{name: ann, hash: 'sha256:%x'}]}\n", sha256.Sum256([]byte(token))))
	served := 0
	var open []net.Conn
	for _, address := range five[:4] {
		for _, request := range []string{
			"GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
			"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n",
		} {
			conn := connect(t, address, a.AgentAddr())
			open = append(open, conn)
			io.WriteString(conn, request)
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, " 200 ") || strings.Contains(line, " 100 ") {
				served++
			} else if !strings.Contains(line, " 503 ") {
				t.Errorf("a connection over the limit: %s", line)
			}
		}
	}
	if served != 6 {
		t.Errorf("%d of 8 connections are used by agents without an identity; want 6", served)
	}
	for range 3 {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.AgentAddr()+"/mcp", strings.NewReader(ping))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := from(t, "127.0.0.9").Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("an agent with an identity: %s", resp.Status)
		}
	}
	for _, conn := range open {
		conn.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// statefulUpstream begins sessions, and accepts one that it began before the gate started. It
// refuses all other sessions.
func statefulUpstream(t *testing.T) string {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		session := r.Header.Get("Mcp-Session-Id")
		switch {
		case strings.Contains(string(body), `"initialize"`):
			w.Header().Set("Mcp-Session-Id", "given")
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`)
		case session != "given" && session != "old" && !strings.Contains(string(body), `"tools/list"`): // tools/list works in every session, so that calls can be held
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no such session"}}`)
		default:
			var request struct{ ID json.RawMessage }
			_ = json.Unmarshal(body, &request)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, request.ID)
		}
	}))
	t.Cleanup(up.Close)
	return up.URL
}

// Invented sessions share one small limit per address. Agents with real sessions of the
// upstream, even from before the start of the gate, and identified agents can still have
// calls held.
func TestInventedSessionsShareOneLimit(t *testing.T) {
	up := statefulUpstream(t)
	for _, store := range []string{"memory:", "sqlite:" + filepath.Join(t.TempDir(), "gate.db")} {
		t.Run(strings.SplitN(store, ":", 2)[0], func(t *testing.T) {
			const token = "tga_0123456789abcdefghijklmnopqrstuvwxyz"
			text := strings.Replace(gatewayFor(up), "memory:", store, 1) +
				"tasks: {max_pending: 20, max_pending_per_owner: 4}\nrules: [{match: '*', action: approve}]\ndefault: deny\n" +
				fmt.Sprintf("identity: {anonymous: true, tokens: [{name: ann, hash: 'sha256:%x'}]}\n", sha256.Sum256([]byte(token)))
			a, stop := start(t, text)
			calls := 0
			hold := func(address, session, authorization string) string {
				t.Helper()
				calls++
				message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n":%d},"task":{}}}`, calls)
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.AgentAddr()+"/mcp", strings.NewReader(message))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
				for name, value := range map[string]string{"Mcp-Session-Id": session, "Authorization": authorization} {
					if value != "" {
						r.Header.Set(name, value)
					}
				}
				resp, err := from(t, address).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, _ := io.ReadAll(resp.Body)
				return string(body)
			}
			held := func(what, answer string) {
				t.Helper()
				if !strings.Contains(answer, `"taskId"`) {
					t.Errorf("%s is not held: %s", what, answer)
				}
			}
			full := func(what, answer string) {
				t.Helper()
				if !strings.Contains(answer, `"error_type":"rate_limited"`) && !strings.Contains(answer, `"error_type":"capacity_exceeded"`) {
					t.Errorf("%s: %s; want a refusal", what, answer)
				}
			}
			for i := range 4 {
				held("a made-up session", hold("127.0.0.2", fmt.Sprint("made-up-", i), ""))
			}
			for i := range 10 {
				full("one made-up session too many", hold("127.0.0.2", fmt.Sprint("more-", i), ""))
			}
			full("no session at the same address", hold("127.0.0.2", "", ""))
			held("an old session", hold("127.0.0.2", "old", ""))
			if _, body := ask(t, from(t, "127.0.0.3"), a.AgentAddr(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`); !strings.Contains(body, `"result"`) {
				t.Fatal(body)
			}
			for i := range 4 {
				held("a made-up session at another address", hold("127.0.0.3", fmt.Sprint("made-up-too-", i), ""))
			}
			held("a given session", hold("127.0.0.3", "given", ""))
			full("strangers have half of all", hold("127.0.0.4", "made-up", ""))
			held("the given session elsewhere", hold("127.0.0.4", "given", ""))
			held("an agent with an identity", hold("127.0.0.2", "", "Bearer "+token))
			held("an agent with an identity, again", hold("127.0.0.2", "", "Bearer "+token))
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Agents without an identity leave a quarter of the memory for bodies to agents with one. The
// gate requests a body ("100 Continue") when memory for it is free.
func TestAnonymousBodies(t *testing.T) {
	up := streamingUpstream(t)
	const token = "tga_0123456789abcdefghijklmnopqrstuvwxyz"
	a, stop := start(t, gatewayFor(up.URL)+"limits: {max_request_body: 64KiB}\n"+
		fmt.Sprintf("identity: {anonymous: true, tokens: [{name: ann, hash: 'sha256:%x'}]}\n", sha256.Sum256([]byte(token))))
	message := ping + strings.Repeat(" ", 64<<10-len(ping))
	announce := func(address, header string) (net.Conn, *http.Response) {
		conn := connect(t, address, a.AgentAddr())
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n%s\r\n", len(message), header)
		return conn, answerOn(t, conn)
	}
	var open []net.Conn
	for i := range 193 { // one more than three quarters of 256
		want := http.StatusContinue
		if i == 192 {
			want = http.StatusServiceUnavailable
		}
		conn, resp := announce(five[i/64], "")
		if open = append(open, conn); resp.StatusCode != want {
			t.Errorf("body %d of agents without an identity: %s; want %d", i+1, resp.Status, want)
		}
	}
	ann, resp := announce("127.0.0.9", "Authorization: Bearer "+token+"\r\n")
	if resp.StatusCode != http.StatusContinue {
		t.Fatalf("the body of an agent with an identity: %s", resp.Status)
	}
	io.WriteString(ann, message)
	if resp := answerOn(t, ann); resp.StatusCode != http.StatusOK {
		t.Errorf("an agent with an identity: %s", resp.Status)
	}
	for _, conn := range open {
		conn.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// answerOn reads the next answer on a connection, without the body.
func answerOn(t *testing.T, conn net.Conn) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}
