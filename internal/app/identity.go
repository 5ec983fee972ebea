package app

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

// providerTimeout bounds each request to an identity provider.
const providerTimeout = 10 * time.Second

// providerClient returns the HTTP client for identity providers. It follows no redirects,
// so that keys and tokens come only from the configured address.
func providerClient() *http.Client {
	return &http.Client{
		Timeout:       providerTimeout,
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// signInConfigured reports whether cfg has a way to sign in.
func signInConfigured(cfg config.Operators) bool {
	return cfg.Token.Reveal() != "" || len(cfg.Tokens) > 0 || cfg.OIDC.Issuer != ""
}

// newAuth returns the authentication of operators. If no way to sign in is configured, it
// generates a token, but only when the gate starts: removing the last token from the
// configuration of a running gate must not open another way in.
func (o *operators) newAuth(cfg config.Operators, login operator.Page) (*operator.Auth, error) {
	c := operator.Config{Records: o.approvals.store.Store, Ring: o.approvals.store.ring, URL: cfg.URL, Session: cfg.Session, Page: login, Now: time.Now, Log: o.base.log}
	only := operator.Token{Name: config.SingleOperator, Role: operator.Admin}
	token := cfg.Token.Reveal()
	if !signInConfigured(cfg) {
		if o.generatedToken == "" && o.auth.Load() == nil && o.desk == nil {
			o.generatedToken = operator.NewToken()
		}
		token, only.Link, only.Temporary = o.generatedToken, true, o.desk == nil // the token of a desk is permanent
	}
	if token != "" {
		only.Hash = operator.HashOf(token)
		c.Tokens = append(c.Tokens, only)
	}
	if o.desk != nil {
		//mutate:swap "operator.Rejecter" "operator.Admin" TestDeskTokenOnlyRejects the token that programs find approves
		c.Tokens = append(c.Tokens, operator.Token{Hash: operator.HashOf(o.desk.Token()), Name: programs, Role: operator.Rejecter})
	}
	for _, t := range cfg.Tokens {
		hash, err := identity.ParseHash(t.Hash)
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

// programs is the name of the operator with the token of a desk.
const programs = "program"

// errNoToken reports a changed configuration without a way to sign in.
var errNoToken = errors.New("operators: no token and no identity provider configured; a token is generated only at startup")

func (o *operators) provider(cfg config.OIDC) *operator.OIDC {
	p := &operator.OIDC{
		Issuer: cfg.Issuer, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret.Reveal(), Scopes: cfg.Scopes,
		NameClaim: cfg.NameClaim, GroupsClaim: cfg.GroupsClaim, Domains: cfg.AllowedDomains,
		Roles:      map[operator.Role][]string{},
		Client:     providerClient(),
		IsRelevant: o.approvals.workflows.usesGroup,
	}
	for role, members := range map[operator.Role][]string{
		operator.Viewer: cfg.Roles.Viewer, operator.Rejecter: cfg.Roles.Rejecter, operator.Approver: cfg.Roles.Approver, operator.Admin: cfg.Roles.Admin,
	} {
		if len(members) > 0 {
			p.Roles[role] = members
		}
	}
	return p
}

// clockSkew is how much the clock of an issuer may differ.
const clockSkew = time.Minute

// newAuthenticator returns the authenticator of agents. The authorities sign the certificates of
// agents, and are nil if certificates are not used.
func newAuthenticator(gate config.Config, authorities *x509.CertPool, log *slog.Logger) (*identity.Authenticator, error) {
	cfg := gate.Identity
	c := identity.Config{Anonymous: cfg.Anonymous, Client: providerClient(), Now: time.Now, Log: log}
	for _, t := range cfg.Tokens {
		hash, err := identity.ParseHash(t.Hash)
		if err != nil {
			return nil, err
		}
		c.Tokens = append(c.Tokens, identity.Token{Hash: hash, Name: t.Name, Groups: t.Groups, Owner: t.Owner})
	}
	for _, j := range cfg.JWT {
		c.Issuers = append(c.Issuers, identity.Issuer{
			URL: j.Issuer, KeysURL: j.JWKSURI, Audiences: j.Audiences, Skew: clockSkew,
			ID: j.IDClaim, Groups: j.GroupsClaim, Prefix: j.Prefix,
		})
	}
	if authorities != nil {
		c.Certificate, c.Authorities = identity.Field(cfg.MTLS.Name), authorities
	}
	if len(cfg.Proxy.From) > 0 {
		c.Proxy = &identity.Proxy{From: cfg.Proxy.From, Header: cfg.Proxy.Header, Groups: cfg.Proxy.GroupsHeader}
	}
	_, c.LocalUsers = localuser.SocketPath(gate.Listen)
	return identity.New(c)
}
