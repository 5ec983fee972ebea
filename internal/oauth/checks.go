package oauth

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/thoughtgate/thoughtgate-go/internal/localhost"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
)

// The limits of foreign values. Together, those of a grant fit into a record of the store.
const (
	maxToken    = 12 << 10
	maxURL      = 2 << 10
	maxClient   = 2 << 10 // of the id of a client, and of its secret
	maxScopes   = 2 << 10 // of all scopes together
	maxIssuers  = 20
	maxErrorLen = 300
)

// isSafe reports whether a URL is that of an issuer or an endpoint, to which requests and people can be sent.
func isSafe(text string) bool {
	u, err := url.Parse(text)
	return err == nil && len(text) <= maxURL && u.Host != "" && u.User == nil && !strings.Contains(text, "#") &&
		(u.Scheme == "https" || u.Scheme == "http" && localhost.Is(u.Hostname()))
}

// checkMetadata checks the endpoints of an authorization server.
func checkMetadata(m *oauthex.AuthServerMeta) error {
	if m.TokenEndpoint == "" {
		return errors.New("the metadata has no token_endpoint")
	}
	for name, endpoint := range map[string]string{
		"authorization_endpoint": m.AuthorizationEndpoint, "token_endpoint": m.TokenEndpoint, "registration_endpoint": m.RegistrationEndpoint, "revocation_endpoint": m.RevocationEndpoint,
	} {
		//mutate:false TestHostileAuthorizationServer an authorization server makes people open any kind of URL
		if endpoint != "" && !isSafe(endpoint) {
			return fmt.Errorf("its %s cannot be used: %s", name, safetext.Line(endpoint, 200))
		}
	}
	u, err := url.Parse(m.AuthorizationEndpoint)
	if err != nil {
		return err
	}
	own := u.Query()
	for _, name := range []string{"response_type", "client_id", "redirect_uri", "scope", "state", "resource", "code_challenge", "code_challenge_method"} {
		if own.Has(name) { // it would replace that of the gate, if the server reads the first one
			return fmt.Errorf("its authorization_endpoint has the parameter %s", name)
		}
	}
	return nil
}

// consistsOf reports whether s has the characters of tokens, ids and secrets of OAuth only, at most limit.
func consistsOf(s string, limit int) bool {
	return len(s) <= limit && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// isToken reports whether s can stand in an Authorization header.
func isToken(s string) bool { return s != "" && consistsOf(s, maxToken) && !strings.Contains(s, " ") }

// usableScopes returns the names of scopes (RFC 6749) in a foreign list, or none if it is too long to ask for.
func usableScopes(all []string) []string {
	all = slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "" || !consistsOf(s, maxScopes) || strings.ContainsAny(s, " \"\\") })
	if len(strings.Join(all, " ")) > maxScopes {
		return nil
	}
	return all
}

// statusOf returns the status of an answer, without the foreign reason.
func statusOf(r *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.StatusCode, http.StatusText(r.StatusCode)))
}

// A foreignError is an error with foreign text.
type foreignError struct{ cause error }

func (e *foreignError) Error() string { return safetext.Line(e.cause.Error(), maxErrorLen) }
func (e *foreignError) Unwrap() error { return e.cause }

// withoutURL returns the cause of an error of an HTTP client, whose URL can contain secrets, fit for people.
func withoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	return &foreignError{err}
}

// said returns what an authorization server says, fit for people.
func said(code, description string) string {
	code = safetext.Line(code, 50)
	if description == "" {
		return code
	}
	return code + " (" + safetext.Line(description, 200) + ")"
}
