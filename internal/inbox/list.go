package inbox

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

const pageSize = 30 // of the history

// A search is what of the history is asked for.
type search struct {
	state, tool, requester string
	cursor                 string
}

// outcomes are the parts of history that one can ask for.
var outcomes = []struct {
	name, label string
	states      []task.State
	needed      *bool // whether an approval was needed
}{
	{"", "All decided or ended", []task.State{
		task.Approved, task.Executing, task.Completed, task.Failed, task.Rejected, task.Cancelled, task.Expired,
	}, nil},
	{"approved", "Approved", []task.State{task.Approved, task.Executing, task.Completed, task.Failed}, new(true)},
	{"rejected", "Rejected", []task.State{task.Rejected}, nil},
	{"expired", "Expired", []task.State{task.Expired}, nil},
	{"withdrawn", "Withdrawn by the agent", []task.State{task.Cancelled}, nil},
	{"unasked", "No approval needed", []task.State{
		task.Approved, task.Executing, task.Completed, task.Failed, task.Cancelled, task.Expired,
	}, new(false)},
}

// next returns the link to the page after this one.
func (s search) next(cursor string) string {
	v := url.Values{"cursor": {cursor}}
	for name, value := range map[string]string{"outcome": s.state, "tool": s.tool, "requester": s.requester} {
		if value != "" {
			v.Set(name, value)
		}
	}
	return "/history?" + v.Encode()
}

func (s search) filtered() bool { return s.state != "" || s.tool != "" || s.requester != "" }

// history shows what became of calls.
func (i *Inbox) history(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	q := r.URL.Query()
	s := search{
		state: q.Get("outcome"), cursor: q.Get("cursor"),
		tool: strings.TrimSpace(q.Get("tool")), requester: strings.TrimSpace(q.Get("requester")),
	}
	at := 0
	for n, o := range outcomes {
		if o.name == s.state {
			at = n
		}
	}
	s.state = outcomes[at].name
	page, err := i.cfg.Cases.Pending(r.Context(), casefile.Filter{
		States: slices.Clone(outcomes[at].states), Needed: outcomes[at].needed, Tool: s.tool, Principal: s.requester, Cursor: s.cursor, Limit: pageSize,
	})
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	f, err := i.frame(r, who, "history", "History")
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	i.show(w, r, http.StatusOK, historyPage(f, page, s))
}

// open shows one held call.
func (i *Inbox) open(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	i.withCase(w, r, who, func(c casefile.Case) {
		if who.Role.Includes(operator.Approver) {
			i.cfg.Desk.Looked(r.Context(), c.Approval)
		}
		i.showCase(w, r, who, c, answer{status: http.StatusOK})
	})
}

// withCase loads the held call that a request names, and shows it. If the call is
// no longer kept, it shows what the journal has of it.
func (i *Inbox) withCase(w http.ResponseWriter, r *http.Request, who operator.Operator, show func(casefile.Case)) {
	id := task.ID(r.PathValue("id"))
	c, err := i.loadCase(r, id, who)
	switch {
	case errors.Is(err, task.ErrNotFound):
		i.showStory(w, r, who, id)
	case err != nil:
		i.fail(w, r, who, err)
	default:
		show(c)
	}
}

// loadCase returns the case of a held call for the person who looks at it.
func (i *Inbox) loadCase(r *http.Request, id task.ID, who operator.Operator) (casefile.Case, error) {
	return i.cfg.Cases.Case(r.Context(), id, i.cfg.Desk.Objection(api.Approver(who)))
}

// An answer is what a request for a page of a call came to.
type answer struct {
	status int
	notice *notice
	reason string // that was typed, to be kept in the form
}

// showCase shows a held call, and what became of a request about it.
func (i *Inbox) showCase(w http.ResponseWriter, r *http.Request, who operator.Operator, c casefile.Case, a answer) {
	query := url.Values{} // of a form that was sent there is none
	if r.Method == http.MethodGet {
		query = r.URL.Query()
	}
	d, err := newDetail(c, query.Get("find"))
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	d.reason = a.reason
	if query.Get("view") == "all" {
		d.whole, d.beside = wholeText(c.Whole), wholeText(c.Beside)
	}
	f, err := i.frame(r, who, "", c.Tool)
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	f.notice = a.notice
	if r.Method != http.MethodGet {
		f.self = "/approvals/" + url.PathEscape(string(c.ID))
	}
	i.show(w, r, a.status, casePage(f, d))
}

// showStory shows what the journal says of a call that is no longer kept.
func (i *Inbox) showStory(w http.ResponseWriter, r *http.Request, who operator.Operator, id task.ID) {
	story, err := i.cfg.Cases.Story(r.Context(), id)
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	f, err := i.frame(r, who, "", story[0].Tool)
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	i.show(w, r, http.StatusOK, storyPage(f, story))
}

// arguments shows all the arguments of a held call, as plain text.
func (i *Inbox) arguments(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	c, err := i.loadCase(r, task.ID(r.PathValue("id")), who)
	if err != nil {
		i.fail(w, r, who, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := w.Write([]byte(asText(c.Whole))); err != nil {
		i.cfg.Log.DebugContext(r.Context(), "arguments not sent", "error", err)
	}
}

// fail shows an error that has nothing to do with a decision.
func (i *Inbox) fail(w http.ResponseWriter, r *http.Request, who operator.Operator, err error) {
	f := i.bareFrame("Not found")
	f.who, f.form = who, i.auth.FormToken(who)
	switch {
	case r.Context().Err() != nil:
		endedEarly(w)
	case errors.Is(err, task.ErrNotFound):
		i.show(w, r, http.StatusNotFound, refusalPage(f, refusal{
			"No such request", "It may have ended long ago: ended requests are deleted after a while.", "Show pending calls", "/",
		}))
	case errors.Is(err, task.ErrInvalidCursor):
		first := "/"
		if r.URL.Path == "/history" {
			first = "/history"
		}
		query := r.URL.Query()
		query.Del("cursor")
		http.Redirect(w, r, withQuery(first, query), http.StatusSeeOther) //nolint:gosec // a path of this gate
	case errors.Is(err, approval.ErrUnsure):
		f.title = "Not known"
		i.show(w, r, http.StatusServiceUnavailable, refusalPage(f, refusal{
			"It is not known whether your decision counts",
			"The store did not answer in time. The page of the request shows what was recorded.", "Show the request", "/approvals/" + url.PathEscape(r.PathValue("id")),
		}))
	case errors.Is(err, task.ErrClosed):
		f.title = "Shutting down"
		w.Header().Set("Retry-After", "5")
		i.show(w, r, http.StatusServiceUnavailable, refusalPage(f, refusal{
			"The gate is shutting down", "Nothing was decided, and nothing is lost. Try again in a moment.", "Try again", "/",
		}))
	default:
		i.cfg.Log.ErrorContext(r.Context(), "inbox", "path", r.URL.Path, "error", err)
		f.title = "Something went wrong"
		i.show(w, r, http.StatusInternalServerError, refusalPage(f, refusal{
			"Something went wrong", "The gate could not load this page. See its log for details.", "Try again", "/",
		}))
	}
}
