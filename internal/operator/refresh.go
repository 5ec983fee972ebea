package operator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A refreshState is used to ask the identity provider about a signed-in user again.
type refreshState struct {
	Subject string `json:"subject"`
	Token   string `json:"refresh,omitzero"` // the refresh token; empty if the provider gave none
	Checked int64  `json:"checked"`          // the last successful check, in seconds since 1970
	Tried   int64  `json:"tried,omitzero"`   // the last attempt
}

// retryAfter is the pause between two requests about the same session, by any replica.
const retryAfter = 30 * time.Second

// oidcOperator returns the operator of a session that began with the identity provider, with
// the present role. It revalidates the session if that is due.
func (a *Auth) oidcOperator(ctx context.Context, s session) (Operator, *Error) {
	if a.provider == nil || s.Refresh == nil || s.Issuer != a.provider.Issuer {
		return Operator{}, errSessionEnded
	}
	if a.since(s.Refresh.Checked) >= a.provider.Recheck {
		if err := a.revalidate(ctx, &s); err != nil {
			return Operator{}, err
		}
	}
	o := Operator{Name: s.Name, Groups: s.Groups, Aliases: s.Aliases, Role: a.provider.role(s), Method: ByOIDC, session: s}
	if o.Role == "" || a.provider.refusalReason(s) != "" {
		return Operator{}, errSessionEnded
	}
	return o, nil
}

// revalidate asks the provider for the user's name and groups again, and ends the session if
// the provider refuses. One replica asks at a time, since a refresh token may be valid for
// one use only. While the provider cannot be reached, its last answer stays valid for twice
// the interval.
func (a *Auth) revalidate(ctx context.Context, s *session) *Error {
	if s.Refresh.Token == "" {
		return a.endRefused(ctx, s, "the identity provider gave no refresh token")
	}
	known := a.since(s.Refresh.Checked) < 2*a.provider.Recheck
	unverified := func() *Error {
		if known {
			return nil
		}
		return errUnverified
	}
	if a.since(s.Refresh.Tried) < retryAfter {
		return unverified()
	}
	g := *s.Refresh
	g.Tried = a.cfg.Now().Unix()
	s.Refresh = &g
	if err := a.saveSession(ctx, s); errors.Is(err, task.ErrConcurrentModification) {
		return unverified() // another replica is asking, or the session has ended: see the next request
	} else if err != nil {
		return a.unavailable(ctx, err)
	}
	// The new refresh token must be stored even if the client disconnects.
	ctx = context.WithoutCancel(ctx)
	claims, refresh, err := a.provider.refresh(ctx, a, &g)
	switch {
	case refused(err):
		return a.endRefused(ctx, s, redacted(err))
	case err != nil:
		a.cfg.Log.WarnContext(ctx, "identity provider cannot be reached", "err", redacted(err))
		a.saveRefreshToken(ctx, s, refresh)
		return unverified()
	}
	return a.updateClaims(ctx, s, claims, refresh)
}

// since returns the distance of the clock from a time in seconds since 1970. A time in the
// future means that the clock was set back, and counts as past.
func (a *Auth) since(seconds int64) time.Duration {
	return a.cfg.Now().Sub(time.Unix(seconds, 0)).Abs()
}

// saveRefreshToken stores the new refresh token of a response that could not be used, since
// the old token may no longer be valid.
func (a *Auth) saveRefreshToken(ctx context.Context, s *session, refresh string) {
	if refresh == "" || refresh == s.Refresh.Token {
		return
	}
	s.Refresh.Token = refresh
	if err := a.saveSession(ctx, s); err != nil && !errors.Is(err, task.ErrConcurrentModification) {
		_ = a.unavailable(ctx, err) // the session ends when the provider is asked next
	}
}

// updateClaims stores the present claims of the user.
func (a *Auth) updateClaims(ctx context.Context, s *session, claims identity.Claims, refresh string) *Error {
	next, why := a.provider.sessionOf(claims)
	if why == "" && next.Name != s.Name {
		why = "the name has changed"
	}
	if why != "" {
		return a.endRefused(ctx, s, why)
	}
	s.Groups, s.Aliases, s.Email = next.Groups, next.Aliases, next.Email
	s.Refresh.Checked, s.Refresh.Tried, s.Refresh.Token = a.cfg.Now().Unix(), 0, refresh
	err := a.saveSession(ctx, s)
	if errors.Is(err, task.ErrConcurrentModification) {
		return errSessionEnded // signed out meanwhile
	}
	if err != nil {
		return a.unavailable(ctx, err)
	}
	return nil
}

// endRefused ends a session that the provider has refused.
func (a *Auth) endRefused(ctx context.Context, s *session, why string) *Error {
	a.cfg.Log.WarnContext(ctx, "session ended", "by", s.Name, "why", why)
	if err := a.endSession(ctx, s.record); err != nil {
		return a.unavailable(ctx, err)
	}
	return errSessionEnded
}

// refresh exchanges a refresh token for the present claims of the user and the next refresh
// token.
func (p *provider) refresh(ctx context.Context, a *Auth, g *refreshState) (identity.Claims, string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return nil, "", err
	}
	ctx = oidc.ClientContext(ctx, p.Client)
	tokens, err := a.oauth(found).TokenSource(ctx, &oauth2.Token{RefreshToken: g.Token}).Token()
	if err != nil {
		return nil, "", err
	}
	claims, err := a.claimsIn(ctx, found, tokens)
	if errors.Is(err, errNoIDToken) { // a provider may omit it here
		claims, err = userInfo(ctx, found, tokens)
	}
	if err == nil && claims.Text("sub") != g.Subject {
		err = errWrongSubject
	}
	return claims, tokens.RefreshToken, err
}

func userInfo(ctx context.Context, found *oidc.Provider, tokens *oauth2.Token) (identity.Claims, error) {
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(tokens))
	if err != nil {
		return nil, err
	}
	claims := identity.Claims{}
	return claims, info.Claims(&claims)
}

var (
	errNoIDToken    = errors.New("the response has no id_token")
	errWrongSubject = errors.New("the id_token is for another user or another client")
)

// refused reports whether the provider refused a refresh token, in contrast to a failure.
func refused(err error) bool {
	if answered, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		status := answered.Response.StatusCode
		return status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
	}
	return errors.Is(err, errWrongSubject)
}
