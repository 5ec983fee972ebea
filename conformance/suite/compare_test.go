package suite_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/conformance/suite"
)

func ok(id string) suite.Check { return suite.Check{ID: id, Status: suite.Success} }

func bad(id, message string) suite.Check {
	return suite.Check{ID: id, Status: suite.Failure, Message: message}
}

func TestCompare(t *testing.T) {
	skipped := suite.Check{ID: "b", Status: "SKIPPED"}
	warned := suite.Check{ID: "b", Status: suite.Warning, Message: "hm"}
	tests := []struct {
		name      string
		want, got []suite.Check
		passed    int
		losses    []suite.Loss
	}{
		{
			name: "equal results lose nothing",
			want: []suite.Check{ok("a"), bad("b", "x")}, got: []suite.Check{ok("a"), bad("b", "y")},
			passed: 1,
		},
		{
			name: "a check that fails instead",
			want: []suite.Check{ok("a"), ok("b")}, got: []suite.Check{ok("a"), bad("b", "no")},
			passed: 1, losses: []suite.Loss{{Scenario: "s", Check: "b", Want: suite.Success, Got: suite.Failure, Message: "no"}},
		},
		{
			name: "a check that is no longer made",
			want: []suite.Check{ok("a"), ok("b")}, got: []suite.Check{ok("a")},
			passed: 1, losses: []suite.Loss{{Scenario: "s", Check: "b", Want: suite.Success}},
		},
		{
			name: "a check that is skipped instead",
			want: []suite.Check{ok("b")}, got: []suite.Check{skipped},
			losses: []suite.Loss{{Scenario: "s", Check: "b", Want: suite.Success, Got: "SKIPPED"}},
		},
		{
			name: "a check that only warns",
			want: []suite.Check{ok("b")}, got: []suite.Check{warned},
			losses: []suite.Loss{{Scenario: "s", Check: "b", Want: suite.Success, Got: suite.Warning, Message: "hm"}},
		},
		{
			name: "a warning that became a failure",
			want: []suite.Check{warned}, got: []suite.Check{bad("b", "no")},
			losses: []suite.Loss{{Scenario: "s", Check: "b", Want: suite.Warning, Got: suite.Failure, Message: "no"}},
		},
		{
			name: "one of several checks with the same id",
			want: []suite.Check{ok("a"), ok("a"), ok("a")}, got: []suite.Check{ok("a"), bad("a", "no"), ok("a")},
			passed: 2, losses: []suite.Loss{{Scenario: "s", Check: "a", Want: suite.Success, Got: suite.Failure, Message: "no"}},
		},
		{
			name: "a failure that only one of them has, in a scenario that passed",
			want: []suite.Check{ok("a")}, got: []suite.Check{ok("a"), bad("b", "no")},
			passed: 1, losses: []suite.Loss{{Scenario: "s", Check: "b", Got: suite.Failure, Message: "no"}},
		},
		{
			name: "a failure that only one of them has, in a scenario that failed earlier",
			want: []suite.Check{bad("a", "x")}, got: []suite.Check{ok("a"), bad("b", "no")},
		},
		{
			name: "better results",
			want: []suite.Check{bad("a", "x"), skipped}, got: []suite.Check{ok("a"), ok("b")},
		},
		{
			name: "a scenario that does not finish",
			want: []suite.Check{ok("a"), ok("b")}, got: nil,
			losses: []suite.Loss{{Scenario: "s", Message: "the scenario did not finish"}},
		},
		{
			name: "a scenario without checks that does not finish",
			want: []suite.Check{}, got: nil,
			losses: []suite.Loss{{Scenario: "s", Message: "the scenario did not finish"}},
		},
		{
			name: "a scenario that finishes only in the second",
			want: nil, got: []suite.Check{bad("a", "x")},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			passed, losses := suite.Compare(suite.Results{"s": tt.want}, suite.Results{"s": tt.got})
			if passed != tt.passed {
				t.Errorf("passed = %d, want %d", passed, tt.passed)
			}
			if diff := cmp.Diff(tt.losses, losses); diff != "" {
				t.Errorf("losses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompareScenarios(t *testing.T) {
	want := suite.Results{"z": {ok("a")}, "m": {ok("a"), ok("b")}, "a": {ok("a")}}
	got := suite.Results{"z": {bad("a", "no")}, "m": {ok("b"), ok("a")}}
	passed, losses := suite.Compare(want, got)
	if passed != 2 {
		t.Errorf("passed = %d, want 2", passed)
	}
	wantLosses := []suite.Loss{
		{Scenario: "a", Message: "the scenario did not finish"},
		{Scenario: "z", Check: "a", Want: suite.Success, Got: suite.Failure, Message: "no"},
	}
	if diff := cmp.Diff(wantLosses, losses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}
