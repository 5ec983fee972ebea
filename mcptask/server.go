package mcptask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
	"github.com/thoughtgate/thoughtgate-go/task/storekit"
)

// A Server answers the task methods of both eras from a store, and runs tasks. It is safe for
// concurrent use. It has no transport and does not authenticate: the owner is part of the
// [Request]. Store and Now are required. Fields must not change after the first use.
//
// An answer is in memory as a whole while it is sent. A program with very large answers uses a
// [Dialect] and [storekit.OpenResult] instead.
//
// A program that runs tasks must also run [Server.Housekeep].
type Server struct {
	Store     task.Store          // may implement [task.Blobs] and [task.Watcher]
	Now       func() time.Time    // the clock
	Limits    task.Limits         // on tasks made by [Server.Start] and [Server.Launch]
	Variables task.VariableLimits // of the variables that clients set with tasks/update
	Polling   task.Polling        // how often clients are asked to poll; see [task.Polling.ByAge]
	MaxTTL    time.Duration       // the largest TTL to which a task can be extended; 0 means 24 hours
	Log       *slog.Logger        // for errors of background work; may be nil

	// Name identifies the process among those that share the store. It must be unique, also
	// among earlier processes. If it is empty, the server generates a unique name.
	Name string

	// Lease is the time after which a process that does not renew the leases of its
	// tasks counts as dead; 0 means 10 seconds.
	Lease time.Duration

	// Grace is the time that work has to end when the process is to end; 0 means 5 seconds.
	Grace time.Duration

	// Rerun returns the work with which to repeat a task whose process has died. It returns nil
	// if the task must not be repeated: then the task fails. If Rerun is nil, all such tasks
	// fail.
	Rerun func(t task.Task) Work

	// Resume returns the work that continues a task whose questions, those of [Suspend], the
	// client has answered. The context is that of the request with the last answer.
	Resume func(ctx context.Context, t task.Task) Work

	// Input receives the answers of a client of 2026-07-28 to the questions of t, by the key of
	// the question. Answers without a question were removed. If Input is nil, the answers are
	// for [Run.Ask].
	Input func(ctx context.Context, t task.Task, responses schema.Object) error

	// CheckAnswer returns an error for an answer of a client of 2026-07-28 that does not match
	// its question. The client gets the text of the error, and the question stays open. If
	// CheckAnswer is nil, all answers are accepted.
	CheckAnswer func(question, answer json.RawMessage) error

	// Ask sends a question of t to the client of 2025-11-25 that waits in tasks/result, and
	// returns its answer. Request is the request to the client, with method and params. If Ask
	// fails or is nil, the work gets [ErrNotAsked].
	Ask func(ctx context.Context, t task.Task, request []byte) ([]byte, error)

	process process
}

// A Request is one request about tasks.
type Request struct {
	Dialect Dialect
	Owner   string // the authenticated owner; never from the content of the request
	Method  string
	Params  json.RawMessage // may be nil
}

// Handle returns the result of r. On 2025-11-25, tasks/result waits until the task or ctx has
// ended.
//
// Use [Dialect.Error] to convert an error for the client. The original error has more details
// and is for the log.
func (s *Server) Handle(ctx context.Context, r Request) (json.RawMessage, error) {
	handle := s.method(r)
	if handle == nil {
		return nil, &jsonrpc.Error{
			Code: jsonrpc.CodeMethodNotFound, Message: "Method not found", Data: errorData("method_not_found"),
		}
	}
	return handle(ctx, r)
}

func (s *Server) method(r Request) func(context.Context, Request) (json.RawMessage, error) {
	legacy := r.Dialect.Era == V2025
	switch {
	case r.Method == mcpname.TasksGet:
		return s.get
	case r.Method == mcpname.TasksCancel:
		return s.cancel
	case r.Method == mcpname.TasksResult && legacy:
		return s.result
	case r.Method == mcpname.TasksList && legacy:
		return s.list
	case r.Method == mcpname.TasksUpdate && !legacy:
		return s.update
	default:
		return nil
	}
}

func (s *Server) get(ctx context.Context, r Request) (json.RawMessage, error) {
	ref, err := r.ref()
	if err != nil {
		return nil, err
	}
	t, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	text, err := r.Dialect.GetResult(t)
	if err != nil {
		return nil, err
	}
	payload, err := s.payload(ctx, r.Dialect.Era, t)
	if err != nil {
		return nil, err
	}
	return text.ComposeBytes(payload)
}

// look returns a task for a client. It ends a task whose TTL has passed, even without
// housekeeping.
func (s *Server) look(ctx context.Context, ref task.Ref) (task.Task, error) {
	t, err := s.Store.Get(ctx, ref)
	if err != nil {
		return t, err
	}
	if s.overdue(t) {
		if t, _, err = s.updater().Settle(ctx, t, s.runner(), s.Now()); err != nil {
			return t, err
		}
	}
	t.PollInterval = s.Polling.ByAge(s.Now().Sub(t.CreatedAt))
	return t, nil
}

func (s *Server) result(ctx context.Context, r Request) (json.RawMessage, error) {
	ref, err := r.ref()
	if err != nil {
		return nil, err
	}
	t, err := s.ended(ctx, ref)
	if err != nil {
		return nil, err
	}
	payload, err := s.payload(ctx, r.Dialect.Era, t)
	if err != nil {
		return nil, err
	}
	answer, err := r.Dialect.ResultOutcome(t)
	if err != nil {
		return nil, err
	}
	if failure := answer.Err(payload); failure != nil {
		return nil, failure
	}
	return answer.Result.ComposeBytes(payload)
}

// overdue reports whether t must end, because its TTL has passed, or because its process has
// died and t must not run again.
func (s *Server) overdue(t task.Task) bool {
	now := s.Now()
	if t.Lost(now) {
		return !s.runs(t) && s.again(t) == nil
	}
	return now.After(t.Due())
}

// ended waits until a task has ended. It puts questions of the task to the client that
// waits.
func (s *Server) ended(ctx context.Context, ref task.Ref) (task.Task, error) {
	for {
		t, err := storekit.Wait(ctx, s.Store, ref, func(t task.Task) bool {
			return t.State.Terminal() || s.overdue(t) || s.asks(t)
		})
		if err == nil && !t.State.Terminal() && s.asks(t) {
			err = s.putQuestions(ctx, t)
		}
		if err == nil {
			t, err = s.look(ctx, ref)
		}
		if err != nil || t.State.Terminal() {
			return t, err
		}
	}
}

// payload returns the answer to the call in the form of the era, or nil. Results of
// 2026-07-28 have a resultType.
func (s *Server) payload(ctx context.Context, era Era, t task.Task) ([]byte, error) {
	if t.Result == nil || !t.State.Terminal() {
		return nil, nil
	}
	var b bytes.Buffer
	if err := storekit.ReadResult(ctx, storekit.BlobsOf(s.Store), t, &b); err != nil {
		return nil, err
	}
	result := jsonrpc.Value{Bytes: b.Bytes()}
	typed := result.Member(memberResultType).Present()
	switch {
	case t.Result.Kind == task.ResultRPCError:
	case era == V2025 && typed:
		return result.Without(memberResultType), nil
	case era == V2026 && !typed:
		var read schema.Object
		if err := jsonv2.Unmarshal(result.Bytes, &read); err != nil {
			return nil, err
		}
		return append(schema.Object{{Name: memberResultType, Value: quote(string(schema.Complete))}}, read...).Text(), nil
	}
	return result.Bytes, nil
}

const memberResultType = "resultType"

func (s *Server) list(ctx context.Context, r Request) (json.RawMessage, error) {
	var params schema.ListParams
	if err := r.read(&params); err != nil {
		return nil, err
	}
	page, err := s.Store.List(ctx, task.Query{Scope: task.OwnedBy(r.Owner), Cursor: params.Cursor})
	if err != nil {
		return nil, err
	}
	return r.Dialect.ListResult(page)
}

func (s *Server) cancel(ctx context.Context, r Request) (json.RawMessage, error) {
	ref, err := r.ref()
	if err != nil {
		return nil, err
	}
	t, err := lifecycle.Advance(ctx, s.Store, ref, lifecycle.Cancel{By: r.Owner}, s.Now())
	if r.Dialect.Era == V2026 && over(err) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return r.Dialect.CancelResult(t)
}

func (s *Server) update(ctx context.Context, r Request) (json.RawMessage, error) {
	var params schema.UpdateParams
	if err := r.read(&params); err != nil {
		return nil, err
	}
	ref, err := r.named(params.TaskID, params.Meta)
	if err != nil {
		return nil, err
	}
	ttl, err := UpdatedTTL(params.TTLMs)
	if err != nil {
		return nil, err
	}
	t, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	answers, err := s.answers(t, params.InputResponses)
	if err != nil {
		return nil, err
	}
	if err := s.change(ctx, t, ClientVariables(params.Meta), ttl); err != nil && !over(err) {
		return nil, err
	}
	if len(answers) > 0 {
		if err := s.input(ctx, t, answers); err != nil && !over(err) {
			return nil, err
		}
	}
	return encode(schema.Ack2026{ResultType: schema.Complete})
}

// change sets variables for the owner of t, and extends the TTL of t unless ttl is 0.
func (s *Server) change(ctx context.Context, t task.Task, written task.Variables, ttl time.Duration) error {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	if len(written) > 0 {
		set := lifecycle.SetVariables{Side: task.ClientSide, Values: written, Limits: s.Variables}
		if _, err := lifecycle.Advance(ctx, s.Store, ref, set, s.Now()); err != nil {
			return err
		}
	}
	if ttl == 0 {
		return nil
	}
	_, err := s.extend(ctx, ref, t.Owner, ttl)
	return err
}

// answers returns those answers that belong to a question of t.
func (s *Server) answers(t task.Task, given schema.Object) (wanted schema.Object, err error) {
	questions := jsonrpc.Value{Bytes: inputRequests(t)}
	for _, m := range given {
		question := questions.Member(m.Name)
		if !question.Present() {
			continue
		}
		//mutate:false TestAnswersAreChecked answers are not checked
		if s.CheckAnswer != nil {
			if wrong := s.CheckAnswer(question.Bytes, m.Value); wrong != nil {
				return nil, invalidParams("The answer " + m.Name + " is invalid: " + wrong.Error())
			}
		}
		wanted = append(wanted, m)
	}
	return wanted, nil
}

// over reports whether err means that a task has ended, or is about to because
// its time is over. A client of 2026-07-28 gets no error then, because its requests are
// only acknowledged.
func over(err error) bool {
	return errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired)
}

// ClientVariables returns the variables that a client wants to set, from the _meta of the
// request that makes a task or of tasks/update. The client may not be allowed to set them;
// [lifecycle.SetVariables] checks that.
func ClientVariables(meta schema.Object) task.Variables {
	written := task.Variables{}
	for _, m := range meta {
		if strings.HasPrefix(m.Name, task.ClientPrefix) || strings.HasPrefix(m.Name, task.ServerPrefix) {
			written[m.Name] = m.Value
		}
	}
	return written
}

// ref returns the task of a request with [schema.TaskParams].
func (r Request) ref() (task.Ref, error) {
	var params schema.TaskParams
	if err := r.read(&params); err != nil {
		return task.Ref{}, err
	}
	return r.named(params.TaskID, params.Meta)
}

func (r Request) named(id string, meta schema.Object) (task.Ref, error) {
	if r.Dialect.Era == V2026 && !schema.RequestDeclaresTasks(meta) {
		return task.Ref{}, MissingExtension()
	}
	if id == "" {
		return task.Ref{}, invalidParams("taskId is missing")
	}
	return task.OwnedBy(r.Owner).Ref(task.ID(id)), nil
}

func (r Request) read(params any) error {
	if len(r.Params) == 0 {
		return nil
	}
	if err := jsonv2.Unmarshal(r.Params, params); err != nil {
		return invalidParams("Invalid params")
	}
	return nil
}

func invalidParams(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message, Data: errorData("invalid_params")}
}
