package inbox

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// maxBulk is how many calls are rejected at once. Of more than that none is.
const maxBulk = 5000

// rejectAll rejects the calls that are ticked in the list.
func (i *Inbox) rejectAll(w http.ResponseWriter, r *http.Request, who operator.Operator) {
	if err := r.ParseForm(); err != nil {
		i.showPending(w, r, who, &notice{title: "Nothing was rejected", text: "The form could not be read. Tick fewer requests, and try again."})
		return
	}
	ids := tickedIDs(r.PostForm["id"])
	if len(ids) > maxBulk {
		i.showPending(w, r, who, &notice{
			title: "Nothing was rejected",
			text:  fmt.Sprintf("%d requests were ticked; at most %d can be rejected at once.", len(ids), maxBulk),
		})
		return
	}
	var t bulkTally
	for n, id := range ids {
		ruling := approval.Ruling{Decision: approval.Reject, Reason: r.PostFormValue("reason")}
		_, err := i.cfg.Desk.Decide(r.Context(), id, api.Approver(who), ruling)
		if !t.add(err) {
			i.cfg.Log.ErrorContext(r.Context(), "inbox: reject several", "task_id", id, "error", err)
			t.left = len(ids) - n
			break
		}
	}
	i.showPending(w, r, who, t.notice())
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

// A bulkTally counts what became of the calls that were to be rejected.
type bulkTally struct {
	done, late, forbidden int
	left                  int // not tried, because the store failed
}

// add counts one call. It reports false if err says nothing about the call but
// that the store failed.
func (t *bulkTally) add(err error) bool {
	switch {
	case err == nil:
		t.done++
	case errors.Is(err, approval.ErrForbidden):
		t.forbidden++
	case isOutcome(err) || errors.Is(err, task.ErrNotFound):
		t.late++
	default:
		return false
	}
	return true
}

func (t *bulkTally) notice() *notice {
	if *t == (bulkTally{}) {
		return &notice{title: "Nothing was rejected", text: "Tick the requests that you want to reject."}
	}
	n := &notice{good: t.late+t.forbidden+t.left == 0, title: fmt.Sprintf("%s rejected", counted(t.done, "request"))}
	var parts []string
	if t.late > 0 {
		parts = append(parts, counted(t.late, "other")+" had already been decided or had expired.")
	}
	if t.forbidden > 0 {
		parts = append(parts, counted(t.forbidden, "other")+" can only be decided by other approvers.")
	}
	if t.left > 0 {
		parts = append(parts, counted(t.left, "other")+" may still be pending: the gate cannot say whether the rejection was recorded. Try again; it is safe to repeat.")
	}
	n.text = strings.Join(parts, " ")
	return n
}
