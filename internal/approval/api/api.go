// Package api serves the desk to approvers over HTTP: what is pending, each
// held call, the decision, and a stream of events. It belongs on the operators'
// listener, never on the agents'.
//
// Every request is authenticated by a bearer token in a header. There are no
// cookies, so another site cannot make a browser decide, and no CORS headers,
// so it cannot read anything either.
package api

import (
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An Authenticator says who makes a request.
type Authenticator interface {
	// Authenticate returns who r is from, and false if that is not known.
	Authenticate(r *http.Request) (approval.Approver, bool)
}

// A Config is what the API is made of.
type Config struct {
	Desk      *approval.Desk
	Auth      Authenticator
	KeepAlive time.Duration // how often a silent stream of events gets a comment; 15 s
	Log       *slog.Logger
}

// A handler serves the API.
type handler struct{ Config }

// New returns the handler of everything under /api/approvals.
func New(c Config) (http.Handler, error) {
	if c.Desk == nil || c.Auth == nil {
		return nil, errors.New("api: needs a desk and a way to authenticate")
	}
	if c.KeepAlive <= 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h, mux := &handler{c}, http.NewServeMux()
	mux.HandleFunc("GET /api/approvals", h.known(h.list))
	mux.HandleFunc("GET /api/approvals/{id}", h.known(h.show))
	mux.HandleFunc("GET /api/approvals/events", h.known(h.events))
	mux.HandleFunc("POST /api/approvals/{id}/approve", h.known(h.decide(approval.Approve)))
	mux.HandleFunc("POST /api/approvals/{id}/reject", h.known(h.decide(approval.Reject)))
	mux.HandleFunc("/", h.known(h.nothing))
	return mux, nil
}

// A service answers a request of somebody who is known.
type service func(w http.ResponseWriter, r *http.Request, who approval.Approver)

// known lets a request through to serve if it is known who makes it.
func (h *handler) known(serve service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		who, ok := h.Auth.Authenticate(r)
		if !ok {
			header.Set("WWW-Authenticate", `Bearer realm="thoughtgate"`)
			h.refuse(w, r, errUnauthorized)
			return
		}
		serve(w, r, who)
	}
}

func (h *handler) nothing(w http.ResponseWriter, r *http.Request, _ approval.Approver) {
	h.refuse(w, r, errUnknown)
}

func (h *handler) list(w http.ResponseWriter, r *http.Request, _ approval.Approver) {
	f, err := filter(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	page, err := h.Desk.Pending(r.Context(), f)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, r, http.StatusOK, page)
}

// filter reads what of the approvals is asked for.
func filter(r *http.Request) (approval.Filter, error) {
	q := r.URL.Query()
	f := approval.Filter{Cursor: q.Get("cursor")}
	switch state := q.Get("state"); state {
	case "", "pending":
	case "all":
		f.States = task.States()
	default:
		f.States = []task.State{task.State(state)}
		if !slices.Contains(task.States(), task.State(state)) {
			return f, badRequest("state is pending, all, or a state of a task")
		}
	}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			return f, badRequest("limit is a number from 1 to 100")
		}
		f.Limit = n
	}
	return f, nil
}

func (h *handler) show(w http.ResponseWriter, r *http.Request, _ approval.Approver) {
	shown, err := h.Desk.Show(r.Context(), task.ID(r.PathValue("id")))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, r, http.StatusOK, shown)
}

// A verdict is the body of a decision.
type verdict struct {
	Reason string `json:"reason"`
}

func (h *handler) decide(what approval.Decision) service {
	return func(w http.ResponseWriter, r *http.Request, who approval.Approver) {
		v, err := readVerdict(w, r)
		if err != nil {
			h.refuse(w, r, err)
			return
		}
		after, err := h.Desk.Decide(r.Context(), task.ID(r.PathValue("id")), who, what, v.Reason)
		if err != nil {
			h.refuse(w, r, err)
			return
		}
		h.answer(w, r, http.StatusOK, h.Desk.View(after))
	}
}

// maxBody is the size of the largest body that is read.
const maxBody = 16 << 10

// readVerdict reads the body of a decision, which may be empty.
func readVerdict(w http.ResponseWriter, r *http.Request) (verdict, error) {
	var v verdict
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return v, errTooLarge
	}
	if err != nil {
		return v, badRequest("the body cannot be read")
	}
	if len(body) == 0 {
		return v, nil
	}
	// A form, which any site can have a browser send, has another type.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return v, errWrongType
	}
	if err := json.Unmarshal(body, &v, json.RejectUnknownMembers(true)); err != nil {
		return v, badRequest(`the body is a JSON object like {"reason": "…"}`)
	}
	return v, nil
}

func (h *handler) answer(w http.ResponseWriter, r *http.Request, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(text, '\n')); err != nil { //nolint:gosec // JSON, marked as such and not to be sniffed
		h.Log.DebugContext(r.Context(), "answer not sent", "error", err)
	}
}
