package mcptask_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/task"
)

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result string
		err    error
		state  task.State
		answer string
		told   error // the error of Run
	}{
		{"result", `{"content":[]}`, nil, task.Completed, `{"content":[]}`, nil},
		{"tool error", `{"content":[],"isError":true}`, nil, task.Completed, `{"content":[],"isError":true}`, nil},
		{"protocol error", ``, &jsonrpc.Error{Code: 7, Message: "no"}, task.Failed, `{"code":7,"message":"no"}`, nil},
		{
			"any error", ``, io.ErrUnexpectedEOF, task.Failed,
			`{"code":-32603,"message":"Internal error","data":{"error_type":"internal_error"}}`, io.ErrUnexpectedEOF,
		},
		{
			"no result", ``, nil, task.Failed,
			`{"code":-32603,"message":"Internal error","data":{"error_type":"internal_error"}}`, errAny,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			ref := b.start()

			done, err := b.Run(t.Context(), ref, func(context.Context) ([]byte, error) {
				return json.RawMessage(tt.result), tt.err
			})

			if (err == nil) != (tt.told == nil) || tt.told != nil && !errors.Is(tt.told, errAny) && !errors.Is(err, tt.told) {
				t.Errorf("err = %v; want %v", err, tt.told)
			}
			if done.State != tt.state {
				t.Errorf("state %s; want %s", done.State, tt.state)
			}
			if diff := cmp.Diff(tt.answer, string(payloadOf(done))); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if kind := done.Result.Kind; (kind == task.ResultToolError) != strings.Contains(tt.answer, "isError") {
				t.Errorf("kind %s", kind)
			}
		})
	}
}

// A lossyStore makes changes of tasks that run, and does not say so the first time.
type lossyStore struct {
	task.Store

	lost bool
}

// Swap implements [task.Store].
func (s *lossyStore) Swap(ctx context.Context, t task.Task, notes ...task.Note) error {
	err := s.Store.Swap(ctx, t, notes...)
	if err == nil && t.State == task.Executing && !s.lost {
		s.lost = true
		return &task.Error{Kind: task.ErrUnavailable}
	}
	return err
}

// A run works even if the store's answer to its claim was lost.
func TestRunAfterLostAnswer(t *testing.T) {
	b := newBench(t)
	lossy := &lossyStore{Store: b.Store}
	b.Store = lossy
	done, err := b.Run(t.Context(), b.start(), func(context.Context) ([]byte, error) { return []byte(`{"content":[]}`), nil })
	if err != nil || done.State != task.Completed || !lossy.lost {
		t.Errorf("state %s, %v", done.State, err)
	}
}

var errAny = errors.New("any")

// A task that is cancelled stops its work, and stays cancelled.
func TestRunIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.start()
		stopped := make(chan error, 1)
		go func() {
			done, err := b.Run(t.Context(), ref, func(ctx context.Context) ([]byte, error) {
				<-ctx.Done()
				return json.RawMessage(`{"content":[]}`), nil
			})
			if done.State != task.Cancelled {
				err = errors.Join(err, errors.New("the task is "+string(done.State)))
			}
			stopped <- err
		}()
		synctest.Wait()
		if got := b.ask(modern, mcpname.TasksCancel, `{"taskId":"`+string(ref.ID)+`"}`); got != `{"resultType":"complete"}` {
			t.Errorf("cancel: %s", got)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// The answer is stored even after the caller of Run has gone.
func TestRunOutlivesItsContext(t *testing.T) {
	b := newBench(t)
	ref := b.start()
	ctx, cancel := context.WithCancel(t.Context())
	done, err := b.Run(ctx, ref, func(context.Context) ([]byte, error) {
		cancel()
		return json.RawMessage(`{"content":[]}`), nil
	})
	if err != nil || done.State != task.Completed {
		t.Errorf("%s, %v", done.State, err)
	}
}

// A task runs at most once, and only after approval.
func TestTaskRunsAtMostOnce(t *testing.T) {
	work := func(context.Context) ([]byte, error) { return json.RawMessage(`{}`), nil }
	b := newBench(t)
	ref := b.start()
	if _, err := b.Run(t.Context(), ref, work); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Run(t.Context(), ref, work); !errors.Is(err, task.ErrAlreadyTerminal) {
		t.Errorf("second run: %v", err)
	}
	if _, err := b.Run(t.Context(), task.OwnedBy("mallory").Ref(ref.ID), work); !errors.Is(err, task.ErrOwnerMismatch) {
		t.Errorf("foreign task: %v", err)
	}
	b.keep(newTask(t, submit))
	if _, err := b.Run(t.Context(), task.OwnedBy("alice").Ref(id), work); !errors.Is(err, task.ErrInvalidTransition) {
		t.Errorf("unapproved task: %v", err)
	}
}

func TestStart(t *testing.T) {
	b := newBench(t)
	b.Limits = task.Limits{PerOwner: 1, RetryAfter: 5 * time.Second}
	draft := task.Draft{Owner: "alice", TTL: time.Hour, Call: task.Call{Method: "tools/call", Name: "a", Message: "{}"}}
	tk, err := b.Start(t.Context(), draft)
	if err != nil || tk.ID.Own() || len(tk.ID) < 22 || tk.PollInterval == 0 {
		t.Fatalf("%+v, %v", tk, err)
	}
	draft.Call.Name = "b"
	if _, err := b.Start(t.Context(), draft); !errors.Is(err, task.ErrRateLimited) || legacy.Error(err).Code != -32009 {
		t.Errorf("over the limit: %v", err)
	}
	if _, err := b.Start(t.Context(), task.Draft{Owner: "alice"}); !errors.Is(err, task.ErrInvalid) {
		t.Errorf("without a ttl: %v", err)
	}
}
