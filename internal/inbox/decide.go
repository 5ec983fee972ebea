package inbox

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A notice is shown above a page. It reports the result of a form.
type notice struct {
	good        bool
	title, text string
	link        string // the page of the call; may be empty
}

// maxForm is the maximum size of a form, in bytes.
const maxForm = 64 << 10

// decide records the decision of a form about a call, or about a group of identical ones.
func (i *Inbox) decide(what approval.Decision) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		id := task.ID(r.PathValue("id"))
		ruling, err := i.form(r, id, who, what)
		var after task.Task
		if err == nil {
			after, err = i.cfg.Approvals.Decide(r.Context(), id, api.Approver(who), ruling)
		}
		switch {
		case err != nil:
			return i.showOutcome(w, r, who, ruling, err)
		case r.PostFormValue(fieldAll) != "":
			return i.decideGroup(w, r, who, ruling, after)
		default:
			return i.decided(w, r, who)
		}
	}
}

// fieldCorrection has the arguments of a rejection with a correction.
const fieldCorrection = "correction"

// correct records the rejection of a call with corrected arguments.
func (i *Inbox) correct(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	ruling, err := i.correctionForm(r, who)
	if err == nil {
		_, err = i.cfg.Approvals.Decide(r.Context(), task.ID(r.PathValue("id")), api.Approver(who), ruling)
	}
	if err != nil {
		return i.showOutcome(w, r, who, ruling, err)
	}
	return i.decided(w, r, who)
}

// correctionForm returns the rejection of a form with corrected arguments. A part of the call that was not
// shown counts as unread, whatever the approver has ticked.
func (i *Inbox) correctionForm(r *http.Request, who operator.Operator) (approval.Ruling, error) {
	ruling := i.ruling(r, who, approval.Reject)
	ruling.Shown, ruling.Signed = r.PostFormValue("shown"), r.PostFormValue(fieldSigned)
	ruling.Correction = jsontext.Value(r.PostFormValue(fieldCorrection))
	var err error
	if ruling.Unread, err = i.unread(r, task.ID(r.PathValue("id")), who, approval.Approve); err == nil && ruling.Signed != "" {
		ruling.Site, err = i.site(r)
	}
	return ruling, err
}

// showOutcome shows why a decision does not count, or not in full. It returns errors that are failures.
func (i *Inbox) showOutcome(w http.ResponseWriter, r *http.Request, who operator.Operator, ruling approval.Ruling, err error) error {
	if !isOutcome(err) {
		return err
	}
	return i.withCase(w, r, who, func(c review.Details) error {
		a := callResponse{reason: ruling.Reason, correction: strings.ReplaceAll(r.PostFormValue(fieldCorrection), "\r\n", "\n")}
		a.status, a.notice = i.outcome(c, ruling.Decision, err)
		return i.showCase(w, r, who, c, a)
	})
}

// form returns the decision of a form about a call.
func (i *Inbox) form(r *http.Request, id task.ID, who operator.Operator, what approval.Decision) (approval.Ruling, error) {
	ruling := i.ruling(r, who, what)
	ruling.Shown, ruling.Signed = r.PostFormValue("shown"), r.PostFormValue(fieldSigned)
	var err error
	if ruling.Unread, err = i.unread(r, id, who, what); err != nil || what != approval.Approve {
		return ruling, err
	}
	if err = i.checkUncorrected(r, id, who); err != nil {
		return ruling, err
	}
	if ruling.Signed != "" {
		if ruling.Site, err = i.site(r); err != nil {
			return ruling, err
		}
	}
	ruling.Gives, err = i.gives(r, id, who)
	return ruling, err
}

// checkUncorrected returns an error if the form of an approval has other arguments than the call: the
// approver may think that these run.
func (i *Inbox) checkUncorrected(r *http.Request, id task.ID, who operator.Operator) error {
	typed := strings.ReplaceAll(r.PostFormValue(fieldCorrection), "\r\n", "\n")
	if typed == "" {
		return nil
	}
	c, err := i.loadCase(r, id, who)
	if err != nil {
		return err
	}
	if c.Correction != nil && typed != string(c.Correction) {
		return &review.NoCorrectionError{Reason: "an approval runs the call with its own arguments; use the button of the correction, or undo your changes"}
	}
	return nil
}

// ruling returns the decision of a form, with how it was made.
func (i *Inbox) ruling(r *http.Request, who operator.Operator, what approval.Decision) approval.Ruling {
	return api.Ruling(i.cfg.Agents, r, who, gatetask.ViaInbox, approval.Ruling{Decision: what, Reason: r.PostFormValue("reason")})
}

// readAll is the form value for a page that shows everything.
const readAll = "all"

// unread returns the number of bytes of the call that its page did not show to the
// approver. The error is [review.ErrUnread] if the form does not confirm that number. The
// check is here because only the inbox knows what its page folds.
func (i *Inbox) unread(r *http.Request, id task.ID, who operator.Operator, what approval.Decision) (int, error) {
	if what != approval.Approve || r.PostFormValue("read") == readAll {
		return 0, nil
	}
	c, err := i.loadCase(r, id, who)
	if err != nil {
		return 0, err
	}
	d, err := newCallView(r.Context(), c, r.PostFormValue("view"), "")
	if err != nil {
		return 0, err
	}
	if c.State == task.InputRequired && c.Objection == nil && d.unread() > 0 && r.PostFormValue("unread") != strconv.Itoa(d.unread()) {
		return 0, review.ErrUnread
	}
	return d.unread(), nil
}

// isOutcome reports whether err is a reason not to count a decision, or not in full, which
// the page of the call explains. Other errors are failures.
func isOutcome(err error) bool {
	_, refused := errors.AsType[*review.NoGrantError](err)
	_, notGiven := errors.AsType[*approval.GrantFailedError](err)
	_, notCorrected := errors.AsType[*review.NoCorrectionError](err)
	if refused || notGiven || notCorrected {
		return true
	}
	return slices.ContainsFunc([]error{
		review.ErrNotShown, review.ErrViewChanged, review.ErrUnread, approval.ErrForbidden, approval.ErrDecidedByAgent, approval.ErrPasskeyRequired, approval.ErrPasskeyInvalid, lifecycle.ErrSelfApproval, lifecycle.ErrAlreadyDecided, task.ErrInvalidTransition,
		task.ErrConcurrentModification, task.ErrAlreadyTerminal, task.ErrExpired,
	}, func(known error) bool { return errors.Is(err, known) })
}

// outcome explains why a decision on c does not count, or not in full.
func (i *Inbox) outcome(c review.Details, what approval.Decision, err error) (int, *notice) {
	n := &notice{title: "Your " + noun(what) + " was not recorded"}
	if n.text = passkeyText(err); n.text != "" {
		return http.StatusForbidden, n
	}
	if wrong, ok := errors.AsType[*review.NoCorrectionError](err); ok {
		n.text = "The call cannot be rejected with this correction: " + wrong.Reason + "."
		if what == approval.Approve {
			n.text = "You have changed the arguments: " + wrong.Reason + "."
		}
		return http.StatusUnprocessableEntity, n
	}
	return i.outcomeOf(c, n, err)
}

// outcomeOf explains errors that all decisions can have.
func (i *Inbox) outcomeOf(c review.Details, n *notice, err error) (int, *notice) {
	refused, ok := errors.AsType[*review.NoGrantError](err)
	lost, approved := errors.AsType[*approval.GrantFailedError](err)
	switch {
	case approved && lost.Corrected:
		n.title = "Your rejection was recorded, but its correction may not count"
		n.text = "This call is rejected, but " + lost.Outcome() + ": " + lost.Reason + "."
		return http.StatusConflict, n
	case approved:
		n.title = "Your approval was recorded, but more calls may not be allowed"
		n.text = "This call is approved, but " + lost.Outcome() + ": " + lost.Reason + "."
		return http.StatusConflict, n
	case ok:
		n.text = "More calls like this one cannot be allowed: " + refused.Reason + "."
		return http.StatusUnprocessableEntity, n
	case errors.Is(err, approval.ErrForbidden):
		n.text = "You are not one of the approvers of the workflow " + c.Workflow + ". " + approversText(c.Approvers)
		return http.StatusForbidden, n
	case errors.Is(err, lifecycle.ErrSelfApproval), errors.Is(err, approval.ErrDecidedByAgent):
		n.text = "You cannot approve a call from your own agent. An agent cannot approve by itself either."
		return http.StatusForbidden, n
	case errors.Is(err, lifecycle.ErrAlreadyDecided):
		n.title = "You have already approved this"
		n.text = "It counts once. " + quorumText(c.Approval)
		return http.StatusConflict, n
	case errors.Is(err, review.ErrUnread):
		n.text = "A part of the arguments was still folded. Open every folded part, or say that you approve without reading it."
		return http.StatusConflict, n
	case errors.Is(err, review.ErrNotShown), errors.Is(err, review.ErrViewChanged):
		n.text = "The request has changed since you were shown it. Review it as it is now, and then decide."
		return http.StatusConflict, n
	case isLate(c, err):
		n.text = "The time to decide ran out while this was open. The call did not run."
		return http.StatusGone, n
	default:
		n.text = "Somebody else decided first: " + statusOf(c.Approval, i.cfg.Now()).text
		return http.StatusConflict, n
	}
}

// isLate reports whether the time to decide ran out before anybody decided.
func isLate(c review.Details, err error) bool {
	return (errors.Is(err, task.ErrExpired) || c.State == task.Expired) && !decided(c.Approval)
}

func noun(what approval.Decision) string {
	if what == approval.Approve {
		return "approval"
	}
	return "rejection"
}

// counted returns a number with a noun, in the plural unless the number is 1.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// maxBulk is the maximum number of calls in one form. A form with more rejects none.
const maxBulk = 5000

// rejectAll rejects the calls that are ticked in the list.
func (i *Inbox) rejectAll(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	if err := r.ParseForm(); err != nil {
		return i.showPending(w, r, who, &notice{title: "Nothing was rejected", text: "The form could not be read. Tick fewer requests, and try again."})
	}
	ids := tickedIDs(r.PostForm["id"])
	if len(ids) > maxBulk {
		return i.showPending(w, r, who, &notice{
			title: "Nothing was rejected",
			text:  fmt.Sprintf("%d requests were ticked; at most %d can be rejected at once.", len(ids), maxBulk),
		})
	}
	t := bulkResult{what: approval.Reject}
	ruling := i.ruling(r, who, approval.Reject)
	for n, id := range ids {
		after, err := i.cfg.Approvals.Decide(r.Context(), id, api.Approver(who), ruling)
		if !t.add(after, err) {
			i.cfg.Log.ErrorContext(r.Context(), "inbox: reject several", "task_id", id, "err", err)
			t.left = len(ids) - n
			break
		}
	}
	return i.showPending(w, r, who, t.notice())
}

// tickedIDs returns the ids in the values of a form, each once. A group of
// identical calls is one value.
func tickedIDs(values []string) []task.ID {
	var ids []task.ID
	seen := make(map[string]bool)
	for id := range strings.FieldsSeq(strings.Join(values, " ")) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, task.ID(id))
		}
	}
	return slices.Clip(ids)
}

// A bulkResult counts the results of decisions about several calls.
type bulkResult struct {
	what approval.Decision

	done, late, changed, forbidden int

	more int // of done: other approvers must approve too
	left int // not tried after the store failed
}

// add counts one call. It returns false if err means that the store failed.
func (t *bulkResult) add(after task.Task, err error) bool {
	switch {
	case err == nil:
		t.done++
		if after.State == task.InputRequired {
			t.more++
		}
	case errors.Is(err, review.ErrNotShown), errors.Is(err, review.ErrViewChanged), errors.Is(err, review.ErrUnread):
		t.changed++
	case errors.Is(err, approval.ErrForbidden), errors.Is(err, approval.ErrPasskeyRequired), errors.Is(err, approval.ErrDecidedByAgent):
		t.forbidden++
	case isOutcome(err) || errors.Is(err, task.ErrNotFound):
		t.late++
	default:
		return false
	}
	return true
}

func (t *bulkResult) notice() *notice {
	if *t == (bulkResult{what: t.what}) {
		return &notice{title: "Nothing was rejected", text: "Tick the requests that you want to reject."}
	}
	verb := " rejected"
	if t.what == approval.Approve {
		verb = " approved"
	}
	n := &notice{good: t.late+t.changed+t.forbidden+t.left == 0, title: counted(t.done, "request") + verb}
	var parts []string
	for _, part := range []struct {
		n    int
		text string
	}{
		{t.late, " had already been decided or had expired."},
		{t.changed, " had changed since you were shown it: not decided."},
		{t.forbidden, " can only be decided by other approvers."},
		{t.left, " may still be pending: the gate cannot say whether the decision was recorded. Try again; it is safe to repeat."},
	} {
		if part.n > 0 {
			parts = append(parts, counted(part.n, "other")+part.text)
		}
	}
	if t.more > 0 {
		parts = append(parts, "More approvals are needed.")
	}
	n.text = strings.Join(parts, " ")
	return n
}
