package metrics_test

import (
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/metrics"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestMetricsAreStable checks the names, types, help texts and labels of all metrics (NFR-001 in
// REQ-CORE-003). Dashboards and alerts depend on them.
func TestMetricsAreStable(t *testing.T) {
	const golden = "testdata/page.txt"
	m := metrics.New()
	m.RequestDone("tools/call", metrics.Success, 2*time.Millisecond)
	m.RequestDone("tools/call", metrics.Error, 20*time.Second)
	m.RequestDone("batch", metrics.Success, time.Minute)
	m.RequestDone("tools/cal", "odd", time.Hour)
	m.UpstreamDone(metrics.Success, time.Millisecond)
	m.UpstreamDone(metrics.Timeout, time.Minute)
	m.UpstreamDone("odd", 0)
	m.Refused("parse_error")
	m.Refused("parse_error")
	m.BatchSize(3)
	m.ConnOpened()
	m.ConnOpened()
	m.ConnClosed()
	m.StreamOpened(metrics.StreamGet)
	m.StreamOpened(metrics.StreamPost)
	m.StreamOpened(metrics.StreamPost)
	m.StreamClosed(metrics.StreamGet)
	m.Notified(metrics.FromGate)
	m.Notified(metrics.FromGate)
	m.SubscriptionOpened()
	m.SubscriptionOpened()
	m.SubscriptionClosed()
	m.Reconnected(metrics.Success)
	m.Reconnected(metrics.Failed)
	m.Verdict("tool", "deny", false)
	m.Verdict("tool", "approve", true)
	m.InvalidTask("required")
	m.ToolsListed("crm", map[string]int{"optional": 2})
	m.Reloaded(metrics.Success)
	m.TaskHeld("delete_user")
	m.TaskHeld("delete_user")
	m.TaskMoved("working", "input_required")
	m.TaskMoved("working", "input_required")
	m.TaskRefused()
	m.TaskMoved("input_required", "approved")
	m.TaskMoved("input_required", "rejected")
	m.TaskEnded("delete_user", "rejected")
	m.TasksCounted(map[string]int{"executing": 7}, time.Time{})
	m.SetBuild("v1.2.3", "go1.26")
	m.AddErrorTypes("overloaded")
	m.AddTransition("working", "failed")
	m.AddSteps("asked")
	m.TaskTook(metrics.StageApproval, time.Minute)
	m.WaitEnded(metrics.WaitApproved, time.Minute)
	m.ResultKept(70)
	m.ZombiePrevented()
	m.ResultStreamed(metrics.Success)
	m.Audited("held")
	m.AuditFailed()
	m.AddChannel("risk")
	m.AddWorkflow("ops")
	m.ApprovalsCounted(map[string]int{"ops": 3, "finance": 1})
	m.ApprovalsCounted(map[string]int{"ops": 2})
	m.ApprovalSeen("ops", 20*time.Second)
	m.ApprovalEnded("ops", "approved", time.Minute)
	m.ApprovalEnded("ops", "expired", time.Hour)
	m.ChannelReceives("risk", nil)
	m.ChannelSent("risk", nil)
	m.ChannelWaiting("risk", 2)

	got := own(scrape(t, m))
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
}

// TestKnownSeriesBeginWithZero checks that every series with known labels has the value 0 before the
// first event (NFR-001), so that rates include that event.
func TestKnownSeriesBeginWithZero(t *testing.T) {
	page := scrape(t, metrics.New())
	for _, series := range []string{
		`mcp_requests_total{method="tools/call",status="error"}`,
		`mcp_upstream_requests_total{status="timeout"}`,
		`policy_verdicts_total{action="deny",kind="tool",observed="false"}`,
		`task_validation_errors_total{error="required"}`,
		`config_reloads_total{status="error"}`,
		`tasks_active{status="input_required"}`,
		`tasks_duration_seconds_count{stage="approval_wait"}`,
		`tasks_oldest_pending_seconds`,
		`blocking_approval_total{result="client_disconnected"}`,
		`upstream_execution_total{path="task",status="error"}`,
		`upstream_lazy_polls_total{status="not_found"}`,
		`upstream_result_streams_total{status="success"}`,
		`upstream_cancellations_total{result="timeout"}`,
		`sse_reconnections_total{result="failed"}`,
		`task_rate_limited_total`,
		`zombie_execution_prevented_total`,
	} {
		if line := "\nthoughtgate_" + series + " 0\n"; !strings.Contains(page, line) {
			t.Errorf("the page lacks %s with the value 0", series)
		}
	}
}

// TestOldestPendingIsAge checks that the page shows the age of the oldest pending call at the time
// of the scrape.
func TestOldestPendingIsAge(t *testing.T) {
	m := metrics.New()
	m.TasksCounted(nil, time.Now().Add(-time.Hour))
	_, rest, _ := strings.Cut(scrape(t, m), "\nthoughtgate_tasks_oldest_pending_seconds ")
	value, _, _ := strings.Cut(rest, "\n")
	if age, err := strconv.ParseFloat(value, 64); err != nil || age < 3600 || age > 7200 {
		t.Errorf("the oldest call is %s s old; want an hour", value)
	}
}

func TestPageHasRuntimeAndProcess(t *testing.T) {
	page := scrape(t, metrics.New())
	for _, name := range []string{"go_goroutines", "process_cpu_seconds_total"} {
		if !strings.Contains(page, "\n"+name+" ") {
			t.Errorf("the page lacks %s", name)
		}
	}
}

func TestMethodLabel(t *testing.T) {
	tests := []struct{ method, want string }{
		{"initialize", "initialize"},
		{"server/discover", "server/discover"},
		{"subscriptions/listen", "subscriptions/listen"},
		{"tasks/result", "tasks/result"},
		{"tasks/update", "tasks/update"},
		{"notifications/cancelled", "notifications/cancelled"},
		{"notifications/tasks", "notifications/tasks"},
		{"response", "response"},
		{"GET", "GET"},
		{"DELETE", "DELETE"},
		{"Tools/Call", "__other__"},
		{"evil\"} 1\n", "__other__"},
		{"\xff", "__other__"},
		{"", "__other__"},
	}
	for _, tt := range tests {
		t.Run(tt.method, func(t *testing.T) {
			m := metrics.New()
			m.RequestDone(tt.method, metrics.Success, time.Millisecond)
			want := `thoughtgate_mcp_requests_total{method="` + tt.want + `",status="success"} 1`
			if page := scrape(t, m); !strings.Contains(page, want) {
				t.Errorf("no line %s in\n%s", want, own(page))
			}
		})
	}
}

// TestToolsAreBounded checks the limit of series for tools, since agents choose the names of
// the tools that they call.
func TestToolsAreBounded(t *testing.T) {
	m := metrics.New()
	for i := range 1000 {
		m.TaskHeld("tool_" + strconv.Itoa(i))
	}
	m.TaskHeld("tool_0")
	m.TaskHeld(strings.Repeat("x", 10_000))

	page := scrape(t, m)
	if got := strings.Count(page, "\nthoughtgate_tasks_created_total{"); got != 201 {
		t.Errorf("%d series for 1000 tools; want 201", got)
	}
	for _, want := range []string{`{tool="tool_0"} 2`, `{tool="__other__"} 801`} {
		if !strings.Contains(page, "thoughtgate_tasks_created_total"+want) {
			t.Errorf("the page lacks tasks_created_total%s", want)
		}
	}
}

func TestRefusedIsBounded(t *testing.T) {
	m := metrics.New()
	for i := range 1000 {
		m.Refused("type_" + strconv.Itoa(i))
	}
	m.Refused("type_0")

	page := scrape(t, m)
	if got := strings.Count(page, "\nthoughtgate_mcp_refused_total{"); got > 201 {
		t.Errorf("%d series for 1000 error types; want at most 201", got)
	}
	for _, want := range []string{
		`thoughtgate_mcp_refused_total{error_type="type_0"} 2`,
		`thoughtgate_mcp_refused_total{error_type="__other__"} 800`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no line %s in\n%s", want, own(page))
		}
	}
}

func TestConcurrentFirstUse(t *testing.T) {
	const callers = 16
	m := metrics.New()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			m.RequestDone("tools/call", metrics.Success, time.Millisecond)
			m.Refused("overloaded")
		})
	}
	wg.Wait()

	page := scrape(t, m)
	for _, want := range []string{
		`thoughtgate_mcp_requests_total{method="tools/call",status="success"} 16`,
		`thoughtgate_mcp_request_duration_seconds_count{method="tools/call"} 16`,
		`thoughtgate_mcp_refused_total{error_type="overloaded"} 16`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no line %s in\n%s", want, own(page))
		}
	}
}

func TestNilMetrics(t *testing.T) {
	var m *metrics.Metrics
	m.RequestDone("tools/call", metrics.Success, time.Second)
	m.UpstreamDone(metrics.Success, time.Second)
	m.Refused("parse_error")
	m.BatchSize(1)
	m.ConnOpened()
	m.ConnClosed()
	m.StreamOpened(metrics.StreamGet)
	m.StreamClosed(metrics.StreamGet)
	m.SubscriptionOpened()
	m.SubscriptionClosed()
	m.Reconnected(metrics.Failed)
	m.Notified(metrics.FromGate)

	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusNotFound {
		t.Errorf("status = %d; want 404", w.Code)
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	m := metrics.New()
	for name, count := range map[string]func(){
		"request":  func() { m.RequestDone("tools/call", metrics.Success, time.Millisecond) },
		"other":    func() { m.RequestDone("no/such", metrics.Error, time.Millisecond) },
		"upstream": func() { m.UpstreamDone(metrics.Timeout, time.Millisecond) },
		"refusal":  func() { m.Refused("overloaded") },
		"stream":   func() { m.StreamOpened(metrics.StreamPost); m.StreamClosed(metrics.StreamPost) },
	} {
		if got := testing.AllocsPerRun(100, count); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}

func BenchmarkRequestDone(b *testing.B) {
	m := metrics.New()
	b.ReportAllocs()
	for b.Loop() {
		m.RequestDone("tools/call", metrics.Success, 3*time.Millisecond)
	}
}

func BenchmarkRequestDoneParallel(b *testing.B) {
	m := metrics.New()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.RequestDone("tools/call", metrics.Success, 3*time.Millisecond)
		}
	})
}

func BenchmarkRequestDoneNil(b *testing.B) {
	var m *metrics.Metrics
	b.ReportAllocs()
	for b.Loop() {
		m.RequestDone("tools/call", metrics.Success, 3*time.Millisecond)
	}
}

func BenchmarkScrape(b *testing.B) {
	m := metrics.New()
	m.RequestDone("tools/call", metrics.Success, 3*time.Millisecond)
	h := m.Handler()
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept-Encoding", "gzip")
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// scrape returns the page of m, requested over HTTP.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	srv := httptest.NewServer(m.Handler())
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status = %d: %s", resp.StatusCode, body)
	}
	return string(body)
}

// own returns the lines of page with metrics of the gate.
func own(page string) string {
	var b strings.Builder
	for line := range strings.Lines(page) {
		if strings.Contains(line, "thoughtgate_") {
			b.WriteString(line)
		}
	}
	return b.String()
}
