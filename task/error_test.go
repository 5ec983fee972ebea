package task_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// TestErrorKinds checks that each kind is matched by its own value alone, so
// that no two can be mixed up.
func TestErrorKinds(t *testing.T) {
	all := map[task.Kind]error{
		task.KindNotFound: task.ErrNotFound, task.KindOwnerMismatch: task.ErrOwnerMismatch, task.KindExists: task.ErrExists,
		task.KindDuplicate: task.ErrDuplicate, task.KindExpired: task.ErrExpired, task.KindNotReady: task.ErrNotReady,
		task.KindAlreadyTerminal: task.ErrAlreadyTerminal, task.KindInvalidTransition: task.ErrInvalidTransition,
		task.KindConcurrentModification: task.ErrConcurrentModification, task.KindRateLimited: task.ErrRateLimited,
		task.KindCapacityExceeded: task.ErrCapacityExceeded, task.KindVariableSizeExceeded: task.ErrVariableSizeExceeded,
		task.KindVariableOwnership: task.ErrVariableOwnership, task.KindInvalidVariable: task.ErrInvalidVariable,
		task.KindInvalidTTL: task.ErrInvalidTTL, task.KindInvalidCursor: task.ErrInvalidCursor, task.KindInvalid: task.ErrInvalid,
		task.KindSelfApproval: task.ErrSelfApproval, task.KindAlreadyDecided: task.ErrAlreadyDecided,
		task.KindAlreadyDelivered: task.ErrAlreadyDelivered, task.KindNotExecutor: task.ErrNotExecutor,
		task.KindDigestMismatch: task.ErrDigestMismatch, task.KindChunkMissing: task.ErrChunkMissing,
		task.KindUnreadable: task.ErrUnreadable, task.KindUnavailable: task.ErrUnavailable, task.KindClosed: task.ErrClosed,
	}
	for kind := range all {
		err := fmt.Errorf("wrapped: %w", &task.Error{Kind: kind})
		for other, sentinel := range all {
			if got, want := errors.Is(err, sentinel), kind == other; got != want {
				t.Errorf("%s is %v: %v; want %v", kind, sentinel, got, want)
			}
		}
	}
}

func TestErrorText(t *testing.T) {
	_, err := inState(t, task.Completed).Apply(task.Cancel{By: "ann"}, epoch)
	e, ok := errors.AsType[*task.Error](err)
	if !ok {
		t.Fatalf("err = %v", err)
	}
	want := task.Error{
		Kind: task.KindAlreadyTerminal, ID: "tg_1", State: task.Completed, Action: task.ActionCancel, Suggest: "read the outcome",
	}
	if diff := cmp.Diff(want, *e); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	bare := &task.Error{Kind: task.KindInvalid, Action: task.ActionCreate, Detail: "no id", Err: context.Canceled}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{err, "task tg_1: cannot cancel while completed: already terminal"},
		{bare, "task: cannot create: invalid: no id: context canceled"},
		{task.ErrAlreadyTerminal, "task: already terminal"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("text %q; want %q", got, tt.want)
		}
	}
}

func TestErrorCause(t *testing.T) {
	err := error(&task.Error{Kind: task.KindNotReady, Err: context.DeadlineExceeded})
	if !errors.Is(err, task.ErrNotReady) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v; want both its kind and its cause", err)
	}
}

// TestLimits covers F-009 of GOV-001.
func TestLimits(t *testing.T) {
	limits := task.Limits{PerOwner: 10, Total: 1000, Unique: true, RetryAfter: time.Minute}
	tests := []struct {
		name   string
		limits task.Limits
		load   task.Load
		want   *task.Error
	}{
		{"room", limits, task.Load{Owner: 9, Total: 999}, nil},
		{"no limits", task.Limits{}, task.Load{Owner: 1e6, Total: 1e6, Same: "tg_0"}, nil},
		{"the owner has enough", limits, task.Load{Owner: 10, Total: 999}, &task.Error{
			Kind: task.KindRateLimited, ID: "tg_1", Action: task.ActionCreate, Limit: 10, Size: 10,
			RetryAfter: time.Minute, Suggest: "wait until pending tasks have ended",
		}},
		{"all have enough", limits, task.Load{Owner: 9, Total: 1001}, &task.Error{
			Kind: task.KindCapacityExceeded, ID: "tg_1", Action: task.ActionCreate, Limit: 1000, Size: 1001,
			RetryAfter: time.Minute, Suggest: "wait until pending tasks have ended",
		}},
		{"the same call", limits, task.Load{Owner: 10, Total: 1000, Same: "tg_0"}, &task.Error{
			Kind: task.KindDuplicate, ID: "tg_0", Action: task.ActionCreate, Suggest: "use the task that is pending",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.limits.Check(newTask(t), tt.load)
			got, _ := errors.AsType[*task.Error](err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
