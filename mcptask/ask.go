package mcptask

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// input stores answers to the questions of t.
func (s *Server) input(ctx context.Context, t task.Task, answers schema.Object) error {
	if s.Input != nil {
		return s.Input(ctx, t, answers)
	}
	responses := make(map[string]json.RawMessage, len(answers))
	for _, m := range answers {
		responses[m.Name] = m.Value
	}
	e := lifecycle.Answer{Responses: responses}
	if s.Resume != nil && t.Execution.Detached() {
		return s.continued(ctx, t, e)
	}
	_, err := lifecycle.Advance(ctx, s.Store, task.OwnedBy(t.Owner).Ref(t.ID), e, s.Now())
	if errors.Is(err, task.ErrInvalidTransition) {
		return nil // the questions were answered meanwhile
	}
	return err
}

// asks reports whether t has a question that is not being put to its client.
func (s *Server) asks(t task.Task) bool {
	if !t.AwaitsInput() || s.Input != nil {
		return false
	}
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	for key := range (jsonrpc.Value{Bytes: inputRequests(t)}).Members() {
		if _, asked := s.process.asking[question{t.ID, key}]; !asked {
			return true
		}
	}
	return false
}

// putQuestions puts the questions of t to a client, one after the other.
func (s *Server) putQuestions(ctx context.Context, t task.Task) error {
	for key, request := range (jsonrpc.Value{Bytes: inputRequests(t)}).Members() {
		q := question{t.ID, key}
		if !s.beginAsking(q) {
			continue
		}
		err := s.putQuestion(ctx, t, key, request.Bytes)
		s.endAsking(q)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) putQuestion(ctx context.Context, t task.Task, key string, request json.RawMessage) error {
	answer := json.RawMessage("null")
	if s.Ask != nil {
		given, err := s.Ask(ctx, t, request)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrNotAsked):
		case err != nil:
			s.log(ctx, "ask the client", t.ID, err)
		default:
			answer = given
		}
	}
	return s.input(ctx, t, schema.Object{{Name: key, Value: answer}})
}

func (s *Server) beginAsking(q question) bool {
	p := &s.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, asked := p.asking[q]; asked {
		return false
	}
	if p.asking == nil {
		p.asking = make(map[question]struct{})
	}
	p.asking[q] = struct{}{}
	return true
}

func (s *Server) endAsking(q question) {
	s.process.mu.Lock()
	defer s.process.mu.Unlock()
	delete(s.process.asking, q)
}
