package inbox_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// TestUncountedDecisionExplained checks that the page explains why a decision did not count.
func TestUncountedDecisionExplained(t *testing.T) {
	tests := map[string]struct {
		held
		before func(t *testing.T, o *fixture, id task.ID)
		what   string
		status int
		words  []string
		state  task.State
	}{
		"another approver was faster": {
			before: func(t *testing.T, o *fixture, id task.ID) { o.signIn(t, "bob").decide(id, "reject", "no way") },
			what:   "approve", status: http.StatusConflict,
			words: []string{"Your approval was not recorded", "Somebody else decided first", "Rejected by bob", "no way"}, state: task.Rejected,
		},
		"expired while open": {
			before: func(_ *testing.T, o *fixture, _ task.ID) { o.pass(2 * time.Hour) },
			what:   "approve", status: http.StatusGone,
			words: []string{"Your approval was not recorded", "ran out while this was open", "did not run"}, state: task.Expired,
		},
		"approved by another approver, then expired": {
			before: func(t *testing.T, o *fixture, id task.ID) {
				o.signIn(t, "bob").decide(id, "approve", "")
				o.pass(11 * time.Hour)
			},
			what: "approve", status: http.StatusConflict,
			words: []string{"Your approval was not recorded", "Somebody else decided first", "It was approved. The agent did not come back for it in time. It did not run."}, state: task.Expired,
		},
		"approved twice": {
			held:   held{workflow: "two"},
			before: func(t *testing.T, o *fixture, id task.ID) { o.signIn(t, "alice").decide(id, "approve", "") },
			what:   "approve", status: http.StatusConflict,
			words: []string{"You have already approved this", "1 of 2 approvals, by alice", "1 more approval needed"}, state: task.InputRequired,
		},
		"own call": {
			held: held{by: "alice"}, what: "approve", status: http.StatusForbidden,
			words: []string{"You cannot approve a call from your own agent"}, state: task.InputRequired,
		},
		"other approvers": {
			held: held{workflow: "bobs"}, what: "reject", status: http.StatusForbidden,
			words: []string{"Your rejection was not recorded", "Only bob or the group oncall can decide"}, state: task.InputRequired,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := open(t)
			alice := o.signIn(t, "alice")
			id := o.hold(t, tt.held)
			token := hidden.FindStringSubmatch(alice.get("/approvals/" + string(id)))[1]
			if tt.before != nil {
				tt.before(t, o, id)
			}
			status, page := alice.post("/approvals/"+string(id)+"/"+tt.what, url.Values{"csrf": {token}})
			if status != tt.status {
				t.Errorf("status %d, want %d", status, tt.status)
			}
			mustHave(t, page, tt.words...)
			if got := o.state(t, id); got != tt.state {
				t.Errorf("the call is %s, want %s", got, tt.state)
			}
		})
	}
}
