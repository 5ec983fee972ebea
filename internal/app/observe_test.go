package app_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/spans"
)

// NFR-001 of REQ-GOV-001 and REQ-CORE-003: a held call is counted in metrics by its tool. In
// traces, the verdict is a child of its request, and the wait for approval is linked to the
// request.
func TestHeldCallIsObserved(t *testing.T) {
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[]}}`)
	}))
	defer up.Close()
	defer http.DefaultClient.CloseIdleConnections()
	traces := new(spans.Collector)
	collecting := httptest.NewServer(traces)
	defer collecting.Close()
	text := strings.Replace(gatewayFor(up.URL), "operators: {", "operators: {token: secret-of-the-operators, ", 1) +
		"waiting: {hold: 20ms}\nrules: [{match: 'hold_*', action: approve}]\ndefault: deny\n" +
		"telemetry: {traces: {endpoint: " + collecting.URL + "}}\n"
	a, stop := start(t, text)

	say(t, a.AgentAddr(), "tools/call", `{"name":"hold_plain"}`) // not decided while it waits
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"hold_task","task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if answer := approve(t, a.OperatorAddr(), id); !strings.Contains(answer, id) {
		t.Fatalf("approve: %s", answer)
	}
	say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`)
	for _, want := range []string{
		`task_transitions_total{from="approved",to="executing"} 1`,
		`task_transitions_total{from="executing",to="completed"} 1`,
		`tasks_created_total{tool="hold_task"} 1`,
		`tasks_completed_total{outcome="completed",tool="hold_task"} 1`,
		`upstream_result_bytes_total 14`,
		`tasks_active{status="input_required"} 1`,
		`tasks_active{status="executing"} 0`,
		`task_transitions_total{from="input_required",to="approved"} 1`,
		`tasks_duration_seconds_count{stage="approval_wait"} 1`,
		`tasks_duration_seconds_count{stage="execution"} 1`,
		`blocking_approval_total{result="timeout"} 1`,
	} {
		awaitMetric(t, a.OperatorAddr(), "thoughtgate_"+want+"\n")
	}
	if err := stop(); err != nil { // which also sends the spans
		t.Fatal(err)
	}

	wait := traces.Find(t, "approval.wait", spans.Any)
	if len(wait.Links) != 1 || wait.Parent != "" {
		t.Fatalf("approval.wait has parent %q and links %v; want one link, to the request", wait.Parent, wait.Links)
	}
	traces.Find(t, "policy.evaluate", func(s spans.Span) bool { return s.Parent != "" && strings.HasPrefix(wait.Links[0], s.Trace+"-") })
}

// NFR-001 of REQ-GOV-001: withdrawn and rejected calls, and calls over a limit, are counted as
// such.
func TestHeldCallsAreCounted(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	text := strings.Replace(gatewayFor(answering(t, "done")), "operators: {", "operators: {token: secret-of-the-operators, ", 1) +
		"tasks: {max_pending_per_owner: 2}\nrules: [{match: 'hold_*', action: approve}]\ndefault: deny\n"
	a, stop := start(t, text)
	hold := func(tool string) string {
		_, rest, _ := strings.Cut(say(t, a.AgentAddr(), "tools/call", `{"name":"`+tool+`","task":{}}`), `"taskId":"`)
		id, _, _ := strings.Cut(rest, `"`)
		return id
	}
	withdrawn, rejected := hold("hold_withdrawn"), hold("hold_rejected")
	if id := hold("hold_refused"); id != "" {
		t.Errorf("%s was held; want a refusal at the limit", id)
	}
	say(t, a.AgentAddr(), "tasks/cancel", `{"taskId":"`+withdrawn+`"}`)
	decide(t, a.OperatorAddr(), rejected, "reject")
	for _, want := range []string{
		`tasks_created_total{tool="hold_withdrawn"} 1`,
		`tasks_created_total{tool="hold_rejected"} 1`,
		`tasks_completed_total{outcome="cancelled",tool="hold_withdrawn"} 1`,
		`tasks_completed_total{outcome="rejected",tool="hold_rejected"} 1`,
		`task_transitions_total{from="input_required",to="cancelled"} 1`,
		`task_transitions_total{from="input_required",to="rejected"} 1`,
		`tasks_duration_seconds_count{stage="total"} 2`,
		`tasks_active{status="input_required"} 0`,
		`task_rate_limited_total 1`,
	} {
		awaitMetric(t, a.OperatorAddr(), "thoughtgate_"+want+"\n")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// awaitMetric waits for a line on the metrics page, because a call may be counted after its
// answer is sent.
func awaitMetric(t *testing.T, operators, line string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		_, page := get(t, "http://"+operators+"/metrics")
		if strings.Contains(page, line) {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("metrics: no %s", line)
			return
		}
	}
}
