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

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// An OIDC configures an identity provider for operators.
type OIDC struct {
	Issuer       string
	ClientID     string
	ClientSecret string
	Name         string   // shown on the sign-in page; the host of Issuer by default
	Scopes       []string // besides openid; profile and email by default
	NameClaim    string   // the claim with the name; email by default
	GroupsClaim  string   // the claim with the groups; groups by default

	// Users may sign in if their e-mail address is in one of the Domains, unless that is
	// empty, and if they are in one of the Groups, unless that is empty.
	Domains []string
	Groups  []string

	// Roles lists the users of each role, by name or as "group:" and a group. If it is
	// empty, all users are approvers.
	Roles map[Role][]string

	// IsRelevant reports whether the configuration refers to a group. Sessions store only
	// these groups. Nil means all.
	IsRelevant func(group string) bool

	// Recheck is the interval at which name and groups are revalidated; 15 minutes by
	// default. Without a refresh token, a session lasts no longer.
	Recheck time.Duration

	Client *http.Client
}

const defaultRecheck = 15 * time.Minute

// loginTime limits a login with the identity provider.
const loginTime = 10 * time.Minute

// A provider is an identity provider with its discovered metadata.
type provider struct {
	OIDC

	mu          sync.Mutex
	found       *oidc.Provider
	discovering bool
	failed      time.Time // the time of the last failed discovery
	now         func() time.Time
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

// discover reads the metadata of the provider, once. The gate starts without it, so that a
// provider that is down does not prevent signing in with a token.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	found, busy := p.found, p.discovering || p.now().Sub(p.failed).Abs() < discoverPause
	p.discovering = p.discovering || !busy && found == nil
	p.mu.Unlock()
	switch {
	case found != nil:
		return found, nil
	case busy:
		return nil, errNotAskedAgain
	}
	// The provider uses the context later, to fetch keys.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.Client), p.Issuer)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.discovering = false; err != nil {
		p.failed = p.now()
		return nil, err
	}
	p.found = found
	return found, nil
}

// discoverPause is the pause after a failed discovery, since unauthenticated requests cause
// discoveries.
const discoverPause = 2 * time.Second

var errNotAskedAgain = errors.New("discovery is in progress or has just failed")

func (a *Auth) oauth(found *oidc.Provider) *oauth2.Config {
	p := a.provider
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: found.Endpoint(),
		RedirectURL: a.cfg.URL.Scheme + "://" + a.cfg.URL.Host + callbackPath,
		Scopes:      slices.Concat([]string{oidc.ScopeOpenID}, p.Scopes, offlineScope(found, p.Scopes)),
	}
}

// offlineScope returns the scope for refresh tokens if the provider supports it and the
// configuration does not already name it.
func offlineScope(found *oidc.Provider, scopes []string) []string {
	var metadata struct {
		Scopes []string `json:"scopes_supported"`
	}
	if found.Claims(&metadata) != nil || !slices.Contains(metadata.Scopes, oidc.ScopeOfflineAccess) || slices.Contains(scopes, oidc.ScopeOfflineAccess) {
		return nil
	}
	return []string{oidc.ScopeOfflineAccess}
}

const callbackPath = "/login/oidc/callback"

// A pendingLogin is a login at the identity provider that has begun. It is stored in a
// sealed cookie, so that only the browser that began the login can complete it.
type pendingLogin struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Next     string `json:"w"`
	Expires  int64  `json:"x"`
}

// maxNext is the length of the longest path in a pendingLogin.
const maxNext = 2000

// startOIDC redirects to the provider.
func (a *Auth) startOIDC(w http.ResponseWriter, r *http.Request) {
	next := localPath(r.URL.Query().Get("next"))
	found, err := a.provider.discover(r.Context())
	if err != nil {
		a.providerFailed(w, r, next, err)
		return
	}
	d := pendingLogin{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next,
		Expires: a.cfg.Now().Add(loginTime).Unix(),
	}
	if len(d.Next) > maxNext {
		d.Next = "/" // too long for a cookie
	}
	text, err := json.Marshal(&d)
	if err != nil {
		a.providerFailed(w, r, next, err)
		return
	}
	sealed, err := a.loginCookies.Seal(r.Context(), string(text))
	if err != nil {
		a.storeFailed(w, r, next, err)
		return
	}
	a.setCookie(w, r, loginCookie, sealed, loginTime)
	to := a.oauth(found).AuthCodeURL(d.State, oidc.Nonce(d.Nonce), oauth2.S256ChallengeOption(d.Verifier))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// finishOIDC serves the redirect back from the provider.
func (a *Auth) finishOIDC(w http.ResponseWriter, r *http.Request) {
	sealed := a.cookie(r, loginCookie)
	a.setCookie(w, r, loginCookie, "", 0)
	q := r.URL.Query()
	d, known := a.openPendingLogin(r.Context(), sealed, q.Get("state"))
	if !known {
		a.restartLogin(w, r, "/", "This sign-in was not started here, or took too long. Please sign in again.")
		return
	}
	if q.Get("error") != "" {
		a.restartLogin(w, r, d.Next, a.provider.Name+" did not sign you in.")
		return
	}
	found, err := a.provider.discover(r.Context())
	if err != nil {
		a.providerFailed(w, r, d.Next, err)
		return
	}
	done, ok := a.callbacks.acquire(r.Context())
	if !ok {
		a.failed(w, r, redeemWait, LoginPage{Next: d.Next})
		return
	}
	claims, refresh, err := a.redeem(r.Context(), found, q.Get("code"), d)
	done()
	if err != nil {
		a.cfg.Log.WarnContext(logging.Limited(r.Context(), "unverified", addressOf(r)), "login with the identity provider failed", "err", redacted(err))
		a.restartLogin(w, r, d.Next, "The answer from "+a.provider.Name+" could not be verified. Please sign in again.")
		return
	}
	a.acceptOIDC(w, r, d, claims, refresh)
}

// openPendingLogin returns the login in a cookie. Each login can be completed once, even if
// that fails.
func (a *Auth) openPendingLogin(ctx context.Context, sealed, state string) (d pendingLogin, known bool) {
	text, err := a.loginCookies.Open(ctx, sealed)
	if err != nil || json.Unmarshal([]byte(text), &d) != nil {
		return pendingLogin{}, false
	}
	if d.State == "" || d.State != state || a.cfg.Now().Unix() >= d.Expires {
		return pendingLogin{}, false
	}
	if !a.callbacks.first(d.State, time.Unix(d.Expires, 0), a.cfg.Now()) {
		return pendingLogin{}, false
	}
	_, err = a.cfg.Records.GetRecord(ctx, d.record()) // exists if any replica has completed the login
	return d, errors.Is(err, task.ErrNotFound)
}

// record returns the name of the record that marks the login as completed.
func (d pendingLogin) record() string { return "login/" + digest(d.State) }

// restartLogin shows the sign-in page after a failed login with the provider. Such failures
// are not limited: they cost little, and all users may share the address of a proxy.
func (a *Auth) restartLogin(w http.ResponseWriter, r *http.Request, next, why string) {
	a.failed(w, r, 0, LoginPage{Next: next, Error: why})
}

// markUsed reports whether the login is completed for the first time, on any replica. It is
// called only for users who may sign in, so that others cannot fill the store.
func (a *Auth) markUsed(ctx context.Context, d pendingLogin) (bool, error) {
	err := a.cfg.Records.PutRecord(ctx, gatestore.Record{
		Name: d.record(), Version: 1, Value: []byte("done"), Expires: time.Unix(d.Expires, 0),
	})
	if errors.Is(err, task.ErrConcurrentModification) {
		return false, nil
	}
	return err == nil, err
}

// redeem exchanges the code for tokens, and returns the claims and the refresh token, if any.
// It checks that the tokens belong to this login.
func (a *Auth) redeem(ctx context.Context, found *oidc.Provider, code string, d pendingLogin) (identity.Claims, string, error) {
	ctx = oidc.ClientContext(ctx, a.provider.Client)
	tokens, err := a.oauth(found).Exchange(ctx, code, oauth2.VerifierOption(d.Verifier))
	if err != nil {
		return nil, "", err
	}
	claims, err := a.claimsIn(ctx, found, tokens)
	if err == nil && claims.Text("nonce") != d.Nonce {
		err = errors.New("wrong nonce")
	}
	return claims, tokens.RefreshToken, err
}

// claimsIn returns the claims of the ID token in a response, after verifying it.
func (a *Auth) claimsIn(ctx context.Context, found *oidc.Provider, tokens *oauth2.Token) (identity.Claims, error) {
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
	claims := identity.Claims{}
	if err := token.Claims(&claims); err != nil {
		return nil, err
	}
	// A token with several audiences must name this gate as the authorized party.
	if _, said := claims["azp"]; said && claims.Text("azp") != a.provider.ClientID || !said && len(token.Audience) > 1 {
		return nil, errWrongSubject
	}
	return claims, nil
}

// redacted returns the text of an error without the provider's response, which may contain
// secrets of the request.
func redacted(err error) string {
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return "identity provider refused the request: " + refused.ErrorCode
	}
	return err.Error()
}

func (a *Auth) providerFailed(w http.ResponseWriter, r *http.Request, next string, err error) {
	a.cfg.Log.ErrorContext(logging.Limited(r.Context(), "unreachable", addressOf(r)), "identity provider cannot be reached", "err", err)
	a.page(w, r, LoginPage{Status: http.StatusBadGateway, Next: next, Error: a.provider.Name + " cannot be reached at the moment."})
}

// acceptOIDC starts a session for the user with these claims, if the user may sign in.
func (a *Auth) acceptOIDC(w http.ResponseWriter, r *http.Request, d pendingLogin, c identity.Claims, refresh string) {
	next := d.Next
	s, why := a.provider.sessionOf(c)
	if why == "" && a.provider.role(s) == "" {
		why = "You have no role here."
	}
	if why != "" {
		a.cfg.Log.WarnContext(logging.Limited(r.Context(), s.Name, addressOf(r)), "login refused", "by", s.Name, "why", why)
		a.page(w, r, LoginPage{Status: http.StatusForbidden, Next: next, Error: why})
		return
	}
	if a.limitLogin(w, r, s.Name, next) {
		return
	}
	first, err := a.markUsed(r.Context(), d)
	if err == nil && !first {
		a.restartLogin(w, r, next, "This sign-in was not started here, or took too long. Please sign in again.")
		return
	}
	s.Refresh = &refreshState{Subject: c.Text("sub"), Token: refresh, Checked: a.cfg.Now().Unix()}
	if err == nil {
		err = a.startSession(w, r, s)
	}
	if err != nil {
		a.storeFailed(w, r, next, err)
		return
	}
	a.cfg.Log.InfoContext(r.Context(), "operator signed in", "by", s.Name, "method", ByOIDC, "address", addressOf(r))
	http.Redirect(w, r, next, http.StatusSeeOther)
}
