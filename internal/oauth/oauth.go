// Package oauth gets tokens for MCP servers that want OAuth: it finds the authorization server of a server,
// registers with it, lets a person sign in there, and renews and revokes tokens.
package oauth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// A Client gets tokens for one MCP server.
type Client struct {
	Resource string // the URL of the MCP server
	Name     string // of the program, for people who are asked to sign in
	Redirect string // where the authorization server sends the browser; empty if nobody signs in with one

	// Separate gives each authorization server at which the client registers itself an address of its own below
	// Redirect. Then none of them can pass on the answer of another one to get its code (RFC 9700, section 4.4).
	Separate bool

	// ID and Secret are those of a client that was registered in advance, or ID is the URL of its metadata.
	// Without them the client registers itself. Document is the URL at which the client publishes its own
	// metadata. It is the id at servers without registration only, because the others may not be able to reach
	// it, and if they name themselves in their answers, since they share Redirect. All of them may be empty.
	ID, Secret string
	Document   string

	// Issuer is the only authorization server to use. If it is empty, the MCP server names it.
	Issuer string
	Scopes []string // to ask for; if empty, those that the MCP server names when a person signs in

	HTTP *http.Client // see [HTTPClient]
	Now  func() time.Time
}

// The errors of a [Client]. None of them contains a token, a code or a secret.
var (
	// ErrSignInAgain means that the authorization server does not renew a token any more.
	ErrSignInAgain = errors.New("the sign-in has ended")
	// ErrUnknownClient means that the authorization server has forgotten the client, which must register again.
	ErrUnknownClient = errors.New("the authorization server does not know the client")
	// ErrDenied means that the person, or the authorization server, has refused to sign in.
	ErrDenied = errors.New("the sign-in was denied")
	// ErrNoOAuth means that the server does not say how to sign in.
	ErrNoOAuth = errors.New("the server does not say where to sign in")
)

// A Registration is how an authorization server knows the client.
type Registration struct {
	Issuer   string           `json:"issuer"`
	ID       string           `json:"id"`
	Secret   string           `json:"secret,omitzero"`
	Style    oauth2.AuthStyle `json:"style,omitzero"`
	Redirect string           `json:"redirect,omitzero"`
	Expires  time.Time        `json:"expires,omitzero"` // when the secret ends
}

// A Grant is the right to use an MCP server, with its tokens. It is a secret.
type Grant struct {
	Server       string       `json:"server,omitzero"` // the URL of the MCP server, to which alone tokens are sent
	Resource     string       `json:"resource"`        // for which tokens are
	Registration Registration `json:"registration"`
	TokenURL     string       `json:"tokenUrl"`
	RevokeURL    string       `json:"revokeUrl,omitzero"`
	Scopes       []string     `json:"scopes,omitempty"`
	Access       string       `json:"access"`
	Refresh      string       `json:"refresh,omitzero"`
	Expires      time.Time    `json:"expires,omitzero"` // of Access; zero if it is not known
}

// IsFor reports whether g is for the MCP server of c, and from an authorization server that c may use.
func (g *Grant) IsFor(c *Client) bool {
	return g.Server == c.Resource && (c.Issuer == "" || sameIssuer(g.Registration.Issuer, c.Issuer))
}

// RenewBefore is how long before its end a token is renewed.
const RenewBefore = 30 * time.Second

// Fresh reports whether the access token is valid for a while.
func (g *Grant) Fresh(now time.Time) bool {
	return g.Expires.IsZero() || now.Add(RenewBefore).Before(g.Expires)
}

// A SignIn is a sign-in in a browser that has begun. It is a secret.
type SignIn struct {
	URL      string `json:"url"`   // of the authorization server, for the browser
	State    string `json:"state"` // identifies the sign-in in the answer
	Verifier string `json:"verifier"`
	NamesIss bool   `json:"namesIss,omitzero"` // the authorization server names itself in answers
	Grant    Grant  `json:"grant"`             // without tokens
}

// Begin begins a sign-in. Challenges are the WWW-Authenticate headers with which the server has refused a
// request. Earlier is the previous grant, or nil: its registration is used again, and its scopes are asked for
// once more.
func (c *Client) Begin(ctx context.Context, challenges []string, earlier *Grant) (*SignIn, error) {
	server, err := c.discover(ctx, challenges)
	if err != nil {
		return nil, err
	}
	g, err := c.prepare(ctx, server, earlier)
	if err != nil {
		return nil, err
	}
	if server.meta.AuthorizationEndpoint == "" {
		return nil, fmt.Errorf("%s has no page to sign in at", server.meta.Issuer)
	}
	s := &SignIn{State: oauth2.GenerateVerifier(), Verifier: oauth2.GenerateVerifier(), NamesIss: server.meta.AuthorizationResponseIssParameterSupported, Grant: g}
	cfg := oauth2.Config{ClientID: g.Registration.ID, RedirectURL: g.Registration.Redirect, Scopes: g.Scopes, Endpoint: oauth2.Endpoint{AuthURL: server.meta.AuthorizationEndpoint}}
	s.URL = cfg.AuthCodeURL(s.State, oauth2.S256ChallengeOption(s.Verifier), oauth2.SetAuthURLParam("resource", g.Resource))
	return s, nil
}

// Finish ends a sign-in with the parameters with which the authorization server has sent the browser back.
func (c *Client) Finish(ctx context.Context, s *SignIn, answer url.Values) (*Grant, error) {
	//mutate:false TestMisusedSignIn the answer of another sign-in counts
	if subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(s.State)) == 0 {
		return nil, errors.New("this is the answer to another sign-in")
	}
	issuer := s.Grant.Registration.Issuer
	//mutate:false TestMisusedSignIn a code of another authorization server counts
	if from := answer.Get("iss"); from != issuer && (from != "" || s.NamesIss) {
		return nil, fmt.Errorf("the answer is from %q, and not from %s", safetext.Line(from, 200), issuer)
	}
	if code := answer.Get("error"); code != "" {
		return nil, fmt.Errorf("%w: %s", ErrDenied, said(code, answer.Get("error_description")))
	}
	if answer.Get("code") == "" {
		return nil, errors.New("the answer has no code")
	}
	g := s.Grant
	return c.fetch(ctx, g, url.Values{
		"grant_type": {"authorization_code"}, "code": {answer.Get("code")}, "redirect_uri": {g.Registration.Redirect}, "code_verifier": {s.Verifier},
	})
}

// Renew returns the grant with a new access token. The previous one, with its refresh token, counts no more.
// The error is [ErrSignInAgain] if a person must sign in again, and also [ErrUnknownClient] if that is the reason.
func (c *Client) Renew(ctx context.Context, g *Grant) (*Grant, error) {
	if g.Refresh == "" {
		return nil, ErrSignInAgain
	}
	next, err := c.fetch(ctx, *g, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {g.Refresh}})
	refused, ok := errors.AsType[*refusedError](err)
	switch {
	case ok && refused.code == "invalid_grant":
		return nil, fmt.Errorf("%w: %w", ErrSignInAgain, err)
	case ok && refused.code == "invalid_client":
		return nil, fmt.Errorf("%w: %w: %w", ErrSignInAgain, ErrUnknownClient, err)
	default:
		return next, err
	}
}

// ByItself gets a token for the client itself, which must be registered in advance.
func (c *Client) ByItself(ctx context.Context, challenges []string) (*Grant, error) {
	return c.direct(ctx, challenges, url.Values{"grant_type": {"client_credentials"}})
}

// Exchange gets a token in exchange for another one (RFC 8693): that of an agent, in whose name the client then
// acts.
func (c *Client) Exchange(ctx context.Context, challenges []string, subject string) (*Grant, error) {
	return c.direct(ctx, challenges, url.Values{
		"grant_type": {oauthex.GrantTypeTokenExchange}, "subject_token": {subject},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
	})
}

// direct gets a token without a person. Nobody could object to the scopes that the MCP server names, so they are not
// asked for: some authorization servers choose the audience of a token by them.
func (c *Client) direct(ctx context.Context, challenges []string, params url.Values) (*Grant, error) {
	server, err := c.discover(ctx, challenges)
	if err != nil {
		return nil, err
	}
	g, err := c.prepare(ctx, server, nil)
	if err != nil {
		return nil, err
	}
	if len(c.Scopes) > 0 {
		params.Set("scope", strings.Join(c.Scopes, " "))
	}
	return c.fetch(ctx, g, params)
}

// fetch gets a token from the token endpoint of g. The package clientcredentials sends any grant type, and the
// parameter resource with each of them, which oauth2.Config does not do for refresh tokens.
func (c *Client) fetch(ctx context.Context, g Grant, params url.Values) (*Grant, error) {
	params.Set("resource", g.Resource)
	cfg := clientcredentials.Config{
		ClientID: g.Registration.ID, ClientSecret: g.Registration.Secret, AuthStyle: g.Registration.Style, TokenURL: g.TokenURL, EndpointParams: params,
	}
	token, err := cfg.Token(c.with(ctx))
	if err != nil {
		return nil, failed(g.TokenURL, err)
	}
	return g.with(token)
}

// with returns a context with which package oauth2 uses the client's HTTP client.
func (c *Client) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, c.HTTP)
}

// with returns the grant with a new token.
func (g Grant) with(token *oauth2.Token) (*Grant, error) {
	if !strings.EqualFold(token.Type(), "Bearer") {
		return nil, fmt.Errorf("%s has sent a token of type %q", g.TokenURL, safetext.Line(token.TokenType, 50))
	}
	if !isToken(token.AccessToken) || !consistsOf(token.RefreshToken, maxToken) {
		return nil, fmt.Errorf("%s has sent a token that cannot be used", g.TokenURL)
	}
	g.Access, g.Expires = token.AccessToken, token.Expiry
	if token.RefreshToken != "" {
		g.Refresh = token.RefreshToken
	}
	scope, _ := token.Extra("scope").(string)
	if given := usableScopes(strings.Fields(scope)); len(given) > 0 {
		g.Scopes = given
	}
	return &g, nil
}

// Revoke tells the authorization server that the tokens of g are not used any more.
func (c *Client) Revoke(ctx context.Context, g *Grant) error {
	if g.RevokeURL == "" {
		return errors.New("the authorization server has no way to revoke tokens")
	}
	var failed error
	for _, token := range []string{g.Refresh, g.Access} {
		if token != "" {
			failed = errors.Join(failed, c.revoke(ctx, g, token))
		}
	}
	return failed
}

// revoke revokes one token.
func (c *Client) revoke(ctx context.Context, g *Grant, token string) error {
	form := url.Values{"token": {token}}
	inHeader := g.Registration.Secret != "" && g.Registration.Style != oauth2.AuthStyleInParams
	if !inHeader {
		form.Set("client_id", g.Registration.ID)
		if g.Registration.Secret != "" {
			form.Set("client_secret", g.Registration.Secret)
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.RevokeURL, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if inHeader {
		r.SetBasicAuth(url.QueryEscape(g.Registration.ID), url.QueryEscape(g.Registration.Secret))
	}
	res, err := c.HTTP.Do(r)
	if err != nil {
		return withoutURL(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the authorization server answered %s", statusOf(res))
	}
	return nil
}

// A refusedError is the answer of an authorization server that gives no token.
type refusedError struct {
	code string // as in RFC 6749, or empty
	text string
}

func (e *refusedError) Error() string { return e.text }

// failed returns the error of a request for a token. Texts of package oauth2 may quote the answer.
func failed(endpoint string, err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return fmt.Errorf("get a token: %w", withoutURL(err))
	}
	text := "no token from " + endpoint
	if refused.ErrorCode != "" {
		text += ": " + said(refused.ErrorCode, refused.ErrorDescription)
	} else if refused.Response != nil {
		text += ": " + statusOf(refused.Response)
	}
	return &refusedError{code: refused.ErrorCode, text: text}
}

// union returns the scopes of both lists without repetition.
func union(a, b []string) []string {
	all := make(map[string]bool)
	for _, scope := range slices.Concat(a, b) {
		all[scope] = true
	}
	return slices.Sorted(maps.Keys(all))
}
