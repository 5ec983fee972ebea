package operator

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// A LoginPage is what the page on which people log in has to say. Its form is
// sent by POST to /login with the fields token and next.
type LoginPage struct {
	Status int    // of the answer
	Token  bool   // one can log in with a token
	OIDC   string // the name of the identity provider, or nothing; the link is OIDCPath
	Next   string // where to go afterwards: a path of this gate
	Error  string // what went wrong with the last attempt, or nothing
}

// A Page answers with the page on which people log in.
type Page func(http.ResponseWriter, *http.Request, LoginPage)

// OIDCPath returns the link to a login with the identity provider.
func (p LoginPage) OIDCPath() string { return "/login/oidc?next=" + url.QueryEscape(p.Next) }

// LoginURL returns the link to the page on which somebody logs in to see r.
func LoginURL(r *http.Request) string {
	if !safe(r.Method) {
		return "/login"
	}
	return "/login?next=" + url.QueryEscape(r.URL.RequestURI())
}

// Register adds what people need to log in and out: GET and POST /login, the way
// to the identity provider and back if there is one, and POST /logout.
func (a *Auth) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", a.private(a.showLogin))
	mux.HandleFunc("POST /login", a.private(a.login))
	if a.provider != nil {
		mux.HandleFunc("GET /login/oidc", a.private(a.leave))
		mux.HandleFunc("GET "+callbackPath, a.private(a.comeBack))
	}
	mux.HandleFunc("POST /logout", a.Handle(Viewer, a.refuseLogout, a.logout))
}

// private sets what pages that see secrets need.
func (a *Auth) private(serve http.HandlerFunc) http.HandlerFunc {
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

// showLogin shows the page, or takes the token in a link and leads away from it
// so that it does not stay in the browser.
func (a *Auth) showLogin(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	next := local(q.Get("next"))
	if !q.Has("token") || !opensPage(r) {
		a.page(w, r, LoginPage{Status: http.StatusOK, Next: next})
		return
	}
	if !slices.ContainsFunc(a.cfg.Tokens, func(t Token) bool { return t.Link }) {
		a.page(w, r, LoginPage{Status: http.StatusUnauthorized, Next: next, Error: "This sign-in link has expired."})
		return
	}
	t, ok, wait := a.try(r, q.Get("token"))
	if !ok || !t.Link {
		a.failed(w, r, wait, LoginPage{Next: next, Error: "This sign-in link is not valid. Use the one that the gate printed when it started last, or that thoughtgate desk link prints."})
		return
	}
	a.enter(w, r, t, next)
}

// opensPage reports whether r can be that of a person who opens a link. What another
// site has the browser of an operator load, such as an image, is none of that: its
// tokens are not tried, or any site could use up the attempts of the operator.
func opensPage(r *http.Request) bool {
	dest, mode := r.Header.Get("Sec-Fetch-Dest"), r.Header.Get("Sec-Fetch-Mode")
	return (dest == "" || dest == "document") && (mode == "" || mode == "navigate")
}

// login takes the token in a form.
func (a *Auth) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	next := local(r.PostFormValue("next"))
	if !a.sameSite(r) {
		a.page(w, r, LoginPage{Status: http.StatusForbidden, Next: next, Error: "Please send this form again."})
		return
	}
	t, ok, wait := a.try(r, strings.TrimSpace(r.PostFormValue("token")))
	if !ok {
		a.failed(w, r, wait, LoginPage{Next: next, Error: "Unknown token."})
		return
	}
	a.enter(w, r, t, next)
}

// failed shows the page again. There were too many attempts before if there is a
// time to wait: then nothing was tried.
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

// enter begins a session of the token's.
func (a *Auth) enter(w http.ResponseWriter, r *http.Request, t Token, next string) {
	if a.tooOften(w, r, t.Name, next) {
		return
	}
	if err := a.begin(w, r, session{Via: t.via()}); err != nil {
		a.notBegun(w, r, next, err)
		return
	}
	a.cfg.Log.InfoContext(r.Context(), "operator signed in", "by", t.Name, "way", "token", "address", addressOf(r))
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // every next went through local
}

// tooOften counts a login as a change that the operator makes, and reports whether there
// were too many. Then it shows the page again.
func (a *Auth) tooOften(w http.ResponseWriter, r *http.Request, name, next string) bool {
	wait := a.changes.take(name, a.cfg.Now())
	if wait > 0 {
		a.failed(w, r, wait, LoginPage{Next: next})
	}
	return wait > 0
}

// notBegun says that a session could not be begun.
func (a *Auth) notBegun(w http.ResponseWriter, r *http.Request, next string, err error) {
	a.cfg.Log.ErrorContext(r.Context(), "login", "error", err)
	a.page(w, r, LoginPage{Status: http.StatusServiceUnavailable, Next: next, Error: "The gate's store cannot be reached at the moment. Please try again."})
}

// logout ends a session, on every replica and for good. If the store does not
// delete it, it has not ended, and the browser keeps it to try again.
func (a *Auth) logout(w http.ResponseWriter, r *http.Request, who Operator) {
	if who.session.record != "" {
		if err := a.drop(r.Context(), who.session.record); err != nil {
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

// local returns where to go after a login: next if that is a place on this gate.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(next, "/") || !plain(u.Path) ||
		strings.HasPrefix(u.Path, "/login") {
		return "/"
	}
	return next
}

// plain reports whether everybody reads a path in the same way: it has no dots or
// empty parts to leave out, and no characters that browsers drop or replace.
func plain(p string) bool {
	clean := path.Clean(p)
	return (p == clean || p == clean+"/") && p != "//" && !strings.Contains(p, `\`) && !strings.ContainsFunc(p, unicode.IsControl)
}

func (a *Auth) page(w http.ResponseWriter, r *http.Request, p LoginPage) {
	p.Token = len(a.cfg.Tokens) > 0
	if a.provider != nil {
		p.OIDC = a.provider.Name
	}
	if p.Error == "" && !a.CanSignIn() {
		p.Error = "Nobody can sign in: neither a token nor an identity provider is configured."
	}
	a.cfg.Page(w, r, p)
}

func plainPage(w http.ResponseWriter, _ *http.Request, p LoginPage) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(p.Status)
	var b strings.Builder
	b.WriteString("<!doctype html><html lang=en><meta charset=utf-8><title>Sign in to ThoughtGate</title><h1>ThoughtGate</h1>\n")
	if p.Error != "" {
		fmt.Fprintf(&b, "<p role=alert>%s</p>\n", html.EscapeString(p.Error))
	}
	if p.OIDC != "" {
		fmt.Fprintf(&b, "<p><a href=\"%s\">Sign in with %s</a></p>\n", html.EscapeString(p.OIDCPath()), html.EscapeString(p.OIDC))
	}
	if p.Token {
		fmt.Fprintf(&b, "<form method=post action=/login><input type=hidden name=next value=\"%s\">"+
			"<label>Token <input type=password name=token autocomplete=current-password required></label> <button>Sign in</button></form>\n",
			html.EscapeString(p.Next))
	}
	_, _ = w.Write([]byte(b.String()))
}
