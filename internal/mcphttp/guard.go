package mcphttp

import (
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/localhost"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
)

// A Guard refuses requests that a foreign web page caused a browser to send: requests with a
// foreign Host (DNS rebinding) or an unknown Origin.
type Guard struct {
	Loopback bool     // the listener is on a loopback address, so Host must be one too
	Hosts    []string // more allowed values of Host, with or without port
	Origins  []string // allowed values of Origin besides local ones

	SameOrigin bool // allow an Origin that equals the request's Host

	// Pages is true if the listener serves pages of its own, and so accepts their requests.
	Pages bool
}

// Wrap returns next protected by the guard.
func (g Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if problem := g.check(r); problem != nil {
			http.Error(w, problem.Error(), problem.Status(false))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g Guard) check(r *http.Request) *mcp.Problem {
	//mutate:false Test(Conversations|Guard).* any Host is served on loopback
	if !g.hostAllowed(r.Host) {
		return &mcp.Problem{Type: mcp.HostNotAllowed}
	}
	if g.Pages && fromOwnPage(r) {
		return nil
	}
	for _, origin := range r.Header["Origin"] {
		//mutate:false Test(Conversations|Guard).* any Origin is served
		if !g.originAllowed(origin) && (!g.SameOrigin || !sameHost(origin, r.Host)) {
			return &mcp.Problem{Type: mcp.OriginNotAllowed}
		}
	}
	return nil
}

// fromOwnPage reports whether the browser marks r as coming from a page of the same listener. A
// page with a no-referrer policy sends "Origin: null", so this header is the only sign.
func fromOwnPage(r *http.Request) bool { return r.Header.Get("Sec-Fetch-Site") == "same-origin" }

func (g Guard) hostAllowed(host string) bool {
	name := hostname(host)
	if g.Loopback && localhost.Is(strings.ToLower(name)) {
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
	return err == nil && g.Loopback && (u.Scheme == "http" || u.Scheme == "https") && localhost.Is(strings.ToLower(u.Hostname()))
}

func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// singleHeaders identify a client. They must not be repeated, because the upstream could use
// another line than the gate.
var singleHeaders = [...]string{"Authorization", "Mcp-Session-Id"}

// ambiguous returns a problem if the upstream could read the headers differently from the gate.
// meant reports whether only the upstream uses a header. A header named by Connection is
// refused: the gate would act on it, and the upstream would never see it.
func ambiguous(h http.Header, usedByUpstream func(name string) bool) *mcp.Problem {
	for _, name := range singleHeaders {
		if len(h[name]) > 1 {
			return &mcp.Problem{Type: mcp.InvalidRequest, Detail: name + " is given more than once"}
		}
	}
	connection := h["Connection"]
	for name := range h {
		//mutate:swap "!httpclient.NeverForwarded" "endToEnd" TestAmbiguousHeaders Connection removes a header that the gate has used
		if connection != nil && !httpclient.NeverForwarded(name) && namedIn(connection, name) {
			return &mcp.Problem{Type: mcp.InvalidRequest, Detail: name + " cannot be for one connection only"}
		}
		usual, other := identity.CanonicalHeader(name)
		switch {
		case !other:
		case httpclient.NeverForwarded(usual):
			//mutate:drop TestUpstreamHeaders hop-by-hop headers in another spelling are forwarded
			delete(h, name) // as in its usual spelling
		case h[usual] != nil || endToEnd(usual) || usedByUpstream(usual):
			//mutate:swap `&mcp.Problem{Type: mcp.InvalidRequest, Detail: "a header could be taken for " + usual}` "nil" TestAmbiguousHeaders a header in another spelling passes
			return &mcp.Problem{Type: mcp.InvalidRequest, Detail: "a header could be taken for " + usual}
		}
	}
	return nil
}

// namedIn reports whether the Connection header lists the header name, which then is for one
// connection only.
func namedIn(lines []string, name string) bool {
	for _, line := range lines {
		for token := range strings.SplitSeq(line, ",") {
			if textproto.CanonicalMIMEHeaderKey(textproto.TrimString(token)) == name {
				return true
			}
		}
	}
	return false
}

// endToEnd reports whether the gate reads the header, so that the upstream must receive it too.
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
