package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An OIDC is an identity provider with which operators log in.
type OIDC struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	Name         string   // on the page where people log in
	Scopes       []string // besides openid; profile and email if there are none
	NameClaim    string   // whose value becomes the name; email if empty
	GroupsClaim  string   // groups if empty

	// Users may sign in if their e-mail address is in one of the domains (if any
	// are set) and they are in one of the groups (if any are set).
	Domains []string
	Groups  []string

	// Roles says who has which role, by name or by group after "group:". Without
	// any, everybody who may come in is an approver.
	Roles map[Role][]string

	// Matters reports whether a group is one that anything depends on: only those
	// are remembered, since people can be in very many. Nil remembers all.
	Matters func(group string) bool

	// Recheck is how often the provider is asked whether somebody is still who
	// they were, and in the same groups; 15 minutes. With a provider that gives
	// no refresh tokens a login lasts no longer than that.
	Recheck time.Duration

	Client *http.Client
}

const defaultRecheck = 15 * time.Minute

// LoginTime is how long a login elsewhere may take.
const loginTime = 10 * time.Minute

// A provider knows an [OIDC] once it has been asked about itself.
type provider struct {
	OIDC

	mu     sync.Mutex
	found  *oidc.Provider
	asking bool
	failed time.Time // when it could not be asked last
	now    func() time.Time
}

func newProvider(o OIDC, now func() time.Time) *provider {
	if o.Recheck <= 0 {
		o.Recheck = defaultRecheck
	}
	if o.NameClaim == "" {
		o.NameClaim = "email"
	}
	if o.GroupsClaim == "" {
		o.GroupsClaim = "groups"
	}
	if len(o.Scopes) == 0 {
		o.Scopes = []string{"profile", "email"}
	}
	if o.Name == "" {
		if u, err := url.Parse(o.Issuer); err == nil {
			o.Name = u.Host
		}
	}
	return &provider{OIDC: o, now: now}
}

// discover asks the provider about itself, once it succeeds. The gate starts
// without: a provider that is down keeps nobody from logging in with a token.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	found, busy := p.found, p.asking || p.now().Sub(p.failed).Abs() < discoverPause
	p.asking = p.asking || !busy && found == nil
	p.mu.Unlock()
	switch {
	case found != nil:
		return found, nil
	case busy:
		return nil, errNotAskedAgain
	}
	// The provider keeps the context to fetch keys later.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.Client), p.Issuer)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking = false; err != nil {
		p.failed = p.now()
		return nil, err
	}
	p.found = found
	return found, nil
}

// discoverPause is how long a provider that could not be asked is left alone:
// anybody can make the gate ask it.
const discoverPause = 2 * time.Second

var errNotAskedAgain = errors.New("a request to it is under way, or failed a moment ago")

func (a *Auth) oauth(found *oidc.Provider) *oauth2.Config {
	p := a.provider
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: found.Endpoint(),
		RedirectURL: a.cfg.URL.Scheme + "://" + a.cfg.URL.Host + callbackPath,
		Scopes:      slices.Concat([]string{oidc.ScopeOpenID}, p.Scopes, offline(found, p.Scopes)),
	}
}

// offline returns the scope that has a provider give a refresh token, if it
// knows it and it is not asked for anyway.
func offline(found *oidc.Provider, scopes []string) []string {
	var about struct {
		Scopes []string `json:"scopes_supported"`
	}
	if found.Claims(&about) != nil || !slices.Contains(about.Scopes, oidc.ScopeOfflineAccess) || slices.Contains(scopes, oidc.ScopeOfflineAccess) {
		return nil
	}
	return []string{oidc.ScopeOfflineAccess}
}

const callbackPath = "/login/oidc/callback"

// A departure is what must be known again of somebody who comes back from a
// login elsewhere. It is in a cookie, so that only the browser that left can.
type departure struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Next     string `json:"w"`
	Expires  int64  `json:"x"`
}

// maxNext is the length of the longest path to which a login leads.
const maxNext = 2000

// leave sends somebody to the provider.
func (a *Auth) leave(w http.ResponseWriter, r *http.Request) {
	next := local(r.URL.Query().Get("next"))
	found, err := a.provider.discover(r.Context())
	if err != nil {
		a.unreachable(w, r, next, err)
		return
	}
	d := departure{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next,
		Expires: a.cfg.Now().Add(loginTime).Unix(),
	}
	if len(d.Next) > maxNext {
		d.Next = "/" // no cookie holds it
	}
	text, err := json.Marshal(&d)
	if err != nil {
		a.unreachable(w, r, next, err)
		return
	}
	sealed, err := a.logins.Seal(r.Context(), string(text))
	if err != nil {
		a.notBegun(w, r, next, err)
		return
	}
	a.setCookie(w, r, loginCookie, sealed, loginTime)
	to := a.oauth(found).AuthCodeURL(d.State, oidc.Nonce(d.Nonce), oauth2.S256ChallengeOption(d.Verifier))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// comeBack takes somebody in who comes back from the provider.
func (a *Auth) comeBack(w http.ResponseWriter, r *http.Request) {
	sealed := a.cookie(r, loginCookie)
	a.setCookie(w, r, loginCookie, "", 0)
	q := r.URL.Query()
	d, known := a.departed(r.Context(), sealed, q.Get("state"))
	if !known {
		a.notBack(w, r, "/", "This sign-in was not started here, or took too long. Please sign in again.")
		return
	}
	if q.Get("error") != "" {
		a.notBack(w, r, d.Next, a.provider.Name+" did not sign you in.")
		return
	}
	found, err := a.provider.discover(r.Context())
	if err != nil {
		a.unreachable(w, r, d.Next, err)
		return
	}
	done, ok := a.returns.turn(r.Context())
	if !ok {
		a.failed(w, r, turnTime, LoginPage{Next: d.Next})
		return
	}
	claims, refresh, err := a.redeem(r.Context(), found, q.Get("code"), d)
	done()
	if err != nil {
		a.cfg.Log.WarnContext(logging.Limited(r.Context(), "unverified", addressOf(r)), "login with the identity provider failed", "error", redacted(err))
		a.notBack(w, r, d.Next, "The answer from "+a.provider.Name+" could not be verified. Please sign in again.")
		return
	}
	a.welcome(w, r, claims, arrival{departure: d, refresh: refresh})
}

// An arrival is somebody who has come back from the provider.
type arrival struct {
	departure

	refresh string // the provider's refresh token, if it gave one
}

// departed returns what is known of somebody who says to come back. A login is good for
// one return, whatever comes of that.
func (a *Auth) departed(ctx context.Context, sealed, state string) (d departure, known bool) {
	text, err := a.logins.Open(ctx, sealed)
	if err != nil || json.Unmarshal([]byte(text), &d) != nil {
		return departure{}, false
	}
	if d.State == "" || d.State != state || a.cfg.Now().Unix() >= d.Expires {
		return departure{}, false
	}
	if !a.returns.first(d.State, time.Unix(d.Expires, 0), a.cfg.Now()) {
		return departure{}, false
	}
	_, err = a.cfg.Records.GetRecord(ctx, d.record()) // there if somebody has come back before, on any replica
	return d, errors.Is(err, task.ErrNotFound)
}

// record returns the name of the record that says that somebody came back.
func (d departure) record() string { return "login/" + digest(d.State) }

// notBack shows the page again to somebody who could not log in elsewhere. It limits
// nobody: to say no costs little, and behind a proxy all come from one address.
func (a *Auth) notBack(w http.ResponseWriter, r *http.Request, next, why string) {
	a.failed(w, r, 0, LoginPage{Next: next, Error: why})
}

// once reports whether this is the first time, on any replica, that somebody
// comes back from a login. Only somebody whom the provider knows and who may
// come in gets so far: nobody else can fill the store.
func (a *Auth) once(ctx context.Context, d departure) (bool, error) {
	err := a.cfg.Records.PutRecord(ctx, task.Record{
		Name: d.record(), Version: 1, Value: []byte("done"), Expires: time.Unix(d.Expires, 0),
	})
	if errors.Is(err, task.ErrConcurrentModification) {
		return false, nil
	}
	return err == nil, err
}

// redeem trades the code for tokens and returns what they say, if they are for
// this login of this gate, and the refresh token, if there is one.
func (a *Auth) redeem(ctx context.Context, found *oidc.Provider, code string, d departure) (claimSet, string, error) {
	ctx = oidc.ClientContext(ctx, a.provider.Client)
	tokens, err := a.oauth(found).Exchange(ctx, code, oauth2.VerifierOption(d.Verifier))
	if err != nil {
		return nil, "", err
	}
	claims, err := a.claimsIn(ctx, found, tokens)
	if err == nil && claims.text("nonce") != d.Nonce {
		err = errors.New("wrong nonce")
	}
	return claims, tokens.RefreshToken, err
}

// claimsIn returns what the ID token of an answer says, if it is for this gate.
func (a *Auth) claimsIn(ctx context.Context, found *oidc.Provider, tokens *oauth2.Token) (claimSet, error) {
	text, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, errNoIDToken
	}
	token, err := found.Verifier(&oidc.Config{
		ClientID: a.provider.ClientID, Now: a.cfg.Now,
		SupportedSigningAlgs: []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA},
	}).Verify(ctx, text)
	if err != nil {
		return nil, err
	}
	claims := claimSet{}
	if err := token.Claims(&claims); err != nil {
		return nil, err
	}
	// A token for several must say for whom it was made, and it must be this gate.
	if party, said := claims["azp"]; said && party != a.provider.ClientID || !said && len(token.Audience) > 1 {
		return nil, errAnother
	}
	return claims, nil
}

// redacted returns an error without what the provider answered, which may hold
// what it was asked with.
func redacted(err error) string {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return "the provider refused the code: " + refused.ErrorCode
	}
	return err.Error()
}

func (a *Auth) unreachable(w http.ResponseWriter, r *http.Request, next string, err error) {
	a.cfg.Log.ErrorContext(logging.Limited(r.Context(), "unreachable", addressOf(r)), "identity provider", "error", err)
	a.page(w, r, LoginPage{Status: http.StatusBadGateway, Next: next, Error: a.provider.Name + " cannot be reached at the moment."})
}

// welcome begins a session of somebody whom the provider knows, if they may.
func (a *Auth) welcome(w http.ResponseWriter, r *http.Request, c claimSet, from arrival) {
	next := from.Next
	s, why := a.provider.admit(c)
	if why == "" && a.provider.role(s) == "" {
		why = "You have no role here."
	}
	if why != "" {
		a.cfg.Log.WarnContext(logging.Limited(r.Context(), s.Name, addressOf(r)), "login refused", "by", s.Name, "why", why)
		a.page(w, r, LoginPage{Status: http.StatusForbidden, Next: next, Error: why})
		return
	}
	if a.tooOften(w, r, s.Name, next) {
		return
	}
	first, err := a.once(r.Context(), from.departure)
	if err == nil && !first {
		a.notBack(w, r, next, "This sign-in was not started here, or took too long. Please sign in again.")
		return
	}
	s.Grant = &grant{Subject: c.text("sub"), Refresh: from.refresh, Checked: a.cfg.Now().Unix()}
	if err == nil {
		err = a.begin(w, r, s)
	}
	if err != nil {
		a.notBegun(w, r, next, err)
		return
	}
	a.cfg.Log.InfoContext(r.Context(), "operator signed in", "by", s.Name, "way", ByOIDC, "address", addressOf(r))
	http.Redirect(w, r, next, http.StatusSeeOther)
}
