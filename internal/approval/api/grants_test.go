package api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/gatestore"
)

// An approver whose grant could not be stored is told so, and that the call is approved.
func TestFailedGrantIsAnError(t *testing.T) {
	o := open(t)
	held, _, err := o.service.Hold(t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ann"}, Upstream: "files", Tool: approval.Tool{Digest: "v2-1"},
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: "again"},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_file","arguments":{}}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var shown review.Approval
	o.do(t, "GET", "/api/approvals/"+string(held.ID), "", nil).read(t, &shown)
	o.store.noRecords.Store(true)
	r := o.do(t, "POST", "/api/approvals/"+string(held.ID)+"/approve", `{"shownDigest":"`+shown.ShownDigest+`","grant":{"seconds":60,"uses":1}}`, nil)
	r.mustRefuse(t, http.StatusConflict, "grant_not_given")
	if !strings.Contains(r.body, "the call was approved, but") || !strings.Contains(r.body, `"state":"approved"`) {
		t.Errorf("answer = %s", r.body)
	}
	var all api.GrantList
	if o.do(t, "GET", "/api/grants?state=all", "", nil).read(t, &all); len(all.Grants) != 0 {
		t.Errorf("grants %+v", all.Grants)
	}
}

func (s *failingStore) PutRecord(ctx context.Context, r gatestore.Record) error {
	if s.noRecords.Load() {
		return &task.Error{Kind: task.ErrUnavailable, Err: errors.New("no room for records in /var/hunter2")}
	}
	return s.Store.PutRecord(ctx, r)
}
