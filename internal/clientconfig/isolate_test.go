package clientconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/clientconfig"
)

// isolate isolates the servers of a file, whose names at the gate are numbered.
func isolate(t *testing.T, client, content string) (clientconfig.Client, clientconfig.Isolation, []clientconfig.Program) {
	t.Helper()
	c, err := clientconfig.Find(client)
	if err != nil {
		t.Fatal(err)
	}
	var programs []clientconfig.Program
	change, err := c.Isolate([]byte(content), clientconfig.IsolateOptions{Program: "/usr/bin/thoughtgate", Socket: "/run/s", Add: func(p clientconfig.Program) string {
		programs = append(programs, p)
		return fmt.Sprintf("%s-%d", p.Name, len(programs))
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c, change, programs
}

// No command and no secret of a server stays in the file, in any form of an entry, and Restore puts
// every byte back.
func TestIsolate(t *testing.T) {
	for name, test := range map[string]struct {
		client, file, want string
		program            clientconfig.Program
	}{
		"args": {
			"cursor", `{"mcpServers": {"My files": {"command": "npx", /* why */ "args": ["-y", "files" /* x */], "env": {"KEY": "s3cret", "N": 1}}}} // end
`,
			`{"mcpServers": {"My files": {"command": "/usr/bin/thoughtgate", /* why */ "args": ["wrap", "--socket", "/run/s", "--name", "my-files-1"], "env": {"KEY": "", "N": ""}}}} // end
`,
			clientconfig.Program{Name: "my-files", Command: []string{"npx", "-y", "files"}, Env: map[string]string{"KEY": "s3cret", "N": "1"}},
		},
		"no args": {
			"cursor", `{"mcpServers": {"a": {"command": "a-server"}}}`,
			`{"mcpServers": {"a": {"args": ["wrap", "--socket", "/run/s", "--name", "a-1"], "command": "/usr/bin/thoughtgate"}}}`,
			clientconfig.Program{Name: "a", Command: []string{"a-server"}, Env: map[string]string{}},
		},
		"wrapped": {
			"cursor", `{"mcpServers": {"a": {"command": "thoughtgate", "args": ["wrap", "--name", "--", "--", "npx", "a", "--"], "env": {"KEY": "s3cret"}}}}`,
			`{"mcpServers": {"a": {"command": "/usr/bin/thoughtgate", "args": ["wrap", "--socket", "/run/s", "--name", "a-1"], "env": {"KEY": ""}}}}`,
			clientconfig.Program{Name: "a", Command: []string{"npx", "a", "--"}, Env: map[string]string{"KEY": "s3cret"}},
		},
		"list": {
			"opencode", `{"mcp": {"a": {"type": "local", "command": ["npx", "a"], "environment": {"KEY": "s3cret"}}}}`,
			`{"mcp": {"a": {"type": "local", "command": ["/usr/bin/thoughtgate", "wrap", "--socket", "/run/s", "--name", "a-1"], "environment": {"KEY": ""}}}}`,
			clientconfig.Program{Name: "a", Command: []string{"npx", "a"}, Env: map[string]string{"KEY": "s3cret"}},
		},
		"table": {
			"zed", `{"context_servers": {"a": {"command": {"path": "npx", "args": ["a"], "env": {"KEY": "s3cret"}}}}}`,
			`{"context_servers": {"a": {"command": {"path": "/usr/bin/thoughtgate", "args": ["wrap", "--socket", "/run/s", "--name", "a-1"], "env": {"KEY": ""}}}}}`,
			clientconfig.Program{Name: "a", Command: []string{"npx", "a"}, Env: map[string]string{"KEY": "s3cret"}},
		},
		"toml": {
			"codex", "# mine\n[mcp_servers.a]\ncommand = \"npx\"\nargs = ['a']\n[mcp_servers.a.env]\nKEY = 's3cret' # the key\n",
			"# mine\n[mcp_servers.a]\ncommand = \"/usr/bin/thoughtgate\"\nargs = [\"wrap\", \"--socket\", \"/run/s\", \"--name\", \"a-1\"]\n[mcp_servers.a.env]\nKEY = \"\" # the key\n",
			clientconfig.Program{Name: "a", Command: []string{"npx", "a"}, Env: map[string]string{"KEY": "s3cret"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, change, programs := isolate(t, test.client, test.file)
			if diff := cmp.Diff(test.want, string(change.Text)); diff != "" {
				t.Errorf("the file (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]clientconfig.Program{test.program}, programs); diff != "" {
				t.Errorf("the server (-want +got):\n%s", diff)
			}
			if strings.Contains(string(change.Masked), "s3cret") || strings.Contains(test.file, "s3cret") != strings.Contains(string(change.Masked), "(a secret)") {
				t.Errorf("shown: %s", change.Masked)
			}
			back, kept, err := c.Restore(change.Text, change.Patches)
			if string(back) != test.file || kept != nil || err != nil {
				t.Errorf("restored: %s, %q, %v", back, kept, err)
			}
			if _, again, more := isolate(t, test.client, string(change.Text)); string(again.Text) != string(change.Text) || len(again.Patches)+len(more) > 0 {
				t.Errorf("a second run changes the file: %s", again.Text)
			}
		})
	}
}

// Servers that the gate cannot start as the client does stay as they are, and say why.
func TestIsolateLeavesUnknown(t *testing.T) {
	for entry, why := range map[string]string{
		`{"url": "https://a/"}`: "",
		`{"command": "thoughtgate", "args": ["wrap", "--url", "https://a/"]}`: "wrap --url",
		`{"command": "npx", "args": ["${input:key}"]}`:                        "its command has a variable of the client",
		`{"command": "npx", "env": {"KEY": "${env:KEY}"}}`:                    "its variable KEY has another one",
		`{"command": "npx", "env": ["KEY=v"]}`:                                "its variables are not a table",
		`{"command": "npx", "envFile": ".env"}`:                               "its variables come from a file",
	} {
		file := `{"mcpServers": {"a": ` + entry + `}}`
		_, change, programs := isolate(t, "cursor", file)
		if string(change.Text) != file || len(programs) > 0 || len(change.Patches) > 0 || !strings.Contains(change.Servers[0].Warning, why) {
			t.Errorf("%s: %s, %v", entry, change.Text, change.Servers)
		}
	}
}

// Restore keeps what others have changed since.
func TestRestoreKeepsChanges(t *testing.T) {
	c, change, _ := isolate(t, "cursor", `{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}`)
	edited := strings.Replace(strings.Replace(string(change.Text), `"a-1"`, `"mine"`, 1), `{"mcp`, `{"more": 1, "mcp`, 1)
	text, kept, err := c.Restore([]byte(edited), change.Patches)
	want := strings.Replace(edited, `{"args": ["wrap", "--socket", "/run/s", "--name", "b-2"], "command": "/usr/bin/thoughtgate"}`, `{"command": "b"}`, 1)
	if diff := cmp.Diff(want, string(text)); diff != "" || !cmp.Equal(kept, []string{"a"}) || err != nil {
		t.Errorf("%s%q, %v", diff, kept, err)
	}
}
