package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Identity has the settings that authenticate agents.
type Identity struct {
	Anonymous bool     // allow unauthenticated agents
	URL       *url.URL // of the gate, for the metadata that tells agents how to get a token, and for its tokens; may be nil
	Tokens    []Token
	JWT       []JWT
	MTLS      MTLS
	Proxy     Proxy
}

// Recognises reports whether any way of authentication is configured.
func (i *Identity) Recognises() bool {
	return len(i.Tokens) > 0 || len(i.JWT) > 0 || i.MTLS.CAFile != "" || len(i.Proxy.From) > 0
}

// A Token is the hash of a bearer token, and its holder.
type Token struct {
	Name   string
	Hash   string // sha256: and 64 hexadecimal digits
	Groups []string
	Owner  string // of an agent: the person who may not approve its calls
	Role   string // of an operator
}

// JWT has the settings of a token issuer for agents.
type JWT struct {
	Issuer      string
	JWKSURI     string   // empty means that it is discovered from the issuer
	Audiences   []string // besides the URLs of the endpoints
	IDClaim     string
	GroupsClaim string
	Prefix      string
}

// MTLS has the settings of client certificates.
type MTLS struct {
	CAFile string
	Name   string // the field of the certificate that names the agent
}

// Proxy has the settings of a trusted proxy that names agents in a header.
type Proxy struct {
	From         []netip.Prefix
	Header       string
	GroupsHeader string
}

// Certificate names the files of a listener's certificate.
type Certificate struct {
	CertFile string
	KeyFile  string
}

// OIDC has the settings of the operators' identity provider.
type OIDC struct {
	Issuer         string
	ClientID       string
	ClientSecret   Secret
	Scopes         []string
	NameClaim      string
	GroupsClaim    string
	AllowedDomains []string
	Roles          Roles
}

// Roles has the members of each role: names, or group:NAME.
type Roles struct{ Viewer, Rejecter, Approver, Admin []string }

func (i *Identity) settings() Group {
	return Group{
		{"anonymous", Bool(&i.Anonymous)},
		{"url", Optional(base(&i.URL))},
		{"tokens", listOf(&i.Tokens, Token{}, func(t *Token) Group { return append(t.settings(), Entry{"owner", Line(&t.Owner)}) })},
		{"jwt", listOf(&i.JWT, JWT{IDClaim: "sub", GroupsClaim: "groups"}, (*JWT).settings)},
		{"mtls", Group{
			{"ca_file", Required(Text(&i.MTLS.CAFile))},
			{"name", OneOf(&i.MTLS.Name, "cn", "dns", "uri", "email", "subject")},
		}},
		{"proxy", Group{
			{"from", required{List(func() Setting { return network(&i.Proxy.From) }), ": otherwise anyone could send the header"}},
			{"header", Required(identityHeader(&i.Proxy.Header))},
			{"groups_header", identityHeader(&i.Proxy.GroupsHeader)},
		}},
	}
}

func (t *Token) settings() Group {
	return Group{
		{"name", Required(Read(&t.Name, "a name on one line", func(s string) (string, bool) { return s, IsWord(s) }))},
		{"hash", Required(Read(&t.Hash, "sha256: followed by 64 hexadecimal digits, as thoughtgate token new prints it", func(s string) (string, bool) {
			digest, ok := strings.CutPrefix(s, "sha256:")
			return strings.ToLower(s), ok && len(digest) == 64 && only(digest, digits+"abcdefABCDEF")
		}).like("^sha256:[0-9a-fA-F]{64}$"))},
		{"groups", texts(&t.Groups, "the name of a group", IsWord)},
	}
}

func (j *JWT) settings() Group {
	return Group{
		{"issuer", Required(issuerURL(&j.Issuer))},
		{"jwks_uri", Optional(issuerURL(&j.JWKSURI))},
		{"audiences", texts(&j.Audiences, "text", IsWord)},
		{"id_claim", claim(&j.IDClaim)},
		{"groups_claim", claim(&j.GroupsClaim)},
		{"prefix", Line(&j.Prefix)},
	}
}

func (o *Operators) settings() Group {
	return Group{
		{"listen", address(&o.Listen)},
		{"token", Bearer(&o.Token)},
		{"url", Optional(base(&o.URL))},
		{"tls", o.TLS.settings()},
		{"session", Duration(&o.Session, time.Minute)},
		{"os_users", texts(&o.OSUsers, "the name or the number of a user of this machine", IsWord)},
		{"tokens", listOf(&o.Tokens, Token{Role: "approver"}, func(t *Token) Group {
			return append(t.settings(), Entry{"role", OneOf(&t.Role, "viewer", "rejecter", "approver", "admin")})
		})},
		{"oidc", o.OIDC.settings()},
	}
}

func (c *Certificate) settings() Group {
	return Group{{"cert_file", Text(&c.CertFile)}, {"key_file", Text(&c.KeyFile)}}
}

func (o *OIDC) settings() Group {
	people := func(p *[]string) List { return texts(p, "a name, or group:NAME", IsWord) }
	return Group{
		{"issuer", Required(issuerURL(&o.Issuer))},
		{"client_id", Required(Line(&o.ClientID))},
		{"client_secret", Read(&o.ClientSecret, "text", func(s string) (Secret, bool) { return NewSecret(s), true })},
		{"scopes", texts(&o.Scopes, "the name of a scope", IsWord)},
		{"name_claim", claim(&o.NameClaim)},
		{"groups_claim", claim(&o.GroupsClaim)},
		{"allowed_domains", texts(&o.AllowedDomains, "an e-mail domain", IsWord)},
		{"roles", Group{
			{"viewer", people(&o.Roles.Viewer)},
			{"rejecter", people(&o.Roles.Rejecter)},
			{"approver", people(&o.Roles.Approver)},
			{"admin", people(&o.Roles.Admin)},
		}},
	}
}

// IsWord reports whether s is text on one line, and not only spaces.
func IsWord(s string) bool { return IsLine(s) && strings.TrimSpace(s) != "" }

// isScope reports whether OAuth allows s as the name of a scope.
func isScope(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

func claim(p *string) Leaf {
	return Read(p, "the name of a claim", func(s string) (string, bool) { return s, IsWord(s) })
}

// issuerURL parses the URL of an issuer, which is https except on this machine. The text
// is kept as it is, because issuers are compared as text.
func issuerURL(p *string) Leaf {
	return Read(p, "an https URL; http is for loopback addresses", func(s string) (string, bool) {
		u, err := url.Parse(s)
		return s, err == nil && HasHost(u) && u.User == nil && u.Fragment == "" &&
			(u.Scheme == "https" || u.Scheme == "http" && loopback(net.JoinHostPort(u.Hostname(), "0")))
	})
}

// base parses a URL without a path.
func base(p **url.URL) Leaf {
	return Read(p, "a URL such as https://gate.example.com, without a path", func(s string) (*url.URL, bool) {
		u, err := url.Parse(s)
		return u, err == nil && HasHost(u) && (u.Scheme == "https" || u.Scheme == "http") && strings.TrimSuffix(s, "/") == u.Scheme+"://"+u.Host
	})
}

func network(p *[]netip.Prefix) Leaf {
	return Read(p, "an address such as 10.0.0.7, or a network such as 10.0.0.0/24", func(s string) ([]netip.Prefix, bool) {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			return append(*p, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())), true
		}
		n, err := netip.ParsePrefix(s)
		if err != nil || n != n.Masked() {
			return nil, false
		}
		if n.Addr().Is4In6() && n.Bits() >= 96 { // the addresses of connections are IPv4 addresses then
			n = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
		}
		return append(*p, n), true
	})
}

// identityHeader parses the name of a header that a proxy sets.
func identityHeader(p *string) Leaf {
	return Read(p, wantHeader, func(s string) (string, bool) {
		name, free := freeHeader(s)
		return name, free && name != "Authorization"
	})
}

// checkIdentity checks the settings that authenticate agents and operators.
func (l *loader) checkIdentity() {
	i := &l.cfg.Identity
	l.checkTokens("identity.tokens", i.Tokens)
	l.checkTokens("operators.tokens", l.cfg.Operators.Tokens)
	l.checkIssuers(i.JWT)
	l.checkResources()
	if i.MTLS.CAFile != "" && l.cfg.ListenTLS.CertFile == "" {
		l.reject("identity.mtls", "needs listen_tls: clients send certificates only over TLS")
	}
	for i, from := range i.Proxy.From {
		if from.Overlaps(loopback4) || from.Contains(netip.IPv6Loopback()) {
			l.warn(fmt.Sprintf("identity.proxy.from[%d]", i), "includes a loopback address: every local process can send the header and claim any name")
		}
	}
	l.checkPair("listen_tls", l.cfg.ListenTLS)
	l.checkPair("operators.tls", l.cfg.Operators.TLS)
	l.checkOIDC()
	if token := l.cfg.Operators.Token.Reveal(); token != "" && len(token) < shortestToken {
		l.reject("operators.token", fmt.Sprintf("has fewer than %d characters and could be guessed; create one with thoughtgate token new", shortestToken))
	}
}

// loopback4 is the IPv4 loopback network.
var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

func (l *loader) checkPair(path string, c Certificate) {
	if (c.CertFile == "") != (c.KeyFile == "") {
		l.reject(path, "needs both cert_file and key_file")
	}
}

// shortestToken is the least number of characters of a secret that cannot be guessed.
const shortestToken = 20

func (l *loader) checkTokens(path string, tokens []Token) {
	hashes := map[string]int{}
	for i, t := range tokens {
		l.checkUnique(path, ".hash", hashes, i, t.Hash)
	}
}

func (l *loader) checkIssuers(all []JWT) {
	issuers, prefixes := map[string]bool{}, map[string]bool{}
	for i, j := range all {
		at := fmt.Sprintf("identity.jwt[%d]", i)
		if issuers[j.Issuer] && j.Issuer != "" {
			l.reject(at+".issuer", "is given twice")
		}
		if prefixes[j.Prefix] {
			l.reject(at+".prefix", "must differ between issuers: otherwise their names could be confused")
		}
		issuers[j.Issuer], prefixes[j.Prefix] = true, true
		if i := &l.cfg.Identity; j.Prefix == "" && (len(i.Tokens) > 0 || i.MTLS.CAFile != "" || len(i.Proxy.From) > 0) {
			l.warn(at+".prefix", "is empty, so a JWT with the name of another configured agent is accepted as that agent")
		}
	}
}

// checkResources checks the settings of endpoints as protected resources.
func (l *loader) checkResources() {
	i := &l.cfg.Identity
	for n, u := range l.cfg.Upstreams {
		if len(u.Scopes) > 0 && len(i.JWT) == 0 {
			l.reject(fmt.Sprintf("upstreams[%d].scopes", n), "needs identity.jwt: only JWTs have scopes")
		}
	}
	if i.URL != nil || l.faulty("identity.url") {
		return
	}
	for n, j := range i.JWT {
		at := fmt.Sprintf("identity.jwt[%d]", n)
		if len(j.Audiences) == 0 && !l.faulty(at+".audiences[0]") {
			l.report(l.origin(at), at+".audiences", "is required without identity.url: the gate would not know which tokens are issued for it")
		}
	}
}

func (l *loader) checkOIDC() {
	o := &l.cfg.Operators.OIDC
	if !l.given("operators.oidc") {
		return
	}
	if l.cfg.Operators.URL == nil && !l.faulty("operators.url") {
		l.report(l.origin("operators.oidc"), "operators.url", "is required with operators.oidc: the identity provider redirects browsers back to it")
	}
	if len(o.AllowedDomains)+len(o.Roles.Viewer)+len(o.Roles.Rejecter)+len(o.Roles.Approver)+len(o.Roles.Admin) == 0 {
		l.reject("operators.oidc", "admits everyone who has an account with the issuer; set allowed_domains or roles")
	}
}
