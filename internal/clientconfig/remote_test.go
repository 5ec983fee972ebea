package clientconfig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// wrapOne wraps the only server of a file.
func wrapOne(t *testing.T, client, content string) (Client, Change) {
	t.Helper()
	c, err := Find(client)
	if err != nil {
		t.Fatal(err)
	}
	change, err := c.Wrap([]byte(content), gate)
	if err != nil {
		t.Fatal(err)
	}
	if len(change.Servers) != 1 {
		t.Fatalf("servers %+v", change.Servers)
	}
	return c, change
}

// Servers that a client reaches by URL are wrapped, with secrets in the environment, or stay as they
// are for a reason. Undo restores the text.
func TestWrapRemote(t *testing.T) {
	for name, tt := range map[string]struct{ client, server, want string }{
		"secret in the path":   {"windsurf", `"serverUrl": "https://a.example/mcp/0123456789abcdefghij/x"`, `"command": "thoughtgate", "args": ["wrap", "--name", "a", "--url", "env:MCP_URL"], "env": { "MCP_URL": "https://a.example/mcp/0123456789abcdefghij/x" }`},
		"secret in the query":  {"zed", `"url": "https://a.example/mcp?key=1", /* x */ "headers": {"X-A": "1", /* y */ "X-B": "2"}`, `"command": "thoughtgate", "args": ["wrap", "--name", "a", "--url", "env:MCP_URL", "--header", "X-A: env:MCP_HEADER_1", "--header", "X-B: env:MCP_HEADER_2"], /* x */ "env": { "MCP_URL": "https://a.example/mcp?key=1", "MCP_HEADER_1": "1", "MCP_HEADER_2": "2" }`},
		"variable of a client": {"cursor", `"url": "${env:SERVER}/mcp"`, `"command": "thoughtgate", "args": ["wrap", "--name", "a", "--url", "env:MCP_URL"], "env": { "MCP_URL": "${env:SERVER}/mcp" }`},
		"list of a command":    {"opencode", `"type": "remote", "url": "https://a.example", "headers": {"A": "{env:B}"}`, `"type": "local", "command": ["thoughtgate", "wrap", "--name", "a", "--url", "https://a.example", "--header", "A: env:MCP_HEADER_1"], "environment": { "MCP_HEADER_1": "{env:B}" }`},
		"this machine":         {"cursor", `"url": "http://localhost:1/mcp", "headers": {}`, `"command": "thoughtgate", "args": ["wrap", "--name", "a", "--url", "http://localhost:1/mcp"], "env": {  }`},
		"SSE by path":          {"cursor", `"url": "https://a.example/sse?x=1"`, "SSE"},
		"SSE by type":          {"claude-code", `"type": "sse", "url": "https://a.example/mcp"`, "SSE"},
		"SSE by name":          {"gemini", `"url": "https://a.example/mcp"`, "SSE"},
		"not SSE":              {"gemini", `"type": "http", "url": "https://a.example/mcp"`, `"type": "stdio", "command": "thoughtgate", "args": ["wrap", "--name", "a", "--url", "https://a.example/mcp"]`},
		"own sign-in":          {"gemini", `"httpUrl": "https://a.example/mcp", "oauth": {"clientId": "x"}`, "setting oauth"},
		"helper":               {"claude-code", `"type": "http", "url": "https://a.example/mcp", "headersHelper": "x"`, "setting headersHelper"},
		"two URLs":             {"windsurf", `"url": "https://a.example/mcp", "serverUrl": "https://b.example/mcp"`, "setting serverUrl"},
		"environment":          {"cursor", `"url": "https://a.example/mcp", "env": {}`, "setting env"},
		"no encryption":        {"cursor", `"url": "http://a.example/mcp", "headers": {"A": "b"}`, "without encryption"},
		"user":                 {"cursor", `"url": "https://u:p@a.example/mcp"`, "not one of http or https"},
		"socket":               {"cursor", `"url": "ws://a.example/mcp"`, "not one of http or https"},
		"unusual header":       {"cursor", `"url": "https://a.example/mcp", "headers": {"A b": "c"}`, "unusual"},
		"number in a header":   {"cursor", `"url": "https://a.example/mcp", "headers": {"A": 1}`, "unusual"},
		"list of headers":      {"cursor", `"url": "https://a.example/mcp", "headers": ["A: b"]`, "not one table"},
	} {
		t.Run(name, func(t *testing.T) {
			section := map[string]string{"zed": "context_servers", "opencode": "mcp"}[tt.client]
			if section == "" {
				section = "mcpServers"
			}
			file := func(server string) string { return `{"` + section + `": {"a": {` + server + `, "timeout": 5}}}` }
			content := file(tt.server)
			c, change := wrapOne(t, tt.client, content)
			if s := change.Servers[0]; s.Status == Remote {
				if !strings.Contains(s.Warning, tt.want) || string(change.Text) != content {
					t.Errorf("%s: %s\n%s", s.Status, s.Warning, change.Text)
				}
				return
			}
			if want := file(tt.want); string(change.Text) != want {
				t.Errorf("got  %s\nwant %s", change.Text, want)
			}
			undone, err := Record{Client: c.Name, Patches: change.Patches}.Plan(change.Text)
			if err != nil || string(undone.Text) != content {
				t.Errorf("undone: %v\n%s", err, undone.Text)
			}
		})
	}
}

// Undo also restores a server in a file that the client has written again in its own form. It does
// not touch one that somebody has changed.
func TestUndoRemoteLater(t *testing.T) {
	content := `{"mcpServers":{"a":{"type":"http","url":"https://a.example/mcp?k=1","headers":{"A":"b"},"x":1}}}`
	c, change := wrapOne(t, "claude-code", content)
	record := Record{Client: c.Name, Patches: change.Patches}
	written := strings.NewReplacer(`{`, "{\n  ", `,`, ",\n  ", `"command": `, `"command":`).Replace(string(change.Text))
	undone, err := record.Plan([]byte(written))
	if err != nil || strings.Contains(string(undone.Text), "thoughtgate") {
		t.Fatalf("%v\n%s", err, undone.Text)
	}
	if got := strings.NewReplacer("\n  ", "").Replace(string(undone.Text)); got != content {
		t.Errorf("got  %s\nwant %s", got, content)
	}
	for _, change := range [][2]string{{"a.example", "b.example"}, {`"--url"`, `"--restart=false", "--url"`}, {`"MCP_HEADER_1":`, `"OTHER": "x", "MCP_HEADER_1":`}} {
		changed := strings.Replace(written, change[0], change[1], 1)
		if _, err := record.Plan([]byte(changed)); err == nil || !strings.Contains(err.Error(), "restore it by hand") {
			t.Errorf("after %q: %v", change, err)
		}
	}
}

// A server of Codex with headers in a table of their own stays as it is.
func TestHeadersInOwnTable(t *testing.T) {
	for content, want := range map[string]Status{
		"[mcp_servers.a]\nurl = 'https://a.example/mcp'\n[mcp_servers.a.http_headers]\nA = 'b'\n":   Remote,
		"[mcp_servers.a]\nurl = 'https://a.example/mcp'\nhttp_headers = { A = 'b', \"X-C\" = 'd' }": Wrapped,
		"mcp_servers.a = { url = 'https://a.example/mcp', bearer_token_env_var = 'T' }":             Wrapped,
		"mcp_servers.a.url = 'https://a.example/mcp?k=1'\nmcp_servers.a.http_headers = { A = 'b' }": Wrapped,
	} {
		c, change := wrapOne(t, "codex", content)
		if change.Servers[0].Status != want {
			t.Errorf("%s: %+v", content, change.Servers[0])
		}
		undone, err := Record{Client: c.Name, Patches: change.Patches}.Plan(change.Text)
		if err != nil || string(undone.Text) != content {
			t.Errorf("undone: %v\n%s", err, undone.Text)
		}
	}
}

// Codex gives a program few environment variables. Wrap gets those with which a person signs in, unless it has a
// token.
func TestCodexPassesOnVariablesForSignIn(t *testing.T) {
	for content, want := range map[string]bool{
		"# mine\n[mcp_servers.a]\nurl = 'https://a.example/mcp' # his\nenabled = true\n":               true,
		"[mcp_servers.a]\r\n\turl = 'https://a.example/mcp'\r\n\thttp_headers = { X-A = 'b' } # x\r\n": true,
		"mcp_servers.a.url = 'https://a.example/mcp?k=1'\n":                                            true,
		"mcp_servers.a = { url = 'https://a.example/mcp' }":                                            true,
		"[mcp_servers.a]\nurl = 'https://a.example/mcp'\nbearer_token_env_var = 'T'\n":                 false,
	} {
		c, change := wrapOne(t, "codex", content)
		var file struct {
			Servers map[string]struct {
				Variables []string `toml:"env_vars"`
			} `toml:"mcp_servers"`
		}
		if err := toml.Unmarshal(change.Text, &file); err != nil {
			t.Fatal(err)
		}
		passed := file.Servers["a"].Variables
		for _, name := range []string{"DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "BROWSER", "XDG_STATE_HOME"} {
			if slices.Contains(passed, name) != want {
				t.Errorf("%s: variables %v; %s: %v", content, passed, name, want)
			}
		}
		undone, err := Record{Client: c.Name, Patches: change.Patches}.Plan(change.Text)
		if err != nil || string(undone.Text) != content {
			t.Errorf("undone: %v\n%s", err, undone.Text)
		}
	}
}

// Isolation leaves servers with a URL to the client.
func TestIsolateLeavesRemote(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "claude-code.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Find("claude-code")
	if err != nil {
		t.Fatal(err)
	}
	change, err := c.Isolate(content, IsolateOptions{Program: "/usr/bin/thoughtgate", Socket: "/s", Add: func(p Program) string { return p.Name }})
	if err != nil || !strings.Contains(string(change.Text), `"notion": { "type": "http", "url": "https://mcp.notion.com/mcp" }`) {
		t.Errorf("%v\n%s", err, change.Text)
	}
}
