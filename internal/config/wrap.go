package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
)

// Several are the servers of a wrap of an endpoint.
type Several struct {
	Servers []Upstream // replace all upstreams and endpoints; nil means those of the file
}

// WrappedPath is the path of the endpoint with [Several.Servers].
const WrappedPath = "/mcp"

// The settings that a wrap ignores: its agent is connected by a pipe. Its servers may come from the
// command line.
var (
	unusedByWrap    = []string{"listen", "listen_tls", "identity"}
	unusedUpstreams = []string{"upstreams", "endpoints"}
)

// wrap discards the settings that a wrap does not use with their problems, and takes its servers from the
// command line if there are any. It keeps the names of the file's upstreams, which rules may use.
func (l *loader) wrap(s Sources) {
	l.unused = unusedByWrap
	unset := Default()
	l.cfg.Listen, l.cfg.ListenTLS, l.cfg.Identity = unset.Listen, unset.ListenTLS, unset.Identity
	if s.Several != nil {
		l.cfg.Listen = localuser.Inside
	}
	if s.Server != nil {
		l.replaceByWrapped([]Upstream{*s.Server})
	} else if s.Several.Servers != nil {
		l.replaceByWrapped(slices.Clone(s.Several.Servers))
		e := Endpoint{Path: WrappedPath}
		for _, u := range s.Several.Servers {
			e.Servers = append(e.Servers, EndpointServer{Upstream: u.Name})
		}
		l.cfg.Endpoints = []Endpoint{e}
	}
	maps.DeleteFunc(l.origins, func(path string, _ Position) bool { return l.isUnused(path) })
	ignored := func(p Problem) bool { return l.isUnused(p.Setting) }
	l.problems = slices.DeleteFunc(l.problems, ignored)
	l.warnings = slices.DeleteFunc(l.warnings, ignored)
}

// replaceByWrapped makes servers the only upstreams.
func (l *loader) replaceByWrapped(servers []Upstream) {
	for _, u := range l.cfg.Upstreams {
		if !slices.ContainsFunc(servers, func(s Upstream) bool { return s.Name == u.Name }) {
			l.cfg.OtherServers = append(l.cfg.OtherServers, u.Name)
		}
	}
	l.cfg.Upstreams, l.cfg.Endpoints = servers, nil
	l.unused = append(slices.Clone(l.unused), unusedUpstreams...)
}

// isUnused reports whether a setting has no effect, because the gate is a wrap.
func (l *loader) isUnused(path string) bool {
	return slices.ContainsFunc(l.unused, func(setting string) bool {
		rest, ok := strings.CutPrefix(path, setting)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// HasPath reports whether agents reach an upstream or an endpoint at a path.
func (c *Config) HasPath(path string) bool {
	return slices.ContainsFunc(c.Endpoints, func(e Endpoint) bool { return e.Path == path }) ||
		slices.ContainsFunc(c.Upstreams, func(u Upstream) bool { return slices.Contains(u.Paths, path) })
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
