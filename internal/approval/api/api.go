// Package api serves held calls to approvers over HTTP: lists, single calls, decisions, a stream
// of events, and the journal. It belongs on the operators' listener, never on the agents'.
//
// Package operator authenticates requests, checks roles and rejects cross-site requests. There are
// no CORS headers, so other sites cannot read answers.
package api

import (
	"cmp"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/audit"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/provenance"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/toolhistory"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// New returns the handler of all paths under /api.
func New(c Config) (http.Handler, error) {
	if c.Approvals == nil || c.Viewer == nil || c.Auth == nil {
		return nil, errors.New("api: Config needs Approvals, Viewer and Auth")
	}
	if c.KeepAlive <= 0 {
		c.KeepAlive = 15 * time.Second
	}
	if c.Receiver == nil {
		c.Receiver = func(string) channel.Receiver { return nil }
	}
	if c.Page == nil {
		c.Page = func(id task.ID) string { return "/approvals/" + url.PathEscape(string(id)) }
	}
	if c.Connections == nil {
		c.Connections = connection.New(connection.Config{})
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
	mux.HandleFunc(signedRoute, h.receive)
	mux.HandleFunc("/", c.Auth.Handle(operator.Viewer, h.unauthorised, func(w http.ResponseWriter, r *http.Request, _ operator.Operator) {
		h.refuse(w, r, errUnknown)
	}))
	return mux, nil
}

// A service returns an answer to encode as JSON, or nil if it has written the answer.
type service func(w http.ResponseWriter, r *http.Request, who operator.Operator) (any, error)

// A route is a request pattern with its role and its query parameters.
type route struct {
	pattern string
	role    operator.Role
	serve   service
	query   []string
}

// routes returns all routes. The file openapi.json describes each.
func (h *handler) routes() []route {
	list := []string{"state", "tool", "agent", "workflow", "q", "limit", "cursor"}
	journal := []string{"task", "tool", "requester", "principal", "approver", "grant", "suspicious", "since", "until", "after", "limit"}
	return []route{
		{"GET /api/approvals", operator.Viewer, h.list, list},
		{"GET /api/approvals/{id}", operator.Viewer, h.show, []string{"arguments"}},
		{"GET /api/approvals/{id}/context", operator.Viewer, h.context, nil},
		{"GET /api/approvals/events", operator.Viewer, h.events, nil},
		{"POST /api/approvals/{id}/approve", operator.Approver, h.decide(approval.Approve), nil},
		{"POST /api/approvals/{id}/coverage", operator.Approver, h.coverage, nil},
		{"POST /api/approvals/{id}/reject", operator.Rejecter, h.decide(approval.Reject), nil},
		{"GET /api/grants", operator.Viewer, h.grants, []string{"state"}},
		{"GET /api/grants/{id}", operator.Viewer, h.grant, nil},
		{"POST /api/grants/{id}/revoke", operator.Rejecter, h.revoke, nil},
		{"GET /api/changes", operator.Viewer, h.changes, nil},
		//mutate:swap "Admin" "Approver" internal/app.TestChangedToolIsHeld an approver accepts a changed tool
		{"POST /api/changes/{id}/accept", operator.Admin, h.accept, nil},
		{"GET /api/audit", operator.Admin, h.audit, journal},
		{"GET /api/audit/ends", operator.Admin, h.auditEnds, nil},
		{"GET /api/calls", operator.Admin, h.calls, []string{"id", "ref", "upstream", "name", "principal", "action", "outcome", "event", "by", "text", "since", "until", "after", "limit"}},
		{"GET /api/calls/explanation", operator.Admin, h.explainCall, []string{"id"}},
		{"GET /api/calls/verification", operator.Admin, h.verifyCalls, []string{"head"}},
		{"GET /api/connections", operator.Viewer, h.connections, nil},
		{"POST /api/connections/{id}/remove", operator.Viewer, h.removeConnection, nil},
		{"GET /api/channels", operator.Viewer, h.channels, nil},
		{"GET /api/openapi.json", operator.Viewer, h.describe, nil},
	}
}

//go:embed openapi.json
var openAPI []byte

// describe answers with the OpenAPI description.
func (h *handler) describe(w http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	h.send(w, r, http.StatusOK, openAPI)
	return nil, nil
}

// unauthorised answers a request that package operator refuses.
func (h *handler) unauthorised(w http.ResponseWriter, r *http.Request, why *operator.Error) {
	h.refuse(w, r, &problem{why.Status, why.Type, why.Message})
}

func (h *handler) list(_ http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	f, err := filter(r)
	if err != nil {
		return nil, err
	}
	return h.Viewer.Pending(r.Context(), f)
}

// filter parses the filter of a list.
func filter(r *http.Request) (review.Filter, error) {
	q := r.URL.Query()
	f := review.Filter{
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

func (h *handler) show(_ http.ResponseWriter, r *http.Request, who operator.Operator) (any, error) {
	show := h.Viewer.Show
	switch r.URL.Query().Get("arguments") {
	case "":
	case "all":
		show = h.Viewer.ShowAll
	default:
		return nil, badRequest("arguments must be all, or left out")
	}
	shown, err := show(r.Context(), task.ID(r.PathValue("id")))
	if err == nil && who.Role.Includes(operator.Approver) {
		h.Approvals.RecordView(r.Context(), shown)
	}
	return shown, err
}

// context answers with the context of a held call.
func (h *handler) context(_ http.ResponseWriter, r *http.Request, who operator.Operator) (any, error) {
	c, err := h.Viewer.Details(r.Context(), task.ID(r.PathValue("id")), h.Approvals.Objection(Approver(who)))
	if err != nil {
		return nil, err
	}
	return c.Context(Message), nil
}

// A verdict is the body of a decision.
type verdict struct {
	Reason      string `json:"reason"`
	ShownDigest string `json:"shownDigest"`
	UnreadBytes int    `json:"unreadBytes"`

	Grant *grantWish `json:"grant"` // the standing approval given with an approval

	Correction jsontext.Value `json:"correction"` // the arguments that are approved with a rejection
}

func (h *handler) decide(what approval.Decision) service {
	return func(w http.ResponseWriter, r *http.Request, who operator.Operator) (any, error) {
		var v verdict
		if err := readBody(w, r, &v); err != nil {
			return nil, err
		}
		ruling := h.ruling(r, who, what, v.Reason)
		ruling.Shown, ruling.Unread, ruling.Gives = v.ShownDigest, v.UnreadBytes, v.Grant.terms(h.Now())
		ruling.Correction = v.Correction
		h.rule(w, r, channel.Answer{ID: task.ID(r.PathValue("id")), By: Approver(who), Ruling: ruling})
		return nil, nil
	}
}

// coverage answers with what a standing approval would have covered.
func (h *handler) coverage(w http.ResponseWriter, r *http.Request, who operator.Operator) (any, error) {
	var wish grantWish
	if err := readBody(w, r, &wish); err != nil {
		return nil, err
	}
	return h.Approvals.Coverage(r.Context(), task.ID(r.PathValue("id")), Approver(who), *wish.terms(h.Now()))
}

// ruling returns a decision with the way in which it reached the gate. The command line identifies
// itself by its User-Agent.
func (h *handler) ruling(r *http.Request, who operator.Operator, what approval.Decision, reason string) approval.Ruling {
	kind := gatetask.ViaAPI
	if strings.HasPrefix(r.Header.Get("User-Agent"), approval.CommandLineUserAgent) {
		kind = gatetask.ViaCommandLine
	}
	return Ruling(h.Agents, r, who, kind, approval.Ruling{Decision: what, Reason: reason})
}

// Ruling returns a decision that an operator has sent with r, with the way in which it reached the
// gate.
func Ruling(agents *provenance.Agents, r *http.Request, who operator.Operator, kind gatetask.ViaKind, d approval.Ruling) approval.Ruling {
	via, err := agents.Locate(r.Context(), gatetask.Via{Kind: kind, Login: string(who.Method)})
	d.Via, d.SenderGone = via, err != nil
	return d
}

// rule records a decision and answers with the updated call. If the decision is refused, the
// answer also has the current call.
func (h *handler) rule(w http.ResponseWriter, r *http.Request, a channel.Answer) {
	after, err := h.Approvals.Decide(r.Context(), a.ID, a.By, a.Ruling)
	if err == nil {
		h.answer(w, r, http.StatusOK, h.Viewer.View(after))
		return
	}
	if errors.Is(err, approval.ErrPasskeyRequired) {
		err = &problem{http.StatusForbidden, approval.PasskeyRequired, Message(err) + ": " + h.Page(a.ID)}
	}
	now, lost := h.Viewer.Show(r.Context(), a.ID)
	p := explain(err)
	if lost != nil || p.status < http.StatusConflict || p.status >= http.StatusInternalServerError {
		h.refuse(w, r, err)
		return
	}
	h.answer(w, r, p.status, refusal{Error: p, Approval: &now})
}

// Approver returns an operator as an approver.
func Approver(o operator.Operator) approval.Approver {
	a := approval.Approver{Name: o.Name, Groups: o.Groups, Aliases: o.Aliases}
	for _, r := range o.Role.All() {
		a.Roles = append(a.Roles, string(r))
	}
	return a
}

// maxBody is the maximum size of a request body.
const maxBody = 16 << 10

// readBody decodes the JSON body of a request into to. If the body is empty, to stays unchanged.
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
	// A form on another web site cannot send application/json. Package operator rejects
	// cross-site requests too.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return errWrongType
	}
	if err := json.Unmarshal(body, to, json.RejectUnknownMembers(true)); err != nil {
		return badRequest(`the body must be a JSON object like {"reason": "…", "shownDigest": "…"}`)
	}
	return nil
}

// A GrantList is a list of standing approvals.
type GrantList struct {
	Grants []review.Grant `json:"grants"`
}

// grants answers with a list of standing approvals.
func (h *handler) grants(_ http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	state := r.URL.Query().Get("state")
	if state != "" && state != "active" && state != "all" {
		return nil, badRequest("state must be active or all")
	}
	found, err := h.Viewer.Grants(r.Context(), state == "all")
	return GrantList{found}, err
}

// grant answers with one standing approval and its uses.
func (h *handler) grant(_ http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	return h.Viewer.Grant(r.Context(), gatetask.GrantID(r.PathValue("id")))
}

// A grantWish has the terms of a standing approval given with an approval.
type grantWish struct {
	Seconds int `json:"seconds"`
	Uses    int `json:"uses"`

	gatetask.GrantShape
}

// maxWish is longer than any standing approval may last, in seconds.
const maxWish = 1 << 30

// terms returns the terms of a standing approval given at time now.
func (g *grantWish) terms(now time.Time) *gatetask.GrantTerms {
	if g == nil {
		return nil
	}
	return &gatetask.GrantTerms{Until: now.Add(time.Duration(min(g.Seconds, maxWish)) * time.Second), Uses: g.Uses, GrantShape: g.GrantShape}
}

// A revocation is the body of a request to revoke a standing approval.
type revocation struct {
	Reason string `json:"reason"`
}

// revoke ends a standing approval.
func (h *handler) revoke(w http.ResponseWriter, r *http.Request, who operator.Operator) (any, error) {
	var v revocation
	if err := readBody(w, r, &v); err != nil {
		return nil, err
	}
	return h.Approvals.Revoke(r.Context(), gatetask.GrantID(r.PathValue("id")), Approver(who), v.Reason)
}

// A ChangeList is a list of changed tools.
type ChangeList struct {
	Changes []toolhistory.Change `json:"changes"`
}

// changes answers with the tool changes that no operator has accepted.
func (h *handler) changes(_ http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	found, err := h.Approvals.Changes(r.Context())
	return ChangeList{append([]toolhistory.Change{}, found...)}, err
}

// accept accepts a tool change.
func (h *handler) accept(w http.ResponseWriter, r *http.Request, who operator.Operator) (any, error) {
	var v revocation
	if err := readBody(w, r, &v); err != nil {
		return nil, err
	}
	return h.Approvals.AcceptChange(r.Context(), r.PathValue("id"), Approver(who), h.ruling(r, who, approval.Approve, v.Reason))
}

// connections answers with the connections to servers that the operator may see.
func (h *handler) connections(_ http.ResponseWriter, r *http.Request, who operator.Operator) (any, error) {
	all, err := h.Connections.Visible(r.Context(), actor(who))
	if all == nil {
		all = []connection.Connection{}
	}
	return map[string]any{"connections": all}, err
}

// actor returns an operator as the one who changes a connection.
func actor(who operator.Operator) connection.Actor {
	return connection.Actor{Name: who.Name, Admin: who.Role.Includes(operator.Admin)}
}

// removeConnection removes a connection.
func (h *handler) removeConnection(w http.ResponseWriter, r *http.Request, who operator.Operator) (any, error) {
	var v revocation
	if err := readBody(w, r, &v); err != nil {
		return nil, err
	}
	one, err := h.Connections.Remove(r.Context(), r.PathValue("id"), actor(who), v.Reason)
	switch {
	case errors.Is(err, connection.ErrNotFound):
		return nil, task.ErrNotFound
	case errors.Is(err, connection.ErrForbidden):
		return nil, approval.ErrForbidden
	}
	return one, err
}

// audit answers with journal entries, one per line.
func (h *handler) audit(w http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	f, err := auditFilter(r)
	if err != nil {
		return nil, err
	}
	page, err := h.Viewer.Audit(r.Context(), f)
	var lines []byte
	for _, e := range page.Entries {
		if err == nil {
			lines, err = audit.AppendLine(lines, e)
		}
	}
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if page.Next > 0 {
		w.Header().Set(audit.NextHeader, strconv.FormatInt(page.Next, 10))
	}
	h.send(w, r, http.StatusOK, lines)
	return nil, nil
}

// auditFilter parses the filter of a journal request.
func auditFilter(r *http.Request) (audit.Filter, error) {
	q := r.URL.Query()
	f := audit.Filter{
		Task: task.ID(q.Get("task")), Tool: q.Get("tool"), Requester: cmp.Or(q.Get("requester"), q.Get("principal")), Approver: q.Get("approver"),
		Grant: gatetask.GrantID(q.Get("grant")),
	}
	switch q.Get("suspicious") {
	case "", "false":
	case "true":
		f.Suspicious = true
	default:
		return f, badRequest("suspicious must be true or false")
	}
	if q.Has("requester") && q.Has("principal") {
		return f, badRequest("requester and principal mean the same: give one of them")
	}
	if err := times(q, &f.Since, &f.Until); err != nil {
		return f, err
	}
	if text := q.Get("after"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return f, badRequest("after must be the number of an entry")
		}
		f.After = n
	}
	var err error
	f.Limit, err = limit(q, 1000)
	return f, err
}

// times parses the bounds of a range of time.
func times(q url.Values, since, until *time.Time) error {
	for name, to := range map[string]*time.Time{"since": since, "until": until} {
		if text := q.Get(name); text != "" {
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				return badRequest(name + " must be a time such as 2026-11-15T06:00:00Z")
			}
			*to = at
		}
	}
	return nil
}

// auditEnds answers with the two ends of the journal.
func (h *handler) auditEnds(_ http.ResponseWriter, r *http.Request, _ operator.Operator) (any, error) {
	return h.Viewer.AuditEnds(r.Context())
}

// signedRoute receives signed decisions of channels. The signature replaces a login.
const signedRoute = "POST /api/channels/{channel}/decisions"

// maxAnswer is the maximum size of a signed decision.
const maxAnswer = 64 << 10

// receive records a decision that a channel sends.
func (h *handler) receive(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAnswer))
	if err != nil {
		h.refuse(w, r, errTooLarge)
		return
	}
	var answer channel.Answer
	err = channel.ErrUnsigned
	if at := h.Receiver(r.PathValue("channel")); at != nil {
		answer, err = at.Receive(r.Context(), r.Header, body)
	}
	if errors.Is(err, channel.ErrUnsigned) {
		h.refuse(w, r, &problem{http.StatusUnauthorized, "unauthorized", "the message is not signed with the key of this channel, or was signed more than five minutes ago"})
		return
	}
	if err != nil {
		h.refuse(w, r, badRequest(err.Error()))
		return
	}
	if len(answer.Reply) > 0 {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer.Reply) // fails if the sender has gone
		return
	}
	h.rule(w, r, answer)
}

// channelList is a list of channels.
type channelList struct {
	Channels []channel.Status `json:"channels"`
}

// channels answers with the status of each channel.
func (h *handler) channels(_ http.ResponseWriter, _ *http.Request, _ operator.Operator) (any, error) {
	list := channelList{Channels: []channel.Status{}}
	if h.Channels != nil {
		list.Channels = append(list.Channels, h.Channels()...)
	}
	return list, nil
}
