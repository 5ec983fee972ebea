package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
)

// testCommand runs thoughtgate test, and returns its output and its error.
func testCommand(args ...string) (string, error) {
	return outputOf(append([]string{"test"}, args...)...)
}

// outputOf runs thoughtgate, and returns its output and its error.
func outputOf(args ...string) (string, error) {
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	err := root.Execute()
	return out.String(), err
}

// The example in the documentation has the output that the documentation shows.
func TestDocumentedPolicyTest(t *testing.T) {
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n(tests:.*?)```\n\n```\n\\$ thoughtgate (.*?)\n(.*?)```\n").FindSubmatch(page)
	if m == nil {
		t.Fatal("the page shows no test")
	}
	dir := t.TempDir()
	for _, name := range []string{"refunds.yaml", "refunds.cedar"} {
		text, err := os.ReadFile(filepath.Join("../../docs/policies", name))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), string(text))
	}
	writeFile(t, filepath.Join(dir, "policy_test.yaml"), string(m[1]))
	t.Chdir(dir)
	words := strings.Fields(string(m[2]))
	if out, _ := testCommand(words[1:]...); words[0] != "test" || out != string(m[3]) {
		t.Errorf("thoughtgate %s prints\n%s", m[2], out)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sampledPolicy has rules and policies that use every property of a call that a test can give.
const sampledPolicy = `@id("small") permit (principal, action, resource) when { context.arguments has n && context.arguments.n < 3 };
@id("large") @approval permit (principal, action, resource) when { context.arguments has n && context.arguments.n >= 3 && context.arguments.n < 10 };
@id("staff") @approval("ops") permit (principal in ThoughtGate::Group::"staff", action, resource) when { context.decimals has amount && context.decimals.amount.lessThan(decimal("1.5")) };
@id("reads") permit (principal, action == ThoughtGate::Action::"call", resource) when { context.annotations.readOnlyHint && context.annotations.listed };
@id("titled") @approval("ops") permit (principal, action == ThoughtGate::Action::"call", resource) when { context.annotations.title == "Careful" };
@id("client") permit (principal, action, resource) when { context.session.client == "tester" && context.session.version == "2" };
@id("protocol") permit (principal, action, resource) when { context.session.protocol == "2026-07-28" && context.arguments has path };
@id("files") forbid (principal, action, resource in ThoughtGate::Upstream::"files") when { context.arguments has path && context.arguments.path like "*..*" };
@id("anonymous") forbid (principal, action, resource) when { principal.anonymous && resource.words.contains("delete") };
`

const sampledRules = `rules:
  - { match: "get_*", action: forward }
  - { name: staff, match: "set_*", principals: ["group:staff"], action: approve, workflow: ops }
  - { match: "ask_*", action: policy }
  - { match: "*_a", kind: tool, upstream: "cr*", principals: [alice], action: approve }
  - { match: "try_*", action: deny, mode: observe }
  - { match: "file:///pub/*", kind: resource, action: forward }
  - { match: "*", kind: prompt, action: policy, workflow: ops }
default: deny
workflows: { default: {}, ops: { timeout: 5m } }
cedar: { policies: [p.cedar] }
`

// tools are the tools of the upstream, with their annotations in YAML, which is JSON too.
var tools = map[string]string{
	"get_a": `{}`, "set_a": `{"readOnlyHint":true}`, "set_b": `{}`, "try_a": `{}`, "ask_a": `{"readOnlyHint":true}`, "ask_b": `{"destructiveHint":false}`,
	"ask_delete": `{"title":"Careful"}`, "ask_get": `{"readOnlyHint":true,"title":"Careful","openWorldHint":false}`, "other_a": `{}`, "other_b": `{"idempotentHint":true}`,
}

// A sampledCall is a call that is sent to a gate, and that is the call of a test.
type sampledCall struct {
	upstream, kind, name, arguments, principal, client, version string
	groups                                                      []string
}

var groups = map[string][]string{"alice": {"staff", "ops"}, "bob": {"guests"}}

func sampleCall(t *rapid.T) sampledCall {
	pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	c := sampledCall{
		upstream: pick("upstream", "crm", "files"), kind: pick("kind", "tool", "tool", "tool", "resource", "prompt"),
		principal: pick("principal", "alice", "bob", ""), client: pick("client", "tester", "other"), version: pick("version", "1", "2"),
		arguments: pick("arguments", `{}`, `{"n":1}`, `{"n":3}`, `{"n":1e1}`, `{"n":1e400}`, `{"N":1}`, `{"n":"x"}`, `{"n":2,"path":"/a/../b"}`, `{"path":"/a"}`, `{"amount":1}`,
			`{"amount":1.25,"n":1}`, `{"amount":0.00001}`, `{"n":null,"amount":1.4999}`, `{"n":9007199254740993}`, `{"deep":[[{"n":[1,"é\n"]}]],"n":-0}`),
	}
	names := []string{"get_a", "set_b", "try_a", "ask_b", "other_a", "other_b", "ask_unlisted", "ask_a ", "ASK_A", "ﬁ_a", "ask_\u202ea", strings.Repeat("a", 1100)}
	switch {
	case c.kind == "resource":
		names = []string{"file:///pub/a", "file:///pub/../etc/a", "file:///PUB/a", "file:///pub/%61", "file:///ask_x", "http://ask_a/", "x:"}
	case c.kind == "prompt":
		names = []string{"get_a", "p", "ask_delete", "P "}
	case c.principal != "": // what the gate knows about tools depends on earlier calls of anonymous clients
		names = append(names, "set_a", "ask_a", "ask_a", "ask_delete", "ask_get")
	}
	c.name = pick("name", names...)
	c.groups = groups[c.principal]
	return c
}

// yaml returns the call as a case of a test file, whose arguments are YAML or JSON as text.
func (c sampledCall) yaml(asText bool) string {
	arguments := c.arguments
	if asText {
		arguments = "'" + arguments + "'"
	}
	text := fmt.Sprintf("{ upstream: %s, %s: %q, principal: %q, groups: [%s], arguments: %s, session: { client: %s, version: %q, protocol: \"2026-07-28\" }",
		c.upstream, c.kind, c.name, c.principal, strings.Join(c.groups, ", "), arguments, c.client, c.version)
	if hints, listed := tools[c.name]; c.kind == "tool" && listed {
		return text + ", annotations: " + hints
	}
	return text + ", annotations: { listed: false }"
}

// A sampledVerdict is what the answer of a gate shows of its verdict.
type sampledVerdict struct{ action, workflow, reason string }

// send sends the call to a gate as a client that supports tasks.
func (c sampledCall) send(t *testing.T, gate *app.App) sampledVerdict {
	t.Helper()
	method := map[string]string{"tool": "tools/call", "resource": "resources/read", "prompt": "prompts/get"}[c.kind]
	subject := "name"
	if c.kind == "resource" {
		subject = "uri"
	}
	params := map[string]any{
		subject: c.name, "arguments": jsontext.Value(c.arguments), "_meta": c.meta(),
	}
	answer := c.ask(t, gate, method, params)
	denial, held := denials.FindStringSubmatch(answer), tasks.FindStringSubmatch(answer)
	switch {
	case strings.Contains(answer, `"upstream":"ran"`):
		return sampledVerdict{action: "forward"}
	case held != nil:
		return sampledVerdict{action: "approve", workflow: workflowOf(t, gate, held[1])}
	case strings.Contains(answer, `"input_required"`):
		return sampledVerdict{action: "approve"}
	case denial != nil:
		reason, err := strconv.Unquote(`"` + denial[1] + `"`)
		if err != nil {
			t.Fatal(err)
		}
		return sampledVerdict{action: "deny", reason: reason}
	case refusals.MatchString(answer):
		return sampledVerdict{action: "deny"}
	default:
		t.Fatalf("%+v is answered by %s", c, answer)
		return sampledVerdict{}
	}
}

var (
	denials  = regexp.MustCompile(`Denied by policy: (.*?)\. It did not run`)
	refusals = regexp.MustCompile(`"error_type":"(ambiguous_name|name_too_long)"`)
	tasks    = regexp.MustCompile(`"taskId":"(.*?)"`)
	workflow = regexp.MustCompile(`"workflow":\s*"(.*?)"`)
)

// workflowOf returns the workflow of a held call.
func workflowOf(t *testing.T, gate *app.App, id string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+gate.OperatorAddr()+"/api/approvals/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret-of-the-operators")
	found := workflow.FindStringSubmatch(exchange(t, r))
	if found == nil {
		t.Fatalf("the call %s has no workflow", id)
	}
	return found[1]
}

func exchange(t *testing.T, r *http.Request) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// meta is what a modern client says about itself.
func (c sampledCall) meta() map[string]any {
	return map[string]any{
		"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
		"io.modelcontextprotocol/clientInfo":         map[string]string{"name": c.client, "version": c.version},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}},
	}
}

// ask sends a request of the client of c, and returns the answer.
func (c sampledCall) ask(t *testing.T, gate *app.App, method string, params map[string]any) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodPost, "http://"+gate.AgentAddr()+"/mcp/"+c.upstream, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Mcp-Method": method, "Mcp-Protocol-Version": "2026-07-28", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
	} {
		r.Header.Set(name, value)
	}
	if c.name != "" {
		r.Header.Set("Mcp-Name", mcp.EncodeHeader(c.name))
	}
	if c.principal != "" {
		r.Header.Set("Authorization", "Bearer "+tokenOf(c.principal))
	}
	return exchange(t, r)
}

func tokenOf(principal string) string { return "token-of-" + principal + "-0123456789abcdef" }

// startSampledGate runs a gate with the sampled rules before a server with the tools, and returns
// it and its configuration file.
func startSampledGate(t *testing.T) (gate *app.App, file string) {
	t.Helper()
	var listed []string
	for name, hints := range tools {
		listed = append(listed, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"annotations":%s}`, name, hints))
	}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     jsontext.Value `json:"id"`
			Method string         `json:"method"`
		}
		if err := json.UnmarshalRead(r.Body, &m); err != nil {
			t.Error(err)
		}
		result := `{"upstream":"ran","content":[]}`
		if m.Method == "tools/list" {
			result = `{"tools":[` + strings.Join(listed, ",") + `]}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(up.Close)
	text := "version: 1\nlisten: 127.0.0.1:0\noperators: {listen: 127.0.0.1:0, token: secret-of-the-operators}\nstore: 'memory:'\n" +
		"waiting: {hold: 1ms}\ntasks: {max_pending_per_owner: 1000000, max_pending: 10000000}\n" +
		"upstreams: [{name: crm, url: " + up.URL + "}, {name: files, url: " + up.URL + "}]\nidentity:\n  anonymous: true\n  tokens:\n"
	for name, in := range groups {
		text += fmt.Sprintf("    - {name: %s, hash: 'sha256:%x', groups: [%s]}\n", name, sha256.Sum256([]byte(tokenOf(name))), strings.Join(in, ", "))
	}
	dir := t.TempDir()
	file = filepath.Join(dir, "gate.yaml")
	writeFile(t, file, text+sampledRules)
	writeFile(t, filepath.Join(dir, "p.cedar"), sampledPolicy)
	cfg, _, err := load(io.Discard, config.Sources{File: file})
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return a, file
}

// TestPolicyTestJudgesAsTheGate sends random calls to a gate. What its answers show of the verdicts
// is what thoughtgate test expects, and nothing else.
func TestPolicyTestJudgesAsTheGate(t *testing.T) {
	gate, file := startSampledGate(t)
	for _, upstream := range []string{"crm", "files"} {
		for principal := range groups { // the gate knows the hints of tools from lists
			c := sampledCall{upstream: upstream, principal: principal}
			if answer := c.ask(t, gate, "tools/list", map[string]any{"_meta": c.meta()}); !strings.Contains(answer, "get_a") {
				t.Fatalf("tools/list is answered by %s", answer)
			}
		}
	}
	seed := rand.Int32()
	t.Log("seed", seed)
	seen := map[sampledVerdict]int{}
	right, wrong := "tests:\n", "tests:\n"
	const many = 600
	for i := range many {
		c := rapid.Custom(sampleCall).Example(int(seed) + i)
		v := c.send(t, gate)
		seen[sampledVerdict{action: v.action, workflow: v.workflow}]++
		test := fmt.Sprintf("  - { name: t, cases: [%s, verdict: ", c.yaml(i%2 == 0))
		right += test + v.action
		if v.workflow != "" {
			right += ", workflow: " + v.workflow
		}
		if v.reason != "" {
			right += fmt.Sprintf(", reason: %q", v.reason)
		}
		right += " }] }\n"
		wrong += test + map[string]string{"forward": "deny", "deny": "approve", "approve": "forward"}[v.action] + " }] }\n"
	}
	tests := filepath.Join(filepath.Dir(file), "sampled_test.yaml")
	writeFile(t, tests, right)
	if out, err := testCommand("-c", file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	writeFile(t, tests, wrong)
	if out, _ := testCommand("-c", file); !strings.HasSuffix(out, fmt.Sprintf("\n0 passed, %d failed\n", many)) {
		t.Errorf("with wrong verdicts:\n%.2000s", out)
	}
	for _, v := range []sampledVerdict{{action: "forward"}, {action: "deny"}, {action: "approve", workflow: "default"}, {action: "approve", workflow: "ops"}} {
		if seen[v] == 0 {
			t.Errorf("no call had the verdict %+v", v)
		}
	}
}
