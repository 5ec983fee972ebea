package operator

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// A session is what a cookie holds.
type session struct {
	ID      string   `json:"i"`
	Via     string   `json:"v"`          // the login: a token's hash, or one of the words below
	Expires int64    `json:"x"`          // in seconds since 1970
	Name    string   `json:"n,omitzero"` // this and what follows only if the login was elsewhere
	Groups  []string `json:"g,omitempty"`
	Aliases []string `json:"a,omitempty"`
	Email   string   `json:"e,omitzero"` // verified
	Issuer  string   `json:"u,omitzero"`
}

// Logins that are not those with a token of the configuration.
const (
	viaLink = "link" // the token that was made at the start
	viaOIDC = "oidc"
)

// via returns how sessions of t refer to it.
func (t Token) via() string {
	if t.Link {
		return viaLink
	}
	return hex.EncodeToString(t.Hash[:])
}

// A sealer makes what only the gate can read, make and recognise.
type sealer struct {
	aead   cipher.AEAD
	mac    []byte // the key of what pages hand back
	cookie string // the end of the names of cookies: other gates on a host have others
}

func newSealer(key [32]byte) (s sealer, err error) {
	derive := func(what string, n int) []byte {
		out, failed := hkdf.Key(sha256.New, key[:], nil, "thoughtgate operators: "+what, n)
		err = errors.Join(err, failed)
		return out
	}
	cookie := hex.EncodeToString(derive("name of cookies", 4))
	mac := derive("forms", sha256.Size)
	block, failed := aes.NewCipher(derive("sessions", 32))
	if err = errors.Join(err, failed); err != nil {
		return s, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return sealer{aead, mac, cookie}, err
}

// maxCookie is how much browsers keep.
const maxCookie = 3800

// errTooLarge reports something that no cookie can hold.
var errTooLarge = errors.New("operator: too large for a cookie")

func (s sealer) seal(purpose string, value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	//nolint:gosec // the nonce is nil because this AEAD makes its own
	sealed := base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, []byte(purpose)))
	if len(sealed) > maxCookie {
		return "", errTooLarge
	}
	return sealed, nil
}

func (s sealer) open(purpose, sealed string, value any) bool {
	if len(sealed) > maxCookie {
		return false
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return false
	}
	text, err := s.aead.Open(nil, nil, data, []byte(purpose))
	return err == nil && json.Unmarshal(text, value) == nil
}

// sign returns a text that only the gate can make for id.
func (s sealer) sign(id string) string {
	h := hmac.New(sha256.New, s.mac)
	_, _ = h.Write([]byte(id))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

const forSessions = "session"

// begin starts a session: it gives the browser its cookie.
func (a *Auth) begin(w http.ResponseWriter, r *http.Request, s session) error {
	s.ID = rand.Text()
	s.Expires = a.cfg.Now().Add(a.cfg.Session).Unix()
	sealed, err := a.sealer.seal(forSessions, s)
	if err != nil {
		return err
	}
	a.setCookie(w, r, sessionCookie, sealed, a.cfg.Session)
	return nil
}

// Names of cookies.
const (
	sessionCookie = "thoughtgate"
	loginCookie   = "thoughtgate-login"
)

// cookieName returns the full name of a cookie. Browsers let only this very host
// set one whose name begins with __Host-, and only over TLS.
func (a *Auth) cookieName(r *http.Request, name string) string {
	name += "-" + a.sealer.cookie
	if a.secure(r) {
		return "__Host-" + name
	}
	return name
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
	if len(given) != 1 {
		return "" // with two of them, one is not the gate's
	}
	return given[0].Value
}

// resume returns who the session of a request belongs to.
func (a *Auth) resume(sealed string) (Operator, *Error) {
	var s session
	if !a.sealer.open(forSessions, sealed, &s) {
		return Operator{}, errBadSession
	}
	if a.cfg.Now().Unix() >= s.Expires || a.spent.has(s.ID) {
		return Operator{}, errSessionEnded
	}
	o := Operator{Way: BySession, session: s}
	if s.Via == viaOIDC {
		return a.fromElsewhere(o)
	}
	for _, t := range a.cfg.Tokens {
		if t.via() == s.Via {
			o.Name, o.Groups, o.Role = t.Name, t.Groups, t.Role
			return o, nil
		}
	}
	return Operator{}, errSessionEnded // its token is no longer one
}

// fromElsewhere returns who logged in with the identity provider, if they would
// be let in now, with the role that they have now.
func (a *Auth) fromElsewhere(o Operator) (Operator, *Error) {
	if a.provider == nil {
		return Operator{}, errSessionEnded
	}
	s := o.session
	o.Way, o.Name, o.Groups, o.Aliases, o.Role = ByOIDC, s.Name, s.Groups, s.Aliases, a.provider.role(s)
	if o.Role == "" || s.Issuer != a.provider.Issuer || a.provider.bars(s) != "" {
		return Operator{}, errSessionEnded
	}
	return o, nil
}

// during returns a context that ends with a session, be its time over or be it
// logged out of, and what to call when it is no longer needed.
func (a *Auth) during(ctx context.Context, s session) (context.Context, func()) {
	if s.ID == "" {
		return ctx, func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Unix(s.Expires, 0).Sub(a.cfg.Now()))
	leave := a.served.add(s.ID, cancel)
	if a.spent.has(s.ID) { // since it was looked at
		cancel()
	}
	return ctx, func() { leave(); cancel() }
}

// served knows what is being served to each session, to be able to end it.
type served struct {
	mu sync.Mutex
	of map[string]map[*context.CancelFunc]struct{}
}

func (s *served) add(id string, end context.CancelFunc) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[string]map[*context.CancelFunc]struct{})
	}
	if s.of[id] == nil {
		s.of[id] = make(map[*context.CancelFunc]struct{})
	}
	s.of[id][&end] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.of[id], &end); len(s.of[id]) == 0 {
			delete(s.of, id)
		}
	}
}

func (s *served) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for end := range s.of[id] {
		(*end)()
	}
}

// spent remembers what must not be used again, until it could not be anyway.
type spent struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// maxSpent bounds what is remembered. Only who is logged in adds to it.
const maxSpent = 100_000

// add reports whether id was not spent before.
func (s *spent) add(id string, until, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.until[id]; twice {
		return false
	}
	if s.until == nil {
		s.until = make(map[string]time.Time)
	}
	if len(s.until) >= maxSpent {
		for id, until := range s.until {
			if until.Before(now) {
				delete(s.until, id)
			}
		}
	}
	s.until[strings.Clone(id)] = until
	return true
}

func (s *spent) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, yes := s.until[id]
	return yes
}
