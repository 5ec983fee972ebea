package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Identity says how agents are recognised.
type Identity struct {
	Anonymous bool     // those who show nothing may come in
	URL       *url.URL // where agents reach the gate, if agents that need a token are to read it
	Tokens    []Token
	JWT       []JWT
	MTLS      MTLS
	Proxy     Proxy
}

// Recognises reports whether there is any way to be recognised.
func (i *Identity) Recognises() bool {
	return len(i.Tokens) > 0 || len(i.JWT) > 0 || i.MTLS.CAFile != "" || len(i.Proxy.From) > 0
}

// A Token is the hash of a secret, and who shows that.
type Token struct {
	Name   string
	Hash   string // sha256: and 64 hexadecimal digits
	Groups []string
	Owner  string // of an agent's: the person who may not approve its calls
	Role   string // of an operator's
}

// JWT says whose tokens agents may show.
type JWT struct {
	Issuer      string
	JWKSURI     string // empty means that the issuer says where its keys are
	Audiences   []string
	Algorithms  []string
	ClockSkew   time.Duration
	IDClaim     string
	GroupsClaim string
	Prefix      string
}

// MTLS says whose certificates name agents.
type MTLS struct {
	CAFile string
	Name   string // the field that names the agent
}

// Proxy says which proxy names agents.
type Proxy struct {
	From         []netip.Prefix
	Header       string
	GroupsHeader string
}

// Certificate is what a listener shows of itself.
type Certificate struct {
	CertFile string
	KeyFile  string
}

// OIDC says with which identity provider operators log in.
type OIDC struct {
	Issuer         string
	ClientID       string
	ClientSecret   Secret
	Name           string // of the provider, on the page where people log in
	Scopes         []string
	NameClaim      string
	GroupsClaim    string
	Recheck        time.Duration // how often the provider is asked about somebody again
	AllowedDomains []string
	AllowedGroups  []string
	Roles          Roles
}

// Roles say who has which role: names of people, or of groups after group:.
type Roles struct{ Viewer, Approver, Admin []string }

func (i *Identity) settings() group {
	return group{
		{"anonymous", boolean(&i.Anonymous)},
		{"url", optional(base(&i.URL))},
		{"tokens", list{func() setting {
			i.Tokens = append(i.Tokens, Token{})
			t := &i.Tokens[len(i.Tokens)-1]
			return append(t.settings(), entry{"owner", line(&t.Owner)})
		}}},
		{"jwt", list{func() setting {
			i.JWT = append(i.JWT, JWT{ClockSkew: time.Minute, IDClaim: "sub", GroupsClaim: "groups"})
			return i.JWT[len(i.JWT)-1].settings()
		}}},
		{"mtls", group{
			{"ca_file", required{text(&i.MTLS.CAFile)}},
			{"name", oneOf(&i.MTLS.Name, "cn", "dns", "uri", "email", "subject")},
		}},
		{"proxy", group{
			{"from", required{list{func() setting { return network(&i.Proxy.From) }}}},
			{"header", required{oneHeader(&i.Proxy.Header)}},
			{"groups_header", oneHeader(&i.Proxy.GroupsHeader)},
		}},
	}
}

func (t *Token) settings() group {
	return group{
		{"name", required{who(&t.Name)}},
		{"hash", required{read(&t.Hash, isText, "sha256: followed by 64 hexadecimal digits, as thoughtgate token new prints it", func(s string) (string, bool) {
			digest, ok := strings.CutPrefix(s, "sha256:")
			return strings.ToLower(s), ok && len(digest) == 64 && only(digest, digits+"abcdefABCDEF")
		}).like("^sha256:[0-9a-fA-F]{64}$")}},
		{"groups", list{func() setting { return each(&t.Groups, "the name of a group", isWord) }}},
	}
}

func (j *JWT) settings() group {
	return group{
		{"issuer", required{issuerURL(&j.Issuer)}},
		{"jwks_uri", optional(issuerURL(&j.JWKSURI))},
		{"audiences", required{list{func() setting { return each(&j.Audiences, "text", isWord) }}}},
		{"algorithms", list{func() setting {
			return each(&j.Algorithms, "a public-key signature algorithm, such as RS256, PS256, ES256 or EdDSA", isAlgorithm).among(algorithms()...)
		}}},
		{"clock_skew", duration(&j.ClockSkew, 0)},
		{"id_claim", claim(&j.IDClaim)},
		{"groups_claim", claim(&j.GroupsClaim)},
		{"prefix", line(&j.Prefix)},
	}
}

func (o *Operators) settings() group {
	return group{
		{"listen", address(&o.Listen)},
		{"token", bearer(&o.Token)},
		{"url", optional(base(&o.URL))},
		{"tls", o.TLS.settings()},
		{"session", duration(&o.Session, time.Minute)},
		{"max_connections", number(&o.MaxConnections, 1_000_000)},
		{"tokens", list{func() setting {
			o.Tokens = append(o.Tokens, Token{Role: "approver"})
			t := &o.Tokens[len(o.Tokens)-1]
			return append(t.settings(), entry{"role", oneOf(&t.Role, "viewer", "approver", "admin")})
		}}},
		{"oidc", o.OIDC.settings()},
	}
}

func (c *Certificate) settings() group {
	return group{{"cert_file", text(&c.CertFile)}, {"key_file", text(&c.KeyFile)}}
}

func (o *OIDC) settings() group {
	people := func(p *[]string) list {
		return list{func() setting { return each(p, "a name, or group:NAME", isWord) }}
	}
	return group{
		{"issuer", required{issuerURL(&o.Issuer)}},
		{"client_id", required{line(&o.ClientID)}},
		{"client_secret", read(&o.ClientSecret, isText, "text", func(s string) (Secret, bool) { return NewSecret(s), true })},
		{"name", line(&o.Name)},
		{"scopes", list{func() setting { return each(&o.Scopes, "the name of a scope", isWord) }}},
		{"name_claim", claim(&o.NameClaim)},
		{"groups_claim", claim(&o.GroupsClaim)},
		{"recheck", duration(&o.Recheck, time.Minute)},
		{"allowed_domains", list{func() setting { return each(&o.AllowedDomains, "an e-mail domain", isWord) }}},
		{"allowed_groups", list{func() setting { return each(&o.AllowedGroups, "the name of a group", isWord) }}},
		{"roles", group{
			{"viewer", people(&o.Roles.Viewer)},
			{"approver", people(&o.Roles.Approver)},
			{"admin", people(&o.Roles.Admin)},
		}},
	}
}

func isWord(s string) bool { return isLine(s) && strings.TrimSpace(s) != "" }

func who(p *string) leaf {
	return read(p, isText, "a name on one line", func(s string) (string, bool) { return s, isWord(s) })
}

func claim(p *string) leaf {
	return read(p, isText, "the name of a claim", func(s string) (string, bool) { return s, isWord(s) })
}

func isAlgorithm(s string) bool { return slices.Contains(algorithms(), s) }

func algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// issuerURL reads a URL whose text counts, which is why it is kept as it is. It
// must be https, except on this machine.
func issuerURL(p *string) leaf {
	return read(p, isText, "an https URL; http is for loopback addresses", func(s string) (string, bool) {
		u, err := url.Parse(s)
		return s, err == nil && hasHost(u) && u.User == nil && u.Fragment == "" &&
			(u.Scheme == "https" || u.Scheme == "http" && loopback(net.JoinHostPort(u.Hostname(), "0")))
	})
}

// base reads where something is reached: a URL without a path.
func base(p **url.URL) leaf {
	return read(p, isText, "a URL such as https://gate.example.com, without a path", func(s string) (*url.URL, bool) {
		u, err := url.Parse(s)
		return u, err == nil && hasHost(u) && (u.Scheme == "https" || u.Scheme == "http") && strings.TrimSuffix(s, "/") == u.Scheme+"://"+u.Host
	})
}

func network(p *[]netip.Prefix) leaf {
	return read(p, isText, "an address such as 10.0.0.7, or a network such as 10.0.0.0/24", func(s string) ([]netip.Prefix, bool) {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			return append(*p, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())), true
		}
		n, err := netip.ParsePrefix(s)
		if err != nil || n != n.Masked() {
			return nil, false
		}
		if n.Addr().Is4In6() && n.Bits() >= 96 { // the addresses of connections are compared as IPv4 addresses
			n = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
		}
		return append(*p, n), true
	})
}

func oneHeader(p *string) leaf {
	return read(p, isText, "the name of an HTTP header that the gate does not use itself", func(s string) (string, bool) {
		name := textproto.CanonicalMIMEHeaderKey(s)
		return name, headerName(s) && !strings.HasPrefix(name, "Mcp-") && name != "Authorization" && !strings.Contains(reserved, " "+name+" ")
	})
}

// checkIdentity checks how agents and operators are recognised.
func (l *loader) checkIdentity() {
	i := &l.cfg.Identity
	l.checkTokens("identity.tokens", i.Tokens)
	l.checkTokens("operators.tokens", l.cfg.Operators.Tokens)
	l.checkIssuers(i.JWT)
	if i.MTLS.CAFile != "" && l.cfg.ListenTLS.CertFile == "" {
		l.report(l.origin("identity.mtls"), "identity.mtls", "needs listen_tls: clients send certificates only over TLS")
	}
	if l.given("identity.mtls") && i.MTLS.CAFile == "" {
		l.report(l.origin("identity.mtls"), "identity.mtls.ca_file", "is required")
	}
	l.checkProxy(&i.Proxy)
	l.checkPair("listen_tls", l.cfg.ListenTLS)
	l.checkPair("operators.tls", l.cfg.Operators.TLS)
	l.checkOIDC()
	if token := l.cfg.Operators.Token.Reveal(); token != "" && len(token) < shortestToken {
		l.report(l.origin("operators.token"), "operators.token",
			fmt.Sprintf("has fewer than %d characters and could be guessed; create one with thoughtgate token new", shortestToken))
	}
}

// checkProxy checks by which proxy agents are named.
func (l *loader) checkProxy(p *Proxy) {
	if !l.given("identity.proxy") {
		return
	}
	l.need("identity.proxy", "header", p.Header)
	if len(p.From) == 0 && !l.faulty("identity.proxy.from") && !l.faulty("identity.proxy.from[0]") {
		l.report(l.origin("identity.proxy"), "identity.proxy.from", "is required: otherwise anyone could send the header")
	}
	for i, from := range p.From {
		if at := fmt.Sprintf("identity.proxy.from[%d]", i); from.Overlaps(loopback4) || from.Contains(netip.IPv6Loopback()) {
			l.warnings = append(l.warnings, Problem{
				l.origin(at), at, "includes a loopback address: every local process can send the header and claim any name",
			})
		}
	}
}

// loopback4 are the IPv4 addresses by which a machine reaches itself.
var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

func (l *loader) checkPair(path string, c Certificate) {
	if (c.CertFile == "") != (c.KeyFile == "") {
		l.report(l.origin(path), path, "needs both cert_file and key_file")
	}
}

// shortestToken is how long a secret must be not to be guessed.
const shortestToken = 20

func (l *loader) given(path string) bool {
	_, given := l.origins[path]
	return given
}

func (l *loader) checkTokens(path string, tokens []Token) {
	hashes := map[string]int{}
	for i, t := range tokens {
		at := fmt.Sprintf("%s[%d]", path, i)
		l.need(at, "name", t.Name)
		l.need(at, "hash", t.Hash)
		if first, twice := hashes[t.Hash]; twice && t.Hash != "" {
			l.report(l.origin(at+".hash"), at+".hash", fmt.Sprintf("is the same as that of %s[%d]", path, first))
		}
		hashes[t.Hash] = i
	}
}

func (l *loader) checkIssuers(all []JWT) {
	issuers, prefixes := map[string]bool{}, map[string]bool{}
	for i, j := range all {
		at := fmt.Sprintf("identity.jwt[%d]", i)
		l.need(at, "issuer", j.Issuer)
		if len(j.Audiences) == 0 && !l.faulty(at+".audiences") && !l.faulty(at+".audiences[0]") {
			l.report(l.origin(at), at+".audiences", "is required: without it the gate would accept tokens issued for other services")
		}
		if issuers[j.Issuer] && j.Issuer != "" {
			l.report(l.origin(at+".issuer"), at+".issuer", "is given twice")
		}
		if prefixes[j.Prefix] {
			l.report(l.origin(at), at+".prefix", "must differ between issuers: otherwise their names could be confused")
		}
		issuers[j.Issuer], prefixes[j.Prefix] = true, true
		if i := &l.cfg.Identity; j.Prefix == "" && (len(i.Tokens) > 0 || i.MTLS.CAFile != "" || len(i.Proxy.From) > 0) {
			l.warnings = append(l.warnings, Problem{
				l.origin(at), at + ".prefix", "is empty, so a JWT with the name of another configured agent is accepted as that agent",
			})
		}
	}
}

func (l *loader) checkOIDC() {
	o := &l.cfg.Operators.OIDC
	if !l.given("operators.oidc") {
		return
	}
	l.need("operators.oidc", "issuer", o.Issuer)
	l.need("operators.oidc", "client_id", o.ClientID)
	if l.cfg.Operators.URL == nil && !l.faulty("operators.url") {
		l.report(l.origin("operators.oidc"), "operators.url", "is required with operators.oidc: the identity provider redirects browsers back to it")
	}
	if len(o.AllowedDomains)+len(o.AllowedGroups)+len(o.Roles.Viewer)+len(o.Roles.Approver)+len(o.Roles.Admin) == 0 {
		l.report(l.origin("operators.oidc"), "operators.oidc", "admits everyone who has an account with the issuer; "+
			"set allowed_domains, allowed_groups or roles")
	}
}
