package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/oauth"
)

// ErrNotSignedIn means that there is no sign-in with a name or URL.
var ErrNotSignedIn = errors.New("no sign-in")

// A Logout is the end of a sign-in.
type Logout struct {
	URL     string // of the server
	Revoked error  // why the authorization server may still accept the tokens; nil if it does not
}

// Logout removes the sign-ins with the name of a wrap, or with the URL of a server, and revokes
// their tokens. To returns the client for requests about a server, with the issuer of its tokens.
func (s *Store) Logout(ctx context.Context, nameOrURL string, to func(server, issuer string) *http.Client) ([]Logout, error) {
	all, damaged := s.all()
	var ended []Logout
	var known []string
	for _, r := range all {
		if r.URL != nameOrURL && !slices.Contains(r.Names, nameOrURL) {
			known = append(known, fmt.Sprintf("%s (%s)", strings.Join(r.Names, ", "), r.URL))
			continue
		}
		l, err := s.logout(ctx, r.URL, to)
		if err != nil {
			return ended, err
		}
		ended = append(ended, l)
	}
	if len(ended) > 0 {
		return ended, nil
	}
	if damaged != nil {
		return nil, damaged
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("%w: you are not signed in to any server", ErrNotSignedIn)
	}
	return nil, fmt.Errorf("%w %q; there are %s", ErrNotSignedIn, nameOrURL, strings.Join(known, "; "))
}

// logout removes the sign-in of one server. A gate must not renew its tokens meanwhile.
func (s *Store) logout(ctx context.Context, server string, to func(server, issuer string) *http.Client) (Logout, error) {
	l := Logout{URL: server}
	lock, err := s.lock(ctx, s.file(server, "lock"), nil)
	if err != nil {
		return l, err
	}
	defer func() { _ = lock.Close() }()
	g, err := s.read(server)
	if err != nil {
		return l, err
	}
	//mutate:drop TestLogout a sign-in outlives the logout
	if err := s.remove(server); err != nil {
		return l, err
	}
	if g == nil {
		l.Revoked = errors.New("the tokens cannot be read")
		return l, nil
	}
	if g.Access == "" && g.Refresh == "" {
		return l, nil
	}
	c := &oauth.Client{Resource: server, HTTP: to(server, g.Registration.Issuer)}
	l.Revoked = c.Revoke(ctx, g)
	return l, nil
}
