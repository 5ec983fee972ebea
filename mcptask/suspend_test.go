package mcptask_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
)

var who = schema.Object{{Name: "name", Value: json.RawMessage(`{"method":"elicitation/create","params":{"message":"Who?"}}`)}}

// answer answers the open questions of a task with their keys.
func (b bench) answer(id task.ID) (keys []string) {
	b.t.Helper()
	responses := schema.Object{}
	for key := range (jsonrpc.Value{Bytes: b.now(id).Execution.InputRequests}).Members() {
		keys = append(keys, key)
		responses = append(responses, schema.Member{Name: key, Value: json.RawMessage(`{"action":"accept","content":{"n":"` + key + `"}}`)})
	}
	params := `{"taskId":"` + string(id) + `","inputResponses":` + string(responses.Text()) + `,"_meta":{$tasks}}`
	if got := b.ask(modern, mcpname.TasksUpdate, params); got != `{"resultType":"complete"}` {
		b.t.Fatalf("tasks/update: %s", got)
	}
	return keys
}

// asksTwice asks the same question twice, and returns all answers.
func asksTwice(ctx context.Context) ([]byte, error) {
	call, _ := mcptask.From(ctx)
	first, err := call.Ask(ctx, who)
	if err != nil {
		return nil, err
	}
	second, err := call.Ask(ctx, who)
	return schema.Object{{Name: "first", Value: first.Text()}, {Name: "second", Value: second.Text()}}.Text(), err
}

// A client is not asked again when its answers were acknowledged before the process died, or
// between the death and the takeover.
func TestAnswersSurviveProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store, other := refusing(t)
		other.Rerun = func(task.Task) mcptask.Work { return asksTwice }
		made := b.launch(asksTwice)
		synctest.Wait()
		keys := b.answer(made.ID)
		time.Sleep(time.Second)
		store.down.Store(true) // the process is cut off from its store
		keys = append(keys, other.answer(made.ID)...)
		other.tidy(12)
		got := other.now(made.ID)
		if got.State != task.Completed || len(keys) != 2 || keys[0] == keys[1] || strings.Count(string(payloadOf(got)), `"action":"accept"`) != 2 {
			t.Errorf("%s with %s; asked %v, %s", got.State, payloadOf(got), keys, got.Execution.InputRequests)
		}
		store.down.Store(false)
		b.drained()
		other.drained()
	})
}

// A question that is open when its process dies stays open, under the same key.
func TestQuestionsSurviveProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store, other := refusing(t)
		other.Rerun = func(task.Task) mcptask.Work { return asksTwice }
		made := b.launch(asksTwice)
		synctest.Wait()
		before := string(b.now(made.ID).Execution.InputRequests)
		store.down.Store(true)
		other.tidy(11)
		synctest.Wait()
		if after := string(other.now(made.ID).Execution.InputRequests); after != before {
			t.Errorf("the client was asked %s, and now %s", before, after)
		}
		other.answer(made.ID)
		synctest.Wait()
		other.answer(made.ID)
		other.until(made.ID, task.Completed)
		store.down.Store(false)
		b.drained()
		other.drained()
	})
}

// rounds is work that suspends itself twice.
func rounds(ctx context.Context) ([]byte, error) {
	call, _ := mcptask.From(ctx)
	given, state, err := call.Given(ctx)
	switch {
	case err != nil:
		return nil, err
	case state == "":
		return nil, mcptask.Suspend(who, "one")
	case state == "one" && len(given) == 1:
		return nil, mcptask.Suspend(whoAndWhere, "two")
	default:
		return schema.Object{{Name: state, Value: given.Text()}}.Text(), nil
	}
}

func (b bench) resuming(work mcptask.Work) {
	b.Resume = func(context.Context, task.Task) mcptask.Work { return work }
}

// A suspended task needs no process: another one continues it, although its work must not be
// repeated, and although hours have passed.
func TestSuspendedTaskSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		b.resuming(rounds)
		made := b.launch(rounds)
		synctest.Wait()
		b.drained()
		next := b.restarted()
		next.resuming(rounds)
		next.tidy(1800)
		keys := next.answer(made.ID)
		synctest.Wait()
		last := next.restarted()
		last.resuming(rounds)
		keys = append(keys, last.answer(made.ID)...)
		synctest.Wait()
		got := string(payloadOf(last.until(made.ID, task.Completed)))
		if slices.Sort(keys); len(slices.Compact(keys)) != 3 || !strings.HasPrefix(got, `{"two":{"name":{"action"`) || !strings.Contains(got, `"roots":`) {
			t.Errorf("asked %v, returned %s", keys, got)
		}
		next.drained()
		last.drained()
	})
}

// The run that repeats a run after its first round continues with the answers of that round.
func TestRepeatedRoundHasAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store, other := refusing(t)
		stuck := func(ctx context.Context) ([]byte, error) {
			call, _ := mcptask.From(ctx)
			if _, state, err := call.Given(ctx); state == "" || err != nil {
				return nil, errors.Join(err, mcptask.Suspend(who, "one"))
			}
			return forever(ctx)
		}
		b.resuming(stuck)
		other.Rerun = func(task.Task) mcptask.Work {
			return func(ctx context.Context) ([]byte, error) {
				call, _ := mcptask.From(ctx)
				given, state, err := call.Given(ctx)
				return schema.Object{{Name: state, Value: given.Text()}}.Text(), err
			}
		}
		made := b.launch(stuck)
		synctest.Wait()
		b.answer(made.ID)
		synctest.Wait()
		store.down.Store(true)
		other.tidy(11)
		if got := string(payloadOf(other.until(made.ID, task.Completed))); !strings.HasPrefix(got, `{"one":{"name":{"action"`) {
			t.Errorf("the repeated round returned %s", got)
		}
		store.down.Store(false)
		b.drained()
		other.drained()
	})
}

// Concurrent answers to several questions continue a task once.
func TestSuspendedTaskContinuesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		runs := make(chan struct{}, 3)
		b.resuming(func(context.Context) ([]byte, error) {
			runs <- struct{}{}
			return []byte(`{}`), nil
		})
		made := b.launch(func(context.Context) ([]byte, error) { return nil, mcptask.Suspend(whoAndWhere, "") })
		synctest.Wait()
		for key := range (jsonrpc.Value{Bytes: b.now(made.ID).Execution.InputRequests}).Members() {
			go b.ask(modern, mcpname.TasksUpdate, `{"taskId":"`+string(made.ID)+`","inputResponses":{"`+key+`":{}},"_meta":{$tasks}}`)
		}
		synctest.Wait()
		b.until(made.ID, task.Completed)
		if len(runs) != 1 {
			t.Errorf("the task continued %d times", len(runs))
		}
		b.drained()
	})
}

// A suspended task ends with its TTL, and can be cancelled.
func TestSuspendedTaskEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		b.resuming(rounds)
		one, two := b.launch(rounds), b.launch(rounds)
		synctest.Wait()
		b.ask(modern, mcpname.TasksCancel, `{"taskId":"`+string(one.ID)+`"}`)
		b.until(one.ID, task.Cancelled)
		time.Sleep(time.Hour)
		b.tidy(1)
		b.until(two.ID, task.Expired)
		b.drained()
	})
}

// A client of 2026-07-28 declares in its call which questions it answers. It gets no others.
func TestOnlyClientsThatDeclareItAreAsked(t *testing.T) {
	link := schema.Object{{Name: "link", Value: json.RawMessage(`{"method":"elicitation/create","params":{"mode":"url"}}`)}}
	model := schema.Object{{Name: "model", Value: json.RawMessage(`{"method":"sampling/createMessage"}`)}}
	for _, tt := range []struct {
		capabilities string
		questions    schema.Object
		asked        bool
	}{
		{`{}`, who, false},
		{`{"elicitation":{}}`, who, true},
		{`{"elicitation":{"form":{}}}`, who, true},
		{`{"elicitation":{"url":{}}}`, who, false},
		{`{"elicitation":{"form":{}}}`, link, false},
		{`{"elicitation":{"url":{}}}`, link, true},
		{`{"elicitation":{}}`, whoAndWhere, false},
		{`{"elicitation":{},"roots":{}}`, whoAndWhere, true},
		{`{"elicitation":{}}`, model, false},
		{`{"sampling":{}}`, model, true},
	} {
		for _, message := range []string{`{"name":"sum","_meta":{$}}`, `{"method":"tools/call","params":{"_meta":{$}}}`} {
			for _, work := range []mcptask.Work{
				func(ctx context.Context) ([]byte, error) {
					call, _ := mcptask.From(ctx)
					_, err := call.Ask(ctx, tt.questions)
					return nil, err
				},
				func(context.Context) ([]byte, error) { return nil, mcptask.Suspend(tt.questions, "") },
			} {
				synctest.Test(t, func(t *testing.T) {
					b := alive(t)
					b.resuming(quick)
					d := sum("sum")
					d.Call.Message = strings.Replace(message, "$", `"`+mcpname.MetaClientCapabilities+`":`+tt.capabilities, 1)
					made, err := b.Launch(t.Context(), d, work)
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if got := b.now(made.ID); got.AwaitsInput() != tt.asked {
						t.Errorf("%s in %s: asked %t", tt.capabilities, message, got.AwaitsInput())
					}
					b.drained()
				})
			}
		}
	}
}

// A wrong answer is refused, and its question stays open.
func TestAnswersAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := alive(t)
		b.CheckAnswer = func(question, answer json.RawMessage) error {
			if string(question) == string(who[0].Value) && string(answer) == "{}" {
				return errors.New("no name")
			}
			return nil
		}
		b.resuming(quick)
		made := b.launch(func(context.Context) ([]byte, error) { return nil, mcptask.Suspend(who, "") })
		synctest.Wait()
		for key := range (jsonrpc.Value{Bytes: b.now(made.ID).Execution.InputRequests}).Members() {
			got := b.ask(modern, mcpname.TasksUpdate, `{"taskId":"`+string(made.ID)+`","inputResponses":{"`+key+`":{}},"_meta":{$tasks}}`)
			if want := `-32602 The answer ` + key + ` is invalid: no name {"error_type":"invalid_params"}`; got != want {
				t.Errorf("got %s; want %s", got, want)
			}
		}
		b.answer(made.ID)
		b.until(made.ID, task.Completed)
		b.drained()
	})
}
