// Package inbox is where approvers look at held calls and decide: pages made on
// the operators' listener, kept up to date by a stream of events.
//
// The pages do what is essential without a script: links and forms. One small
// script makes them live and lets the keyboard be used. Everything that agents
// and upstreams wrote is foreign: it is shown as text and nothing else, with
// what cannot be seen spelled out, and the policy that browsers are given
// (Content-Security-Policy) lets nothing run that is not the gate's own file.
//
// Package operator authenticates users and checks that a request came from a
// page of this gate; package casefile loads what is shown; package approval
// handles decisions.
package inbox

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/channel/push"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

//go:embed assets
var files embed.FS

// New returns an inbox.
func New(c Config) (*Inbox, error) {
	if c.Desk == nil || c.Cases == nil || c.Now == nil {
		return nil, errors.New("inbox: needs a desk, its cases and a clock")
	}
	if c.KeepAlive <= 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.Channels == nil {
		c.Channels = func() []channel.Status { return nil }
	}
	if c.Push == nil {
		c.Push = func() *push.Push { return nil }
	}
	if c.NeedsRestart == nil {
		c.NeedsRestart = func() []string { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	assets, err := loadAssets()
	return &Inbox{cfg: c, assets: assets}, err
}

// Register adds the inbox to the routes of the operators' listener.
func (i *Inbox) Register(mux *http.ServeMux, auth *operator.Auth) {
	i.auth = auth
	route := func(pattern string, role operator.Role, serve operator.Service) {
		mux.HandleFunc(pattern, i.secured(auth.Handle(role, i.refuse, serve)))
	}
	route("GET /{$}", operator.Viewer, i.pending)
	route("GET /approvals/{id}", operator.Viewer, i.open)
	route("GET /approvals/{id}/arguments", operator.Viewer, i.arguments)
	route("POST /approvals/{id}/approve", operator.Approver, i.decide(approval.Approve))
	route("POST /approvals/{id}/reject", operator.Approver, i.decide(approval.Reject))
	route("POST /approvals/reject", operator.Approver, i.rejectAll)
	route("GET /grants", operator.Viewer, i.grants)
	route("GET /grants/{id}", operator.Viewer, i.grant)
	route("POST /grants/{id}/revoke", operator.Approver, i.revoke)
	route("GET /history", operator.Viewer, i.history)
	route("GET /events", operator.Viewer, i.events)
	route("POST /push/subscribe", operator.Approver, i.subscribe)
	route("POST /push/unsubscribe", operator.Viewer, i.unsubscribe)
	mux.HandleFunc("GET /assets/{name}", i.secured(i.serveAsset))
	for at, name := range map[string]string{
		"/favicon.ico":          "icon.svg", // for what is not a page, and so cannot name it
		"/manifest.webmanifest": "manifest.webmanifest",
		"/worker.js":            "worker.js", // a worker serves the pages below its own path
	} {
		mux.HandleFunc("GET "+at, i.secured(func(w http.ResponseWriter, r *http.Request) {
			r.SetPathValue("name", name)
			i.serveAsset(w, r)
		}))
	}
}

// policy is what browsers may allow on every page: the gate's own
// style, script and icon, requests and forms to the gate itself, and nothing
// else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types inbox"

// secured sets the headers of every answer.
func (i *Inbox) secured(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		serve(w, r)
	}
}

func loadAssets() (map[string]asset, error) {
	entries, err := fs.ReadDir(files, "assets")
	if err != nil {
		return nil, err
	}
	assets := make(map[string]asset)
	for _, e := range entries {
		content, err := files.ReadFile(path.Join("assets", e.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		assets[e.Name()] = asset{content, assetKind(e.Name()), hex.EncodeToString(sum[:6])}
	}
	return assets, nil
}

func assetKind(name string) string {
	switch path.Ext(name) {
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".png":
		return "image/png"
	case ".webmanifest":
		return "application/manifest+json"
	default:
		return "image/svg+xml"
	}
}

func (i *Inbox) serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := i.assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	if r.URL.Query().Get("v") == a.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.content))
}

// Login shows the page on which people log in, for [operator.Config].
func (i *Inbox) Login(w http.ResponseWriter, r *http.Request, p operator.LoginPage) {
	i.secured(func(w http.ResponseWriter, r *http.Request) {
		i.show(w, r, p.Status, loginPage(i.bareFrame("Sign in"), p))
	})(w, r)
}

// refuse tells somebody why a request is not served: who is not logged in is
// led to where they can, unless they meant to decide.
func (i *Inbox) refuse(w http.ResponseWriter, r *http.Request, why *operator.Error) {
	if why.Type == operator.TypeUnauthorized && r.Method == http.MethodGet {
		if r.URL.Path == "/events" {
			http.Error(w, why.Message, why.Status)
			return
		}
		http.Redirect(w, r, operator.LoginURL(r), http.StatusSeeOther) //nolint:gosec // a path of this gate
		return
	}
	next := "/"
	if id := r.PathValue("id"); strings.HasPrefix(r.URL.Path, "/grants") {
		next = "/grants"
	} else if id != "" {
		next = "/approvals/" + id
	}
	i.show(w, r, why.Status, refusalPage(i.bareFrame("Not done"), refusalOf(why, next)))
}

// A refusal is why a request was not served, in words.
type refusal struct {
	title, text  string
	label, where string // what to do next
}

func refusalOf(why *operator.Error, next string) refusal {
	switch why.Type {
	case operator.TypeUnauthorized:
		return refusal{
			"Your session has ended", "Nothing was decided. Sign in again, review the request, and then decide.",
			"Sign in again", "/login?next=" + strings.ReplaceAll(next, "/", "%2F"),
		}
	case operator.TypeCrossSite:
		return refusal{
			"That form was too old", "Nothing was decided, because the form did not come from a page of this session. Open the request again.",
			"Open it again", next,
		}
	case operator.TypeForbidden:
		return refusal{"You may view calls, but not decide", "Nothing was decided. Your role is viewer. Ask an approver.", "Back", next}
	case operator.TypeUnavailable:
		return refusal{"The gate cannot check your sign-in", "Nothing was decided, because " + why.Message + ".", "Try again", next}
	default:
		return refusal{"Too many requests", "Nothing was decided. Try again in a moment.", "Try again", next}
	}
}
