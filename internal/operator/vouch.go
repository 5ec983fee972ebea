package operator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A grant is by what the provider can be asked about somebody again.
type grant struct {
	Subject string `json:"subject"`
	Refresh string `json:"refresh,omitzero"` // the provider's token; without it, it cannot be asked
	Checked int64  `json:"checked"`          // when the provider vouched for them last, in seconds since 1970
	Tried   int64  `json:"tried,omitzero"`   // when it was asked last
}

// retryAfter is how long a replica that asks the provider keeps others, and
// itself, from asking about the same session.
const retryAfter = 30 * time.Second

// fromElsewhere returns who logged in with the identity provider, if they would
// be let in now, with the role that they have now. It asks the provider if it
// was not asked for a while.
func (a *Auth) fromElsewhere(ctx context.Context, s session) (Operator, *Error) {
	if a.provider == nil || s.Grant == nil || s.Issuer != a.provider.Issuer {
		return Operator{}, errSessionEnded
	}
	if a.since(s.Grant.Checked) >= a.provider.Recheck {
		if err := a.vouch(ctx, &s); err != nil {
			return Operator{}, err
		}
	}
	o := Operator{Name: s.Name, Groups: s.Groups, Aliases: s.Aliases, Role: a.provider.role(s), Way: ByOIDC, session: s}
	if o.Role == "" || a.provider.bars(s) != "" {
		return Operator{}, errSessionEnded
	}
	return o, nil
}

// vouch has the provider say anew who somebody is and in which groups, and ends
// the session if it does not. One replica asks at a time: a refresh token may be
// good for one use. While the provider cannot be reached, its last answer counts
// for as long again.
func (a *Auth) vouch(ctx context.Context, s *session) *Error {
	if s.Grant.Refresh == "" {
		return a.end(ctx, s, "the identity provider gave no refresh token")
	}
	known := a.since(s.Grant.Checked) < 2*a.provider.Recheck
	unverified := func() *Error {
		if known {
			return nil
		}
		return errUnverified
	}
	if a.since(s.Grant.Tried) < retryAfter {
		return unverified()
	}
	g := *s.Grant
	g.Tried = a.cfg.Now().Unix()
	s.Grant = &g
	if err := a.keep(ctx, s); errors.Is(err, task.ErrConcurrentModification) {
		return unverified() // another replica is asking, or the session was just ended: the next request finds out
	} else if err != nil {
		return a.unavailable(ctx, err)
	}
	// A client that leaves must not lose a refresh token that was just replaced.
	ctx = context.WithoutCancel(ctx)
	claims, refresh, err := a.provider.renew(ctx, a, &g)
	switch {
	case refused(err):
		return a.end(ctx, s, redacted(err))
	case err != nil:
		a.cfg.Log.WarnContext(ctx, "identity provider", "error", redacted(err))
		a.keepRefresh(ctx, s, refresh)
		return unverified()
	}
	return a.renewed(ctx, s, claims, refresh)
}

// since returns how far the clock is from a time, in seconds since 1970. One in
// the future is as old as one in the past: the clock was set back since.
func (a *Auth) since(seconds int64) time.Duration {
	return a.cfg.Now().Sub(time.Unix(seconds, 0)).Abs()
}

// keepRefresh keeps the refresh token of an answer that could not be used: the
// one before it may be good no more.
func (a *Auth) keepRefresh(ctx context.Context, s *session, refresh string) {
	if refresh == "" || refresh == s.Grant.Refresh {
		return
	}
	s.Grant.Refresh = refresh
	if err := a.keep(ctx, s); err != nil && !errors.Is(err, task.ErrConcurrentModification) {
		_ = a.unavailable(ctx, err) // the session ends when the provider is asked next
	}
}

// renewed keeps what the provider says now.
func (a *Auth) renewed(ctx context.Context, s *session, claims claimSet, refresh string) *Error {
	next, why := a.provider.admit(claims)
	if why == "" && next.Name != s.Name {
		why = "the name has changed"
	}
	if why != "" {
		return a.end(ctx, s, why)
	}
	s.Groups, s.Aliases, s.Email = next.Groups, next.Aliases, next.Email
	s.Grant.Checked, s.Grant.Tried, s.Grant.Refresh = a.cfg.Now().Unix(), 0, refresh
	err := a.keep(ctx, s)
	if errors.Is(err, task.ErrConcurrentModification) {
		return errSessionEnded // it was logged out of meanwhile
	}
	if err != nil {
		return a.unavailable(ctx, err)
	}
	return nil
}

// end ends a session for which the provider does not vouch any more.
func (a *Auth) end(ctx context.Context, s *session, why string) *Error {
	a.cfg.Log.WarnContext(ctx, "session ended", "by", s.Name, "why", why)
	if err := a.drop(ctx, s.record); err != nil {
		return a.unavailable(ctx, err)
	}
	return errSessionEnded
}

// renew trades a refresh token for what the provider says of somebody now, and
// for the next refresh token.
func (p *provider) renew(ctx context.Context, a *Auth, g *grant) (claimSet, string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return nil, "", err
	}
	ctx = oidc.ClientContext(ctx, p.Client)
	tokens, err := a.oauth(found).TokenSource(ctx, &oauth2.Token{RefreshToken: g.Refresh}).Token()
	if err != nil {
		return nil, "", err
	}
	claims, err := a.claimsIn(ctx, found, tokens)
	if errors.Is(err, errNoIDToken) { // which a provider may leave out here
		claims, err = userInfo(ctx, found, tokens)
	}
	if err == nil && claims.text("sub") != g.Subject {
		err = errAnother
	}
	return claims, tokens.RefreshToken, err
}

func userInfo(ctx context.Context, found *oidc.Provider, tokens *oauth2.Token) (claimSet, error) {
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return nil, err
	}
	claims := claimSet{}
	return claims, info.Claims(&claims)
}

var (
	errNoIDToken = errors.New("no id_token")
	errAnother   = errors.New("it is for another user or for another client")
)

// refused reports whether the provider answered, and does not vouch for
// somebody: not whether it could not be asked.
func refused(err error) bool {
	if answered, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		status := answered.Response.StatusCode
		return status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
	}
	return errors.Is(err, errAnother)
}
