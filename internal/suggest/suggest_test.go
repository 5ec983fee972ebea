package suggest_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	r.entries = append(r.entries, e)
	if v.Action == policy.Approve && outcome != "" {
		e.Event, e.Outcome, e.Time = callrecord.Ended, outcome, e.Time.Add(time.Minute)
		if outcome != "expired" && outcome != "unattended" {
			e.By, e.Decided = []string{"bob"}, e.Time
		}
		r.entries = append(r.entries, e)
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
	report, err := suggest.From(t.Context(), cfg, 2, r.record)
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
  # Risk: nobody sees its calls before they run; that it only reads is what its server says.
  - { kind: "tool", upstream: "files", match: "search", action: forward }

  # 2. write_file on files was always approved with such arguments. Insert before rule writes.
  # Evidence: 6 calls, of which 6 were held and 6 approved, since 2026-11-02 by bob; none was rejected.
  # Saves: 6.0 approvals a week.
  # Risk: the agent chooses content; a link in the directory may lead out of it; arguments that no recorded call had are forwarded too.
  - { kind: "tool", upstream: "files", match: "write_file", principals: ["alice"], action: policy, workflow: ops }
  # The rule needs these policies in a file of cedar.policies. They deny arguments that they cannot read.
  #   @id("write_file-on-files")
  #   permit (principal, action == ThoughtGate::Action::"call", resource == ThoughtGate::Tool::"write_file")
  #   when { context.upstream == "files"
  #     && context.arguments has "mode" && context.arguments["mode"] == "w"
  #     && context.arguments has "path" && context.arguments["path"] like "/tmp/work/*" && !(context.arguments["path"] like "*..*") && !(context.arguments["path"] like "*%*") };
  #
  #   @id("other-write_file-on-files") @approval
  #   permit (principal, action == ThoughtGate::Action::"call", resource == ThoughtGate::Tool::"write_file")
  #   when { context.upstream == "files" }
  #   unless { context.arguments has "mode" && context.arguments["mode"] == "w"
  #     && context.arguments has "path" && context.arguments["path"] like "/tmp/work/*" && !(context.arguments["path"] like "*..*") && !(context.arguments["path"] like "*%*") };

# No recorded call reaches these rules. Risk of removing them: they may be for calls that are still to come.
#   rules[0] "never_*" → deny
`
	for i := range r.entries { // the times of the calls, not of their ends
		if r.entries[i].Event == callrecord.Judged {
			r.entries[i].Time = start.Add(time.Duration(i) * 5 * time.Hour)
		}
	}
	if diff := cmp.Diff(want, from(t, cfg, r).Text()); diff != "" {
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
		"a name with a quote": func(_ int, e *callrecord.Entry) string { e.Name = `a"b`; return yes },
		"redacted":            func(i int, e *callrecord.Entry) string { e.Redacted = i == 3; return arguments(e, `{"path":"/a/b"}`) },
		"nothing in common":   func(i int, e *callrecord.Entry) string { return arguments(e, fmt.Sprintf(`{"path":"/%d/a"}`, i)) },
		"only a scheme": func(i int, e *callrecord.Entry) string {
			return arguments(e, fmt.Sprintf(`{"url":"https://%d.example/a"}`, i))
		},
		"upward": func(i int, e *callrecord.Entry) string {
			return arguments(e, []string{`{"path":"/a/b/c"}`, `{"path":"/a/b/../c"}`}[i%2])
		},
		// The policies of a proposal would deny it, because it has no text.
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
			outcome := one("completed", "completed", "completed", "failed", "expired")
			if strings.Contains(string(e.Arguments), "..") {
				outcome = one("expired", "")
			}
			if e.Name == rejecting && rnd.IntN(5) == 0 {
				outcome = "rejected"
			}
			r.call(e, outcome)
		}
		report, err := suggest.From(t.Context(), cfg, 2, r.record)
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
	if diff := cmp.Diff(want, got.Text()); diff != "" {
		t.Error(diff)
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

func TestErrors(t *testing.T) {
	if _, err := suggest.From(t.Context(), holding(), 2, newRecorder(t, holding()).record); !errors.Is(err, suggest.ErrNoCalls) {
		t.Error(err)
	}
	broken := errors.New("broken")
	_, err := suggest.From(t.Context(), holding(), 2, func() iter.Seq2[callrecord.Entry, error] {
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
	if diff := cmp.Diff(want, from(t, cfg, r).Unused, cmpopts.IgnoreUnexported(suggest.Unused{})); diff != "" {
		t.Error(diff)
	}
}
