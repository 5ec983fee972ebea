package config

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// RemoteServer returns the upstream at a URL. Header lines are "Name: value"; a value may
// refer to environment variables as in a file, because other users can read secrets on a
// command line.
func RemoteServer(target string, headerLines, environ []string) (Upstream, error) {
	u := DefaultUpstream()
	if to := URL(&u.URL); !to.set(target) {
		return u, fmt.Errorf("the URL must be %s", to.want)
	}
	env, all := newEnvironment(environ), headers(&u.Headers)
	for _, line := range headerLines {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return u, errors.New("a header must be given as NAME: VALUE")
		}
		to, problem := all(name)
		if problem != "" {
			return u, fmt.Errorf("header %s: %s", name, problem)
		}
		text, problems := env.expand("header", strings.TrimSpace(value))
		if len(problems) > 0 {
			return u, fmt.Errorf("header %s: %s", name, problems[0])
		}
		if single, ok := to.(Leaf); ok && !single.set(text) {
			return u, fmt.Errorf("header %s: must be %s", name, single.want)
		}
	}
	return u, nil
}

// IsSafe reports whether requests to the upstream are encrypted or stay on this machine.
func (u *Upstream) IsSafe() bool {
	//mutate:swap `== "https"` `!= ""` cmd/thoughtgate.TestRemoteFlags secrets are sent unencrypted
	return u.URL == nil || u.URL.Scheme == "https" || loopback(net.JoinHostPort(u.URL.Hostname(), ""))
}

// OldTransport returns a hint if the URL is probably one of the transport before Streamable HTTP.
func (u *Upstream) OldTransport() string {
	if u.URL == nil || !strings.HasSuffix(strings.TrimSuffix(u.URL.Path, "/"), "/sse") {
		return ""
	}
	return "ends with /sse, like URLs of the old transport HTTP+SSE, which the gate does not speak: use the URL for Streamable HTTP, which often ends with /mcp"
}
