package config

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// RemoteServer returns the upstream at a URL. Headers are given as "Name: value"; their
// values may name environment variables as in a file, so that a secret need not be on
// a command line, which other users can read.
func RemoteServer(target string, headerLines, environ []string) (Upstream, error) {
	u := DefaultUpstream()
	if to := endpoint(&u.URL); !to.set(target) {
		return u, fmt.Errorf("the URL must be %s", to.want)
	}
	env, all := newEnvironment(environ), headers(&u.Headers)
	for _, line := range headerLines {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return u, errors.New("a header must be given as NAME: VALUE")
		}
		to, wrong := all.item(name)
		if wrong != "" {
			return u, fmt.Errorf("header %s: %s", name, wrong)
		}
		text, problems := env.expand(strings.TrimSpace(value))
		if len(problems) > 0 {
			return u, fmt.Errorf("header %s: %s", name, problems[0])
		}
		if single, ok := to.(leaf); ok && !single.set(text) {
			return u, fmt.Errorf("header %s: must be %s", name, single.want)
		}
	}
	return u, nil
}

// IsSafe reports whether nobody on the way can read what is sent to the upstream.
func (u *Upstream) IsSafe() bool {
	return u.URL == nil || u.URL.Scheme == "https" || loopback(net.JoinHostPort(u.URL.Hostname(), ""))
}
