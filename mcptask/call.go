package mcptask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Call is a task as the [Work] that runs for it sees it. It is safe for
// concurrent use.
type Call struct {
	server *Server
	ref    task.Ref
	asks   sync.Mutex // one [Call.Ask] at a time
}

type callKey struct{}

// CallFrom returns the call that the context of a [Work] belongs to. It reports
// false if ctx belongs to none.
func CallFrom(ctx context.Context) (*Call, bool) {
	c, ok := ctx.Value(callKey{}).(*Call)
	return c, ok
}

// ErrNotAsked is the error of [Call.Ask] if the client cannot be asked.
var ErrNotAsked = errors.New("mcptask: the client cannot be asked")

// ID returns the id of the task.
func (c *Call) ID() string { return string(c.ref.ID) }

// Owner returns on whose behalf the task was made.
func (c *Call) Owner() string {
	owner, _ := c.ref.Scope.Owner()
	return owner
}

// Task returns the task as it is now.
func (c *Call) Task(ctx context.Context) (task.Task, error) { return c.server.Store.Get(ctx, c.ref) }

func (c *Call) advance(ctx context.Context, e task.Event) (task.Task, error) {
	return task.Advance(ctx, c.server.Store, c.ref, e, c.server.Now())
}

// Status sets the task's status message, which says how far the work is.
func (c *Call) Status(ctx context.Context, text string) error {
	_, err := c.advance(ctx, task.Describe{By: c.server.runner(), Message: text})
	return err
}

// Set writes a variable of the task, which the client sees and which outlives
// the process. The name begins with "server."; the value is what [json.Marshal]
// makes of it, and nil deletes the variable.
func (c *Call) Set(ctx context.Context, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = c.advance(ctx, task.SetVariables{
		Side: task.ServerSide, Values: task.Variables{name: text}, Limits: c.server.Variables,
	})
	return err
}

// Get reads a variable of the task, of either side, and reports whether it is
// there.
func (c *Call) Get(ctx context.Context, name string, value any) (bool, error) {
	t, err := c.Task(ctx)
	if err != nil {
		return false, err
	}
	text, ok := t.Variables[name]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(text, value)
}

// Wait waits until a variable of the task is there, and reads it. A client of
// 2026-07-28 writes variables whose names begin with "client." with tasks/update.
func (c *Call) Wait(ctx context.Context, name string, value any) error {
	t, err := task.Wait(ctx, c.server.Store, c.ref, func(t task.Task) bool {
		return t.Variables[name] != nil || t.State.Terminal()
	})
	if err != nil {
		return err
	}
	text, ok := t.Variables[name]
	if !ok {
		return errOver
	}
	return json.Unmarshal(text, value)
}

// Extend prolongs the life of the task to ttl from its creation, at most to
// [Server.MaxTTL]. It never shortens it.
func (c *Call) Extend(ctx context.Context, ttl time.Duration) error {
	_, err := c.server.Extend(ctx, c.ref, ttl)
	return err
}

// Ask asks the client something, and returns its answers when it has answered
// all. Questions are requests to the client, such as
//
//	{"method":"elicitation/create","params":{…}}
//
// under a key by which the answer is found. Meanwhile the status of the task is
// input_required. A client of 2026-07-28 answers with tasks/update; one of
// 2025-11-25 is asked while it waits in tasks/result, see [Server.Ask]. The error
// is [ErrNotAsked] if that cannot be done.
func (c *Call) Ask(ctx context.Context, questions Object) (Object, error) {
	c.asks.Lock()
	defer c.asks.Unlock()
	t, err := c.Task(ctx)
	if err != nil || len(questions) == 0 {
		return nil, err
	}
	// No key is ever used twice in a task, and versions only grow.
	suffix := "-" + strconv.FormatInt(t.Version, 10)
	open := make(Object, len(questions))
	for i, q := range questions {
		open[i] = Member{q.Name + suffix, q.Value}
	}
	ask := task.Progress{By: c.server.runner(), InputRequests: open.text()}
	if t.Execution != nil {
		ask.Message = t.Execution.Message
	}
	if _, err = c.advance(ctx, ask); err != nil {
		return nil, err
	}
	t, err = task.Wait(ctx, c.server.Store, c.ref, func(t task.Task) bool { return !t.Asks() })
	switch {
	case err != nil:
		return nil, err
	case t.State != task.Executing || t.Execution.Executor != c.server.runner():
		return nil, errOver
	}
	return answersTo(questions, suffix, t.Execution.Answers)
}

// answersTo returns the given answers by the keys of the questions.
func answersTo(questions Object, suffix string, given json.RawMessage) (Object, error) {
	var all Object
	if err := all.UnmarshalJSON(given); err != nil {
		return nil, err
	}
	answers := make(Object, len(questions))
	for i, q := range questions {
		answer, ok := all.Get(q.Name + suffix)
		if !ok || string(answer) == "null" {
			return nil, fmt.Errorf("%w: %s", ErrNotAsked, q.Name)
		}
		answers[i] = Member{q.Name, answer}
	}
	return answers, nil
}
