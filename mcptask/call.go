package mcptask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Call gives a [Work] access to its task. It is safe for
// concurrent use.
type Call struct {
	server *Server
	ref    task.Ref
	asks   sync.Mutex // one [Call.Ask] at a time
}

type callKey struct{}

// CallFrom returns the call that the context of a [Work] belongs to. It reports
// false for other contexts.
func CallFrom(ctx context.Context) (*Call, bool) {
	c, ok := ctx.Value(callKey{}).(*Call)
	return c, ok
}

// ErrNotAsked is the error of [Call.Ask] if the client cannot be asked.
var ErrNotAsked = errors.New("mcptask: the client cannot be asked")

// ID returns the id of the task.
func (c *Call) ID() string { return string(c.ref.ID) }

// Owner returns the owner of the task.
func (c *Call) Owner() string {
	owner, _ := c.ref.Scope.Owner()
	return owner
}

// Task returns the task as it is now.
func (c *Call) Task(ctx context.Context) (task.Task, error) { return c.server.Store.Get(ctx, c.ref) }

func (c *Call) advance(ctx context.Context, e lifecycle.Event) (task.Task, error) {
	return lifecycle.Advance(ctx, c.server.Store, c.ref, e, c.server.Now())
}

// Status sets the status message of the task.
func (c *Call) Status(ctx context.Context, text string) error {
	_, err := c.advance(ctx, lifecycle.Describe{By: c.server.runner(), Message: text})
	return err
}

// Set sets a variable of the task. The client sees it, and it survives a crash of the process.
// The name begins with "server.". The value is encoded with [json.Marshal]; nil deletes the
// variable.
func (c *Call) Set(ctx context.Context, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = c.advance(ctx, lifecycle.SetVariables{
		Side: task.ServerSide, Values: task.Variables{name: text}, Limits: c.server.Variables,
	})
	return err
}

// Get reads a variable of the task, of either side, and reports whether it exists.
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

// Wait waits until a variable of the task exists, and reads it. A client of 2026-07-28 sets
// variables whose names begin with "client." with tasks/update.
func (c *Call) Wait(ctx context.Context, name string, value any) error {
	t, err := storekit.Wait(ctx, c.server.Store, c.ref, func(t task.Task) bool {
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

// Extend extends the TTL of the task to ttl from its creation, at most to [Server.MaxTTL]. It
// never shortens the TTL.
func (c *Call) Extend(ctx context.Context, ttl time.Duration) error {
	_, err := c.server.Extend(ctx, c.ref, ttl)
	return err
}

// Ask puts questions to the client, and returns the answers when the client has answered
// all. Questions are requests to the client, such as
//
//	{"method":"elicitation/create","params":{…}}
//
// under a key by which the answer is found. Meanwhile the status of the task is
// input_required. A client of 2026-07-28 answers with tasks/update; one of
// 2025-11-25 is asked while it waits in tasks/result, see [Server.Ask]. The error
// is [ErrNotAsked] if that cannot be done.
func (c *Call) Ask(ctx context.Context, questions schema.Object) (schema.Object, error) {
	c.asks.Lock()
	defer c.asks.Unlock()
	t, err := c.Task(ctx)
	if err != nil || len(questions) == 0 {
		return nil, err
	}
	// A key must not occur twice in a task. The version makes it unique.
	suffix := "-" + strconv.FormatInt(t.Version, 10)
	open := make(schema.Object, len(questions))
	for i, q := range questions {
		open[i] = schema.Member{Name: q.Name + suffix, Value: q.Value}
	}
	ask := lifecycle.Progress{By: c.server.runner(), InputRequests: open.Text()}
	if t.Execution != nil {
		ask.Message = t.Execution.Message
	}
	if _, err = c.advance(ctx, ask); err != nil {
		return nil, err
	}
	t, err = storekit.Wait(ctx, c.server.Store, c.ref, func(t task.Task) bool { return !t.AwaitsInput() })
	switch {
	case err != nil:
		return nil, err
	case t.State != task.Executing || t.Execution.Executor != c.server.runner():
		return nil, errOver
	}
	return answersTo(questions, suffix, t.Execution.Answers)
}

// answersTo returns the given answers by the keys of the questions.
func answersTo(questions schema.Object, suffix string, given json.RawMessage) (schema.Object, error) {
	var all schema.Object
	if err := all.UnmarshalJSON(given); err != nil {
		return nil, err
	}
	answers := make(schema.Object, len(questions))
	for i, q := range questions {
		answer, ok := all.Get(q.Name + suffix)
		if !ok || string(answer) == "null" {
			return nil, fmt.Errorf("%w: %s", ErrNotAsked, q.Name)
		}
		answers[i] = schema.Member{Name: q.Name, Value: answer}
	}
	return answers, nil
}
