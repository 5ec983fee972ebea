package app

import (
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
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

// person returns the operator who is the person behind an agent: the owner of its token, or the one with its
// name.
func (s *servers) person(principal string) string {
	if owners := s.owners.Load(); owners != nil && (*owners)[principal] != "" {
		return (*owners)[principal]
	}
	return principal
}

// setOwners applies the owners of the agents' tokens.
func (s *servers) setOwners(cfg config.Identity) {
	owners := make(map[string]string)
	for _, t := range cfg.Tokens {
		owners[t.Name] = t.Owner
	}
	s.owners.Store(&owners)
}
