// Package identity authenticates agents: by a token whose hash is configured, by a JWT of a trusted
// issuer, by a client certificate, by a header of a trusted proxy, or by the local user at a Unix
// socket. It uses nothing from the body
// of a message.
//
//	agent, err := authenticator.Authenticate(ctx, request, resource)
package identity

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/localuser"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// An Authenticator authenticates agents. It is safe for concurrent use.
type Authenticator struct {
	cfg     Config
	issuers issuers
	tokens  cache[verifiedToken] // by hash

	certificates cache[Agent] // the agents of verified certificates, by hash
}

// New returns an authenticator.
func New(c Config) (*Authenticator, error) {
	if c.Now == nil || len(c.Issuers) > 0 && c.Client == nil {
		return nil, errors.New("identity: a clock is missing, or a client for issuers")
	}
	if c.Certificate != "" && c.Authorities == nil {
		return nil, errors.New("identity: authorities for certificates are missing")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	r := &Authenticator{cfg: c, issuers: make(issuers)}
	for _, i := range c.Issuers {
		if i.URL == "" {
			return nil, errors.New("identity: an issuer needs a URL")
		}
		if r.issuers[i.URL] != nil {
			return nil, errors.New("identity: duplicate issuer")
		}
		r.issuers[i.URL] = newIssuer(i, &r.cfg)
	}
	return r, nil
}

// HasNamedAgents reports whether agents can authenticate themselves.
func (i *Authenticator) HasNamedAgents() bool { return i != nil && i.cfg.needsCredentials() }

// ReadsAuthorization reports whether the Authorization header is for the gate.
func (i *Authenticator) ReadsAuthorization() bool {
	return i != nil && (len(i.cfg.Tokens) > 0 || len(i.cfg.Issuers) > 0)
}

// IssuerURLs returns the URLs of the trusted issuers of JWTs.
func (i *Authenticator) IssuerURLs() []string {
	if i == nil {
		return nil
	}
	var all []string
	for _, issuer := range i.cfg.Issuers {
		all = append(all, issuer.URL)
	}
	return all
}

// Authenticate returns the agent that sent a request to a resource, or an [*Error]. It logs with ctx. It removes
// the proxy's headers from requests of others, so that upstreams do not trust them either.
//
// Credentials of the connection take precedence over those of the request: behind a trusted proxy,
// or with a certificate, an Authorization header is for the upstream.
func (i *Authenticator) Authenticate(ctx context.Context, r *http.Request, to Resource) (Agent, error) {
	byToken := func(r *http.Request) (Agent, *Error) { return i.byToken(r, to) }
	for _, way := range []func(*http.Request) (Agent, *Error){i.byLocalUser, i.cfg.Proxy.agent, i.byCertificate, byToken} {
		switch agent, err := way(r); {
		case err == nil:
			return agent, nil
		case err.given || err.Unavailable:
			i.cfg.Log.WarnContext(logging.Limited(ctx, err.Reason, admission.Address(r.RemoteAddr).Network()), "agent not authenticated", "address", r.RemoteAddr, "why", err.Reason, "cause", err.Cause)
			return Agent{}, err
		}
	}
	if i.cfg.Anonymous || !i.cfg.needsCredentials() {
		return Agent{Principal: policy.Principal{Anonymous: true}}, nil
	}
	return Agent{}, errNoCredentials
}

// byLocalUser returns the user of this machine that has opened the connection to a Unix socket.
// Nothing in the request counts.
func (i *Authenticator) byLocalUser(r *http.Request) (Agent, *Error) {
	//mutate:swap "!i.cfg.LocalUsers || " "" TestLocalUser an address that looks like a user names an agent
	if !i.cfg.LocalUsers || !localuser.IsPeer(r.RemoteAddr) {
		return Agent{}, errNoCredentials
	}
	return Agent{Principal: policy.Principal{ID: r.RemoteAddr}}, nil
}

func (i *Authenticator) byToken(r *http.Request, to Resource) (Agent, *Error) {
	if !i.ReadsAuthorization() {
		return Agent{}, errNoCredentials // an Authorization header is for the upstream
	}
	token, given := BearerToken(r)
	switch {
	case !given:
		return Agent{}, errNoCredentials
	case token == "":
		return Agent{}, errUnknown
	}
	hash := HashOf(token)
	//mutate:swap "len(token) >= MinTokenLength" `token != ""` TestStaticTokens a short token is accepted
	if len(token) >= MinTokenLength {
		for _, t := range i.cfg.Tokens {
			if hash.Equal(t.Hash) {
				return Agent{Principal: t.principal(), UsedToken: true}, nil
			}
		}
	}
	if len(i.issuers) == 0 {
		return Agent{}, errUnknown
	}
	return i.byJWT(r.Context(), token, hash, to)
}

func (t Token) principal() policy.Principal {
	p := policy.Principal{ID: t.Name, Groups: t.Groups}
	if t.Owner != "" {
		p.Aliases = []string{t.Owner}
	}
	return p
}

// byJWT authenticates a JWT for a resource, without verifying one again that is in the cache.
func (i *Authenticator) byJWT(ctx context.Context, token string, hash Hash, to Resource) (Agent, *Error) {
	now := i.cfg.Now()
	verified, known := i.tokens.get(hash, now)
	if !known {
		var err *Error
		if verified, err = i.issuers.verify(ctx, token, now); err != nil {
			return Agent{}, err
		}
	}
	if err := verified.check(to); err != nil {
		return Agent{}, err
	}
	if !known {
		i.tokens.put(hash, verified, verified.until, now)
	}
	return Agent{Principal: verified.principal, UsedToken: true}, nil
}
