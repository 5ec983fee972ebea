package suggest_test

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
	"github.com/thoughtgate/thoughtgate-go/internal/suggest"
)

var start = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)

// A recorder makes the record of calls under a policy.
type recorder struct {
	policy  *policy.Snapshot
	entries []callrecord.Entry
}

func newRecorder(t interface{ Fatal(...any) }, cfg policy.Config) *recorder {
	s, _, err := policy.Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &recorder{policy: s}
}

// call records a call. If it is held, it ends with the outcome.
func (r *recorder) call(e callrecord.Entry, outcome string) {
	n := len(r.entries)
	e.Event, e.Upstream, e.Method, e.Listed = callrecord.Judged, "files", "tools/call", true
	then, granted := e.Action, e.Grant
	e.Grant = ""
	if e.Principal == "" {
		e.Principal = "alice"
	}
	if e.Time.IsZero() {
		e.Time = start.Add(time.Duration(n) * 6 * time.Hour)
	}
	if len(e.Arguments) > 0 {
		e.Digest = "digest"
	}
	v := r.policy.Judge(e.Call())
	e.SetVerdict(&v)
	if v.Action == policy.Approve {
		e.ID = fmt.Sprintf("tg_%d", n)
	}
	e.Action = cmp.Or(then, e.Action)
	r.entries = append(r.entries, e)
	if v.Action == policy.Approve && outcome != "" {
		e.Event, e.Grant, e.Outcome, e.Time = callrecord.Ended, granted, outcome, e.Time.Add(time.Minute)
		if outcome != "expired" && outcome != "unattended" {
			e.By, e.Decided = []string{"bob"}, e.Time
		}
		r.entries = append(r.entries, e)
	}
}

func (r *recorder) read(f callrecord.Filter) iter.Seq2[callrecord.Entry, error] {
	return func(yield func(callrecord.Entry, error) bool) {
		for e, err := range r.record() {
			if f.Selects(&e) && !yield(e, err) {
				return
			}
		}
	}
}

func (r *recorder) record() iter.Seq2[callrecord.Entry, error] {
	return func(yield func(callrecord.Entry, error) bool) {
		for _, e := range r.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func holding(rules ...policy.Rule) policy.Config {
	return policy.Config{
		Rules: rules, Default: policy.Rule{Action: policy.Approve}, Upstreams: []string{"files", "crm"},
		Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}, "ops": {Quorum: 2, Timeout: time.Hour}},
	}
}

func call(name, arguments string) callrecord.Entry {
	return callrecord.Entry{Name: name, Arguments: []byte(arguments)}
}

func from(t *testing.T, cfg policy.Config, r *recorder) *suggest.Report {
	t.Helper()
	report, err := suggest.From(t.Context(), cfg, 2, callrecord.Filter{}, r.read)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestReport(t *testing.T) {
	cfg := holding(
		policy.Rule{Match: "never_*", Action: policy.Deny},
		policy.Rule{Name: "writes", Match: "write_*", Action: policy.Approve, Workflow: "ops", Principals: []string{"alice"}},
	)
	r := newRecorder(t, cfg)
	for i := range 6 {
		search := call("search", `{"q":"x"}`)
		search.Hints.ReadOnly = new(true)
		r.call(search, "completed")
		r.call(call("write_file", fmt.Sprintf(`{"path":"/tmp/work/%d","mode":"w","content":"%d"}`, i, i)), "completed")
	}
	r.call(call("write_file", `{"path":"/etc/passwd","mode":"w","content":""}`), "expired")
	r.call(call("write_file", `{"path":"/tmp/work/../x","mode":"w","content":""}`), "")
	want := `# 14 calls from 2026-11-02 to 2026-11-07: 2 proposals. Nothing was changed; copy what you accept.
# Each was tried alone: it changes the verdict on exactly the calls of its evidence.
rules:

  # 1. search on files only reads. Insert before default.
  # Evidence: 6 calls, of which 6 were held and 6 approved, since 2026-11-02 by bob; none was rejected.
  # Saves: 6.0 approvals a week.
  # Risk: nobody sees its calls before they run; its server says that it only reads, and not that its arguments reach nobody else.
  - { kind: "tool", upstream: "files", match: "search", principals: ["alice"], action: forward }

  # 2. write_file on files was always approved with such arguments. Insert before rule writes.
  # Evidence: 6 calls, of which 6 were held and 6 approved, since 2026-11-02 by bob; none was rejected.
  # Saves: 6.0 approvals a week.
  # Risk: the agent chooses content; a link in the directory may lead out of it; values that no recorded call had are forwarded too; its server does not say that it destroys nothing.
  - { kind: "tool", upstream: "files", match: "write_file", principals: ["alice"], action: policy, workflow: ops }
  # The rule needs these policies in a file of cedar.policies. They deny arguments that they cannot read.
  #   @id("write_file-on-files")
  #   permit (principal, action == ThoughtGate::Action::"call", resource == ThoughtGate::Tool::"write_file")
  #   when { context.upstream == "files" };
  #
  #   // Asks unless the call has these arguments and no others.
  #   @id("other-write_file-on-files") @approval
  #   permit (principal, action == ThoughtGate::Action::"call", resource == ThoughtGate::Tool::"write_file")
  #   when { context.upstream == "files" }
  #   unless {
  #     context.arguments has content && context.arguments has path && context.arguments == {content: context.arguments.content, mode: "w", path: context.arguments.path}
  #     && context.arguments.path like "/tmp/work/*" && !(context.arguments.path like "*..*") && !(context.arguments.path like "*%*") && !(context.arguments.path like "*/.*")
  #   };

# No recorded call reaches these rules. Risk of removing them: they may be for calls that are still to come.
#   rules[0] "never_*" → deny
`
	for i := range r.entries { // the times of the calls, not of their ends
		if r.entries[i].Event == callrecord.Judged {
			r.entries[i].Time = start.Add(time.Duration(i) * 5 * time.Hour)
		}
	}
	if diff := gocmp.Diff(want, from(t, cfg, r).Text()); diff != "" {
		t.Error(diff)
	}
}

// Nothing is proposed without enough evidence, or about a tool that may do harm.
func TestNoProposal(t *testing.T) {
	const yes = "completed"
	arguments := func(e *callrecord.Entry, text string) string {
		e.Hints.ReadOnly, e.Arguments = nil, []byte(text)
		return yes
	}
	tests := map[string]func(i int, e *callrecord.Entry) (outcome string){
		"few approvals": func(i int, _ *callrecord.Entry) string { return []string{yes, "expired"}[min(1, i/4)] },
		"one day": func(i int, e *callrecord.Entry) string {
			e.Time = start.Add(time.Duration(i) * time.Minute)
			return yes
		},
		"rejected":       func(i int, _ *callrecord.Entry) string { return []string{yes, "rejected"}[i/11] },
		"nobody decided": func(int, *callrecord.Entry) string { return "expired" },
		"not by people":  func(int, *callrecord.Entry) string { return "unattended" },
		"attached": func(i int, e *callrecord.Entry) string {
			e.Outcome = []string{"held", "attached"}[min(1, i/4)]
			return yes
		},
		"destructive":         func(i int, e *callrecord.Entry) string { e.Hints.Destructive = new(i == 3); return yes },
		"changed":             func(i int, e *callrecord.Entry) string { e.Changed = i == 3; return yes },
		"stricter hints":      func(i int, e *callrecord.Entry) string { e.Hints.ReadOnly = new(i < 6); return yes },
		"a name with a quote": func(_ int, e *callrecord.Entry) string { e.Name = `a"b`; return yes },
		"redacted":            func(i int, e *callrecord.Entry) string { e.Redacted = i == 3; return arguments(e, `{"path":"/a/b"}`) },
		"nothing in common":   func(i int, e *callrecord.Entry) string { return arguments(e, fmt.Sprintf(`{"path":"/%d/a"}`, i)) },
		"only a scheme": func(i int, e *callrecord.Entry) string {
			return arguments(e, fmt.Sprintf(`{"url":"https://%d.example/a"}`, i))
		},
		"upward": func(i int, e *callrecord.Entry) string {
			return arguments(e, []string{`{"path":"/a/b/c"}`, `{"path":"/a/b/../c"}`}[i%2])
		},
		"with a standing approval": func(i int, e *callrecord.Entry) string { e.Grant = []string{"", "gr_1"}[min(1, i/4)]; return yes },
		"denied by earlier rules":  func(i int, e *callrecord.Entry) string { e.Action = []policy.Action{"", policy.Deny}[i/11]; return yes },
		"often without a decision": func(i int, _ *callrecord.Entry) string { return []string{yes, "expired"}[i/10] },
		"reads secrets":            func(_ int, e *callrecord.Entry) string { e.Name = "get-env"; return yes },
		"a command": func(i int, e *callrecord.Entry) string {
			return arguments(e, fmt.Sprintf(`{"dir":"/a/b","cmdLine":"%d"}`, i))
		},
		"an amount": func(i int, e *callrecord.Entry) string {
			return arguments(e, fmt.Sprintf(`{"currency":"EUR","n":%d}`, i))
		},
		"a secret": func(_ int, e *callrecord.Entry) string {
			return arguments(e, `{"to":"ops","api_key":"sk_live_51HqLyjWDarjtT1zdp7dcX9aBcDeFgHiJ"}`)
		},
		"the name of an argument with a new line": func(_ int, e *callrecord.Entry) string {
			return arguments(e, `{"path":"/a/b","x.\n  - { match: \"*\", action: forward } #":1}`)
		},
		"homes of all": func(i int, e *callrecord.Entry) string { return arguments(e, fmt.Sprintf(`{"path":"/home/%d/a"}`, i)) },
		"a home": func(i int, e *callrecord.Entry) string {
			return arguments(e, fmt.Sprintf(`{"path":"/home/ann/%d/a"}`, i))
		},
		"all settings": func(i int, e *callrecord.Entry) string { return arguments(e, fmt.Sprintf(`{"path":"/etc/%d/a"}`, i)) },
		"hidden files": func(i int, e *callrecord.Entry) string { return arguments(e, fmt.Sprintf(`{"path":"/a/b/.%d/a"}`, i)) },
		"many signatures": func(i int, e *callrecord.Entry) string {
			return arguments(e, fmt.Sprintf(`{"path":"/a/b","x%d":"a"}`, i%4))
		},
		// The policies of a proposal would deny it, because it has no text.
		"a text with a slash": func(i int, e *callrecord.Entry) string {
			return arguments(e, fmt.Sprintf(`{"data":"data:text/%d"}`, i))
		},
		"free, for others": func(i int, e *callrecord.Entry) string {
			arguments(e, fmt.Sprintf(`{"mode":"w","data":"%d"}`, i))
			e.Hints.OpenWorld = new(true)
			return yes
		},
		"no host": func(i int, e *callrecord.Entry) string { return arguments(e, fmt.Sprintf(`{"url":"https:///%d"}`, i)) },
		"sometimes a value": func(i int, e *callrecord.Entry) string {
			return arguments(e, []string{fmt.Sprintf(`{"text":"%d"}`, i), fmt.Sprintf(`{"text":"%d","append":true}`, i)}[i%2])
		},
		"another type": func(i int, e *callrecord.Entry) string {
			if i < 11 {
				return arguments(e, fmt.Sprintf(`{"path":"/a/b/%d"}`, i))
			}
			arguments(e, `{"path":1}`)
			return "expired"
		},
	}
	cfg := holding()
	for name, change := range tests {
		r := newRecorder(t, cfg)
		for i := range 12 {
			e := call("search", `{"path":"/a/b"}`)
			e.Hints.ReadOnly = new(true)
			outcome := change(i, &e)
			r.call(e, outcome)
		}
		if got := from(t, cfg, r); len(got.Proposals) > 0 {
			t.Errorf("%s: %s", name, got.Text())
		}
	}
}

// A proposal forwards only what people have seen: from the same agents, and with no other
// arguments.
func TestNarrow(t *testing.T) {
	cfg := holding()
	all := func(i int) string { return fmt.Sprintf(`{"path":"/a/b/%d"}`, i) }
	tests := map[string]struct {
		approved func(i int) string
		readOnly bool
		other    callrecord.Entry
	}{
		"an argument more": {approved: all, other: call("push", `{"path":"/a/b/1","force":true}`)},
		"an argument less": {approved: func(int) string { return `{"path":"/a/b","dry":true}` }, other: call("push", `{"path":"/a/b"}`)},
		"another number":   {approved: func(int) string { return `{"n":3}` }, other: call("push", `{"n":4}`)},
		"another value of an argument that is sometimes there": {
			approved: func(i int) string { return []string{`{"path":"/a/b"}`, `{"path":"/a/b","force":false}`}[i%2] }, other: call("push", `{"path":"/a/b","force":true}`),
		},
		"an argument of a tool without any": {approved: func(int) string { return `{}` }, other: call("push", `{"all":true}`)},
		"a hidden file":                     {approved: all, other: call("push", `{"path":"/a/b/.git/hooks/pre-push"}`)},
		"another agent":                     {approved: all, other: callrecord.Entry{Name: "push", Principal: "eve", Arguments: []byte(`{"path":"/a/b/1"}`)}},
		"another agent of a tool that reads": {
			approved: all, readOnly: true, other: callrecord.Entry{Name: "push", Principal: "eve", Arguments: []byte(`{"path":"/a/b/1"}`)},
		},
	}
	for name, tt := range tests {
		hints := policy.Annotations{ReadOnly: &tt.readOnly}
		r := newRecorder(t, cfg)
		for i := range 12 {
			e := call("push", tt.approved(i))
			e.Hints = hints
			r.call(e, "completed")
		}
		tt.other.Hints = hints
		r.call(tt.other, "expired")
		got := from(t, cfg, r)
		if len(got.Proposals) != 1 || got.Proposals[0].Evidence.Calls != 12 {
			t.Errorf("%s: %s", name, got.Text())
		}
	}
}

// A tool that says that it reaches others is not forwarded with any arguments, even if it only
// reads: they may be what nobody else should know.
func TestToolThatTells(t *testing.T) {
	cfg := holding()
	r := newRecorder(t, cfg)
	for i := range 12 {
		e := call("fetch", fmt.Sprintf(`{"url":"https://docs.example.com/%d"}`, i))
		e.Hints.ReadOnly, e.Hints.OpenWorld = new(true), new(true)
		r.call(e, "completed")
	}
	got := from(t, cfg, r)
	if len(got.Proposals) != 1 || !strings.Contains(got.Proposals[0].Cedar, `context.arguments.url like "https://docs.example.com/*"`) || !strings.Contains(got.Proposals[0].Risk, "redirect") {
		t.Errorf("%s", got.Text())
	}
}

// A rule that holds secrets is for people, whatever they have decided so far.
func TestRuleForSecrets(t *testing.T) {
	cfg := holding(policy.Rule{Match: "*", Secrets: []string{"known"}, Action: policy.Approve})
	r := newRecorder(t, cfg)
	for range 12 {
		e := call("search", `{"key":"sk_live_51HqLyjWDarjtT1zdp7dcX9aBcDeFgHiJ"}`)
		e.Hints.ReadOnly = new(true)
		r.call(e, "completed")
	}
	if got := from(t, cfg, r); len(got.Proposals)+len(got.Grants) > 0 {
		t.Errorf("%s", got.Text())
	}
}

// The arguments that policies name are read as Cedar reads them, whatever their names.
func TestNamesOfArguments(t *testing.T) {
	cfg := holding()
	for _, name := range []string{"if", "like", "0th", "a-b", "a b", "x'*"} {
		r := newRecorder(t, cfg)
		for i := range 12 {
			r.call(call("write", fmt.Sprintf(`{%q:"/a/b/%d","on":true}`, name, i)), "completed")
		}
		if got := from(t, cfg, r); len(got.Proposals) != 1 {
			t.Errorf("%s: %s", name, got.Text())
		}
	}
}

// A rule is for a tool of exactly that name, and gives no warning.
func TestNameOfTool(t *testing.T) {
	cfg := holding()
	for _, name := range []string{"get*all", "a?[b]", "</pre><script>alert(1)</script>", "^x+$|{y}", "x'; rm -rf ~ #"} {
		r := newRecorder(t, cfg)
		for range 12 {
			e := call(name, `{}`)
			e.Hints.ReadOnly = new(true)
			r.call(e, "completed")
		}
		got := from(t, cfg, r)
		if len(got.Proposals) != 1 {
			t.Fatalf("%s: %s", name, got.Text())
		}
		if _, warnings, err := policy.Compile(got.Proposals[0].Config()); err != nil || len(warnings) > 0 {
			t.Error(name, warnings, err)
		}
	}
}

// A call that another principal may not make is not forwarded by a proposal, and neither is one
// that policies hold.
func TestProposalsKeepOtherRules(t *testing.T) {
	cfg := holding(policy.Rule{Match: "search", Action: policy.Approve, Principals: []string{"alice"}}, policy.Rule{Match: "*", Action: policy.Deny})
	r := newRecorder(t, cfg)
	for range 12 {
		e := call("search", `{}`)
		e.Hints.ReadOnly = new(true)
		r.call(e, "completed")
		e.Principal = "eve"
		r.call(e, "")
	}
	got := from(t, cfg, r)
	if len(got.Proposals) != 1 || got.Proposals[0].Evidence.Calls != 12 || got.Proposals[0].Before != "rules[0]" {
		t.Errorf("%s", got.Text())
	}

	cfg = holding()
	cfg.Default.Action = policy.AskPolicies
	cfg.Cedar = []policy.Source{{Name: "p.cedar", Text: []byte(`@approval permit (principal, action, resource);`)}}
	r = newRecorder(t, cfg)
	for range 12 {
		e := call("search", `{}`)
		e.Hints.ReadOnly = new(true)
		r.call(e, "completed")
	}
	if got := from(t, cfg, r); len(got.Proposals) > 0 {
		t.Errorf("%s", got.Text())
	}
}

// A replay with a proposal changes exactly the calls of its evidence, and they were never
// rejected.
func TestProposalsChangeOnlyTheirEvidence(t *testing.T) {
	kinds := map[suggest.Kind]int{}
	rapid.Check(t, func(t *rapid.T) {
		pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
		cfg := holding(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) policy.Rule {
			r := policy.Rule{
				Match: pick("match", "*", "a*", "b", "*"), Action: policy.Action(pick("action", "approve", "approve", "approve", "deny", "forward")),
				Principals: rapid.SampledFrom([][]string{nil, nil, {"alice"}}).Draw(t, "principals"), Mode: policy.Mode(pick("mode", "", "", "", "observe", "enforce")),
			}
			if r.Action == policy.Approve {
				r.Workflow = pick("workflow", "", "ops")
			}
			return r
		}), 0, 3).Draw(t, "rules")...)
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		one := func(from ...string) string { return from[rnd.IntN(len(from))] }
		r := newRecorder(t, cfg)
		readOnly := map[string]bool{"a": rnd.IntN(2) == 0, "ab": rnd.IntN(2) == 0, "b": rnd.IntN(2) == 0}
		rejecting := one("a", "ab", "b", "")
		for range 80 {
			e := call(one("a", "ab", "b"), fmt.Sprintf(`{"path":"%s%d","mode":"%s"}`, one("/tmp/x/", "/tmp/x/y/", "/tmp/x/", "/tmp/x/../"), rnd.IntN(9), one("w", "w", "r")))
			e.Principal = one("alice", "eve")
			if readOnly[e.Name] {
				e.Hints.ReadOnly = new(true)
			}
			outcome := one("completed", "completed", "completed", "failed")
			if rnd.IntN(30) == 0 {
				outcome = "expired"
			}
			if !readOnly[e.Name] && strings.Contains(string(e.Arguments), "..") {
				outcome = one("expired", "")
			}
			if e.Name == rejecting && rnd.IntN(5) == 0 {
				outcome = "rejected"
			}
			r.call(e, outcome)
		}
		report, err := suggest.From(t.Context(), cfg, 2, callrecord.Filter{}, r.read)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range report.Proposals {
			kinds[p.Kind]++
			s, _, err := policy.Compile(p.Config())
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay.Run(r.record(), s)
			if err != nil {
				t.Fatal(err)
			}
			sum := 0
			for _, g := range got.Groups {
				if sum += g.Calls; g.Named != p.Named || g.From.Action != policy.Approve || g.To.Action != policy.Forward {
					t.Errorf("%s changes %s: %s to %s", p.Rule, g.Named, g.From, g.To)
				}
			}
			if sum != p.Evidence.Calls || sum < suggest.LeastApprovals || got.Unknown > 0 {
				t.Errorf("%s changes %d calls, not %d\n%s", p.Rule, sum, p.Evidence.Calls, got.Text())
			}
			for _, e := range r.entries {
				if e.Outcome == "rejected" && e.Name == p.Name {
					t.Errorf("%s is proposed, but %s was rejected", p.Rule, e.ID)
				}
			}
		}
	})
	if kinds[suggest.ReadOnly] == 0 || kinds[suggest.Arguments] == 0 {
		t.Errorf("proposals: %v", kinds)
	}
}

// A standing approval is proposed for calls that policies hold, if the workflow allows it.
func TestGrants(t *testing.T) {
	cfg := holding()
	cfg.Default.Action = policy.AskPolicies
	cfg.Cedar = []policy.Source{{Name: "p.cedar", Text: []byte(`@approval("ops") permit (principal, action, resource) when { context.arguments has path };`)}}
	ops := cfg.Workflows["ops"]
	ops.Grants = policy.Grants{Longest: 24 * time.Hour, Uses: 2}
	allowing := cfg
	allowing.Workflows = map[string]policy.Workflow{"default": cfg.Workflows["default"], "ops": ops}
	record := func(change func(i int, e *callrecord.Entry) (outcome string)) *recorder {
		r := newRecorder(t, cfg)
		for i := range 12 {
			e := call("write_file", fmt.Sprintf(`{"path":"/tmp/x","content":"%d"}`, i))
			e.Time = start.Add(time.Duration(i) * 6 * time.Hour)
			outcome := change(i, &e)
			r.call(e, outcome)
		}
		return r
	}
	approved := record(func(int, *callrecord.Entry) string { return "completed" })
	if got := from(t, cfg, approved); len(got.Grants) > 0 || len(got.Proposals) > 0 {
		t.Errorf("not allowed: %s", got.Text())
	}
	got := from(t, allowing, approved)
	want := `# 12 calls from 2026-11-02 to 2026-11-05: 0 proposals. Nothing was changed; copy what you accept.

# Standing approvals that people may give with their next approval of such a call:
#   write_file on files by alice: thoughtgate approvals approve ID --allow-for 24h0m0s --allow-uses 2 --allow-any content
#   Evidence: 12 calls were approved, since 2026-11-02 by bob; none was rejected.
#   Saves: 8.0 approvals a week, if one is given whenever none is left.
#   Risk: the agent chooses content.
`
	if diff := gocmp.Diff(want, got.Text()); diff != "" {
		t.Error(diff)
	}
	got = from(t, allowing, record(func(i int, e *callrecord.Entry) string {
		e.Arguments = fmt.Appendf(nil, `{"path":"/tmp/a/%d","mode":"w"}`, i)
		return "completed"
	}))
	if len(got.Grants) != 1 || !strings.HasSuffix(got.Grants[0].Command, " --allow-uses 2 --allow-below path=/tmp/a") {
		t.Errorf("%s", got.Text())
	}
	for name, change := range map[string]func(i int, e *callrecord.Entry) string{
		"rejected": func(i int, _ *callrecord.Entry) string { return []string{"completed", "rejected"}[i/11] },
		"another type": func(i int, e *callrecord.Entry) string {
			e.Arguments = []byte([]string{`{"path":"a","b":1}`, `{"path":"a","b":"1"}`}[i%2])
			return "completed"
		},
		"other arguments": func(i int, e *callrecord.Entry) string {
			e.Arguments = []byte([]string{`{"path":"a","b":1}`, `{"path":"a","c":1}`}[i%2])
			return "completed"
		},
		"one more": func(i int, e *callrecord.Entry) string {
			e.Arguments = []byte([]string{`{"path":"a","b":1}`, `{"path":"a"}`}[i%2])
			return "completed"
		},
		"a command": func(i int, e *callrecord.Entry) string {
			e.Arguments = fmt.Appendf(nil, `{"path":"/tmp","command":"%d"}`, i)
			return "completed"
		},
		"a secret": func(i int, e *callrecord.Entry) string {
			e.Arguments = fmt.Appendf(nil, `{"path":"%d","api_key":"sk_live_51HqLyjWDarjtT1zdp7dcX9aBcDeFgHiJ"}`, i)
			return "completed"
		},
		"reads secrets": func(_ int, e *callrecord.Entry) string { e.Name = "get_token"; return "completed" },
		"all are free": func(i int, e *callrecord.Entry) string {
			e.Arguments = fmt.Appendf(nil, `{"path":"%d"}`, i)
			return "completed"
		},
		"many agents": func(i int, e *callrecord.Entry) string {
			e.Principal = fmt.Sprintf("agent-%d", i%3)
			return "completed"
		},
		"too long between": func(i int, e *callrecord.Entry) string { e.Time = start.AddDate(0, 0, i); return "completed" },
	} {
		if got := from(t, allowing, record(change)); len(got.Grants) > 0 {
			t.Errorf("%s: %s", name, got.Text())
		}
	}
}

// A batch is approved or rejected as a whole, and ends with the name of one of its calls.
func TestRejectedBatchExcludesAllItsTools(t *testing.T) {
	cfg := holding()
	r := newRecorder(t, cfg)
	for range 12 {
		e := call("search", `{}`)
		e.Hints.ReadOnly = new(true)
		r.call(e, "completed")
	}
	if got := from(t, cfg, r); len(got.Proposals) != 1 {
		t.Fatalf("%s", got.Text())
	}
	r.call(call("other", `{}`), "rejected")
	part := r.entries[0]
	part.ID = r.entries[len(r.entries)-1].ID
	r.entries = append(r.entries, part)
	if got := from(t, cfg, r); len(got.Proposals) > 0 {
		t.Errorf("%s", got.Text())
	}
}

// A call that was rejected before the calls that are looked at is not forgotten.
func TestRejectedEarlier(t *testing.T) {
	cfg := holding()
	r := newRecorder(t, cfg)
	first := call("search", `{}`)
	first.Time = start.AddDate(0, 0, -9)
	r.call(first, "rejected")
	for range 12 {
		e := call("search", `{}`)
		e.Hints.ReadOnly = new(true)
		r.call(e, "completed")
	}
	got, err := suggest.From(t.Context(), cfg, 2, callrecord.Filter{Since: start}, r.read)
	if err != nil || got.Calls != 12 || len(got.Proposals)+len(got.Grants) > 0 {
		t.Errorf("%s, %v", got.Text(), err)
	}
}

// Nor is a batch that was rejected then, which ends with the name of one of its calls.
func TestBatchRejectedEarlier(t *testing.T) {
	cfg := holding()
	r := newRecorder(t, cfg)
	for _, name := range []string{"search", "other"} {
		e := call(name, `{}`)
		e.Time = start.AddDate(0, 0, -9)
		r.call(e, "rejected")
	}
	part := r.entries[0]
	part.ID = r.entries[len(r.entries)-1].ID
	r.entries = append([]callrecord.Entry{part}, r.entries[2:]...)
	for range 12 {
		e := call("search", `{}`)
		e.Hints.ReadOnly = new(true)
		r.call(e, "completed")
	}
	got, err := suggest.From(t.Context(), cfg, 2, callrecord.Filter{Since: start}, r.read)
	if err != nil || got.Calls != 12 || len(got.Proposals)+len(got.Grants) > 0 {
		t.Errorf("%s, %v", got.Text(), err)
	}
}

// A rule for many agents by a pattern is proposed only for those whose calls were approved.
func TestPatternOfPrincipals(t *testing.T) {
	for pattern, want := range map[string]string{
		"*":          `principals: ["alice"]`,
		"group:devs": `principals: ["group:devs"]`, // who leaves the group is not covered
	} {
		cfg := holding(policy.Rule{Match: "search", Action: policy.Approve, Principals: []string{pattern}})
		r := newRecorder(t, cfg)
		for range 12 {
			e := call("search", `{}`)
			e.Hints.ReadOnly, e.Groups = new(true), []string{"devs"}
			r.call(e, "completed")
		}
		if got := from(t, cfg, r); len(got.Proposals) != 1 || !strings.Contains(got.Proposals[0].Rule, want) {
			t.Errorf("%s: %s", pattern, got.Text())
		}
	}
}

// The report says why nothing is proposed for calls that people approve.
func TestNotes(t *testing.T) {
	asking := holding()
	asking.Default.Action = policy.AskPolicies
	asking.Cedar = []policy.Source{{Name: "p.cedar", Text: []byte(`@approval permit (principal, action, resource);`)}}
	for want, cfg := range map[string]policy.Config{"12 more approved calls were held by Cedar policies": asking, "12 more approved calls have no complete arguments": holding()} {
		r := newRecorder(t, cfg)
		for range 12 {
			e := call("write", `{"path":"/tmp/x"}`)
			e.Redacted = true
			r.call(e, "completed")
		}
		if got := from(t, cfg, r); len(got.Notes()) != 1 || !strings.Contains(got.Text(), "\n# "+want) {
			t.Errorf("%s", got.Text())
		}
	}
}

func TestErrors(t *testing.T) {
	if _, err := suggest.From(t.Context(), holding(), 2, callrecord.Filter{}, newRecorder(t, holding()).read); !errors.Is(err, suggest.ErrNoCalls) {
		t.Error(err)
	}
	broken := errors.New("broken")
	_, err := suggest.From(t.Context(), holding(), 2, callrecord.Filter{}, func(callrecord.Filter) iter.Seq2[callrecord.Entry, error] {
		return func(yield func(callrecord.Entry, error) bool) { yield(callrecord.Entry{}, broken) }
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
}

// A rule is unused only if it decides no call, whatever the arguments that were not recorded.
func TestUnusedRules(t *testing.T) {
	cfg := holding(
		policy.Rule{Match: "cedar", Action: policy.AskPolicies}, policy.Rule{Match: "cedar", Principals: []string{"eve"}, Action: policy.Deny},
		policy.Rule{Name: "never", Match: "never", Action: policy.Deny}, policy.Rule{Match: "used", Action: policy.Deny},
	)
	cfg.Cedar = []policy.Source{{Name: "p.cedar", Text: []byte(`permit (principal, action, resource) when { context.arguments has path };`)}}
	r := newRecorder(t, cfg)
	hidden := call("cedar", `{"path":"x"}`)
	hidden.Redacted = true
	r.call(hidden, "")
	r.call(call("used", `{}`), "")
	want := []suggest.Unused{{Rule: "rules[1]", Match: "cedar", Does: policy.Deny}, {Rule: "rule never", Match: "never", Does: policy.Deny}}
	if diff := gocmp.Diff(want, from(t, cfg, r).Unused, cmpopts.IgnoreUnexported(suggest.Unused{})); diff != "" {
		t.Error(diff)
	}
}
