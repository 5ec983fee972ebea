// Package identity recognises agents: by a token whose hash the gate
// has, by a JWT that an issuer signed, by the certificate of their connection, or
// by a header of a proxy that is trusted to have asked them. The text of a message
// never counts.
package identity

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// A Recogniser recognises agents. It is safe for concurrent use.
type Recogniser struct {
	cfg     Config
	issuers issuers
	known   cache // of JWTs, by their hashes

	certificates cache // by their hashes
}

// New returns a Recogniser.
func New(c Config) (*Recogniser, error) {
	if c.Now == nil || len(c.Issuers) > 0 && c.Client == nil {
		return nil, errors.New("identity: needs a clock, and a client for issuers")
	}
	if c.Certificate != "" && c.Authorities == nil {
		return nil, errors.New("identity: certificates need authorities")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	r := &Recogniser{cfg: c, issuers: make(issuers)}
	for _, i := range c.Issuers {
		if i.URL == "" || len(i.Audiences) == 0 {
			return nil, errors.New("identity: an issuer needs a URL and audiences")
		}
		if r.issuers[i.URL] != nil {
			return nil, errors.New("identity: an issuer is given twice")
		}
		made, err := newIssuer(i, &r.cfg)
		if err != nil {
			return nil, err
		}
		r.issuers[i.URL] = made
	}
	return r, nil
}

// Recognise returns the agent that makes a request, or an [*Error]. It logs with
// ctx. Recognise removes the proxy's header from requests that do not come from
// the proxy, so that no upstream believes it either.
//
// Credentials of the connection take precedence over those in the message:
// behind a trusted proxy, or with a certificate, an Authorization header is for
// the upstream.
func (i *Recogniser) Recognise(ctx context.Context, r *http.Request) (Agent, error) {
	for _, way := range []func(*http.Request) (Agent, *Error){i.cfg.Proxy.agent, i.byCertificate, i.byToken} {
		switch agent, err := way(r); {
		case err == nil:
			return agent, nil
		case err.given || err.Unavailable:
			i.cfg.Log.WarnContext(logging.Limited(ctx, err.Reason, admission.Address(r.RemoteAddr).Network()), "agent not authenticated", "address", r.RemoteAddr, "why", err.Reason, "cause", err.Cause)
			return Agent{}, err
		}
	}
	if i.cfg.Anonymous || !i.cfg.asks() {
		return Agent{Principal: policy.Principal{Anonymous: true}}, nil
	}
	return Agent{}, errNothing
}

func (i *Recogniser) byToken(r *http.Request) (Agent, *Error) {
	if len(i.cfg.Tokens) == 0 && len(i.cfg.Issuers) == 0 {
		return Agent{}, errNothing // an Authorization header is none of the gate's business
	}
	token, given := bearer.In(r)
	switch {
	case !given:
		return Agent{}, errNothing
	case token == "":
		return Agent{}, errNotKnown
	}
	hash := bearer.HashOf(token)
	if len(token) >= bearer.Shortest {
		for _, t := range i.cfg.Tokens {
			if hash.Equal(t.Hash) {
				return Agent{Principal: t.principal(), Spent: true}, nil
			}
		}
	}
	if len(i.issuers) == 0 {
		return Agent{}, errNotKnown
	}
	return i.byJWT(r.Context(), token, hash)
}

func (t Token) principal() policy.Principal {
	p := policy.Principal{ID: t.Name, Groups: t.Groups}
	if t.Owner != "" {
		p.Aliases = []string{t.Owner}
	}
	return p
}

// byJWT recognises a JWT, without looking closely at one that it has just seen.
func (i *Recogniser) byJWT(ctx context.Context, token string, hash bearer.Hash) (Agent, *Error) {
	now := i.cfg.Now()
	if agent, ok := i.known.get(hash, now); ok {
		return agent, nil
	}
	c, err := i.issuers.verify(ctx, token, i.cfg.Now())
	if err != nil {
		return Agent{}, err
	}
	agent := Agent{Principal: c.principal, Spent: true}
	i.known.put(hash, agent, c.until, now)
	return agent, nil
}
