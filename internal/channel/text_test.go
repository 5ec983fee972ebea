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

// TestSpacesAreShown checks that many spaces in an argument do not look like the end of the call.
func TestSpacesAreShown(t *testing.T) {
	var q channel.Question
	q.Approval.Arguments = []byte(`{"a":{"command":"ls` + strings.Repeat(" ", 140) + `rm -rf /"}}`)
	want := "{\n  \"a\": {\n    \"command\": \"ls" + strings.Repeat(`\u0020`, 140) + "rm -rf /\"\n  }\n}"
	if text := q.Text(channel.ChatLimits); text.Content != want {
		t.Errorf("content %s", text.Content)
	}
}

// TestRejectionInWords checks that a rejection without a reason is a sentence, and that one with a
// correction says that another call was approved.
func TestRejectionInWords(t *testing.T) {
	var q channel.Question
	q.Stage = channel.Rejected
	for want, d := range map[string]gatetask.Decision{
		"Rejected by ann": {By: "ann"},
		"Rejected by ann with a correction (one call with other arguments was approved instead): other path": {
			By: "ann", Reason: "other path", Correction: &gatetask.Correction{},
		},
	} {
		q.Approval.Rejection = &d
		if text := q.Text(channel.ChatLimits); text.Outcome != want {
			t.Errorf("outcome %q; want %q", text.Outcome, want)
		}
	}
}
