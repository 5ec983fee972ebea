package app_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A gate explains a held call by a part of its id, with the arguments of the held call, although the
// record has only their digest.
func TestHeldCallIsExplained(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	policies := filepath.Join(t.TempDir(), "p.cedar")
	writeText(t, policies, `@id("safe") permit (principal, action, resource) when { context.arguments has path && context.arguments.path like "/tmp/*" };
@id("asked") @approval permit (principal, action, resource) when { context.arguments has force };`)
	text := strings.Replace(holding(toolServer(t), "memory:"), "rules: [", "rules: [{match: 'cedar_*', action: policy}, ", 1) + "cedar: {policies: ['" + policies + "']}\nworkflows: {default: {}}\n"
	a, stop := start(t, text)
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"cedar_x","arguments":{"path":"Xylophone","force":true},"task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	explain := func(id, token string) (int, string) {
		status, answer, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+a.OperatorAddr()+"/api/calls/explanation?id="+id, "", "Authorization", "Bearer "+token)
		return status, answer
	}
	var status int
	var answer string
	eventually(t, "the held call is recorded", func() bool {
		status, answer = explain(string(task.ID(id).Short()), "secret-of-the-operators")
		return status == http.StatusOK
	})
	for _, want := range []string{
		`"id":"` + id + `"`, `"repeated":true`, `"policies":["asked"]`, `context.arguments.path like \"/tmp/*\" is false`,
		`{"if":"without the argument \"force\"","action":"deny","by":"rules[0]"}`,
	} {
		if !strings.Contains(answer, want) {
			t.Errorf("%s\nlacks %s", answer, want)
		}
	}
	if strings.Contains(answer, "Xylophone") {
		t.Errorf("%s has a value of an argument", answer)
	}
	if status, _ := explain(id, "wrong"); status != http.StatusUnauthorized {
		t.Errorf("status %d without a token", status)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A held call that was withdrawn has lost its arguments. So its verdict is unknown if it depends on them.
func TestWithdrawnCallIsExplained(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	policies := filepath.Join(t.TempDir(), "p.cedar")
	writeText(t, policies, `@id("asked") @approval permit (principal, action, resource) when { context.arguments has force };`)
	text := strings.Replace(holding(toolServer(t), "memory:"), "rules: [", "rules: [{match: 'cedar_*', action: policy}, ", 1) + "cedar: {policies: ['" + policies + "']}\nworkflows: {default: {}}\n"
	a, stop := start(t, text)
	created := say(t, a.AgentAddr(), "tools/call", `{"name":"cedar_x","arguments":{"force":true},"task":{}}`)
	_, rest, _ := strings.Cut(created, `"taskId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	say(t, a.AgentAddr(), "tasks/cancel", `{"taskId":"`+id+`"}`)
	eventually(t, "the held call is recorded", func() bool {
		status, answer, _ := request(t, http.DefaultClient, http.MethodGet, "http://"+a.OperatorAddr()+"/api/calls/explanation?id="+id, "", "Authorization", "Bearer secret-of-the-operators")
		if status == http.StatusOK && !strings.Contains(answer, `"unknown":true`) {
			t.Errorf("%s", answer)
		}
		return status == http.StatusOK
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
