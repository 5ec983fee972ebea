package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// Sources are the sources of a configuration. Overrides take precedence over
// environment variables, which take precedence over the file.
type Sources struct {
	File      string        // name of the file; empty means the one in THOUGHTGATE_CONFIG, if any
	Environ   []string      // in the form of [os.Environ]
	Overrides []Override    // the command line's
	Server    *Upstream     // of a wrap: replaces all upstreams; nil without a wrap of one server
	Several   *Several      // of a wrap of an endpoint; nil otherwise
	Channels  []ChannelKind // all kinds of channels
	Starter   *Starter      // replaces a missing file; may be nil
	Now       time.Time     // for warnings of expired certificates; may be zero

	WithoutPins bool // do not read the lock file, which may not exist yet
}

// A Starter is a configuration that is part of the program.
type Starter struct {
	Name     string // in problems, instead of a file name
	Text     []byte
	Policies []policy.Source
}

// An Override replaces the value that the file gives to a setting.
type Override struct {
	Source  string   // such as --listen
	Setting string   // path of the setting, such as operators.listen
	Values  []string // exactly one, except for lists; of upstreams: URL or name=URL
}

// Load returns the configuration, and warnings about settings that are valid but
// probably a mistake. If there are problems, the error is an [*Error] with all of
// them, and the returned Config has only the fingerprint. Any other error means that
// the file cannot be read.
func Load(s Sources) (Config, []Problem, error) {
	l := newLoader(s)
	file, err := l.read(s)
	if err != nil {
		return Config{}, nil, err
	}
	l.check()
	dir := filepath.Dir(file)
	l.checkAuthorities(dir)
	l.findPins(dir)
	if file != "" {
		l.readPolicies(dir)
	}
	if !s.WithoutPins {
		l.readPins()
	}
	l.cfg.Watch = l.files.directories()
	return l.result()
}

// LoadStorage is [Load] for commands that use nothing but the store. It reports
// problems only with the settings of the store.
func LoadStorage(s Sources) (Config, []Problem, error) {
	l := newLoader(s)
	if _, err := l.read(s); err != nil {
		return Config{}, nil, err
	}
	l.findStateDir()
	l.problems = slices.DeleteFunc(l.problems, func(p Problem) bool {
		first, _, _ := strings.Cut(p.Setting, ".")
		return !slices.Contains([]string{"", "version", "store", "storage", "state_dir"}, first)
	})
	return l.result()
}

// read reads the file, if there is one, then variables and overrides. It returns the
// name of the file.
func (l *loader) read(s Sources) (file string, err error) {
	if file = s.File; file == "" {
		file = l.env.vars["THOUGHTGATE_CONFIG"]
	}
	switch {
	case file != "":
		src, err := l.files.read(file)
		if err != nil {
			return "", err
		}
		l.decode(&decoder{file: file}, src, l.cfg.settings(l.kinds))
	case s.Starter != nil:
		l.decode(&decoder{file: s.Starter.Name}, s.Starter.Text, l.cfg.settings(l.kinds))
		l.cfg.Cedar.Sources = s.Starter.Policies
	}
	l.addDefaultWorkflow()
	l.override(s.Overrides)
	if l.isWrap {
		l.wrap(s)
	}
	return file, nil
}

// A loader builds a Config.
type loader struct {
	cfg      Config
	kinds    []ChannelKind
	env      environment
	origins  Origins
	files    *fileSet
	unread   bool     // the file could not be parsed
	isWrap   bool     // one agent, without a listener for agents
	isFixed  bool     // a wrap of an endpoint of the file
	unused   []string // settings that have no effect in a wrap
	now      time.Time
	problems []Problem
	warnings []Problem
}

func newLoader(s Sources) *loader {
	return &loader{
		isWrap: s.Server != nil || s.Several != nil, isFixed: s.Several != nil && s.Several.Servers == nil,
		cfg: Default(), kinds: s.Channels, now: s.Now, env: newEnvironment(s.Environ), origins: Origins{}, files: newFileSet(),
	}
}

func (l *loader) report(at Position, setting, text string) {
	l.problems = append(l.problems, Problem{at, setting, text})
}

// reject reports a problem at the position of the setting.
func (l *loader) reject(setting, text string) { l.report(l.origin(setting), setting, text) }

// rejectNew reports a problem, unless the setting already has one.
func (l *loader) rejectNew(setting, text string) {
	if !l.faulty(setting) {
		l.reject(setting, text)
	}
}

func (l *loader) warn(setting, text string) {
	l.warnings = append(l.warnings, Problem{l.origin(setting), setting, text})
}

// given reports whether the file, a variable or a flag has the setting.
func (l *loader) given(path string) bool {
	_, given := l.origins[path]
	return given
}

// faulty reports whether the setting at path has a problem.
func (l *loader) faulty(path string) bool {
	return slices.ContainsFunc(l.problems, func(p Problem) bool { return p.Setting == path })
}

// set stores text in the setting at path.
func (l *loader) set(at Position, path string, to Leaf, text string) {
	l.origins[path] = at
	switch {
	case to.required && text == "":
		l.report(at, path, "is required")
	case !to.set(text):
		l.report(at, path, "must be "+to.want)
	}
}

func (l *loader) origin(path string) Position { return l.origins.Of(path) }

// override stores the values of variables and flags. For each setting only the one with
// the highest precedence counts.
func (l *loader) override(flags []Override) {
	last := map[string]Override{}
	for _, o := range slices.Concat(l.env.overrides(), flags) {
		last[o.Setting] = o
	}
	// Sorted: "upstreams" comes before "upstreams[].connect_timeout".
	for _, path := range slices.Sorted(maps.Keys(last)) {
		o := last[path]
		at := Position{Source: o.Source}
		switch rest, each := strings.CutPrefix(path, "upstreams[]."); {
		case path == "upstreams" && l.isFixed: // a variable for a gate over HTTP
		case path == "upstreams":
			l.replaceUpstreams(at, o.Values)
		case path == forceRequired:
			l.replaceForced(at, o.Values)
		case path == approvalTimeout:
			l.overrideApprovalTimeout(at, o.Values)
		case each:
			for i := range l.cfg.Upstreams {
				full := fmt.Sprintf("upstreams[%d].%s", i, rest)
				l.overrideLeaf(at, full, descend(l.cfg.Upstreams[i].settings(), rest), o.Values)
			}
		default:
			l.overrideLeaf(at, path, descend(l.cfg.settings(l.kinds), path), o.Values)
		}
	}
}

func (l *loader) overrideLeaf(at Position, path string, to Setting, values []string) {
	single, ok := to.(Leaf)
	if !ok || len(values) != 1 {
		l.report(at, path, "cannot be overridden")
		return
	}
	l.set(at, path, single, values[0])
}

// descend returns the setting at path in g, or nil.
func descend(g Group, path string) Setting {
	key, rest, deeper := strings.Cut(path, ".")
	to := g.find(key)
	if inner, ok := to.(Group); ok && deeper {
		return descend(inner, rest)
	}
	if deeper {
		return nil
	}
	return to
}

// replaceUpstreams replaces the list of upstreams by values, each URL or name=URL.
// Settings of the file's upstreams are not kept: their headers may be secrets for
// another server.
func (l *loader) replaceUpstreams(at Position, values []string) {
	if len(l.cfg.Upstreams) > 0 {
		l.warnings = append(l.warnings, Problem{at, "upstreams", "replaces the upstreams of the file, with all their settings"})
	}
	maps.DeleteFunc(l.origins, func(path string, _ Position) bool { return strings.HasPrefix(path, "upstreams[") })
	l.origins["upstreams"] = at
	l.cfg.Upstreams = nil
	for i, value := range values {
		u := DefaultUpstream()
		path := fmt.Sprintf("upstreams[%d]", i)
		if name, rest, ok := strings.Cut(value, "="); ok && IsName(name) {
			u.Name, value = name, rest
			l.origins[path+".name"] = at
		}
		l.set(at, path+".url", URL(&u.URL), value)
		l.cfg.Upstreams = append(l.cfg.Upstreams, u)
	}
}

func (l *loader) replaceForced(at Position, values []string) {
	l.cfg.Tasks.ForceRequired = nil
	for _, value := range values {
		l.set(at, forceRequired, Each(&l.cfg.Tasks.ForceRequired, wantTool, isLineOfText), strings.TrimSpace(value))
	}
}

func (l *loader) overrideApprovalTimeout(at Position, values []string) {
	i := slices.IndexFunc(l.cfg.Workflows, func(w policy.Workflow) bool { return w.Name == policy.DefaultWorkflow })
	if i < 0 {
		l.warnings = append(l.warnings, Problem{at, approvalTimeout, "is ignored: no configured workflow has this name"})
		return
	}
	l.overrideLeaf(at, approvalTimeout, descend(workflowSettings(&l.cfg.Workflows[i]), "timeout"), values)
}

func (l *loader) result() (Config, []Problem, error) {
	for _, name := range l.env.unknown() {
		text := "is not a ThoughtGate variable and is ignored"
		if instead, ok := replaced[name]; ok {
			text = "is ignored: " + instead
		}
		l.warnings = append(l.warnings, Problem{Position{Source: name}, "", text})
	}
	l.cfg.Fingerprint = l.files.fingerprint()
	if len(l.problems) > 0 {
		return Config{Files: Files{Fingerprint: l.cfg.Fingerprint}}, sorted(l.warnings), NewError(l.problems)
	}
	l.cfg.Origins = l.origins
	return l.cfg, sorted(l.warnings), nil
}
