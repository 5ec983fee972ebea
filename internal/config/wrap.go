package config

import (
	"maps"
	"slices"
	"strings"
)

// unusedByWrap are the settings that say how agents reach the gate over HTTP, and what
// is behind it. A wrap has one agent, at the other end of a pipe, and brings its own server.
var unusedByWrap = []string{"listen", "listen_tls", "identity", "upstreams"}

// wrap makes server the only upstream, and forgets what the file and the variables say
// of settings that a wrap does not use, with all that is wrong there. The names of the
// upstreams in the file are kept: its rules may be for them.
func (l *loader) wrap(server Upstream) {
	unset := Default()
	for _, u := range l.cfg.Upstreams {
		if u.Name != server.Name {
			l.cfg.OtherServers = append(l.cfg.OtherServers, u.Name)
		}
	}
	l.cfg.Listen, l.cfg.ListenTLS, l.cfg.Identity = unset.Listen, unset.ListenTLS, unset.Identity
	l.isWrap, l.cfg.Upstreams = true, []Upstream{server}
	unused := func(path string) bool {
		return slices.ContainsFunc(unusedByWrap, func(setting string) bool {
			rest, ok := strings.CutPrefix(path, setting)
			return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
		})
	}
	maps.DeleteFunc(l.origins, func(path string, _ Position) bool { return unused(path) })
	ignored := func(p Problem) bool { return unused(p.Setting) }
	l.problems = slices.DeleteFunc(l.problems, ignored)
	l.warnings = slices.DeleteFunc(l.warnings, ignored)
}
