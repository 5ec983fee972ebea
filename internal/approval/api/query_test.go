package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/approval/api"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// Every route refuses unknown and repeated query parameters: a misspelled filter would select
// everything, and a repeated one is ambiguous.
func TestUnknownParametersAreRefused(t *testing.T) {
	o := open(t)
	id := o.hold(t, "ops", "ann", "/a")
	for pattern, known := range api.Parameters() {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.ReplaceAll(path, "{id}", string(id))
		queries := []string{"toool=x", "Tool=x", "=x", "x", "a;b", "tool=%zz"}
		for _, name := range known {
			queries = append(queries, name+"=1&"+name+"=2")
		}
		for _, query := range queries {
			o.do(t, method, path+"?"+query, "", asAdmin).mustRefuse(t, http.StatusBadRequest, "bad_request")
		}
	}
	for request, want := range map[string]string{
		"/api/audit?requestor=ann": `unknown query parameter \"requestor\": this request takes task, tool, requester, `,
		"/api/audit/ends?task=x":   `unknown query parameter \"task\": this request takes none`,
		"/api/approvals?q=a&q=b":   "q is given twice",
	} {
		if r := o.do(t, "GET", request, "", asAdmin); !strings.Contains(r.body, want) {
			t.Errorf("%s: %s; want %s", request, r.body, want)
		}
	}
	if got, err := o.service.Viewer().Show(t.Context(), id); err != nil || got.State != task.InputRequired {
		t.Errorf("state = %s, %v", got.State, err)
	}
}
