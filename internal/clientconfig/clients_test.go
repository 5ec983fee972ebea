package clientconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The user's configuration file of each client on each system.
func TestUserFiles(t *testing.T) {
	tests := []struct{ client, linux, darwin, windows string }{
		{"claude-code", "home/.claude.json", "home/.claude.json", "home/.claude.json"},
		{"claude-desktop", "home/.config/Claude/claude_desktop_config.json", "home/Library/Application Support/Claude/claude_desktop_config.json", "home/AppData/Roaming/Claude/claude_desktop_config.json"},
		{"cursor", "home/.cursor/mcp.json", "home/.cursor/mcp.json", "home/.cursor/mcp.json"},
		{"vscode", "home/.config/Code/User/mcp.json", "home/Library/Application Support/Code/User/mcp.json", "home/AppData/Roaming/Code/User/mcp.json"},
		{"windsurf", "home/.codeium/windsurf/mcp_config.json", "home/.codeium/windsurf/mcp_config.json", "home/.codeium/windsurf/mcp_config.json"},
		{"zed", "home/.config/zed/settings.json", "home/.config/zed/settings.json", "home/AppData/Roaming/Zed/settings.json"},
		{"codex", "home/.codex/config.toml", "home/.codex/config.toml", "home/.codex/config.toml"},
		{"gemini", "home/.gemini/settings.json", "home/.gemini/settings.json", "home/.gemini/settings.json"},
		{"opencode", "home/.config/opencode/opencode.json", "home/.config/opencode/opencode.json", "home/.config/opencode/opencode.jsonc"},
	}
	for _, tt := range tests {
		for system, want := range map[string]string{"linux": tt.linux, "darwin": tt.darwin, "windows": tt.windows} {
			dir := t.TempDir()
			s := System{OS: system, Home: filepath.Join(dir, "home"), Getenv: func(string) string { return "" }}
			found(t, tt.client, s, create(t, dir, want), "")
		}
	}
	if len(tests) != len(Clients()) {
		t.Errorf("%d of %d clients are tested", len(tests), len(Clients()))
	}
}

// create makes an empty file with its directories, and returns its path.
func create(t *testing.T, dir, name string) string {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// found checks the configuration file of a client, or the error.
func found(t *testing.T, client string, s System, want, problem string) {
	t.Helper()
	c, err := Find(client)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.UserFile(s)
	if got != want || (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
		t.Errorf("%s on %s: %q, %v", client, s.OS, got, err)
	}
}

// Environment variables move the files of some clients.
func TestMovedFiles(t *testing.T) {
	tests := []struct{ client, system, variable, value, want string }{
		{"claude-code", "linux", "CLAUDE_CONFIG_DIR", "moved", "moved/.claude.json"},
		{"codex", "linux", "CODEX_HOME", "moved", "moved/config.toml"},
		{"gemini", "linux", "GEMINI_CLI_HOME", "moved", "moved/.gemini/settings.json"},
		{"opencode", "linux", "OPENCODE_CONFIG", "moved/x.json", "moved/x.json"},
		{"opencode", "darwin", "XDG_CONFIG_HOME", "moved", "moved/opencode/opencode.json"},
		{"zed", "linux", "XDG_CONFIG_HOME", "moved", "moved/zed/settings.json"},
		{"vscode", "windows", "APPDATA", "moved", "moved/Code/User/mcp.json"},
		{"claude-desktop", "windows", "LOCALAPPDATA", "moved", "moved/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json"},
	}
	for _, tt := range tests {
		dir := t.TempDir()
		s := System{OS: tt.system, Home: filepath.Join(dir, "home"), Getenv: func(name string) string {
			if name == tt.variable {
				return filepath.Join(dir, tt.value)
			}
			return ""
		}}
		found(t, tt.client, s, create(t, dir, tt.want), "")
	}
}

func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	s := System{OS: "linux", Home: dir, Project: dir, Getenv: func(string) string { return "" }}
	found(t, "opencode", s, "", "no configuration found at "+dir)
	create(t, dir, ".config/opencode/opencode.json")
	create(t, dir, ".config/opencode/opencode.jsonc")
	found(t, "opencode", s, "", "choose one with --file")

	for _, c := range Clients() {
		if len(c.project) == 0 {
			if _, err := c.ProjectFile(s); err == nil || !strings.Contains(err.Error(), "no project configuration") {
				t.Errorf("%s: %v", c.Name, err)
			}
			continue
		}
		want := create(t, dir, c.project[len(c.project)-1])
		if got, err := c.ProjectFile(s); got != want || err != nil {
			t.Errorf("%s: %q, %v", c.Name, got, err)
		}
	}
}
