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
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// A session is a session in the store. It has no rights of its own: they follow from the
// configuration.
type session struct {
	Via     string        `json:"via"`     // a hash of a token, viaLink or viaOIDC
	Expires int64         `json:"expires"` // in seconds since 1970
	Form    string        `json:"form"`    // see FormToken
	Name    string        `json:"name,omitzero"`
	Groups  []string      `json:"groups,omitempty"` // this and the following only for viaOIDC
	Aliases []string      `json:"aliases,omitempty"`
	Email   string        `json:"email,omitzero"` // verified
	Issuer  string        `json:"issuer,omitzero"`
	Refresh *refreshState `json:"grant,omitzero"`

	record  string // the name of the record
	version int64
}

// Values of session.Via besides hashes of tokens.
const (
	viaLink = "link" // a temporary token
	viaOIDC = "oidc"
)

// via returns the value of session.Via for t.
func (t Token) via() string {
	if t.Temporary {
		return viaLink
	}
	return hex.EncodeToString(t.Hash[:])
}

const sessionRecords = "session/"

// recordPrefix returns the prefix of the names of all sessions of the same user.
func (s *session) recordPrefix() string {
	return sessionRecords + digest(s.Via, s.Issuer, s.Name) + "/"
}

// digest returns a short digest of values.
func digest(values ...string) string {
	text, _ := json.Marshal(values) // cannot fail for strings
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// maxSessions is the number of sessions of one user. The next sign-in ends the oldest.
const maxSessions = 20

// startSession stores a session and sets its cookie. It ends the previous session of the
// browser.
func (a *Auth) startSession(w http.ResponseWriter, r *http.Request, s session) error {
	ctx := r.Context()
	if err := a.endOldest(ctx, &s); err != nil {
		return err
	}
	s.Form = rand.Text()
	s.Expires = a.cfg.Now().Add(a.cfg.Session).Unix()
	s.record = s.recordPrefix() + digest(rand.Text())
	if err := a.saveSession(ctx, &s); err != nil {
		return err
	}
	sealed, err := a.sessionCookies.Seal(ctx, s.record)
	if err != nil {
		return err
	}
	if err := a.endPrevious(r); err != nil {
		return err
	}
	a.setCookie(w, r, sessionCookie, sealed, a.cfg.Session)
	return nil
}

// endPrevious ends the session in the cookie of a request, since the browser is about to
// lose that cookie and could not sign out of the session later.
func (a *Auth) endPrevious(r *http.Request) error {
	sealed := a.cookie(r, sessionCookie)
	if sealed == "" {
		return nil
	}
	record, err := a.sessionCookies.Open(r.Context(), sealed)
	if errors.Is(err, keyring.ErrForeign) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.endSession(r.Context(), record)
}

// endSession ends a session on all replicas.
func (a *Auth) endSession(ctx context.Context, record string) error {
	if err := a.cfg.Records.DeleteRecord(ctx, record); err != nil {
		return err
	}
	a.rememberEnded(record)
	return nil
}

// EndAll ends all sessions on all replicas.
func (a *Auth) EndAll(ctx context.Context) error {
	q := gatestore.RecordQuery{Prefix: sessionRecords, Limit: 100}
	for {
		found, err := a.cfg.Records.ListRecords(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range found {
			q.After = r.Name
			if err := a.endSession(ctx, r.Name); err != nil {
				return err
			}
		}
		if len(found) < q.Limit {
			return nil
		}
	}
}

// saveSession stores a session. The error is [task.ErrConcurrentModification] if it was
// changed or has ended meanwhile.
func (a *Auth) saveSession(ctx context.Context, s *session) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	next := gatestore.Record{Name: s.record, Version: s.version + 1, Value: text, Expires: time.Unix(s.Expires, 0)}
	if err := a.cfg.Records.PutRecord(ctx, next); err != nil {
		return err
	}
	s.version++
	return nil
}

// endOldest ends the oldest sessions of a user who has too many.
func (a *Auth) endOldest(ctx context.Context, s *session) error {
	found, err := a.cfg.Records.ListRecords(ctx, gatestore.RecordQuery{Prefix: s.recordPrefix(), Limit: 4 * maxSessions})
	if err != nil || len(found) < maxSessions {
		return err
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Expires.Before(found[j].Expires) }) // slices.SortFunc would be compiled for this large type alone
	for _, r := range found[:len(found)-maxSessions+1] {
		if err := a.endSession(ctx, r.Name); err != nil {
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

// cookieName returns the full name of a cookie. It contains the label of the gate, since
// browsers do not distinguish the ports of a host. The prefix __Host- makes browsers
// accept the cookie only from this host and over TLS.
func (a *Auth) cookieName(r *http.Request, name string) string {
	label, err := a.cfg.Ring.Label(r.Context())
	if err != nil {
		label = "unknown" // sealing and opening fail as well
	}
	name += "-" + label
	if a.secure(r) {
		return "__Host-" + name
	}
	return name
}

// WithoutCookies removes the cookies of operators from requests to next. Browsers send
// cookies to all ports of a host, and servers behind other listeners must not receive the
// session of an operator.
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

// isOurs reports whether [Auth] has set a cookie, or whether it is empty.
func isOurs(cookie string) bool {
	cookie = strings.TrimPrefix(strings.TrimSpace(cookie), "__Host-")
	return cookie == "" || strings.HasPrefix(cookie, sessionCookie+"-")
}

// secure reports whether the connection of the browser is encrypted.
func (a *Auth) secure(r *http.Request) bool {
	return r.TLS != nil || a.cfg.URL != nil && a.cfg.URL.Scheme == "https"
}

// setCookie sets a cookie, or removes it if the value is empty. Browsers also send the cookie
// after links and redirects from other sites, but not with other requests of such sites.
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

// cookie returns the value of a cookie, or "".
func (a *Auth) cookie(r *http.Request, name string) string {
	given := r.CookiesNamed(a.cookieName(r, name))
	if len(given) != 1 || len(given[0].Value) > maxCookie {
		return "" // of two cookies, one was not set by the gate
	}
	return given[0].Value
}

// maxCookie is the size of the largest cookie that browsers accept.
const maxCookie = 3800

// operatorByCookie returns the operator of the session in a cookie.
func (a *Auth) operatorByCookie(ctx context.Context, sealed string) (Operator, *Error) {
	record, err := a.sessionCookies.Open(ctx, sealed)
	switch {
	case errors.Is(err, keyring.ErrForeign):
		return Operator{}, errBadSession
	case err != nil:
		return Operator{}, a.unavailable(ctx, err)
	}
	return a.operatorBySession(ctx, record)
}

// FindOperator returns the operator of a session with the present role. See
// [Operator.SessionID]. The error is an [*Error]: of [TypeUnavailable] if the operator
// cannot be found at present, and otherwise because the session has ended.
func (a *Auth) FindOperator(ctx context.Context, session string) (Operator, error) {
	o, err := a.latest().operatorBySession(ctx, session)
	if err != nil {
		return Operator{}, err
	}
	return o, nil
}

// operatorBySession returns the operator of a stored session with the present role.
func (a *Auth) operatorBySession(ctx context.Context, record string) (Operator, *Error) {
	//mutate:false TestRestoredRecordStaysEnded a restored session record is accepted
	if a.ended.contains(record) {
		return Operator{}, errSessionEnded
	}
	found, err := a.cfg.Records.GetRecord(ctx, record)
	switch {
	case errors.Is(err, task.ErrNotFound):
		a.rememberEnded(record)
		return Operator{}, errSessionEnded
	case errors.Is(err, task.ErrUnreadable):
		return Operator{}, errSessionEnded
	case err != nil:
		return Operator{}, a.unavailable(ctx, err)
	}
	s := session{record: record, version: found.Version}
	//mutate:swap "|| a.cfg.Now().Unix() >= s.Expires " "" TestSessionEnds a session never ends
	if json.Unmarshal(found.Value, &s) != nil || a.cfg.Now().Unix() >= s.Expires {
		return Operator{}, errSessionEnded
	}
	if s.Via == viaOIDC {
		return a.oidcOperator(ctx, s)
	}
	o, ended := a.operatorByToken(s.Via)
	o.Method, o.session = BySession, s
	return o, ended
}

// operatorByToken returns the operator of a token. See Token.via.
func (a *Auth) operatorByToken(via string) (Operator, *Error) {
	for _, t := range a.cfg.Tokens {
		if t.via() == via {
			return Operator{Name: t.Name, Groups: t.Groups, Role: t.Role, Method: ByToken, token: via}, nil
		}
	}
	return Operator{}, errSessionEnded // the token was removed
}

// reload returns o with the present role.
func (a *Auth) reload(ctx context.Context, o Operator) (Operator, *Error) {
	if o.session.record == "" {
		return a.operatorByToken(o.token)
	}
	return a.operatorBySession(ctx, o.session.record)
}

// unavailable logs an error of the store, unless the end of the request caused it.
func (a *Auth) unavailable(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return errUnavailable
	}
	a.cfg.Log.WarnContext(logging.Limited(ctx, "store_unavailable", ""), "operator sessions cannot be read", "err", err)
	return errUnavailable
}

// watchInterval is the time between two checks of an operator whose request is being served.
const watchInterval = 500 * time.Millisecond

// watch returns a context that ends when o no longer has the role: because the session was
// ended on any replica or has expired, or because the configuration has changed. The
// function must be called at the end of the request.
func (a *Auth) watch(ctx context.Context, o Operator, role Role) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	//mutate:false TestSessionEndsWithoutStore a request outlives its session
	if ends := o.Expires(); !ends.IsZero() {
		ctx, cancel = context.WithTimeout(ctx, ends.Sub(a.cfg.Now()))
	}
	var mu sync.Mutex // orders the assignment of timer before its use
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(watchInterval, func() {
		mu.Lock()
		defer mu.Unlock()
		now, err := a.latest().reload(ctx, o)
		switch {
		case ctx.Err() != nil:
		case err == nil && !now.Role.Includes(role), err != nil && err.Type != TypeUnavailable:
			cancel()
		default:
			timer.Reset(watchInterval)
		}
	})
	return ctx, func() { timer.Stop(); cancel() }
}
