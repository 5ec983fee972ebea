package identity

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// An Agent is who makes a request.
type Agent struct {
	Principal policy.Principal
	// Spent says that the Authorization header of the request was for the gate,
	// and is no credential of the upstream's.
	Spent bool
}

// A Token is a secret by which an agent is recognised. Only its hash is kept.
type Token struct {
	Hash   bearer.Hash
	Name   string // becomes the id of the principal
	Groups []string
	Owner  string // the person whose agent it is, if that is known: they may not approve its calls
}

// A Proxy is trusted to say who an agent is.
type Proxy struct {
	From   []netip.Prefix // its addresses
	Header string         // with the id of the principal
	Groups string         // the header with its groups, separated by commas; empty if there is none
}

// A Field is the part of a certificate that names an agent.
type Field string

// The fields.
const (
	CommonName Field = "cn"
	DNSName    Field = "dns"
	URI        Field = "uri"
	Email      Field = "email"
	Subject    Field = "subject" // all of it, as in RFC 2253
)

// A Config says how agents are recognised.
type Config struct {
	Anonymous   bool // agents without credentials are accepted
	Tokens      []Token
	Issuers     []Issuer
	Certificate Field          // empty if certificates do not count
	Authorities *x509.CertPool // sign the certificates that count
	Proxy       *Proxy

	// URL is where agents reach the gate. If it is known, those that are not
	// recognised get a link to where tokens are issued.
	URL *url.URL

	Client *http.Client // for what issuers publish
	Now    func() time.Time
	Log    *slog.Logger
}

// asks reports whether there is any way to be recognised.
func (c *Config) asks() bool {
	return len(c.Tokens) > 0 || len(c.Issuers) > 0 || c.Certificate != "" || c.Proxy != nil
}

// An Issuer is somebody whose JWTs are believed.
type Issuer struct {
	URL        string // as in the claim iss
	KeysURL    string // where its keys are; found out from the issuer if empty
	Audiences  []string
	Algorithms []string      // those of [Algorithms] if empty
	Skew       time.Duration // how far clocks may be apart
	ID         string        // the claim that names the agent; sub if empty
	Groups     string        // the claim with its groups; groups if empty
	Prefix     string        // put before the name, so that it cannot be that of another issuer's
}
