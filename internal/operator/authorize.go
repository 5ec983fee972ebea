package operator

import (
	"bytes"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// An Error says why a request is not served, as far as that may be shown.
type Error struct {
	Status     int
	Type       string // stable
	Message    string
	RetryAfter time.Duration // of rate_limited
}

// Error implements error.
func (e *Error) Error() string { return e.Type + ": " + e.Message }

// Is makes errors of the same type alike.
func (e *Error) Is(other error) bool {
	o, ok := other.(*Error)
	return ok && o.Type == e.Type && o.Message == e.Message
}

// Types of errors.
const (
	TypeUnauthorized = "unauthorized" // nobody knows who it is: log in
	TypeForbidden    = "forbidden"    // it is known, and may not
	TypeCrossSite    = "cross_site"   // it may have been another site's doing
	TypeRateLimited  = "rate_limited"
	TypeUnavailable  = "store_unavailable" // it cannot be found out who it is
)

var (
	errNothing      = &Error{Status: http.StatusUnauthorized, Type: TypeUnauthorized, Message: "a token or a sign-in is required"}
	errBadToken     = &Error{Status: http.StatusUnauthorized, Type: TypeUnauthorized, Message: "unknown token"}
	errBadSession   = &Error{Status: http.StatusUnauthorized, Type: TypeUnauthorized, Message: "unknown session"}
	errSessionEnded = &Error{Status: http.StatusUnauthorized, Type: TypeUnauthorized, Message: "this session has ended"}
	errUnavailable  = &Error{Status: http.StatusServiceUnavailable, Type: TypeUnavailable, Message: "the gate's store cannot be reached at the moment"}
	errUnverified   = &Error{Status: http.StatusServiceUnavailable, Type: TypeUnavailable, Message: "the identity provider cannot be reached to confirm that you still have access"}
	errForbidden    = &Error{Status: http.StatusForbidden, Type: TypeForbidden, Message: "your role does not allow this"}
	errCrossSite    = &Error{Status: http.StatusForbidden, Type: TypeCrossSite, Message: "this request did not come from a page of this gate; reload the page"}
)

// tooMany refuses a request because of something of which there were too many.
func tooMany(what string, wait time.Duration) *Error {
	message := fmt.Sprintf("too many %s; try again in %v", what, wholeSeconds(wait))
	return &Error{Status: http.StatusTooManyRequests, Type: TypeRateLimited, Message: message, RetryAfter: wait}
}

// What there can be too many of.
const (
	tooManyRequests = "requests"
	tooManyFailures = "sign-ins with a wrong token, from this address or from all addresses, so this token was not checked"
)

// wholeSeconds rounds a wait up, so that it is over by then.
func wholeSeconds(wait time.Duration) time.Duration {
	return (wait + time.Second - 1).Truncate(time.Second)
}

// WriteHeaders sets the headers that belong to e.
func (e *Error) WriteHeaders(h http.Header) {
	switch e.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="thoughtgate"`)
	case http.StatusTooManyRequests:
		h.Set("Retry-After", strconv.Itoa(int(wholeSeconds(e.RetryAfter)/time.Second)))
	}
}

// Authenticate returns who makes a request, by the token in its header or else
// by the session in its cookie. An error is an [*Error].
//
// It says nothing of what they may do, nor whether they meant to: use
// [Auth.Authorize] for that.
func (a *Auth) Authenticate(r *http.Request) (Operator, error) {
	o, err := a.latest().recognise(r)
	switch err {
	case nil:
		return o, nil
	case errBadToken, errBadSession:
		a.cfg.Log.WarnContext(logging.Limited(r.Context(), err.Message, addressOf(r)), "operator not authenticated", "address", addressOf(r), "path", r.URL.Path, "why", err.Message)
	}
	return Operator{}, err
}

func (a *Auth) recognise(r *http.Request) (Operator, *Error) {
	if shown, given := bearer.In(r); given {
		t, ok, wait := a.try(r, shown)
		switch {
		case wait > 0:
			return Operator{}, tooMany(tooManyFailures, wait)
		case !ok:
			return Operator{}, errBadToken
		}
		return Operator{Name: t.Name, Groups: t.Groups, Role: t.Role, Way: ByToken, token: t.via()}, nil
	}
	sealed := a.cookie(r, sessionCookie)
	if sealed == "" {
		if _, err := a.cfg.Ring.Label(r.Context()); err != nil && len(r.Cookies()) > 0 {
			return Operator{}, a.unavailable(r.Context(), err)
		}
		return Operator{}, errNothing
	}
	return a.resume(r.Context(), sealed)
}

// Authorize returns who makes a request if they may do what role may, not too
// often, and if it was them and not another site that had their browser send
// it. An error is an [*Error].
//
// It reads the body of a request that changes something into memory, and goes by
// what its sender may do after that: nothing is waited for between the check and
// the change.
func (a *Auth) Authorize(r *http.Request, role Role) (Operator, error) {
	a = a.latest()
	o, err := a.Authenticate(r)
	if err != nil {
		return o, err
	}
	often := a.changes
	if safe(r.Method) {
		often = a.looks
	}
	if wait := often.take(o.Name, a.cfg.Now()); wait > 0 {
		return o, tooMany(tooManyRequests, wait)
	}
	if !o.Role.Includes(role) {
		return o, errForbidden
	}
	if safe(r.Method) {
		return o, nil
	}
	if o.Way != ByToken && !a.sameSite(r) {
		return o, errCrossSite
	}
	o, why := a.afterBody(r, o, role)
	if why != nil {
		return o, why
	}
	if o.Way != ByToken && !a.knowsForm(r, o) {
		return o, errCrossSite
	}
	return o, nil
}

// afterBody waits for the body of a request of o, for which its client can take some
// time, and returns o as they are then, if they may still do what role may.
func (a *Auth) afterBody(r *http.Request, o Operator, role Role) (Operator, *Error) {
	if r.ContentLength == 0 {
		return o, nil
	}
	readBody(r)
	now, err := a.latest().again(r.Context(), o)
	switch {
	case err != nil:
		return o, err
	case !now.Role.Includes(role):
		return now, errForbidden
	}
	return now, nil
}

// readBody reads the body of r into memory. Handlers then get it from there, and the
// error if it is not complete or larger than [maxForm].
func readBody(r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxForm))
	if err == nil {
		err = io.EOF
	}
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failure{err}))
}

// A failure is a reader that has nothing but an error.
type failure struct{ err error }

// Read implements [io.Reader].
func (f failure) Read([]byte) (int, error) { return 0, f.err }

// safe reports whether requests with a method change nothing.
func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// sameSite reports whether the browser says that a page of this gate made it
// send r. Every browser says so with requests that can change something.
func (a *Auth) sameSite(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil || origin.Host == "" {
		return false
	}
	return strings.EqualFold(origin.Host, r.Host) || a.cfg.URL != nil && strings.EqualFold(origin.Host, a.cfg.URL.Host)
}

// How a request shows that a page of the gate made it.
const (
	FormField  = "csrf"         // in a form
	FormHeader = "X-CSRF-Token" // in a request by a script
)

// FormToken returns what the pages that o sees must send along with every
// request that changes something, as [FormField] or [FormHeader]. It is empty
// for those who need none.
func (a *Auth) FormToken(o Operator) string {
	return o.session.Form
}

// The sizes of the largest forms that are read: of somebody who signs in, and of
// somebody who has, and may reject many calls at once.
const (
	maxLogin = 64 << 10
	maxForm  = 1 << 20
)

func (a *Auth) knowsForm(r *http.Request, o Operator) bool {
	given := r.Header.Get(FormHeader)
	if given == "" {
		given = r.PostFormValue(FormField)
	}
	want := a.FormToken(o)
	return want != "" && subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// A Service answers a request of somebody who may make it.
type Service func(w http.ResponseWriter, r *http.Request, who Operator)

// A Refusal answers a request that is not served. The headers that belong to
// the error are set already.
type Refusal func(w http.ResponseWriter, r *http.Request, why *Error)

// Handle returns a handler that serves those who may do what role may, and
// refuses all others. It logs what operators do. A session that ends while it is
// served ends the context of the request. If a has been replaced, what has replaced
// it decides.
func (a *Auth) Handle(role Role, refuse Refusal, serve Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		seen := &witness{ResponseWriter: w, status: http.StatusOK}
		o, err := a.Authorize(r, role)
		if why, refused := err.(*Error); refused { //nolint:errorlint // nothing wraps it
			why.WriteHeaders(header)
			refuse(seen, r, why)
		} else {
			ctx, done := a.during(r.Context(), o, role)
			defer done()
			r = r.WithContext(ctx)
			serve(seen, r, o)
		}
		if o.Name != "" {
			a.cfg.Log.InfoContext(r.Context(), "operator request", "by", o.Name, "role", o.Role, "way", o.Way, "route", r.Pattern, "status", seen.status)
		}
	}
}

// A witness knows what was answered.
type witness struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w *witness) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] reach what it is for.
func (w *witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }
