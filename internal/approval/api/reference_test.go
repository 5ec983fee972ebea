package api

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/doctest"
	"github.com/thoughtgate/thoughtgate-go/internal/operator"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

const apiPage = "../../../docs/api.md"

// A part has the fields of openapi.json that the reference uses.
type part struct {
	Name        string          `json:"name"`
	In          string          `json:"in"`
	Role        string          `json:"x-role"`
	Summary     string          `json:"summary"`
	Description string          `json:"description"`
	Ref         string          `json:"$ref"`
	Parameters  []part          `json:"parameters"`
	Properties  map[string]part `json:"properties"`
}

type document struct {
	Paths      map[string]map[string]part `json:"paths"`
	Components struct {
		Schemas map[string]part `json:"schemas"`
	} `json:"components"`
}

// The reference of the API in the documentation is generated from the OpenAPI description, and
// its list of errors from the code.
func TestReference(t *testing.T) {
	var d document
	if err := json.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	var operations []string
	for path, methods := range d.Paths {
		for method, o := range methods {
			operations = append(operations, fmt.Sprintf("- `%s` `%s` (%s): %s%s\n", path, strings.ToUpper(method), cmp.Or(o.Role, "no token"),
				strings.TrimSpace(o.Summary+" "+o.Description), o.query()))
		}
	}
	slices.Sort(operations)
	doctest.Generated(t, apiPage, "operations", strings.Join(operations, ""))
	doctest.Generated(t, apiPage, "members", d.members(d.Components.Schemas["Approval"]))
	doctest.Generated(t, apiPage, "errors", errorList())
}

// query returns the query parameters of an operation.
func (p part) query() string {
	var all []string
	for _, q := range p.Parameters {
		if q.In == "query" {
			all = append(all, "`"+q.Name+"` ("+strings.TrimSuffix(q.Description, ".")+")")
		}
	}
	if all == nil {
		return ""
	}
	return " Query: " + strings.Join(all, ", ") + "."
}

// members returns the members of a schema with their descriptions.
func (d document) members(s part) string {
	var lines []string
	for name, m := range s.Properties {
		ref := d.Components.Schemas[strings.TrimPrefix(m.Ref, "#/components/schemas/")]
		lines = append(lines, "- `"+name+"`: "+cmp.Or(m.Description, ref.Description)+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// errorList returns a line for each type of error.
func errorList() string {
	all := []*problem{
		{http.StatusUnauthorized, operator.TypeUnauthorized, "no token and no session, or not the right one"},
		{http.StatusForbidden, operator.TypeForbidden, "your role does not allow it, or the workflow has other approvers"},
		{http.StatusForbidden, operator.TypeCrossSite, "with a session: the request does not come from a page of the gate"},
		{http.StatusTooManyRequests, operator.TypeRateLimited, "too many requests, or too many failed ones; `Retry-After` says how long to wait"},
		{http.StatusBadRequest, explain(badRequest("")).Type, "a parameter or the body is invalid; unknown ones are refused"},
		{http.StatusUnprocessableEntity, explain(&review.NoCorrectionError{}).Type, "the call cannot be rejected with this correction; nothing was decided"},
		{http.StatusUnprocessableEntity, explain(&review.NoGrantError{}).Type, "the standing approval cannot be given; nothing was decided"},
		{http.StatusConflict, explain(&approval.GrantFailedError{}).Type, "the call was approved, but the standing approval was not made, or that is not known; the message says which"},
		explain(http.ErrBodyNotAllowed), explain(errUnknown), explain(errTooLarge), explain(errWrongType),
	}
	for i := range problems {
		all = append(all, &problems[i].as)
	}
	var lines []string
	for _, p := range all {
		begin := "- `" + p.Type + "` "
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, begin) }) {
			lines = append(lines, fmt.Sprintf("%s(%d): %s\n", begin, p.status, doctest.Sentence(p.Message, "")))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
