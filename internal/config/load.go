package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Sources says where settings come from. Overrides take precedence over
// environment variables, which take precedence over the file.
type Sources struct {
	File      string     // name of the file; empty means the one in THOUGHTGATE_CONFIG, if any
	Environ   []string   // in the form of [os.Environ]
	Overrides []Override // the command line's
	Server    *Upstream  // the server of a wrap, in place of all upstreams; nil if it is no wrap
	Starter   *Starter   // what is read if there is no file; nil means nothing
	Now       time.Time  // when certificates must be valid; zero means at any time
}

// A Starter is a configuration that is part of the program.
type Starter struct {
	Name     string // what problems with it are said to be in
	Text     []byte
	Policies []Source
}

// An Override gives one setting a value that beats the file's.
type Override struct {
	Source  string   // where it comes from, such as --listen
	Setting string   // path of the setting, such as operators.listen
	Values  []string // one; for upstreams any number of URL or name=URL
}

// Load returns the configuration that s describes, and warnings about what is
// allowed but probably not meant. If anything is wrong with it the error is an
// [*Error] that names every problem, or says why the file cannot be read. The
// fingerprint of an erroneous configuration is returned as well.
func Load(s Sources) (Config, []Problem, error) {
	l := newLoader(s.Environ)
	l.now = s.Now
	file, err := l.read(s)
	if err != nil {
		return Config{}, nil, err
	}
	l.check()
	dir := filepath.Dir(file)
	l.checkAuthorities(dir)
	if file != "" {
		l.readPolicies(dir)
	}
	l.cfg.Watch = l.files.directories()
	return l.result()
}

// LoadStorage is [Load] for those who look after the store and nothing else. It
// asks neither for what only a gate needs nor whether that is right; only the
// settings of the store are as Load would have them.
func LoadStorage(s Sources) (Config, []Problem, error) {
	l := newLoader(s.Environ)
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

// read takes in the file, if there is one, and returns its name, and all that
// beats it.
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
		l.decode(file, src)
	case s.Starter != nil:
		l.decode(s.Starter.Name, s.Starter.Text)
		l.cfg.Cedar.Sources = s.Starter.Policies
	}
	l.addDefaultWorkflow()
	l.override(s.Overrides)
	if s.Server != nil {
		l.wrap(*s.Server)
	}
	return file, nil
}

// A loader is a configuration in the making.
type loader struct {
	cfg      Config
	env      environment
	origins  Origins
	files    *fileSet // everything that was read
	unread   bool     // there is a file, but nothing in it could be understood
	isWrap   bool     // one agent reaches one server through a pipe: nothing listens for agents
	now      time.Time
	problems []Problem
	warnings []Problem
}

func newLoader(environ []string) *loader {
	return &loader{cfg: Default(), env: newEnvironment(environ), origins: Origins{}, files: newFileSet()}
}

func (l *loader) report(at Position, setting, text string) {
	l.problems = append(l.problems, Problem{at, setting, text})
}

// faulty reports whether something is wrong with the setting at path itself.
func (l *loader) faulty(path string) bool {
	return slices.ContainsFunc(l.problems, func(p Problem) bool { return p.Setting == path })
}

// set stores text in the setting at path.
func (l *loader) set(at Position, path string, to leaf, text string) {
	l.origins[path] = at
	if !to.set(text) {
		l.report(at, path, "must be "+to.want)
	}
}

func (l *loader) origin(path string) Position { return l.origins.Of(path) }

// override stores what variables and flags say. Only the strongest for each
// setting is looked at.
func (l *loader) override(flags []Override) {
	strongest := map[string]Override{}
	for _, o := range slices.Concat(l.env.overrides(), flags) {
		strongest[o.Setting] = o
	}
	// Sorted, so that the list of upstreams is complete before a setting of
	// all of them is stored.
	for _, path := range slices.Sorted(maps.Keys(strongest)) {
		o := strongest[path]
		at := Position{Source: o.Source}
		switch rest, each := strings.CutPrefix(path, "upstreams[]."); {
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
			l.overrideLeaf(at, path, descend(l.cfg.settings(), path), o.Values)
		}
	}
}

func (l *loader) overrideLeaf(at Position, path string, to setting, values []string) {
	single, ok := to.(leaf)
	if !ok || len(values) != 1 {
		l.report(at, path, "cannot be overridden")
		return
	}
	l.set(at, path, single, values[0])
}

// descend returns the setting at path in g, or nil.
func descend(g group, path string) setting {
	key, rest, deeper := strings.Cut(path, ".")
	to := g.find(key)
	if inner, ok := to.(group); ok && deeper {
		return descend(inner, rest)
	}
	if deeper {
		return nil
	}
	return to
}

// replaceUpstreams makes values, each URL or name=URL, the whole list. The
// file's upstreams are not merged into it: their headers may be secrets that
// are meant for another server.
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
		if name, rest, ok := strings.Cut(value, "="); ok && isName(name) {
			u.Name, value = name, rest
			l.origins[path+".name"] = at
		}
		l.set(at, path+".url", endpoint(&u.URL), value)
		l.cfg.Upstreams = append(l.cfg.Upstreams, u)
	}
}

func (l *loader) replaceForced(at Position, values []string) {
	l.cfg.Tasks.ForceRequired = nil
	for _, value := range values {
		l.set(at, forceRequired, tool(&l.cfg.Tasks.ForceRequired), strings.TrimSpace(value))
	}
}

func (l *loader) overrideApprovalTimeout(at Position, values []string) {
	i := slices.IndexFunc(l.cfg.Workflows, func(w Workflow) bool { return w.Name == defaultWorkflow })
	if i < 0 {
		l.warnings = append(l.warnings, Problem{at, approvalTimeout, "is ignored: no configured workflow has this name"})
		return
	}
	l.overrideLeaf(at, approvalTimeout, descend(l.cfg.Workflows[i].settings(), "timeout"), values)
}

func (l *loader) result() (Config, []Problem, error) {
	for _, name := range l.env.strangers() {
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
