// Package operator knows who is who on the operators' listener: it recognises
// people by a token or by the session they logged in to, says what they may do,
// and keeps other sites from acting in their name.
//
// Handlers ask [Auth.Handle], or [Auth.Authorize] if they need more control.
// Nothing else on the listener decides who somebody is.
//
// A session is a record in the store, which a cookie names that only the gate can
// make. It holds no rights of its own: whoever logged in with a token may do what
// that token may do now, and whoever logged in elsewhere what the configuration
// says of them now. A session that is logged out of is deleted: it has ended on
// every replica, and for good.
package operator

import (
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Role is what an operator may do. Each may do what those before it may.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // may look
	Approver Role = "approver" // may decide, where the workflow lets them
	Admin    Role = "admin"    // may see what concerns everybody, such as the audit log
)

// ladder are the roles, from the least to the most.
var ladder = [...]Role{Viewer, Approver, Admin}

// Includes reports whether who has role r may do what other may.
func (r Role) Includes(other Role) bool {
	mine, theirs := slices.Index(ladder[:], r), slices.Index(ladder[:], other)
	return theirs >= 0 && mine >= theirs
}

// All returns r and every role that it includes.
func (r Role) All() []Role {
	return slices.Clone(ladder[:slices.Index(ladder[:], r)+1])
}

// A Way is how an operator showed who they are.
type Way string

// The ways.
const (
	ByToken   Way = "token"   // a bearer token with the request
	BySession Way = "session" // a cookie, after a login with a token
	ByOIDC    Way = "oidc"    // a cookie, after a login with an identity provider
)

// An Operator is somebody who was recognised.
type Operator struct {
	Name    string // under which decisions are recorded
	Groups  []string
	Role    Role
	Aliases []string // other names that the same person has, as a requester for instance
	Way     Way

	session session // zero with a token
	token   string  // how sessions refer to the token; empty without one
}

// Login names the session of o, for [Auth.Recall]. It is empty for somebody who showed
// a token with the request.
func (o Operator) Login() string { return o.session.record }

// Expires returns when o has to log in again; zero means never.
func (o Operator) Expires() time.Time {
	if o.session.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(o.session.Expires, 0)
}

// A Token is a secret by which an operator is recognised. Only its hash is kept.
// One with fewer than [bearer.Shortest] characters is never recognised, since it
// could be guessed.
type Token struct {
	Hash   Hash
	Name   string
	Groups []string
	Role   Role
	// Link says that the token may come in a link, which is how a token that
	// nobody configured is handed over.
	Link bool
	// Temporary says that another token takes its place at each start. Sessions
	// that began with any of them belong to the one of now, so that they outlive
	// restarts. Sessions of other tokens end with the token.
	Temporary bool
}

// A Config is what [New] needs to know. Records, Ring and Now must be given.
type Config struct {
	Tokens []Token
	// OIDC is where operators can log in as well; nil if nowhere. It needs URL.
	OIDC *OIDC
	// Records keep sessions, and Ring seals the cookies that name them. Replicas
	// that share both share their sessions.
	Records task.Records
	Ring    *keyring.Ring
	// URL is where browsers reach the gate, if that is known. With https, cookies
	// are for encrypted connections alone.
	URL *url.URL
	// Session is how long a login lasts; 12 hours.
	Session time.Duration
	// Page shows the page on which people log in; nil means a plain one.
	Page Page
	Now  func() time.Time
	Log  *slog.Logger
}

const defaultSession = 12 * time.Hour

// An Auth recognises operators. It is safe for concurrent use.
type Auth struct {
	cfg      Config
	sessions keyring.Sealer // of the cookies that name them
	logins   keyring.Sealer // of the cookies of logins under way
	provider *provider      // nil if there is none
	guesses  *guesses
	ended    *endings
	returns  *returns
	// By operator. Pages look by themselves whenever an agent does something, so
	// that must not use up what is there to decide.
	looks, changes limiters

	next atomic.Pointer[Auth] // what has replaced this one; nil while nothing has
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
		cfg: c, sessions: c.Ring.Sealer(keyring.Sessions), logins: c.Ring.Sealer(keyring.Logins),
		guesses: newGuesses(), ended: new(endings), returns: newReturns(), looks: newLimiters(requests), changes: newLimiters(requests),
	}
	if c.OIDC != nil {
		a.provider = newProvider(*c.OIDC, c.Now)
	}
	return a, nil
}

// Replace has next recognise operators from now on: whoever is still being served
// by a is asked for by next, and next knows who failed to guess a token and which
// sessions have ended. Nobody may have used next before.
func (a *Auth) Replace(next *Auth) {
	next.guesses, next.ended, next.returns, next.looks, next.changes = a.guesses, a.ended, a.returns, a.looks, a.changes
	a.next.Store(next)
}

// CanSignIn reports whether there is any way to sign in.
func (a *Auth) CanSignIn() bool { return len(a.cfg.Tokens) > 0 || a.provider != nil }

// latest returns the Auth that has replaced a in the end.
func (a *Auth) latest() *Auth {
	for next := a.next.Load(); next != nil; next = a.next.Load() {
		a = next
	}
	return a
}

// check returns what is missing.
func (c *Config) check() error {
	if c.Records == nil || c.Ring == nil || c.Now == nil {
		return errors.New("operator: needs records, a key and a clock")
	}
	for _, t := range c.Tokens {
		if t.Name == "" || !t.Role.Includes(Viewer) {
			return errors.New("operator: a token needs a name and a role")
		}
	}
	if c.OIDC != nil && (c.URL == nil || c.OIDC.Client == nil) {
		return errors.New("operator: a login elsewhere needs to know where it comes back to, and a client")
	}
	return nil
}
