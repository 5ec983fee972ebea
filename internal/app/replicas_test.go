package app_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Three replicas share one store: a call is held on one, decided on another and
// waited for on a third, and runs once. A client that listens at the third hears
// of every step, once and in order.
func TestReplicas(t *testing.T) {
	servers := map[string]func(t *testing.T) string{
		"PostgreSQL": func(t *testing.T) string {
			server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
			if !testenv.Available(t, err) {
				return ""
			}
			t.Cleanup(func() { server.Stop() })
			return server.URL()
		},
		"Redis": func(t *testing.T) string {
			server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
			if !testenv.Available(t, err) {
				return ""
			}
			t.Cleanup(func() { server.Stop() })
			return server.URL()
		},
	}
	for name, open := range servers {
		t.Run(name, func(t *testing.T) {
			if url := open(t); url != "" {
				shareStore(t, url)
			}
		})
	}
}

func shareStore(t *testing.T, store string) {
	var ran atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		if strings.Contains(string(body), "tools/call") {
			ran.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}]}}`)
	}))
	defer up.Close()
	defer http.DefaultClient.CloseIdleConnections()
	text := strings.NewReplacer("store: 'memory:'", "store: '"+store+"'", "operators: {", "operators: {token: secret, ").Replace(gatewayFor(up.URL)) +
		"rules: [{match: 'hold_*', action: approve}]\ndefault: deny\n"
	a, stopA := start(t, text)
	b, stopB := start(t, text)
	c, stopC := start(t, text)

	next := hear(t, c.AgentAddr())
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_x","task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	result := make(chan string, 2)
	for _, replica := range []string{c.AgentAddr(), a.AgentAddr()} {
		go func() { result <- say(t, replica, "tasks/result", `{"taskId":"`+id+`"}`) }()
	}
	if answer := approve(t, b.OperatorAddr(), id); !strings.Contains(answer, `"approved"`) && !strings.Contains(answer, `"executing"`) {
		t.Errorf("approve: %s", answer)
	}
	for range 2 {
		if answer := <-result; !strings.Contains(answer, "done") {
			t.Errorf("tasks/result: %s", answer)
		}
	}
	if n := ran.Load(); n != 1 {
		t.Errorf("the call ran %d times; want once", n)
	}
	for _, want := range []string{"Waiting for approval", "Approved", "Running", `"status":"completed"`} {
		if told := next(); !strings.Contains(told, id) || !strings.Contains(told, want) {
			t.Errorf("told %s; want %s", told, want)
		}
	}
	for _, stop := range []func() error{stopA, stopB, stopC} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}

// hear opens the stream on which a client hears of its tasks, and returns what
// reads the next message.
func hear(t *testing.T, address string) (next func() string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	events := jsonrpc.NewEventReader(resp.Body, 1<<20)
	return func() string {
		e, err := events.Next()
		if err != nil {
			return err.Error()
		}
		return string(e.Data)
	}
}
