package app

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// connectionsPage is the path of the page on which people connect servers.
const connectionsPage = "/connections"

// newConnections returns the connections to the upstreams that want OAuth.
func (s *servers) newConnections() (*connection.Connections, error) {
	cfg := connection.Config{Person: s.person, Now: time.Now, Log: s.base.log}
	for _, u := range s.base.cfg.Upstreams {
		if u.OAuth.Grant == "" {
			continue
		}
		roots, err := u.TLS.Client()
		if err != nil {
			return nil, err
		}
		cfg.Servers = append(cfg.Servers, connection.Server{Name: u.Name, Mode: connection.Mode(u.OAuth.Grant), Client: oauth.Client{
			Resource: u.URL.String(), Name: "ThoughtGate", ID: u.OAuth.ClientID, Secret: u.OAuth.ClientSecret.Reveal(), Issuer: u.OAuth.Issuer,
			Scopes: u.OAuth.Scopes, HTTP: oauth.HTTPClient(roots, u.URL.String(), u.OAuth.Issuer), Now: time.Now,
		}})
	}
	return connection.New(cfg), nil
}

// RotateKey replaces the root key in a store. The old key opens texts for the given time; tokens for servers are
// sealed with the new one at once.
func RotateKey(ctx context.Context, s gatestore.Records, openFor time.Duration) error {
	if err := keyring.New(s, time.Now).Rotate(ctx, openFor); err != nil {
		return err
	}
	return connection.Reseal(ctx, s, keyring.New(s, time.Now))
}

// people tells which operators are the people behind agents.
type people struct {
	owners    map[string]string // of the agents' tokens, by the agent's name
	addresses bool              // agents may have e-mail addresses as names
}

// person returns the operator who is the person behind an agent: the owner of its token, or the one with its
// name. Names must be the same: other principals may have names that differ only in case. But operators always have
// their e-mail addresses in lower case.
func (s *servers) person(principal string) string {
	p := s.people.Load()
	switch {
	case p == nil:
		return principal
	case p.owners[principal] != "":
		return p.owners[principal]
	case p.addresses && strings.Contains(principal, "@") && isASCII(principal):
		return strings.ToLower(principal)
	default:
		return principal
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

// setPeople applies the settings that name the people behind agents.
func (s *servers) setPeople(cfg config.Identity) {
	p := &people{
		owners:    make(map[string]string),
		addresses: cfg.MTLS.Name == string(identity.Email) || slices.ContainsFunc(cfg.JWT, func(i config.JWT) bool { return i.IDClaim == "email" }),
	}
	for _, t := range cfg.Tokens {
		p.owners[t.Name] = t.Owner
	}
	s.people.Store(p)
}
