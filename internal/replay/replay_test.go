package replay_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
)

func pick[T any](t *rapid.T, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(t, label)
}

func randomRule(t *rapid.T) policy.Rule {
	r := policy.Rule{
		Name:       pick(t, "name", "", "", "special"),
		Match:      pick(t, "match", "*", "get_*", "set_*", "get_a", "*_b", "file:///a*"),
		Kind:       pick(t, "kind", "", "", policy.Tool, policy.Resource),
		Upstream:   pick(t, "upstream", "", "", "crm", "f*"),
		Principals: pick(t, "principals", nil, nil, []string{"alice"}, []string{"group:staff"}),
		Action:     pick(t, "action", policy.Forward, policy.Approve, policy.Deny, policy.AskPolicies, policy.AskPolicies),
		Mode:       pick(t, "mode", "", "", policy.Observe, policy.Enforce),
	}
	if r.Action == policy.Approve {
		r.Workflow = pick(t, "workflow", "", "ops")
	}
	return r
}

func randomCedar(t *rapid.T) string {
	var b strings.Builder
	for i := range rapid.IntRange(1, 5).Draw(t, "policies") {
		fmt.Fprintf(&b, "@id(\"p%d\") %s (%s, action, %s)%s;\n", i,
			pick(t, "effect", "permit", "@approval permit", `@approval("ops") permit`, "forbid"),
			pick(t, "who", "principal", "principal", `principal in ThoughtGate::Group::"staff"`),
			pick(t, "what", "resource", `resource == ThoughtGate::Tool::"get_a"`, `resource in ThoughtGate::Upstream::"crm"`),
			pick(t, "when", "", " when { context.arguments has n && context.arguments.n > 1 }", " unless { context.arguments has n }", " when { context.hour >= 12 }",
				` when { context has annotations && context.annotations.readOnlyHint }`, ` when { context.session.client == "x" }`, ` when { context.weekday > 5 }`))
	}
	return b.String()
}

func randomConfig(t *rapid.T) policy.Config {
	return policy.Config{
		Rules:     rapid.SliceOfN(rapid.Custom(randomRule), 0, 5).Draw(t, "rules"),
		Default:   policy.Rule{Action: pick(t, "default", policy.Forward, policy.Approve, policy.Deny, policy.AskPolicies)},
		Workflows: map[string]policy.Workflow{"default": {Quorum: 1, Timeout: time.Hour}, "ops": {Quorum: 2, Timeout: time.Hour}},
		Cedar:     []policy.Source{{Name: "p.cedar", Text: []byte(randomCedar(t))}},
		Observe:   pick(t, "all observed", false, false, false, true),
		Upstreams: []string{"crm", "files"},
	}
}

// mutate returns a configuration with one change.
func mutate(t *rapid.T, c policy.Config) policy.Config {
	c.Rules = append([]policy.Rule(nil), c.Rules...)
	at := 0
	if len(c.Rules) > 0 {
		at = rapid.IntRange(0, len(c.Rules)-1).Draw(t, "rule")
	}
	switch change := pick(t, "change", "replace", "remove", "insert", "default", "policies", "observe"); {
	case change == "insert" || len(c.Rules) == 0:
		c.Rules = append(c.Rules[:at:at], append([]policy.Rule{randomRule(t)}, c.Rules[at:]...)...)
	case change == "replace":
		c.Rules[at] = randomRule(t)
	case change == "remove":
		c.Rules = append(c.Rules[:at:at], c.Rules[at+1:]...)
	case change == "default":
		c.Default.Action = pick(t, "default", policy.Forward, policy.Approve, policy.Deny)
	case change == "policies":
		c.Cedar = []policy.Source{{Name: "p.cedar", Text: []byte(randomCedar(t))}}
	default:
		c.Observe = !c.Observe
	}
	return c
}

var start = time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)

func randomCalls(rnd *rand.Rand, n int) []policy.Call {
	hint := func() *bool { return []*bool{nil, new(true), new(false)}[rnd.IntN(3)] }
	one := func(from ...string) string { return from[rnd.IntN(len(from))] }
	calls := make([]policy.Call, n)
	for i := range calls {
		c := policy.Call{
			Upstream: one("crm", "files", "files", "gone"), Method: one("tools/call", "tools/call", "prompts/get"), Name: one("get_a", "get_b", "set_a", "x", "ﬁ_b", "a\u202eb"),
			Arguments: []byte(one(``, `{}`, `{"n":1}`, `{"n":2}`, `{"n":"x"}`, `{"n":1e99}`, `{"N":1}`)),
			Principal: policy.Principal{ID: one("alice", "bob")},
			Session:   policy.Session{Client: one("x", "y")}, Time: start.Add(time.Duration(rnd.IntN(10*24*60)) * time.Minute),
		}
		if c.Method == "tools/call" {
			c.Annotations, c.Listed, c.Changed = policy.Annotations{ReadOnly: hint(), Destructive: hint()}, true, rnd.IntN(8) == 0
		} else if rnd.IntN(2) == 0 {
			c.Method, c.Name = one("resources/read", "resources/subscribe"), one("file:///a", "file:///a#x", "file:///a/../b")
		}
		if rnd.IntN(3) == 0 {
			c.Principal = policy.Principal{Anonymous: true}
		} else if rnd.IntN(2) == 0 {
			c.Principal.Groups = []string{"staff"}
		}
		calls[i] = c
	}
	return calls
}

// entry returns the record of a call. If full is false, it lacks arguments.
func entry(c policy.Call, s *policy.Snapshot, full bool) callrecord.Entry {
	e := callrecord.Entry{
		Time: c.Time, Event: callrecord.Judged, Upstream: c.Upstream, Method: c.Method, Name: c.Name,
		Principal: c.Principal.ID, Groups: c.Principal.Groups, Client: callrecord.Client{Name: c.Session.Client},
		Hints: c.Annotations, Listed: c.Listed, Changed: c.Changed,
	}
	if len(c.Arguments) > 0 {
		e.Digest = "digest"
		if full {
			e.Arguments = c.Arguments
		} else if strings.Contains(string(c.Arguments), `"n"`) {
			e.Arguments, e.Redacted = []byte(`{}`), true
		}
	}
	v := s.Judge(c)
	e.SetVerdict(&v)
	return e
}

// written returns the entries after writing and reading them.
func written(t interface{ Fatal(...any) }, entries []callrecord.Entry) iter.Seq2[callrecord.Entry, error] {
	var file bytes.Buffer
	for i := range entries {
		if err := entries[i].Write(&file); err != nil {
			t.Fatal(err)
		}
	}
	return callrecord.Read(&file)
}

// A replay under the policy of the record reports nothing.
func TestSamePolicyChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _, err := policy.Compile(randomConfig(t))
		if err != nil {
			return
		}
		full := rapid.Bool().Draw(t, "full")
		var entries []callrecord.Entry
		for _, c := range randomCalls(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), 300) {
			entries = append(entries, entry(c, s, full))
		}
		r, err := replay.Run(written(t, entries), s)
		if err != nil {
			t.Fatal(err)
		}
		if r.Calls != len(entries) || r.Different != 0 || r.Unknown != 0 || len(r.Groups) > 0 || r.Approvals.Total.Then != r.Approvals.Total.Now {
			t.Errorf("%s", r.Text())
		}
	})
}

// A replay under another policy reports exactly the calls that are judged differently.
func TestReplayReportsWhatChanges(t *testing.T) {
	differences, unknown, unchanged := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := randomConfig(t)
		before, _, err := policy.Compile(cfg)
		if err != nil {
			return
		}
		after, _, err := policy.Compile(mutate(t, cfg))
		if err != nil {
			return
		}
		full := rapid.Bool().Draw(t, "full")
		want, first := map[replay.Change]int{}, map[replay.Change]time.Time{}
		held, hidden := [2]int{}, 0
		var entries []callrecord.Entry
		for _, c := range randomCalls(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), 300) {
			e, now := entry(c, before, full), entry(c, after, true)
			entries = append(entries, e)
			if _, known := replay.Judge(&e, after); !known {
				hidden++
				if full && len(c.Arguments) > 0 || strings.HasPrefix(c.Method, "resources/") && len(c.Arguments) == 0 || now.Rule == callrecord.ByGate && !strings.Contains(c.Name, "ﬁ") {
					t.Errorf("%s %q %s is not judged again", c.Method, c.Name, c.Arguments)
				}
				continue
			}
			for i, held1 := range []callrecord.Entry{e, now} {
				if held1.Action == policy.Approve {
					held[i]++
				}
			}
			from, to := replay.Verdict{Action: e.Action, Observed: e.Observed, Workflow: e.Workflow}, replay.Verdict{Action: now.Action, Observed: now.Observed, Workflow: now.Workflow}
			if from != to {
				change := replay.Change{Named: replay.Named{Upstream: c.Upstream, Method: c.Method, Name: c.Name}, From: from, To: to, Rule: now.Rule}
				if want[change]++; want[change] == 1 {
					first[change] = c.Time
				}
			}
		}
		r, err := replay.Run(written(t, entries), after)
		if err != nil {
			t.Fatal(err)
		}
		got, sum := map[replay.Change]int{}, 0
		for _, g := range r.Groups {
			got[g.Change] += g.Calls
			sum += g.Calls
			if !g.Example.Time.Equal(first[g.Change]) {
				t.Errorf("the example of %s is the call at %s, not at %s", g.Named, g.Example.Time, first[g.Change])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || sum != r.Different || r.Unknown != hidden || r.Calls != len(entries) {
			t.Errorf("%d of %d, %d unknown of %d: %s", r.Different, sum, r.Unknown, hidden, diff)
		}
		if total := r.Approvals.Total; total.Then != held[0] || total.Now != held[1] {
			t.Errorf("%+v, but %v were held", total, held)
		}
		differences, unknown = differences+r.Different, unknown+r.Unknown
		if r.Different == 0 {
			unchanged++
		}
	})
	if differences == 0 || unknown == 0 || unchanged == 0 {
		t.Errorf("%d differences, %d unknown calls, %d replays without a difference", differences, unknown, unchanged)
	}
}

func TestReport(t *testing.T) {
	cfg := policy.Config{
		Rules:   []policy.Rule{{Name: "sets", Match: "set_*", Action: policy.Approve}, {Match: "cedar_*", Action: policy.AskPolicies}},
		Default: policy.Rule{Action: policy.Forward},
		Cedar:   []policy.Source{{Name: "p.cedar", Text: []byte(`permit (principal, action, resource) when { context.arguments has n };`)}},
	}
	before := compile(t, cfg)
	cfg.Rules[0].Match = "set_a"
	cfg.Rules[1].Match = "cedar_a"
	after := compile(t, cfg)
	call := func(day int, name, who string) policy.Call {
		return policy.Call{Upstream: "crm", Method: "tools/call", Name: name, Principal: policy.Principal{ID: who, Anonymous: who == ""}, Time: start.AddDate(0, 0, day), Arguments: []byte(`{}`)}
	}
	entries := []callrecord.Entry{
		entry(call(1, "set_b", "alice"), before, false), entry(call(0, "set_b", ""), before, false), entry(call(0, "set_a", "alice"), before, false),
		entry(call(4, "cedar_a", "alice"), before, false), entry(call(2, "cedar_b", "bob"), before, false), entry(call(3, "get", "bob"), before, false),
	}
	entries[0].ID = "tg_1"
	entries[3].Snapshot = "other"
	attached := entries[2]
	attached.Outcome = "attached"
	entries = append(entries, attached, callrecord.Entry{Event: callrecord.Ended, ID: "tg_1", Time: start.AddDate(1, 0, 0)})
	r, err := replay.Run(written(t, entries), after)
	if err != nil {
		t.Fatal(err)
	}
	want := `3 of 7 calls from 2026-11-02T00:00:00Z to 2026-11-06T00:00:00Z would be judged differently
        2  tools/call "set_b" on crm: approve default → forward by default
           such as 2026-11-03T00:00:00Z by alice (tg_1), then by rule sets; now: the default forwards it
        1  tools/call "cedar_b" on crm: deny → forward by default
           such as 2026-11-04T00:00:00Z by bob, then by rules[1]; now: the default forwards it
1 of 7 calls cannot be judged again: the verdict may depend on arguments that are not in the record (record.arguments)
        1  tools/call "cedar_a" on crm
approvals a day, in 4.0 days: 0.8 → 0.2 (-0.5)
  agent anonymous: 0.2 → 0.0 (-0.2)
  agent alice: 0.5 → 0.2 (-0.2)
  workflow default: 0.8 → 0.2 (-0.5)
`
	if diff := cmp.Diff(want, r.Text()); diff != "" {
		t.Error(diff)
	}
}

func compile(t testing.TB, cfg policy.Config) *policy.Snapshot {
	t.Helper()
	s, _, err := policy.Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Names in a record come from agents.
func TestReportEscapesNames(t *testing.T) {
	s := compile(t, policy.Config{Default: policy.Rule{Action: policy.Deny}})
	e := callrecord.Entry{Time: start, Event: callrecord.Judged, Upstream: "crm\n", Method: "tools/call", Name: "a\x1b[31m\n\u202e", Principal: "al\nice", Action: policy.Forward, ID: "\r", Rule: "\v"}
	r, err := replay.Run(written(t, []callrecord.Entry{e}), s)
	if err != nil {
		t.Fatal(err)
	}
	if text := r.Text(); strings.ContainsAny(text, "\x1b\r\v\u202e") || strings.Count(text, "\n") != 4 {
		t.Errorf("%q", text)
	}
}

func TestReplayEndsAfterError(t *testing.T) {
	s := compile(t, policy.Config{Default: policy.Rule{Action: policy.Deny}})
	broken := errors.New("broken")
	record := func(yield func(callrecord.Entry, error) bool) {
		for range 1000 {
			if !yield(callrecord.Entry{Event: callrecord.Judged, Action: policy.Deny}, nil) {
				return
			}
		}
		yield(callrecord.Entry{}, broken)
	}
	if _, err := replay.Run(record, s); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := replay.Run(written(t, []callrecord.Entry{{Event: callrecord.Judged, Name: "x"}}), s); err == nil {
		t.Error("an entry without a verdict is accepted")
	}
}
