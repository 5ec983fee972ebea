package app_test

import (
	"net/http"
	"strings"
	"testing"
)

// The load of approvers is counted by workflow: waiting calls, the time until an approver
// first opens a call, the time until the decision, and calls that expired without a decision.
func TestApprovalLoad(t *testing.T) {
	r := startReloadable(t, "rules: [{match: 'late_*', action: approve, workflow: brief}, {match: 'hold_*', action: approve}]\ndefault: deny\nwaiting: {hold: 0s}\n"+
		"tasks: {cleanup_interval: 200ms}\nworkflows: {default: {}, brief: {timeout: 1s}}\n", "token: secret-of-the-operators, ")
	has := func(what string, series ...string) {
		t.Helper()
		eventually(t, what, func() bool {
			_, page := get(t, "http://"+r.OperatorAddr()+"/metrics")
			for _, one := range series {
				if !strings.Contains(page, "thoughtgate_"+one+"\n") {
					return false
				}
			}
			return true
		})
	}
	has("every workflow has series", `approvals_pending{workflow="default"} 0`, `approvals_pending{workflow="brief"} 0`, `approvals_ended_total{outcome="expired",workflow="brief"} 0`,
		`approval_first_look_seconds_count{workflow="default"} 0`)
	holdAt(t, r.AgentAddr(), "hold_x")
	holdAt(t, r.AgentAddr(), "late_x")
	has("calls wait", `approvals_pending{workflow="default"} 1`)
	has("nobody decides in time", `approvals_ended_total{outcome="expired",workflow="brief"} 1`, `approvals_pending{workflow="brief"} 0`, `approval_decision_seconds_count{workflow="brief"} 0`)
	id := idBefore(listed(t, r.App), `"tool":"hold_x"`)
	has("a list is no look", `approval_first_look_seconds_count{workflow="default"} 0`)
	for range 2 {
		look, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.OperatorAddr()+"/approvals/"+id, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		look.Header.Set("Authorization", "Bearer secret-of-the-operators")
		do(t, look)
	}
	has("somebody looks, twice", `approval_first_look_seconds_count{workflow="default"} 1`)
	decide(t, r.OperatorAddr(), id, "reject")
	has("somebody decides", `approvals_ended_total{outcome="rejected",workflow="default"} 1`, `approval_decision_seconds_count{workflow="default"} 1`,
		`approval_first_look_seconds_count{workflow="default"} 1`, `approvals_pending{workflow="default"} 0`)
}
