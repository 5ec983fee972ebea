package inbox

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// The fields of the form of a decision, besides those of its call.
const (
	fieldAdvance = "advance" // set by the script: show the next call after the decision
	fieldAll     = "all"     // decide all identical calls
	fieldSame    = "same"    // the id of an identical call, and the digest of its view
	fieldAfter   = "after"   // in the query: the call that was decided before this page
)

// maxGroup is the maximum number of calls that one form decides, besides the call of its page.
const maxGroup = 49

// next redirects to the call that follows the call of a request in a list, or to the list.
func (i *Inbox) next(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	s := readSelection(r.URL.Query())
	id, err := i.following(r, who, s)
	if err != nil {
		return err
	}
	seeOther(w, s.callOrList(id))
	return nil
}

// following returns the next call of a list that the operator may decide, or "". If a group is
// decided, its calls are left out.
func (i *Inbox) following(r *http.Request, who operator.Operator, s selection) (task.ID, error) {
	id := task.ID(r.PathValue("id"))
	var group []task.ID
	if r.FormValue(fieldAll) != "" {
		p, err := i.cfg.Viewer.Place(r.Context(), s.filter(), id)
		if err != nil {
			return "", err
		}
		group = p.Identical
	}
	objection := i.cfg.Approvals.Objection(api.Approver(who))
	return i.cfg.Viewer.Following(r.Context(), s.filter(), id, func(t task.Task) bool {
		err := objection(t)
		return !errors.Is(err, approval.ErrForbidden) && !errors.Is(err, lifecycle.ErrAlreadyDecided) && !slices.Contains(group, t.ID)
	})
}

// seeOther redirects to a page of the gate.
func seeOther(w http.ResponseWriter, page string) {
	w.Header().Set("Location", page)
	w.WriteHeader(http.StatusSeeOther)
}

// decided redirects after a decision: to the next call if the script asked for that, and otherwise
// to the page of the call. Without the script, a double click could decide a call that was not seen.
func (i *Inbox) decided(w http.ResponseWriter, r *http.Request, who operator.Operator) error {
	s := readSelection(r.URL.Query())
	id := task.ID(r.PathValue("id"))
	//mutate:false TestDecisionWithoutScriptShowsItsCall the second click of a double click approves a call that was not seen
	if r.PostFormValue(fieldAdvance) == "" {
		seeOther(w, s.call(id))
		return nil
	}
	next, err := i.following(r, who, s)
	if err != nil {
		return err
	}
	s.after = id
	seeOther(w, s.callOrList(next))
	return nil
}

// afterNotice returns the notice about the decision before a page. It reports only what the store
// has of this operator, whatever the address of the page says.
func (i *Inbox) afterNotice(r *http.Request, who operator.Operator) (*notice, error) {
	id := r.URL.Query().Get(fieldAfter)
	if id == "" {
		return nil, nil
	}
	a, err := i.cfg.Viewer.Show(r.Context(), task.ID(id))
	if errors.Is(err, task.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := &notice{good: true, text: statusOf(a, i.cfg.Now()).text, link: readSelection(r.URL.Query()).call(a.ID)}
	own := func(d gatetask.Decision) bool { return d.By == who.Name }
	switch {
	case a.Rejection != nil && own(*a.Rejection):
		n.title = "You rejected " + a.Tool + "."
	case slices.ContainsFunc(a.Approvals, own):
		n.title = "You approved " + a.Tool + "."
	default:
		return nil, nil
	}
	return n, nil
}

// decideGroup decides the identical calls of a form after the call of its page was decided. Each
// decision has the digest of what was shown of its call.
func (i *Inbox) decideGroup(w http.ResponseWriter, r *http.Request, who operator.Operator, ruling approval.Ruling, first task.Task) error {
	ruling.Gives = nil // it was given with the first call
	t := bulkResult{what: ruling.Decision}
	t.add(first, nil)
	same := r.PostForm[fieldSame]
	for n, one := range same[:min(len(same), maxGroup)] {
		id, shown, _ := strings.Cut(one, " ")
		//mutate:swap "= shown" "= shown[:0]" TestChangedCallOfGroupIsNotDecided a call of a group is decided although its view was not shown
		ruling.Shown = shown
		after, err := i.cfg.Approvals.Decide(r.Context(), task.ID(id), api.Approver(who), ruling)
		if !t.add(after, err) {
			i.cfg.Log.ErrorContext(r.Context(), "inbox: decide a group", "task_id", id, "err", err)
			t.left = len(same) - n
			break
		}
	}
	return i.decidedGroup(w, r, who, t.notice())
}

// decidedGroup shows the next call after a group was decided, or the list.
func (i *Inbox) decidedGroup(w http.ResponseWriter, r *http.Request, who operator.Operator, n *notice) error {
	s := readSelection(r.URL.Query())
	if r.PostFormValue(fieldAdvance) == "" {
		return i.showPending(w, r, who, n)
	}
	next, err := i.following(r, who, s)
	if err != nil {
		return err
	}
	if next == "" {
		return i.showPending(w, r, who, n)
	}
	c, err := i.loadCase(r, next, who)
	if err != nil {
		return err
	}
	return i.showCase(w, r, who, c, callResponse{notice: n})
}

// neighbours sets the place of a pending call in its list, and its group. Calls that need a passkey
// are decided one by one.
func (i *Inbox) neighbours(r *http.Request, d *callView) error {
	if d.State != task.InputRequired {
		return nil
	}
	var err error
	if d.place, err = i.cfg.Viewer.Place(r.Context(), d.list.filter(), d.ID); err != nil {
		return err
	}
	others := d.place.Identical
	if len(others) == 0 || d.confirm.needed {
		return nil
	}
	d.same, err = i.cfg.Viewer.Alike(r.Context(), d.ID, others[:min(len(others), maxGroup)])
	return err
}

// call returns the address of the page of a call of the selection.
func (s selection) call(id task.ID) string {
	return s.link("/approvals/"+url.PathEscape(string(id)), "")
}

// callOrList returns the address of a call, or that of the list if there is none.
func (s selection) callOrList(id task.ID) string {
	if id == "" {
		return s.link("/", "")
	}
	return s.call(id)
}

// A field is a hidden field of a form.
type field struct{ name, value string }

// fields returns the selection for a form.
func (s selection) fields() (all []field) {
	for _, f := range []field{{"q", s.text}, {"tool", s.tool}, {"agent", s.agent}, {"workflow", s.workflow}} {
		if f.value != "" {
			all = append(all, f)
		}
	}
	return all
}

// page returns the address of the page of the call, in the list that it was opened from.
func (d callView) page() string { return d.list.call(d.ID) }

// action returns the address of an action on the call.
func (d callView) action(name string) string {
	return d.list.link("/approvals/"+url.PathEscape(string(d.ID))+"/"+name, "")
}

// everything returns the address of the page with everything.
func (d callView) everything() string {
	page := d.page()
	if d.list.narrow() {
		return page + "&view=" + viewAll
	}
	return page + "?view=" + viewAll
}

// groupVersion returns a text that changes with the calls of the group.
func (d callView) groupVersion() string {
	var b strings.Builder
	for _, a := range d.same {
		b.WriteString(string(a.ID) + " ")
	}
	return b.String()
}

// groupText returns the text of the field that decides the group.
func (d callView) groupText() string {
	whole, here := len(d.place.Identical)+1, len(d.same)+1
	if here < whole {
		return fmt.Sprintf("Decide %d of %d identical calls together", here, whole)
	}
	return fmt.Sprintf("Decide all %d identical calls together", here)
}
