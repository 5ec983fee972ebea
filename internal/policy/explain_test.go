package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

func explained(t *testing.T) *policy.Snapshot {
	t.Helper()
	return compile(t, policy.Config{
		Rules: []policy.Rule{
			{Match: "get_*", Action: policy.Forward},
			{Match: "*", Kind: policy.Prompt, Action: policy.Deny},
			{Match: "*", Upstream: "files", Action: policy.Deny},
			{Match: "*_user", Principals: []string{"root"}, Action: policy.Forward},
			{Match: "delete_*", Action: policy.Approve, Workflow: "ops", Reason: "it is gone then"},
			{Match: "pay", Action: policy.AskPolicies},
		},
		Default: policy.Rule{Action: policy.Deny},
		Workflows: map[string]policy.Workflow{
			"ops": {Quorum: 2, Timeout: 15 * time.Minute}, "finance": {Quorum: 1, Timeout: time.Hour, SelfApproval: true},
		},
		Cedar: []policy.Source{{Name: "pay.cedar", Text: []byte(`@id("small")
permit (principal, action, resource == ThoughtGate::Tool::"pay") when { context.arguments.amount <= 100 };
@id("large") @approval("finance") @reason("more than 100")
permit (principal, action, resource == ThoughtGate::Tool::"pay") when { context.arguments.amount > 100 };`)}},
	})
}

func TestExplain(t *testing.T) {
	s := explained(t)
	call := func(name, arguments string) policy.Call {
		return policy.Call{Upstream: "crm", Method: "tools/call", Name: name, Arguments: []byte(arguments), Principal: policy.Principal{ID: "alice"}}
	}
	anonymous := call("other", "")
	anonymous.Principal = policy.Principal{ID: "session", Anonymous: true}
	tests := []struct {
		call policy.Call
		want string
	}{
		{call("delete_user", `{"id":1}`), `
call       tools/call "delete_user" on upstream crm
principal  alice
rules[0]   get_* → forward: the name does not match
rules[1]   * → deny: applies to the kind prompt
rules[2]   * → deny: applies to another upstream
rules[3]   *_user → forward: does not apply to this principal
rules[4]   delete_* → approve: matches
verdict    approve ops
why        rules[4] "delete_*" needs approval by workflow ops: it is gone then
snapshot   ID
approver   sees the call, the requester and the reason: rules[4] "delete_*" needs approval by workflow ops: it is gone then; 2 must approve within 15 minutes, without the requester
`},
		{call("pay", `{"amount":500}`), `
call       tools/call "pay" on upstream crm
principal  alice
rules[0]   get_* → forward: the name does not match
rules[1]   * → deny: applies to the kind prompt
rules[2]   * → deny: applies to another upstream
rules[3]   *_user → forward: the name does not match
rules[4]   delete_* → approve: the name does not match
rules[5]   pay → policy: matches
policy     large (pay.cedar:3): permit with approval by finance
policy     small (pay.cedar:1): permit: does not apply: context.arguments.amount <= 100 is false
verdict    approve finance
why        permitted by policy large (more than 100), with approval by workflow finance
snapshot   ID
approver   sees the call, the requester and the reason: permitted by policy large (more than 100), with approval by workflow finance; 1 must approve within 1 hour, the requester may be one of them
`},
		{call("pay", `{"amount":"500"}`), `
call       tools/call "pay" on upstream crm
principal  alice
rules[0]   get_* → forward: the name does not match
rules[1]   * → deny: applies to the kind prompt
rules[2]   * → deny: applies to another upstream
rules[3]   *_user → forward: the name does not match
rules[4]   delete_* → approve: the name does not match
rules[5]   pay → policy: matches
policy     large (pay.cedar:3): permit with approval by finance
           failed: type error: expected comparable value, got string
policy     small (pay.cedar:1): permit
           failed: type error: expected comparable value, got string
verdict    deny
why        denied because a policy could not be evaluated: large, small
snapshot   ID
approver   no approval needed
`},
		{call("pay", `{"amount":1e99}`), `
call       tools/call "pay" on upstream crm
principal  alice
rules[0]   get_* → forward: the name does not match
rules[1]   * → deny: applies to the kind prompt
rules[2]   * → deny: applies to another upstream
rules[3]   *_user → forward: the name does not match
rules[4]   delete_* → approve: the name does not match
rules[5]   pay → policy: matches
arguments  cannot be evaluated by the policies: "amount": a number beyond 64 bits
verdict    deny
why        the policies cannot be evaluated: the arguments have a number beyond 64 bits
snapshot   ID
approver   no approval needed
`},
		{anonymous, `
call       tools/call "other" on upstream crm
principal  anonymous
rules[0]   get_* → forward: the name does not match
rules[1]   * → deny: applies to the kind prompt
rules[2]   * → deny: applies to another upstream
rules[3]   *_user → forward: the name does not match
rules[4]   delete_* → approve: the name does not match
rules[5]   pay → policy: the name does not match
default    no rule matches
verdict    deny
why        the default denies it
snapshot   ID
approver   no approval needed
`},
		{call("get_user", ""), `
call       tools/call "get_user" on upstream crm
principal  alice
rules[0]   get_* → forward: matches
verdict    forward
why        rules[0] "get_*" forwards it
snapshot   ID
approver   no approval needed
`},
		{policy.Call{Method: "tools/list", Name: "a", Upstream: "crm", Principal: policy.Principal{ID: "alice"}}, `
call       tools/list "a" on upstream crm
principal  alice
verdict    deny
why        unknown method
snapshot   ID
approver   no approval needed
`},
	}
	for _, tt := range tests {
		want := strings.TrimPrefix(strings.ReplaceAll(tt.want, "ID", s.ID()), "\n")
		if diff := cmp.Diff(want, s.Explain(tt.call).Text()); diff != "" {
			t.Errorf("%s %s:\n%s", tt.call.Name, tt.call.Arguments, diff)
		}
	}
}

func TestExplainJSON(t *testing.T) {
	s := explained(t)
	e := s.Explain(policy.Call{Upstream: "crm", Method: "tools/call", Name: "pay", Arguments: []byte(`{"amount":500}`), Principal: policy.Principal{ID: "alice"}})
	e.Rules = e.Rules[5:]
	got, err := json.Marshal(e, jsontext.Multiline(true))
	if err != nil {
		t.Fatal(err)
	}
	want := `{
	"method": "tools/call",
	"name": "pay",
	"upstream": "crm",
	"principal": "alice",
	"rules": [
		{
			"index": 5,
			"label": "rules[5]",
			"match": "pay",
			"action": "policy",
			"matched": true,
			"why": "matches"
		}
	],
	"default": false,
	"policies": [
		{
			"id": "large",
			"where": "pay.cedar:3",
			"says": "permit with approval by finance"
		}
	],
	"unmet": [
		{
			"id": "small",
			"where": "pay.cedar:1",
			"says": "permit",
			"unmet": "context.arguments.amount <= 100 is false"
		}
	],
	"verdict": {
		"action": "approve",
		"workflow": "finance",
		"rule": 5,
		"label": "rules[5]",
		"match": "pay",
		"policies": [
			"large"
		],
		"reason": "permitted by policy large (more than 100), with approval by workflow finance",
		"says": [
			"more than 100"
		],
		"snapshot": "ID"
	},
	"approver": "sees the call, the requester and the reason: permitted by policy large (more than 100), with approval by workflow finance; 1 must approve within 1 hour, the requester may be one of them"
}`
	if diff := cmp.Diff(strings.ReplaceAll(want, "ID", s.ID()), string(got)); diff != "" {
		t.Error(diff)
	}
}

// The last rule that the explanation tried is the rule that decided.
func TestExplainAgreesWithJudge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := asking(randomPolicies(t))
		for _, match := range rapid.SliceOfN(patterns(), 0, 6).Draw(t, "rules") {
			cfg.Rules = append(cfg.Rules, policy.Rule{Match: match, Action: rapid.SampledFrom([]policy.Action{policy.Forward, policy.AskPolicies}).Draw(t, "action")})
		}
		s, _, err := policy.Compile(cfg)
		if err != nil {
			return
		}
		call := randomCall(t)
		e := s.Explain(call)
		if diff := cmp.Diff(s.Judge(call), e.Verdict); diff != "" {
			t.Fatal(diff)
		}
		if e.Default {
			if e.Verdict.Rule != policy.ByDefault {
				t.Fatalf("default, but rules[%d]", e.Verdict.Rule)
			}
			return
		}
		if last := e.Rules[len(e.Rules)-1]; !last.Matched || last.Index != e.Verdict.Rule {
			t.Fatalf("rules[%d] decided, but the last tried rule is %+v", e.Verdict.Rule, last)
		}
	})
}

// A rule with a name is mentioned by this name everywhere.
func TestRuleName(t *testing.T) {
	s, warnings, err := policy.Compile(policy.Config{
		Rules: []policy.Rule{
			{Name: "deletions", Match: "delete_*", Action: policy.Approve},
			{Match: "delete_all", Action: policy.Deny},
		},
		Default: policy.Rule{Action: policy.Deny},
	})
	if err != nil {
		t.Fatal(err)
	}
	call := policy.Call{Method: "tools/call", Name: "delete_user", Principal: policy.Principal{ID: "alice"}}
	if v := s.Judge(call); v.Label != "rule deletions" || v.Reason != `rule deletions "delete_*" needs approval by workflow default` {
		t.Errorf("verdict: %+v", v)
	}
	if text := s.Explain(call).Text(); !strings.Contains(text, "\nrule deletions delete_* → approve: matches\n") {
		t.Errorf("explained: %s", text)
	}
	want := `rules[1]: never matches: rule deletions "delete_*" comes first and matches the same calls`
	if len(warnings) != 1 || warnings[0].String() != want {
		t.Errorf("warnings: %v", warnings)
	}
}

// The name of a principal cannot write to a terminal.
func TestExplanationOfHostileName(t *testing.T) {
	for name, want := range map[string]string{"ann": "principal  ann\n", "Zoë": "principal  Zoë\n", "a\x1b[31m\u202e\nverdict": `principal  "a\x1b[31m\u202e\nverdict"` + "\n"} {
		if text := (policy.Explanation{Principal: name}).Text(); !strings.Contains(text, want) {
			t.Errorf("%q: %s", name, text)
		}
	}
}
