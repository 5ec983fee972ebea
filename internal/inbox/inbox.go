// Package inbox serves the web pages on which approvers review held calls and
// decide about them. [Inbox.Register] adds the pages to the operators' listener:
//
//	pages, err := inbox.New(cfg)
//	...
//	pages.Register(mux, auth)
//
// Links and forms work without a script. One small script adds keyboard commands
// and reloads a page when the stream of events reports a change.
//
// Text from agents and upstreams is foreign: the pages show it as plain text, with
// the code points of invisible characters. The Content-Security-Policy allows only
// the script and the style sheet of this package.
//
// Package operator authenticates users and checks that a request came from a page
// of this gate. Package review loads the calls, and package approval records the
// decisions.
package inbox

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
)

//go:embed assets
var files embed.FS

// New returns an inbox.
func New(c Config) (*Inbox, error) {
	if c.KeepAlive <= 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.Connections == nil {
		c.Connections = connection.New(connection.Config{})
	}
	assets, err := loadAssets()
	return &Inbox{cfg: c, assets: assets, proposals: turn{taken: make(chan struct{}, 1)}, trying: trying{make(chan struct{}, 1)}}, err
}

// A handlerFunc answers a request, or returns an error before it has written anything.
type handlerFunc func(w http.ResponseWriter, r *http.Request, who operator.Operator) error

// Register adds the inbox to the routes of the operators' listener.
func (i *Inbox) Register(mux *http.ServeMux, auth *operator.Auth) {
	i.auth = auth
	route := func(pattern string, role operator.Role, serve handlerFunc) {
		mux.HandleFunc(pattern, i.secured(auth.Handle(role, i.refuse, func(w http.ResponseWriter, r *http.Request, who operator.Operator) {
			if err := serve(w, r, who); err != nil {
				i.fail(w, r, who, err)
			}
		})))
	}
	route("GET /{$}", operator.Viewer, i.pending)
	route("GET /approvals/{id}", operator.Viewer, i.call)
	route("GET /approvals/{id}/next", operator.Viewer, i.next)
	route("GET /approvals/{id}/arguments", operator.Viewer, i.arguments)
	route("POST /approvals/{id}/approve", operator.Approver, i.decide(approval.Approve))
	route("POST /approvals/{id}/confirm", operator.Approver, i.confirm)
	route("POST /approvals/{id}/coverage", operator.Approver, i.coverage)
	route("POST /approvals/{id}/reject", operator.Rejecter, i.decide(approval.Reject))
	route("POST /approvals/{id}/correct", operator.Approver, i.correct)
	route("POST /approvals/{id}/correct/confirm", operator.Approver, i.confirmCorrection)
	route("POST /approvals/reject", operator.Rejecter, i.rejectAll)
	route("GET /grants", operator.Viewer, i.grants)
	route("GET /grants/{id}", operator.Viewer, i.grant)
	route("POST /grants/{id}/revoke", operator.Rejecter, i.revoke)
	route("GET /changes", operator.Viewer, i.changes)
	//mutate:swap "Admin" "Approver" TestOnlyAdminAcceptsChangedTool an approver accepts a changed tool in the inbox
	route("POST /changes/{id}/accept", operator.Admin, i.accept)
	route("GET /connections", operator.Viewer, i.connections)
	route("GET /connections/callback", operator.Viewer, i.connected)
	route("GET /connections/callback/{server}", operator.Viewer, i.connected)
	route("POST /connections/{id}/connect", operator.Viewer, i.connect)
	route("POST /connections/{id}/remove", operator.Viewer, i.disconnect)
	i.registerPasskeys(route)
	route("GET /history", operator.Viewer, i.history)
	i.registerOverview(route)
	route("GET /events", operator.Viewer, i.events)
	//mutate:swap "Approver" "Viewer" TestOnlyApproversSubscribe viewers are notified
	route("POST /push/subscribe", operator.Approver, i.subscribe)
	route("POST /push/unsubscribe", operator.Viewer, i.unsubscribe)
	mux.HandleFunc("GET /assets/{name}", i.secured(i.serveAsset))
	for at, name := range map[string]string{
		"/favicon.ico":          "icon.svg", // requested by browsers for plain text, which cannot link to an icon
		"/manifest.webmanifest": "manifest.webmanifest",
		"/worker.js":            "worker.js", // at the root, because a worker controls only pages below its path
	} {
		mux.HandleFunc("GET "+at, i.secured(func(w http.ResponseWriter, r *http.Request) {
			r.SetPathValue("name", name)
			i.serveAsset(w, r)
		}))
	}
}

// A routeFunc adds a page for operators of a role.
type routeFunc func(pattern string, role operator.Role, serve handlerFunc)

func (i *Inbox) registerPasskeys(route routeFunc) {
	route("GET /passkeys", operator.Viewer, i.passkeys)
	route("POST /passkeys", operator.Approver, i.addPasskey)
	route("POST /passkeys/new", operator.Approver, i.newPasskey)
	route("POST /passkeys/confirm", operator.Approver, i.confirmPasskey)
	route("POST /passkeys/remove", operator.Approver, i.removePasskey)
	route("POST /passkeys/remove/confirm", operator.Approver, i.confirmRemoval)
	//mutate:swap "Admin" "Approver" TestPasskeyPage an approver invites others
	route("POST /passkeys/invite", operator.Admin, i.invite)
	route("POST /passkeys/invite/confirm", operator.Admin, i.confirmInvitation)
}

func (i *Inbox) registerOverview(route routeFunc) {
	//mutate:swap "Admin" "Viewer" TestHistoryOfOtherCalls a viewer sees a call that was forwarded
	route("GET /history/call", operator.Admin, i.recordedCall)
	//mutate:swap "Admin" "Viewer" TestOverview a viewer sees who calls what
	route("GET /overview", operator.Admin, i.overview)
	//mutate:swap "Admin" "Approver" TestOnlyAdminsTry an approver sees values of arguments
	route("GET /suggestions", operator.Admin, i.suggestions)
	//mutate:swap "Admin" "Approver" TestOnlyAdminsTry an approver sees the policy
	route("GET /try", operator.Admin, i.try)
	route("POST /try", operator.Admin, i.tryCall)
}

// contentPolicy is the Content-Security-Policy of every page. It allows styles,
// scripts, images, requests and forms of this gate only.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; worker-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types inbox"

// secured sets the security headers, and then calls serve.
func (i *Inbox) secured(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
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
		assets[e.Name()] = asset{content, assetKinds[path.Ext(e.Name())], hex.EncodeToString(sum[:6])}
	}
	return assets, nil
}

// assetKinds are the media types of files.
var assetKinds = map[string]string{
	".css":         "text/css; charset=utf-8",
	".js":          "text/javascript; charset=utf-8",
	".png":         "image/png",
	".svg":         "image/svg+xml",
	".webmanifest": "application/manifest+json",
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

// Login shows the sign-in page. It is the Page of [operator.Config].
func (i *Inbox) Login(w http.ResponseWriter, r *http.Request, p operator.LoginPage) {
	i.secured(func(w http.ResponseWriter, r *http.Request) {
		i.show(w, r, p.Status, loginPage(i.bareFrame("Sign in"), p))
	})(w, r)
}

// refuse answers a request that package operator has refused. Without a session, a GET
// request is redirected to the sign-in page; other requests get a page with the reason.
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
	} else if strings.HasPrefix(r.URL.Path, "/connections") {
		next = "/connections"
	} else if id != "" {
		next = "/approvals/" + id
	}
	i.show(w, r, why.Status, refusalPage(i.bareFrame("Not done"), refusalOf(why, next)))
}

// A refusal is the text of a page for a request that was not served.
type refusal struct {
	title, text  string
	label, where string // the link to the next step
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
		return refusal{"Your role does not allow this", "Nothing was decided, because " + why.Message + ".", "Back", next}
	case operator.TypeUnavailable:
		return refusal{"The gate cannot check your sign-in", "Nothing was decided, because " + why.Message + ".", "Try again", next}
	default:
		return refusal{"Too many requests", "Nothing was decided. Try again in a moment.", "Try again", next}
	}
}
