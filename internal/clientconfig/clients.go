package clientconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Client is a program that starts MCP servers, and how it is configured.
type Client struct {
	Name     string
	language language
	sections [][]string // where servers are; * is any name
	nested   string     // a name in a section that may itself be the section
	user     func(System) []string
	project  []string // files below a project's directory
}

// A System is where the files of clients are looked for.
type System struct {
	OS      string // as in runtime.GOOS
	Home    string
	Project string // the directory of a project
	Getenv  func(string) string
}

// Clients returns all clients whose configuration is known.
func Clients() []Client {
	servers := [][]string{{"mcpServers"}}
	return []Client{
		{
			Name: "claude-code", language: jsonLanguage{},
			sections: [][]string{{"mcpServers"}, {"projects", "*", "mcpServers"}},
			user:     func(s System) []string { return s.below(s.getenv("CLAUDE_CONFIG_DIR", s.Home), ".claude.json") },
			project:  []string{".mcp.json"},
		},
		{Name: "claude-desktop", language: jsonLanguage{}, sections: servers, user: claudeDesktop},
		{
			Name: "cursor", language: jsonLanguage{}, sections: servers,
			user:    func(s System) []string { return s.below(s.Home, ".cursor/mcp.json") },
			project: []string{".cursor/mcp.json"},
		},
		{
			Name: "vscode", language: jsonLanguage{}, sections: [][]string{{"servers"}},
			user:    func(s System) []string { return s.below(s.appData(), "Code/User/mcp.json") },
			project: []string{".vscode/mcp.json"},
		},
		{
			Name: "windsurf", language: jsonLanguage{}, sections: servers,
			user: func(s System) []string { return s.below(s.Home, ".codeium/windsurf/mcp_config.json") },
		},
		{
			Name: "zed", language: jsonLanguage{}, sections: [][]string{{"context_servers"}}, user: zed,
			project: []string{".zed/settings.json"},
		},
		{
			Name: "codex", language: tomlLanguage{}, sections: [][]string{{"mcp_servers"}},
			user: func(s System) []string {
				return s.below(s.getenv("CODEX_HOME", filepath.Join(s.Home, ".codex")), "config.toml")
			},
			project: []string{".codex/config.toml"},
		},
		{
			Name: "gemini", language: jsonLanguage{}, sections: servers,
			user: func(s System) []string {
				return s.below(s.getenv("GEMINI_CLI_HOME", s.Home), ".gemini/settings.json")
			},
			project: []string{".gemini/settings.json"},
		},
		{
			Name: "opencode", language: jsonLanguage{}, sections: [][]string{{"mcp"}}, nested: "servers", user: opencode,
			project: []string{"opencode.jsonc", "opencode.json", ".opencode/opencode.jsonc", ".opencode/opencode.json"},
		},
	}
}

// Find returns the client with a name.
func Find(name string) (Client, error) {
	var names []string
	for _, c := range Clients() {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return Client{}, fmt.Errorf("unknown client %q; known are %s", name, strings.Join(names, ", "))
}

// UserFile returns the file with the servers of a user.
func (c Client) UserFile(s System) (string, error) {
	return existing(c.user(s))
}

// ProjectFile returns the file with the servers of a project.
func (c Client) ProjectFile(s System) (string, error) {
	if len(c.project) == 0 {
		return "", fmt.Errorf("%s has no configuration of its own in a project", c.Name)
	}
	var files []string
	for _, f := range c.project {
		files = append(files, s.below(s.Project, f)...)
	}
	return existing(files)
}

// existing returns the one file that is there. If several are, the client reads
// all of them, so the user must choose.
func existing(files []string) (string, error) {
	var found []string
	for _, f := range files {
		switch _, err := os.Stat(f); {
		case err == nil:
			found = append(found, f)
		case !errors.Is(err, os.ErrNotExist):
			return "", err
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("there is no file %s: nothing is configured there", strings.Join(files, " or "))
	case 1:
		return found[0], nil
	default:
		return "", fmt.Errorf("there are several files; choose one with --file: %s", strings.Join(found, ", "))
	}
}

func (s System) getenv(name, otherwise string) string {
	if value := s.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func (s System) below(dir, file string) []string {
	return []string{filepath.Join(dir, filepath.FromSlash(file))}
}

// appData returns where the system has the settings of a user's programs.
func (s System) appData() string {
	switch s.OS {
	case "windows":
		return s.getenv("APPDATA", filepath.Join(s.Home, "AppData", "Roaming"))
	case "darwin":
		return filepath.Join(s.Home, "Library", "Application Support")
	default:
		return s.xdgConfig()
	}
}

func (s System) xdgConfig() string {
	if dir := s.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(s.Home, ".config")
}

// claudeDesktop finds the file of Claude Desktop. When Windows installs it as a
// package, its files are in a directory of that package, and the one in APPDATA
// is not read.
func claudeDesktop(s System) []string {
	const file = "Claude/claude_desktop_config.json"
	if s.OS == "windows" {
		local := s.getenv("LOCALAPPDATA", filepath.Join(s.Home, "AppData", "Local"))
		packages, _ := filepath.Glob(filepath.Join(local, "Packages", "Claude_*", "LocalCache", "Roaming"))
		var files []string
		for _, dir := range packages {
			files = append(files, s.below(dir, file)...)
		}
		if len(files) > 0 {
			return files
		}
	}
	return s.below(s.appData(), file)
}

func zed(s System) []string {
	switch s.OS {
	case "windows":
		return s.below(s.appData(), "Zed/settings.json")
	case "darwin":
		return s.below(s.Home, ".config/zed/settings.json")
	default:
		return s.below(s.getenv("FLATPAK_XDG_CONFIG_HOME", s.xdgConfig()), "zed/settings.json")
	}
}

// opencode finds the files of opencode, which are in the same places on every
// system.
func opencode(s System) []string {
	if file := s.Getenv("OPENCODE_CONFIG"); file != "" {
		return []string{file}
	}
	dir := filepath.Join(s.xdgConfig(), "opencode")
	return []string{filepath.Join(dir, "opencode.jsonc"), filepath.Join(dir, "opencode.json"), filepath.Join(dir, "config.json")}
}
