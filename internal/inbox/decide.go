package inbox

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A notice says, above a page, what became of a decision.
type notice struct {
	good        bool
	title, text string
}

// maxForm is the size of the largest form that is read.
const maxForm = 64 << 10

// decide takes the decision in a form, and leads to the call as it is then.
func (i *Inbox) decide(what approval.Decision) operator.Service {
	return func(w http.ResponseWriter, r *http.Request, who operator.Operator) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		id := task.ID(r.PathValue("id"))
		ruling := approval.Ruling{Decision: what, Reason: r.PostFormValue("reason"), Shown: r.PostFormValue("shown")}
		var err error
		if ruling.Unread, err = i.unread(r, id, who, what); err == nil && what == approval.Approve {
			ruling.Gives, err = i.gives(r, id, who)
		}
		if err == nil {
			_, err = i.cfg.Desk.Decide(r.Context(), id, api.Approver(who), ruling)
		}
		switch {
		case err == nil:
			http.Redirect(w, r, "/approvals/"+url.PathEscape(string(id)), http.StatusSeeOther)
		case isOutcome(err):
			i.withCase(w, r, who, func(c casefile.Case) {
				a := answer{reason: ruling.Reason}
				a.status, a.notice = i.outcome(c, what, err)
				i.showCase(w, r, who, c, a)
			})
		default:
			i.fail(w, r, who, err)
		}
	}
}

// readAll is what a form says if its page showed everything.
const readAll = "all"

// unread returns how much of the call the approver was not shown, and says need
// not be read. The error is [casefile.ErrUnread] if they do not say so. Only
// the inbox knows what its page folds, not the desk.
func (i *Inbox) unread(r *http.Request, id task.ID, who operator.Operator, what approval.Decision) (int, error) {
	if what != approval.Approve || r.PostFormValue("read") == readAll {
		return 0, nil
	}
	c, err := i.loadCase(r, id, who)
	if err != nil {
		return 0, err
	}
	d, err := newDetail(c, "")
	if err != nil {
		return 0, err
	}
	if c.State == task.InputRequired && c.Objection == nil && d.unread() > 0 && r.PostFormValue("unread") != strconv.Itoa(d.unread()) {
		return 0, casefile.ErrUnread
	}
	return d.unread(), nil
}

// isOutcome reports whether err says that a decision came too late or from the
// wrong person, or what did not come of it.
func isOutcome(err error) bool {
	_, refused := errors.AsType[*casefile.NoGrantError](err)
	_, notGiven := errors.AsType[*approval.NotGivenError](err)
	if refused || notGiven {
		return true
	}
	return slices.ContainsFunc([]error{
		casefile.ErrNotShown, casefile.ErrViewChanged, casefile.ErrUnread, approval.ErrForbidden, task.ErrSelfApproval, task.ErrAlreadyDecided, task.ErrInvalidTransition,
		task.ErrConcurrentModification, task.ErrAlreadyTerminal, task.ErrExpired,
	}, func(known error) bool { return errors.Is(err, known) })
}

// outcome says in words why a decision on c does not count, or not in full.
func (i *Inbox) outcome(c casefile.Case, what approval.Decision, err error) (int, *notice) {
	n := &notice{title: "Your " + noun(what) + " was not recorded"}
	refused, ok := errors.AsType[*casefile.NoGrantError](err)
	lost, approved := errors.AsType[*approval.NotGivenError](err)
	switch {
	case approved:
		n.title = "Your approval was recorded, but more calls may not be allowed"
		n.text = "This call is approved, but " + lost.Outcome() + ": " + lost.Why + "."
		return http.StatusConflict, n
	case ok:
		n.text = "More calls like this one cannot be allowed: " + refused.Why + "."
		return http.StatusUnprocessableEntity, n
	case errors.Is(err, approval.ErrForbidden):
		n.text = "You are not one of the approvers of the workflow " + c.Workflow + ". " + approversText(c.Approvers)
		return http.StatusForbidden, n
	case errors.Is(err, task.ErrSelfApproval):
		n.text = "You cannot approve a call from your own agent."
		return http.StatusForbidden, n
	case errors.Is(err, task.ErrAlreadyDecided):
		n.title = "You have already approved this"
		n.text = "It counts once. " + quorumText(c.Approval)
		return http.StatusConflict, n
	case errors.Is(err, casefile.ErrUnread):
		n.text = "A part of the arguments was still folded. Open every folded part, or say that you approve without reading it."
		return http.StatusConflict, n
	case errors.Is(err, casefile.ErrNotShown), errors.Is(err, casefile.ErrViewChanged):
		n.text = "The request has changed since you were shown it. Review it as it is now, and then decide."
		return http.StatusConflict, n
	case (errors.Is(err, task.ErrExpired) || c.State == task.Expired) && !decided(c.Approval):
		n.text = "The time to decide ran out while this was open. The call did not run."
		return http.StatusGone, n
	default:
		n.text = "Somebody else decided first: " + statusOf(c.Approval, i.cfg.Now()).text
		return http.StatusConflict, n
	}
}

func noun(what approval.Decision) string {
	if what == approval.Approve {
		return "approval"
	}
	return "rejection"
}

// counted returns a number with what it counts.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
