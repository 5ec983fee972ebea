package operator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/keyring"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A session is a login, as it is kept in the store. It holds no rights of its
// own: what its operator may do follows from the configuration.
type session struct {
	Via     string   `json:"via"`     // the login: a token's hash, or one of the words below
	Expires int64    `json:"expires"` // in seconds since 1970
	Form    string   `json:"form"`    // what pages send along with every change
	Name    string   `json:"name,omitzero"`
	Groups  []string `json:"groups,omitempty"` // this and what follows only if the login was elsewhere
	Aliases []string `json:"aliases,omitempty"`
	Email   string   `json:"email,omitzero"` // verified
	Issuer  string   `json:"issuer,omitzero"`
	Grant   *grant   `json:"grant,omitzero"`

	record  string // the name of the record
	version int64
}

// Logins that are not those with a token of the configuration.
const (
	viaLink = "link" // a temporary token
	viaOIDC = "oidc"
)

// via returns how sessions of t refer to it.
func (t Token) via() string {
	if t.Temporary {
		return viaLink
	}
	return hex.EncodeToString(t.Hash[:])
}

const sessionRecords = "session/"

// recordsOf returns what the names of all sessions of the same person begin
// with.
func (s *session) recordsOf() string {
	return sessionRecords + digest(s.Via, s.Issuer, s.Name) + "/"
}

// digest returns a short name for some values.
func digest(values ...string) string {
	text, _ := json.Marshal(values) // which strings cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// maxSessions is how many sessions one person can have. The next login ends the
// one that would have ended first.
const maxSessions = 20

// begin starts a session: the store keeps it, and the browser gets a cookie that
// names it, in place of the session that it may have had before.
func (a *Auth) begin(w http.ResponseWriter, r *http.Request, s session) error {
	ctx := r.Context()
	if err := a.makeRoom(ctx, &s); err != nil {
		return err
	}
	s.Form = rand.Text()
	s.Expires = a.cfg.Now().Add(a.cfg.Session).Unix()
	s.record = s.recordsOf() + digest(rand.Text())
	if err := a.keep(ctx, &s); err != nil {
		return err
	}
	sealed, err := a.sessions.Seal(ctx, s.record)
	if err != nil {
		return err
	}
	if err := a.endFormer(r); err != nil {
		return err
	}
	a.setCookie(w, r, sessionCookie, sealed, a.cfg.Session)
	return nil
}

// endFormer ends the session that the cookie of a request names, if there is one: no
// logout could end it once the browser has another cookie.
func (a *Auth) endFormer(r *http.Request) error {
	former := a.cookie(r, sessionCookie)
	if former == "" {
		return nil
	}
	record, err := a.sessions.Open(r.Context(), former)
	if errors.Is(err, keyring.ErrForeign) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.drop(r.Context(), record)
}

// drop ends a session, on every replica and for good.
func (a *Auth) drop(ctx context.Context, record string) error {
	if err := a.cfg.Records.DeleteRecord(ctx, record); err != nil {
		return err
	}
	a.noteEnd(record)
	return nil
}

// EndAll ends the sessions of everybody, on every replica and for good.
func (a *Auth) EndAll(ctx context.Context) error {
	q := task.RecordQuery{Prefix: sessionRecords, Limit: 100}
	for {
		found, err := a.cfg.Records.ListRecords(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range found {
			q.After = r.Name
			if err := a.drop(ctx, r.Name); err != nil {
				return err
			}
		}
		if len(found) < q.Limit {
			return nil
		}
	}
}

// keep has the store keep a session as it is now.
func (a *Auth) keep(ctx context.Context, s *session) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	next := task.Record{Name: s.record, Version: s.version + 1, Value: text, Expires: time.Unix(s.Expires, 0)}
	if err := a.cfg.Records.PutRecord(ctx, next); err != nil {
		return err
	}
	s.version++
	return nil
}

// makeRoom ends sessions of somebody who has too many.
func (a *Auth) makeRoom(ctx context.Context, s *session) error {
	found, err := a.cfg.Records.ListRecords(ctx, task.RecordQuery{Prefix: s.recordsOf(), Limit: 4 * maxSessions})
	if err != nil || len(found) < maxSessions {
		return err
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Expires.Before(found[j].Expires) }) // slices.SortFunc would be compiled for this large type alone
	for _, r := range found[:len(found)-maxSessions+1] {
		if err := a.drop(ctx, r.Name); err != nil {
			return err
		}
	}
	return nil
}

// Names of cookies.
const (
	sessionCookie = "thoughtgate"
	loginCookie   = "thoughtgate-login"
)

// cookieName returns the full name of a cookie. It has the label of the gate in
// it, since browsers do not distinguish the ports of a host. Browsers let only
// this very host set one whose name begins with __Host-, and only over TLS.
func (a *Auth) cookieName(r *http.Request, name string) string {
	label, err := a.cfg.Ring.Label(r.Context())
	if err != nil {
		label = "unknown" // no cookie can be opened, nor made, either
	}
	name += "-" + label
	if a.secure(r) {
		return "__Host-" + name
	}
	return name
}

// WithoutCookies takes the cookies of operators off the requests that next
// serves. Browsers do not distinguish the ports of a host: they send a login of an
// operator to every listener of the host, and what is behind another one must not
// get it.
func WithoutCookies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header["Cookie"]; len(given) > 0 {
			others := slices.DeleteFunc(strings.Split(strings.Join(given, "; "), ";"), isOurs)
			r.Header.Del("Cookie")
			if len(others) > 0 {
				r.Header.Set("Cookie", strings.TrimSpace(strings.Join(others, ";")))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// isOurs reports whether a cookie has a name that [Auth] gives, or is empty.
func isOurs(cookie string) bool {
	cookie = strings.TrimPrefix(strings.TrimSpace(cookie), "__Host-")
	return cookie == "" || strings.HasPrefix(cookie, sessionCookie+"-")
}

// secure reports whether the browser's connection is encrypted.
func (a *Auth) secure(r *http.Request) bool {
	return r.TLS != nil || a.cfg.URL != nil && a.cfg.URL.Scheme == "https"
}

// setCookie sets a cookie. It is sent along when somebody follows a link from
// elsewhere, or comes back from a login there, but not with other requests that
// other sites make.
func (a *Auth) setCookie(w http.ResponseWriter, r *http.Request, name, value string, lasts time.Duration) {
	c := &http.Cookie{ //nolint:gosec // secure wherever there is TLS; on a loopback address there is none
		Name: a.cookieName(r, name), Value: value, Path: "/", MaxAge: int(lasts.Seconds()),
		HttpOnly: true, Secure: a.secure(r), SameSite: http.SameSiteLaxMode,
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// cookie returns the value of a cookie, or nothing if it does not have one.
func (a *Auth) cookie(r *http.Request, name string) string {
	given := r.CookiesNamed(a.cookieName(r, name))
	if len(given) != 1 || len(given[0].Value) > maxCookie {
		return "" // with two of them, one is not the gate's
	}
	return given[0].Value
}

// maxCookie is how much browsers keep.
const maxCookie = 3800

// resume returns whose session a cookie names.
func (a *Auth) resume(ctx context.Context, sealed string) (Operator, *Error) {
	record, err := a.sessions.Open(ctx, sealed)
	switch {
	case errors.Is(err, keyring.ErrForeign):
		return Operator{}, errBadSession
	case err != nil:
		return Operator{}, a.unavailable(ctx, err)
	}
	return a.recall(ctx, record)
}

// Recall returns whose session it is that [Operator.Login] names, with the role that
// they have now. An error is an [*Error]: of [TypeUnavailable] if that cannot be known
// now, and otherwise because the session has ended.
func (a *Auth) Recall(ctx context.Context, login string) (Operator, error) {
	o, err := a.latest().recall(ctx, login)
	if err != nil {
		return Operator{}, err
	}
	return o, nil
}

// recall returns whose session is kept under a name, with the role that they
// have now.
func (a *Auth) recall(ctx context.Context, record string) (Operator, *Error) {
	if a.ended.has(record) {
		return Operator{}, errSessionEnded
	}
	found, err := a.cfg.Records.GetRecord(ctx, record)
	switch {
	case errors.Is(err, task.ErrNotFound):
		a.noteEnd(record)
		return Operator{}, errSessionEnded
	case errors.Is(err, task.ErrUnreadable):
		return Operator{}, errSessionEnded
	case err != nil:
		return Operator{}, a.unavailable(ctx, err)
	}
	s := session{record: record, version: found.Version}
	if json.Unmarshal(found.Value, &s) != nil || a.cfg.Now().Unix() >= s.Expires {
		return Operator{}, errSessionEnded
	}
	if s.Via == viaOIDC {
		return a.fromElsewhere(ctx, s)
	}
	o, ended := a.holder(s.Via)
	o.Way, o.session = BySession, s
	return o, ended
}

// holder returns whose token it is that sessions refer to as via.
func (a *Auth) holder(via string) (Operator, *Error) {
	for _, t := range a.cfg.Tokens {
		if t.via() == via {
			return Operator{Name: t.Name, Groups: t.Groups, Role: t.Role, Way: ByToken, token: via}, nil
		}
	}
	return Operator{}, errSessionEnded // it is no longer one
}

// again returns who o is now, if anybody.
func (a *Auth) again(ctx context.Context, o Operator) (Operator, *Error) {
	if o.session.record == "" {
		return a.holder(o.token)
	}
	return a.recall(ctx, o.session.record)
}

// unavailable says that the store could not be asked. It is not logged of a
// request that has ended meanwhile: then that is the reason.
func (a *Auth) unavailable(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return errUnavailable
	}
	a.cfg.Log.WarnContext(logging.Limited(ctx, "store_unavailable", ""), "operator sessions cannot be read", "error", err)
	return errUnavailable
}

// recheck is how often whoever is being served is asked for again.
const recheck = 500 * time.Millisecond

// during returns a context that ends when an operator who is being served has no
// longer the role for it: because the session was logged out of on any replica,
// its time is over, or the configuration no longer has the token. The second
// result is to be called at the end.
func (a *Auth) during(ctx context.Context, o Operator, role Role) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	if ends := o.Expires(); !ends.IsZero() {
		ctx, cancel = context.WithTimeout(ctx, ends.Sub(a.cfg.Now()))
	}
	var mu sync.Mutex // lets the function see the timer
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(recheck, func() {
		mu.Lock()
		defer mu.Unlock()
		now, err := a.latest().again(ctx, o)
		switch {
		case ctx.Err() != nil:
		case err == nil && !now.Role.Includes(role), err != nil && err.Type != TypeUnavailable:
			cancel()
		default:
			timer.Reset(recheck)
		}
	})
	return ctx, func() { timer.Stop(); cancel() }
}
