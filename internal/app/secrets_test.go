package app_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A rule holds calls with a secret in their arguments. Approvers see the rest of the arguments and
// of the result, and what was approved reaches the server unchanged.
func TestCallWithSecretIsHeld(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	received := make(chan string, 10)
	up := httptest.NewServer(listsNoTools(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- string(body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(body)+`,"result":{"content":[{"type":"text","text":"ran with ghp_0123456789abcdefghijABCDEFGHIJ012345, and found AKIAABCDEFGHIJKLMNOP"}]}}`)
	}))
	t.Cleanup(up.Close)
	a, stop := start(t, strings.Replace(gatewayFor(up.URL), "operators: {", "operators: {token: secret-of-the-operators, ", 1)+
		"rules: [{match: '*', secrets: [known, likely, 'ACME-[0-9]{6}'], action: approve, reason: a secret}]\ndefault: forward\n"+
		"workflows: {default: {redact: [secrets]}}\n")

	for _, harmless := range []string{`{}`, `{"command":"ls -l","path":"/tmp"}`, `{"sha":"2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"}`} {
		if answer := say(t, a.AgentAddr(), "tools/call", `{"name":"run","arguments":`+harmless+`}`); !strings.Contains(answer, "ran with") {
			t.Errorf("%s is held: %s", harmless, answer)
		}
		<-received
	}
	heldTask(t, a, `{"name":"run","arguments":{"n":{"password":"hunter2"}},"task":{}}`)
	heldTask(t, a, `{"name":"run","arguments":{"list":["ACME-123456"]},"task":{}}`)

	const arguments = `{"command":"GH=ghp_0123456789abcdefghijABCDEFGHIJ012345 gh repo delete","n":1}`
	id := heldTask(t, a, `{"name":"run","arguments":`+arguments+`,"task":{}}`)
	shown := func() string {
		_, text, _ := request(t, http.DefaultClient, "GET", "http://"+a.OperatorAddr()+"/api/approvals/"+id+"?arguments=all", "", "Authorization", "Bearer secret-of-the-operators")
		return text
	}
	if text := shown(); strings.Contains(text, "ghp_") || !strings.Contains(text, `GH=[redacted] gh repo delete`) {
		t.Errorf("approvers see %s", text)
	}
	approve(t, a.OperatorAddr(), id)
	if answer := say(t, a.AgentAddr(), "tasks/result", `{"taskId":"`+id+`"}`); !strings.Contains(answer, "ran with ghp_") {
		t.Errorf("the agent gets %s", answer)
	}
	if got := <-received; !strings.Contains(got, arguments) {
		t.Errorf("the server received %s", got)
	}
	if text := shown(); strings.Contains(text, "ghp_") || !strings.Contains(text, "ran with [redacted], and found [redacted]") {
		t.Errorf("approvers see %s", text)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
