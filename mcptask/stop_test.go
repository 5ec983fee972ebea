package mcptask_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// Work that ends with an error after the server was stopped was broken off, in whatever form it
// reports that. A result from then is kept.
func TestStopBreaksWorkOff(t *testing.T) {
	after := func(result string, err error) mcptask.Work {
		return func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return []byte(result), err
		}
	}
	for name, tt := range map[string]struct {
		work   mcptask.Work
		broken bool
	}{
		"error":       {forever, true},
		"other error": {after(``, errors.New("closed connection")), true},
		"tool error":  {after(`{"content":[{"type":"text","text":"context canceled"}],"isError":true}`, nil), true},
		"result":      {after(`{"content":[]}`, nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := alive(t)
				b.Rerun = func(t task.Task) mcptask.Work {
					if t.Call.Name == "twice" {
						return quick
					}
					return nil
				}
				once := b.launch(tt.work)
				twice, err := b.Launch(t.Context(), sum("twice"), tt.work)
				if err != nil {
					t.Fatal(err)
				}
				b.drained()
				if !tt.broken {
					b.until(once.ID, task.Completed)
					b.until(twice.ID, task.Completed)
					return
				}
				if got := b.until(once.ID, task.Failed); got.Failure.Stage != lifecycle.StageShutdown || got.Failure.Ran != task.RanUnknown {
					t.Errorf("%+v", got.Failure)
				}
				next := b.restarted()
				next.Rerun = b.Rerun
				next.tidy(11)
				if got := next.until(twice.ID, task.Completed); got.Result.Kind != task.ResultOK {
					t.Errorf("the result is %s", got.Result.Inline)
				}
				next.drained()
			})
		})
	}
}

// The error of work that the tool has reported before the stop is its result.
func TestToolErrorBeforeStopIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		made := b.launch(func(context.Context) ([]byte, error) {
			time.Sleep(time.Second) // within the grace
			return []byte(`{"content":[],"isError":true}`), nil
		})
		b.drained()
		if got := b.until(made.ID, task.Completed); got.Result.Kind != task.ResultToolError {
			t.Errorf("the result is %s", got.Result.Inline)
		}
	})
}

// A tool that ends its goroutine ends its task.
func TestGoexitFailsTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		made := b.launch(func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil })
		synctest.Wait()
		if got := b.now(made.ID); got.State != task.Failed || !strings.Contains(string(payloadOf(got)), "Internal error") {
			t.Errorf("the task is %s", got.State)
		}
		b.drained()
	})
}

// A tool can find out why it must end.
func TestContextHasCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			end  func(b bench, id task.ID)
			want error
		}{
			"cancelled": {func(b bench, id task.ID) { b.ask(modern, mcpname.TasksCancel, `{"taskId":"`+string(id)+`"}`) }, mcptask.ErrCancelled},
			"expired":   {func(bench, task.ID) { time.Sleep(2 * time.Hour) }, mcptask.ErrExpired},
			"stopping":  {func(b bench, _ task.ID) { b.drained() }, mcptask.ErrStopping},
		} {
			b := alive(t)
			causes := make(chan error, 2)
			made := b.launch(func(ctx context.Context) ([]byte, error) {
				call, _ := mcptask.From(ctx)
				_, err := call.Ask(ctx, whoAndWhere)
				causes <- err
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return nil, ctx.Err()
			})
			tt.end(b, made.ID)
			for range 2 {
				if err := <-causes; !errors.Is(err, tt.want) {
					t.Errorf("%s: %v; want %v", name, err, tt.want)
				}
			}
			if name != "stopping" {
				b.drained()
			}
		}
	})
}

// An exclusiveStore can be used by one process.
type exclusiveStore struct{ task.Store }

func (exclusiveStore) Exclusive() bool { return true }

// A process that alone can use its store does not wait for the leases of earlier processes. It
// leaves the runs of its other servers alone.
func TestDeadProcessIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		mine := b.launch(forever)
		lost := map[string]task.ID{"sum": "", "twice": ""}
		for name := range lost {
			d := sum(name)
			d.ID = task.ID("lost-" + name)
			tk, err := task.New(d, b.Now())
			for _, e := range []lifecycle.Event{lifecycle.Admit{By: "mcptask-other-1"}, lifecycle.Claim{By: "mcptask-other-1", LeaseUntil: b.Now().Add(10 * time.Second)}} {
				if err == nil {
					tk, err = lifecycle.Apply(tk, e, b.Now())
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			b.keep(tk)
			lost[name] = tk.ID
		}
		next := b.restarted()
		next.Store = exclusiveStore{b.Store}
		next.Rerun = func(t task.Task) mcptask.Work {
			if t.Call.Name == "twice" {
				return quick
			}
			return nil
		}
		if err := next.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := next.now(lost["twice"]); got.State != task.Completed {
			t.Errorf("the repeatable task is %s", got.State)
		}
		if got := next.now(lost["sum"]); got.State != task.Failed || got.Failure.Ran != task.RanUnknown {
			t.Errorf("the other task is %s", got.State)
		}
		if got := next.now(mine.ID); got.State != task.Executing || got.Execution.Executor != mine.Execution.Executor {
			t.Errorf("the task of this process is %s", got.State)
		}
		next.drained()
		b.drained()
	})
}
