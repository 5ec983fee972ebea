package app_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// lines is a log that a test can read while it is written.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements [io.Writer].
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

// with returns the lines that contain all texts.
func (l *lines) with(texts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
next:
	for line := range strings.Lines(l.all.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// startLogged is like start, with a log of all levels.
func startLogged(t *testing.T, text string) (*app.App, *lines, func() error) {
	t.Helper()
	log := new(lines)
	a, err := app.New(load(t, text), logging.New(log, "json", slog.LevelDebug))
	if err != nil {
		t.Fatal(err)
	}
	return a, log, run(t, a)
}

// paging returns the URL of an upstream with two pages of tools. Later tools are on the second
// page.
func paging(t *testing.T, first string, second *atomic.Pointer[string]) string {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		result := `{"tools":[` + first + `],"nextCursor":"2"}`
		switch {
		case bytes.Contains(body, []byte(`"initialize"`)):
			result = `{"capabilities":{"tools":{}}}`
		case bytes.Contains(body, []byte(`"cursor"`)):
			result = `{"tools":[` + *second.Load() + `]}`
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":`+result+`}`)
	}))
	t.Cleanup(up.Close)
	return up.URL
}

// F-002.6 and NF-003.2 of REQ-CORE-007: tools_by_annotation counts all tools of each upstream,
// on all pages. F-002.5, NF-003.1: each decision is logged once at INFO. F-003.3: a tool that
// is added later is logged at WARN.
func TestToolsAreCountedByAnnotation(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	var second, none atomic.Pointer[string]
	tools, nothing := `{"name":"hold_c"},{"name":"get_d"}`, ``
	second.Store(&tools)
	none.Store(&nothing)
	crm := paging(t, `{"name":"hold_a"},{"name":"hold_b"},{"name":"get_a"}`, &second)
	files := paging(t, `{"name":"hold_a"}`, &none)
	text := strings.Replace(gatewayFor(crm), "upstreams: [{url: "+crm+"}]",
		"upstreams: [{name: crm, url: "+crm+"}, {name: files, url: "+files+"}]", 1) +
		"rules: [{match: 'hold_*', action: approve}, {match: 'get_*', action: forward}]\ndefault: deny\n"
	a, log, stop := startLogged(t, text)

	list := func(upstream, params string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.AgentAddr()+"/mcp/"+upstream,
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":`+params+`}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if answer := do(t, r); !strings.Contains(answer, `"tools"`) {
			t.Fatalf("tools/list: %s", answer)
		}
	}
	for range 2 {
		list("crm", `{}`)
		list("crm", `{"cursor":"2"}`)
		list("files", `{}`)
		list("files", `{"cursor":"2"}`)
	}
	for _, want := range []string{
		`tools_by_annotation{annotation="optional",upstream="crm"} 3`,
		`tools_by_annotation{annotation="forbidden",upstream="crm"} 2`,
		`tools_by_annotation{annotation="optional",upstream="files"} 1`,
	} {
		awaitMetric(t, a.OperatorAddr(), "thoughtgate_"+want+"\n")
	}
	if told := log.with(`"tool annotation"`, `"level":"INFO"`, `"upstream":"crm"`, `"tool":"hold_a"`, `"task_support":"optional"`, `"upstream_tasks":`, `"yaml_action":"approve"`); len(told) != 1 {
		t.Errorf("the log has %d lines about hold_a; want 1: %q", len(told), told)
	}
	if told := log.with("New tool discovered"); len(told) != 0 {
		t.Errorf("tools of the first list are logged as new: %q", told)
	}
	more := tools + `,{"name":"hold_new"}`
	second.Store(&more)
	list("crm", `{"cursor":"2"}`)
	if told := log.with("New tool discovered", `"level":"WARN"`, `"tool":"hold_new"`, `"upstream":"crm"`); len(told) != 1 {
		t.Errorf("the new tool is logged in %d lines; want 1", len(told))
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// NF-003.3 of REQ-CORE-007, end to end: a call without its required task, or with a malformed
// one, is counted. No task is forbidden (design 6): the gate itself keeps a task that the
// upstream does not support. NFR-001 of REQ-GOV-001: the first transition of a task is
// counted, and the age of the oldest waiting call is shown.
func TestTasksAreCountedFromTheStart(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	text := gatewayFor(answering(t, "done")) +
		"tasks: {force_required: [hold_forced], cleanup_interval: 1s}\nrules: [{match: 'hold_*', action: approve}]\ndefault: deny\n"
	a, stop := start(t, text)
	for _, want := range []string{
		`task_validation_errors_total{error="required"} 0`,
		`task_transitions_total{from="working",to="input_required"} 0`,
		`tasks_oldest_pending_seconds 0`,
		`mcp_refused_total{error_type="task_required"} 0`,
		`audit_events_total{step="decided"} 0`,
	} {
		awaitMetric(t, a.OperatorAddr(), "thoughtgate_"+want+"\n")
	}
	awaitMetric(t, a.OperatorAddr(), "thoughtgate_build_info{go_version=")
	if answer := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_forced"}`); !strings.Contains(answer, "task_required") {
		t.Errorf("a call without a task: %s", answer)
	}
	if answer := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_x","task":{"ttl":-1}}`); !strings.Contains(answer, "-32602") {
		t.Errorf("a call with a malformed task: %s", answer)
	}
	say(t, a.AgentAddr(), "tools/call", `{"name":"hold_x","task":{}}`)
	for _, want := range []string{
		`task_validation_errors_total{error="required"} 1`,
		`task_validation_errors_total{error="malformed"} 1`,
		`task_transitions_total{from="working",to="input_required"} 1`,
		`tasks_active{status="working"} 0`,
		`tasks_active{status="input_required"} 1`,
	} {
		awaitMetric(t, a.OperatorAddr(), "thoughtgate_"+want+"\n")
	}
	eventually(t, "the oldest call has an age", func() bool {
		_, page := get(t, "http://"+a.OperatorAddr()+"/metrics")
		return !strings.Contains(page, "thoughtgate_tasks_oldest_pending_seconds 0\n")
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
