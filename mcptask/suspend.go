package mcptask

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// A suspension is the error with which a work ends until the client has answered.
type suspension struct {
	questions schema.Object
	state     string
}

// Suspend returns an error with which a [Work] puts questions to the client and ends, such as
// those of [Run.Ask]. Until the client has answered, the task needs no process. Then the work
// of [Server.Resume] continues, in any process, with state and the answers; see [Run.Given].
func Suspend(questions schema.Object, state string) error { return &suspension{questions, state} }

// Error implements error.
func (*suspension) Error() string { return "mcptask: the work waits for answers of the client" }

// keyMark separates the name of a question from the part that makes its key unique.
const keyMark = "-"

// suspend stores the questions, and detaches the run from this process.
func (s *Server) suspend(ctx context.Context, ref task.Ref, asks *suspension) (task.Task, error) {
	t, err := s.Store.Get(ctx, ref)
	if err != nil || t.State != task.Executing || t.Execution.Executor != s.runner() {
		return t, err
	}
	open := make(schema.Object, len(asks.questions))
	for i, q := range asks.questions {
		open[i] = schema.Member{Name: q.Name + keyMark + strconv.FormatInt(t.Version, 10), Value: q.Value}
	}
	t, err = lifecycle.Advance(ctx, s.Store, ref, lifecycle.Progress{
		By: s.runner(), Message: t.Execution.Message, InputRequests: open.Text(), RequestState: asks.state, Release: true,
	}, s.Now())
	return t, unlessOver(err)
}

// canSuspend returns the error of work that cannot wait for answers.
func (s *Server) canSuspend(t task.Task, asks *suspension) error {
	if s.Resume == nil || len(asks.questions) == 0 {
		return errors.New("mcptask: work without questions, or without Server.Resume, cannot be suspended")
	}
	return canAsk(t, asks.questions)
}

// Given returns the answers to the questions of the last [Suspend], by the names of the
// questions, and its state. There are none if no work of the task was suspended. The error is
// [ErrNotAsked] if the client could not be asked.
func (r *Run) Given(ctx context.Context) (answers schema.Object, state string, err error) {
	t, err := r.Task(ctx)
	if err != nil || t.Execution == nil {
		return nil, "", err
	}
	for key, answer := range (jsonrpc.Value{Bytes: t.Execution.Answers}).Members() {
		name, round := splitKey(key)
		switch {
		case round == "":
		case answer.IsNull():
			return nil, "", fmt.Errorf("%w: %s", ErrNotAsked, name)
		default:
			answers = append(answers, schema.Member{Name: name, Value: answer.Bytes})
		}
	}
	return answers, t.Execution.RequestState, nil
}

// splitKey returns the name of a question, and the version of the task at which it was suspended
// if it is a question of [Suspend].
func splitKey(key string) (name, round string) {
	at := strings.LastIndex(key, keyMark)
	if at < 0 || strings.Trim(key[at+len(keyMark):], "0123456789") != "" {
		return key, ""
	}
	return key[:at], key[at+len(keyMark):]
}

// roundOf returns a text that changes each time that t is suspended.
func roundOf(t task.Task) string {
	for key := range (jsonrpc.Value{Bytes: t.Execution.Answers}).Members() {
		if _, round := splitKey(key); round != "" {
			return round
		}
	}
	return ""
}

// continued stores answers to the questions of a suspended task. After the last one, this process
// continues the task.
func (s *Server) continued(ctx context.Context, t task.Task, e lifecycle.Answer) error {
	s.process.resuming.Lock()
	defer s.process.resuming.Unlock()
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	if ended := s.endOf(t.ID); ended != nil { // the run that asked
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	t, err := s.Store.Get(ctx, ref)
	if err != nil || !t.AwaitsInput() || !t.Execution.Detached() {
		return err
	}
	running, end, err := s.enter(ctx, t.ID)
	if err != nil {
		return err
	}
	now := s.Now()
	e.By, e.LeaseUntil = s.runner(), now.Add(s.lease())
	t, err = s.begin(ctx, ref, e, now)
	if err != nil || t.Execution.Executor != s.runner() {
		end()
		return err
	}
	s.background(running, t, s.Resume(ctx, t), end)
	return nil
}

// canAsk returns [ErrNotAsked] if the client of 2026-07-28 that made the call of t has not
// declared that it can be asked. What a client of 2025-11-25 has declared is known when it waits;
// see [Server.Ask].
func canAsk(t task.Task, questions schema.Object) error {
	message := jsonrpc.Value{Bytes: []byte(t.Call.Message)}
	if params := message.Member("params"); params.Present() {
		message = params
	}
	declared := message.Member("_meta").Member(mcpname.MetaClientCapabilities)
	if !declared.Present() {
		return nil
	}
	for _, q := range questions {
		//mutate:false TestOnlyClientsThatDeclareItAreAsked a client is asked although it has not declared that it can be
		if !declares(declared, jsonrpc.Value{Bytes: q.Value}) {
			return fmt.Errorf("%w: it has not declared that it answers %s", ErrNotAsked, q.Name)
		}
	}
	return nil
}

// declares reports whether a client with these capabilities answers a question.
func declares(capabilities, question jsonrpc.Value) bool {
	method, _ := question.Member("method").Text()
	switch method {
	case mcpname.ElicitationCreate:
		forms := capabilities.Member("elicitation")
		if mode, _ := question.Member("params").Member("mode").Text(); mode == "url" {
			return forms.Member(mode).IsObject()
		}
		return forms.IsObject() && (forms.Member("form").Present() || !forms.Member("url").Present())
	case mcpname.SamplingCreateMessage:
		return capabilities.Member("sampling").IsObject()
	case mcpname.RootsList:
		return capabilities.Member("roots").IsObject()
	default:
		return true
	}
}
