package task_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/action"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// TestKindsMatchOnlyThemselves checks that errors.Is matches each kind only with its own value.
func TestKindsMatchOnlyThemselves(t *testing.T) {
	all := map[task.Kind]error{
		task.ErrNotFound: task.ErrNotFound, task.ErrOwnerMismatch: task.ErrOwnerMismatch, task.ErrExists: task.ErrExists,
		task.ErrDuplicate: task.ErrDuplicate, task.ErrExpired: task.ErrExpired, task.ErrNotReady: task.ErrNotReady,
		task.ErrAlreadyTerminal: task.ErrAlreadyTerminal, task.ErrInvalidTransition: task.ErrInvalidTransition,
		task.ErrConcurrentModification: task.ErrConcurrentModification, task.ErrRateLimited: task.ErrRateLimited,
		task.ErrCapacityExceeded: task.ErrCapacityExceeded, task.ErrVariableSizeExceeded: task.ErrVariableSizeExceeded,
		task.ErrVariableOwnership: task.ErrVariableOwnership, task.ErrInvalidVariable: task.ErrInvalidVariable,
		task.ErrInvalidTTL: task.ErrInvalidTTL, task.ErrInvalidCursor: task.ErrInvalidCursor, task.ErrInvalid: task.ErrInvalid,
		lifecycle.ErrSelfApproval: lifecycle.ErrSelfApproval, lifecycle.ErrAlreadyDecided: lifecycle.ErrAlreadyDecided,
		lifecycle.ErrAlreadyDelivered: lifecycle.ErrAlreadyDelivered, lifecycle.ErrNotExecutor: lifecycle.ErrNotExecutor,
		lifecycle.ErrDigestMismatch: lifecycle.ErrDigestMismatch, task.ErrChunkMissing: task.ErrChunkMissing,
		task.ErrUnreadable: task.ErrUnreadable, task.ErrUnavailable: task.ErrUnavailable, task.ErrClosed: task.ErrClosed,
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
	_, err := lifecycle.Apply(inState(t, task.Completed), lifecycle.Cancel{By: "ann"}, epoch)
	e, ok := errors.AsType[*task.Error](err)
	if !ok {
		t.Fatalf("err = %v", err)
	}
	want := task.Error{
		Kind: task.ErrAlreadyTerminal, ID: "tg_1", State: task.Completed, Action: action.Cancel, Suggest: "read the outcome",
	}
	if diff := cmp.Diff(want, *e); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	bare := &task.Error{Kind: task.ErrInvalid, Action: action.Create, Detail: "no id", Err: context.Canceled}
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

func TestErrorMatchesKindAndCause(t *testing.T) {
	err := error(&task.Error{Kind: task.ErrNotReady, Err: context.DeadlineExceeded})
	if !errors.Is(err, task.ErrNotReady) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v; want a match of its kind and of its cause", err)
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
		{"within the limits", limits, task.Load{Owner: 9, Total: 999}, nil},
		{"no limits", task.Limits{}, task.Load{Owner: 1e6, Total: 1e6, Duplicate: "tg_0"}, nil},
		{"the owner's limit is reached", limits, task.Load{Owner: 10, Total: 999}, &task.Error{
			Kind: task.ErrRateLimited, ID: "tg_1", Action: action.Create, Limit: 10, Size: 10, Detail: "10 tasks of its owner are pending, and the limit is 10",
			RetryAfter: time.Minute, Suggest: "wait until pending tasks have ended",
		}},
		{"the total limit is reached", limits, task.Load{Owner: 9, Total: 1001}, &task.Error{
			Kind: task.ErrCapacityExceeded, ID: "tg_1", Action: action.Create, Limit: 1000, Size: 1001, Detail: "1001 tasks in all are pending, and the limit is 1000",
			RetryAfter: time.Minute, Suggest: "wait until pending tasks have ended",
		}},
		{"the same call", limits, task.Load{Owner: 10, Total: 1000, Duplicate: "tg_0"}, &task.Error{
			Kind: task.ErrDuplicate, ID: "tg_0", Action: action.Create, Suggest: "use the task that is pending",
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
