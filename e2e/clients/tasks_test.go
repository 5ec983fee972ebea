package clients_test

import (
	"strings"
	"testing"
)

// An ended is the outcome of a call for the client of the tasks extension.
type ended struct {
	Status string   `json:"status"`
	Result result   `json:"result"`
	Error  *failure `json:"error"`
}

// The same client supports the tasks of both eras. It prefers tasks, so a held call becomes
// one.
func TestTasksExtension(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Run("approved", func(t *testing.T) {
				s := open(t, longHold)
				call, held := begin(t, s, start(t, "tasks.mjs", s.url, era))
				s.approve(t, held)
				var got ended
				call.await("returned", &got)
				if got.Status != "completed" {
					t.Errorf("the call ended as %+v", got)
				}
				deleted(t, got.Result.told())
				s.ran(t, 1)
			})
			t.Run("rejected", func(t *testing.T) {
				s := open(t, longHold)
				call, held := begin(t, s, start(t, "tasks.mjs", s.url, era))
				s.reject(t, held)
				var got ended
				call.await("returned", &got)
				if why := rejection(era, got); !strings.Contains(why, "Rejected by an approver") {
					t.Errorf("the call ended as %+v", got)
				}
				s.ran(t, 0)
			})
			t.Run("cancelled", func(t *testing.T) {
				s := open(t, longHold)
				a := start(t, "tasks.mjs", s.url, era)
				call, held := begin(t, s, a)
				a.tell("cancel", map[string]string{"id": held.ID}).await("returned", nil)
				var got ended
				call.await("returned", &got)
				if got.Status != "cancelled" {
					t.Errorf("the call ended as %+v", got)
				}
				s.inState(t, "cancelled")
				s.ran(t, 0)
			})
		})
	}
}

// begin begins a call, and returns it when the client has a task and has polled it.
func begin(t *testing.T, s *site, a *agent) (*order, approval) {
	t.Helper()
	call := a.tell("call", removing())
	var id string
	call.await("task", &id)
	held := s.pending(t)
	if id != held.ID {
		t.Errorf("the client has task %s, the approver %s", id, held.ID)
	}
	for range 2 {
		var seen taskView
		call.await("status", &seen)
		if seen.Status != "working" || !strings.HasPrefix(seen.StatusMessage, "Waiting for approval by default · ") {
			t.Errorf("the task is %+v", seen)
		}
	}
	s.ran(t, 0)
	return call, held
}

// rejection returns why a call did not run, if the outcome has the form of the era: a failed
// task, or a completed one with a result for the model.
func rejection(era string, got ended) string {
	switch {
	case era == "legacy" && got.Status == "failed" && got.Error != nil: // the client created the error from the status message
		return got.Error.Message
	case era == "modern" && got.Status == "completed" && got.Result.IsError:
		return got.Result.told().text
	default:
		return ""
	}
}
