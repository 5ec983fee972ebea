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
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A Server answers the task methods of both eras from a store, and runs
// tasks. It is safe for concurrent use. It knows nothing of transports and
// authenticates nobody: who asks is part of the [Request]. Store and Now must be
// given. No field may change once the server is used.
//
// An answer is whole in memory while it is sent. A program with huge ones uses
// a [Dialect] and [task.OpenResult] instead.
//
// A program that runs tasks runs [Server.Housekeep] as well.
type Server struct {
	Store     task.Store          // with what else of a [task.GateStore] it has
	Now       func() time.Time    // the clock
	Limits    task.Limits         // on tasks made by [Server.Start] and [Server.Launch]
	Variables task.VariableLimits // on what clients write with tasks/update
	Polling   task.Polling        // how often clients are asked to poll; see [task.Polling.ByAge]
	MaxTTL    time.Duration       // how long a task that is extended may live at most; 0 means 24 hours
	Log       *slog.Logger        // what goes wrong in the background; may be nil

	// Name is that of the process among those that share the store. No other
	// process may have it, not even one that was started later in its place. A
	// unique one is made if it is empty.
	Name string

	// Lease is how long a process that has died seems to be alive; 0 means 10
	// seconds. A process that lives renews the leases of its tasks in time.
	Lease time.Duration

	// Grace is how long work has to end when the process is to end; 0 means 5
	// seconds.
	Grace time.Duration

	// Rerun returns the work of a task whose process has died, to be done from
	// the beginning, or nil if it must not be done twice: then the task fails.
	// If Rerun is nil, all of them do.
	Rerun func(t task.Task) Work

	// Input takes the answers of a client of 2026-07-28 to what t asks of it, by the key of
	// the question. Keys that t does not ask for have been taken out. If Input
	// is nil, the answers are for [Call.Ask].
	Input func(ctx context.Context, t task.Task, responses Object) error

	// Ask puts what t asks to the client of 2025-11-25 that waits in tasks/result,
	// and returns its answer. Request is the request to the client, with method
	// and params. If Ask fails, or is nil, the work learns that the client cannot
	// be asked.
	Ask func(ctx context.Context, t task.Task, request []byte) ([]byte, error)

	process process
}

// A Request is one request about tasks.
type Request struct {
	Dialect Dialect
	Owner   string // on whose behalf the request is made; never taken from the request itself
	Method  string
	Params  json.RawMessage // may be nil
}

// Handle returns the result of r. On 2025-11-25, tasks/result waits until the
// task has ended or ctx has.
//
// [Dialect.Error] turns the error into the one that the client gets; the error
// itself says more and is for the log.
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
	case r.Method == MethodGet:
		return s.get
	case r.Method == MethodCancel:
		return s.cancel
	case r.Method == MethodResult && legacy:
		return s.result
	case r.Method == MethodList && legacy:
		return s.list
	case r.Method == MethodUpdate && !legacy:
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
	return text.Whole(payload)
}

// look returns a task as it is shown. One whose time is over ends now, even if
// nobody keeps house.
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
	answer, err := r.Dialect.ResultAnswer(t)
	if err != nil {
		return nil, err
	}
	if failure := answer.Err(payload); failure != nil {
		return nil, failure
	}
	return answer.Result.Whole(payload)
}

// overdue reports whether t is to be ended, because its time is over or because
// its process has died and nobody takes it over.
func (s *Server) overdue(t task.Task) bool {
	now := s.Now()
	if t.Lost(now) {
		return !s.runs(t) && s.again(t) == nil
	}
	return now.After(t.Due())
}

// ended waits until a task has ended. What the task asks meanwhile is put to the
// client that waits.
func (s *Server) ended(ctx context.Context, ref task.Ref) (task.Task, error) {
	for {
		t, err := task.Wait(ctx, s.Store, ref, func(t task.Task) bool {
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

// payload returns what the call was answered with, as a client of the era reads
// it, or nil if it was not. Results of 2026-07-28 say of what type they are.
func (s *Server) payload(ctx context.Context, era Era, t task.Task) ([]byte, error) {
	if t.Result == nil || !t.State.Terminal() {
		return nil, nil
	}
	var b bytes.Buffer
	if err := task.ReadResult(ctx, task.BlobsOf(s.Store), t, &b); err != nil {
		return nil, err
	}
	result := jsonrpc.Value{Bytes: b.Bytes()}
	typed := result.Member(memberResultType).Present()
	switch {
	case t.Result.Kind == task.ResultRPCError:
	case era == V2025 && typed:
		return result.Without(memberResultType), nil
	case era == V2026 && !typed:
		var read Object
		if err := jsonv2.Unmarshal(result.Bytes, &read); err != nil {
			return nil, err
		}
		return append(Object{{memberResultType, quote(string(Complete))}}, read...).text(), nil
	}
	return result.Bytes, nil
}

const memberResultType = "resultType"

func (s *Server) list(ctx context.Context, r Request) (json.RawMessage, error) {
	var params ListParams
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
	t, err := task.Advance(ctx, s.Store, ref, task.Cancel{By: r.Owner}, s.Now())
	if r.Dialect.Era == V2026 && over(err) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return r.Dialect.CancelResult(t)
}

func (s *Server) update(ctx context.Context, r Request) (json.RawMessage, error) {
	var params UpdateParams
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
	if err := s.change(ctx, t, ClientVariables(params.Meta), ttl); err != nil && !over(err) {
		return nil, err
	}
	if answers := asked(t, params.InputResponses); len(answers) > 0 {
		if err := s.input(ctx, t, answers); err != nil && !over(err) {
			return nil, err
		}
	}
	return encode(Ack2026{ResultType: Complete})
}

// change writes variables that the owner of t wants, and prolongs the life of t
// unless ttl is 0.
func (s *Server) change(ctx context.Context, t task.Task, written task.Variables, ttl time.Duration) error {
	ref := task.OwnedBy(t.Owner).Ref(t.ID)
	if len(written) > 0 {
		set := task.SetVariables{Side: task.ClientSide, Values: written, Limits: s.Variables}
		if _, err := task.Advance(ctx, s.Store, ref, set, s.Now()); err != nil {
			return err
		}
	}
	if ttl == 0 {
		return nil
	}
	_, err := s.extend(ctx, ref, t.Owner, ttl)
	return err
}

// asked returns those of the answers that t has a question for.
func asked(t task.Task, answers Object) Object {
	var wanted Object
	questions := jsonrpc.Value{Bytes: inputRequests(t)}
	for _, m := range answers {
		if questions.Member(m.Name).Present() {
			wanted = append(wanted, m)
		}
	}
	return wanted
}

// over reports whether err means that a task has ended, or is about to because
// its time is over. A client of 2026-07-28 does not learn of it: it asked for something that
// happens in its own time, if at all.
func over(err error) bool {
	return errors.Is(err, task.ErrAlreadyTerminal) || errors.Is(err, task.ErrExpired)
}

// ClientVariables returns the variables that a client wants to write, from the
// _meta of the request that makes a task or of tasks/update. Those that it may
// not write are among them, for [task.SetVariables] to refuse.
func ClientVariables(meta Object) task.Variables {
	written := task.Variables{}
	for _, m := range meta {
		if strings.HasPrefix(m.Name, task.ClientPrefix) || strings.HasPrefix(m.Name, task.ServerPrefix) {
			written[m.Name] = m.Value
		}
	}
	return written
}

// ref returns the task that a request with [TaskParams] is about.
func (r Request) ref() (task.Ref, error) {
	var params TaskParams
	if err := r.read(&params); err != nil {
		return task.Ref{}, err
	}
	return r.named(params.TaskID, params.Meta)
}

func (r Request) named(id string, meta Object) (task.Ref, error) {
	if r.Dialect.Era == V2026 && !RequestDeclaresTasks(meta) {
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
