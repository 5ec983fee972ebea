package mcptask

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Run gives a [Work] access to its task. It is safe for
// concurrent use.
type Run struct {
	server *Server
	ref    task.Ref
	writer *writer

	asks  sync.Mutex     // one [Run.Ask] at a time
	asked map[string]int // how often each question was asked
}

type runKey struct{}

// From returns the run that the context of a [Work] belongs to. It reports
// false for other contexts.
func From(ctx context.Context) (*Run, bool) {
	r, ok := ctx.Value(runKey{}).(*Run)
	return r, ok
}

// ErrNotAsked is the error of [Run.Ask] if the client cannot be asked.
var ErrNotAsked = errors.New("mcptask: the client cannot be asked")

// ID returns the id of the task.
func (r *Run) ID() string { return string(r.ref.ID) }

// Owner returns the owner of the task.
func (r *Run) Owner() string {
	owner, _ := r.ref.Scope.Owner()
	return owner
}

// Task returns the task as it is now.
func (r *Run) Task(ctx context.Context) (task.Task, error) { return r.server.Store.Get(ctx, r.ref) }

// Status sets the status message of the task. It does not wait until the message is stored, which
// takes a moment. Messages that come faster replace each other. The error is that of an earlier
// message.
func (r *Run) Status(ctx context.Context, text string) error {
	return r.writer.status(ctx, lifecycle.Describe{By: r.server.runner(), Message: text})
}

// Set sets a variable of the task. The client sees it, and it survives a crash of the process.
// The name begins with "server.". The value is encoded with [json.Marshal]; nil deletes the
// variable.
func (r *Run) Set(ctx context.Context, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = r.writer.make(ctx, lifecycle.SetVariables{
		Side: task.ServerSide, Values: task.Variables{name: text}, Limits: r.server.Variables,
	})
	return err
}

// Get reads a variable of the task, of either side, and reports whether it exists.
func (r *Run) Get(ctx context.Context, name string, value any) (bool, error) {
	t, err := r.Task(ctx)
	if err != nil {
		return false, err
	}
	text, ok := t.Variables[name]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(text, value)
}

// Wait waits until a variable of the task exists, and reads it. A client of 2026-07-28 sets
// variables whose names begin with "client." with tasks/update.
func (r *Run) Wait(ctx context.Context, name string, value any) error {
	t, err := r.wait(ctx, func(t task.Task) bool { return t.Variables[name] != nil })
	text, ok := t.Variables[name]
	if !ok {
		return err
	}
	return json.Unmarshal(text, value)
}

// wait waits until a run of this task has come so far. The error is the cause if it has ended.
func (r *Run) wait(ctx context.Context, until func(task.Task) bool) (task.Task, error) {
	t, err := storekit.Wait(ctx, r.server.Store, r.ref, func(t task.Task) bool { return until(t) || !r.runs(t) })
	switch {
	case err != nil && ctx.Err() != nil:
		return t, context.Cause(ctx)
	case err == nil && !r.runs(t):
		return t, endedBy(t)
	default:
		return t, err
	}
}

// runs reports whether this process runs t.
func (r *Run) runs(t task.Task) bool {
	return t.State == task.Executing && t.Execution.Executor == r.server.runner()
}

// Extend extends the TTL of the task to ttl from its creation, at most to [Server.MaxTTL]. It
// never shortens the TTL.
func (r *Run) Extend(ctx context.Context, ttl time.Duration) error {
	_, err := r.server.Extend(ctx, r.ref, ttl)
	return err
}

// Ask puts questions to the client, and returns the answers when the client has answered
// all. Questions are requests to the client, such as
//
//	{"method":"elicitation/create","params":{…}}
//
// under a name by which the answer is found. Meanwhile the status of the task is
// input_required. A client of 2026-07-28 answers with tasks/update; one of
// 2025-11-25 is asked while it waits in tasks/result, see [Server.Ask]. The error
// is [ErrNotAsked] if the client cannot be asked.
//
// A run that repeats an earlier one, see [Server.Rerun], gets the answers that the client has
// already given to the same questions.
func (r *Run) Ask(ctx context.Context, questions schema.Object) (schema.Object, error) {
	r.asks.Lock()
	defer r.asks.Unlock()
	t, err := r.Task(ctx)
	if err == nil {
		err = canAsk(t, questions)
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil || len(questions) == 0 {
		return nil, err
	}
	open := r.keyed(t, questions)
	_, err = r.writer.make(ctx, lifecycle.Ask{By: r.server.runner(), Questions: open.Text()})
	if err != nil && !errors.Is(err, task.ErrAlreadyTerminal) && !errors.Is(err, lifecycle.ErrNotExecutor) {
		return nil, err
	}
	t, err = r.wait(ctx, func(t task.Task) bool { return answered(t, open) })
	if err != nil {
		return nil, err
	}
	return answersTo(questions, open, t.Execution.Answers)
}

// keyed returns questions under keys for the client. A key occurs once in a task, but a run that
// asks the same questions as an earlier one finds them under the same keys.
func (r *Run) keyed(t task.Task, questions schema.Object) schema.Object {
	if r.asked == nil {
		r.asked = make(map[string]int)
	}
	open := make(schema.Object, len(questions))
	for i, q := range questions {
		text := q.Name + string(q.Value)
		r.asked[text]++
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", roundOf(t), r.asked[text], text))
		open[i] = schema.Member{Name: q.Name + keyMark + "q" + hex.EncodeToString(sum[:6]), Value: q.Value}
	}
	return open
}

// answered reports whether the client has answered all questions.
func answered(t task.Task, questions schema.Object) bool {
	given := jsonrpc.Value{Bytes: t.Execution.Answers}
	return !slices.ContainsFunc(questions, func(q schema.Member) bool { return !given.Member(q.Name).Present() })
}

// answersTo returns the given answers by the names of the questions, which were open under keys.
func answersTo(questions, open schema.Object, given json.RawMessage) (schema.Object, error) {
	all := jsonrpc.Value{Bytes: given}
	answers := make(schema.Object, len(questions))
	for i, q := range questions {
		answer := all.Member(open[i].Name)
		if answer.IsNull() {
			return nil, fmt.Errorf("%w: %s", ErrNotAsked, q.Name)
		}
		answers[i] = schema.Member{Name: q.Name, Value: answer.Bytes}
	}
	return answers, nil
}
