package clientconfig

import (
	"fmt"
	"strings"
	"testing"
)

// A file cannot pass another program off as the gate, or change what the gate does.
func TestFileCannotDisableGate(t *testing.T) {
	installed := WrapOptions{Command: "thoughtgate", Path: "/opt/thoughtgate", IsGate: func(program string) bool { return program == "/usr/bin/thoughtgate" }}
	const env, wrapped = `"command": "npx", "env": {"%s": "x"}`, `"command": "thoughtgate", "args": ["wrap", "--", "npx"], "env": {"%s": "x"}`
	type test struct {
		client, entry string
		status        Status // empty if refused
		says          string // expected in the warning or error
	}
	tests := map[string]test{
		"another program":           {"cursor", `"command": "./thoughtgate-wrap.sh", "args": ["wrap", "--", "npx"]`, Wrapped, "which is not this program"},
		"in the project":            {"cursor", `"command": "./thoughtgate", "args": ["wrap", "--", "npx"]`, Wrapped, "which is not this program"},
		"in another directory":      {"cursor", `"command": "/tmp/thoughtgate", "args": ["wrap", "--", "npx"]`, Wrapped, "which is not this program"},
		"a directory in a variable": {"vscode", `"command": "${workspaceFolder}/thoughtgate", "args": ["wrap", "--", "npx"]`, Wrapped, "which is not this program"},
		"a list":                    {"opencode", `"type": "local", "command": ["./thoughtgate", "wrap", "--", "npx"]`, Wrapped, "which is not this program"},
		"through a shell":           {"cursor", `"command": "sh", "args": ["-c", "thoughtgate wrap -- npx"]`, Wrapped, ""},
		"through env":               {"cursor", `"command": "env", "args": ["THOUGHTGATE_CONFIG=x", "thoughtgate", "wrap", "--", "npx"]`, Wrapped, ""},
		"another command":           {"cursor", `"command": "thoughtgate", "args": ["version", "wrap"]`, Wrapped, ""},
		"the gate":                  {"cursor", `"command": "thoughtgate", "args": ["wrap", "--", "npx"], "env": {"NODE_OPTIONS": "x"}`, Unchanged, ""},
		"the gate by its path":      {"cursor", `"command": "/usr/bin/thoughtgate", "args": ["wrap", "--", "npx"], "env": {"PATH": "x"}`, Unchanged, ""},
		"its own configuration":     {"cursor", `"command": "thoughtgate", "args": ["wrap", "--name", "a", "--config", "evil.yaml", "--", "npx"]`, Unchanged, "evil.yaml"},
		"its own configuration =":   {"cursor", `"command": "thoughtgate", "args": ["wrap", "--config=evil.yaml", "--", "npx"]`, Unchanged, "evil.yaml"},
		"its own configuration -c":  {"cursor", `"command": "thoughtgate", "args": ["wrap", "-c", "evil.yaml", "--", "npx"]`, Unchanged, "evil.yaml"},
		"its own configuration c":   {"cursor", `"command": "thoughtgate", "args": ["wrap", "-cevil.yaml", "--", "npx"]`, Unchanged, "evil.yaml"},
		"behind a name":             {"cursor", `"command": "thoughtgate", "args": ["wrap", "--name", "--", "--config", "evil.yaml", "--", "npx"]`, Unchanged, "evil.yaml"},
		"behind a file":             {"cursor", `"command": "thoughtgate", "args": ["wrap", "--token-file", "--", "-c", "evil.yaml", "--url", "http://x"]`, Unchanged, "evil.yaml"},
		"behind no value":           {"cursor", `"command": "thoughtgate", "args": ["wrap", "--restart", "--", "npx", "-c", "x"]`, Unchanged, ""},
		"certificates":              {"cursor", fmt.Sprintf(env, "SSL_CERT_FILE"), Wrapped, "SSL_CERT_FILE"},
		"certificates, wrapped":     {"cursor", fmt.Sprintf(wrapped, "ssl_cert_dir"), Unchanged, "SSL_CERT_DIR"},
		"of the server":             {"cursor", `"command": "thoughtgate", "args": ["wrap", "--", "npx", "-c", "x"]`, Unchanged, ""},
		"variables from a file":     {"vscode", `"command": "npx", "envFile": "${workspaceFolder}/.env"`, Wrapped, "come from a file"},
		"PATH":                      {"cursor", fmt.Sprintf(env, "PATH"), Wrapped, ""},
		"PATH, wrapped":             {"cursor", fmt.Sprintf(wrapped, "Path"), "", "it sets PATH"},
		"opencode":                  {"opencode", `"type": "local", "command": ["npx"], "environment": {"HOME": "x"}`, "", "HOME"},
		"inside command":            {"zed", `"command": {"path": "npx", "args": [], "env": {"HOME": "x"}}`, "", "HOME"},
		"a list of variables":       {"cursor", `"command": "npx", "env": ["THOUGHTGATE_CONFIG=x"]`, "", "THOUGHTGATE_CONFIG"},
	}
	for _, name := range []string{"THOUGHTGATE_CONFIG", "thoughtgate_log_level", "XDG_STATE_HOME", "HOME", "LOCALAPPDATA", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES"} {
		tests[name] = test{"cursor", fmt.Sprintf(env, name), "", strings.ToUpper(name)}
		tests[name+", wrapped"] = test{"cursor", fmt.Sprintf(wrapped, name), "", strings.ToUpper(name)}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Find(tt.client)
			if err != nil {
				t.Fatal(err)
			}
			change, err := c.Wrap(fmt.Appendf(nil, `{"%s": {"a": {%s}}}`, c.sections[0][0], tt.entry), installed)
			if tt.status == "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("accepted: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := change.Servers[0]; s.Status != tt.status || !strings.Contains(s.Warning, tt.says) || (s.Warning == "") != (tt.says == "") {
				t.Errorf("status %q, warning %q", s.Status, s.Warning)
			}
			if text := string(change.Text); name == "PATH" && !strings.Contains(text, `"/opt/thoughtgate"`) {
				t.Errorf("the started program depends on PATH: %s", text)
			}
		})
	}
}

// A TOML file cannot pass another program off as the gate, or change what the gate does.
func TestTOMLFileCannotDisableGate(t *testing.T) {
	c, err := Find("codex")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"[mcp_servers.a]\ncommand = 'npx'\n[mcp_servers.a.env]\nHOME = 'x'\n",
		"[mcp_servers.a]\ncommand = 'npx'\nenv = { THOUGHTGATE_CONFIG = 'x' }\n",
		"mcp_servers.a.command = 'npx'\nmcp_servers.a.env.XDG_STATE_HOME = 'x'\n",
	} {
		if _, err := c.Wrap([]byte(text), gate); err == nil || !strings.Contains(err.Error(), "changes what the gate does") {
			t.Errorf("accepted: %v\n%s", err, text)
		}
	}
}

// Different server names have different upstream names, which never change.
func TestNamesInOtherScriptsStayDifferent(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"files", "日本", "中国", "日本 files", "中国 files", "Größe", "Groesse", "Straße", "!", "?", strings.Repeat("a", 70), strings.Repeat("a", 71)} {
		got := gateName(name)
		if before, ok := seen[got]; ok {
			t.Errorf("%q and %q both have the name %s", before, name, got)
		}
		seen[got] = name
		if got != gateName(name) || len(got) > maxName || strings.Trim(got, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.Trim(got, "-") != got {
			t.Errorf("%q has the name %q", name, got)
		}
	}
	if got := gateName("My Files_2"); got != "my-files-2" {
		t.Errorf("an English name became %q", got)
	}
}
