package operator

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// A LoginPage is the content of the sign-in page. Its form is sent by POST to /login with
// the fields token and next.
type LoginPage struct {
	Status int    // of the response
	Token  bool   // whether signing in with a token is possible
	OIDC   string // the name of the identity provider, or ""; see OIDCPath
	Next   string // the path to open afterwards
	Error  string // why the last attempt failed, or ""
}

// A Page answers with the sign-in page.
type Page func(http.ResponseWriter, *http.Request, LoginPage)

// OIDCPath returns the path at which signing in with the identity provider begins.
func (p LoginPage) OIDCPath() string { return "/login/oidc?next=" + url.QueryEscape(p.Next) }

// Origin returns the origin of the gate's own pages in the browser of a request. Without a configured
// URL, it has the port of this listener, because programs at other ports have other pages.
func (a *Auth) Origin(r *http.Request) *url.URL {
	if u := a.latest().cfg.URL; u != nil {
		return u
	}
	origin := &url.URL{Scheme: "http", Host: r.Host}
	if r.TLS != nil {
		origin.Scheme = "https"
	}
	//mutate:false internal/inbox.TestSignatureOfAnotherPort a program at another port of localhost asks for the passkey
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		origin.Host = net.JoinHostPort(origin.Hostname(), strconv.Itoa(local.Port))
	}
	return origin
}

// LoginURL returns the path of the sign-in page that then leads to r.
func LoginURL(r *http.Request) string {
	if !safe(r.Method) {
		return "/login"
	}
	return "/login?next=" + url.QueryEscape(r.URL.RequestURI())
}

// Register adds the routes for signing in and out: GET and POST /login, those for the
// identity provider if there is one, and POST /logout.
func (a *Auth) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", a.private(a.showLogin))
	mux.HandleFunc("POST /login", a.private(a.login))
	if a.provider != nil {
		mux.HandleFunc("GET /login/oidc", a.private(a.startOIDC))
		mux.HandleFunc("GET "+callbackPath, a.private(a.finishOIDC))
	}
	mux.HandleFunc("POST /logout", a.Handle(Viewer, a.refuseLogout, a.logout))
}

// private sets the headers of pages that handle secrets.
func (*Auth) private(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		serve(w, r)
	}
}

// showLogin shows the sign-in page. If the request has a token of a sign-in link, it signs in
// and redirects, so that the token does not stay in the address bar.
func (a *Auth) showLogin(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	next := localPath(q.Get("next"))
	if !q.Has("token") || !opensPage(r) {
		a.page(w, r, LoginPage{Status: http.StatusOK, Next: next})
		return
	}
	if !slices.ContainsFunc(a.cfg.Tokens, func(t Token) bool { return t.Link }) {
		a.page(w, r, LoginPage{Status: http.StatusUnauthorized, Next: next, Error: "Links do not sign in here, because the gate has tokens of its own. Sign in with yours."})
		return
	}
	t, ok, wait := a.tryToken(r, q.Get("token"))
	if !ok || !t.Link {
		a.failed(w, r, wait, LoginPage{Next: next, Error: "This sign-in link is not valid. Use the link that the gate printed at its last start, or run thoughtgate desk link."})
		return
	}
	a.signIn(w, r, t, next)
}

// opensPage reports whether a person may have opened a link. Tokens in other requests, such
// as for an image on another site, are not tried: otherwise any site could use up the
// attempts of an operator.
func opensPage(r *http.Request) bool {
	dest, mode := r.Header.Get("Sec-Fetch-Dest"), r.Header.Get("Sec-Fetch-Mode")
	return (dest == "" || dest == "document") && (mode == "" || mode == "navigate")
}

// login signs in with the token in a form.
func (a *Auth) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	next := localPath(r.PostFormValue("next"))
	if !a.sameSite(r) {
		a.page(w, r, LoginPage{Status: http.StatusForbidden, Next: next, Error: "Please send this form again."})
		return
	}
	t, ok, wait := a.tryToken(r, strings.TrimSpace(r.PostFormValue("token")))
	if !ok {
		a.failed(w, r, wait, LoginPage{Next: next, Error: "Unknown token."})
		return
	}
	a.signIn(w, r, t, next)
}

// failed shows the sign-in page after a failed attempt, or after too many attempts if wait
// is not 0.
func (a *Auth) failed(w http.ResponseWriter, r *http.Request, wait time.Duration, p LoginPage) {
	p.Status = http.StatusUnauthorized
	if wait > 0 {
		limited := tooMany(tooManyRequests, wait)
		limited.WriteHeaders(w.Header())
		p.Status, p.Error = limited.Status, "Too many attempts. Try again in a minute."
	} else {
		a.cfg.Log.WarnContext(logging.Limited(r.Context(), "unknown token", addressOf(r)), "login failed", "address", addressOf(r), "path", r.URL.Path)
	}
	a.page(w, r, p)
}

// signIn starts a session for a token.
func (a *Auth) signIn(w http.ResponseWriter, r *http.Request, t Token, next string) {
	if a.limitLogin(w, r, t.Name, next) {
		return
	}
	if err := a.startSession(w, r, session{Via: t.via()}); err != nil {
		a.storeFailed(w, r, next, err)
		return
	}
	a.cfg.Log.InfoContext(r.Context(), "operator signed in", "by", t.Name, "method", ByToken, "address", addressOf(r))
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // every next went through local
}

// limitLogin counts a login as a write request, and reports whether there were too many. In
// that case it shows the sign-in page.
func (a *Auth) limitLogin(w http.ResponseWriter, r *http.Request, name, next string) bool {
	//mutate:swap "a.writes" "0 * a.writes" TestSignInsCountAsChanges logins are not limited
	wait := a.writes.take(name, a.cfg.Now())
	if wait > 0 {
		a.failed(w, r, wait, LoginPage{Next: next})
	}
	return wait > 0
}

// storeFailed shows that the session could not be stored.
func (a *Auth) storeFailed(w http.ResponseWriter, r *http.Request, next string, err error) {
	a.cfg.Log.ErrorContext(r.Context(), "session not stored", "err", err)
	a.page(w, r, LoginPage{Status: http.StatusServiceUnavailable, Next: next, Error: "The gate's store cannot be reached at the moment. Please try again."})
}

// logout ends a session on all replicas. If the store fails, the session continues and the
// browser keeps the cookie.
func (a *Auth) logout(w http.ResponseWriter, r *http.Request, who Operator) {
	if who.session.record != "" {
		//mutate:swap "a.endSession(r.Context(), who.session.record)" "r.Context().Err()" TestSessionEnds a session continues after signing out
		if err := a.endSession(r.Context(), who.session.record); err != nil {
			why := a.unavailable(r.Context(), err)
			http.Error(w, "You are still signed in: "+why.Message+".", why.Status)
			return
		}
	}
	a.setCookie(w, r, sessionCookie, "", 0)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

func (a *Auth) refuseLogout(w http.ResponseWriter, r *http.Request, why *Error) {
	if why.Type == TypeUnauthorized {
		a.setCookie(w, r, sessionCookie, "", 0)
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	http.Error(w, why.Message, why.Status)
}

// localPath returns next if it is a path of this gate, and / otherwise.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(next, "/") || !isCanonicalPath(u.Path) ||
		strings.HasPrefix(u.Path, "/login") {
		return "/"
	}
	return next
}

// isCanonicalPath reports whether browsers and servers read a path alike: it has no dot
// segments, empty segments, backslashes or control characters.
func isCanonicalPath(p string) bool {
	clean := path.Clean(p)
	return (p == clean || p == clean+"/") && p != "//" && !strings.Contains(p, `\`) && !strings.ContainsFunc(p, unicode.IsControl)
}

func (a *Auth) page(w http.ResponseWriter, r *http.Request, p LoginPage) {
	p.Token = len(a.cfg.Tokens) > 0
	if a.provider != nil {
		p.OIDC = a.provider.Name
	}
	if p.Error == "" && !a.CanSignIn() {
		p.Error = "Signing in is not possible: neither a token nor an identity provider is configured."
	}
	a.cfg.Page(w, r, p)
}

// plainPage is the default of Config.Page.
func plainPage(w http.ResponseWriter, _ *http.Request, p LoginPage) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(p.Status)
	_, _ = fmt.Fprintf(w, "%s %+v\n", p.OIDCPath(), p)
}
