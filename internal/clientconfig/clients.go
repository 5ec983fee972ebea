package clientconfig

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Client is a program that starts MCP servers.
type Client struct {
	Name     string
	language language
	sections [][]string // paths of its servers; * is any name
	nested   string     // a table in the section in which later versions have the servers
	user     func(System) []string
	project  []string // files in a project directory

	programType  string // the type of a server that is a program
	environment  string // the name of the table of its environment variables
	listsCommand bool   // its command is a list, with the arguments
	urlIsSSE     bool   // a url without a type is one of the transport SSE
	variables    string // the list of environment variables that a program gets from the client; empty if it gets all
}

// A System says where to look for the files of clients.
type System struct {
	OS      string // as in runtime.GOOS
	Home    string
	Project string // the directory of a project
	Getenv  func(string) string
}

// Clients returns all supported clients.
func Clients() []Client {
	all := clients()
	for i := range all {
		all[i].programType, all[i].environment = cmp.Or(all[i].programType, "stdio"), cmp.Or(all[i].environment, "env")
	}
	return all
}

func clients() []Client {
	servers := [][]string{{"mcpServers"}}
	return []Client{
		{
			Name: "claude-code", language: jsonLanguage{},
			sections: [][]string{{"mcpServers"}, {"projects", "*", "mcpServers"}},
			user:     func(s System) []string { return below(cmp.Or(s.Getenv("CLAUDE_CONFIG_DIR"), s.Home), ".claude.json") },
			project:  []string{".mcp.json"},
		},
		{Name: "claude-desktop", language: jsonLanguage{}, sections: servers, user: claudeDesktop},
		{
			Name: "cursor", language: jsonLanguage{}, sections: servers,
			user:    func(s System) []string { return below(s.Home, ".cursor/mcp.json") },
			project: []string{".cursor/mcp.json"},
		},
		{
			Name: "vscode", language: jsonLanguage{}, sections: [][]string{{"servers"}},
			user:    func(s System) []string { return below(s.appData(), "Code/User/mcp.json") },
			project: []string{".vscode/mcp.json"},
		},
		{
			Name: "windsurf", language: jsonLanguage{}, sections: servers,
			user: func(s System) []string { return below(s.Home, ".codeium/windsurf/mcp_config.json") },
		},
		{
			Name: "zed", language: jsonLanguage{}, sections: [][]string{{"context_servers"}}, user: zed,
			project: []string{".zed/settings.json"},
		},
		{
			Name: "codex", language: tomlLanguage{}, sections: [][]string{{"mcp_servers"}}, variables: "env_vars",
			user: func(s System) []string {
				return below(cmp.Or(s.Getenv("CODEX_HOME"), filepath.Join(s.Home, ".codex")), "config.toml")
			},
			project: []string{".codex/config.toml"},
		},
		{
			Name: "gemini", language: jsonLanguage{}, sections: servers, urlIsSSE: true,
			user: func(s System) []string {
				return below(cmp.Or(s.Getenv("GEMINI_CLI_HOME"), s.Home), ".gemini/settings.json")
			},
			project: []string{".gemini/settings.json"},
		},
		{
			Name: "opencode", language: jsonLanguage{}, sections: [][]string{{"mcp"}}, nested: "servers", user: opencode,
			programType: "local", environment: "environment", listsCommand: true,
			project: []string{"opencode.jsonc", "opencode.json", ".opencode/opencode.jsonc", ".opencode/opencode.json"},
		},
	}
}

// Names returns the names of all supported clients, separated by commas.
func Names() string {
	var names []string
	for _, c := range Clients() {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// Find returns the client with a name.
func Find(name string) (Client, error) {
	for _, c := range Clients() {
		if c.Name == name {
			return c, nil
		}
	}
	return Client{}, fmt.Errorf("unknown client %q; known are %s", name, Names())
}

// UserFile returns the user's configuration file.
func (c Client) UserFile(s System) (string, error) {
	return existing(c.user(s))
}

// UserFiles returns all existing configuration files of the user.
func (c Client) UserFiles(s System) []string {
	return slices.DeleteFunc(c.user(s), func(f string) bool {
		_, err := os.Stat(f)
		return errors.Is(err, os.ErrNotExist)
	})
}

// ProjectFile returns the configuration file of the project.
func (c Client) ProjectFile(s System) (string, error) {
	if len(c.project) == 0 {
		return "", fmt.Errorf("%s has no project configuration", c.Name)
	}
	return existing(c.projectFiles(s.Project))
}

func (c Client) projectFiles(dir string) []string {
	var files []string
	for _, f := range c.project {
		files = append(files, filepath.Join(dir, f))
	}
	return files
}

// Files returns all existing files from which the client would start servers: those of the user, of
// the project, and of the projects that content names.
func (c Client) Files(s System, content []byte) []string {
	files := c.user(s)
	for _, dir := range append([]string{s.Project}, c.projects(content)...) {
		files = append(files, c.projectFiles(dir)...)
	}
	return slices.DeleteFunc(files, func(f string) bool {
		_, err := os.Stat(f)
		return err != nil
	})
}

// projects returns the project directories that a file of the client names.
func (c Client) projects(content []byte) (dirs []string) {
	root, err := parse(c.language, content)
	if err != nil {
		return nil
	}
	for _, section := range c.sections {
		all := root.find(section[0])
		if len(section) < 2 || section[1] != "*" || all == nil {
			continue
		}
		for _, m := range all.value.members {
			if filepath.IsAbs(m.name) {
				dirs = append(dirs, m.name)
			}
		}
	}
	return dirs
}

// existing returns the one file that exists. If there are several, the client reads all of them,
// and the user must choose.
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
		return "", fmt.Errorf("no configuration found at %s", strings.Join(files, " or "))
	case 1:
		return found[0], nil
	default:
		return "", fmt.Errorf("several configuration files; choose one with --file: %s", strings.Join(found, ", "))
	}
}

func below(dir, file string) []string { return []string{filepath.Join(dir, file)} }

// appData returns the directory for settings of programs.
func (s System) appData() string {
	switch s.OS {
	case "windows":
		return cmp.Or(s.Getenv("APPDATA"), filepath.Join(s.Home, "AppData", "Roaming"))
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

// claudeDesktop returns the file of Claude Desktop. If Windows has installed it as a package, its
// files are in a directory of that package, and the one in APPDATA is not used.
func claudeDesktop(s System) []string {
	const file = "Claude/claude_desktop_config.json"
	if s.OS == "windows" {
		local := cmp.Or(s.Getenv("LOCALAPPDATA"), filepath.Join(s.Home, "AppData", "Local"))
		packages, _ := filepath.Glob(filepath.Join(local, "Packages", "Claude_*", "LocalCache", "Roaming"))
		var files []string
		for _, dir := range packages {
			files = append(files, filepath.Join(dir, file))
		}
		if len(files) > 0 {
			return files
		}
	}
	return below(s.appData(), file)
}

func zed(s System) []string {
	switch s.OS {
	case "windows":
		return below(s.appData(), "Zed/settings.json")
	case "darwin":
		return below(s.Home, ".config/zed/settings.json")
	default:
		return below(cmp.Or(s.Getenv("FLATPAK_XDG_CONFIG_HOME"), s.xdgConfig()), "zed/settings.json")
	}
}

// opencode returns the files of opencode, whose paths are the same on every system.
func opencode(s System) []string {
	if file := s.Getenv("OPENCODE_CONFIG"); file != "" {
		return []string{file}
	}
	dir := filepath.Join(s.xdgConfig(), "opencode")
	return []string{filepath.Join(dir, "opencode.jsonc"), filepath.Join(dir, "opencode.json"), filepath.Join(dir, "config.json")}
}
