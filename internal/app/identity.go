package app

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// askTimeout is how long an identity provider may take to answer.
const askTimeout = 10 * time.Second

// askClient returns the client with which identity providers are asked. What
// they say is taken from where it was looked for, and from nowhere else.
func askClient() *http.Client {
	return &http.Client{
		Timeout:       askTimeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// configured reports whether cfg has a way to sign in.
func configured(cfg config.Operators) bool {
	return cfg.Token.Reveal() != "" || len(cfg.Tokens) > 0 || cfg.OIDC.Issuer != ""
}

// newAuth returns what knows operators. When the gate starts, a token is made if there is
// no other way in. Later none is made: then nobody can sign in, so that the last token can
// be revoked while the gate runs.
func (o *operators) newAuth(cfg config.Operators, login operator.Page) (*operator.Auth, error) {
	c := operator.Config{Records: o.approvals.keep.GateStore, Ring: o.approvals.keep.ring, URL: cfg.URL, Session: cfg.Session, Page: login, Now: time.Now, Log: o.log}
	only := operator.Token{Name: config.SingleOperator, Role: operator.Admin}
	token := cfg.Token.Reveal()
	if !configured(cfg) {
		if o.madeToken == "" && o.auth.Load() == nil {
			o.madeToken = operator.NewToken()
		}
		token, only.Link, only.Temporary = o.madeToken, true, o.local == nil // that of a desk stays
	}
	if token != "" {
		only.Hash = operator.HashOf(token)
		c.Tokens = append(c.Tokens, only)
	}
	for _, t := range cfg.Tokens {
		hash, err := bearer.ParseHash(t.Hash)
		if err != nil {
			return nil, err
		}
		c.Tokens = append(c.Tokens, operator.Token{Hash: hash, Name: t.Name, Groups: t.Groups, Role: operator.Role(t.Role)})
	}
	if cfg.OIDC.Issuer != "" {
		c.OIDC = o.provider(cfg.OIDC)
	}
	return operator.New(c)
}

// errNoToken reports a changed configuration with which nobody can sign in.
var errNoToken = errors.New("operators: no token and no identity provider configured; a token is generated only at startup")

func (o *operators) provider(cfg config.OIDC) *operator.OIDC {
	p := &operator.OIDC{
		Issuer: cfg.Issuer, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret.Reveal(), Name: cfg.Name, Scopes: cfg.Scopes,
		NameClaim: cfg.NameClaim, GroupsClaim: cfg.GroupsClaim, Recheck: cfg.Recheck, Domains: cfg.AllowedDomains, Groups: cfg.AllowedGroups,
		Roles:   map[operator.Role][]string{},
		Client:  askClient(),
		Matters: o.approvals.workflows.haveGroup,
	}
	for role, who := range map[operator.Role][]string{
		operator.Viewer: cfg.Roles.Viewer, operator.Approver: cfg.Roles.Approver, operator.Admin: cfg.Roles.Admin,
	} {
		if len(who) > 0 {
			p.Roles[role] = who
		}
	}
	return p
}

// newRecogniser returns what knows agents. The authorities sign the certificates of
// agents; they are nil if certificates do not count.
func newRecogniser(cfg config.Identity, authorities *x509.CertPool, log *slog.Logger) (*identity.Recogniser, error) {
	c := identity.Config{Anonymous: cfg.Anonymous, URL: cfg.URL, Client: askClient(), Now: time.Now, Log: log}
	for _, t := range cfg.Tokens {
		hash, err := bearer.ParseHash(t.Hash)
		if err != nil {
			return nil, err
		}
		c.Tokens = append(c.Tokens, identity.Token{Hash: hash, Name: t.Name, Groups: t.Groups, Owner: t.Owner})
	}
	for _, j := range cfg.JWT {
		c.Issuers = append(c.Issuers, identity.Issuer{
			URL: j.Issuer, KeysURL: j.JWKSURI, Audiences: j.Audiences, Algorithms: j.Algorithms, Skew: j.ClockSkew,
			ID: j.IDClaim, Groups: j.GroupsClaim, Prefix: j.Prefix,
		})
	}
	if authorities != nil {
		c.Certificate, c.Authorities = identity.Field(cfg.MTLS.Name), authorities
	}
	if len(cfg.Proxy.From) > 0 {
		c.Proxy = &identity.Proxy{From: cfg.Proxy.From, Header: cfg.Proxy.Header, Groups: cfg.Proxy.GroupsHeader}
	}
	return identity.New(c)
}
