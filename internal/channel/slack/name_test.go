package slack_test

import (
	"strings"
	"testing"
)

// Spaces at the end of a name are seen in Slack, and there is a caution.
func TestNameWithSpaces(t *testing.T) {
	f := open(t)
	f.run()
	f.tool = "delete_file "
	f.hold(`{}`)
	if m := f.Posted(1); !strings.Contains(m.Text, `delete_file\u0020 for ann`) || !strings.Contains(m.Blocks, "Spaces at an end, or several in a row") {
		t.Errorf("a name with a space at its end: %s, %s", m.Text, m.Blocks)
	}
}
