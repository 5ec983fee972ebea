package mcphttp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// cedarOnly returns settings with which only Cedar decides.
func cedarOnly(t *testing.T, text string) *catalog.Settings {
	t.Helper()
	snapshot, _, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{{Match: "*", Action: policy.AskPolicies}}, Default: policy.Rule{Action: policy.Deny},
		Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}},
		Cedar:     []policy.Source{{Name: "p.cedar", Text: []byte(text)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &catalog.Settings{Policy: snapshot}
}

// said is the _meta of a modern request from a program, which may have no name.
func said(client string) string {
	meta := modernMeta("")
	if client == "" {
		return "," + meta
	}
	return "," + strings.Replace(meta, `{`, `{"io.modelcontextprotocol/clientInfo":{"name":"`+client+`","version":"1"},`, 1)
}

// Policy uses the client information of each modern request, and not that of another client
// with equal credentials.
func TestModernRequestsNameTheirClient(t *testing.T) {
	h := newFixture(t, nil)
	h.catalog.Configure(cedarOnly(t, `permit (principal, action, resource) when { context.session == {client: "tester", version: "1", protocol: "2026-07-28"} };`))
	headers := modernHeaders("get_x")
	headers = headers[:len(headers)-2] // without credentials
	call := func(client string) string { return h.ask(toolCall("24", "get_x", said(client)), headers...) }
	wantText(t, "a request that names its client", call("tester"), `"result"`)
	h.wantRan(`get_x {"x":1}`)
	h.catalog.LearnHandshake(t.Context(), catalog.Client{Upstream: "test"}, catalog.Handshake{Session: policy.Session{Client: "tester", Version: "1", Protocol: "2026-07-28"}})
	wantText(t, "a request that names another client", call("other"), "Denied by policy")
	wantText(t, "a request that names none", call(""), "Denied by policy")
	h.wantRan(`get_x {"x":1}`)
}

func TestModernClientCountsAtRecheck(t *testing.T) {
	h := newFixture(t, nil)
	req := h.send(toolCall("24", "hold_x", said("rogue")), modernHeaders("hold_x")...)
	id := h.pending(1)[0]
	h.catalog.Configure(cedarOnly(t, `@approval permit (principal, action, resource);
forbid (principal, action, resource) when { context.session.client == "rogue" };`))
	h.approve(id)
	wantText(t, "answer", req.wait(t), "policy_drift", "did not run")
	h.wantRan()
}
