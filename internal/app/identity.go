package app

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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

// newAuth returns what knows operators. A token is made if there is no other way
// in.
func (a *App) newAuth(cfg config.Operators, login operator.Page) (*operator.Auth, error) {
	c := operator.Config{Records: a.keep.GateStore, Ring: a.keep.ring, URL: cfg.URL, Session: cfg.Session, Page: login, Now: time.Now, Log: a.log}
	only := operator.Token{Name: config.SingleOperator, Role: operator.Admin}
	token := cfg.Token.Reveal()
	if token == "" && len(cfg.Tokens) == 0 && cfg.OIDC.Issuer == "" {
		if a.madeToken == "" && a.auth.Load() != nil {
			return nil, errNoToken
		}
		if a.madeToken == "" {
			a.madeToken = operator.NewToken()
		}
		token, only.Link = a.madeToken, true
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
		c.OIDC = a.provider(cfg.OIDC)
	}
	return operator.New(c)
}

// errNoToken reports a changed configuration with which nobody could sign in.
var errNoToken = errors.New("operators: no token and no identity provider configured; a token is generated only at startup")

func (a *App) provider(cfg config.OIDC) *operator.OIDC {
	o := &operator.OIDC{
		Issuer: cfg.Issuer, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret.Reveal(), Name: cfg.Name, Scopes: cfg.Scopes,
		NameClaim: cfg.NameClaim, GroupsClaim: cfg.GroupsClaim, Recheck: cfg.Recheck, Domains: cfg.AllowedDomains, Groups: cfg.AllowedGroups,
		Roles:  map[operator.Role][]string{},
		Client: askClient(),
		Matters: func(group string) bool {
			return slices.ContainsFunc(*a.workflows.Load(), func(w config.Workflow) bool { return slices.Contains(w.Approvers, "group:"+group) })
		},
	}
	for role, who := range map[operator.Role][]string{
		operator.Viewer: cfg.Roles.Viewer, operator.Approver: cfg.Roles.Approver, operator.Admin: cfg.Roles.Admin,
	} {
		if len(who) > 0 {
			o.Roles[role] = who
		}
	}
	return o
}

// newRecogniser returns what knows agents.
func newRecogniser(cfg config.Identity, log *slog.Logger) (*identity.Recogniser, error) {
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
	if cfg.MTLS.CAFile != "" {
		c.Certificate = identity.Field(cfg.MTLS.Name)
	}
	if len(cfg.Proxy.From) > 0 {
		c.Proxy = &identity.Proxy{From: cfg.Proxy.From, Header: cfg.Proxy.Header, Groups: cfg.Proxy.GroupsHeader}
	}
	return identity.New(c)
}

// serverTLS returns how a listener shows who it is, and asks agents who they
// are; or nil if it does not.
func serverTLS(cfg config.Certificate, clients string) (*tls.Config, error) {
	if cfg.CertFile == "" {
		return nil, nil //nolint:nilnil // no TLS is no configuration of it
	}
	cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	if clients == "" {
		return c, nil
	}
	pem, err := os.ReadFile(clients)
	if err != nil {
		return nil, fmt.Errorf("identity.mtls.ca_file: %w", err)
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("identity.mtls.ca_file: no certificate in it")
	}
	// One without a certificate may be known by something else, and is told
	// properly if it is not.
	c.ClientAuth = tls.VerifyClientCertIfGiven
	return c, nil
}

// MadeToken returns the token that was made because none was configured, or
// nothing. It is for the one who starts the gate, and is kept nowhere.
func (a *App) MadeToken() string { return a.madeToken }

// tokenFile is the name of the file with the token that was made.
const tokenFile = "operator-token"

// TokenFile returns the name of the file to which [App.KeepToken] writes.
func (a *App) TokenFile() string {
	if a.local != nil {
		return a.local.TokenFile()
	}
	return filepath.Join(cmp.Or(a.cfg.StateDir, os.TempDir()), tokenFile)
}

// KeepToken writes the token that was made to a file that only its owner can
// read, and logs where: what goes to a log is collected, and read by others.
func (a *App) KeepToken() error {
	if a.madeToken == "" {
		return nil
	}
	if a.local != nil {
		a.log.Info("inbox of all your gates", "url", a.operatorsURL(), "token_file", a.local.TokenFile())
		return nil
	}
	dir := filepath.Dir(a.TokenFile())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	file, err := os.CreateTemp(dir, tokenFile+".*") // that only its owner can read
	if err != nil {
		return fmt.Errorf("operator token: %w", err)
	}
	name := a.TokenFile()
	_, err = file.WriteString(a.madeToken + "\n")
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("operator token: %w", errors.Join(err, os.Remove(file.Name())))
	}
	a.log.Info("operator token generated because none is configured; it is valid until the gate stops", "file", name, "login", a.operatorsURL()+"/login")
	return nil
}

// LoginLink returns the link with which the one who starts the gate logs in, or
// nothing if no token was made.
func (a *App) LoginLink() string {
	if a.madeToken == "" {
		return ""
	}
	return a.operatorsURL() + "/login?token=" + a.madeToken
}

// operatorsURL returns where browsers reach the operators' listener.
func (a *App) operatorsURL() string {
	switch cfg := a.cfg.Operators; {
	case cfg.URL != nil:
		return cfg.URL.Scheme + "://" + cfg.URL.Host
	case cfg.TLS.CertFile != "":
		return "https://" + a.OperatorAddr()
	default:
		return "http://" + a.OperatorAddr()
	}
}
