package app_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// A logLine is a decoded line of the log.
type logLine map[string]any

// about returns the lines of the log that are about a task.
func (l *lines) about(t *testing.T, id string) []logLine {
	t.Helper()
	return decoded(t, l.with(`"task_id":"`+id+`"`))
}

func decoded(t *testing.T, texts []string) []logLine {
	t.Helper()
	var all []logLine
	for _, text := range texts {
		var one logLine
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

func holding(up, store string) string {
	return strings.NewReplacer("store: 'memory:'", "store: '"+store+"'", "operators: {", "operators: {token: secret-of-the-operators, ").
		Replace(gatewayFor(up)) + "rules: [{match: 'hold_*', action: approve}]\ndefault: deny\n"
}

func createTask(t *testing.T, address, tool string) (id string) {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	created := say(t, address, "tools/call", `{"name":"`+tool+`","task":{"ttl":99999999999}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ = strings.Cut(rest, `"`)
	if !strings.HasPrefix(id, "tg_") {
		t.Fatalf("no task in %s", created)
	}
	return id
}

// wantLine fails the test unless a line contains all fields of want.
func wantLine(t *testing.T, all []logLine, want logLine) {
	t.Helper()
next:
	for _, one := range all {
		for key, value := range want {
			if one[key] != value {
				continue next
			}
		}
		return
	}
	t.Errorf("no line has %v in:\n%v", want, all)
}

// F-001.7 of REQ-CORE-003, NFR-001 of REQ-GOV-001: each line about a call names its request,
// task, tool and principal, on every replica.
func TestLogLinesNameTheirCall(t *testing.T) {
	text := holding(answering(t, "done"), "sqlite:"+filepath.Join(t.TempDir(), "gate.db"))
	first, log, stop := startLogged(t, text)
	id := createTask(t, first.AgentAddr(), "hold_it")
	received := decoded(t, log.with(`"MCP request received"`, `"method":"tools/call"`))
	if len(received) != 1 {
		t.Fatalf("requests received: %v", received)
	}
	correlation := received[0]["correlation_id"]
	wantLine(t, received, logLine{"has_task_metadata": true, "client_ip": "127.0.0.1", "principal": "anonymous"})
	wantLine(t, decoded(t, log.with(`"verdict"`)), logLine{"correlation_id": correlation, "action": "approve", "level": "INFO"})
	wantLine(t, decoded(t, log.with(`"time to live limited"`)), logLine{"correlation_id": correlation, "tool": "hold_it"})
	wantLine(t, log.about(t, id), logLine{"msg": "Task created", "level": "INFO"})
	wantLine(t, log.about(t, id), logLine{"msg": "Task status changed", "from": "working", "to": "input_required", "level": "INFO"})
	lines := log.about(t, id)
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	second, log, stop := startLogged(t, text) // as another replica would
	if answer := approve(t, second.OperatorAddr(), id); !strings.Contains(answer, `"approved"`) {
		t.Fatalf("approve: %s", answer)
	}
	if result := say(t, second.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(result, "done") {
		t.Fatalf("tasks/result: %s", result)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	after := log.about(t, id)
	wantLine(t, after, logLine{"msg": "call decided", "from": "input_required", "to": "approved"})
	wantLine(t, after, logLine{"msg": "Task status changed", "from": "approved", "to": "executing"})
	wantLine(t, after, logLine{"msg": "upstream execution", "path": "sync", "level": "DEBUG"})
	wantLine(t, after, logLine{"msg": "call run", "from": "executing", "to": "completed"})
	for _, one := range append(lines, after...) {
		principal, _ := one["principal"].(string)
		if one["correlation_id"] != correlation || one["tool"] != "hold_it" || !strings.HasPrefix(principal, "anonymous:") {
			t.Errorf("%v does not name request %v, tool hold_it and an anonymous principal", one, correlation)
		}
	}
	asked := decoded(t, log.with(`"MCP request received"`, `"method":"tasks/result"`))
	wantLine(t, after, logLine{"msg": "Task status changed", "to": "executing", "request_correlation_id": asked[0]["correlation_id"]})
}

// A cancellation is logged at level info.
func TestCancellationIsLogged(t *testing.T) {
	a, log, stop := startLogged(t, holding(answering(t, "done"), "memory:"))
	id := createTask(t, a.AgentAddr(), "hold_it")
	say(t, a.AgentAddr(), "tasks/cancel", `{"taskId":"`+id+`"}`)
	wantLine(t, log.about(t, id), logLine{"msg": "Task status changed", "level": "INFO", "from": "input_required", "to": "cancelled"})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// The log shows invisible characters of clients' texts, and those that change the direction of
// text, escaped.
func TestHostileTextInLog(t *testing.T) {
	a, log, stop := startLogged(t, holding(answering(t, "done"), "memory:"))
	say(t, a.AgentAddr(), "tools/call", `{"name":"x\u202Egpj.exe\u200b\u007f"}`)
	found := log.with(`"verdict"`, `x\u202egpj.exe\u200b\u007f`)
	if len(found) != 1 {
		t.Errorf("the verdict is not logged with the escaped name: %v", log.with(`"verdict"`))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for _, text := range log.with() {
		for _, r := range strings.TrimSuffix(text, "\n") {
			if r == utf8.RuneError || safetext.Hidden(r) {
				t.Errorf("hidden character %U in %s", r, text)
			}
		}
	}
}

// CORE-007 F-001.8: when a client initializes, the upstream's capabilities are logged.
func TestUpstreamCapabilitiesAreLogged(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"},`+
			`"capabilities":{"tools":{"listChanged":true},"tasks":{"requests":{"tools":{"call":{}}}}}}}`)
	}))
	t.Cleanup(up.Close)
	a, log, stop := startLogged(t, holding(up.URL, "memory:"))
	t.Cleanup(func() { _ = stop() })
	say(t, a.AgentAddr(), "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
	wantLine(t, decoded(t, log.with("upstream capabilities")), logLine{"level": "INFO", "tasks": true, "sse": false})
}

// GOV-001 F-002: the poll interval is never shorter than configured.
func TestShortestPollInterval(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(up.Close)
	a, stop := start(t, holding(up.URL, "memory:")+"tasks: {min_poll_interval: 10s}\n")
	t.Cleanup(func() { _ = stop() })
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_a","task":{}}`)
	if !strings.Contains(created, `"pollInterval":10000,`) && !strings.Contains(created, `"pollInterval":10000}`) {
		t.Errorf("a new task is %s; want a poll interval of 10 s", created)
	}
}
