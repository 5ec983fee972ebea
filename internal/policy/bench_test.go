package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// BenchmarkCompile1000Rules must take less than 100 ms (CORE-007 NF-001.4).
func BenchmarkCompile1000Rules(b *testing.B) {
	cfg := manyRules(1000)
	b.ReportAllocs()
	for b.Loop() {
		compile(b, cfg)
	}
}

// BenchmarkJudge1000Rules matches the last rule of each list.
func BenchmarkJudge1000Rules(b *testing.B) {
	for name, match := range map[string]string{"prefix": "tool_%d_*", "exact": "tool_%d_x", "suffix": "*_%d_x", "middle": "*_%d_*"} {
		b.Run(name, func(b *testing.B) {
			cfg := policy.Config{Default: policy.Rule{Action: policy.Deny}}
			for i := range 1000 {
				cfg.Rules = append(cfg.Rules, policy.Rule{Match: fmt.Sprintf(match, i), Action: policy.Forward})
			}
			s, call := compile(b, cfg), toolCall("tool_999_x")
			b.ReportAllocs()
			for b.Loop() {
				if s.Judge(call).Rule != 999 {
					b.Fatal("another rule matched")
				}
			}
		})
	}
}

// manyPolicies returns n policies about n tools, or all about any tool.
func manyPolicies(n int, scope string) policy.Config {
	var text strings.Builder
	for i := range n {
		resource := "resource"
		if scope == "own" {
			resource = fmt.Sprintf(`resource == ThoughtGate::Tool::"tool_%d"`, i)
		}
		fmt.Fprintf(&text, `@id("p%d") permit (principal in ThoughtGate::Group::"g%d", action == ThoughtGate::Action::"call", %s)
when { context.arguments has amount && context.arguments.amount < %d };
`, i, i%10, resource, 1000+i)
	}
	return policy.Config{
		Default: policy.Rule{Action: policy.AskPolicies},
		Cedar:   []policy.Source{{Name: "many.cedar", Text: []byte(text.String())}},
	}
}

func policyCall(name string) policy.Call {
	return policy.Call{
		Upstream: "crm", Method: "tools/call", Name: name,
		Arguments: []byte(`{"amount":42,"currency":"EUR","note":"` + strings.Repeat("x", 500) + `","lines":[{"id":1},{"id":2}]}`),
		Principal: policy.Principal{ID: "alice", Groups: []string{"g7", "staff"}},
		Time:      time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC),
	}
}

func BenchmarkJudgeCedar(b *testing.B) {
	for _, scope := range []string{"own", "any"} {
		for _, n := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", scope, n), func(b *testing.B) {
				s, call := compile(b, manyPolicies(n, scope)), policyCall("tool_0")
				call.Principal.Groups = append(call.Principal.Groups, "g0")
				b.ReportAllocs()
				for b.Loop() {
					if v := s.Judge(call); v.Action != policy.Forward {
						b.Fatal(v.Reason)
					}
				}
			})
		}
	}
}

func BenchmarkCompile1000Policies(b *testing.B) {
	cfg := manyPolicies(1000, "own")
	for b.Loop() {
		compile(b, cfg)
	}
}

// BenchmarkProspect200Tools measures the policy's share of one tools/list.
func BenchmarkProspect200Tools(b *testing.B) {
	configs := map[string]policy.Config{
		"1000 rules": manyRules(1000), "100 policies": manyPolicies(100, "any"), "1000 own policies": manyPolicies(1000, "own"),
	}
	for name, cfg := range configs {
		b.Run(name, func(b *testing.B) {
			s := compile(b, cfg)
			tools := make([]policy.Named, 200)
			for i := range tools {
				tools[i] = policy.Named{Upstream: "crm", Kind: policy.Tool, Name: fmt.Sprintf("tool_%d", i)}
			}
			alice := policy.Principal{ID: "alice", Groups: []string{"g7", "staff"}}
			b.ReportAllocs()
			for b.Loop() {
				for _, n := range tools {
					s.Prospect(n, alice)
				}
			}
		})
	}
}

// BenchmarkGrowthRules matches the last of 10 to 10,000 rules.
func BenchmarkGrowthRules(b *testing.B) {
	for _, p := range []struct{ name, match string }{
		{"exact", "tool_%d_x"}, {"prefix", "tool_%d_*"}, {"suffix", "*_%d_x"}, {"middle", "*_%d_*"},
	} {
		for _, n := range []int{10, 100, 1000, 10_000} {
			cfg := policy.Config{Default: policy.Rule{Action: policy.Deny}}
			for i := range n {
				cfg.Rules = append(cfg.Rules, policy.Rule{Match: fmt.Sprintf(p.match, i), Action: policy.Forward})
			}
			s, call := compile(b, cfg), toolCall(fmt.Sprintf("tool_%d_x", n-1))
			b.Run(fmt.Sprintf("%s/%d", p.name, n), func(b *testing.B) {
				for b.Loop() {
					if s.Judge(call).Rule != n-1 {
						b.Fatal("another rule matched")
					}
				}
			})
		}
	}
}

// BenchmarkGrowthPolicies evaluates 10 to 10,000 policies, each about its own tool, or all
// about any tool.
func BenchmarkGrowthPolicies(b *testing.B) {
	for _, scope := range []string{"own", "any"} {
		for _, n := range []int{10, 100, 1000, 10_000} {
			s, call := compile(b, manyPolicies(n, scope)), policyCall("tool_0")
			call.Principal.Groups = append(call.Principal.Groups, "g0")
			b.Run(fmt.Sprintf("%s/%d", scope, n), func(b *testing.B) {
				for b.Loop() {
					if v := s.Judge(call); v.Action != policy.Forward {
						b.Fatal(v.Reason)
					}
				}
			})
		}
	}
}

// BenchmarkGrowthCompile compiles 10 to 10,000 rules, or policies.
func BenchmarkGrowthCompile(b *testing.B) {
	for name, config := range map[string]func(n int) policy.Config{
		"rules": manyRules, "policies": func(n int) policy.Config { return manyPolicies(n, "own") },
	} {
		for _, n := range []int{10, 100, 1000, 10_000} {
			cfg := config(n)
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					compile(b, cfg)
				}
			})
		}
	}
}

// BenchmarkCores judges calls on all processors at the same time.
func BenchmarkCores(b *testing.B) {
	s, call := compile(b, manyRules(1000)), toolCall("tool_500_x")
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			s.Judge(call)
		}
	})
}
