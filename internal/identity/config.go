package identity

import (
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// An Agent is the sender of a request.
type Agent struct {
	Principal policy.Principal
	// UsedToken says that the Authorization header authenticated the agent to the gate, so
	// it is not a credential for the upstream.
	UsedToken bool
}

// A Token is a secret that authenticates an agent. Only its hash is kept.
type Token struct {
	Hash   Hash
	Name   string // the id of the principal
	Groups []string
	Owner  string // the person behind the agent, who may not approve its calls; may be empty
}

// A Proxy is a reverse proxy that authenticates agents.
type Proxy struct {
	From   []netip.Prefix // addresses of the proxy
	Header string         // the header with the id of the principal
	Groups string         // the header with comma-separated groups; may be empty
}

// A Field is the part of a certificate that identifies an agent.
type Field string

// The fields.
const (
	CommonName Field = "cn"
	DNSName    Field = "dns"
	URI        Field = "uri"
	Email      Field = "email"
	Subject    Field = "subject" // the whole subject, as in RFC 2253
)

// A Config says how agents are authenticated.
type Config struct {
	Anonymous   bool // accept agents without credentials
	Tokens      []Token
	Issuers     []Issuer
	Certificate Field          // empty disables certificates
	Authorities *x509.CertPool // for client certificates
	Proxy       *Proxy
	LocalUsers  bool // the clients are users of this machine, at a Unix socket

	Client *http.Client // fetches the keys of issuers
	Now    func() time.Time
	Log    *slog.Logger
}

// A Resource is what an agent wants to use, as a protected resource of OAuth.
type Resource struct {
	URL    string   // a JWT may be issued for it; empty if it is not known
	Scopes []string // that a JWT needs
}

// needsCredentials reports whether any kind of credential is configured.
func (c *Config) needsCredentials() bool {
	return len(c.Tokens) > 0 || len(c.Issuers) > 0 || c.Certificate != "" || c.Proxy != nil || c.LocalUsers
}

// An Issuer is a trusted issuer of JWTs.
type Issuer struct {
	URL       string        // the claim iss
	KeysURL   string        // URL of its key set; discovered if empty
	Audiences []string      // besides the URL of the resource
	Skew      time.Duration // tolerated clock difference
	ID        string        // the claim with the agent's id; sub if empty
	Groups    string        // the claim with the agent's groups; groups if empty
	Prefix    string        // prefix of ids, which separates them from those of other issuers
}
