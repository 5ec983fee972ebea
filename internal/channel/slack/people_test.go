package slack_test

import (
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/channel/slacktest"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// TestOneUserCountsOnce checks that a user with a changed e-mail address does not count twice
// for a quorum.
func TestOneUserCountsOnce(t *testing.T) {
	f := open(t)
	f.quorum = 2
	f.run()
	id := f.hold(`{"path":"/a"}`)
	value := f.Posted(1).Value("approve")
	f.Click("U3", "approve", value, slacktest.ChannelID)
	if got := f.Told(1); !strings.Contains(got, "1 of 2 approvals") {
		t.Fatalf("U3 is told %q", got)
	}
	f.Moves("U3", "carol+2@example.com")
	f.Click("U3", "approve", value, slacktest.ChannelID)
	if got := f.Told(2); !strings.Contains(got, "already approved this call") {
		t.Errorf("U3 is told %q", got)
	}
	if got := f.state(id); got.State != task.InputRequired || len(got.Approval.Approvals) != 1 {
		t.Errorf("state %s with %d approvals", got.State, len(got.Approval.Approvals))
	}
}
