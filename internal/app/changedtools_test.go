package app_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
)

// byHints forwards calls of tools that the server marks as read-only, and holds all others.
const byHints = `
permit (principal, action == ThoughtGate::Action::"call", resource) when { context.annotations.readOnlyHint && !context.annotations.destructiveHint };
@approval("ops") permit (principal, action == ThoughtGate::Action::"call", resource) unless { context.annotations.readOnlyHint && !context.annotations.destructiveHint };
`

const (
	readOnly   = `"annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}`
	destroys   = `"annotations":{"destructiveHint":true},"inputSchema":{"type":"object"}`
	silent     = `"inputSchema":{"type":"object"}`
	asText     = `"annotations":{"readOnlyHint":"true"},"inputSchema":{"type":"object"}`
	otherInput = `"annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","required":["all"]}`
	otherTitle = `"title":"Look","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"}`
	otherWords = `"annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"},"description":"it is five o'clock"`
)

// A changeRig has gates on one store, with a policy that uses hints, and an upstream whose
// tools can change and can differ between agents.
type changeRig struct {
	*testing.T
	text  string
	gates []*app.App
	stops []func() error
	calls int

	mu      sync.Mutex
	defined map[string]string // by tool, or by tool and agent
	ran     []string
}

func startChangeRig(t *testing.T, store, more string, replicas int) *changeRig {
	t.Helper()
	r := &changeRig{T: t, defined: map[string]string{}}
	up := httptest.NewServer(r)
	t.Cleanup(up.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	policies := filepath.Join(t.TempDir(), "hints.cedar")
	if err := os.WriteFile(policies, []byte(byHints), 0o600); err != nil {
		t.Fatal(err)
	}
	token := func(name string) string {
		return "{name: " + name + ", hash: '" + identity.HashOf("tga_token_of_the_agent_"+name).String() + "'}"
	}
	viewer := "{name: vic, role: approver, hash: '" + identity.HashOf(approverToken).String() + "'}"
	r.text = strings.NewReplacer("store: 'memory:'", "store: '"+store+"'", "operators: {", "operators: {token: secret-of-the-operators, tokens: ["+viewer+"], ").Replace(gatewayFor(up.URL)) +
		"identity: {tokens: [" + token("ann") + ", " + token("bob") + "]}\nwaiting: {hold: 10ms}\nstorage: {timeout: 1m" + more + "}\n" +
		"rules: [{match: 'named_*', action: approve, workflow: ops}, {match: '*', kind: tool, action: policy}]\ndefault: deny\ncedar: {policies: ['" + policies + "']}\n" +
		"workflows: {default: {}, ops: {grants: {longest: 1h, uses: 5}}}\ntasks: {max_pending_per_owner: 100}\n"
	for range replicas {
		r.start()
	}
	t.Cleanup(r.stop)
	return r
}

func (r *changeRig) start() {
	gate, stop := start(r.T, r.text)
	r.gates, r.stops = append(r.gates, gate), append(r.stops, stop)
}

func (r *changeRig) stop() {
	for _, stop := range r.stops {
		if err := stop(); err != nil {
			r.Error(err)
		}
	}
	r.gates, r.stops = nil, nil
}

// ServeHTTP is the upstream.
func (r *changeRig) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(string(body), `"tools/list"`) {
		agent := q.Header.Get("X-Agent")
		var tools []string
		for name, definition := range r.defined {
			tool, of, special := strings.Cut(name, " ")
			if _, own := r.defined[name+" "+agent]; !own && (!special || of == agent) {
				tools = append(tools, `{"name":"`+tool+`",`+definition+`}`)
			}
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, idOf(body), strings.Join(tools, ","))
		return
	}
	r.ran = append(r.ran, string(body))
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}]}}`, idOf(body))
}

// list defines a tool at the upstream, and lists the tools as an agent at every gate.
func (r *changeRig) list(agent, tool, definition string) {
	r.Helper()
	r.mu.Lock()
	r.defined[tool] = definition
	r.mu.Unlock()
	for i := range r.gates {
		r.say(i, agent, "tools/list", `{}`)
	}
}

func (r *changeRig) say(gate int, agent, method, params string) string {
	r.Helper()
	_, answer, _ := request(r.T, http.DefaultClient, "POST", "http://"+r.gates[gate].AgentAddr()+"/mcp",
		`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`,
		"Authorization", "Bearer tga_token_of_the_agent_"+agent, "X-Agent", agent, "Accept", "application/json, text/event-stream")
	return answer
}

// forwards reports whether a new call of a tool reaches the upstream. If the call is held
// instead, forwards returns the id of its task.
func (r *changeRig) forwards(gate int, agent, tool string) (id string, forwarded bool) {
	r.Helper()
	r.calls++
	answer := r.say(gate, agent, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"n":%d}}`, tool, r.calls))
	r.mu.Lock()
	last := len(r.ran) > 0 && strings.Contains(r.ran[len(r.ran)-1], fmt.Sprintf(`"n":%d}`, r.calls))
	r.mu.Unlock()
	if last {
		return "", true
	}
	at := strings.Index(answer, "tg_")
	if at < 0 {
		r.Fatalf("the call of %s is answered with %s", tool, answer)
	}
	short := answer[at:][:strings.IndexAny(answer[at:], ` ,)`)]
	var page review.Page
	decode(r.T, r.api("GET", "/api/approvals?state=all&limit=100", ""), &page)
	for _, a := range page.Approvals {
		if strings.HasPrefix(string(a.ID), short) {
			return string(a.ID), false
		}
	}
	r.Fatalf("%s is not listed", short)
	return "", false
}

func (r *changeRig) wantForwarded(tool string) {
	r.Helper()
	for i := range r.gates {
		if id, forwarded := r.forwards(i, "ann", tool); !forwarded {
			r.Errorf("%s: the call is held as %s at gate %d; want it forwarded", tool, id, i)
		}
	}
}

// wantHeld makes a call at every gate and checks that each is held by the workflow, with the
// caution if that is not empty. It returns the id of one of them.
func (r *changeRig) wantHeld(agent, tool, workflow, caution string) string {
	r.Helper()
	id := ""
	for i := range r.gates {
		var forwarded bool
		if id, forwarded = r.forwards(i, agent, tool); forwarded {
			r.Fatalf("%s: the call by %s at gate %d ran without approval", tool, agent, i)
		}
		var a review.Approval
		decode(r.T, r.api("GET", "/api/approvals/"+id, ""), &a)
		var x review.Context
		decode(r.T, r.api("GET", "/api/approvals/"+id+"/context", ""), &x)
		told := ""
		if x.ToolChange != nil && len(x.ToolChange.Unaccepted) > 0 {
			told = x.ToolChange.Text()
		}
		if a.Workflow != workflow || told != caution {
			r.Errorf("%s: held for %s with caution %q; want %s and %q", tool, a.Workflow, told, workflow, caution)
		}
		if caution != "" && x.GrantOffer != nil {
			r.Errorf("%s: a standing approval can be given for a tool that has changed", tool)
		}
	}
	return id
}

// api makes a request to the operators' API of the last gate.
func (r *changeRig) api(method, path, body string) string {
	r.Helper()
	_, answer, _ := request(r.T, http.DefaultClient, method, "http://"+r.gates[len(r.gates)-1].OperatorAddr()+path, body, "Authorization", "Bearer secret-of-the-operators")
	return answer
}

func (r *changeRig) changes() []toolhistory.Change {
	r.Helper()
	var list struct {
		Changes []toolhistory.Change `json:"changes"`
	}
	decode(r.T, r.api("GET", "/api/changes", ""), &list)
	return list.Changes
}

// accept accepts the only change of a tool.
func (r *changeRig) accept(tool string) {
	r.Helper()
	for _, c := range r.changes() {
		if c.Tool != tool {
			continue
		}
		path := "/api/changes/" + c.ID + "/accept"
		status, _, _ := request(r.T, http.DefaultClient, "POST", "http://"+r.gates[0].OperatorAddr()+path, "{}", "Authorization", "Bearer "+approverToken)
		if status != http.StatusForbidden {
			r.Errorf("an approver accepts a change: %d", status)
		}
		if answer := r.api("POST", path, `{"reason":"new release"}`); !strings.Contains(answer, c.What) {
			r.Fatalf("accept: %s", answer)
		}
		if answer := r.api("POST", path, `{}`); !strings.Contains(answer, "not_found") {
			r.Errorf("accept again: %s", answer)
		}
		return
	}
	r.Fatalf("%s is not among the changes %+v", tool, r.changes())
}

const nowReads = "the tool has changed: its server now says that it only reads and does not destroy"

// When a tool newly claims to be read-only, its calls are held on every replica, also after a
// restart, until an operator accepts the change. Approving one call does not accept the
// change.
func TestChangedToolIsHeld(t *testing.T) {
	t.Run("memory", func(t *testing.T) { startChangeRig(t, "memory:", "", 1).test() })
	t.Run("SQLite, encrypted", func(t *testing.T) {
		key := "k1:" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", 32)))
		startChangeRig(t, "sqlite:"+filepath.Join(t.TempDir(), "gate.db"), ", keys: '"+key+"'", 1).test()
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		server, err := testenv.StartPostgres(context.WithoutCancel(t.Context()))
		if testenv.Available(t, err) {
			t.Cleanup(func() { server.Stop() })
			startChangeRig(t, server.URL(), "", 2).test()
		}
	})
	t.Run("Redis", func(t *testing.T) {
		server, err := testenv.StartRedis(context.WithoutCancel(t.Context()))
		if testenv.Available(t, err) {
			t.Cleanup(func() { server.Stop() })
			startChangeRig(t, server.URL(), "", 2).test()
		}
	})
}

func (r *changeRig) test() {
	r.list("ann", "wipe", silent)
	rejected := r.wantHeld("ann", "wipe", "ops", "")
	decide(r.T, r.gates[0].OperatorAddr(), rejected, "reject")

	r.list("ann", "wipe", readOnly)
	held := r.wantHeld("ann", "wipe", "ops", nowReads)
	approve(r.T, r.gates[len(r.gates)-1].OperatorAddr(), held)
	again := fmt.Sprintf(`{"name":"wipe","arguments":{"n":%d}}`, r.calls)
	eventually(r.T, "the approved call ran", func() bool {
		return strings.Contains(r.say(len(r.gates)-1, "ann", "tools/call", again), "done")
	})
	r.wantHeld("ann", "wipe", "ops", nowReads)
	if r.gates = slices.Clip(r.gates); !strings.Contains(r.text, "memory:") {
		replicas := len(r.gates)
		r.stop()
		for range replicas {
			r.start()
		}
		r.wantHeld("ann", "wipe", "ops", nowReads) // its clients do not list tools again
	}
	r.accept("wipe")
	r.wantForwarded("wipe")
	journal := r.api("GET", "/api/audit?tool=wipe", "")
	if strings.Count(journal, `"tool_changed"`) != 1 || strings.Count(journal, `"tool_accepted"`) != 1 || !strings.Contains(journal, "new release") {
		r.Errorf("the journal says %s", journal)
	}
	if left := r.changes(); len(left) != 0 {
		r.Errorf("unexpected changes: %+v", left)
	}

	r.list("ann", "wipe", destroys) // a stricter hint takes effect at once
	r.wantHeld("ann", "wipe", "ops", "")
	r.list("ann", "wipe", readOnly) // already accepted by an operator
	r.wantForwarded("wipe")
}

// A call is held if the definition of its tool becomes less strict. Stricter hints take effect
// at once, and parts of the definition that policy does not read are ignored.
func TestLooserDefinitionIsHeld(t *testing.T) {
	const otherShape = "the tool has changed: its title or schema is another one"
	tests := []struct {
		name, before, after string
		workflow, caution   string // empty if the call is forwarded
	}{
		{"as before", readOnly, readOnly, "", ""},
		{"another description", readOnly, otherWords, "", ""},
		{"another schema", readOnly, otherInput, "default", otherShape},
		{"another title", readOnly, otherTitle, "default", otherShape},
		{"a hint is gone", readOnly, silent, "ops", ""},
		{"a hint warns", readOnly, destroys, "ops", ""},
		{"a hint that is text", readOnly, asText, "ops", ""},
		{"a hint appears", silent, readOnly, "ops", nowReads},
		{"a warning is gone", destroys, readOnly, "ops", nowReads},
		{"a hint that was text", asText, readOnly, "ops", nowReads},
		{"a hint and a schema", silent, otherInput, "ops", nowReads + ", and its title or schema is another one"},
	}
	r := startChangeRig(t, "memory:", "", 1)
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r.T = t
			tool := fmt.Sprintf("tool%d", i)
			r.list("ann", tool, test.before)
			r.forwards(0, "ann", tool)
			r.list("ann", tool, test.after)
			if test.workflow == "" {
				r.wantForwarded(tool)
			} else {
				r.wantHeld("ann", tool, test.workflow, test.caution)
			}
		})
	}
	r.T = t
}

// If a server lists a tool differently for different agents, the strictest listing counts for
// all of them.
func TestStrictestListingCounts(t *testing.T) {
	r := startChangeRig(t, "memory:", "", 1)
	r.list("ann", "wipe", readOnly)
	r.wantForwarded("wipe")
	r.list("bob", "wipe bob", destroys)
	r.wantHeld("bob", "wipe", "ops", "")
	r.wantHeld("ann", "wipe", "ops", nowReads)
	r.accept("wipe")
	r.wantForwarded("wipe")
	r.list("bob", "wipe bob", destroys)
	r.wantHeld("bob", "wipe", "ops", "")
	r.wantForwarded("wipe")
}

// A batch with a call of a changed tool is held as a whole, with the caution. A standing
// approval does not cover a changed tool.
func TestChangedToolHoldsBatchAndGrant(t *testing.T) {
	r := startChangeRig(t, "memory:", "", 1)
	r.list("ann", "wipe", silent)
	id := r.wantHeld("ann", "wipe", "ops", "")
	arguments := fmt.Sprintf(`{"name":"wipe","arguments":{"n":%d}}`, r.calls)
	var shown review.Approval
	decode(t, r.api("GET", "/api/approvals/"+id+"?arguments=all", ""), &shown)
	r.api("POST", "/api/approvals/"+id+"/approve", `{"shownDigest":"`+shown.ShownDigest+`","grant":{"seconds":3600,"uses":5}}`)
	done := func() bool { return strings.Contains(r.say(0, "ann", "tools/call", arguments), "done") }
	eventually(t, "the approved call ran", done)
	eventually(t, "the standing approval covers the same call", done)
	ran := len(r.ran)
	r.list("ann", "wipe", readOnly)
	if answer := r.say(0, "ann", "tools/call", arguments); !strings.Contains(answer, "waits for approval") || len(r.ran) != ran {
		t.Errorf("the same call of the changed tool: %s", answer)
	}

	r.list("ann", "wipe", readOnly)
	_, answer, _ := request(t, http.DefaultClient, "POST", "http://"+r.gates[0].AgentAddr()+"/mcp",
		`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wipe"}},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wipe"}}]`,
		"Authorization", "Bearer tga_token_of_the_agent_ann", "Accept", "application/json, text/event-stream")
	if !strings.Contains(answer, "waits for approval") || len(r.ran) != ran {
		t.Fatalf("a batch: %s", answer)
	}
	var page review.Page
	decode(t, r.api("GET", "/api/approvals", ""), &page)
	for _, a := range page.Approvals {
		if a.Method != review.MethodBatch {
			continue
		}
		var x review.Context
		if decode(t, r.api("GET", "/api/approvals/"+string(a.ID)+"/context", ""), &x); x.ToolChange == nil || x.ToolChange.Text() != nowReads {
			t.Errorf("the caution of the batch is %+v", x.ToolChange)
		}
		return
	}
	t.Error("the batch is not listed")
}
