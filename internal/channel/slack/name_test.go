package slack_test

import (
	"strings"
	"testing"
)

// TestSpacesInNameShown checks that Slack shows spaces at the end of a name, with a warning.
func TestSpacesInNameShown(t *testing.T) {
	f := open(t)
	f.run()
	f.tool = "delete_file "
	f.hold(`{}`)
	if m := f.Posted(1); !strings.Contains(m.Text, `delete_file\u0020 for ann`) || !strings.Contains(m.Blocks, "Spaces at an end, or several in a row") {
		t.Errorf("a name with a space at its end: %s, %s", m.Text, m.Blocks)
	}
}
