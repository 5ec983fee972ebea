package mcphttp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// cedarOnly returns settings with which Cedar alone decides.
func cedarOnly(t *testing.T, text string) *gate.Settings {
	t.Helper()
	snapshot, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{{Match: "*", Action: policy.AskPolicies}}, Default: policy.Rule{Action: policy.Deny},
		Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}},
		Cedar:     []policy.Source{{Name: "p.cedar", Text: []byte(text)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &gate.Settings{Policy: snapshot}
}

// said is the metadata of a modern request of a program, which may be unnamed.
func said(client string) string {
	meta := modernMeta("")
	if client == "" {
		return "," + meta
	}
	return "," + strings.Replace(meta, `{`, `{"io.modelcontextprotocol/clientInfo":{"name":"`+client+`","version":"1"},`, 1)
}

// Policy goes by what each modern request says of its client, and not by what another
// client has said that nothing tells apart from it.
func TestModernRequestsNameTheirClient(t *testing.T) {
	h := newFixture(t, nil)
	h.gate.Swap(cedarOnly(t, `permit (principal, action, resource) when { context.session == {client: "tester", version: "1", protocol: "2026-07-28"} };`))
	headers := modernHeaders("get_x")
	headers = headers[:len(headers)-2] // without credentials
	call := func(client string) string { return h.ask(toolCall("24", "get_x", said(client)), headers...) }
	wantText(t, "a request that names its client", call("tester"), `"result"`)
	h.wantRan(`get_x {"x":1}`)
	h.gate.Meet(t.Context(), gate.Client{Upstream: "test"}, gate.Facts{Session: policy.Session{Client: "tester", Version: "1", Protocol: "2026-07-28"}})
	wantText(t, "a request that names another client", call("other"), "Denied by policy")
	wantText(t, "a request that names none", call(""), "Denied by policy")
	h.wantRan(`get_x {"x":1}`)
}

// What a modern request says of its client counts when policy is asked again, too.
func TestModernClientCountsAtRecheck(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("24", "hold_x", said("rogue")), modernHeaders("hold_x")...)
	id := h.pending(1)[0]
	h.gate.Swap(cedarOnly(t, `@approval permit (principal, action, resource);
forbid (principal, action, resource) when { context.session.client == "rogue" };`))
	h.approve(id)
	wantText(t, "answer", req.wait(t), "policy_drift", "did not run")
	h.wantRan()
}
