package mcphttp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/conversation"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// newArgumentFixture starts a gate whose Cedar policies forbid some arguments.
func newArgumentFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, func(s *catalog.Settings, _ *approval.Config, _ *conversation.Waiting) {
		snapshot, _, err := policy.Compile(policy.Config{
			Rules:     []policy.Rule{{Match: "*", Action: policy.AskPolicies}},
			Default:   policy.Rule{Action: policy.Deny},
			Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}},
			Cedar: []policy.Source{{Name: "p.cedar", Text: []byte(`permit (principal, action, resource);
forbid (principal, action, resource) when { context.arguments has path && context.arguments.path like "/etc/*" };
forbid (principal, action, resource) when { context.arguments has account && context.arguments.account == 9007199254740992 };
forbid (principal, action, resource) when { context.arguments has options && context.arguments.options has force };`)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Policy = snapshot
	})
}

// Cedar policies must judge the arguments as the upstream reads them. JavaScript rounds large
// numbers, many decoders ignore the case of names, C decoders end names at U+0000, and some
// programs copy a member __proto__ into the prototype of an object.
func TestAmbiguousArgumentsAreRefused(t *testing.T) {
	h := newArgumentFixture(t)
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write",` + params + `}}`
	}
	for _, params := range []string{
		`"arguments":{"path":"/etc/passwd"}`,
		`"arguments":{"Path":"/etc/passwd"}`,
		`"arguments":{"path":"/tmp/x","PATH":"/etc/passwd"}`,
		`"arguments":{"options":{"Force":true}}`,
		`"arguments":{"account":9007199254740993}`,
		`"arguments":{"account":90071992547409930e-1}`,
		`"arguments":{"__proto__":{"path":"/etc/passwd"}}`,
		`"arguments":{"options":{"__proto__":{"force":true}}}`,
		`"arguments":{"options":{"\u005f_proto__":{"force":true}}}`,
		`"arguments":{"path\u0000":"/etc/passwd","path":"/tmp/x"}`,
		`"arguments":{"options":{"force\u0000x":true}}`,
		`"__proto__":{"arguments":{"path":"/etc/passwd"}}`,
		`"_meta":{"__proto__":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}},"arguments":{}`,
	} {
		answer := h.ask(call(params))
		if !strings.Contains(answer, `"error"`) && !strings.Contains(answer, `"isError":true`) {
			t.Errorf("%s: answered %s", params, answer)
		}
		wantText(t, params, h.ask(batch(call(params))), "error")
	}
	h.wantRan()
	for _, params := range []string{
		`"arguments":{"path":"/tmp/x","other":{"Path":"/etc/passwd"}}`,
		`"arguments":{"account":9007199254740991}`,
		`"arguments":{"account":0.1}`,
		`"arguments":{"text":"__proto__"}`,
		`"arguments":{"text":"a\u0000b"}`,
	} {
		wantText(t, params, h.ask(call(params)), "done write")
	}
}
