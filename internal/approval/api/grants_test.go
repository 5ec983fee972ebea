package api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// An approver whose standing approval is not made is told so, and that the call is
// approved.
func TestGrantNotGiven(t *testing.T) {
	o := open(t)
	held, _, err := o.desk.Hold(t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files", Tool: approval.Tool{Digest: "v2-1"},
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: "again"},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{}}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var shown casefile.Approval
	o.do(t, "GET", "/api/approvals/"+string(held.ID), "", nil).read(t, &shown)
	o.store.noRecords.Store(true)
	r := o.do(t, "POST", "/api/approvals/"+string(held.ID)+"/approve", `{"shownDigest":"`+shown.ShownDigest+`","grant":{"seconds":60,"uses":1}}`, nil)
	r.mustRefuse(t, http.StatusConflict, "grant_not_given")
	if !strings.Contains(r.body, "the call was approved, but") || !strings.Contains(r.body, `"state":"approved"`) {
		t.Errorf("answer = %s", r.body)
	}
	var all api.GrantList
	if o.do(t, "GET", "/api/grants?state=all", "", nil).read(t, &all); len(all.Grants) != 0 {
		t.Errorf("there are %+v", all.Grants)
	}
}

func (s *failingStore) PutRecord(ctx context.Context, r task.Record) error {
	if s.noRecords.Load() {
		return &task.Error{Kind: task.KindUnavailable, Err: errors.New("no room for records in /var/hunter2")}
	}
	return s.GateStore.PutRecord(ctx, r)
}
