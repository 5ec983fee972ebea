package grantstore_test

import (
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// belowTmp returns the shape that allows any value of path below /tmp.
func belowTmp() gatetask.GrantShape {
	return gatetask.GrantShape{Below: []gatetask.GrantBelow{{Argument: "path", Directory: "/tmp"}}}
}

// A path is covered only if every server reads it as one below the directory. Everything else
// about the call must be the same.
func TestPathScope(t *testing.T) {
	covered := map[string]string{
		"below":                `{"path":"/tmp/x","n":1}`,
		"deep below":           `{"path":"/tmp/a/b.txt/c-d_e=f@g~","n":1}`,
		"other order":          `{"n":1,"path":"/tmp/x"}`,
		"escapes of JSON":      `{"path":"\/tm\u0070\u002fx","n":1}`,
		"a hidden file":        `{"path":"/tmp/.config","n":1}`,
		"dots inside":          `{"path":"/tmp/a..b","n":1}`,
		"letters of the world": `{"path":"/tmp/é/日本/ключ.日","n":1}`,
	}
	held := map[string]string{
		"the directory":             `{"path":"/tmp","n":1}`,
		"the directory and a slash": `{"path":"/tmp/","n":1}`,
		"another one":               `{"path":"/etc/passwd","n":1}`,
		"a longer name":             `{"path":"/tmpfoo/x","n":1}`,
		"a parent":                  `{"path":"/tmp/../etc","n":1}`,
		"a parent deep inside":      `{"path":"/tmp/a/../../etc","n":1}`,
		"a parent at the end":       `{"path":"/tmp/..","n":1}`,
		"a parent that stays":       `{"path":"/tmp/a/../b","n":1}`,
		"a parent with escapes":     `{"path":"/tmp/\u002e\u002e/etc","n":1}`,
		"the same directory":        `{"path":"/tmp/./x","n":1}`,
		"two slashes":               `{"path":"/tmp//etc","n":1}`,
		"two slashes at first":      `{"path":"//tmp/x","n":1}`,
		"a slash at the end":        `{"path":"/tmp/x/","n":1}`,
		"percent encoding":          `{"path":"/tmp/%2e%2e/etc","n":1}`,
		"encoded slash":             `{"path":"/tmp/..%2fetc","n":1}`,
		"double encoding":           `{"path":"/tmp/%252e%252e/etc","n":1}`,
		"backslash":                 `{"path":"/tmp/..\\etc","n":1}`,
		"backslashes":               `{"path":"\\tmp\\x","n":1}`,
		"NUL":                       `{"path":"/tmp/x\u0000/../../etc","n":1}`,
		"NUL at the end":            `{"path":"/tmp/x\u0000","n":1}`,
		"new line":                  `{"path":"/tmp/x\n/etc","n":1}`,
		"another case":              `{"path":"/TMP/x","n":1}`,
		"relative":                  `{"path":"tmp/x","n":1}`,
		"relative parent":           `{"path":"../tmp/x","n":1}`,
		"a name with spaces":        `{"path":"/tmp/My Documents/a","n":1}`,
		"home after a space":        `{"path":"/tmp/x ~/.ssh/id_rsa","n":1}`,
		"option after a space":      `{"path":"/tmp/x --checkpoint-action=exec=id","n":1}`,
		"relative after a space":    `{"path":"/tmp/x etc/passwd","n":1}`,
		"parent and a letter":       `{"path":"/tmp/..日/etc","n":1}`,
		"parent in accents":         `{"path":"/tmp/.\u0301.\u0301/etc","n":1}`,
		"parent and a joiner":       `{"path":"/tmp/..\u034f/etc","n":1}`,
		"parent and a filler":       `{"path":"/tmp/..\u115f/etc","n":1}`,
		"space first":               `{"path":" /tmp/x","n":1}`,
		"parent and space":          `{"path":"/tmp/.. /etc","n":1}`,
		"parent and dots":           `{"path":"/tmp/.../etc","n":1}`,
		"a name that ends in a dot": `{"path":"/tmp/a./x","n":1}`,
		"home":                      `{"path":"~/x","n":1}`,
		"variable":                  `{"path":"/tmp/$HOME","n":1}`,
		"variable in braces":        `{"path":"/tmp/${X}","n":1}`,
		"braces":                    `{"path":"/tmp/{.,}./etc","n":1}`,
		"pattern":                   `{"path":"/tmp/*","n":1}`,
		"shell":                     `{"path":"/tmp/x;rm","n":1}`,
		"command":                   "{\"path\":\"/tmp/`id`\",\"n\":1}",
		"list":                      `{"path":"/tmp/x:/etc","n":1}`,
		"other list":                `{"path":"/tmp/x,/etc","n":1}`,
		"URL":                       `{"path":"file:///tmp/x","n":1}`,
		"query":                     `{"path":"/tmp/x?y","n":1}`,
		"full-width dots":           `{"path":"/tmp/．．/etc","n":1}`,
		"full-width slash":          `{"path":"/tmp/..／etc","n":1}`,
		"two dot leader":            `{"path":"/tmp/‥/etc","n":1}`,
		"division slash":            `{"path":"/tmp/..∕etc","n":1}`,
		"full-width letters":        `{"path":"/ｔmp/x","n":1}`,
		"invisible character":       `{"path":"/tmp/.\u200b./etc","n":1}`,
		"text direction":            `{"path":"/tmp/\u202ex","n":1}`,
		"another Unicode form":      `{"path":"/tmp/e\u0301","n":1}`,
		"a lone surrogate":          `{"path":"/tmp/\ud800","n":1}`,
		"list of paths":             `{"path":["/tmp/x"],"n":1}`,
		"object":                    `{"path":{"x":"/tmp/x"},"n":1}`,
		"null":                      `{"path":null,"n":1}`,
		"number":                    `{"path":1,"n":1}`,
		"boolean":                   `{"path":true,"n":1}`,
		"empty":                     `{"path":"","n":1}`,
		"missing":                   `{"n":1}`,
		"twice":                     `{"path":"/tmp/x","path":"/etc/passwd","n":1}`,
		"twice the other way":       `{"path":"/etc/passwd","path":"/tmp/x","n":1}`,
		"twice with escapes":        `{"path":"/tmp/x","p\u0061th":"/etc/passwd","n":1}`,
		"another case of the name":  `{"Path":"/tmp/x","n":1}`,
		"both cases of the name":    `{"path":"/tmp/x","Path":"/etc/passwd","n":1}`,
		"another argument":          `{"path":"/tmp/x","target":"/etc/passwd","n":1}`,
		"another value":             `{"path":"/tmp/x","n":2}`,
		"too long":                  `{"path":"/tmp/` + strings.Repeat("x", 5000) + `","n":1}`,
		"no object":                 `["/tmp/x"]`,
		"no arguments":              ``,
	}
	scope := func(arguments string) grantstore.Scope {
		s := grantScope(arguments)
		s.GrantShape = belowTmp()
		return s
	}
	pattern, err := scope(`{"path":"/tmp/a/b","n":1}`).Digest()
	if err != nil {
		t.Fatal(err)
	}
	check := func(name, arguments string, want bool) {
		got, err := scope(arguments).Digest()
		if covered := err == nil && got == pattern; covered != want {
			t.Errorf("%s: %s covered: %t, want %t (%v)", name, arguments, covered, want, err)
		}
	}
	for name, arguments := range covered {
		check(name, arguments, true)
	}
	for name, arguments := range held {
		check(name, arguments, false)
	}
}

// A directory that the approvers have seen may have spaces in its name.
func TestDirectories(t *testing.T) {
	for from, want := range map[string][]string{
		"/home/ann/a.txt":       {"/home/ann", "/home"},
		"/tmp/My Documents/a":   {"/tmp/My Documents"},
		"/tmp/My Documents/a b": nil,
		"/tmp":                  nil,
		"/tmp/../a":             nil,
	} {
		if got := grantstore.Directories(from); !slices.Equal(got, want) {
			t.Errorf("Directories(%q) = %q, want %q", from, got, want)
		}
	}
	if !grantstore.Below("/tmp/My Documents", "/tmp/My Documents/a") {
		t.Error("a directory with a space covers nothing")
	}
}

// The directory counts, and a directory is not the same as a free argument.
func TestPathScopeParts(t *testing.T) {
	s := grantScope(`{"path":"/tmp/a/b","n":1}`)
	digests := map[task.Digest]string{}
	for name, shape := range map[string]gatetask.GrantShape{
		"exact": {}, "free": {Free: []string{"path"}}, "below": belowTmp(),
		"deeper":     {Below: []gatetask.GrantBelow{{Argument: "path", Directory: "/tmp/a"}}},
		"and a free": {Below: belowTmp().Below, Free: []string{"n"}},
	} {
		s.GrantShape = shape
		d, err := s.Digest()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if other, known := digests[d]; known {
			t.Errorf("%s and %s have the same digest", name, other)
		}
		digests[d] = name
	}
	for name, shape := range map[string]gatetask.GrantShape{
		"root":           {Below: []gatetask.GrantBelow{{Argument: "path", Directory: ""}}},
		"slash":          {Below: []gatetask.GrantBelow{{Argument: "path", Directory: "/"}}},
		"a parent":       {Below: []gatetask.GrantBelow{{Argument: "path", Directory: "/tmp/a/.."}}},
		"ends in slash":  {Below: []gatetask.GrantBelow{{Argument: "path", Directory: "/tmp/"}}},
		"free and below": {Below: belowTmp().Below, Free: []string{"path"}},
		"twice":          {Below: append(belowTmp().Below, belowTmp().Below...)},
		"not a path":     {Below: []gatetask.GrantBelow{{Argument: "n", Directory: "/tmp"}}},
		"missing":        {Below: []gatetask.GrantBelow{{Argument: "x", Directory: "/tmp"}}},
	} {
		s.GrantShape = shape
		if _, err := s.Digest(); err == nil {
			t.Errorf("%s: the shape covers its call", name)
		}
	}
}

// readings returns how servers may read a path.
func readings(p string) []string {
	all := []string{p, norm.NFKC.String(p), norm.NFC.String(p), strings.ReplaceAll(p, `\`, "/"), strings.ToLower(p)}
	if decoded, err := url.PathUnescape(p); err == nil {
		all = append(all, decoded)
		if again, err := url.QueryUnescape(decoded); err == nil {
			all = append(all, again)
		}
	}
	if before, _, cut := strings.Cut(p, "\x00"); cut {
		all = append(all, before)
	}
	var names []string
	for name := range strings.SplitSeq(p, "/") {
		if trimmed := strings.TrimRight(name, ". "); trimmed != "" || name == "" {
			name = trimmed // as Windows does
		}
		names = append(names, strings.TrimSpace(name))
	}
	return append(all, strings.Join(names, "/"))
}

// However a server reads a covered path, it is below the directory.
func TestEveryReadingIsBelow(t *testing.T) {
	parts := []string{
		"/", "//", "tmp", "TMP", "/tmp/", "tmpx", ".", "..", "...", "\\", "%2e", "%2E", "%2f", "%5c", "%25", "%00", "\x00", "\u200b", "．", "／", "‥", "․", "⁄",
		" ", "~", "$HOME", "{", ",", "}", "*", "a", "é", "e\u0301", "etc", ":", ";", "\n", "\t", "\xff", "℀", "⒈", "ﬁ", "c:", "+", "@", "=", "-",
	}
	rapid.Check(t, func(r *rapid.T) {
		p := "/tmp/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 8).Draw(r, "parts"), "")
		if rapid.Bool().Draw(r, "bare") {
			p = strings.TrimPrefix(p, "/tmp/")
		}
		if !grantstore.Below("/tmp", p) {
			return
		}
		for _, read := range readings(p) {
			if clean := path.Clean(read); !strings.HasPrefix(clean, "/tmp/") {
				r.Fatalf("%q is read as %q, which is %q", p, read, clean)
			}
		}
		// The same text in JSON, spelled in another way, is covered too; no other text is.
		value, err := json.Marshal(p)
		if err != nil {
			r.Fatal(err)
		}
		s := grantScope(`{"path":` + string(value) + `}`)
		s.GrantShape = belowTmp()
		if _, err := s.Digest(); err != nil {
			r.Fatalf("%q: %v", p, err)
		}
	})
}

// wideScope returns the scope of a call with a wide shape.
func wideScope(reach gatetask.GrantReach) grantstore.Scope {
	s := grantScope(`{"path":"/a"}`)
	s.Named, s.Trusted, s.ReadOnly, s.Reach = true, true, true, reach
	if reach == gatetask.ReachReadOnly {
		s.Tools = []gatetask.GrantTool{{Name: "read", Digest: "v2-9"}, {Name: "write", Digest: "v2-1"}}
		s.GrantShape.Tools = grantstore.ToolsDigest(s.Tools)
	}
	return s
}

// A wide scope covers other tools and arguments, and nothing else.
func TestWideScope(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*grantstore.Scope)
		covers string // the reaches that cover the call
	}{
		"the same":                 {func(*grantstore.Scope) {}, "read_only server agent"},
		"other arguments":          {func(s *grantstore.Scope) { s.Call.Arguments = `{"x":[1]}` }, "read_only server agent"},
		"another listed tool":      {func(s *grantstore.Scope) { s.Call.Name, s.ToolDigest = "read", "v2-9" }, "read_only server agent"},
		"a tool that is not there": {func(s *grantstore.Scope) { s.Call.Name = "delete" }, "server agent"},
		"a new definition":         {func(s *grantstore.Scope) { s.ToolDigest = "v2-2" }, "server agent"},
		"definition of another":    {func(s *grantstore.Scope) { s.ToolDigest = "v2-9" }, "server agent"},
		"no longer read-only":      {func(s *grantstore.Scope) { s.ReadOnly = false }, "server agent"},
		"another list":             {func(s *grantstore.Scope) { s.Tools = append(s.Tools, gatetask.GrantTool{Name: "x", Digest: "y"}) }, "server agent"},
		"another server":           {func(s *grantstore.Scope) { s.Owner, s.Call.Upstream = "mail principal:agent", "mail" }, "agent"},
		"another owner":            {func(s *grantstore.Scope) { s.Owner = "files principal:other" }, "agent"},
		"another principal":        {func(s *grantstore.Scope) { s.Principal = "named other" }, ""},
		"without a name":           {func(s *grantstore.Scope) { s.Named = false }, "read_only server"},
		"changed":                  {func(s *grantstore.Scope) { s.Trusted = false }, ""},
		"without a definition":     {func(s *grantstore.Scope) { s.ToolDigest = "" }, ""},
		"another workflow":         {func(s *grantstore.Scope) { s.Workflow = "x" }, ""},
		"another method":           {func(s *grantstore.Scope) { s.Call.Method = "prompts/get" }, ""},
		"other members":            {func(s *grantstore.Scope) { s.Call.Also = `{"params":{"x":1}}` }, ""},
		"with a condition":         {func(s *grantstore.Scope) { s.Free = []string{"path"} }, ""},
		"with a path":              {func(s *grantstore.Scope) { s.Below = belowTmp().Below }, ""},
		"an unknown reach":         {func(s *grantstore.Scope) { s.Reach = "all" }, ""},
		"no reach":                 {func(s *grantstore.Scope) { s.Reach = "" }, ""},
	} {
		for _, reach := range gatetask.Reaches()[1:] {
			pattern, err := wideScope(reach).Digest()
			if err != nil {
				t.Fatal(err)
			}
			s := wideScope(reach)
			test.change(&s)
			got, err := s.Digest()
			if covered, want := err == nil && got == pattern, strings.Contains(test.covers, string(reach)); covered != want {
				t.Errorf("%s, reach %s: covered: %t, want %t (%v)", name, reach, covered, want, err)
			}
		}
	}
}

// drawShape draws a shape of a grant for a call with the arguments path and n.
func drawShape(r *rapid.T, label string) gatetask.GrantShape {
	var s gatetask.GrantShape
	switch rapid.IntRange(0, 6).Draw(r, label) {
	case 0:
	case 1:
		s.Free = []string{"path"}
	case 2:
		s = belowTmp()
	case 3:
		s.Below = []gatetask.GrantBelow{{Argument: "path", Directory: "/tmp/a"}}
		s.Free = []string{"n"}
	case 4:
		s = wideScope(gatetask.ReachReadOnly).GrantShape
	case 5:
		s.Reach = gatetask.ReachServer
	case 6:
		s.Reach = gatetask.ReachAgent
	}
	return s
}

// With several approvers, a call is covered only if it is by the terms of each of them.
func TestNarrowestShape(t *testing.T) {
	covers := func(r *rapid.T, shape gatetask.GrantShape, arguments, tool string) bool {
		of := func(arguments, tool string) grantstore.Scope {
			s := wideScope(gatetask.ReachReadOnly)
			s.Call.Arguments, s.GrantShape = arguments, shape
			if s.Call.Name = tool; tool == "read" {
				s.ToolDigest = "v2-9"
			}
			return s
		}
		pattern, err := of(`{"path":"/tmp/a/b","n":1}`, "write").Digest()
		if err != nil {
			r.Fatalf("%+v does not cover the call that was approved: %v", shape, err)
		}
		got, err := of(arguments, tool).Digest()
		return err == nil && got == pattern
	}
	rapid.Check(t, func(r *rapid.T) {
		a, b := drawShape(r, "a"), drawShape(r, "b")
		terms, all := grantstore.Narrowest([]gatetask.Decision{
			{NewGrant: &gatetask.GrantTerms{Until: epoch, Uses: 1, GrantShape: a}}, {NewGrant: &gatetask.GrantTerms{Until: epoch.Add(time.Hour), Uses: 2, GrantShape: b}},
		})
		if !all {
			r.Fatal("no terms")
		}
		if grantstore.Wider(terms.GrantShape, a) || grantstore.Wider(terms.GrantShape, b) {
			r.Fatalf("%+v is wider than %+v or %+v", terms.GrantShape, a, b)
		}
		arguments := rapid.SampledFrom([]string{
			`{"path":"/tmp/a/b","n":1}`, `{"path":"/tmp/a/c","n":1}`, `{"path":"/tmp/c","n":1}`, `{"path":"/c","n":1}`, `{"path":"/tmp/a/c","n":2}`, `{"x":1}`,
		}).Draw(r, "arguments")
		tool := rapid.SampledFrom([]string{"write", "read", "delete"}).Draw(r, "tool")
		both := covers(r, a, arguments, tool) && covers(r, b, arguments, tool)
		if got := covers(r, terms.GrantShape, arguments, tool); got != both {
			r.Fatalf("%+v and %+v: %+v covers %s of %s: %t, want %t", a, b, terms.GrantShape, arguments, tool, got, both)
		}
		if !grantstore.Wider(a, b) && covers(r, a, arguments, tool) && !covers(r, b, arguments, tool) {
			r.Fatalf("%+v covers more than %+v", a, b)
		}
	})
}
