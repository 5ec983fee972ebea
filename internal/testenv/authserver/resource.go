package authserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
)

// Verify returns the claims of a valid access token. Unless resource is empty, the token must be
// for it.
func (s *Server) Verify(token, resource string) (map[string]any, error) {
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, err
	}
	text, err := signed.Verify(s.key.Public())
	if err != nil {
		return nil, err
	}
	var claims map[string]any
	if err := json.Unmarshal(text, &claims); err != nil {
		return nil, err
	}
	expires, _ := claims["exp"].(float64)
	grant, _ := claims["grant"].(string)
	s.mu.Lock()
	revoked := s.revoked[grant] || s.revoked[token]
	s.mu.Unlock()
	switch {
	case revoked:
		return nil, errors.New("the token is revoked")
	case time.Now().After(time.Unix(int64(expires), 0)):
		return nil, errors.New("the token has expired")
	case resource != "" && !slices.Contains(audiences(claims), resource):
		return nil, fmt.Errorf("the token is for %v, not for %s", claims["aud"], resource)
	}
	return claims, nil
}

func audiences(claims map[string]any) []string {
	switch aud := claims["aud"].(type) {
	case string:
		return []string{aud}
	case []any:
		var all []string
		for _, one := range aud {
			text, _ := one.(string)
			all = append(all, text)
		}
		return all
	}
	return nil
}

// Protect returns a protected resource (RFC 9728) with next at a path. Its tokens come from s,
// must name it as the audience, and need the scopes.
func (s *Server) Protect(path string, next http.Handler, scopes ...string) http.Handler {
	const wellKnown = "/.well-known/oauth-protected-resource"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+wellKnown+path, func(w http.ResponseWriter, r *http.Request) {
		m := map[string]any{"resource": origin(r) + path, "authorization_servers": []string{s.URL}}
		if len(scopes) > 0 {
			m["scopes_supported"] = scopes
		}
		s.answer(w, http.StatusOK, m)
	})
	mux.HandleFunc(cmp.Or(path, "/"), func(w http.ResponseWriter, r *http.Request) {
		challenge := fmt.Sprintf(`resource_metadata="%s"`, origin(r)+wellKnown+path)
		if len(scopes) > 0 {
			challenge += fmt.Sprintf(`, scope="%s"`, strings.Join(scopes, " "))
		}
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		claims, err := s.Verify(token, origin(r)+path)
		if err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token", `+challenge)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		scope, _ := claims["scope"].(string)
		for _, needed := range scopes {
			if !slices.Contains(strings.Fields(scope), needed) {
				w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", `+challenge)
				http.Error(w, "insufficient scope", http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
	return mux
}

func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// Browse signs the user in at an authorization URL, as a browser does, and returns the parameters
// with which it comes back to the client. It is an [auth.AuthorizationCodeFetcher].
func (s *Server) Browse(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args.URL, http.NoBody)
	if err != nil {
		return nil, err
	}
	browser := *s.Client
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := browser.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	back, err := resp.Location()
	if err != nil {
		return nil, fmt.Errorf("the authorization server did not redirect: %s: %w", resp.Status, err)
	}
	q := back.Query()
	if bad := q.Get("error"); bad != "" {
		return nil, errors.New(bad)
	}
	return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
}
