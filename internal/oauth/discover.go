package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/thoughtgate/thoughtgate-go/internal/localhost"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// A server is the authorization server of an MCP server.
type server struct {
	meta     *oauthex.AuthServerMeta
	resource string   // as the MCP server calls itself
	scopes   []string // that the MCP server asks for
}

// discover finds the authorization server.
func (c *Client) discover(ctx context.Context, headers []string) (*server, error) {
	asked := challengeIn(headers)
	about, err := c.resourceMetadata(ctx, asked["resource_metadata"])
	if err != nil {
		return nil, err
	}
	s := &server{resource: about.Resource, scopes: usableScopes(strings.Fields(asked["scope"]))}
	if len(s.scopes) == 0 {
		s.scopes = about.ScopesSupported
	}
	issuer := about.AuthorizationServers[0]
	if c.Issuer != "" {
		//mutate:false TestWrongIssuer an MCP server chooses its authorization server
		if !slices.ContainsFunc(about.AuthorizationServers, func(named string) bool { return sameIssuer(named, c.Issuer) }) {
			return nil, fmt.Errorf("%s names the authorization server %s, and not %s", c.place(), safetext.Line(issuer, 200), c.Issuer)
		}
		issuer = c.Issuer
	}
	if !isSafe(issuer) {
		return nil, fmt.Errorf("%s names an authorization server that is no https URL: %s", c.place(), safetext.Line(issuer, 200))
	}
	s.meta, err = auth.GetAuthServerMetadata(ctx, issuer, c.HTTP)
	if err != nil {
		return nil, fmt.Errorf("read the metadata of %s: %w", safetext.Line(issuer, 200), withoutURL(err))
	}
	if s.meta != nil {
		if err := checkMetadata(s.meta); err != nil {
			return nil, fmt.Errorf("read the metadata of %s: %w", safetext.Line(issuer, 200), err)
		}
		return s, nil
	}
	if !about.assumed {
		return nil, fmt.Errorf("%w: %s has no metadata", ErrNoOAuth, safetext.Line(issuer, 200))
	}
	// Servers of 2025-03-26 may have no metadata at all; then their endpoints are fixed.
	if asked == nil {
		return nil, ErrNoOAuth
	}
	s.meta = &oauthex.AuthServerMeta{Issuer: issuer, AuthorizationEndpoint: issuer + "/authorize", TokenEndpoint: issuer + "/token", RegistrationEndpoint: issuer + "/register"}
	return s, nil
}

// sameIssuer reports whether two issuers are the same, but for a slash at the end.
func sameIssuer(a, b string) bool { return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/") }

// challengeIn returns the parameters of the first Bearer challenge, or nil.
func challengeIn(headers []string) map[string]string {
	challenges, err := oauthex.ParseWWWAuthenticate(headers)
	if err != nil {
		return nil
	}
	for _, challenge := range challenges {
		if challenge.Scheme == "bearer" {
			if challenge.Params == nil {
				return make(map[string]string)
			}
			return challenge.Params
		}
	}
	return nil
}

// NeedsSignIn reports whether the response of a server asks for a sign-in, or for more scopes.
func NeedsSignIn(status int, headers []string) bool {
	asked := challengeIn(headers)
	return asked != nil && (status == http.StatusUnauthorized || status == http.StatusForbidden && asked["error"] == "insufficient_scope")
}

// resourceMetadata is the metadata of the MCP server.
type resourceMetadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported"`

	assumed bool // there is no metadata
}

// resourceMetadata reads the metadata of the MCP server at the address of its challenge, or at the well-known
// ones. oauthex.GetProtectedResourceMetadata is not used: it wants the exact URL of the server as its resource,
// while many servers name their origin.
func (c *Client) resourceMetadata(ctx context.Context, named string) (*resourceMetadata, error) {
	at, err := url.Parse(c.Resource)
	if err != nil {
		return nil, err
	}
	origin := at.Scheme + "://" + at.Host
	addresses := []string{origin + wellKnownResource + at.EscapedPath(), origin + wellKnownResource}
	if named != "" && len(named) <= maxURL {
		addresses = slices.Insert(addresses, 0, named)
	}
	for _, address := range slices.Compact(addresses) {
		var about resourceMetadata
		if err := c.read(ctx, address, &about); err != nil {
			if errors.Is(err, errAbsent) {
				continue
			}
			return nil, fmt.Errorf("read the metadata of %s: %w", c.place(), err)
		}
		//mutate:false TestWrongResource a token is for another server
		if !covers(about.Resource, at) {
			return nil, fmt.Errorf("the metadata of %s is about another server: %s", c.place(), safetext.Line(about.Resource, 200))
		}
		if n := len(about.AuthorizationServers); n == 0 || n > maxIssuers {
			return nil, fmt.Errorf("%w: the metadata of %s names %d authorization servers", ErrNoOAuth, c.place(), n)
		}
		about.ScopesSupported = usableScopes(about.ScopesSupported)
		return &about, nil
	}
	return &resourceMetadata{Resource: c.Resource, AuthorizationServers: []string{origin}, assumed: true}, nil
}

// place returns the URL of the MCP server without its query, which may have a key.
func (c *Client) place() string {
	text, _, _ := strings.Cut(c.Resource, "?")
	return text
}

const wellKnownResource = "/.well-known/oauth-protected-resource"

// covers reports whether a resource is the server, or contains it.
func covers(resource string, at *url.URL) bool {
	r, err := url.Parse(resource)
	if err != nil || r.Scheme != at.Scheme || !strings.EqualFold(r.Host, at.Host) || r.User != nil || strings.Contains(resource, "#") {
		return false
	}
	above := strings.TrimSuffix(r.EscapedPath(), "/")
	return r.RawQuery == "" && (at.EscapedPath() == above || strings.HasPrefix(at.EscapedPath(), above+"/")) || resource == at.String()
}

// errAbsent means that there is no document at an address.
var errAbsent = errors.New("there is no such document")

// read reads a JSON document.
func (c *Client) read(ctx context.Context, address string, to any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	res, err := c.HTTP.Do(r)
	if err != nil {
		return withoutURL(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode/100 == 4 {
		return errAbsent
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", statusOf(res))
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if json.Unmarshal(text, to) != nil { // its error quotes the document
		return errors.New("the document is not valid")
	}
	return nil
}

// prepare returns a grant without tokens: the client is registered, and the scopes to ask for are chosen.
func (c *Client) prepare(ctx context.Context, s *server, earlier *Grant) (Grant, error) {
	g := Grant{Server: c.Resource, Resource: s.resource, TokenURL: s.meta.TokenEndpoint, RevokeURL: s.meta.RevocationEndpoint, Scopes: c.Scopes}
	if len(g.Scopes) == 0 {
		g.Scopes = slices.Clone(s.scopes)
		if slices.Contains(s.meta.ScopesSupported, "offline_access") && c.Redirect != "" {
			g.Scopes = append(g.Scopes, "offline_access")
		}
	}
	known := new(Registration)
	if earlier != nil {
		known = &earlier.Registration
		if sameIssuer(known.Issuer, s.meta.Issuer) {
			g.Scopes = union(g.Scopes, earlier.Scopes)
		}
	}
	var err error
	g.Registration, err = c.register(ctx, s.meta, *known)
	return g, err
}

// register returns how the authorization server knows the client.
func (c *Client) register(ctx context.Context, meta *oauthex.AuthServerMeta, known Registration) (Registration, error) {
	r := Registration{Issuer: meta.Issuer, ID: c.ID, Secret: c.Secret, Style: oauth2.AuthStyleInParams, Redirect: c.Redirect}
	switch {
	case c.ID != "" && (meta.ClientIDMetadataDocumentSupported || !isDocument(c.ID)):
		if c.Secret != "" && !slices.Contains(meta.TokenEndpointAuthMethodsSupported, "client_secret_post") {
			r.Style = oauth2.AuthStyleInHeader
		}
		return r, nil
	case c.usesDocument(meta):
		r.ID, r.Secret = c.Document, ""
		return r, nil
	}
	//mutate:swap "c.Separate && " "false && " internal/app.TestMixUp an authorization server gets the codes of another one
	if c.Separate && c.Redirect != "" {
		sum := sha256.Sum256([]byte(meta.Issuer))
		r.Redirect += "/" + hex.EncodeToString(sum[:8])
	}
	switch {
	case known.isFor(r, c.Now()):
		return known, nil
	case meta.RegistrationEndpoint != "":
		return c.registerItself(ctx, meta.RegistrationEndpoint, r)
	default:
		return r, fmt.Errorf("%s does not let clients register themselves: register one there, and give the gate its id (client_id, or --client-id)", meta.Issuer)
	}
}

// usesDocument reports whether the client's own metadata identifies it at an authorization server. That server
// must name itself in its answers, because it shares the redirect address with others.
func (c *Client) usesDocument(meta *oauthex.AuthServerMeta) bool {
	return meta.RegistrationEndpoint == "" && isDocument(c.Document) && meta.ClientIDMetadataDocumentSupported && meta.AuthorizationResponseIssParameterSupported
}

// isDocument reports whether the id of a client is the URL of its metadata.
func isDocument(id string) bool { return strings.HasPrefix(id, "https://") }

// isFor reports whether a registration can be used for another sign-in.
func (r Registration) isFor(next Registration, now time.Time) bool {
	return r.ID != "" && r.Issuer == next.Issuer && r.Redirect == next.Redirect && (r.Expires.IsZero() || now.Before(r.Expires))
}

// registerItself registers the client (RFC 7591).
func (c *Client) registerItself(ctx context.Context, endpoint string, r Registration) (Registration, error) {
	about := c.Metadata()
	if r.Redirect != "" {
		about.RedirectURIs = []string{r.Redirect}
	}
	answer, err := oauthex.RegisterClient(ctx, endpoint, &about, c.HTTP)
	if refused, ok := errors.AsType[*oauthex.ClientRegistrationError](err); ok {
		return r, fmt.Errorf("register at %s: %s", r.Issuer, said(refused.ErrorCode, refused.ErrorDescription))
	}
	if asked, ok := errors.AsType[*url.Error](err); ok {
		return r, fmt.Errorf("register at %s: %w", r.Issuer, withoutURL(asked))
	}
	if err != nil || !consistsOf(answer.ClientID, maxClient) || !consistsOf(answer.ClientSecret, maxClient) { // may quote the answer, with a secret in it
		return r, fmt.Errorf("register at %s: the answer is not valid", r.Issuer)
	}
	r.ID, r.Secret, r.Expires = answer.ClientID, answer.ClientSecret, answer.ClientSecretExpiresAt
	if r.Secret != "" && answer.TokenEndpointAuthMethod != "client_secret_post" && answer.TokenEndpointAuthMethod != "none" {
		r.Style = oauth2.AuthStyleInHeader
	}
	return r, nil
}

// Metadata returns what an authorization server must know about the client.
func (c *Client) Metadata() oauthex.ClientRegistrationMetadata {
	about := oauthex.ClientRegistrationMetadata{
		ClientName: c.Name, TokenEndpointAuthMethod: "none", GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
		RedirectURIs: []string{c.Redirect}, ApplicationType: "web",
	}
	if at, err := url.Parse(c.Redirect); err == nil && (c.Redirect == "" || localhost.Is(at.Hostname())) {
		about.ApplicationType = "native" // OpenID forbids loopback addresses to others
	}
	if c.Redirect == "" {
		about.GrantTypes, about.ResponseTypes, about.RedirectURIs = []string{"urn:ietf:params:oauth:grant-type:device_code", "refresh_token"}, nil, []string{}
	}
	return about
}
