package app_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// settings compiles a configuration with two upstreams, the given text and Cedar policies.
func settings(t *testing.T, text, cedar string) (*catalog.Settings, []string, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	const upstreams = "version: 1\nupstreams: [{name: a, url: http://a/}, {name: b, url: http://b/}]\n"
	for name, text := range map[string]string{"gate.yaml": upstreams + text, "p.cedar": cedar} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, _, err := config.Load(config.Sources{Channels: app.ChannelKinds(), File: "gate.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	s, warnings, err := app.Settings(cfg)
	var lines []string
	for _, w := range warnings {
		lines = append(lines, w.String())
	}
	return s, lines, err
}

func TestNoPolicy(t *testing.T) {
	s, warnings, err := settings(t, "mode: observe\nworkflows: {ops: {}}\nvisibility: show\nwaiting: {mode: tasks-only}\n", "")
	if err != nil || warnings != nil {
		t.Fatal(warnings, err)
	}
	if diff := cmp.Diff(&catalog.Settings{TasksOnly: true, Upstreams: []string{"a", "b"}}, s); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// Each setting that can change a verdict reaches the policy.
func TestSettingsReachPolicy(t *testing.T) {
	const text = `
rules:
  - { match: "only-b", upstream: b, action: forward }
  - { match: "prompt", kind: prompt, action: forward }
  - { match: "alice", principals: [alice], action: forward }
  - { match: "watched", action: deny, mode: observe }
  - { match: "ask", action: approve, workflow: ops, reason: because }
  - { match: "night", action: policy, workflow: ops }
default: deny
workflows: { ops: { quorum: 2, timeout: 1h, self_approval: true }, slow: { quorum: 1 } }
cedar: { policies: [p.cedar], timezone: Asia/Tokyo }
`
	const cedar = `@approval permit (principal, action, resource) when { context.hour == 9 };
@approval("slow") permit (principal, action, resource);`
	s, _, err := settings(t, text, cedar)
	if err != nil {
		t.Fatal(err)
	}
	if !s.HideDenied || s.TasksOnly {
		t.Errorf("got %+v", s)
	}
	tests := []struct{ upstream, method, name, principal, want string }{
		{"b", "tools/call", "only-b", "bob", "forward"},
		{"a", "tools/call", "only-b", "bob", "deny"},
		{"c", "tools/call", "only-b", "bob", "deny"},
		{"a", "prompts/get", "prompt", "bob", "forward"},
		{"a", "tools/call", "prompt", "bob", "deny"},
		{"a", "tools/call", "alice", "alice", "forward"},
		{"a", "tools/call", "alice", "bob", "deny"},
		{"a", "tools/call", "watched", "bob", "forward would deny"},
		{"a", "tools/call", "ask", "bob", "approve ops"},
		{"a", "tools/call", "night", "bob", "approve ops"}, // the higher quorum is stricter
	}
	for _, tt := range tests {
		v := s.Policy.Judge(policy.Call{
			Upstream: tt.upstream, Method: tt.method, Name: tt.name,
			Principal: policy.Principal{ID: tt.principal},
			Time:      time.Date(2026, 1, 1, 0, 30, 0, 0, time.UTC),
		})
		got := strings.TrimSpace(string(v.Action) + " " + v.Workflow)
		if v.Would != nil {
			got += " would " + string(v.Would.Action)
		}
		if got != tt.want {
			t.Errorf("%s %s on %s by %s: %s, want %s (%s)", tt.method, tt.name, tt.upstream, tt.principal, got, tt.want, v.Reason)
		}
		if tt.name == "ask" && !strings.HasSuffix(v.Reason, ": because") {
			t.Errorf("reason is %q", v.Reason)
		}
	}
}

func TestObserveAll(t *testing.T) {
	s, _, err := settings(t, "mode: observe\ndefault: approve\n", "")
	if err != nil {
		t.Fatal(err)
	}
	v := s.Policy.Judge(policy.Call{Upstream: "a", Method: "tools/call", Name: "x", Principal: policy.Principal{Anonymous: true}})
	if v.Action != policy.Forward || v.Would == nil || v.Would.Workflow != "default" {
		t.Errorf("got %+v", v)
	}
}

func TestProblemsHavePositions(t *testing.T) {
	const text = `rules:
  - { match: "read_[", action: forward }
  - { match: x, action: policy, workflow: nobody }
  - { match: x, action: forward, workflow: ops, upstream: zz }
default: approve
workflows: { ops: {} }
cedar: { policies: [p.cedar] }
`
	tests := []struct{ name, cedar, want string }{
		{"types", "\npermit (principal, action, resource)\nwhen { context.a == 1 };\n@hold permit (principal, action, resource);\n", "p.cedar:2: \np.cedar:4: @hold is not"},
		{"syntax", "\npermit (principal action, resource);", `p.cedar:2:19: not Cedar: expected "," before "action"`},
		{"no semicolon", "permit (principal, action, resource)\n\nforbid(principal, action, resource);", `p.cedar:3:1: not Cedar: expected ";" before "forbid"`},
		{"open text", "permit (principal, action, resource)\nwhen { \"a };", "p.cedar:2:8: not Cedar: literal not terminated"},
		{"number", "permit (principal, action, resource) when { 99999999999999999999 == 1 };", "p.cedar:1:45: not Cedar: the number 99999999999999999999 does not fit into 64 bits"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := settings(t, text, tt.cedar)
			if e := new(config.Error); !errors.As(err, &e) {
				t.Fatalf("got %v", err)
			}
			want := strings.Split(`gate.yaml:4:14: rules[0].match: 
gate.yaml:5:43: rules[1].workflow: "nobody" is not one of ops
gate.yaml:6:44: rules[2].workflow: action forward takes no workflow
gate.yaml:6:59: rules[2].upstream: "zz" matches none of a, b
gate.yaml:7:10: default.workflow: "default" is not one of ops
`+tt.want, "\n")
			got := strings.Split(err.Error(), "\n")
			if len(got) != len(want) {
				t.Fatalf("got:\n%v", err)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], want[i]) {
					t.Errorf("got %s, want %s", got[i], want[i])
				}
			}
		})
	}
}

func TestWarningsHavePositions(t *testing.T) {
	const text = `rules:
  - { match: "a*", action: forward }
  - match: "ab*"
    action: deny
default: deny
cedar: { policies: [p.cedar] }
`
	_, got, err := settings(t, text, "\npermit (principal, action, resource) when { context.arguments.x == 1 };\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`gate.yaml:5:5: rules[1]: never matches: rules[0] "a*" comes first and matches the same calls`,
		"gate.yaml:8:8: cedar: no rule has the action policy, so the policies are never evaluated",
		"p.cedar:2: reads context.arguments.x without a has check: matching calls that lack it are denied",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// The policies in the documentation compile.
func TestSamplePolicies(t *testing.T) {
	samples, err := filepath.Abs("../../docs/policies")
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := settings(t, "default: policy\nworkflows: {default: {}, ops: {}, finance: {}}\ncedar: {policies: ['"+samples+"/*.cedar']}\n", "")
	if err != nil || s.Policy == nil {
		t.Errorf("got %v, %v", s, err)
	}
}

// CORE-007 5.2: tools in tasks.force_required must be called as tasks even without rules, and
// all other calls are forwarded. Removing all rules while force_required is set is an error of
// a reload.
func TestForceRequiredWithoutRules(t *testing.T) {
	r := startReloadable(t, "tasks: {force_required: [write_x]}\n")
	if !r.passes("read_x") || r.passes("write_x") {
		t.Error("force_required has no effect")
	}
	r.write(r.text() + onlyRead)
	eventually(t, "the rules have effect", func() bool { return !r.passes("other") })
	r.write(strings.Split(r.text(), "rules:")[0])
	eventually(t, "the readiness page shows the missing rules", func() bool {
		_, body := get(t, "http://"+r.OperatorAddr()+"/readyz")
		return strings.Contains(body, "has no rules")
	})
	if r.passes("other") {
		t.Error("a partly written file removed the policy")
	}
}
