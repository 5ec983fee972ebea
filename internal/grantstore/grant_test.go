package grantstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

var epoch = time.Date(2026, 8, 22, 10, 30, 0, 0, time.UTC)

// seen is the call for which the grants of these tests are given.
const seen = `{"path":"/tmp/é","n":1,"deep":{"a":[1,"x"],"b":null},"on":true}`

func grantScope(arguments string, free ...string) grantstore.Scope {
	return grantstore.Scope{
		Owner: "files principal:agent", Principal: "named agent", Workflow: "ops", ToolDigest: "v2-1",
		Call: task.Call{Upstream: "files", Method: "tools/call", Name: "write", Arguments: arguments}, GrantShape: gatetask.GrantShape{Free: free},
	}
}

// Covered calls differ from the approved one only in values of free arguments and in equivalent
// spellings of JSON.
func TestGrantScope(t *testing.T) {
	tests := map[string]struct {
		arguments string
		free      []string
		covered   bool
	}{
		"unchanged":                     {seen, nil, true},
		"other white space and order":   {` {"on":true, "n":1,"deep":{"b":null,"a":[1,"x"]},"path":"/tmp/é"}`, nil, true},
		"a string written with escapes": {strings.Replace(seen, "/tmp", `\/tm\u0070`, 1), nil, true},
		"another value":                 {strings.Replace(seen, "/tmp", "/etc", 1), nil, false},
		"another value deep inside":     {strings.Replace(seen, `"x"`, `"y"`, 1), nil, false},
		"1.0 for 1":                     {strings.Replace(seen, `"n":1`, `"n":1.0`, 1), nil, false},
		"1e0 for 1":                     {strings.Replace(seen, `"n":1`, `"n":1e0`, 1), nil, false},
		"string for a number":           {strings.Replace(seen, `"n":1`, `"n":"1"`, 1), nil, false},
		"another Unicode form":          {strings.Replace(seen, "é", "e\u0301", 1), nil, false},
		"extra argument":                {strings.Replace(seen, `{"path"`, `{"force":true,"path"`, 1), nil, false},
		"missing argument":              {strings.Replace(seen, `,"on":true`, "", 1), nil, false},
		"a name in another case":        {strings.Replace(seen, `"on"`, `"On"`, 1), nil, false},
		"no arguments":                  {"", nil, false},

		"free: another value":           {strings.Replace(seen, "/tmp", "/etc", 1), []string{"path"}, true},
		"free: another number":          {strings.Replace(seen, `"n":1`, `"n":2.0`, 1), []string{"n"}, true},
		"free: another boolean":         {strings.Replace(seen, `true`, `false`, 1), []string{"on"}, true},
		"free: another object":          {strings.Replace(seen, `{"a":[1,"x"],"b":null}`, `{}`, 1), []string{"deep"}, true},
		"free: another type":            {strings.Replace(seen, `"/tmp/é"`, `["/tmp/é"]`, 1), []string{"path"}, false},
		"free: null":                    {strings.Replace(seen, `"/tmp/é"`, `null`, 1), []string{"path"}, false},
		"free: missing":                 {strings.Replace(seen, `"path":"/tmp/é",`, ``, 1), []string{"path"}, false},
		"free: a pinned one differs":    {strings.Replace(seen, `"n":1`, `"n":2`, 1), []string{"path"}, false},
		"free: pinned number respelled": {strings.Replace(seen, `"n":1`, `"n":1.0`, 1), []string{"path"}, false},
		"free: extra argument":          {strings.Replace(seen, `{"path"`, `{"Path":"/etc","path"`, 1), []string{"path"}, false},
		"free: a name in another case":  {strings.Replace(seen, `"path"`, `"Path"`, 1), []string{"path"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pattern, err := grantScope(seen, test.free...).Digest()
			if err != nil {
				t.Fatal(err)
			}
			got, err := grantScope(test.arguments, test.free...).Digest()
			if covered := err == nil && got == pattern; covered != test.covered {
				t.Errorf("covered: %t, want %t (%v)", covered, test.covered, err)
			}
		})
	}
}

// Every part of a scope changes its digest.
func TestGrantScopeParts(t *testing.T) {
	digests := map[task.Digest]string{}
	for name, change := range map[string]func(*grantstore.Scope){
		"nothing":    func(*grantstore.Scope) {},
		"owner":      func(s *grantstore.Scope) { s.Owner = "x" },
		"principal":  func(s *grantstore.Scope) { s.Principal = "x" },
		"workflow":   func(s *grantstore.Scope) { s.Workflow = "x" },
		"definition": func(s *grantstore.Scope) { s.ToolDigest = "x" },
		"upstream":   func(s *grantstore.Scope) { s.Call.Upstream = "x" },
		"method":     func(s *grantstore.Scope) { s.Call.Method = "x" },
		"tool":       func(s *grantstore.Scope) { s.Call.Name = "x" },
		"also":       func(s *grantstore.Scope) { s.Call.Also = `{"params":{"x":1}}` },
		"arguments":  func(s *grantstore.Scope) { s.Call.Arguments = `{}` },
		"free":       func(s *grantstore.Scope) { s.Free = []string{"path"} },
		"moved":      func(s *grantstore.Scope) { s.Owner, s.Principal = s.Owner+s.Principal, "" },
	} {
		s := grantScope(seen)
		change(&s)
		d, err := s.Digest()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if other, known := digests[d]; known {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		digests[d] = name
	}
}

func TestGrantScopeRefuses(t *testing.T) {
	for arguments, free := range map[string][]string{
		`{"a":1}`:                   {"b"},
		`{"a":1,"b":2}`:             {"a", "a"},
		`[1]`:                       {"a"},
		`{"a":1,"a":2}`:             {"a"},
		`{"a":{"x":1,"x":2},"b":1}`: {"b"},
		`{"a":"` + "\xff" + `"}`:    nil,
		`{"a":1`:                    nil,
	} {
		if _, err := grantScope(arguments, free...).Digest(); err == nil {
			t.Errorf("Digest of %s with %q free succeeded", arguments, free)
		}
	}
}

// A member is an argument of a generated call.
type member struct{ name, value string }

func object(members []member) string {
	var parts []string
	for _, m := range members {
		parts = append(parts, fmt.Sprintf("%q:%s", m.name, m.value))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// The digest agrees with a simple implementation of the rule: the same names, the same text of
// pinned values, the same types of free values. The test generates values in canonical form, so
// texts can be compared.
func TestGrantScopeMatchesSimpleRule(t *testing.T) {
	names := []string{"a", "A", "b", "é", "e\u0301", "path", ""}
	values := []string{`1`, `1.0`, `1e0`, `-0`, `0`, `"1"`, `"é"`, `"e` + "\u0301" + `"`, `""`, `null`, `true`, `false`, `{}`, `[]`, `{"a":1}`, `[1,2]`, `["1",2]`}
	kind := func(v string) string {
		switch v[0] {
		case 't', 'f':
			return "truth"
		case '{', '[', '"', 'n':
			return v[:1]
		default:
			return "number"
		}
	}
	covers := func(seen, call []member, free []string) bool {
		if len(seen) != len(call) {
			return false
		}
		for _, m := range seen {
			i := slices.IndexFunc(call, func(c member) bool { return c.name == m.name })
			switch {
			case i < 0:
				return false
			case slices.Contains(free, m.name) && kind(m.value) != kind(call[i].value):
				return false
			case !slices.Contains(free, m.name) && m.value != call[i].value:
				return false
			}
		}
		return true
	}
	one := rapid.Custom(func(t *rapid.T) member {
		return member{rapid.SampledFrom(names).Draw(t, "name"), rapid.SampledFrom(values).Draw(t, "value")}
	})
	call := rapid.SliceOfNDistinct(one, 0, 4, func(m member) string { return m.name })
	rapid.Check(t, func(t *rapid.T) {
		base := call.Draw(t, "seen")
		var free []string
		for _, m := range base {
			if rapid.Bool().Draw(t, "free") {
				free = append(free, m.name)
			}
		}
		other := slices.Clone(base)
		switch rapid.IntRange(0, 3).Draw(t, "change") {
		case 0:
			other = call.Draw(t, "other")
		case 1:
			if len(other) > 0 {
				other[0].value = rapid.SampledFrom(values).Draw(t, "changed")
			}
		case 2:
			slices.Reverse(other)
		}
		pattern, err := grantScope(object(base), free...).Digest()
		if err != nil {
			t.Fatal(err)
		}
		got, err := grantScope(object(other), free...).Digest()
		if want := covers(base, other, free); (err == nil && got == pattern) != want {
			t.Fatalf("%s with %q free: %s is covered: %t, want %t (%v)", object(base), free, object(other), !want, want, err)
		}
	})
}

// A grant is usable until its end or its last use, within limits that may have become narrower.
func TestGrantUsable(t *testing.T) {
	limits := grantstore.Limits{Longest: time.Hour, Uses: 5}
	g := grantstore.Grant{GivenAt: epoch, Until: epoch.Add(30 * time.Minute), MaxUses: 2}
	used := g
	used.Uses = make([]grantstore.Use, 2)
	revoked := g
	revoked.Revoked = &grantstore.Revocation{By: "bob"}
	for name, test := range map[string]struct {
		grant  grantstore.Grant
		at     time.Time
		limits grantstore.Limits
		want   error
	}{
		"in time":           {g, epoch.Add(30*time.Minute - 1), limits, nil},
		"at its end":        {g, epoch.Add(30 * time.Minute), limits, grantstore.ErrExpired},
		"a shorter limit":   {g, epoch.Add(10 * time.Minute), grantstore.Limits{Longest: 10 * time.Minute, Uses: 5}, grantstore.ErrExpired},
		"no uses left":      {used, epoch, limits, grantstore.ErrSpent},
		"a smaller limit":   {used, epoch, grantstore.Limits{Longest: time.Hour, Uses: 1}, grantstore.ErrSpent},
		"no grants allowed": {g, epoch, grantstore.Limits{}, grantstore.ErrExpired},
		"revoked":           {revoked, epoch, limits, grantstore.ErrRevoked},
	} {
		if err := test.grant.Usable(test.at, test.limits); !errors.Is(err, test.want) || test.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// The narrowest terms of all decisions count. If a decision gives no grant, there are no terms.
func TestNarrowest(t *testing.T) {
	gives := func(minutes, uses int, free ...string) gatetask.Decision {
		return gatetask.Decision{NewGrant: &gatetask.GrantTerms{Until: epoch.Add(time.Duration(minutes) * time.Minute), Uses: uses, GrantShape: gatetask.GrantShape{Free: free}}}
	}
	if _, all := grantstore.Narrowest([]gatetask.Decision{gives(5, 1), {By: "bob"}}); all {
		t.Error("got terms although one approver gave no grant")
	}
	if _, all := grantstore.Narrowest(nil); all {
		t.Error("got terms without decisions")
	}
	got, all := grantstore.Narrowest([]gatetask.Decision{gives(5, 9, "a", "b"), gives(7, 3, "b", "c"), gives(6, 4, "c", "b", "a")})
	if !all || !got.Until.Equal(epoch.Add(5*time.Minute)) || got.Uses != 3 || !slices.Equal(got.Free, []string{"b"}) {
		t.Errorf("narrowest terms %+v", got)
	}
}

func TestGrantID(t *testing.T) {
	id := grantstore.NewID(grantScope(seen))
	if !grantstore.ValidID(id) || id == grantstore.NewID(grantScope(seen)) {
		t.Errorf("id %s is malformed or not unique", id)
	}
	for _, bad := range []gatetask.GrantID{"", "gr_", id + "0", "tg_" + id[3:], id[:10] + "/" + id[11:], gatetask.GrantID(strings.ToUpper(string(id)))} {
		if grantstore.ValidID(bad) {
			t.Errorf("ValidID(%q) = true", bad)
		}
	}
}

// A grant approves a task with the approvals of the approvers who gave it.
func TestAdmissionHasApprovals(t *testing.T) {
	made, err := task.New(task.Draft{
		ID: "tg_1", Owner: "ann", Call: task.Call{Method: "tools/call", Name: "write", Message: "{}"}, TTL: time.Hour, PollInterval: time.Second,
	}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	g := grantstore.Grant{
		ID: "gr_1", Pattern: task.Digest{1}, GivenAt: epoch, Until: epoch.Add(time.Hour), MaxUses: 1,
		By: []gatetask.Decision{{By: "bob", At: epoch.Add(-time.Hour), NewGrant: &gatetask.GrantTerms{Uses: 1}}, {By: "eve"}},
	}
	admit, err := g.Admission("gate", "grant")
	if err != nil {
		t.Fatal(err)
	}
	after, err := lifecycle.Apply(made, admit, epoch)
	if err != nil {
		t.Fatal(err)
	}
	a := after.Approval
	if after.State != task.Approved || a.Grant() != "gr_1" || a.Quorum != 2 || !a.DecidedAt().Equal(epoch) || a.Approvals[0].NewGrant != nil {
		t.Errorf("task %+v with approval %+v", after, a)
	}
	for name, change := range map[string]func(*grantstore.Grant){
		"no id":         func(g *grantstore.Grant) { g.ID = "" },
		"no pattern":    func(g *grantstore.Grant) { g.Pattern = task.Digest{} },
		"no approvals":  func(g *grantstore.Grant) { g.By = nil },
		"no uses":       func(g *grantstore.Grant) { g.MaxUses = 0 },
		"too many uses": func(g *grantstore.Grant) { g.MaxUses = grantstore.MaxUses + 1 },
		"no time":       func(g *grantstore.Grant) { g.Until = g.GivenAt },
	} {
		bad := g
		change(&bad)
		if _, err := bad.Admission("gate", "grant"); !errors.Is(err, task.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
