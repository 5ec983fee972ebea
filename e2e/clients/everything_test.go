package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// everything runs the official server with all features of 2025-11-25, including tasks, and
// returns its URL.
func everything(t *testing.T) *url.URL {
	t.Helper()
	script := filepath.Join(modules(t), "@modelcontextprotocol/server-everything/dist/index.js")
	number, err := testenv.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(number)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	server := exec.CommandContext(ctx, "node", script, "streamableHttp")
	server.Env = append(os.Environ(), "PORT="+port)
	server.Stderr = t.Output()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = server.Wait() // it was killed
	})
	for deadline := time.Now().Add(patience); ; {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			conn.Close()
			return &url.URL{Scheme: "http", Host: "127.0.0.1:" + port, Path: "/mcp"}
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not listen")
		}
	}
}

// behind returns a server that forwards all requests to another.
func behind(upstream *url.URL) http.Handler {
	return &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL = upstream }}
}

// A line is a session of a legacy client that records all received bytes.
type line struct {
	t       *testing.T
	url     string
	session string

	mu       sync.Mutex
	received bytes.Buffer
}

func (l *line) post(message string) *http.Response {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.url, strings.NewReader(message))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if l.session != "" {
		r.Header.Set("Mcp-Session-Id", l.session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// say sends a message and returns the whole answer.
func (l *line) say(message string) string {
	l.t.Helper()
	body, err := io.ReadAll(l.heard(l.post(message)))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(body)
}

// heard returns the body of an answer, and records the bytes that are read.
func (l *line) heard(resp *http.Response) io.Reader {
	return io.TeeReader(resp.Body, noting{l})
}

type noting struct{ *line }

func (n noting) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.received.Write(p)
}

// open begins a session of a client with elicitation and sampling.
func (l *line) open() {
	l.t.Helper()
	resp := l.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"sampling":{}},"clientInfo":{"name":"line","version":"1"}}}`)
	io.Copy(io.Discard, l.heard(resp))
	l.session = resp.Header.Get("Mcp-Session-Id")
	l.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// REQ-GOV-004 10.2 "Full task flow", with the official server: a tool that must be called as a
// task sends requests to its client while it runs, and is held by the gate. A request of the
// server reaches the client, and the answer reaches the server. The client never sees the id
// of the server's task, and the server never sees that of the gate's task.
func TestEverythingServer(t *testing.T) {
	testenv.NeedNode(t)
	upstream := everything(t)
	s := &site{}
	s.url, s.operator, s.token = openGate(t, behind(upstream), `
rules:
  - {match: "simulate-*", action: approve}
default: forward
tasks: {min_poll_interval: 100ms, max_poll_interval: 1s}
`)
	client := &line{t: t, url: s.url}
	client.open()
	if list := client.say(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); !strings.Contains(list, "simulate-research-query") {
		t.Fatalf("tools: %s", list)
	}
	created := client.say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"simulate-research-query","arguments":{"topic":"python","ambiguous":true},"task":{"ttl":600000}}}`)
	id := regexp.MustCompile(`"taskId":"(tg_[^"]+)"`).FindStringSubmatch(created)
	if id == nil {
		t.Fatalf("no task: %s", created)
	}
	s.approveAll(t)
	get := `{"jsonrpc":"2.0","id":4,"method":"tasks/get","params":{"taskId":"` + id[1] + `"}}`
	var seen []string
	for deadline := time.Now().Add(patience); !strings.Contains(client.say(get), `"status":"input_required"`); {
		if time.Now().After(deadline) {
			t.Fatalf("the server sent no request: %s", client.say(get))
		}
	}

	result := client.post(`{"jsonrpc":"2.0","id":5,"method":"tasks/result","params":{"taskId":"` + id[1] + `"}}`)
	lines := bufio.NewScanner(client.heard(result))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		seen = append(seen, data)
		p, err := jsonrpc.Parse([]byte(data), jsonrpc.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if m := &p.Messages[0]; m.Method == "elicitation/create" {
			if about := string(m.Params.Meta.Bytes); !strings.Contains(about, id[1]) {
				t.Errorf("the request belongs to %s; want the gate's task", about)
			}
			client.say(`{"jsonrpc":"2.0","id":` + string(m.ID.Bytes) + `,"result":{"action":"accept","content":{"interpretation":"snake"},` +
				`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + id[1] + `"}}}}`)
		}
	}
	if answer := seen[len(seen)-1]; !strings.Contains(answer, "Research Report: python (snake)") || !strings.Contains(answer, id[1]) {
		t.Errorf("the result is %s", answer)
	}
	if again := client.say(`{"jsonrpc":"2.0","id":6,"method":"tasks/result","params":{"taskId":"` + id[1] + `"}}`); !strings.Contains(again, "python (snake)") {
		t.Errorf("the result again is %s", again)
	}
	if ended := client.say(get); !strings.Contains(ended, `"status":"completed"`) {
		t.Errorf("the task is %s", ended)
	}

	direct := &line{t: t, url: upstream.String(), session: client.session}
	list := direct.say(`{"jsonrpc":"2.0","id":"direct","method":"tasks/list"}`)
	theirs := regexp.MustCompile(`"taskId":"([^"]+)"`).FindAllStringSubmatch(list, -1)
	if len(theirs) != 1 || strings.Contains(list, "tg_") {
		t.Fatalf("the server has %s; want one task of its own", list)
	}
	if client.received.Len() == 0 || strings.Contains(client.received.String(), theirs[0][1]) {
		t.Errorf("the client saw the id of the server's task %s", theirs[0][1])
	}
}

// A client without tasks waits in its request, while the gate polls the server's task.
func TestEverythingServerWithoutTask(t *testing.T) {
	testenv.NeedNode(t)
	upstream := everything(t)
	s := &site{}
	s.url, s.operator, s.token = openGate(t, behind(upstream), `
rules:
  - {match: "simulate-*", action: approve}
default: forward
tasks: {min_poll_interval: 100ms, max_poll_interval: 1s}
`)
	client := &line{t: t, url: s.url}
	client.open()
	answer := make(chan string, 1)
	go func() {
		answer <- client.say(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"simulate-research-query","arguments":{"topic":"go"}}}`)
	}()
	s.approveAll(t)
	if got := receive(t, answer); !strings.Contains(got, "Research Report: go") || strings.Contains(got, "related-task") {
		t.Errorf("the answer is %s", got)
	}
}
