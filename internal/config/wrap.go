package config

import (
	"maps"
	"slices"
	"strings"
)

// unusedByWrap are settings that a wrap ignores: its agent is connected by a pipe, and its
// server comes from the command line.
var unusedByWrap = []string{"listen", "listen_tls", "identity", "upstreams", "endpoints"}

// wrap makes server the only upstream, and discards the settings that a wrap does not use
// with their problems. It keeps the names of the file's upstreams, which rules may use.
func (l *loader) wrap(server Upstream) {
	unset := Default()
	for _, u := range l.cfg.Upstreams {
		if u.Name != server.Name {
			l.cfg.OtherServers = append(l.cfg.OtherServers, u.Name)
		}
	}
	l.cfg.Listen, l.cfg.ListenTLS, l.cfg.Identity = unset.Listen, unset.ListenTLS, unset.Identity
	l.isWrap, l.cfg.Upstreams, l.cfg.Endpoints = true, []Upstream{server}, nil
	maps.DeleteFunc(l.origins, func(path string, _ Position) bool { return isUnusedByWrap(path) })
	ignored := func(p Problem) bool { return isUnusedByWrap(p.Setting) }
	l.problems = slices.DeleteFunc(l.problems, ignored)
	l.warnings = slices.DeleteFunc(l.warnings, ignored)
}

// isUnusedByWrap reports whether a wrap does not use a setting.
func isUnusedByWrap(path string) bool {
	return slices.ContainsFunc(unusedByWrap, func(setting string) bool {
		rest, ok := strings.CutPrefix(path, setting)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// WrappedEnviron returns the environment of the server behind a wrap: the gate's environment
// without THOUGHTGATE_ variables and those that the file refers to, which may be secrets.
func (c *Config) WrappedEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		//mutate:swap " || slices.Contains(c.OwnVariables, name)" "" TestServerGetsNoSecretsOfTheGate a wrapped server gets the secrets of the gate
		return strings.HasPrefix(strings.ToUpper(name), "THOUGHTGATE_") || slices.Contains(c.OwnVariables, name)
	})
}
