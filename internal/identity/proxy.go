package identity

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// agent returns the agent in the proxy's headers, if the request comes from the proxy.
func (p *Proxy) agent(r *http.Request) (Agent, *Error) {
	if p == nil {
		return Agent{}, errNoCredentials
	}
	if !p.isSender(r) {
		p.strip(r.Header)
		return Agent{}, errNoCredentials
	}
	p.strip(r.Header, p.Header, p.Groups) // remove other spellings
	names := r.Header.Values(p.Header)
	switch {
	case len(names) == 0:
		p.strip(r.Header) // groups without a name
		return Agent{}, errNoCredentials
	case len(names) > 1 || names[0] == "":
		return Agent{}, errTwoProxyNames
	}
	agent := policy.Principal{ID: names[0]}
	if p.Groups != "" {
		for _, line := range r.Header.Values(p.Groups) {
			for group := range strings.SplitSeq(line, ",") {
				if group = strings.TrimSpace(group); group != "" {
					agent.Groups = append(agent.Groups, group)
				}
			}
		}
	}
	return Agent{Principal: agent}, nil
}

// isSender reports whether a request comes from the proxy.
func (p *Proxy) isSender(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address := from.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p.From, func(network netip.Prefix) bool { return network.Contains(address) })
}

// strip removes the proxy's headers in any spelling that a server could take for them, except those
// in keep.
func (p *Proxy) strip(h http.Header, keep ...string) {
	for name := range h {
		if slices.Contains(keep, name) {
			continue
		}
		if sameHeader(name, p.Header) || p.Groups != "" && sameHeader(name, p.Groups) {
			delete(h, name)
		}
	}
}

// sameHeader reports whether two names have the same canonical form.
func sameHeader(a, b string) bool {
	//mutate:swap "a, _ = CanonicalHeader(a)" `a = strings.ReplaceAll(a, "_", "-")` TestProxy another client names itself in another spelling of the header
	a, _ = CanonicalHeader(a)
	b, _ = CanonicalHeader(b)
	return strings.EqualFold(a, b)
}

// CanonicalHeader returns the name that many servers treat a header name as, and whether it
// differs: like CGI, they replace all characters other than letters and digits by underscores.
func CanonicalHeader(name string) (usual string, other bool) {
	if !strings.ContainsFunc(name, isOdd) {
		return name, false
	}
	return textproto.CanonicalMIMEHeaderKey(strings.Map(func(r rune) rune {
		if isOdd(r) {
			return '-'
		}
		return r
	}, name)), true
}

// isOdd reports whether r is not a letter, digit or hyphen.
func isOdd(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-':
		return false
	default:
		return true
	}
}
