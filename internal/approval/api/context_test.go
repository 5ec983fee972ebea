package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// The context tells an approver why they may not approve a call, who may, the earlier calls of
// its requester, and its history.
func TestContextHelpsToDecide(t *testing.T) {
	o := open(t)
	path := func(id task.ID, action string) string { return "/api/approvals/" + string(id) + "/" + action }
	first := o.hold(t, "two", "ann", "/a")
	o.do(t, "POST", path(first, "reject"), `{"reason":"no"}`, nil).read(t, new(review.Approval))
	second := o.hold(t, "two", "ann", "/b")
	var x review.Context
	o.do(t, "GET", path(second, "context"), "", nil).read(t, &x)
	if x.Objection != "" || len(x.Earlier) != 1 || x.Earlier[0].ID != first || len(x.History) == 0 || x.History[0].Task != second || x.ToolChange != nil {
		t.Errorf("%+v", x)
	}
	o.do(t, "GET", path(o.hold(t, "two", "alice", "/c"), "context"), "", nil).read(t, &x)
	if !strings.Contains(x.Objection, "your own agent") {
		t.Errorf("%+v", x)
	}
	o.do(t, "GET", path(o.hold(t, "others", "ann", "/d"), "context"), "", nil).read(t, &x)
	if !strings.Contains(x.Objection, "not an approver of this workflow") || len(x.Approvers) == 0 {
		t.Errorf("%+v", x)
	}
	o.do(t, "GET", path("tg_none", "context"), "", nil).mustRefuse(t, http.StatusNotFound, "not_found")
	o.do(t, "GET", path(second, "context"), "", func(r *http.Request) { r.Header.Del("Authorization") }).
		mustRefuse(t, http.StatusUnauthorized, "unauthorized")
}
