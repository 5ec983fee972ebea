package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// A Device is a sign-in that a person does with a browser on another machine (RFC 8628).
type Device struct {
	URL  string // to open
	Code string // to enter there
	// Complete is URL with the code in it; may be empty.
	Complete string

	answer *oauth2.DeviceAuthResponse
	config oauth2.Config
	grant  Grant
}

// ErrNoDevice means that the authorization server does not let people sign in on another machine.
var ErrNoDevice = errors.New("the authorization server does not let people sign in on another machine")

// BeginDevice begins a sign-in on another machine. The parameters are those of [Client.Begin].
func (c *Client) BeginDevice(ctx context.Context, challenges []string, earlier *Grant) (*Device, error) {
	server, err := c.discover(ctx, challenges)
	if err != nil {
		return nil, err
	}
	endpoint, err := c.deviceEndpoint(ctx, server.meta.Issuer)
	if err != nil {
		return nil, err
	}
	d := new(Device)
	if d.grant, err = c.prepare(ctx, server, earlier); err != nil {
		return nil, err
	}
	known := d.grant.Registration
	d.config = oauth2.Config{
		ClientID: known.ID, ClientSecret: known.Secret, Scopes: d.grant.Scopes,
		Endpoint: oauth2.Endpoint{DeviceAuthURL: endpoint, TokenURL: d.grant.TokenURL, AuthStyle: known.Style},
	}
	d.answer, err = d.config.DeviceAuth(c.with(ctx), oauth2.SetAuthURLParam("resource", d.grant.Resource))
	if err != nil {
		return nil, failed(endpoint, err)
	}
	d.URL, d.Code, d.Complete = d.answer.VerificationURI, d.answer.UserCode, d.answer.VerificationURIComplete
	return d, nil
}

// deviceEndpoint reads where a sign-in on another machine begins, which oauthex.AuthServerMeta does not have.
func (c *Client) deviceEndpoint(ctx context.Context, issuer string) (string, error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return "", err
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	for _, address := range []string{
		origin + "/.well-known/oauth-authorization-server" + path, origin + "/.well-known/openid-configuration" + path, origin + path + "/.well-known/openid-configuration",
	} {
		var meta struct {
			Issuer   string `json:"issuer"`
			Endpoint string `json:"device_authorization_endpoint"`
		}
		err := c.read(ctx, address, &meta)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("read the metadata of %s: %w", issuer, err)
		}
		if !sameIssuer(meta.Issuer, issuer) || meta.Endpoint == "" {
			return "", ErrNoDevice
		}
		if !isSafe(meta.Endpoint) {
			return "", fmt.Errorf("the device_authorization_endpoint of %s cannot be used: %s", issuer, safetext.Line(meta.Endpoint, 200))
		}
		return meta.Endpoint, nil
	}
	return "", ErrNoDevice
}

// FinishDevice waits until the person has signed in, or the time for it is over.
func (c *Client) FinishDevice(ctx context.Context, d *Device) (*Grant, error) {
	token, err := d.config.DeviceAccessToken(c.with(ctx), d.answer)
	if err != nil {
		err = failed(d.grant.TokenURL, err)
		if refused, ok := errors.AsType[*refusedError](err); ok && refused.code == "access_denied" {
			return nil, fmt.Errorf("%w: %w", ErrDenied, err)
		}
		return nil, err
	}
	return d.grant.with(token)
}
