// Package operator authenticates and authorizes requests on the operators' listener. An
// operator signs in with a token or with an identity provider. Scripts send the token with
// each request. Handlers are wrapped by [Auth.Handle]:
//
//	mux.HandleFunc("POST /approvals/{id}/approve", auth.Handle(operator.Approver, showError, approve))
//
// A session is a record in the store, and a sealed cookie names it. Sessions have no rights
// of their own: with each request, the role follows from the present configuration. Signing
// out deletes the record, which ends the session on all replicas.
//
// Requests that change something must come from a page of the gate (see
// [Auth.Authorize]), so that other sites cannot use a session.
package operator

import (
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A Role is a set of rights. Each role includes the roles before it.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // may see held calls
	Rejecter Role = "rejecter" // may reject calls and revoke standing approvals, which takes rights away
	Approver Role = "approver" // may decide about calls, if the workflow allows it
	Admin    Role = "admin"    // may see the audit log and accept changed tools
)

// roles are the roles, from the fewest rights to the most.
var roles = [...]Role{Viewer, Rejecter, Approver, Admin}

// Includes reports whether r has the rights of other.
func (r Role) Includes(other Role) bool {
	mine, theirs := slices.Index(roles[:], r), slices.Index(roles[:], other)
	//mutate:swap ">= theirs" ">= 0" TestRoles a role includes those above it
	return theirs >= 0 && mine >= theirs
}

// All returns r and every role that it includes.
func (r Role) All() []Role {
	return slices.Clone(roles[:slices.Index(roles[:], r)+1])
}

// An AuthMethod is the way in which an operator was authenticated.
type AuthMethod string

// The methods.
const (
	ByToken   AuthMethod = "token"   // a bearer token with the request
	BySession AuthMethod = "session" // a session that began with a token
	ByOIDC    AuthMethod = "oidc"    // a session that began with an identity provider
)

// An Operator is an authenticated person or script.
type Operator struct {
	Name    string // recorded with decisions
	Groups  []string
	Role    Role
	Aliases []string // other names of the same person, for instance as a requester
	Method  AuthMethod

	session session // zero for ByToken
	token   string  // see Token.via; empty for ByOIDC
}

// SessionID identifies the session of o, for [Auth.FindOperator]. It is empty for
// [ByToken].
func (o Operator) SessionID() string { return o.session.record }

// Expires returns when the session of o ends; zero means never.
func (o Operator) Expires() time.Time {
	if o.session.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(o.session.Expires, 0)
}

// A Token authenticates an operator. Only its hash is stored. Tokens shorter than
// [identity.MinTokenLength] are never accepted, since they could be guessed.
type Token struct {
	Hash   Hash
	Name   string
	Groups []string
	Role   Role
	// Link allows the token in a sign-in link, such as the one that the gate prints.
	Link bool
	// Temporary marks a token that is replaced at each start. A session that began with
	// an earlier one continues with the present one. Sessions of other tokens end when
	// the token is removed.
	Temporary bool
}

// A Config configures [New]. Records, Ring and Now are required.
type Config struct {
	Tokens []Token
	// OIDC is the identity provider, or nil. It requires URL.
	OIDC *OIDC
	// Records store sessions, and Ring seals their cookies. Replicas that share both
	// share sessions.
	Records gatestore.Records
	Ring    *keyring.Ring
	// URL is the address of the gate in browsers, if known. With https, cookies are
	// limited to encrypted connections.
	URL *url.URL
	// Session is the duration of a session; 12 hours by default.
	Session time.Duration
	// Page shows the sign-in page; a plain one by default.
	Page Page
	Now  func() time.Time
	Log  *slog.Logger
}

const defaultSession = 12 * time.Hour

// An Auth authenticates and authorizes operators. It is safe for concurrent use.
type Auth struct {
	cfg            Config
	sessionCookies keyring.Sealer // of the cookies that name them
	loginCookies   keyring.Sealer // of the cookies of logins under way
	provider       *provider      // nil if there is none
	failures       *tokenFailures
	ended          *endedSessions
	callbacks      *callbacks
	// Requests are limited for each operator. Open pages reload whenever an agent does
	// something, so reading has a limit of its own.
	reads, writes keyedLimiter

	next atomic.Pointer[Auth] // set by Replace
}

// New returns an Auth.
func New(c Config) (*Auth, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Session <= 0 {
		c.Session = defaultSession
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Page == nil {
		c.Page = plainPage
	}
	a := &Auth{
		cfg: c, sessionCookies: c.Ring.Sealer(keyring.Sessions), loginCookies: c.Ring.Sealer(keyring.Logins),
		failures: newTokenFailures(), ended: new(endedSessions), callbacks: newCallbacks(), reads: newKeyedLimiter(requestRate), writes: newKeyedLimiter(requestRate),
	}
	if c.OIDC != nil {
		a.provider = newProvider(*c.OIDC, c.Now)
	}
	return a, nil
}

// Replace lets next decide from now on, also about requests that a is serving. Next takes
// over the rate limits and the ended sessions. It must not have been used before.
func (a *Auth) Replace(next *Auth) {
	next.failures, next.ended, next.callbacks, next.reads, next.writes = a.failures, a.ended, a.callbacks, a.reads, a.writes
	a.next.Store(next)
}

// CanSignIn reports whether a token or an identity provider is configured.
func (a *Auth) CanSignIn() bool { return len(a.cfg.Tokens) > 0 || a.provider != nil }

// latest returns a, or its last replacement.
func (a *Auth) latest() *Auth {
	for next := a.next.Load(); next != nil; next = a.next.Load() {
		a = next
	}
	return a
}

func (c *Config) check() error {
	if c.Records == nil || c.Ring == nil || c.Now == nil {
		return errors.New("operator: records, a key ring and a clock are required")
	}
	for _, t := range c.Tokens {
		if t.Name == "" || !t.Role.Includes(Viewer) {
			return errors.New("operator: a token requires a name and a role")
		}
	}
	if c.OIDC != nil && (c.URL == nil || c.OIDC.Client == nil) {
		return errors.New("operator: an identity provider requires a URL and an HTTP client")
	}
	return nil
}
