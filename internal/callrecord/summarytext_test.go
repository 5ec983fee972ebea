package callrecord_test

import (
	"slices"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/callrecord"
	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

// TestSummaryLines checks the lines about a summary, in which hidden characters show.
func TestSummaryLines(t *testing.T) {
	s := callrecord.Summary{
		Total: callrecord.Counts{Forwarded: 12, Observed: 11, Denied: 1, Held: 2, Approved: 1, Rejected: 1},
		Observed: []callrecord.Notice{
			{Action: policy.Approve, Rule: "rule deletions", Upstream: "files", Name: "delete_file", Principal: "alice", Calls: 8},
			{Action: policy.Deny, Rule: "default", Upstream: "files", Name: "x\u202e", Calls: 2},
			{Action: policy.Deny, Rule: "default", Upstream: "files", Name: "y", Calls: 1},
		},
	}
	want := []string{
		"15 calls: 12 forwarded, of which 11 only because policy is observed; 1 denied; 2 held; 1 approved; 1 rejected",
		"8 would have been held: delete_file at files, by alice (rule deletions)",
		`2 would have been denied: x\u202e at files, by anonymous agents (default)`,
		"and 1 more: see the overview in the inbox",
	}
	if got := s.Lines(2); !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
}
