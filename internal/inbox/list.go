package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/a-h/templ"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// call shows one held call.
func (i *Inbox) call(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	return i.withCase(w, r, who, func(c review.Details) error {
		if who.Role.Includes(operator.Approver) {
			i.cfg.Approvals.RecordView(r.Context(), c.Approval)
		}
		n, err := i.afterNotice(r, who)
		if err != nil {
			return err
		}
		return i.showCase(w, r, who, c, callResponse{notice: n})
	})
}

// withCase loads the held call of a request and calls show. If the call was deleted, it
// shows what was recorded of the call instead.
func (i *Inbox) withCase(w http.ResponseWriter, r *http.Request, who operator.Operator, show func(review.Details) error) error {
	id := task.ID(r.PathValue("id"))
	c, err := i.loadCase(r, id, who)
	switch {
	case errors.Is(err, task.ErrNotFound):
		return i.showStory(w, r, who, id)
	case err != nil:
		return err
	default:
		return show(c)
	}
}

// loadCase returns the details of a held call for the operator.
func (i *Inbox) loadCase(r *http.Request, id task.ID, who operator.Operator) (review.Details, error) {
	return i.cfg.Viewer.Details(r.Context(), id, i.cfg.Approvals.Objection(api.Approver(who)))
}

// A callResponse is the outcome of a decision, shown on the page of the call.
type callResponse struct {
	status int // 0 means 200
	notice *notice
	reason string // the reason that the operator typed, to keep it in the form

	correction string // the corrected arguments that the operator typed
}

// showCase shows a held call with a response to a form.
func (i *Inbox) showCase(w http.ResponseWriter, r *http.Request, who operator.Operator, c review.Details, a callResponse) error {
	query := url.Values{} // empty for a form
	if r.Method == http.MethodGet {
		query = r.URL.Query()
	}
	d, err := newCallView(r.Context(), c, query.Get("view"), query.Get("find"))
	if err != nil {
		return err
	}
	d.reason, d.correction = a.reason, cmp.Or(a.correction, string(c.Correction))
	if d.confirm, err = i.confirmation(r, who, c); err != nil {
		return err
	}
	d.list = readSelection(r.URL.Query())
	if err := i.neighbours(r, &d); err != nil {
		return err
	}
	p := page{title: c.Tool, waiting: d.place.Pending, status: a.status, notice: a.notice, self: d.page()}
	return i.page(w, r, who, p, func(f frame) templ.Component { return casePage(f, d) })
}

// arguments sends all arguments of a held call as plain text.
func (i *Inbox) arguments(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	c, err := i.loadCase(r, task.ID(r.PathValue("id")), who)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := w.Write([]byte(asText(c.AllArguments))); err != nil {
		i.cfg.Log.DebugContext(r.Context(), "arguments not sent", "err", err)
	}
	return nil
}

// fail shows an error that a handler returned.
func (i *Inbox) fail(w http.ResponseWriter, r *http.Request, who operator.Operator, err error) {
	f := i.bareFrame("")
	f.who, f.form, f.waiting = who, i.auth.FormToken(who), -1
	refuse := func(status int, title string, why refusal) {
		f.title = title
		i.show(w, r, status, refusalPage(f, why))
	}
	switch {
	case r.Context().Err() != nil:
		endedEarly(w)
	case errors.Is(err, task.ErrNotFound):
		refuse(http.StatusNotFound, "Not found", refusal{
			"No such request", "It may have ended long ago: ended requests are deleted after a while.", "Show pending calls", "/",
		})
	case errors.Is(err, task.ErrInvalidCursor), errors.Is(err, callrecord.ErrCursor):
		first := "/"
		if r.URL.Path == "/history" {
			first = "/history"
		}
		query := r.URL.Query()
		query.Del("cursor")
		seeOther(w, withQuery(first, query))
	case errors.Is(err, approval.ErrUnsure):
		refuse(http.StatusServiceUnavailable, "Not known", refusal{
			"It is not known whether your decision counts",
			"The store did not answer in time. The page of the request shows what was recorded.", "Show the request", "/approvals/" + url.PathEscape(r.PathValue("id")),
		})
	case errors.Is(err, task.ErrClosed):
		w.Header().Set("Retry-After", "5")
		refuse(http.StatusServiceUnavailable, "Shutting down", refusal{
			"The gate is shutting down", "Nothing was decided, and nothing is lost. Try again in a moment.", "Try again", "/",
		})
	default:
		i.cfg.Log.ErrorContext(r.Context(), "inbox", "path", r.URL.Path, "err", err)
		refuse(http.StatusInternalServerError, "Something went wrong", refusal{
			"Something went wrong", "The gate could not load this page. See its log for details.", "Try again", "/",
		})
	}
}

// pending shows the calls that wait for a decision.
func (i *Inbox) pending(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	n, err := i.afterNotice(r, who)
	if err != nil {
		return err
	}
	return i.showPending(w, r, who, n)
}

func (i *Inbox) showPending(w http.ResponseWriter, r *http.Request, who operator.Operator, n *notice) error {
	s := readSelection(r.URL.Query())
	if r.Method != http.MethodGet {
		s.cursor = "" // the page of the cursor may be empty after a rejection
	}
	q, err := i.cfg.Viewer.Queue(r.Context(), s.filter())
	if err != nil {
		return err
	}
	f := i.frame(r, who, "waiting", "Waiting", q.Pending)
	f.notice, f.self = n, s.link("/", s.cursor)
	i.show(w, r, http.StatusOK, pendingPage(f, q, s))
	return nil
}

// A selection selects pending calls.
type selection struct {
	text, tool, agent, workflow string
	cursor                      string
	after                       task.ID // the call that was decided before, for a link
}

func readSelection(q url.Values) selection {
	get := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	return selection{text: get("q"), tool: get("tool"), agent: get("agent"), workflow: get("workflow"), cursor: q.Get("cursor")}
}

func (s selection) filter() review.Filter {
	return review.Filter{Text: s.text, Tool: s.tool, Principal: s.agent, Workflow: s.workflow, Cursor: s.cursor}
}

func (s selection) narrow() bool { return s != selection{cursor: s.cursor} }

// link returns the address of a page with the same selection.
func (s selection) link(path, cursor string) string {
	return withValues(path, map[string]string{"q": s.text, "tool": s.tool, "agent": s.agent, "workflow": s.workflow, "cursor": cursor, fieldAfter: string(s.after)})
}

// withValues returns the address of a page with the nonempty values as its query.
func withValues(path string, values map[string]string) string {
	v := url.Values{}
	for name, value := range values {
		if value != "" {
			v.Set(name, value)
		}
	}
	return withQuery(path, v)
}

// withQuery returns the address of a page with a query, which may be empty.
func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// countText returns the number of pending calls, and of those that match a selection.
func countText(q review.Queue, s selection) string {
	if s.narrow() {
		return fmt.Sprintf("%d of %d pending", q.Matching, q.Pending)
	}
	return fmt.Sprintf("%d pending", q.Pending)
}

// idsOf returns the ids of a group as the value of a form field.
func idsOf(g review.Group) string {
	ids := make([]string, len(g.Calls))
	for n, a := range g.Calls {
		ids[n] = string(a.ID)
	}
	return strings.Join(ids, " ")
}

// versionOf returns a text that changes whenever the row of a group must be updated.
func versionOf(g review.Group) string {
	var b strings.Builder
	for _, a := range g.Calls {
		fmt.Fprintf(&b, "%s %d ", a.ID, len(a.Approvals))
	}
	return b.String()
}

// workflowText returns the name of the workflow, and the number of approvals if it needs
// more than one.
func workflowText(a review.Approval) string {
	if a.Quorum > 1 {
		return fmt.Sprintf("%s, %d of %d approvals", a.Workflow, len(a.Approvals), a.Quorum)
	}
	return a.Workflow
}
