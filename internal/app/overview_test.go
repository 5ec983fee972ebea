package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// The overview counts the calls of a running gate, soon after they were made.
func TestOverviewCountsCalls(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	a, stop := start(t, strings.Replace(holding(toolServer(t), "memory:"), "rules: [", "rules: [{match: 'get_*', action: forward}, ", 1))
	say(t, a.AgentAddr(), "tools/call", `{"name":"get_x"}`)
	id := createTask(t, a.AgentAddr(), "hold_x")
	approve(t, a.OperatorAddr(), id)
	say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`)
	counted := func() bool {
		_, page, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+a.OperatorAddr()+"/overview", "", "Authorization", "Bearer secret-of-the-operators")
		return strings.Contains(page, " 1 forwarded") && strings.Contains(page, " 1 held") && strings.Contains(page, " 1 approved") && strings.Contains(page, "get_x")
	}
	for deadline := time.Now().Add(time.Minute); !counted(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the overview does not count the calls")
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
