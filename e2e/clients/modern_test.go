package clients_test

import (
	"strings"
	"testing"
)

// A modern client without tasks is asked to call again until an approver has decided.
func TestModernRounds(t *testing.T) {
	t.Parallel()
	t.Run("approved", func(t *testing.T) {
		s := open(t, "1s")
		s.watch(t)
		s.onCall(4, func() {
			s.ran(t, 0)
			s.approve(t, s.pending(t))
		})
		call := start(t, "modern.mjs", s.url).tell("call", removing())
		var got result
		call.await("returned", &got)
		deleted(t, got.told())
		if all := s.approvals(t, "all"); len(all) != 1 {
			t.Errorf("%d approvals were requested", len(all))
		}
		s.ran(t, 1)
	})
	t.Run("rejected", func(t *testing.T) {
		s := open(t, shortHold)
		s.watch(t)
		s.onCall(2, func() { s.reject(t, s.pending(t)) })
		call := start(t, "modern.mjs", s.url).tell("call", removing())
		var got result
		call.await("returned", &got)
		if end := got.told(); !strings.Contains(end.reason(), "Rejected by an approver") {
			t.Errorf("the client got %+v", end)
		}
		s.ran(t, 0)
	})
	t.Run("undecided", func(t *testing.T) {
		s := open(t, "20ms")
		s.watch(t)
		a := start(t, "modern.mjs", s.url)
		var got result
		a.tell("call", removing()).await("returned", &got)
		if end := got.told(); !end.isUndecided() {
			t.Errorf("the client got %+v", end)
		}
		if n := s.calls(); n != 10 {
			t.Errorf("the client sent the call %d times; want 10", n)
		}
		s.pending(t)
		s.ran(t, 0)
	})
}

// Properties that exist only in the legacy era are not listed for a modern client.
func TestModernLists(t *testing.T) {
	s := open(t, longHold)
	var tools []struct {
		Name      string         `json:"name"`
		Execution map[string]any `json:"execution"`
	}
	start(t, "modern.mjs", s.url).tell("list", nil).await("returned", &tools)
	if len(tools) != 5 {
		t.Errorf("the client sees %+v", tools)
	}
	for _, tool := range tools {
		if tool.Name == "write_file" || tool.Execution != nil {
			t.Errorf("the client sees %+v", tool)
		}
	}
}
