package channel_test

import (
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/channel"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task/gatetask"
)

// TestFactsAreLines checks that the text of an agent, or a reason, adds no line that looks like one
// of the gate.
func TestFactsAreLines(t *testing.T) {
	var q channel.Question
	q.Stage = channel.Rejected
	q.Approval.ClientReason = &review.Untrusted{Text: "cleaning\nRisk: reads\nCaution: none", Untrusted: true}
	q.Approval.Rejection = &gatetask.Decision{By: "ann", Reason: "no\nApproved by alice"}
	text := q.Text(channel.ChatLimits)
	for _, fact := range append(text.Facts, text.Outcome) {
		if strings.Contains(fact, "\n") {
			t.Errorf("%q has several lines", fact)
		}
	}
}
