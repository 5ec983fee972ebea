package httplink_test

import (
	"strings"
	"testing"
	"time"
)

// A server that is silent in the middle of an answer causes a timeout, and the call is not
// repeated.
func TestSilentServerTimesOut(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"hang", "ping_client", "stall", "break_and_hang"} {
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

// A server that has sent the client a request may be silent for any time.
func TestQuestionLiftsTimeout(t *testing.T) {
	t.Parallel()
	_, target := newServer(t)
	s := openWith(t, "limits: {call_timeout: 2s}\n", target, "")
	s.begin()
	s.say(call("1", "ask_client"))
	s.hear(`"q1"`)
	time.Sleep(3 * time.Second)
	s.say(`{"jsonrpc":"2.0","id":"q1","result":{"role":"assistant"}}`)
	if got := s.hear(`"id":1`); !strings.Contains(got, "assistant") {
		t.Errorf("the call was answered %s", got)
	}
}

// The result of an upstream task may take any time.
func TestTaskResultHasNoTimeout(t *testing.T) {
	t.Parallel()
	up, target := newServer(t)
	s := openWith(t, "limits: {request_timeout: 2s}\n", target, "")
	s.begin()
	s.say(`{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"theirs"}}`)
	await(t, "the server has the request", func() bool { return up.count("tasks/result") == 1 })
	time.Sleep(3 * time.Second)
	close(up.ended)
	if got := s.hear(`"id":1`); !strings.Contains(got, `"result"`) {
		t.Errorf("the request was answered %s", got)
	}
}
