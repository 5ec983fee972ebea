package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/connection"
	"github.com/thoughtgate/thoughtgate-go/internal/grantstore"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/provenance"
	"github.com/thoughtgate/thoughtgate-go/internal/replay"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/internal/safetext"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A Config configures the API.
type Config struct {
	Approvals *approval.Service
	Viewer    *review.Viewer
	Auth      *operator.Auth
	KeepAlive time.Duration                         // interval of comments on a silent stream; 15 s
	Receiver  func(channel string) channel.Receiver // returns the channel that sends decisions to the gate, or nil
	Channels  func() []channel.Status               // the status of each channel; may be nil
	Agents    *provenance.Agents                    // tells which program sends a decision; may be nil
	Page      func(task.ID) string                  // the URL of a call in the inbox; may be nil
	Now       func() time.Time
	Log       *slog.Logger

	Connections *connection.Connections // to servers that want OAuth; may be nil

	// Explain explains recorded calls under the running policy; see [callrecord.Lookup].
	Explain func(ctx context.Context, id string) ([]replay.Explanation, error)
}

// A handler serves the API.
type handler struct{ Config }

func (h *handler) answer(w http.ResponseWriter, r *http.Request, status int, value any) {
	text, err := visibleJSON(value)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.send(w, r, status, append(text, '\n'))
}

// visibleJSON returns a value as JSON in which hidden characters are escaped.
func visibleJSON(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	//mutate:swap "return []byte(safetext.Escape(string(text)))" "_ = safetext.Escape; return text" TestNamesDifferInSpaces an answer of the API hides characters
	return []byte(safetext.Escape(string(text))), err
}

// send writes text, which is JSON unless the header says otherwise.
func (h *handler) send(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	if _, err := w.Write(text); err != nil {
		h.Log.DebugContext(r.Context(), "answer not sent", "err", err)
	}
}

// A problem is an error as clients see it.
type problem struct {
	status  int
	Type    string `json:"type"`
	Message string `json:"message"`
}

// Error implements error.
func (p *problem) Error() string { return p.Type + ": " + p.Message }

// Errors of requests.
var (
	errUnknown   error = &problem{http.StatusNotFound, "not_found", "not found"}
	errTooLarge  error = &problem{http.StatusRequestEntityTooLarge, "too_large", "the body is too large"}
	errWrongType error = &problem{http.StatusUnsupportedMediaType, "wrong_type", "the body must be application/json"}
)

func badRequest(message string) error {
	return &problem{http.StatusBadRequest, "bad_request", message}
}

// problems maps errors to problems. The first match counts.
var problems = []struct {
	err error
	as  problem
}{
	{approval.ErrUnsure, problem{
		http.StatusServiceUnavailable, "decision_unknown",
		"the store did not say whether your decision was recorded; look at the call again",
	}},
	{approval.ErrOnlyRejects, problem{http.StatusForbidden, "forbidden", "your role lets you reject calls, but not approve them"}},
	{approval.ErrForbidden, problem{http.StatusForbidden, "forbidden", "you are not an approver of this workflow"}},
	{approval.ErrDecidedByAgent, problem{
		http.StatusForbidden, approval.DecidedByAgent,
		"an agent cannot approve: an agent started this program; approve in a browser, or in a terminal that the agent did not start",
	}},
	{approval.ErrPasskeyRequired, problem{
		http.StatusForbidden, approval.PasskeyRequired,
		"this workflow needs the approver's passkey: approve in the inbox, where your browser asks for it",
	}},
	{approval.ErrPasskeyInvalid, problem{http.StatusForbidden, approval.PasskeyInvalid, "the signature of the passkey does not count"}},
	{lifecycle.ErrSelfApproval, problem{http.StatusForbidden, "self_approval", "you cannot approve a call from your own agent"}},
	{review.ErrNotShown, problem{http.StatusPreconditionRequired, "digest_required", "an approval needs the shownDigest of the call that you were shown"}},
	{review.ErrViewChanged, problem{http.StatusConflict, "view_changed", "the call differs from what you were shown; look at it again"}},
	{review.ErrUnread, problem{
		http.StatusConflict, "arguments_unread",
		"you were shown only part of the arguments; get all of them with arguments=all, or say with unreadBytes how many bytes you approve unread",
	}},
	{grantstore.ErrRevoked, problem{http.StatusConflict, "already_revoked", "this standing approval was revoked before"}},
	{task.ErrNotFound, problem{http.StatusNotFound, "not_found", "no such approval"}},
	{lifecycle.ErrAlreadyDecided, problem{http.StatusConflict, "already_decided", "you have already approved this call"}},
	{task.ErrInvalidTransition, problem{http.StatusConflict, "already_decided", "this call has already been decided"}},
	{task.ErrConcurrentModification, problem{http.StatusConflict, "conflict", "somebody else decided first"}},
	{task.ErrAlreadyTerminal, problem{http.StatusGone, "ended", "this call is no longer pending"}},
	{task.ErrExpired, problem{http.StatusGone, "expired", "the time to decide has ended"}},
	{task.ErrInvalidCursor, problem{http.StatusBadRequest, "bad_request", "the cursor does not belong to this list"}},
	{task.ErrUnreadable, problem{http.StatusInternalServerError, "unreadable", "the stored call cannot be read"}},
	{task.ErrOutdated, problem{http.StatusServiceUnavailable, "store_unavailable", "this gate is older than the store of held calls and must be updated"}},
	{task.ErrUnavailable, problem{http.StatusServiceUnavailable, "store_unavailable", "the store of held calls cannot be reached at the moment"}},
	{task.ErrClosed, problem{http.StatusServiceUnavailable, "shutting_down", "the gate is shutting down"}},
}

// explain returns err as clients see it. Unknown errors are not shown.
func explain(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if refused, ok := errors.AsType[*review.NoGrantError](err); ok {
		return &problem{http.StatusUnprocessableEntity, "grant_refused", refused.Error()}
	}
	if refused, ok := errors.AsType[*review.NoCorrectionError](err); ok {
		return &problem{http.StatusUnprocessableEntity, "correction_refused", refused.Error()}
	}
	if lost, ok := errors.AsType[*approval.GrantFailedError](err); ok {
		return &problem{http.StatusConflict, "grant_not_given", lost.Error()}
	}
	for _, known := range problems {
		if errors.Is(err, known.err) {
			return &known.as
		}
	}
	return &problem{http.StatusInternalServerError, "internal_error", "internal error"}
}

// Message describes an error in words.
func Message(err error) string { return explain(err).Message }

// refusal is the body of every error answer.
type refusal struct {
	Error    *problem         `json:"error"`
	Approval *review.Approval `json:"approval,omitzero"` // the current call, for a refused decision
}

const retryAfter = 5 * time.Second

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := explain(err)
	switch p.status {
	case http.StatusInternalServerError:
		h.Log.ErrorContext(r.Context(), "approvals api", "path", r.URL.Path, "err", err)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	h.answer(w, r, p.status, refusal{Error: p})
}

// strict serves r, and refuses unknown query parameters: a misspelled filter would select
// everything.
func (h *handler) strict(r route) operator.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request, who operator.Operator) {
		if err := checkQuery(req.URL.RawQuery, r.query); err != nil {
			h.refuse(w, req, err)
			return
		}
		answer, err := r.serve(w, req, who)
		switch {
		case err != nil:
			h.refuse(w, req, err)
		case answer != nil:
			h.answer(w, req, http.StatusOK, answer)
		}
	}
}

// checkQuery returns an error if a query has unknown or repeated parameters.
func checkQuery(query string, known []string) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return badRequest("the query cannot be read")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return badRequest(fmt.Sprintf("unknown query parameter %q: this request takes none", name))
		//mutate:false TestUnknownParametersAreRefused a misspelled filter selects everything
		case !slices.Contains(known, name):
			return badRequest(fmt.Sprintf("unknown query parameter %q: this request takes %s", name, strings.Join(known, ", ")))
		case len(q[name]) > 1:
			return badRequest(name + " is given twice")
		}
	}
	return nil
}

// limit parses the limit parameter; it returns 0 if it is absent.
func limit(q url.Values, most int) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badRequest("limit must be a number from 1 to " + strconv.Itoa(most))
	}
	return n, nil
}
