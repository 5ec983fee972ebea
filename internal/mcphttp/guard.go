package mcphttp

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
)

// A Guard refuses requests that a web page made a browser send: those for a
// name that is not the gate's (DNS rebinding), and those from a page that is
// not known.
type Guard struct {
	Loopback bool     // the listener is on a loopback address, so Host must be one too
	Hosts    []string // more values of Host that are fine, with or without port
	Origins  []string // values of Origin that are fine besides local ones

	SameOrigin bool // an Origin that is the very host of the request is fine

	// Pages says that the listener has pages of its own, whose requests are fine.
	Pages bool
}

// Wrap returns next behind the guard.
func (g Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if problem := g.check(r); problem != nil {
			http.Error(w, problem.Error(), problem.Status(false))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g Guard) check(r *http.Request) *wire.Problem {
	if !g.hostAllowed(r.Host) {
		return &wire.Problem{Type: wire.HostNotAllowed}
	}
	if g.Pages && fromOwnPage(r) {
		return nil
	}
	for _, origin := range r.Header["Origin"] {
		if !g.originAllowed(origin) && (!g.SameOrigin || !sameHost(origin, r.Host)) {
			return &wire.Problem{Type: wire.OriginNotAllowed}
		}
	}
	return nil
}

// fromOwnPage reports whether the browser says that a page of the same listener
// made it send r. Pages that hide where they are have an Origin of null,
// so that this is the only sign.
func fromOwnPage(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Site") == "same-origin" }

func (g Guard) hostAllowed(host string) bool {
	name := hostname(host)
	if g.Loopback && isLoopback(name) {
		return true
	}
	if !g.Loopback && len(g.Hosts) == 0 {
		return true // the gate cannot know its own names
	}
	return slices.ContainsFunc(g.Hosts, func(allowed string) bool {
		return strings.EqualFold(allowed, host) || strings.EqualFold(allowed, name)
	})
}

func (g Guard) originAllowed(origin string) bool {
	if slices.ContainsFunc(g.Origins, func(allowed string) bool { return strings.EqualFold(allowed, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && g.Loopback && (u.Scheme == "http" || u.Scheme == "https") && isLoopback(u.Hostname())
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// single are headers that say who a client is. They have one line or none: the
// upstream might go by another one than the gate.
var single = [...]string{"Authorization", "Mcp-Session-Id"}

// ambiguous returns the problem of a request that the upstream could take for
// another one than the gate does, because of how its headers are given. Meant
// reports whether the upstream goes by a header for another reason than the gate.
func ambiguous(h http.Header, meant func(name string) bool) *wire.Problem {
	for _, name := range single {
		if len(h[name]) > 1 {
			return &wire.Problem{Type: wire.InvalidRequest, Detail: name + " is given more than once"}
		}
	}
	connection := h["Connection"]
	for name := range h {
		if connection != nil && endToEnd(name) && httpclient.NamedIn(connection, name) {
			return &wire.Problem{Type: wire.InvalidRequest, Detail: name + " cannot be for one connection only"}
		}
		if usual, ok := identity.UsualSpelling(name); ok && (h[usual] != nil || endToEnd(usual) || meant(usual)) {
			return &wire.Problem{Type: wire.InvalidRequest, Detail: "a header could be taken for " + usual}
		}
	}
	return nil
}

// endToEnd reports whether the gate goes by a header, so that the upstream must
// get it as well.
func endToEnd(name string) bool {
	switch name {
	case "Authorization", "Accept", "Content-Type", "Content-Encoding", "Last-Event-Id":
		return true
	default:
		return strings.HasPrefix(name, "Mcp-")
	}
}

// hostname returns host without its port and without the brackets of IPv6.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

func isLoopback(name string) bool {
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}
