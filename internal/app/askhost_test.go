package app_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// holdAndAsk makes a call that is held, as a modern client that can open URLs, and returns the
// first answer.
func (r *reloadable) holdAndAsk(call int) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.AgentAddr()+"/mcp", strings.NewReader(fmt.Sprintf(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n":%d},"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}}}}`, call)))
	if err != nil {
		r.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "x",
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if !strings.Contains(string(body), `"resultType":"input_required"`) {
		r.t.Fatalf("not held: %s", body)
	}
	return string(body)
}

// Workflows can ask agent hosts to open the approval page. The setting is off by default and
// can change while the gate runs.
func TestReloadAskHost(t *testing.T) {
	r := startReloadable(t, "default: approve\nwaiting: {hold: 0s}\ntasks: {max_pending: 1000000, max_pending_per_owner: 10000}\n"+
		"workflows: {default: {}}\n")
	if answer := r.holdAndAsk(0); !strings.Contains(answer, `"inputRequests":{}`) {
		t.Fatalf("the host was asked although the setting is off: %s", answer)
	}
	off, calls := r.text(), 0
	asked := func() bool {
		calls++
		return strings.Contains(r.holdAndAsk(calls), `"url":"http://`+r.OperatorAddr()+`/approvals/tg_`)
	}
	r.write(strings.Replace(off, "default: {}", "default: {ask_host: true}", 1))
	eventually(t, "users are invited", asked)
	r.write(off)
	eventually(t, "users are no longer invited", func() bool { return !asked() })
}
