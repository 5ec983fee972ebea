package app_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	counterLine  = regexp.MustCompile(`(?m)^thoughtgate_(\w+)_total(?:\{(.*)\})? (\S+)$`)
	counterLabel = regexp.MustCompile(`\w+="([^"]*)",?`)
)

// counters returns the counters on the metrics page: the key of each is its name and label
// values. It omits counters that can move at any time: the gate's requests to upstreams, and
// the notifications to clients.
func counters(t *testing.T, operators string) map[string]string {
	t.Helper()
	_, page := get(t, "http://"+operators+"/metrics")
	found := make(map[string]string)
	for _, m := range counterLine.FindAllStringSubmatch(page, -1) {
		series := strings.TrimSpace(m[1] + " " + strings.TrimSpace(counterLabel.ReplaceAllString(m[2], "$1 ")))
		if series != "mcp_upstream_requests success" && series != "sse_notifications gate" {
			found[series] = m[3]
		}
	}
	return found
}

const unanswered = "mcp_upstream_requests error"

// moved returns the series other than zero in alphabetical order, with their values if these
// are not 1.
func moved(all map[string]string) []string {
	var series []string
	for name, value := range all {
		switch {
		case value == "0":
		case value == "1", name == unanswered: // also counts requests of the gate itself
			series = append(series, name)
		default:
			series = append(series, name+" = "+value)
		}
	}
	slices.Sort(series)
	return series
}

// outcomes are the possible outcomes of a call. Each has the actions of the agent and of the
// approver, and the counters that move.
var outcomes = map[string]struct {
	settings string
	act      func(t *testing.T, agents, operators string)
	want     string // separated by semicolons
}{
	"forwarded": {
		"", func(t *testing.T, agents, _ string) { say(t, agents, "tools/call", `{"name":"get_x"}`) },
		"mcp_requests tools/call success; policy_verdicts forward tool false",
	},
	"denied": {
		"", func(t *testing.T, agents, _ string) { say(t, agents, "tools/call", `{"name":"drop_x"}`) },
		"mcp_refused policy_denied; mcp_requests tools/call error; policy_verdicts deny tool false",
	},
	"held": {
		"", func(t *testing.T, agents, _ string) { createTask(t, agents, "hold_x") },
		"audit_events asked; audit_events held; mcp_requests tools/call success; policy_verdicts approve tool false; " +
			"task_transitions working input_required; tasks_created hold_x",
	},
	"approved": {
		"", func(t *testing.T, agents, operators string) {
			id := createTask(t, agents, "hold_x")
			approve(t, operators, id)
			say(t, agents, "tasks/result", `{"taskId":"`+id+`"}`)
		},
		"approvals_ended approved default; audit_events asked; audit_events decided; audit_events delivered; audit_events finished; audit_events held; " +
			"audit_events rechecked; audit_events started; mcp_requests tasks/result success; mcp_requests tools/call " +
			"success; policy_verdicts approve tool false; task_transitions approved executing; task_transitions executing " +
			"completed; task_transitions input_required approved; task_transitions working input_required; tasks_completed " +
			"completed hold_x; tasks_created hold_x; upstream_execution sync success; upstream_result_bytes = 14",
	},
	"rejected": {
		"", func(t *testing.T, agents, operators string) {
			decide(t, operators, createTask(t, agents, "hold_x"), "reject")
		},
		"approvals_ended rejected default; audit_events asked; audit_events decided; audit_events held; mcp_requests tools/call success; policy_verdicts " +
			"approve tool false; task_transitions input_required rejected; task_transitions working input_required; " +
			"tasks_completed rejected hold_x; tasks_created hold_x",
	},
	"expired": {
		"workflows: {default: {timeout: 1s}}\ntasks: {cleanup_interval: 1s}\n", func(t *testing.T, agents, _ string) { createTask(t, agents, "hold_x") },
		"approvals_ended expired default; audit_events asked; audit_events expired; audit_events held; mcp_requests tools/call success; policy_verdicts " +
			"approve tool false; task_transitions input_required expired; task_transitions working input_required; " +
			"tasks_completed expired hold_x; tasks_created hold_x",
	},
	"cancelled": {
		"", func(t *testing.T, agents, _ string) {
			say(t, agents, "tasks/cancel", `{"taskId":"`+createTask(t, agents, "hold_x")+`"}`)
		},
		"approvals_ended cancelled default; audit_events asked; audit_events cancelled; audit_events held; mcp_requests tasks/cancel success; mcp_requests " +
			"tools/call success; policy_verdicts approve tool false; task_transitions input_required cancelled; " +
			"task_transitions working input_required; tasks_completed cancelled hold_x; tasks_created hold_x",
	},
	"upstream error": {
		"", func(t *testing.T, agents, _ string) { say(t, agents, "tools/call", `{"name":"get_broken"}`) },
		"mcp_requests tools/call error; mcp_upstream_requests error; policy_verdicts forward tool false",
	},
	"upstream unreachable": {
		"", func(t *testing.T, agents, _ string) { say(t, agents, "tools/call", `{"name":"get_x"}`) },
		"mcp_refused upstream_unreachable; mcp_requests tools/call error; mcp_upstream_requests error; policy_verdicts " +
			"forward tool false",
	},
}

// Issue 9, C12: before the first request, the page shows every documented counter as zero.
// Each outcome of a call moves its own counters, and no others.
func TestEachOutcomeMovesItsCounters(t *testing.T) {
	document, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("(?m)^- `thoughtgate_([a-z_]+)_total` \\(counter(.*?)\\):").FindAllStringSubmatch(string(document), -1)
	for name, tt := range outcomes {
		t.Run(name, func(t *testing.T) {
			defer http.DefaultClient.CloseIdleConnections()
			up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				if strings.Contains(string(body), "get_broken") {
					w.WriteHeader(http.StatusInternalServerError)
				}
				io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[]}}`)
			}))
			t.Cleanup(up.Close)
			address := up.URL
			if name == "upstream unreachable" {
				address = "http://127.0.0.1:1"
			}
			text := strings.Replace(gatewayFor(address), "operators: {", "operators: {token: secret-of-the-operators, ", 1) +
				"rules: [{match: 'get_*', action: forward}, {match: 'hold_*', action: approve}]\ndefault: deny\n" +
				"channels: {unused: {webhook: {url: 'https://127.0.0.1:1/', secret: " + secretOf(questionKey) + "}}}\n" + tt.settings
			a, stop := start(t, text)
			before := counters(t, a.OperatorAddr())
			if got := moved(before); len(got) > 0 && got[0] != unanswered {
				t.Errorf("before the first request: %q; want all counters at zero", got)
			}
			if len(documented) < 20 {
				t.Errorf("the documentation has only %d counters", len(documented))
			}
			for _, m := range documented {
				if !strings.Contains(m[2], "tool") && !strings.Contains(m[2], "upstream") && !hasSeries(before, m[1]) {
					t.Errorf("%s_total is missing before the first request", m[1])
				}
			}
			tt.act(t, a.AgentAddr(), a.OperatorAddr())
			want, got := strings.Split(tt.want, "; "), []string(nil)
			t.Cleanup(func() {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
			eventually(t, "the counters are as they should be", func() bool {
				got = moved(counters(t, a.OperatorAddr()))
				return slices.Equal(got, want)
			})
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// hasSeries reports whether a counter has this name.
func hasSeries(all map[string]string, name string) bool {
	for series := range all {
		if first, _, _ := strings.Cut(series, " "); first == name {
			return true
		}
	}
	return false
}
