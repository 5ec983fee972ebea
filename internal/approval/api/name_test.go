package api_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// Names that differ only in spaces are different for people and for programs. Hidden characters
// of names are escaped in JSON.
func TestNamesDifferInSpaces(t *testing.T) {
	o := open(t)
	const name = "delete\u202e_file "
	held, _, err := o.service.Hold(t.Context(), approval.Call{
		Owner: "ann", Principal: policy.Principal{ID: "ops-bot "}, Upstream: "files",
		Verdict: policy.Verdict{Action: policy.Approve, Workflow: "ops", Reason: "rules[0]"},
		Message: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{"path":"/a\u2800"}}}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`tool delete\u202e_file\u0020: Spaces at an end, or several in a row`,
		`requester ops-bot\u0020: Spaces at an end, or several in a row`,
	}
	var page review.Page
	list := o.do(t, "GET", "/api/approvals", "", nil)
	list.read(t, &page)
	var a review.Approval
	show := o.do(t, "GET", "/api/approvals/"+string(held.ID), "", nil)
	show.read(t, &a)
	for _, got := range []review.Approval{page.Approvals[0], a} {
		if got.Name != name || got.Tool != `delete\u202e_file\u0020` || got.Principal != `ops-bot\u0020` {
			t.Errorf("name %q, tool %s, principal %s", got.Name, got.Tool, got.Principal)
		}
		if diff := cmp.Diff(want, got.Warnings); diff != "" {
			t.Error(diff)
		}
	}
	if text := list.body + show.body; strings.ContainsAny(text, "\u202e\u2800") || !strings.Contains(text, `"path":"/a\u2800"`) {
		t.Errorf("unescaped hidden characters: %s", text)
	}
	for _, query := range []string{
		"tool=file%20", "tool=" + url.QueryEscape(`file\u0020`), "q=" + url.QueryEscape("delete\u202e_file"),
		"q=" + url.QueryEscape(`delete\u202e_file\u0020`), "q=" + url.QueryEscape(`ops-bot\u0020`),
	} {
		o.do(t, "GET", "/api/approvals?"+query, "", nil).read(t, &page)
		if len(page.Approvals) != 1 {
			t.Errorf("nothing found by %s", query)
		}
	}
	for _, query := range []string{
		"tool=" + url.QueryEscape(name), "tool=" + url.QueryEscape(a.Tool), "requester=ops-bot%20", "requester=" + url.QueryEscape(a.Principal),
	} {
		if answer := o.do(t, "GET", "/api/audit?"+query, "", asAdmin); !strings.Contains(answer.body, string(held.ID)) {
			t.Errorf("no journal entries found by %s: %s", query, answer.body)
		}
	}
	if answer := o.do(t, "GET", "/api/audit?tool=delete_file", "", asAdmin); strings.Contains(answer.body, string(held.ID)) {
		t.Errorf("journal entries of %s found by another name", held.ID)
	}
}
