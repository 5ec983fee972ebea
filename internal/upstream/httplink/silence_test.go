package httplink_test

import (
	"strings"
	"testing"
)

// An answer has begun, and then the server says nothing more. The call ends when its time
// is over, and is not repeated.
func TestSilence(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"hang", "stall", "break_and_hang"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			up, target := newServer(t)
			s := openWith(t, "limits: {call_timeout: 200ms}\n", target, "")
			s.begin()
			s.say(call("1", tool))
			if got := s.hear(`"id":1`); !strings.Contains(got, "upstream_timeout") {
				t.Errorf("the call was answered %s", got)
			}
			if n := up.count(`"` + tool + `"`); n != 1 {
				t.Errorf("the server has the call %d times", n)
			}
		})
	}
}
