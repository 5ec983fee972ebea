// Package api serves the desk to approvers over HTTP: what is pending, each
// held call, the decision, a stream of events, and the journal. It belongs on the operators'
// listener, never on the agents'.
//
// Package operator says who makes a request and what they may do, and keeps
// other sites from making a browser decide. There are no CORS headers, so they
// cannot read anything either.
package api

import (
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// New returns the handler of everything under /api.
func New(c Config) (http.Handler, error) {
	if c.Desk == nil || c.Cases == nil || c.Auth == nil {
		return nil, errors.New("api: needs a desk, its cases and a way to authenticate")
	}
	if c.KeepAlive <= 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h, mux := &handler{c}, http.NewServeMux()
	for _, r := range h.routes() {
		mux.HandleFunc(r.pattern, c.Auth.Handle(r.role, h.unauthorised, h.strict(r)))
	}
	mux.HandleFunc(signedRoute, h.answered)
	mux.HandleFunc("/", c.Auth.Handle(operator.Viewer, h.unauthorised, h.nothing))
	return mux, nil
}

// A route is a request that is served, the role that it needs, and the names of the
// query parameters that it takes.
type route struct {
	pattern string
	role    operator.Role
	serve   operator.Service
	query   []string
}

// routes returns all of them. openapi.json describes each.
func (h *handler) routes() []route {
	list := []string{"state", "tool", "agent", "workflow", "q", "limit", "cursor"}
	journal := []string{"task", "tool", "requester", "principal", "approver", "grant", "since", "until", "after", "limit"}
	return []route{
		{"GET /api/approvals", operator.Viewer, h.list, list},
		{"GET /api/approvals/{id}", operator.Viewer, h.show, []string{"arguments"}},
		{"GET /api/approvals/{id}/context", operator.Viewer, h.context, nil},
		{"GET /api/approvals/events", operator.Viewer, h.events, nil},
		{"POST /api/approvals/{id}/approve", operator.Approver, h.decide(approval.Approve), nil},
		{"POST /api/approvals/{id}/reject", operator.Approver, h.decide(approval.Reject), nil},
		{"GET /api/grants", operator.Viewer, h.grants, []string{"state"}},
		{"GET /api/grants/{id}", operator.Viewer, h.grant, nil},
		{"POST /api/grants/{id}/revoke", operator.Approver, h.revoke, nil},
		{"GET /api/audit", operator.Admin, h.audit, journal},
		{"GET /api/audit/ends", operator.Admin, h.auditEnds, nil},
		{"GET /api/channels", operator.Viewer, h.channels, nil},
		{"GET /api/openapi.json", operator.Viewer, h.describe, nil},
	}
}

//go:embed openapi.json
var openAPI []byte

// describe answers with the description of the API.
func (h *handler) describe(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	h.send(w, r, http.StatusOK, openAPI)
}

// unauthorised refuses a request that package operator does.
func (h *handler) unauthorised(w http.ResponseWriter, r *http.Request, why *operator.Error) {
	h.refuse(w, r, &problem{why.Status, why.Type, why.Message})
}

func (h *handler) nothing(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	h.refuse(w, r, errUnknown)
}

func (h *handler) list(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
	f, err := filter(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	page, err := h.Cases.Pending(r.Context(), f)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, r, http.StatusOK, page)
}

// filter reads what of the approvals is asked for.
func filter(r *http.Request) (casefile.Filter, error) {
	q := r.URL.Query()
	f := casefile.Filter{
		Cursor: q.Get("cursor"), Tool: q.Get("tool"), Principal: q.Get("agent"), Workflow: q.Get("workflow"), Text: q.Get("q"),
	}
	switch state := q.Get("state"); state {
	case "", "pending":
	case "all":
		f.States = task.States()
	default:
		f.States = []task.State{task.State(state)}
		if !slices.Contains(task.States(), task.State(state)) {
			return f, badRequest("state must be pending, all, or the state of a task")
		}
	}
	var err error
	f.Limit, err = limit(q, 100)
	return f, err
}

func (h *handler) show(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	show := h.Cases.Show
	switch r.URL.Query().Get("arguments") {
	case "":
	case "all":
		show = h.Cases.ShowAll
	default:
		h.refuse(w, r, badRequest("arguments must be all, or left out"))
		return
	}
	shown, err := show(r.Context(), task.ID(r.PathValue("id")))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if who.Role.Includes(operator.Approver) {
		h.Desk.Looked(r.Context(), shown)
	}
	h.answer(w, r, http.StatusOK, shown)
}

// context answers with what is to be known of a call besides the call itself.
func (h *handler) context(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	c, err := h.Cases.Case(r.Context(), task.ID(r.PathValue("id")), h.Desk.Objection(Approver(who)))
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, r, http.StatusOK, c.Context(func(err error) string { return explain(err).Message }))
}

// A verdict is the body of a decision.
type verdict struct {
	Reason      string `json:"reason"`
	ShownDigest string `json:"shownDigest"`
	UnreadBytes int    `json:"unreadBytes"`

	Grant *grantWish `json:"grant"` // the standing approval that is given with an approval
}

func (h *handler) decide(what approval.Decision) operator.Service {
	return func(w http.ResponseWriter, r *http.Request, who operator.Operator) {
		var v verdict
		if err := readBody(w, r, &v); err != nil {
			h.refuse(w, r, err)
			return
		}
		h.rule(w, r, task.ID(r.PathValue("id")), Approver(who), approval.Ruling{
			Decision: what, Reason: v.Reason, Shown: v.ShownDigest, Unread: v.UnreadBytes, Gives: v.Grant.terms(h.Now()),
		})
	}
}

// rule records a decision and answers with the call as it is then.
func (h *handler) rule(w http.ResponseWriter, r *http.Request, id task.ID, who approval.Approver, ruling approval.Ruling) {
	after, err := h.Desk.Decide(r.Context(), id, who, ruling)
	if err != nil {
		h.refuseDecision(w, r, id, err)
		return
	}
	h.answer(w, r, http.StatusOK, h.Cases.View(after))
}

// Approver returns an operator as the desk knows them.
func Approver(o operator.Operator) approval.Approver {
	a := approval.Approver{Name: o.Name, Groups: o.Groups, Aliases: o.Aliases}
	for _, r := range o.Role.All() {
		a.Roles = append(a.Roles, string(r))
	}
	return a
}

// maxBody is the size of the largest body that is read.
const maxBody = 16 << 10

// readBody reads the body of a request, which may be empty.
func readBody(w http.ResponseWriter, r *http.Request, to any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return errTooLarge
	}
	if err != nil {
		return badRequest("the body cannot be read")
	}
	if len(body) == 0 {
		return nil
	}
	// A form, which any site can have a browser send, has another type.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return errWrongType
	}
	if err := json.Unmarshal(body, to, json.RejectUnknownMembers(true)); err != nil {
		return badRequest(`the body must be a JSON object like {"reason": "…", "shownDigest": "…"}`)
	}
	return nil
}
