package policy_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// matches matches a name with a snapshot whose only rule has the pattern.
func matches(t interface{ Fatal(...any) }, pattern, name string) bool {
	s, _, err := policy.Compile(policy.Config{
		Rules:   []policy.Rule{{Match: pattern, Action: policy.Forward}},
		Default: policy.Rule{Action: policy.Deny},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Judge(toolCall(name)).Action == policy.Forward
}

func toolCall(name string) policy.Call {
	return policy.Call{Method: "tools/call", Name: name, Principal: policy.Principal{ID: "alice"}}
}

func TestGlob(t *testing.T) {
	tests := []struct {
		pattern  string
		yes, not string
	}{
		{"get_user", "get_user", "get_users Get_user xget_user"},
		{"get_*", "get_ get_user get_a/b", "get xget_a GET_a"},
		{"*_user", "_user delete_user a/b_user", "user delete_users"},
		{"*a*b*", "ab xaxbx aab", "ba b"},
		{"*ab*ba*", "abba xabxbax", "aba"},
		{"a*", "a a/b/c", "ba"},
		{"*", "a / ü", ""},
		{"**", "a a/b", ""},
		{"?", "a / ü 語", "ab 語語"},
		{"a?c", "abc a/c aéc", "ac abbc"},
		{"*?", "a ab", ""},
		{"?*x", "ax aax xx", "x"},
		{"[a-c]x", "ax bx cx", "dx Ax x"},
		{"[a-cx]", "a x", "d"},
		{"[!a-c]", "d ü", "a b"},
		{"[é-ü]", "ö", "o"},
		{`\*`, "*", "a"},
		{`a\?`, "a?", "ab"},
		{`[\]\-\!]`, "] - !", `a \`},
		{`\a`, "a", `\a`},
		{"file:///srv/*.txt", "file:///srv/a.txt file:///srv/a/b.txt", "file:///srv/a.md file://srv/a.txt"},
		{"a*a*a*a*b", "aaaab", strings.Repeat("a", 5000)},
		{"*[ab]?[cd]*e", "xaycze", "xaycz ace"},
	}
	for _, tt := range tests {
		for name := range strings.FieldsSeq(tt.yes) {
			if !matches(t, tt.pattern, name) {
				t.Errorf("%q does not match %q", tt.pattern, name)
			}
		}
		for name := range strings.FieldsSeq(tt.not) {
			if matches(t, tt.pattern, name) {
				t.Errorf("%q matches %q", tt.pattern, name)
			}
		}
	}
}

func TestGlobRefused(t *testing.T) {
	for _, pattern := range []string{
		"", "[", "[]", "[!]", "[a", "[a-", "[a-]", "[z-a]", "[^a]", "[-a]", "[a-b-c]", "[[a]", "a]", "{a,b}", "a}", `a\`, `[a\`, "[!!a]", "\xff",
	} {
		_, _, err := policy.Compile(policy.Config{
			Rules:   []policy.Rule{{Match: pattern, Action: policy.Forward}},
			Default: policy.Rule{Action: policy.Deny},
		})
		if err == nil {
			t.Errorf("%q is accepted", pattern)
		}
	}
}

// slowMatch is a simple matcher that tries all possibilities.
func slowMatch(pattern, name []rune) bool {
	if len(pattern) == 0 {
		return len(name) == 0
	}
	if pattern[0] == '*' {
		return slowMatch(pattern[1:], name) || len(name) > 0 && slowMatch(pattern, name[1:])
	}
	if len(name) == 0 {
		return false
	}
	switch pattern[0] {
	case '?':
		return slowMatch(pattern[1:], name[1:])
	case '\\':
		return pattern[1] == name[0] && slowMatch(pattern[2:], name[1:])
	case '[':
		in, rest := slowClass(pattern[1:], name[0])
		return in && slowMatch(rest, name[1:])
	default:
		return pattern[0] == name[0] && slowMatch(pattern[1:], name[1:])
	}
}

func slowClass(pattern []rune, c rune) (bool, []rune) {
	if pattern[0] == '!' {
		in, rest := slowClass(pattern[1:], c)
		return !in, rest
	}
	next := func() rune {
		if pattern[0] == '\\' {
			pattern = pattern[1:]
		}
		r := pattern[0]
		pattern = pattern[1:]
		return r
	}
	in := false
	for pattern[0] != ']' {
		from := next()
		to := from
		if pattern[0] == '-' {
			pattern = pattern[1:]
			to = next()
		}
		in = in || from <= c && c <= to
	}
	return in, pattern[1:]
}

func FuzzGlob(f *testing.F) {
	for _, seed := range [][2]string{
		{"a*b?c", "axxbyc"}, {"[a-z]*[!0-9]", "qwe"}, {`\**`, "*a"}, {"*ü?", "xüy"}, {"*a*ab*", "aaab"}, {"?*?", "ab"}, {"[!a]*a", "ba"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 12 || len(name) > 16 || name == "" || !utf8.ValidString(name) {
			return
		}
		s, _, err := policy.Compile(policy.Config{
			Rules:   []policy.Rule{{Match: pattern, Action: policy.Forward}},
			Default: policy.Rule{Action: policy.Deny},
		})
		if err != nil {
			return
		}
		verdict := s.Judge(toolCall(name))
		if verdict.Ambiguous {
			return // the name is ambiguous, so no pattern was tried
		}
		want := slowMatch([]rune(pattern), []rune(name))
		if got := verdict.Action == policy.Forward; got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, name, got, want)
		}
	})
}

// patterns generates patterns over a small alphabet, so that they often match.
func patterns() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "*", "?", "[ab]", "[!c]", "[a-c]"}), 1, 6),
		func(parts []string) string { return strings.Join(parts, "") })
}

func names() *rapid.Generator[string] { return rapid.StringMatching(`[abcd]{1,6}`) }

// TestGlobProperty makes the comparison of FuzzGlob with patterns that often match.
func TestGlobProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern, name := patterns().Draw(t, "pattern"), names().Draw(t, "name")
		if got, want := matches(t, pattern, name), slowMatch([]rune(pattern), []rune(name)); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, name, got, want)
		}
	})
}

// A rule that is reported as shadowed never matches.
func TestShadowedRuleNeverMatches(t *testing.T) {
	said := 0
	rapid.Check(t, func(t *rapid.T) {
		wide, narrow := patterns().Draw(t, "wide"), patterns().Draw(t, "narrow")
		_, warnings, err := policy.Compile(policy.Config{
			Rules:   []policy.Rule{{Match: wide, Action: policy.Forward}, {Match: narrow, Action: policy.Deny}},
			Default: policy.Rule{Action: policy.Deny},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(warnings) == 0 {
			return
		}
		said++
		for range 20 {
			name := names().Draw(t, "name")
			if matches(t, narrow, name) && !matches(t, wide, name) {
				t.Errorf("Covers(%q, %q) is true, but wrong for %q", wide, narrow, name)
			}
		}
	})
	if said == 0 {
		t.Error("Covers was never true")
	}
}
