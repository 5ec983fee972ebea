package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/oauth2"
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

	// Who may come in: those with an e-mail address in one of the domains, if
	// there are any, and in one of the groups, if there are any.
	Domains []string
	Groups  []string

	// Roles says who has which role, by name or by group after "group:". Without
	// any, everybody who may come in is an approver.
	Roles map[Role][]string

	// Matters reports whether a group is one that anything depends on: only those
	// are remembered, since people can be in more than a cookie holds. Nil
	// remembers all.
	Matters func(group string) bool

	Client *http.Client
}

// LoginTime is how long a login elsewhere may take.
const loginTime = 10 * time.Minute

// A provider knows an [OIDC] once it has been asked about itself.
type provider struct {
	OIDC

	mu    sync.Mutex
	found *oidc.Provider
}

func newProvider(o OIDC) *provider {
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
	return &provider{OIDC: o}
}

// discover asks the provider about itself, once it succeeds. The gate starts
// without: a provider that is down keeps nobody from logging in with a token.
func (p *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil {
		return p.found, nil
	}
	// The provider keeps the context to fetch keys later.
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.Client), p.Issuer)
	if err == nil {
		p.found = found
	}
	return found, err
}

func (a *Auth) oauth(found *oidc.Provider) *oauth2.Config {
	p := a.provider
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: found.Endpoint(),
		RedirectURL: a.cfg.URL.Scheme + "://" + a.cfg.URL.Host + callbackPath,
		Scopes:      append([]string{oidc.ScopeOpenID}, p.Scopes...),
	}
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

const forDepartures = "departure"

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
	sealed, err := a.sealer.seal(forDepartures, d)
	if err != nil {
		d.Next = "/" // it was too long
		sealed, err = a.sealer.seal(forDepartures, d)
	}
	if err != nil {
		a.unreachable(w, r, next, err)
		return
	}
	a.setCookie(w, r, loginCookie, sealed, loginTime)
	to := a.oauth(found).AuthCodeURL(d.State, oidc.Nonce(d.Nonce), oauth2.S256ChallengeOption(d.Verifier))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// comeBack takes somebody in who comes back from the provider.
func (a *Auth) comeBack(w http.ResponseWriter, r *http.Request) {
	var d departure
	sealed := a.cookie(r, loginCookie)
	a.setCookie(w, r, loginCookie, "", 0)
	q := r.URL.Query()
	known := sealed != "" && a.sealer.open(forDepartures, sealed, &d) && d.State != "" && d.State == q.Get("state") &&
		a.cfg.Now().Unix() < d.Expires
	if !known || !a.spent.add("state "+d.State, time.Unix(d.Expires, 0), a.cfg.Now()) {
		a.failed(w, r, "/", "This login was not begun here, or took too long. Please log in again.")
		return
	}
	if q.Get("error") != "" {
		a.failed(w, r, d.Next, a.provider.Name+" did not log you in.")
		return
	}
	found, err := a.provider.discover(r.Context())
	if err != nil {
		a.unreachable(w, r, d.Next, err)
		return
	}
	claims, err := a.redeem(r.Context(), found, q.Get("code"), d)
	if err != nil {
		a.cfg.Log.WarnContext(r.Context(), "login with the identity provider failed", "error", redacted(err))
		a.failed(w, r, d.Next, "The answer of "+a.provider.Name+" could not be verified. Please log in again.")
		return
	}
	a.welcome(w, r, claims, d.Next)
}

// redeem trades the code for a token and returns what that says, if it is for
// this login of this gate.
func (a *Auth) redeem(ctx context.Context, found *oidc.Provider, code string, d departure) (people, error) {
	ctx = oidc.ClientContext(ctx, a.provider.Client)
	tokens, err := a.oauth(found).Exchange(ctx, code, oauth2.VerifierOption(d.Verifier))
	if err != nil {
		return nil, err
	}
	text, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, errors.New("there is no id_token")
	}
	token, err := found.Verifier(&oidc.Config{
		ClientID: a.provider.ClientID, Now: a.cfg.Now,
		SupportedSigningAlgs: []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA},
	}).Verify(ctx, text)
	if err != nil {
		return nil, err
	}
	if token.Nonce != d.Nonce {
		return nil, errors.New("the nonce is another one")
	}
	claims := people{}
	return claims, token.Claims(&claims)
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
	a.cfg.Log.ErrorContext(r.Context(), "identity provider", "error", err)
	a.page(w, r, LoginPage{Status: http.StatusBadGateway, Next: next, Error: a.provider.Name + " cannot be reached at the moment."})
}

// welcome begins a session of somebody whom the provider knows, if they may.
func (a *Auth) welcome(w http.ResponseWriter, r *http.Request, c people, next string) {
	s, why := a.provider.admit(c)
	if why == "" && a.provider.role(s) == "" {
		why = "You have no role here."
	}
	if why != "" {
		a.cfg.Log.WarnContext(r.Context(), "login refused", "by", s.Name, "why", why)
		a.page(w, r, LoginPage{Status: http.StatusForbidden, Next: next, Error: why})
		return
	}
	if err := a.begin(w, r, s); err != nil {
		a.cfg.Log.ErrorContext(r.Context(), "login", "by", s.Name, "error", err)
		a.page(w, r, LoginPage{Status: http.StatusInternalServerError, Next: next, Error: "You are in more groups than can be remembered."})
		return
	}
	a.cfg.Log.InfoContext(r.Context(), "operator logged in", "by", s.Name, "way", ByOIDC, "address", addressOf(r))
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// people are the claims about somebody.
type people map[string]any

// UnmarshalJSON implements [json.Unmarshaler]; names that are given twice are refused.
func (p *people) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*map[string]any)(p), jsontext.AllowDuplicateNames(false))
}

func (p people) find(name string) any {
	if v, ok := p[name]; ok {
		return v
	}
	outer, rest, deeper := strings.Cut(name, ".")
	inner, ok := p[outer].(map[string]any)
	if !deeper || !ok {
		return nil
	}
	return people(inner).find(rest)
}

func (p people) text(name string) string {
	s, _ := p.find(name).(string)
	return s
}

func (p people) texts(name string) []string {
	switch v := p.find(name).(type) {
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, one := range v {
			if s, ok := one.(string); ok {
				all = append(all, s)
			}
		}
		return all
	default:
		return nil
	}
}

// email returns the address of somebody, if it is verified to be theirs.
func (p people) email() string {
	verified, _ := p.find("email_verified").(bool)
	if !verified {
		return ""
	}
	return strings.ToLower(p.text("email"))
}

// admit returns the session of somebody, or says why they may not come in.
func (o *OIDC) admit(p people) (s session, why string) {
	s = session{Via: viaOIDC, Issuer: o.Issuer, Name: p.text(o.NameClaim), Email: p.email(), Groups: p.texts(o.GroupsClaim)}
	if o.NameClaim == "email" {
		s.Name = s.Email
	}
	switch {
	case s.Name == "" && o.NameClaim == "email":
		return s, "Your e-mail address is not verified."
	case s.Name == "":
		return s, "The identity provider does not say who you are."
	}
	if why = o.bars(s); why != "" {
		return s, why
	}
	s.Groups = slices.DeleteFunc(s.Groups, func(g string) bool { return o.Matters != nil && !o.matters(g) })
	s.Aliases = p.aliases(s.Name)
	return s, ""
}

// bars returns why somebody may not be here, or nothing.
func (o *OIDC) bars(s session) string {
	_, domain, _ := strings.Cut(s.Email, "@")
	switch {
	case len(o.Domains) > 0 && !slices.ContainsFunc(o.Domains, func(d string) bool { return strings.EqualFold(d, domain) }):
		return "Your e-mail address is not one that may log in here."
	case len(o.Groups) > 0 && !slices.ContainsFunc(s.Groups, func(g string) bool { return slices.Contains(o.Groups, g) }):
		return "You are in no group that may log in here."
	default:
		return ""
	}
}

// aliases returns the other names by which somebody may be known.
func (p people) aliases(name string) []string {
	var others []string
	for _, other := range []string{p.text("sub"), p.email(), p.text("preferred_username"), p.text("upn")} {
		if other != "" && other != name && !slices.Contains(others, other) {
			others = append(others, other)
		}
	}
	return others
}

func (o *OIDC) matters(group string) bool {
	return o.Matters(group) || slices.Contains(o.Groups, group) ||
		slices.ContainsFunc(ladder[:], func(r Role) bool { return slices.Contains(o.Roles[r], "group:"+group) })
}

// role returns the highest role that somebody has now, or nothing.
func (o *OIDC) role(s session) Role {
	if len(o.Roles) == 0 {
		return Approver
	}
	for _, r := range slices.Backward(ladder[:]) {
		if slices.ContainsFunc(o.Roles[r], func(entry string) bool {
			if group, ok := strings.CutPrefix(entry, "group:"); ok {
				return slices.Contains(s.Groups, group)
			}
			return entry == s.Name
		}) {
			return r
		}
	}
	return ""
}
