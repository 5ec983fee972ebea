package main

import (
	"slices"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/app"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// The policy without a configuration: what reads is forwarded, by hint and else by
// name, and everything else asks. A name never overrules a hint.
func TestWrapPolicy(t *testing.T) {
	server := config.DefaultUpstream()
	server.Name, server.Command = "files", []string{"server"}
	cfg, _, err := config.Load(config.Sources{Server: &server, Environ: []string{"HOME=/home/me"}, Starter: &config.Starter{
		Name: "wrap.yaml", Text: wrapConfig, Policies: []config.Source{{Name: "wrap.cedar", Text: wrapPolicy}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	settings, warnings, err := app.Settings(cfg)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	yes, no := true, false
	for _, tt := range []struct {
		name  string
		hints policy.Annotations
		want  policy.Action
	}{
		{"write_file", policy.Annotations{}, policy.Approve},
		{"write_file", policy.Annotations{ReadOnly: &yes}, policy.Forward},
		{"anything", policy.Annotations{ReadOnly: &yes, Destructive: &no}, policy.Forward},
		{"anything", policy.Annotations{ReadOnly: &yes, Destructive: &yes}, policy.Approve},
		{"get_user", policy.Annotations{}, policy.Forward},
		{"list-files", policy.Annotations{}, policy.Forward},
		{"search_nodes", policy.Annotations{OpenWorld: &yes}, policy.Forward},
		{"get_user", policy.Annotations{Destructive: &yes}, policy.Approve},
		{"get_user", policy.Annotations{ReadOnly: &no}, policy.Approve},
		{"get_user", policy.Annotations{ReadOnly: &no, Destructive: &no}, policy.Approve},
		{"get_or_create_user", policy.Annotations{}, policy.Approve},
		{"read_and_delete", policy.Annotations{}, policy.Approve},
		{"getaway", policy.Annotations{}, policy.Approve},
		{"Get_user", policy.Annotations{}, policy.Approve},
	} {
		verdict := settings.Policy.Judge(policy.Call{
			Upstream: "files", Method: "tools/call", Name: tt.name, Annotations: tt.hints, Listed: true,
			Principal: policy.Principal{ID: "local:me"},
		})
		if verdict.Action != tt.want {
			t.Errorf("%s with %+v: %s (%s); want %s", tt.name, tt.hints, verdict.Action, verdict.Reason, tt.want)
		}
	}
	unlisted := settings.Policy.Judge(policy.Call{Upstream: "files", Method: "tools/call", Name: "get_user", Principal: policy.Principal{ID: "local:me"}})
	if unlisted.Action != policy.Approve {
		t.Errorf("a tool that was not listed: %s", unlisted.Action)
	}
	if read := settings.Policy.Judge(policy.Call{Upstream: "files", Method: "resources/read", Name: "file:///a", Principal: policy.Principal{ID: "local:me"}}); read.Action != policy.Forward {
		t.Errorf("a resource: %s", read.Action)
	}
}

// A name tells commands and directories apart, and is the same every time.
func TestWrapName(t *testing.T) {
	for base, command := range map[string][]string{
		"server-filesystem-": {"npx", "-y", "@modelcontextprotocol/server-filesystem@2026.1.1", "/a"},
		"mcp-server-git-":    {"uvx", "mcp-server-git"},
		"index-":             {"node", "/opt/x/index.js"},
		"server-":            {"npx"},
	} {
		name := wrapName(command)
		if name[:len(name)-8] != base && command[0] != "npx" || name != wrapName(command) {
			t.Errorf("%q is called %s; want %s…", command, name, base)
		}
	}
	t.Chdir(t.TempDir())
	here := wrapName([]string{"a"})
	t.Chdir(t.TempDir())
	if here == wrapName([]string{"a"}) || wrapName([]string{"a", "b c"}) == wrapName([]string{"a", "b", "c"}) {
		t.Error("two servers have one name")
	}
}

// A server does not get an approver's token.
func TestServerEnviron(t *testing.T) {
	got := serverEnviron([]string{"PATH=/bin", "THOUGHTGATE_OPERATOR_TOKEN=secret", "HOME=/"})
	if want := []string{"PATH=/bin", "HOME=/"}; !slices.Equal(got, want) {
		t.Errorf("the environment is %q; want %q", got, want)
	}
}
