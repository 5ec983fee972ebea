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

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/human"
	"github.com/thoughtgate/thoughtgate-go/internal/identity"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// An Error is the reason for refusing a request, as it is shown to the client.
type Error struct {
	Status     int
	Type       string // stable
	Message    string
	RetryAfter time.Duration // of rate_limited
}

// Error implements error.
func (e *Error) Error() string { return e.Type + ": " + e.Message }

// Is reports whether other has the same type and message.
func (e *Error) Is(other error) bool {
	o, ok := other.(*Error)
	return ok && o.Type == e.Type && o.Message == e.Message
}

// Types of errors.
const (
	TypeUnauthorized = "unauthorized" // not authenticated
	TypeForbidden    = "forbidden"    // authenticated, without the role
	TypeCrossSite    = "cross_site"   // another site may have made the request
	TypeRateLimited  = "rate_limited"
	TypeUnavailable  = "store_unavailable" // authentication is not possible at present
)

var (
	errNoCredentials = &Error{Status: http.StatusUnauthorized, Type: TypeUnauthorized, Message: "a token or a sign-in is required"}
	errBadToken      = &Error{Status: http.StatusUnauthorized, Type: TypeUnauthorized, Message: "unknown token"}
	errBadSession    = &Error{Status: http.StatusUnauthorized, Type: TypeUnauthorized, Message: "unknown session"}
	errSessionEnded  = &Error{Status: http.StatusUnauthorized, Type: TypeUnauthorized, Message: "this session has ended"}
	errUnavailable   = &Error{Status: http.StatusServiceUnavailable, Type: TypeUnavailable, Message: "the gate's store cannot be reached at the moment"}
	errUnverified    = &Error{Status: http.StatusServiceUnavailable, Type: TypeUnavailable, Message: "the identity provider cannot be reached to confirm that you still have access"}
	errCrossSite     = &Error{Status: http.StatusForbidden, Type: TypeCrossSite, Message: "this request did not come from a page of this gate; reload the page"}
)

// tooMany returns the error for a request that exceeds a rate limit.
func tooMany(what string, wait time.Duration) *Error {
	message := fmt.Sprintf("too many %s; try again in %s", what, human.Duration(wholeSeconds(wait)))
	return &Error{Status: http.StatusTooManyRequests, Type: TypeRateLimited, Message: message, RetryAfter: wait}
}

const (
	tooManyRequests = "requests"
	tooManyFailures = "sign-ins with a wrong token, from this address or from all addresses, so this token was not checked"
)

// wholeSeconds rounds a wait up.
func wholeSeconds(wait time.Duration) time.Duration {
	return (wait + time.Second - 1).Truncate(time.Second)
}

// WriteHeaders sets the headers for e.
func (e *Error) WriteHeaders(h http.Header) {
	switch e.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="thoughtgate"`)
	case http.StatusTooManyRequests:
		h.Set("Retry-After", strconv.Itoa(int(wholeSeconds(e.RetryAfter)/time.Second)))
	}
}

// Authenticate returns the operator who makes a request, by the token in its header or by
// the session in its cookie. An error is an [*Error].
//
// It checks neither the role nor the origin of the request: see [Auth.Authorize].
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
	if shown, given := identity.BearerToken(r); given {
		t, ok, wait := a.tryToken(r, shown)
		switch {
		case wait > 0:
			return Operator{}, tooMany(tooManyFailures, wait)
		case !ok:
			return Operator{}, errBadToken
		}
		return Operator{Name: t.Name, Groups: t.Groups, Role: t.Role, Method: ByToken, token: t.via()}, nil
	}
	sealed := a.cookie(r, sessionCookie)
	if sealed == "" {
		if _, err := a.cfg.Ring.Label(r.Context()); err != nil && len(r.Cookies()) > 0 {
			return Operator{}, a.unavailable(r.Context(), err)
		}
		return Operator{}, errNoCredentials
	}
	return a.operatorByCookie(r.Context(), sealed)
}

// Authorize returns the operator who makes a request. It refuses operators without the role,
// too many requests, and requests that another site made the browser send. An error is an
// [*Error].
//
// If the request changes something, Authorize reads the body into memory and then checks the
// role again, so that no rights are used that ended while the body arrived.
func (a *Auth) Authorize(r *http.Request, role Role) (Operator, error) {
	a = a.latest()
	o, err := a.Authenticate(r)
	if err != nil {
		return o, err
	}
	limiter := a.writes
	if safe(r.Method) {
		limiter = a.reads
	}
	if wait := limiter.take(o.Name, a.cfg.Now()); wait > 0 {
		return o, tooMany(tooManyRequests, wait)
	}
	//mutate:false TestRoles roles are not checked
	if !o.Role.Includes(role) {
		return o, a.lacksRole(r, o, role)
	}
	if safe(r.Method) {
		return o, nil
	}
	//mutate:swap "sameSite(r)" "sameSite(r) && !a.hasFormToken(r, o)" TestCrossSite other sites send forms
	if o.Method != ByToken && !a.sameSite(r) {
		return o, errCrossSite
	}
	o, why := a.authorizeAfterBody(r, o, role)
	if why != nil {
		return o, why
	}
	//mutate:swap "hasFormToken(r, o)" "hasFormToken(r, o) && !a.sameSite(r)" TestCrossSite forms need no token
	if o.Method != ByToken && !a.hasFormToken(r, o) {
		return o, errCrossSite
	}
	return o, nil
}

// authorizeAfterBody reads the body of a request, and returns o with the present role if it
// still suffices.
func (a *Auth) authorizeAfterBody(r *http.Request, o Operator, role Role) (Operator, *Error) {
	if r.ContentLength == 0 {
		return o, nil
	}
	bufferBody(r)
	//mutate:swap "a.latest().reload(r.Context(), o)" "o, (*Error)(nil)" TestRightsEndDuringBody rights that end while a body arrives count
	now, err := a.latest().reload(r.Context(), o)
	switch {
	case err != nil:
		return o, err
	case !now.Role.Includes(role):
		return now, a.lacksRole(r, now, role)
	}
	return now, nil
}

// lacksRole logs that an operator lacks a role, and returns the error.
func (a *Auth) lacksRole(r *http.Request, o Operator, role Role) *Error {
	a.cfg.Log.WarnContext(logging.Limited(r.Context(), TypeForbidden, o.Name), "operator lacks the role for a request",
		"by", o.Name, "role", o.Role, "needs", role, "http_method", r.Method, "path", r.URL.Path, "method", o.Method, "address", addressOf(r))
	return &Error{Status: http.StatusForbidden, Type: TypeForbidden, Message: fmt.Sprintf("this needs the role %s, and yours is %s", role, o.Role)}
}

// bufferBody replaces the body of r by a copy in memory. Reading the copy ends with an error
// if the body was incomplete or larger than [maxForm].
func bufferBody(r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxForm))
	if err == nil {
		err = io.EOF
	}
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), errorReader{err}))
}

// An errorReader returns an error.
type errorReader struct{ err error }

// Read implements [io.Reader].
func (f errorReader) Read([]byte) (int, error) { return 0, f.err }

// safe reports whether a method does not change anything.
func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// sameSite reports whether a page of this gate made the request, according to headers that
// all browsers send with requests that can change something.
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

// Where a request has the form token.
const (
	FormField  = "csrf"         // in a form
	FormHeader = "X-CSRF-Token" // in a request by a script
)

// FormToken returns the token that pages for o must send with every request that changes
// something, as [FormField] or [FormHeader]. It is empty for [ByToken].
func (a *Auth) FormToken(o Operator) string {
	return o.session.Form
}

const (
	maxLogin = 64 << 10 // bytes of a form before signing in
	maxForm  = 1 << 20  // bytes of other forms, which may reject many calls at once
)

func (a *Auth) hasFormToken(r *http.Request, o Operator) bool {
	given := r.Header.Get(FormHeader)
	if given == "" {
		given = r.PostFormValue(FormField)
	}
	want := a.FormToken(o)
	return want != "" && subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// A HandlerFunc serves an authorized request.
type HandlerFunc func(w http.ResponseWriter, r *http.Request, who Operator)

// An ErrorFunc answers a refused request. The headers for the error are already set.
type ErrorFunc func(w http.ResponseWriter, r *http.Request, why *Error)

// Handle returns a handler that calls serve for operators with a role and refuse for all
// others. It logs the request. The context of the request ends with the session or the role
// of the operator. If a was replaced, its replacement decides.
func (a *Auth) Handle(role Role, refuse ErrorFunc, serve HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		recorder := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		o, err := a.Authorize(r, role)
		if why, refused := err.(*Error); refused { //nolint:errorlint // nothing wraps it
			why.WriteHeaders(header)
			refuse(recorder, r, why)
		} else {
			ctx, done := a.watch(r.Context(), o, role)
			defer done()
			r = r.WithContext(admission.WithClient(ctx, admission.Principal(o.Name)))
			serve(recorder, r, o)
		}
		if o.Name != "" {
			a.cfg.Log.InfoContext(r.Context(), "operator request", "by", o.Name, "role", o.Role, "method", o.Method, "route", r.Pattern, "status", recorder.status)
		}
	}
}

// A statusRecorder remembers the status of a response.
type statusRecorder struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusRecorder) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap implements the method that [http.ResponseController] uses.
func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
