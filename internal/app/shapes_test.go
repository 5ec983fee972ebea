package app_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// startShapeRig starts a gate for an upstream with two read-only tools and one that writes. The
// description of hold_list is that of the rig.
func startShapeRig(t *testing.T, record string) *grantRig {
	t.Helper()
	r := &grantRig{T: t}
	r.description.Store("lists files")
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		w.Header().Set("Content-Type", "application/json")
		if !strings.Contains(string(body), `"tools/list"`) {
			r.mu.Lock()
			r.seen = append(r.seen, string(body))
			r.mu.Unlock()
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`, idOf(body))
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"hold_x","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},`+
			`{"name":"hold_list","description":%q,"inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},`+
			`{"name":"hold_write","inputSchema":{"type":"object"}}]}}`, idOf(body), r.description.Load())
	}))
	t.Cleanup(up.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	text := strings.Replace(gatewayFor(up.URL), "operators: {", "operators: {token: secret-of-the-operators, ", 1) +
		"identity: {tokens: [{name: ann, hash: '" + identity.HashOf("tga_token_of_the_agent_ann").String() + "'}]}\nwaiting: {hold: 10ms}\n" +
		"rules: [{match: 'hold_*', secrets: ['hunter[0-9]+'], action: approve, workflow: ops}, {match: 'hold_*', action: approve, workflow: ops}]\ndefault: deny\n" +
		"workflows: {ops: {grants: {longest: 1h, uses: 20, reach: read_only}}}\nrecord: {arguments: " + record + "}\ntasks: {max_pending_per_owner: 100}\n"
	gate, stop := start(t, text)
	r.gates = append(r.gates, gate)
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	request(t, http.DefaultClient, "POST", "http://"+gate.AgentAddr()+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		"Authorization", "Bearer tga_token_of_the_agent_ann", "Accept", "application/json, text/event-stream")
	return r
}

// callTool calls a tool as ann and reports whether the call waits for an approval.
func (r *grantRig) callTool(tool, arguments string) (id string, waits bool) {
	r.Helper()
	_, answer, _ := request(r.T, http.DefaultClient, "POST", "http://"+r.gates[0].AgentAddr()+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","task":{},"arguments":`+arguments+`}}`,
		"Authorization", "Bearer tga_token_of_the_agent_ann", "Accept", "application/json, text/event-stream")
	_, rest, found := strings.Cut(answer, `"taskId":"`)
	if !found {
		return "", true // refused, for example because of a name twice
	}
	id, _, _ = strings.Cut(rest, `"`)
	return id, r.waits(id)
}

// coverage asks what a grant given with a call would have covered, until the record has enough calls.
func (r *grantRig) coverage(id, grant string, recorded int) approval.Coverage {
	r.Helper()
	d := describeGate(r.T, "http://"+r.gates[0].OperatorAddr())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		status, text := r.api(0, "POST", "/api/approvals/"+id+"/coverage", grant)
		if status != http.StatusOK {
			r.Fatalf("coverage: %d %s", status, text)
		}
		d.valid(r.T, "post", "/api/approvals/{id}/coverage", "application/json", text)
		var c approval.Coverage
		if decode(r.T, text, &c); c.Recorded >= recorded || time.Now().After(deadline) {
			return c
		}
	}
}

// A grant for paths covers the calls that it said it would have covered, and no others.
func TestPathGrantAtTheWire(t *testing.T) {
	const grant = `{"seconds":600,"uses":20,"below":[{"argument":"path","directory":"/tmp"}]}`
	r := startShapeRig(t, "full")
	asked, _ := r.callTool("hold_x", `{"path":"/tmp/a/b"}`)
	held := []string{
		`{"path":"/tmp/../etc"}`, `{"path":"/tmp/a/../../etc"}`, `{"path":"/tmp//x"}`, `{"path":"/tmp/%2e%2e/etc"}`, `{"path":"/tmp/..\\etc"}`, `{"path":"/tmp/x\u0000"}`,
		`{"path":"/TMP/x"}`, `{"path":["/tmp/x"]}`, `{"path":"/tmp/x","path":"/etc"}`, `{"path":"/tmpfoo"}`, `{"path":"/tmp"}`, `{"path":"/tmp/hunter22"}`, `{"path":"/tmp/x","Path":"/etc"}`,
	}
	for _, arguments := range held {
		r.callTool("hold_x", arguments)
	}
	r.callTool("hold_x", `{"path":"/tmp/c"}`)
	if c := r.coverage(asked, grant, 14); c.Covered != 2 || c.Unknown > 0 || len(c.Examples) != 2 || c.Examples[0].Paths[0] != "/tmp/c" || c.Waiting < 1 {
		t.Errorf("covers %+v", c)
	}
	if status, text := r.approve(0, asked, grant); status != http.StatusOK {
		t.Fatalf("approve: %d %s", status, text)
	}
	if answer := r.result(0, asked); !strings.Contains(answer, "done") {
		t.Fatalf("the first call: %s", answer)
	}
	if id, waits := r.callTool("hold_x", `{"path":"/tmp/d"}`); waits || !strings.Contains(r.result(0, id), "done") {
		t.Error("a covered call waits")
	}
	for _, arguments := range append(held, `{"path":"/tmp/hunter23"}`) {
		if _, waits := r.callTool("hold_x", arguments); !waits {
			t.Errorf("%s ran", arguments)
		}
	}
	if runs := r.calls(); len(runs) != 2 {
		t.Errorf("the upstream got %q", runs)
	}
}

// A grant for read-only tools covers those that the server listed then, until they change.
func TestReadOnlyGrantAtTheWire(t *testing.T) {
	r := startShapeRig(t, "digests")
	asked, _ := r.callTool("hold_x", `{"path":"/a"}`)
	_, text := r.api(0, "GET", "/api/approvals/"+asked+"/context", "")
	var around review.Context
	decode(t, text, &around)
	if o := around.GrantOffer; o == nil || strings.Join(o.ReadOnly, " ") != "hold_list hold_x" || len(o.Reach) != 1 {
		t.Fatalf("offered %+v", around.GrantOffer)
	}
	if c := r.coverage(asked, `{"seconds":600,"uses":5,"free":["path"]}`, 1); c.Covered > 0 || c.Unknown != 1 {
		t.Errorf("without recorded arguments it covers %+v", c)
	}
	grant := `{"seconds":600,"uses":5,"reach":"read_only","tools":"` + around.GrantOffer.Tools + `"}`
	if c := r.coverage(asked, grant, 1); c.Covered != 1 {
		t.Errorf("covers %+v", c)
	}
	for _, wrong := range []string{strings.Replace(grant, "read_only", "server", 1), `{"seconds":600,"uses":5,"reach":"server"}`, `{"seconds":600,"uses":5,"reach":"read_only","tools":"00"}`} {
		if status, text := r.approve(0, asked, wrong); status != http.StatusUnprocessableEntity || !strings.Contains(text, "grant_refused") {
			t.Fatalf("%s: %d %s", wrong, status, text)
		}
	}
	if status, text := r.approve(0, asked, grant); status != http.StatusOK {
		t.Fatalf("approve: %d %s", status, text)
	}
	r.result(0, asked)
	if id, waits := r.callTool("hold_list", `{"any":1}`); waits || !strings.Contains(r.result(0, id), "done") {
		t.Error("a read-only tool waits")
	}
	if _, waits := r.callTool("hold_write", `{}`); !waits {
		t.Error("a tool that writes ran")
	}
	if _, waits := r.callTool("hold_list", `{"any":"hunter2"}`); !waits {
		t.Error("a call with a secret ran")
	}
	r.description.Store("lists files, and more")
	if _, waits := r.callTool("hold_list", `{"any":2}`); !waits {
		t.Error("a changed tool ran")
	}
	if _, text := r.api(0, "GET", "/grants", ""); !strings.Contains(text, "read-only tools of") || !strings.Contains(text, "hold_list") {
		t.Errorf("the page is %s", text)
	}
}
