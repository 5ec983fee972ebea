package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// wrapSettings returns the policy settings of a wrap without a configuration.
func wrapSettings(t *testing.T) *catalog.Settings {
	t.Helper()
	server := config.DefaultUpstream()
	server.Name, server.Command = "files", []string{"server"}
	cfg, _, err := config.Load(config.Sources{Server: &server, Environ: []string{"HOME=/home/me"}, Starter: &config.Starter{
		Name: "wrap.yaml", Text: wrapConfig, Policies: []policy.Source{{Name: "wrap.cedar", Text: wrapPolicy}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	settings, warnings, err := app.Settings(cfg)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	return settings
}

// judged returns the verdict on a call, and the policies that decided it.
func judged(s *catalog.Settings, c policy.Call) string {
	c.Upstream, c.Principal = "files", policy.Principal{ID: "local:me"}
	v := s.Policy.Judge(c)
	if v.Action != policy.Approve {
		return string(v.Action)
	}
	asking := slices.DeleteFunc(v.Policies, func(id string) bool { return id == "forward" })
	return "ask: " + strings.Join(asking, ", ")
}

// The verdicts on the tools of testdata/tools.txt match those in the file.
func TestFirstPolicyOnPublicServers(t *testing.T) {
	s := wrapSettings(t)
	table, err := os.ReadFile("testdata/tools.txt")
	if err != nil {
		t.Fatal(err)
	}
	tools := 0
	for line := range strings.Lines(string(table)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "[") {
			continue
		}
		tools++
		name, rest, _ := strings.Cut(line, " ")
		hints, want, _ := strings.Cut(strings.TrimSpace(rest), " ")
		got := judged(s, policy.Call{Method: "tools/call", Name: name, Listed: true, Annotations: annotationsOf(t, hints)})
		if want = strings.TrimSpace(want); got != want {
			t.Errorf("%s with the hints %s: %s; the table says %s", name, hints, got, want)
		}
	}
	if tools < 500 {
		t.Errorf("the table has only %d tools", tools)
	}
}

// annotationsOf reads hints such as readOnly,!destructive.
func annotationsOf(t *testing.T, hints string) policy.Annotations {
	t.Helper()
	var a policy.Annotations
	for hint := range strings.SplitSeq(hints, ",") {
		name, no := strings.CutPrefix(hint, "!")
		yes := !no
		switch name {
		case "readOnly":
			a.ReadOnly = &yes
		case "destructive":
			a.Destructive = &yes
		case "-":
		default:
			t.Fatalf("unknown hint %q", hint)
		}
	}
	return a
}

// The first policy asks about tools that were not listed, and about resources with names of
// secrets. It forwards other resources and all prompts.
func TestFirstPolicyAsksForUnlistedToolsAndSecrets(t *testing.T) {
	s := wrapSettings(t)
	for _, tt := range []struct{ method, name, want string }{
		{"tools/call", "get_user", "ask: may-change-something"},
		{"resources/read", "file:///home/me/notes.md", "forward"},
		{"resources/read", "file:///home/me/.env", "ask: sensitive"},
		{"resources/read", "file:///home/me/.ssh/id_rsa", "ask: sensitive"},
		{"resources/subscribe", "vault://prod", "ask: sensitive"},
		{"prompts/get", "delete_everything", "forward"},
	} {
		if got := judged(s, policy.Call{Method: tt.method, Name: tt.name}); got != tt.want {
			t.Errorf("%s %s: %s; want %s", tt.method, tt.name, got, tt.want)
		}
	}
}

// The name of a wrap differs between commands and between directories, and is always the same
// for the same ones.
func TestWrapName(t *testing.T) {
	for base, command := range map[string][]string{
		"server-filesystem-": {"npx", "-y", "@modelcontextprotocol/server-filesystem@2026.1.1", "/a"},
		"mcp-server-git-":    {"uvx", "mcp-server-git"},
		"index-":             {"node", "/opt/x/index.js"},
		"server-":            {"npx"},
	} {
		name := wrapName(command)
		if name[:len(name)-8] != base && command[0] != "npx" || name != wrapName(command) {
			t.Errorf("%q has the name %s; want %s…", command, name, base)
		}
	}
	t.Chdir(t.TempDir())
	here := wrapName([]string{"a"})
	t.Chdir(t.TempDir())
	if here == wrapName([]string{"a"}) || wrapName([]string{"a", "b c"}) == wrapName([]string{"a", "b", "c"}) {
		t.Error("two servers have the same name")
	}
}
