package app_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// say sends a request in the session and returns the answer.
func say(t *testing.T, address, method, params string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", "s-1")
	return do(t, r)
}

func do(t *testing.T, r *http.Request) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func approve(t *testing.T, address, id string) string {
	t.Helper()
	return decide(t, address, id, "approve")
}

func decide(t *testing.T, address, id, decision string) string {
	t.Helper()
	look, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/approvals/"+id+"?arguments=all", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	look.Header.Set("Authorization", "Bearer secret-of-the-operators")
	_, shown, _ := strings.Cut(do(t, look), `"shownDigest":"`)
	shown, _, _ = strings.Cut(shown, `"`)
	body := strings.NewReader(`{"reason":"fine","shownDigest":"` + shown + `"}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/api/approvals/"+id+"/"+decision, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer secret-of-the-operators")
	return do(t, r)
}

// A pending call survives a restart: its task, its decision, and the state that the client
// sends back.
func TestRestart(t *testing.T) {
	var ran atomic.Int64
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "tools/call") {
			ran.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[{"type":"text","text":"done"}]}}`)
	}))
	defer up.Close()
	defer http.DefaultClient.CloseIdleConnections()
	file := filepath.Join(t.TempDir(), "state", "gate.db")
	text := strings.NewReplacer("store: 'memory:'", "store: 'sqlite:"+file+"'", "operators: {", "operators: {token: secret-of-the-operators, ").Replace(gatewayFor(up.URL)) +
		"waiting: {hold: 20ms}\nrules: [{match: 'hold_*', action: approve}]\ndefault: deny\n"

	first, stop := start(t, text)
	created := say(t, first.AgentAddr(), "tools/call", `{"name":"hold_task","task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if !strings.HasPrefix(id, "tg_") {
		t.Fatalf("no task in %s", created)
	}
	say(t, first.AgentAddr(), "tools/call", `{"name":"hold_plain"}`)
	list := say(t, first.AgentAddr(), "tasks/list", `{}`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	second, stop := start(t, text)
	if again := say(t, second.AgentAddr(), "tasks/list", `{}`); strings.Count(again, `"tg_`) != strings.Count(list, `"tg_`) || strings.Count(again, `"tg_`) != 2 {
		t.Errorf("before: %s\nafter: %s\nwant the same two tasks", list, again)
	}
	if answer := approve(t, second.OperatorAddr(), id); !strings.Contains(answer, `"approved"`) {
		t.Fatalf("approve: %s", answer)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := ran.Load(); n != 0 {
		t.Fatalf("%d calls ran although their client was not connected", n)
	}

	third, stop := start(t, text)
	if result := say(t, third.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(result, "done") {
		t.Errorf("tasks/result after two restarts: %s", result)
	}
	if n := ran.Load(); n != 1 {
		t.Errorf("%d calls ran; want 1", n)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	fourth, stop := start(t, text)
	if result := say(t, fourth.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(result, "done") || ran.Load() != 1 {
		t.Errorf("the result again, from the store: %s; %d calls ran", result, ran.Load())
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v; want it readable only by its owner", file, info, err)
	}
}

// A second gate on the same file fails to start, with an error that names the file.
func TestStoreInUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gate.db")
	text := strings.Replace(gatewayFor("http://127.0.0.1:1/"), "store: 'memory:'", "store: 'sqlite:"+file+"'", 1) + "default: deny\n"
	_, stop := start(t, text)
	if _, err := newApp(t, text); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a second gate: %v; want an error that names the file", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// idOf returns the id of the request in body, which the upstream's answer must repeat.
func idOf(body []byte) string {
	p, err := jsonrpc.Parse(body, jsonrpc.Limits{})
	if err != nil || !p.Messages[0].ID.Present() {
		return "1"
	}
	return string(p.Messages[0].ID.Bytes)
}
