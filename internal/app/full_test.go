package app_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// A result that does not fit into the store does not use space permanently: its call ends
// normally, and the next call can be held and run.
func TestResultThatDoesNotFitTheStore(t *testing.T) {
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		text := strings.Repeat("x", 2<<20)
		if strings.Contains(string(body), "hold_large") {
			text = strings.Repeat("x", 8<<20)
		}
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[{"type":"text","text":"`+text+`"}]}}`)
	}))
	defer up.Close()
	defer http.DefaultClient.CloseIdleConnections()
	file := filepath.Join(t.TempDir(), "gate.db")
	text := strings.NewReplacer("store: 'memory:'", "store: 'sqlite:"+file+"'", "operators: {", "operators: {token: secret-of-the-operators, ").Replace(gatewayFor(up.URL)) +
		"storage: {max_size: 4MiB}\nrules: [{match: 'hold_*', action: approve}]\ndefault: deny\n"
	a, stop := start(t, text)
	for _, tt := range []struct{ tool, want string }{
		{"hold_large", `"error_type":"result_too_large"`},
		{"hold_smaller", `"text":"xxxx`},
	} {
		created := say(t, a.AgentAddr(), "tools/call", `{"name":"`+tt.tool+`","task":{}}`)
		_, rest, _ := strings.Cut(created, `"taskId":"`)
		id, _, _ := strings.Cut(rest, `"`)
		approve(t, a.OperatorAddr(), id)
		for { // without reading the answer as it arrives
			if status := say(t, a.AgentAddr(), "tasks/get", `{"taskId":"`+id+`"}`); !strings.Contains(status, `"working"`) {
				break
			}
		}
		if result := say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(result, tt.want) {
			t.Errorf("%s: %.300s; want %s", tt.tool, result, tt.want)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
