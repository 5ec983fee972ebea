package policy_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// Problems have positions as values.
func TestProblemsHavePositionValues(t *testing.T) {
	_, _, err := policy.Compile(policy.Config{
		Rules:   []policy.Rule{{Match: "a", Action: policy.Forward}, {Match: "[", Action: policy.Approve, Workflow: "x"}},
		Default: policy.Rule{Action: policy.AskPolicies},
		Cedar: []policy.Source{
			{Name: "syntax.cedar", Text: []byte("permit (principal, action, resource);\n@note(\"\u00e9\") permit (principal action, resource);")},
			{Name: "types.cedar", Text: []byte("\npermit (principal, action, resource) when { context.tome };")},
		},
	})
	wrong := new(policy.Error)
	if !errors.As(err, &wrong) {
		t.Fatalf("err = %v; want a *policy.Error", err)
	}
	var got []policy.Place
	for _, p := range wrong.Problems {
		got = append(got, p.Place)
	}
	want := []policy.Place{
		{Source: "syntax.cedar", Line: 2, Column: 30},
		{Source: "types.cedar", Line: 2},
		{Setting: "rules[1].match"},
		{Setting: "rules[1].workflow"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
