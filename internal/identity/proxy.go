package identity

import (
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// agent returns the agent that the proxy names, if there is a proxy and the request
// comes from it.
func (p *Proxy) agent(r *http.Request) (Agent, *Error) {
	if p == nil {
		return Agent{}, errNothing
	}
	if !p.sent(r) {
		p.strip(r.Header)
		return Agent{}, errNothing
	}
	p.strip(r.Header, p.Header, p.Groups) // other spellings are not the proxy's
	names := r.Header.Values(p.Header)
	switch {
	case len(names) == 0:
		p.strip(r.Header) // groups of nobody
		return Agent{}, errNothing
	case len(names) > 1 || names[0] == "":
		return Agent{}, errTwoNames
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

// sent reports whether a request comes from the proxy.
func (p *Proxy) sent(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address := from.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(p.From, func(network netip.Prefix) bool { return network.Contains(address) })
}

// strip takes off what only the proxy may say, in any spelling that a server
// could take for it but those to keep.
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

// sameHeader compares names as servers do that read a header by its usual spelling.
func sameHeader(a, b string) bool {
	a, _ = UsualSpelling(a)
	b, _ = UsualSpelling(b)
	return strings.EqualFold(a, b)
}

// UsualSpelling returns the name that many servers take a header's name for, and
// whether that is another one: they put an underscore in place of everything that
// is neither a letter nor a digit, as CGI does.
func UsualSpelling(name string) (usual string, other bool) {
	if isUsual(name) {
		return name, false
	}
	return textproto.CanonicalMIMEHeaderKey(strings.Map(func(r rune) rune {
		if isOdd(r) {
			return '-'
		}
		return r
	}, name)), true
}

// isUsual reports whether name has only letters, digits and hyphens.
func isUsual(name string) bool {
	for i := range len(name) {
		if isOdd(rune(name[i])) { // every byte of another rune is odd, too
			return false
		}
	}
	return true
}

// isOdd reports whether r is neither a letter nor a digit nor a hyphen.
func isOdd(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-':
		return false
	default:
		return true
	}
}
