package policy_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// firstOf returns the index of the pattern that decided about a name, and the index found by
// trying the patterns in order. known is false if the patterns do not compile, or if the name
// is ambiguous and no pattern was tried.
func firstOf(patterns []string, name string) (got, want int, known bool) {
	cfg := policy.Config{Default: policy.Rule{Action: policy.Forward}}
	for _, p := range patterns {
		cfg.Rules = append(cfg.Rules, policy.Rule{Match: p, Action: policy.Deny})
	}
	s, _, err := policy.Compile(cfg)
	if err != nil {
		return 0, 0, false
	}
	v := s.Judge(toolCall(name))
	want = slices.IndexFunc(patterns, func(p string) bool { return slowMatch([]rune(p), []rune(name)) })
	return v.Rule, want, !v.Ambiguous
}

// The first matching rule decides, even if patterns have similar beginnings and ends, or
// overlap.
func TestFirstMatchWinsWithSimilarTexts(t *testing.T) {
	text := rapid.StringMatching(`[ab]{1,5}`)
	pattern := rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(text, 1, 3).Draw(t, "texts")
		wild := rapid.SampledFrom([]string{"*", "*?", "[ab]*", "*[!c]"})
		p := strings.Join(parts, wild.Draw(t, "between"))
		return wild.Draw(t, "before") + p + wild.Draw(t, "behind")
	})
	decided := 0
	rapid.Check(t, func(t *rapid.T) {
		patterns := rapid.SliceOfN(pattern, 1, 30).Draw(t, "patterns")
		name := rapid.StringMatching(`[ab]{1,12}`).Draw(t, "name")
		got, want, known := firstOf(patterns, name)
		if !known || got != want {
			t.Errorf("rules[%d] decided about %q, want rules[%d] of %q (%v)", got, name, want, patterns, known)
		}
		if want > 0 {
			decided++
		}
	})
	if decided == 0 {
		t.Error("only the first rule ever decided")
	}
}

// A warning names every rule that is known to be covered by an earlier one.
func TestShadowedRulesAreFound(t *testing.T) {
	token := rapid.SampledFrom([]string{"a", "b", "ab", "*", "?", "[ab]", "[!c]", "[aa]", "\uFFFD"})
	pattern := rapid.Map(rapid.SliceOfN(token, 1, 5), func(parts []string) string { return strings.Join(parts, "") })
	said := 0
	rapid.Check(t, func(t *rapid.T) {
		patterns := rapid.SliceOfN(pattern, 2, 12).Draw(t, "patterns")
		cfg := policy.Config{Default: policy.Rule{Action: policy.Deny}}
		want := 0
		for j, p := range patterns {
			cfg.Rules = append(cfg.Rules, policy.Rule{Match: p, Action: policy.Deny})
			if slices.ContainsFunc(patterns[:j], func(wide string) bool { return policy.Covers(wide, p) }) {
				want++
			}
		}
		_, warnings, err := policy.Compile(cfg)
		if err != nil || len(warnings) != want {
			t.Errorf("%d warnings about %q, %v; want %d", len(warnings), patterns, err, want)
		}
		said += want
	})
	if said == 0 {
		t.Error("no rule was covered")
	}
}

func FuzzRules(f *testing.F) {
	for _, seed := range [][2]string{
		{"*he*\n*she*\n*his*\n*hers*", "ushers"},
		{"*ab*\n*b*\n*abc*", "xabcx"},
		{"*a?c*\n*é*\n?b*", "aéb"},
		{"*[ab]cd*\n*cde*\n*", "bcde"},
		{"*aaaa*\n*aab*", "aaab"},
		{"*\uFFFD*", "\uFFFD"},
		{"?\uFFFD\uFFFD*", "a\uFFFD\uFFFD"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, rules, name string) {
		patterns := strings.Split(rules, "\n")
		if len(rules) > 60 || len(name) > 16 || name == "" || !utf8.ValidString(name) {
			return
		}
		if got, want, known := firstOf(patterns, name); known && got != want {
			t.Errorf("rules[%d] decided about %q, want rules[%d] of %q", got, name, want, patterns)
		}
	})
}
