package app_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// A grantRig has two gates on one store, and an upstream with a tool whose definition can
// change.
type grantRig struct {
	*testing.T
	gates       []*app.App
	description atomic.Value
	more        atomic.Value // further members of the definition

	mu   sync.Mutex
	seen []string // the calls that reached the upstream, with their headers and URL
}

func startGrantRig(t *testing.T, store string, replicas int) *grantRig {
	t.Helper()
	r := &grantRig{T: t}
	r.description.Store("deletes a file")
	r.more.Store("")
	up := httptest.NewServer(r)
	t.Cleanup(up.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	token := func(name string) string {
		return "{name: " + name + ", hash: '" + identity.HashOf("tga_token_of_the_agent_"+name).String() + "'}"
	}
	text := strings.NewReplacer("store: 'memory:'", "store: '"+store+"'", "operators: {", "operators: {token: secret-of-the-operators, ").Replace(gatewayFor(up.URL)) +
		"identity: {tokens: [" + token("ann") + ", " + token("bob") + "]}\nwaiting: {hold: 10ms}\n" +
		"rules: [{match: 'hold_*', action: approve, workflow: ops}]\ndefault: deny\nworkflows: {ops: {grants: {longest: 1h, uses: 5}}}\nstorage: {timeout: 1m}\n"
	for range replicas {
		gate, stop := start(t, text)
		r.gates = append(r.gates, gate)
		t.Cleanup(func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
	return r
}

// ServeHTTP is the upstream.
func (r *grantRig) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(string(body), `"tools/list"`) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"hold_x","description":%q,"inputSchema":{"type":"object"}%s}]}}`, idOf(body), r.description.Load(), r.more.Load())
		return
	}
	r.mu.Lock()
	r.seen = append(r.seen, fmt.Sprint(q.URL, q.Header, string(body)))
	r.mu.Unlock()
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`, idOf(body))
}

func (r *grantRig) calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.seen...)
}

// call calls the tool at a gate as a task of an agent, and returns the id of the task.
func (r *grantRig) call(gate int, agent, arguments, more string) string {
	r.Helper()
	_, answer, _ := request(r.T, http.DefaultClient, "POST", "http://"+r.gates[gate].AgentAddr()+"/mcp?evil=query",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold_x","task":{},"arguments":`+arguments+more+`}}`,
		"Authorization", "Bearer tga_token_of_the_agent_"+agent, "Accept", "application/json, text/event-stream", "X-Evil", "header")
	_, rest, found := strings.Cut(answer, `"taskId":"`)
	if !found {
		r.Fatalf("the call is answered with %s", answer)
	}
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// result waits for the result of a task of agent ann.
func (r *grantRig) result(gate int, id string) string {
	r.Helper()
	_, answer, _ := request(r.T, http.DefaultClient, "POST", "http://"+r.gates[gate].AgentAddr()+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"`+id+`"}}`,
		"Authorization", "Bearer tga_token_of_the_agent_ann", "Accept", "application/json, text/event-stream")
	return answer
}

// api makes a request to the operators' API of a gate.
func (r *grantRig) api(gate int, method, path, body string) (int, string) {
	r.Helper()
	status, answer, _ := request(r.T, http.DefaultClient, method, "http://"+r.gates[gate].OperatorAddr()+path, body, "Authorization", "Bearer secret-of-the-operators")
	return status, answer
}

// approve approves a call with a grant.
func (r *grantRig) approve(gate int, id, grant string) (int, string) {
	r.Helper()
	_, call := r.api(gate, "GET", "/api/approvals/"+id+"?arguments=all", "")
	var shown review.Approval
	decode(r.T, call, &shown)
	return r.api(gate, "POST", "/api/approvals/"+id+"/approve", `{"shownDigest":"`+shown.ShownDigest+`","grant":`+grant+`}`)
}

// waits reports whether a call waits for an approval.
func (r *grantRig) waits(id string) bool {
	r.Helper()
	_, text := r.api(0, "GET", "/api/approvals/"+id, "")
	var a review.Approval
	decode(r.T, text, &a)
	return a.State == "input_required"
}

// A standing approval lets the calls run that it covers, on every replica. Other calls of the
// agent do not reach the upstream. The standing approval is listed, and revoking it takes
// effect on all replicas at once.
func TestGrantLetsOnlyCoveredCallsRun(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		startGrantRig(t, "sqlite:"+filepath.Join(t.TempDir(), "gate.db"), 1).test()
	})
	t.Run("Redis", func(t *testing.T) {
		server, err := testenv.StartRedis(t.Context())
		if testenv.Available(t, err) {
			t.Cleanup(func() { server.Stop() })
			startGrantRig(t, server.URL(), 2).test()
		}
	})
}

func (r *grantRig) test() {
	last := len(r.gates) - 1
	asked := r.call(0, "ann", `{"path":"/a","n":1}`, "")
	if status, text := r.approve(last, asked, `{"seconds":999999,"uses":3}`); status != http.StatusUnprocessableEntity || !strings.Contains(text, "grant_refused") {
		r.Fatalf("a grant that is too long: %d %s", status, text)
	}
	if status, text := r.approve(last, asked, `{"seconds":3600,"uses":3,"free":["path"]}`); status != http.StatusOK {
		r.Fatalf("approve: %d %s", status, text)
	}
	if answer := r.result(0, asked); !strings.Contains(answer, "done") {
		r.Fatalf("the first call: %s", answer)
	}
	covered := r.call(last, "ann", `{ "n":1, "path":"/b" }`, `,"_meta":{"claudecode/toolUseId":"evil-meta"}`)
	if answer := r.result(last, covered); !strings.Contains(answer, "done") {
		r.Fatalf("the covered call: %s", answer)
	}
	calls := r.calls()
	if sent := calls[len(calls)-1]; len(calls) != 2 || !strings.Contains(sent, `"/b"`) || strings.Contains(strings.ToLower(sent), "evil") {
		r.Fatalf("the upstream got %q", calls)
	}
	for name, id := range map[string]string{
		"1.0 for 1":        r.call(last, "ann", `{"path":"/c","n":1.0}`, ""),
		"one more":         r.call(last, "ann", `{"path":"/c","n":1,"force":true}`, ""),
		"other metadata":   r.call(last, "ann", `{"path":"/c","n":1}`, `,"_meta":{"tenant":"evil"}`),
		"an unknown param": r.call(last, "ann", `{"path":"/c","n":1}`, `,"evil":1`),
		"another agent":    r.call(last, "bob", `{"path":"/c","n":1}`, ""),
	} {
		if !r.waits(id) {
			r.Errorf("%s: the call ran without approval", name)
		}
	}
	r.listed(last, covered)
}

// listed checks the pages and lists that show the grant, and revokes the grant.
func (r *grantRig) listed(last int, covered string) {
	d := describeGate(r.T, "http://"+r.gates[0].OperatorAddr())
	var list struct {
		Grants []review.Grant `json:"grants"`
	}
	decode(r.T, d.get(r.T, "/api/grants", "/api/grants"), &list)
	if len(list.Grants) != 1 || list.Grants[0].Principal != "ann" || list.Grants[0].Used != 1 {
		r.Fatalf("there are %+v", list.Grants)
	}
	id := string(list.Grants[0].ID)
	one := d.get(r.T, "/api/grants/{id}", "/api/grants/"+id)
	page := func(path string) string {
		_, text := r.api(last, "GET", path, "")
		return text
	}
	for _, text := range []string{one, d.get(r.T, "/api/audit", "/api/audit?grant="+id), page("/grants/" + id)} {
		if !strings.Contains(text, covered) {
			r.Errorf("the covered call is not in %s", text)
		}
	}
	if text := page("/grants"); !strings.Contains(text, "hold_x") || !strings.Contains(text, "Any value for") || !strings.Contains(text, "/grants/"+id+"/revoke") {
		r.Errorf("the page is %s", text)
	}
	if text := page("/approvals/" + covered); !strings.Contains(text, "Nobody reviewed this call") {
		r.Errorf("the page of the call is %s", text)
	}
	status, text := r.api(0, "POST", "/api/grants/"+id+"/revoke", `{"reason":"enough"}`)
	if status != http.StatusOK {
		r.Fatalf("revoke: %d %s", status, text)
	}
	d.valid(r.T, "post", "/api/grants/{id}/revoke", "application/json", text)
	if after := r.call(last, "ann", `{"path":"/d","n":1}`, ""); !r.waits(after) {
		r.Error("a revoked grant let a call run")
	}
	if status, text := r.api(last, "POST", "/api/grants/"+id+"/revoke", ""); status != http.StatusConflict || !strings.Contains(text, "already_revoked") {
		r.Errorf("a second revocation: %d %s", status, text)
	}
	if status, _ := r.api(last, "GET", "/api/grants/gr_none", ""); status != http.StatusNotFound {
		r.Errorf("an unknown grant: %d", status)
	}
	awaitMetric(r.T, r.gates[last].OperatorAddr(), `thoughtgate_grants_total{event="used"} 1`)
	awaitMetric(r.T, r.gates[0].OperatorAddr(), `thoughtgate_grants_total{event="revoked"} 1`)
}

// If an upstream changes its tool without a notification, a standing approval for the earlier
// definition covers no call.
func TestGrantEndsWhenToolChanges(t *testing.T) {
	r := startGrantRig(t, "memory:", 1)
	asked := r.call(0, "ann", `{"path":"/a"}`, "")
	if status, text := r.approve(0, asked, `{"seconds":60,"uses":5,"free":["path"]}`); status != http.StatusOK {
		t.Fatalf("approve: %d %s", status, text)
	}
	r.result(0, asked)
	r.description.Store("deletes everything")
	changed := r.call(0, "ann", `{"path":"/b"}`, "")
	if !r.waits(changed) || len(r.calls()) != 1 {
		t.Errorf("the upstream got %q", r.calls())
	}
	if _, text := r.api(0, "GET", "/api/approvals/"+changed, ""); !strings.Contains(text, "deletes everything") {
		t.Errorf("approvers see %s", text)
	}
}
